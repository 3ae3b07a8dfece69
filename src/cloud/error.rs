//! Errors that end `edge-runner cloud serve`.

use std::io;
use std::path::PathBuf;

use edge_runner_http::server::BindError;
use edge_runner_http::services::LostService;
use edge_runner_http::tls::TlsError;

use crate::io::builder::BuilderCommandError;
use crate::io::keys::KeysError;
use crate::io::records::{OpenRecordsError, RecordError};
use crate::io::reloading_file::ReloadError;

/// Why the service cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("--regions {0}")]
    Regions(#[source] ReloadError),
    #[error(transparent)]
    Command(#[from] BuilderCommandError),
    #[error("--data-dir {}: {source}", .path.display())]
    DataDir { path: PathBuf, source: io::Error },
    /// Another process holds the lock of the data directory.
    #[error("--data-dir {}: another service has it; end that one, or name another directory", .0.display())]
    DataDirInUse(PathBuf),
    #[error(transparent)]
    Keys(#[from] KeysError),
    #[error(transparent)]
    Records(#[from] OpenRecordsError),
    /// The unfinished builds cannot be read.
    #[error(transparent)]
    Recovery(#[from] RecordError),
    /// The database or the store that replicas share cannot be used.
    #[error("{0}")]
    Shared(Box<dyn std::error::Error + Send + Sync>),
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
    #[error("stopped by a second signal")]
    Forced,
}
