//! A runner inside a program of one's own, beside [`crate::main`], which makes a whole process of
//! it.
//!
//! A [`Runner`] is configured by values. It reads no arguments and no environment, sets no logger,
//! listens for no signal and tells no supervisor: all of that is the program's. Several of them run
//! in one process, each with its own sockets, sessions, keys and metrics. It runs in tasks of the
//! tokio runtime that calls [`Runner::serve`], which needs its IO and its timers.
//!
//! ```
//! use edge_runner::http::{Request, Response};
//! use edge_runner::rtvi::{Rtvi, RtviEvent};
//! use edge_runner::{Audio, BotError, Runner, RunnerArguments};
//!
//! async fn bot(mut args: RunnerArguments) -> Result<(), BotError> {
//!     let mut talk = Rtvi::open(&mut args, Audio::at(16_000))?;
//!     while let Some(event) = talk.recv().await {
//!         if let RtviEvent::Audio(frame) = event {
//!             talk.send_audio(&frame).await?;
//!         }
//!     }
//!     Ok(())
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let runner = Runner::builder()
//!     .port(0)
//!     .sessions_max(4)
//!     .route("/hello", async |_: Request| Response::new("hello".into()))
//!     .build();
//! let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
//! let serving = runner.serve(bot, async { drop(stopped.await) }).await?;
//! println!("listening on {}", serving.addresses()[0]);
//! println!("{}", serving.metrics());
//! drop(stop);
//! serving.ended().await?;
//! # Ok(()) })
//! # }
//! ```

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::bot::{self, BotError, RunnerArguments};
use crate::config::{Config, Host, Secret};
use crate::http::{Request, Response};
use crate::io::http::custom_routes::CustomRoutes;
use crate::io::services::Services;
use crate::io::serving::{RunnerInstance as Parts, RunnerStatus};
use crate::io::tls::{CertificateWatcher, ServerTls};
use crate::io::{RunError, tasks};

/// A runner that is to serve. See [the module](self) for a whole program.
#[derive(Clone, Debug)]
#[must_use = "a runner does nothing before it serves"]
pub struct Runner {
    config: Config,
    routes: CustomRoutes,
}

impl Runner {
    /// Makes a runner of a configuration. Its `workers` and `verbosity` are those of a whole
    /// process and have no effect here.
    pub fn new(config: Config) -> Self {
        Runner {
            config,
            routes: CustomRoutes::default(),
        }
    }

    /// Configures a runner step by step, from [`Config::default`].
    pub fn builder() -> RunnerBuilder {
        RunnerBuilder(Runner::new(Config::default()))
    }

    /// Adds a route of one's own. See [`RunnerBuilder::route`].
    pub fn route<F, Fut>(mut self, path: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Response> + Send + 'static,
    {
        self.routes.add(path.into(), handler);
        self
    }

    /// Serves until `shutdown` is done. What this returns, as soon as requests are answered, is the
    /// handle of the runner; it serves on when the handle is dropped.
    ///
    /// The end takes as long as [`Config::drain`] lets live sessions go on by themselves, and a few
    /// seconds beyond that.
    ///
    /// # Errors
    /// [`RunnerError`] when a port is taken, a file cannot be read, a route's path is one of the
    /// runner's own, or the configuration is one of `--direct`, which has no server.
    ///
    /// # Panics
    /// Outside of a tokio runtime with IO and timers.
    pub async fn serve<F, Fut>(
        self,
        bot: F,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Serving, RunnerError>
    where
        F: Fn(RunnerArguments) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BotError>> + Send + 'static,
    {
        if self.config.direct {
            let why = "`direct` runs a bot without a server; call the bot instead";
            return Err(RunnerError(RunError::Misuse(why.to_owned())));
        }
        if let Some(path) = self.routes.unfit() {
            let why = format!("`{path}` cannot be a route: it is no path, or there is a route already");
            return Err(RunnerError(RunError::Misuse(why)));
        }
        let config = Arc::new(self.config);
        let drain = config.drain;
        let tls = ServerTls::open(&config.tls_settings()).map_err(|error| RunnerError(RunError::Tls(error)))?;
        let services = Services::default();
        let parts = Parts::start(config, bot::erase(bot), tls.clone(), self.routes, &services).await;
        let parts = parts.map_err(RunnerError)?;
        let seen = parts.seen.clone();
        parts.warm_up();
        let keeper = CertificateWatcher::without_signals().run(tls, parts.sessions.shutdown().clone());
        tasks::spawn(keeper);
        let life = async move {
            let lost = tokio::select! {
                () = shutdown => None,
                lost = services.lost() => Some(lost),
            };
            let drain = if lost.is_some() { Duration::ZERO } else { drain };
            let ended = parts.end(drain, None, async {}).await;
            ended.and(lost.map_or(Ok(()), |lost| Err(RunError::Service(lost))))
        };
        let (ends, ended) = tokio::sync::oneshot::channel();
        let task = tasks::spawn(async move { drop(ends.send(life.await)) });
        Ok(Serving { seen, ended, task })
    }
}

/// The steps to a [`Runner`]; what is not set is as in [`Config::default`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing before it is built"]
pub struct RunnerBuilder(Runner);

impl RunnerBuilder {
    /// Sets the address at which HTTP is served; without it, both loopback addresses.
    pub fn host(self, address: IpAddr) -> Self {
        self.configure(|config| config.host = Host::Address(address))
    }

    /// Sets the TCP port of HTTP, whose number is that of the UDP port, too; 0 finds free ones.
    /// Without it, 7860.
    pub fn port(self, port: u16) -> Self {
        self.configure(|config| {
            config.port = port;
            if port == 0 {
                config.rtc_port = Some(0);
            }
        })
    }

    /// Sets what callers of `/start` and of offers have to send as `Authorization: Bearer KEY`.
    pub fn api_key(self, key: impl Into<String>) -> Self {
        self.configure(|config| config.api_key = Some(Secret::new(key)))
    }

    /// Sets how many sessions there may be at a time.
    pub fn sessions_max(self, sessions_max: usize) -> Self {
        self.configure(|config| config.sessions_max = sessions_max)
    }

    /// Sets how long live sessions may go on by themselves at the end; without it, they are ended
    /// at once.
    pub fn drain(self, drain: Duration) -> Self {
        self.configure(|config| config.drain = drain)
    }

    /// Changes anything else of the configuration.
    pub fn configure(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.0.config);
        self
    }

    /// Adds a route of one's own, for every method: `path` is compared as it stands in the request,
    /// percent-encoded.
    ///
    /// A request has its whole body, of 256 KiB at most, and the [`IpAddr`] of its client among its
    /// extensions. The names of the server and the list of origins are judged before; the API key
    /// is the handler's to ask for.
    pub fn route<F, Fut>(self, path: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Response> + Send + 'static,
    {
        RunnerBuilder(self.0.route(path, handler))
    }

    /// Makes the runner.
    pub fn build(self) -> Runner {
        self.0
    }
}

/// A runner that serves.
#[must_use = "only `ended` tells of its end"]
pub struct Serving {
    seen: RunnerStatus,
    ended: tokio::sync::oneshot::Receiver<Result<(), RunError>>,
    task: JoinHandle<()>,
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving")
            .field("addresses", &self.addresses())
            .field("rtc_port", &self.rtc_port())
            .field("sessions", &self.sessions())
            .finish_non_exhaustive()
    }
}

impl Serving {
    /// Returns the addresses at which HTTP is served: at least one, all of one port, which is never
    /// 0.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.seen.addresses
    }

    /// Returns the UDP port of the WebRTC sessions; 0 in a build without WebRTC.
    pub fn rtc_port(&self) -> u16 {
        self.seen.rtc_port
    }

    /// Returns how many sessions are live.
    pub fn sessions(&self) -> usize {
        self.seen.sessions()
    }

    /// Returns the metrics of this runner in the text format of Prometheus, as `/metrics` answers
    /// them; empty in a build without `metrics`.
    pub fn metrics(&self) -> String {
        self.seen.metrics()
    }

    /// Waits until the runner has ended.
    ///
    /// # Errors
    /// [`RunnerError`] when it ended although it was not asked to.
    pub async fn ended(self) -> Result<(), RunnerError> {
        match self.ended.await {
            Ok(ended) => ended.map_err(RunnerError),
            // The future that was to tell the end panicked.
            Err(_) => Err(RunnerError(RunError::Bot(match self.task.await {
                Err(error) if error.is_panic() => "the future `shutdown` panicked".to_owned(),
                _ => "the runtime has ended".to_owned(),
            }))),
        }
    }
}

/// Why a runner does not serve, or does not serve any more. It says what to do about it, and names
/// no key.
pub struct RunnerError(RunError);

impl fmt::Debug for RunnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunnerError({:?})", self.0.to_string())
    }
}

impl fmt::Display for RunnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for RunnerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}
