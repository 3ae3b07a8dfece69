//! One runner that serves: its sockets and its sessions, from the first request to the last.
//!
//! In: a configuration, a bot, routes of one's own. Out: where it listens, and, when it is told to
//! end, how that went. It touches nothing of the process: no signals, no environment, no
//! supervisor, no logger. What a whole process has beside it stands in [`super::run_with`]. Several
//! of them in one process share nothing but the DTLS certificate and the memory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::{RunError, bot_of};
use crate::bot::{Bot, Shutdown, ShutdownTrigger};
use crate::config::{Config, ListenAddresses};
use crate::io::http::RunnerApp;
use crate::io::http::custom_routes::CustomRoutes;
use crate::io::services::Services;
use crate::io::sessions::Sessions;
use crate::io::signal::Signals;
use crate::io::tasks::SlotPool;
use crate::io::tls::ServerTls;
use crate::io::webrtc::WebRtc;
use crate::io::{addresses, drain, metrics, server};
use crate::limits::SHUTDOWN_GRACE;

/// A runner that serves.
pub struct RunnerInstance {
    pub sessions: Sessions,
    pub live: SlotPool,
    pub listening: ListenAddresses,
    pub seen: RunnerStatus,
    stop: ShutdownTrigger,
    server: JoinHandle<()>,
}

/// What can be asked of a runner while it serves. Clones share it.
#[derive(Clone)]
pub struct RunnerStatus {
    /// Where HTTP is served, at least one address.
    pub addresses: Arc<[SocketAddr]>,
    pub rtc_port: u16,
    sessions: Sessions,
    webrtc: Option<WebRtc>,
    runtime: Handle,
}

impl RunnerStatus {
    /// Returns how many sessions are live.
    pub fn sessions(&self) -> usize {
        self.sessions.count()
    }

    /// Returns what `/metrics` answers.
    pub fn metrics(&self) -> String {
        let _inside = self.runtime.enter();
        metrics::text(&self.sessions, self.webrtc.as_ref())
    }
}

impl RunnerInstance {
    /// Binds the sockets, and begins to answer.
    ///
    /// # Errors
    /// [`RunError`] says which part could not be built, and what to do.
    pub async fn start(
        config: Arc<Config>,
        bot: Bot,
        tls: Option<Arc<ServerTls>>,
        routes: CustomRoutes,
        services: &Services,
    ) -> Result<RunnerInstance, RunError> {
        let bot = bot_of(&config, bot)?;
        let listeners = server::bind(config.host, config.port).await.map_err(RunError::Bind)?;
        let (stop, shutdown) = Shutdown::channel();
        let live = SlotPool::new(config.sessions_max);
        let sessions = Sessions::new(config.clone(), bot, live.clone(), shutdown.clone());
        let webrtc = WebRtc::start(&sessions, listeners.addresses(), listeners.port(), services)?;
        let listening = ListenAddresses {
            port: listeners.port(),
            rtc_port: webrtc.as_ref().map_or(0, WebRtc::port_number),
            addresses: addresses::local_addresses(&config),
        };
        let seen = RunnerStatus {
            addresses: listeners.addresses().into(),
            rtc_port: listening.rtc_port,
            sessions: sessions.clone(),
            webrtc: webrtc.clone(),
            runtime: Handle::current(),
        };
        let app = RunnerApp::new(sessions.clone(), webrtc, tls, routes);
        let server = services.spawn("the HTTP server", server::serve(listeners, Arc::new(app), shutdown));
        Ok(RunnerInstance {
            sessions,
            live,
            listening,
            seen,
            stop,
            server,
        })
    }

    /// Makes what is made once per process, so that the first caller need not wait for it.
    pub fn warm_up(&self) {
        if let Some(webrtc) = &self.seen.webrtc {
            webrtc.warm_up();
        }
    }

    /// Lets live sessions go on for the time of `drain`, then tells them to end, and waits for them
    /// for [`SHUTDOWN_GRACE`]. A further signal makes each of the two waits shorter. `told` is
    /// waited for, too.
    ///
    /// # Errors
    /// [`RunError::Forced`].
    pub async fn end(
        mut self,
        drain: Duration,
        mut signals: Option<&mut Signals>,
        told: impl Future<Output = ()>,
    ) -> Result<(), RunError> {
        self.sessions.close();
        let live = &self.live;
        if !drain.is_zero() {
            let over = drain::drain(drain, live, self.sessions.hang_ups(), next(&mut signals)).await;
            log::info!("{over}: ending, {} sessions live", live.count());
        }
        self.stop.set();
        let ended = async {
            self.sessions.wait_empty().await;
            // An error here is a panic that the server has logged.
            let _ = (&mut self.server).await;
            told.await;
        };
        let outcome = tokio::select! {
            () = ended => Ok(()),
            () = tokio::time::sleep(SHUTDOWN_GRACE) => {
                log::warn!("{} sessions did not end in time", live.count());
                Ok(())
            }
            _ = next(&mut signals) => Err(RunError::Forced),
        };
        if let Some(webrtc) = &self.seen.webrtc {
            webrtc.end().await;
        }
        outcome
    }
}

/// Waits for the next signal; for ever where signals are not this runner's.
async fn next(signals: &mut Option<&mut Signals>) -> &'static str {
    match signals {
        Some(signals) => signals.next().await,
        None => std::future::pending().await,
    }
}
