//! Checks whether the two ports of a runner are free.
//!
//! In: the configuration. Out: findings. A port is tested by binding it exactly as the runner
//! would.

use std::io;

use super::port_owner::{holder, port_in_use};
use super::{Finding, udp_port};
use crate::config::Config;
use crate::io::server;

/// Tests both ports.
pub async fn examine(config: &Config) -> Vec<Finding> {
    let http = http(config).await;
    [Some(http), udp_port::examine(config)].into_iter().flatten().collect()
}

async fn http(config: &Config) -> Finding {
    const WHAT: &str = "http port";
    match server::bind(config.host, config.port).await {
        Ok(_) if config.port == 0 => Finding::ok(WHAT, "any free port"),
        Ok(_) => Finding::ok(WHAT, format!("{} is free", config.port)),
        Err(error) if error.source.kind() == io::ErrorKind::AddrInUse => port_in_use(
            WHAT,
            &error.to_string(),
            holder(&["/proc/net/tcp", "/proc/net/tcp6"], config.port, true),
        ),
        Err(error) => Finding::error(WHAT, error.to_string()),
    }
}
