//! Checks whether the HTTP port of a runner is free.
//!
//! In: the configuration. Out: findings. The port is tested by binding it exactly as the runner
//! would.

use std::io;

use super::Finding;
use crate::config::Config;
use crate::io::port_owner::port_in_use;
use crate::io::server::{self, BindError};

/// Tests the port.
pub async fn examine(config: &Config) -> Vec<Finding> {
    const WHAT: &str = "http port";
    vec![match server::bind(config.host, config.port).await {
        Ok(_) if config.port == 0 => Finding::ok(WHAT, "any free port"),
        Ok(_) => Finding::ok(WHAT, format!("{} is free", config.port)),
        Err(BindError { address, source, owner }) if source.kind() == io::ErrorKind::AddrInUse => {
            let unnamed = BindError {
                address,
                source,
                owner: None,
            };
            port_in_use(WHAT, &unnamed.to_string(), owner)
        }
        Err(error) => Finding::error(WHAT, error.to_string()),
    }]
}
