//! One runner: its sockets and its sessions, from the first request to the last.
//!
//! In: a configuration, a bot, custom routes. Out: the addresses, and the result of the shutdown.
//! It uses nothing of the process: no signals, environment, supervisor or logger; those are in
//! [`super::run_with`]. Several runners in one process share only the DTLS certificate and the
//! memory.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::{RunError, check_sandbox};
use crate::bot::{Bot, Shutdown, ShutdownTrigger};
use crate::config::{Config, ListenAddresses};
use crate::io::bots::Bots;
use crate::io::http::app::RunnerApp;
use crate::io::http::custom_routes::CustomRoutes;
use crate::io::http::live_access::LiveAccess;
use crate::io::modules;
use crate::io::running::{RunningModule, RunningModules};
use crate::io::services::Services;
use crate::io::sessions::Sessions;
use crate::io::signal::Signals;
use crate::io::tasks::SlotPool;
use crate::io::tls::{ServerTls, WatchedCertificate};
use crate::io::{addresses, drain, metrics, server};
use crate::limits::SHUTDOWN_GRACE;
use crate::logging;
use crate::proto::counts::SessionCount;
use crate::proto::server::log_limit::LogLimit;

/// A runner that serves.
pub struct RunnerInstance {
    pub sessions: Sessions,
    pub live: SlotPool,
    pub listening: ListenAddresses,
    pub status: RunnerStatus,
    pub access: Arc<LiveAccess>,
    stop: ShutdownTrigger,
    server: JoinHandle<()>,
    log_limit: Arc<Mutex<LogLimit>>,
}

/// A handle to a running runner. Clones share it.
#[derive(Clone)]
pub struct RunnerStatus {
    /// The addresses of the HTTP server, at least one.
    pub addresses: Arc<[SocketAddr]>,
    pub rtc_port: u16,
    sessions: Sessions,
    modules: RunningModules,
    runtime: Handle,
}

impl RunnerStatus {
    /// Returns the number of live sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.count()
    }

    /// Returns the text of `/metrics`.
    pub fn metrics(&self) -> String {
        let _inside = self.runtime.enter();
        metrics::text(&self.sessions, &self.modules)
    }
}

impl RunnerInstance {
    /// Binds the sockets and starts to serve.
    ///
    /// # Errors
    /// Returns a [`RunError`] that names the part which failed, with advice.
    pub async fn start(
        config: Arc<Config>,
        bot: Bot,
        tls: Option<Arc<ServerTls>>,
        routes: CustomRoutes,
        services: &Services,
    ) -> Result<RunnerInstance, RunError> {
        check_sandbox(&config)?;
        let bots = Bots::start(&config, bot)?;
        for config in config.of_bots() {
            modules::check(config).await?;
        }
        let listeners = server::bind(config.host, config.port).await.map_err(RunError::Bind)?;
        let (stop, shutdown) = Shutdown::channel();
        let live = SlotPool::new(config.sessions_max);
        let sessions = Sessions::of_bots(config.clone(), bots.clone(), live.clone(), shutdown.clone());
        if let Some(replica) = sessions.replica() {
            log::info!("this runner is the replica `{}`", replica.name());
        }
        let mut app = RunnerApp::new(sessions.clone(), tls, routes);
        modules::run(&mut app, &listeners, services)?;
        let processes = bots.iter().filter_map(|bot| bot.processes.clone());
        processes.for_each(|processes| app.modules.push(processes));
        let mut listening = ListenAddresses {
            port: listeners.port(),
            addresses: addresses::local_addresses(&config),
            ..ListenAddresses::default()
        };
        for module in app.modules.iter() {
            module.add_addresses(&mut listening);
        }
        let app = app.with_addresses(&listening);
        let status = RunnerStatus {
            addresses: listeners.addresses().into(),
            rtc_port: listening.rtc_port,
            sessions: sessions.clone(),
            modules: app.modules.clone(),
            runtime: Handle::current(),
        };
        let (log_limit, access) = (app.log_limit(), app.access.clone());
        let server = services.spawn("the HTTP server", server::serve(listeners, Arc::new(app), shutdown));
        Ok(RunnerInstance {
            sessions,
            live,
            listening,
            status,
            access,
            stop,
            server,
            log_limit,
        })
    }

    /// Returns what the modules keep while this runner runs.
    pub fn modules(&self) -> &RunningModules {
        &self.status.modules
    }

    /// Returns the certificate of a module, to be reloaded and renewed.
    pub fn module_certificate(&self) -> Option<Arc<dyn WatchedCertificate>> {
        self.status.modules.iter().find_map(RunningModule::certificate)
    }

    /// Computes what is made once per process, so that the first caller need not wait for it.
    pub fn warm_up(&self) {
        for module in self.status.modules.iter() {
            module.warm_up();
        }
    }

    /// Lets live sessions continue for `drain`, then ends them and waits for [`SHUTDOWN_GRACE`]. A
    /// further signal shortens either wait. Also waits for `notified`.
    ///
    /// # Errors
    /// Returns [`RunError::Forced`] after a further signal.
    pub async fn end(
        mut self,
        drain: Duration,
        mut signals: Option<&mut Signals>,
        notified: impl Future<Output = ()>,
    ) -> Result<(), RunError> {
        self.sessions.close();
        for module in self.status.modules.iter() {
            module.drain().await;
        }
        let live = &self.live;
        if !drain.is_zero() {
            let over = drain::drain(drain, live, self.sessions.wait_empty(), next(&mut signals)).await;
            match live.count() {
                0 => log::info!("{over}"),
                count => log::info!("{over}: ending {}", SessionCount(count)),
            }
        }
        self.stop.set();
        // What is waited for after the sessions.
        let mut last = None;
        let ended = async {
            self.sessions.wait_empty().await;
            for (name, stopped) in self.status.modules.iter().filter_map(RunningModule::stop) {
                last = Some(name);
                stopped.await;
            }
            last = Some("an HTTP connection");
            // An error is a panic, which the server has logged.
            let _ = (&mut self.server).await;
            last = Some("the message to the supervisor");
            notified.await;
        };
        let outcome = tokio::select! {
            () = ended => Ok(()),
            () = tokio::time::sleep(SHUTDOWN_GRACE) => {
                log::warn!("{} did not end in time", left_over(last, live.count()));
                Ok(())
            }
            _ = next(&mut signals) => Err(RunError::Forced),
        };
        for module in self.status.modules.iter() {
            module.end().await;
        }
        logging::log_left_out(&self.log_limit);
        outcome
    }
}

/// Returns what is left when a runner has to end: what it waited for after the sessions, or those.
fn left_over(last: Option<&str>, live: usize) -> String {
    match (last, live) {
        (Some(last), _) => last.to_owned(),
        (None, 0) => "a request or a hang-up".to_owned(),
        (None, live) => SessionCount(live).to_string(),
    }
}

/// Waits for the next signal; for ever if this runner does not handle signals.
async fn next(signals: &mut Option<&mut Signals>) -> &'static str {
    match signals {
        Some(signals) => signals.next().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_end_has_a_name() {
        assert_eq!(left_over(None, 2), "2 sessions");
        assert_eq!(left_over(None, 0), "a request or a hang-up");
        assert_eq!(left_over(Some("an HTTP connection"), 0), "an HTTP connection");
    }
}
