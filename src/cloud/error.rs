//! Why the cloud agent service could not serve.

use std::io;

use edge_runner_http::server::BindError;
use edge_runner_http::services::LostService;
use edge_runner_http::tls::TlsError;

/// Why the service could not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// What it was told makes no sense.
    #[error("{0}")]
    Usage(String),
    /// It has not what it needs.
    #[error("{0}")]
    Setup(String),
    #[error(transparent)]
    Bind(BindError),
    #[error("listening for signals: {0}")]
    Signals(#[source] io::Error),
    /// The thread that watches the runtime could not be started.
    #[error("starting the thread that watches the runtime: {0}")]
    Watch(#[source] io::Error),
    #[error(transparent)]
    Tls(TlsError),
    /// Something without which nothing can be served is gone.
    #[error("{0}")]
    Service(LostService),
    /// One more signal came while builds were still ending.
    #[error("stopped at once by a further signal")]
    Forced,
}
