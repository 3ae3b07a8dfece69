//! Replaces `io::rest` in a build without `telephony`: no session has a call to hang up.

use crate::proto::hang_up::HangUpApi;
use crate::proto::server::rest::RestRequest;

/// Does nothing.
pub async fn hang_up(_api: &'static dyn HangUpApi, _request: RestRequest) {}
