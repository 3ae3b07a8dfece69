//! Checks whether the UDP port is free, and which process holds it otherwise.

use std::io;
use std::sync::Arc;

use crate::config::Config;
use crate::io::port_owner::port_in_use;
use crate::io::webrtc::udp::UdpPort;
use crate::proto::doctor::Finding;
use edge_runner_http::port_owner::{PortOwner, UDP_TABLES};

/// Tests the port.
pub async fn udp_port(config: &Config) -> Vec<Finding> {
    const WHAT: &str = "udp port";
    let port = config.rtc_port.unwrap_or(config.port);
    vec![match UdpPort::bind(config.host, port) {
        Ok(bound) => {
            drop::<Arc<UdpPort>>(bound);
            let number = if port == 0 {
                "any free port".to_owned()
            } else {
                format!("{port} is free")
            };
            let open = format!("{number}; for callers on other machines, the firewall must allow UDP");
            Finding::ok(WHAT, open)
        }
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => port_in_use(
            WHAT,
            &format!("UDP port {port} is in use; choose another with --rtc-port; 0 picks a free port"),
            PortOwner::find(UDP_TABLES, port, false),
        ),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Finding::error(
            WHAT,
            format!("the system reserves UDP port {port}; choose one above 1023 with --rtc-port"),
        ),
        Err(error) => Finding::error(WHAT, format!("UDP port {port}: {error}")),
    }]
}
