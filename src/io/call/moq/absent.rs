//! Calls over QUIC in a build without Media over QUIC: refused with the name of the feature.

use std::time::Instant;

use super::{CallConfig, CallRun};
use crate::features::{Feature, MissingFeature};
use crate::proto::caller::{CallConversation, CallPlan};

/// Refuses the call.
pub async fn run(_: &CallConfig, _: CallPlan, _: Instant, _: &mut CallRun<'_>) -> Result<CallConversation, String> {
    Err(format!("a call over QUIC {}", MissingFeature(Feature::Moq)))
}
