//! The twin of `io::messaging` in a build without `messaging`: there are no calls.

use serde_json::Value;

use crate::io::sessions::Start;
use crate::io::webrtc::WebRtc;
use crate::proto::admission::Requester;
use crate::proto::messaging::webhook::News;

/// Where calls would be.
#[derive(Default)]
pub struct Registry(());

/// Nothing comes here: the webhook is refused before.
pub fn take(
    _engine: &WebRtc,
    _registry: &Registry,
    _news: Vec<News>,
    _requester: Requester,
    _start: &dyn Fn(Value) -> Start,
) {
}
