//! The engine with what runs beside it: its UDP port, and what the STUN and TURN servers are asked.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::task::JoinHandle;

use super::{WebRtc, random};
use crate::config::Config;
use crate::io::addresses::addresses_elsewhere;
use crate::io::gather::Gatherer;
use crate::io::services::Services;
use crate::io::sessions::Sessions;
use crate::io::udp::Port;
use crate::io::{RunError, tasks};
use crate::proto::audio::opus::EncoderSettings;
use crate::proto::connection::Common;
use crate::proto::crypto;

/// Makes what is made once per process, before the first caller comes, so that none waits for it.
///
/// # Errors
/// [`RunError::Certificate`].
pub fn prepare() -> Result<(), RunError> {
    let made = crypto::certificate();
    made.map(drop).map_err(|error| RunError::Certificate(error.to_string()))
}

/// Starts this thread's generator of small random numbers, the transactions of STUN among them,
/// from a source that cannot be guessed: by itself it begins with the time. An answer to a check
/// tells where a caller is because no one else can know the transaction.
pub fn seed_thread() {
    fastrand::seed(random());
}

/// An engine that callers reach.
pub struct Opened {
    pub engine: WebRtc,
    reader: JoinHandle<()>,
}

impl Opened {
    /// Binds the port, and begins to ask the servers. `http` is where the HTTP server listens.
    ///
    /// # Errors
    /// [`RunError::BindRtc`].
    pub fn open(
        config: &Config,
        sessions: Sessions,
        http: &[SocketAddr],
        http_port: u16,
        services: &Services,
    ) -> Result<Self, RunError> {
        let number = config.rtc_port.unwrap_or(http_port);
        let port = Port::bind(config.host, number).map_err(|source| RunError::BindRtc { port: number, source })?;
        port.set_elsewhere(addresses_elsewhere(config));
        let reader = services.spawn("the reader of the UDP port", port.clone().run());
        let gatherer = Gatherer::start(config, &port, services);
        let common = Common::new(EncoderSettings {
            complexity: config.opus_complexity,
            ..EncoderSettings::default()
        });
        let engine = WebRtc::new(sessions, Arc::new(common), port, gatherer, http.to_vec());
        Ok(Opened { engine, reader })
    }

    /// Returns the number of the UDP port.
    pub fn port(&self) -> u16 {
        self.engine.port().number()
    }

    /// Makes the rest of what is made once, which nobody need wait for.
    pub fn warm_up(&self) {
        self.engine.common().warm_up(tasks::now());
    }

    /// Gives the relays back, by which the last words of the sessions have left, and closes the port.
    pub async fn end(self) {
        self.engine.gatherer().end().await;
        self.reader.abort();
    }
}
