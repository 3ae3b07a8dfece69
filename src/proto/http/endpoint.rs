//! A row of the table of endpoints: where a module is reached, and what a request there is.

use crate::features::Feature;

/// An endpoint of a module.
#[derive(Debug, PartialEq, Eq)]
pub struct ModuleEndpoint {
    /// The canonical path; its other names are in `aliases`.
    pub path: &'static str,
    pub feature: Feature,
    pub kind: EndpointKind,
}

/// What a request of an endpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointKind {
    /// It reads a state (GET).
    State,
    /// A person opens a room (GET), which costs money.
    Visit,
    /// A service calls a webhook (POST). All methods lead to it, since the configuration decides
    /// whether it exists.
    Webhook,
    /// The same, and the service verifies the URL first (GET).
    VerifiedWebhook,
}

impl EndpointKind {
    /// Returns whether a service sends it.
    pub fn is_webhook(self) -> bool {
        matches!(self, EndpointKind::Webhook | EndpointKind::VerifiedWebhook)
    }
}
