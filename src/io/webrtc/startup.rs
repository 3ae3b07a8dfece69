//! Start and end of the WebRTC driver: the UDP port, and the STUN and TURN servers.

use std::net::SocketAddr;
use std::sync::Arc;

use super::{Sockets, WebRtc};
use crate::io::addresses::external_addresses;
use crate::io::services::Services;
use crate::io::sessions::Sessions;
use crate::io::webrtc::gather::Gatherer;
use crate::io::webrtc::udp::UdpPort;
use crate::io::{RunError, tasks};
use crate::proto::audio::opus::EncoderSettings;
use crate::proto::webrtc::connection::ConnectionContext;
use crate::proto::webrtc::crypto;

impl WebRtc {
    /// Binds the port and starts to gather candidates. `http` are the addresses of the HTTP server.
    ///
    /// # Errors
    /// Returns [`RunError::Certificate`] or [`RunError::BindUdp`].
    pub fn start(
        sessions: &Sessions,
        http: &[SocketAddr],
        http_port: u16,
        services: &Services,
    ) -> Result<Self, RunError> {
        // Made once per process, before the first caller.
        crypto::certificate().map_err(|error| RunError::Certificate(error.to_string()))?;
        let config = sessions.config();
        let number = config.rtc_port.unwrap_or(http_port);
        let port = UdpPort::bind(config.host, number).map_err(|source| RunError::BindUdp {
            address: format!("port {number}"),
            protocol: "WebRTC",
            advice: "`--rtc-port` takes another one, 0 any free one",
            source,
        })?;
        port.set_external(external_addresses(config));
        let reader = services.spawn("the reader of the UDP port", port.clone().run());
        let gatherer = Gatherer::start(config, &port, services);
        let common = ConnectionContext::new(EncoderSettings {
            complexity: config.opus_complexity,
            ..EncoderSettings::default()
        });
        let reader = reader.abort_handle();
        let sockets = Sockets {
            port,
            reader,
            gatherer,
            http: http.to_vec(),
        };
        Ok(WebRtc::new(sessions.clone(), Arc::new(common), sockets))
    }

    /// Returns the number of the UDP port.
    pub fn port_number(&self) -> u16 {
        self.shared.sockets.port.number()
    }

    /// Computes the remaining values that are made once.
    pub fn compute_shared(&self) {
        self.common().warm_up(tasks::now());
    }

    /// Releases the TURN allocations, after the sessions' last packets, and closes the port.
    pub async fn close(&self) {
        self.shared.sockets.gatherer.end().await;
        self.shared.sockets.reader.abort();
    }
}
