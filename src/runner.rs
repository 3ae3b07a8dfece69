//! A runner inside a program of your own; [`crate::main`] makes a whole process instead.
//!
//! A [`Runner`] is configured by values. It reads no arguments and no environment, sets up no
//! logger, handles no signals and notifies no supervisor. Several runners can share a process, each
//! with its own sockets, sessions, keys and metrics. A runner uses the tokio runtime that calls
//! [`Runner::serve`].
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
use std::io;
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

/// A runner that does not serve yet. See [the module](self) for a whole program.
#[derive(Clone, Debug)]
#[must_use = "a runner does nothing before it serves"]
pub struct Runner {
    config: Config,
    routes: CustomRoutes,
}

impl Runner {
    /// Creates a runner from a configuration. `workers` and `verbosity` have no effect here.
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

    /// Adds a route. See [`RunnerBuilder::route`].
    pub fn route<F, Fut>(mut self, path: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Response> + Send + 'static,
    {
        self.routes.add(path.into(), handler);
        self
    }

    /// Serves until `shutdown` completes. Returns a handle as soon as the runner accepts requests;
    /// dropping the handle does not stop the runner.
    ///
    /// Stopping takes up to [`Config::drain`] and a few seconds more.
    ///
    /// # Errors
    /// [`RunnerError`] when a port is taken, a file cannot be read, a route's path is one of the
    /// runner's own, or the configuration is one of `--direct`, which has no server.
    ///
    /// # Panics
    /// Outside a tokio runtime with IO and timers.
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
        if let Some(path) = self.routes.invalid_path() {
            let why = format!("`{path}` cannot be a route: it is no path, or there is a route already");
            return Err(RunnerError(RunError::Misuse(why)));
        }
        let mut config = self.config;
        config.bot_name = config.bot_name.or_else(|| bot::crate_of::<F>().map(str::to_owned));
        let config = Arc::new(config);
        let drain = config.drain;
        let tls = ServerTls::open(&config.tls_settings()).map_err(|error| RunnerError(RunError::Tls(error)))?;
        let services = Services::default();
        let parts = Parts::start(config, bot::erase(bot), tls.clone(), self.routes, &services).await;
        let parts = parts.map_err(RunnerError)?;
        let status = parts.status.clone();
        parts.warm_up();
        let watcher = CertificateWatcher::without_signals().run(
            tls,
            parts.module_certificate(),
            parts.sessions.shutdown().clone(),
        );
        tasks::spawn(watcher);
        let run = async move {
            let lost = tokio::select! {
                () = shutdown => None,
                lost = services.lost() => Some(lost),
            };
            let drain = if lost.is_some() { Duration::ZERO } else { drain };
            let ended = parts.end(drain, None, async {}).await;
            ended.and(lost.map_or(Ok(()), |lost| Err(RunError::Service(lost))))
        };
        let (sender, ended) = tokio::sync::oneshot::channel();
        let task = tasks::spawn(async move { drop(sender.send(run.await)) });
        Ok(Serving { status, ended, task })
    }
}

/// Builds a [`Runner`]. Defaults are those of [`Config::default`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing before it is built"]
pub struct RunnerBuilder(Runner);

impl RunnerBuilder {
    /// Sets the address of the HTTP server. Default: both loopback addresses.
    pub fn host(self, address: IpAddr) -> Self {
        self.configure(|config| config.host = Host::Address(address))
    }

    /// Sets the HTTP port, which is the number of the UDP port too. 0 picks free ports. Default:
    /// 7860.
    pub fn port(self, port: u16) -> Self {
        self.configure(|config| {
            config.port = port;
            if port == 0 {
                config.rtc_port = Some(0);
            }
        })
    }

    /// Sets the key that `/start` and offers require as `Authorization: Bearer KEY`.
    pub fn api_key(self, key: impl Into<String>) -> Self {
        self.configure(|config| config.api_key = Some(Secret::new(key)))
    }

    /// Sets the name of the bot in `/status` and on the page. Default: the crate of its function.
    pub fn bot_name(self, name: impl Into<String>) -> Self {
        self.configure(|config| config.bot_name = Some(name.into()))
    }

    /// Sets the cap on concurrent sessions.
    pub fn sessions_max(self, sessions_max: usize) -> Self {
        self.configure(|config| config.sessions_max = sessions_max)
    }

    /// Sets how long live sessions may continue after shutdown. Default: they end at once.
    pub fn drain(self, drain: Duration) -> Self {
        self.configure(|config| config.drain = drain)
    }

    /// Changes any other part of the configuration.
    pub fn configure(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.0.config);
        self
    }

    /// Adds a route for every method. `path` is compared with the percent-encoded path of the
    /// request.
    ///
    /// A request carries its whole body, up to 256 KiB, and the client's [`IpAddr`] as an
    /// extension. The checks of host names and origins run before the handler; the check of the API
    /// key does not.
    pub fn route<F, Fut>(self, path: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Response> + Send + 'static,
    {
        RunnerBuilder(self.0.route(path, handler))
    }

    /// Returns the runner.
    pub fn build(self) -> Runner {
        self.0
    }
}

/// A serving runner.
#[must_use = "only `ended` tells of its end"]
pub struct Serving {
    status: RunnerStatus,
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
    /// Returns the addresses of the HTTP server: at least one, all with the same port, never 0.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.status.addresses
    }

    /// Returns the UDP port of the WebRTC sessions; 0 in a build without WebRTC.
    pub fn rtc_port(&self) -> u16 {
        self.status.rtc_port
    }

    /// Returns the number of live sessions.
    pub fn sessions(&self) -> usize {
        self.status.sessions()
    }

    /// Returns the metrics of this runner in the Prometheus text format, as `/metrics` does.
    pub fn metrics(&self) -> String {
        self.status.metrics()
    }

    /// Waits until the runner has ended.
    ///
    /// # Errors
    /// [`RunnerError`] if it ended for another reason than `shutdown`.
    pub async fn ended(self) -> Result<(), RunnerError> {
        match self.ended.await {
            Ok(ended) => ended.map_err(RunnerError),
            // The task panicked before it sent its result.
            Err(_) => Err(RunnerError(RunError::Bot(match self.task.await {
                Err(error) if error.is_panic() => "the future `shutdown` panicked".to_owned(),
                _ => "the runtime has ended".to_owned(),
            }))),
        }
    }
}

/// The error of a runner that cannot serve, or has stopped serving. Its text contains no key.
pub struct RunnerError(RunError);

/// The kind of a [`RunnerError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunnerErrorKind {
    /// The configuration, a route, or a file or program that it names cannot be used.
    InvalidConfig,
    /// Another program has the port.
    PortInUse,
    /// The address or port cannot be used for another reason.
    Unbindable,
    /// The system lacks something else that the runner needs.
    System,
    /// The runner served, and what it needs was lost.
    Lost,
}

impl RunnerError {
    /// Returns the kind of the error. Its text has the details.
    ///
    /// ```no_run
    /// # use edge_runner::runner::RunnerErrorKind;
    /// # async fn serve(runner: edge_runner::Runner) {
    /// let bot = async |_: edge_runner::RunnerArguments| Ok::<(), edge_runner::BotError>(());
    /// match runner.serve(bot, std::future::pending()).await {
    ///     Err(error) if error.kind() == RunnerErrorKind::PortInUse => println!("port in use"),
    ///     Err(error) => println!("{error}"),
    ///     Ok(serving) => println!("listening on {:?}", serving.addresses()),
    /// }
    /// # }
    /// ```
    pub fn kind(&self) -> RunnerErrorKind {
        Self::kind_of(&self.0)
    }

    fn kind_of(error: &RunError) -> RunnerErrorKind {
        let bind = |error: &io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => RunnerErrorKind::PortInUse,
            _ => RunnerErrorKind::Unbindable,
        };
        match error {
            RunError::OfBot { error, .. } => Self::kind_of(error),
            RunError::Misuse(_)
            | RunError::Command(_)
            | RunError::Tools { .. }
            | RunError::Folder { .. }
            | RunError::WrittenFolder { .. }
            | RunError::ModuleCertificate { .. }
            | RunError::Tls(_) => RunnerErrorKind::InvalidConfig,
            RunError::Bind(error) => bind(&error.source),
            RunError::BindUdp { source, .. } => bind(source),
            RunError::Sandbox(_) | RunError::Certificate(_) | RunError::Signals(_) | RunError::Watch(_) => {
                RunnerErrorKind::System
            }
            RunError::NoRoom(_) | RunError::Bot(_) | RunError::Service(_) | RunError::Forced => RunnerErrorKind::Lost,
        }
    }
}

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
