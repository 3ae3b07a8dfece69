//! Access control that a reload of the settings replaces.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};

use edge_runner_http::common::random;

use crate::config::{Config, Secret};
use crate::proto::http::access::AccessPolicy;

/// The policy of one moment, and the key that it checks.
pub struct CurrentAccess {
    pub policy: AccessPolicy,
    key: Option<Secret>,
}

impl CurrentAccess {
    fn new(config: &Config) -> Arc<CurrentAccess> {
        Arc::new(CurrentAccess {
            policy: AccessPolicy::new(config, random()),
            key: config.api_key.clone(),
        })
    }

    /// Removes the key from text that a client wrote.
    pub fn without_key<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match &self.key {
            Some(key) if text.contains(key.expose()) => text.replace(key.expose(), "***").into(),
            _ => text.into(),
        }
    }
}

/// The access control of a runner.
pub struct LiveAccess(RwLock<Arc<CurrentAccess>>);

impl LiveAccess {
    pub fn new(config: &Config) -> Arc<LiveAccess> {
        Arc::new(LiveAccess(RwLock::new(CurrentAccess::new(config))))
    }

    /// Returns the access control of this moment. A request is judged by one.
    pub fn current(&self) -> Arc<CurrentAccess> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces it by that of another configuration.
    pub fn set(&self, config: &Config) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = CurrentAccess::new(config);
    }
}
