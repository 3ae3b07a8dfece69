//! Replaces `io::rest` in a build without `telephony`: no session has a call to hang up.

use crate::proto::server::rest::RestRequest;
use crate::proto::telephony::Provider;

/// Does nothing.
pub async fn hang_up(_provider: &'static Provider, _request: RestRequest) {}
