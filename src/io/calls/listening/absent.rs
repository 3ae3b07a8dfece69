//! Listening in, in a build without WebRTC: no call has listeners.

use std::sync::{Arc, Weak};
use std::time::Instant;

use edge_runner_http::common::Reply;

use super::Calls;
use crate::bot::SessionId;
use crate::features::{Feature, MissingFeature};
use crate::io::http::error::HttpError;
use crate::io::module::RouteRequest;
use crate::proto::calls::sound::TappedSound;

#[derive(Default)]
pub struct Listening {}

pub struct CallListeners;

impl Listening {
    pub fn begin(
        &self,
        _id: &SessionId,
        _bot: Option<Arc<str>>,
        _rate_hz: u32,
        _calls: Weak<Calls>,
    ) -> Arc<CallListeners> {
        Arc::new(CallListeners)
    }

    pub fn end(&self, _id: &SessionId) {}
}

impl CallListeners {
    pub fn is_empty(&self) -> bool {
        true
    }

    pub fn send(&self, _tapped: &TappedSound, _now: Instant) {}

    pub fn close(&self) {}
}

pub async fn answer(_calls: &Calls, _request: RouteRequest<'_>) -> Result<Reply, HttpError> {
    Err(HttpError::MissingFeature(MissingFeature(Feature::WebRtc)))
}
