//! Errors that end `edge-runner cloud serve`.

use std::io;

use edge_runner_http::server::BindError;
use edge_runner_http::services::LostService;
use edge_runner_http::tls::TlsError;

/// Why the service cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An option names something unusable.
    #[error("{0}")]
    Usage(String),
    /// The data directory or the builder command is unusable.
    #[error("{0}")]
    Setup(String),
    #[error(transparent)]
    Bind(BindError),
    #[error("listening for signals: {0}")]
    Signals(#[source] io::Error),
    #[error("starting the thread that watches the runtime: {0}")]
    Watch(#[source] io::Error),
    #[error(transparent)]
    Tls(TlsError),
    /// A task that the service depends on has ended.
    #[error("{0}")]
    Service(LostService),
    /// A second signal arrived while builds were still ending.
    #[error("stopped at once by a further signal")]
    Forced,
}
