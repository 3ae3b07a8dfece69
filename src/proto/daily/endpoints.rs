//! The endpoints of Daily.

use crate::features::Feature;
use crate::http::endpoint::{EndpointKind, ModuleEndpoint};

/// A new room with a bot.
pub const ROOM: ModuleEndpoint = ModuleEndpoint {
    path: "/videoroom",
    feature: Feature::Videoroom,
    kind: EndpointKind::Visit,
};

/// The dial-in webhook.
pub const DIALIN: ModuleEndpoint = ModuleEndpoint {
    path: "/videoroom-dialin-webhook",
    feature: Feature::Videoroom,
    kind: EndpointKind::Webhook,
};
