//! Replaces `io::process::call_control` in a build without `telephony`: no session is a call.

use crate::bot::RunnerArguments;
use crate::bot::media::Output;
use crate::proto::process::CallRequest;

/// No call.
#[derive(Clone)]
pub struct CallControl;

impl CallControl {
    /// Ignores the arguments.
    pub fn of(_args: &RunnerArguments) -> Self {
        CallControl
    }

    /// Tells that there is no call.
    pub async fn perform(self, _request: CallRequest, _output: Output) -> Result<(), String> {
        Err("the session is not a telephone call".to_owned())
    }
}
