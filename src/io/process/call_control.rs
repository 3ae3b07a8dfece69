//! Requests of a program about its telephone call: transfers, and keys to the caller's end.
//!
//! In: requests, one at a time. Out: the message that tells the program the result. The provider's
//! own API does them, with the credentials of the runner, which the program does not get.

use crate::bot::RunnerArguments;
use crate::bot::media::Output;
use crate::kit::{CallAccess, CallControlError};
use crate::proto::process::CallRequest;

/// The call of a session; an error without one.
#[derive(Clone)]
pub struct CallControl(Result<CallAccess, CallControlError>);

impl CallControl {
    /// Takes the call from the arguments of a bot.
    pub fn of(args: &RunnerArguments) -> Self {
        CallControl(CallAccess::of(args))
    }

    /// Does what a program asks for, a transfer once `PLAYED_MARK` has come back. Returns why it
    /// was not done.
    pub async fn perform(self, request: CallRequest, output: Output) -> Result<(), String> {
        let done = async {
            let call = self.0?.with(output);
            match &request {
                CallRequest::Transfer { to, .. } => call.transfer_when_played(to).await,
                CallRequest::Keys(keys) => call.send_keys(keys).await,
            }
        };
        done.await.map_err(|error: CallControlError| error.to_string())
    }
}
