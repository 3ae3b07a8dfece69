//! Checks whether the HTTP port of a runner is free.
//!
//! In: the configuration. Out: findings. The port is tested by binding it exactly as the runner
//! would.

use std::io;

use super::Finding;
use crate::config::Config;
use crate::io::port_owner::{holder, port_in_use};
use crate::io::server;

/// Tests the port.
pub async fn examine(config: &Config) -> Vec<Finding> {
    const WHAT: &str = "http port";
    vec![match server::bind(config.host, config.port).await {
        Ok(_) if config.port == 0 => Finding::ok(WHAT, "any free port"),
        Ok(_) => Finding::ok(WHAT, format!("{} is free", config.port)),
        Err(error) if error.source.kind() == io::ErrorKind::AddrInUse => port_in_use(
            WHAT,
            &error.to_string(),
            holder(&["/proc/net/tcp", "/proc/net/tcp6"], config.port, true),
        ),
        Err(error) => Finding::error(WHAT, error.to_string()),
    }]
}
