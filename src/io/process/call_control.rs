//! Requests of a program about its telephone call: transfers, and keys to the caller's end.
//!
//! In: requests, one at a time. Out: why one was not done. The provider's own API does them, with
//! the credentials of the runner, which the program does not get.

use std::sync::Arc;

use super::service_rows::CallOf;
use crate::bot::media::Output;
use crate::kit::{CallAccess, CallControlError};
use crate::proto::process::CallRequest;

/// Returns what does the requests about the call of a session.
pub(super) const fn row() -> Option<CallOf> {
    Some(|args| {
        let access = CallAccess::of(args);
        Arc::new(move |request, output| Box::pin(perform(access.clone(), request, output)))
    })
}

/// Does what a program asks for, a transfer once `PLAYED_MARK` has come back. Returns why it was
/// not done.
async fn perform(
    access: Result<CallAccess, CallControlError>,
    request: CallRequest,
    output: Output,
) -> Result<(), String> {
    let done = async {
        let call = access?.with(output);
        match &request {
            CallRequest::Transfer { to, .. } => call.transfer_when_played(to).await,
            CallRequest::Keys(keys) => call.send_keys(keys).await,
        }
    };
    done.await.map_err(|error: CallControlError| error.to_string())
}
