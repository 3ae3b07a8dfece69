//! The endpoints of WhatsApp.

use crate::features::Feature;
use crate::http::endpoint::{EndpointKind, ModuleEndpoint};

/// The webhook of calls.
pub const WEBHOOK: ModuleEndpoint = ModuleEndpoint {
    path: "/messaging",
    feature: Feature::Messaging,
    kind: EndpointKind::VerifiedWebhook,
};
