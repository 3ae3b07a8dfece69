//! The start and the end of what carries WebRTC: its UDP port, and what the STUN and TURN servers
//! are asked.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;

use edge_runner_http::common::random;

use super::{Sockets, WebRtc};
use crate::io::addresses::external_addresses;
use crate::io::gather::Gatherer;
use crate::io::services::Services;
use crate::io::sessions::Sessions;
use crate::io::udp::UdpPort;
use crate::io::{RunError, tasks};
use crate::proto::audio::opus::EncoderSettings;
use crate::proto::webrtc::connection::ConnectionContext;
use crate::proto::webrtc::crypto;

thread_local! {
    static IS_SEEDED: Cell<bool> = const { Cell::new(false) };
}

/// Starts this thread's generator of small random numbers, the transactions of STUN among them,
/// from a source that cannot be guessed: by itself it begins with the time. An answer to a check
/// tells where a caller is because no one else can know the transaction. Once per thread.
pub fn seed_thread() {
    if !IS_SEEDED.replace(true) {
        fastrand::seed(u64::from_be_bytes(random()));
    }
}

/// Makes the task of a session one that seeds every thread that it runs on: those of an embedder's
/// runtime, too.
pub fn seeding<F: Future>(task: F) -> impl Future<Output = F::Output> {
    let mut task = Box::pin(task);
    poll_fn(move |cx| {
        seed_thread();
        task.as_mut().poll(cx)
    })
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
        let port = UdpPort::bind(config.host, number).map_err(|source| RunError::BindRtc { port: number, source })?;
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
        Ok(Some(WebRtc::new(sessions.clone(), Arc::new(common), sockets)))
    }

    /// Returns the number of the UDP port.
    pub fn port_number(&self) -> u16 {
        self.shared.sockets.port.number()
    }

    /// Makes the rest of what is made once, which nobody need wait for.
    pub fn warm_up(&self) {
        self.common().warm_up(tasks::now());
    }

    /// Gives the relays back, by which the last words of the sessions have left, and closes the
    /// port.
    pub async fn end(&self) {
        self.shared.sockets.gatherer.end().await;
        self.shared.sockets.reader.abort();
    }
}
