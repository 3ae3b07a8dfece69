//! The start and the end of what carries WebRTC: its UDP port, and what the STUN and TURN servers are asked.

use std::net::SocketAddr;
use std::sync::Arc;

use super::{Sockets, WebRtc, random};
use crate::io::addresses::addresses_elsewhere;
use crate::io::gather::Gatherer;
use crate::io::services::Services;
use crate::io::sessions::Sessions;
use crate::io::udp::Port;
use crate::io::{RunError, tasks};
use crate::proto::audio::opus::EncoderSettings;
use crate::proto::connection::Common;
use crate::proto::crypto;

/// Starts this thread's generator of small random numbers, the transactions of STUN among them,
/// from a source that cannot be guessed: by itself it begins with the time. An answer to a check
/// tells where a caller is because no one else can know the transaction.
pub fn seed_thread() {
    fastrand::seed(random());
}

impl WebRtc {
    /// Binds the port, and begins to ask the servers. `http` is where the HTTP server listens.
    ///
    /// # Errors
    /// [`RunError::Certificate`] and [`RunError::BindRtc`].
    pub fn start(
        sessions: &Sessions,
        http: &[SocketAddr],
        http_port: u16,
        services: &Services,
    ) -> Result<Option<Self>, RunError> {
        // Made once per process, before the first caller comes, so that none waits for it.
        crypto::certificate().map_err(|error| RunError::Certificate(error.to_string()))?;
        let config = sessions.config();
        let number = config.rtc_port.unwrap_or(http_port);
        let port = Port::bind(config.host, number).map_err(|source| RunError::BindRtc { port: number, source })?;
        port.set_elsewhere(addresses_elsewhere(config));
        let reader = services.spawn("the reader of the UDP port", port.clone().run());
        let gatherer = Gatherer::start(config, &port, services);
        let common = Common::new(EncoderSettings {
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
        Ok(Some(WebRtc::new(sessions.clone(), Arc::new(common), sockets)))
    }

    /// Returns the number of the UDP port.
    pub fn port_number(&self) -> u16 {
        self.0.sockets.port.number()
    }

    /// Makes the rest of what is made once, which nobody need wait for.
    pub fn warm_up(&self) {
        self.common().warm_up(tasks::now());
    }

    /// Gives the relays back, by which the last words of the sessions have left, and closes the port.
    pub async fn end(&self) {
        self.0.sockets.gatherer.end().await;
        self.0.sockets.reader.abort();
    }
}
