//! Calls over WebRTC in a build without it: refused with the name of the feature.

use super::{CallConfig, CallRun};
use crate::features::{Feature, MissingFeature};
use crate::proto::caller::CallConversation;

/// A call that this build cannot make.
pub enum WebRtcCall {}

impl WebRtcCall {
    pub async fn run(self, _: &mut CallConversation, _: &mut CallRun<'_>) {
        match self {}
    }
}

/// Refuses the call.
pub async fn connect(_: &CallConfig) -> Result<WebRtcCall, String> {
    Err(format!("a call over WebRTC {}", MissingFeature(Feature::WebRtc)))
}
