//! The endpoints of LiveKit.

use crate::features::Feature;
use crate::http::endpoint::{EndpointKind, ModuleEndpoint};

/// The state of the worker.
pub const WORKER: ModuleEndpoint = ModuleEndpoint {
    path: "/worker",
    feature: Feature::Mediaroom,
    kind: EndpointKind::State,
};

/// The webhook of the server, about its rooms.
pub const ROOM_EVENTS: ModuleEndpoint = ModuleEndpoint {
    path: "/mediaroom-webhook",
    feature: Feature::Mediaroom,
    kind: EndpointKind::Webhook,
};
