//! The cloud service on several machines: records in PostgreSQL, archives and images in an object
//! store.
//!
//! - [`database`], [`mod@migrate`], [`records`]: connections, schema, statements
//! - [`store`]: the object store; [`secret_file`]: what signs its requests may change
//! - [`service`]: what requests need; [`worker`]: runs builds under leases; [`sweep`]; [`keys`]
//! - [`logs`]: rows of the database that become objects
//! - [`import`], [`export`]: what a service on one machine has, and back
//!
//! A replica has the role of an API, of a worker, or both. Replicas know each other only by the
//! database, whose clock is the one that counts.

pub mod database;
pub mod export;
pub mod import;
pub mod keys;
pub mod logs;
pub mod migrate;
pub mod records;
pub mod secret_file;
pub mod service;
pub mod store;
pub mod sweep;
pub mod worker;

use std::sync::Arc;

use tokio::sync::watch;

use self::database::{Database, DatabaseError};
use self::migrate::SchemaError;
use self::records::SharedRecords;
use self::service::SharedService;
use self::store::ObjectStore;
use self::sweep::SharedSweeper;
use self::worker::Worker;
use super::backend::{BackendParts, ScaleDriver};
use crate::ServeError;
use crate::config::{CloudConfig, MigrateConfig, Role, SharedConfig, SharedTask};
use crate::proto::keys::{KeyFileError, KeyNameError};
use crate::proto::metrics::CloudMetrics;
use crate::proto::regions::{Regions, RegionsError};
use edge_runner_http::shutdown::Shutdown;
use edge_runner_http::tasks::{BoxedTask, boxed};

/// What the parts of a replica share.
type SharedParts = (Arc<SharedRecords>, Arc<ObjectStore>, Arc<CloudMetrics>);

/// Why a command on the database failed.
#[derive(Debug, thiserror::Error)]
pub enum ScaleError {
    #[error(transparent)]
    Schema(#[from] SchemaError),
    #[error("--regions {path}: {source}")]
    RegionsFile { path: String, source: std::io::Error },
    #[error("--regions {path}: {source}")]
    Regions { path: String, source: RegionsError },
    #[error("--data-dir: making the folder `worker`: {0}")]
    WorkDir(#[source] std::io::Error),
    #[error(transparent)]
    KeyName(#[from] KeyNameError),
    /// No key has the id to revoke.
    #[error(transparent)]
    UnknownKey(KeyFileError),
}

impl From<DatabaseError> for ScaleError {
    fn from(error: DatabaseError) -> Self {
        ScaleError::Schema(error.into())
    }
}

/// The row of [`SCALE`](super::SCALE).
pub(super) const DRIVER: ScaleDriver = ScaleDriver {
    start: |config, shared, stop, metrics| {
        Box::pin(async move {
            let started = start(config, shared, stop, metrics).await;
            started.map_err(|error| ServeError::Shared(error.into()))
        })
    },
    run: |task| Box::pin(run(task)),
};

/// Opens database and store. Returns what answers requests, and the tasks of the replica.
///
/// # Errors
/// [`ScaleError`] when the database cannot be used. The store may be away.
async fn start(
    config: &CloudConfig,
    shared: &SharedConfig,
    stop: Shutdown,
    metrics: &Arc<CloudMetrics>,
) -> Result<BackendParts, ScaleError> {
    let database = Database::open(&shared.database).await?;
    migrate::check(&database).await?;
    let records = Arc::new(SharedRecords { database });
    let store = Arc::new(ObjectStore::new(shared.store.clone(), shared.credentials.clone()));
    if let Err(error) = store.check().await {
        log::warn!("{error}; builds begin when it is there");
    }
    let mut tasks: Vec<(&'static str, BoxedTask)> = Vec::new();
    // A replica without a worker never has a build.
    let mut busy = watch::Sender::new(0).subscribe();
    // It is closed while no build is claimed here.
    let (claims, claiming) = watch::channel(());
    if let (Role::Worker | Role::All, Some(command)) = (shared.role, &config.command) {
        let parts = (records.clone(), store.clone(), metrics.clone());
        let worker = Worker::new(config, shared, command, parts, stop.clone());
        let worker = worker.map_err(ScaleError::WorkDir)?;
        busy = worker.busy();
        tasks.push(("the worker", boxed(worker.clone().run(claims))));
        tasks.push(("the renewal of leases", boxed(worker.clone().renew())));
        tasks.push(("the listener of the database", boxed(worker.listen())));
    }
    let sweeper = SharedSweeper::new(config, records.clone(), store.clone(), metrics.clone());
    tasks.push(("the sweep of records and objects", boxed(sweeper.run(stop))));
    let service = SharedService::new(config, shared.role, (records, store, metrics.clone()), (claiming, busy));
    Ok((Box::new(service), tasks))
}

/// Runs a command. Returns text for the user, or why it failed.
async fn run(task: SharedTask) -> Result<String, String> {
    match task {
        SharedTask::Migrate(config) => migrate(&config).await.map_err(|error| error.to_string()),
        SharedTask::Import(config) => import::import(&config).await.map_err(|error| error.to_string()),
        SharedTask::Export(config) => export::export(&config).await.map_err(|error| error.to_string()),
        SharedTask::Keys(url, task) => keys::edit(&url, &task).await.map_err(|error| error.to_string()),
    }
}

/// Brings the schema of the database up to date, and sets the regions if a file is named. Returns
/// text for the user.
///
/// # Errors
/// [`ScaleError`].
async fn migrate(config: &MigrateConfig) -> Result<String, ScaleError> {
    let regions = match &config.regions {
        None => None,
        Some(file) => {
            let path = file.display().to_string();
            let text = edge_runner_http::store::read_bounded(file).map_err(|source| ScaleError::RegionsFile {
                path: path.clone(),
                source,
            })?;
            Regions::parse(&text).map_err(|source| ScaleError::Regions { path, source })?;
            // What was parsed as JSON is UTF-8.
            Some(String::from_utf8_lossy(&text).into_owned())
        }
    };
    let database = Database::open(&config.database).await?;
    let before = migrate::migrate(&database).await?;
    let mut text = match before {
        before if before == migrate::VERSION => format!("the database has version {before} already\n"),
        0 => format!("the database has version {} now\n", migrate::VERSION),
        before => format!("the database had version {before}, and has {} now\n", migrate::VERSION),
    };
    if let Some(regions) = regions {
        SharedRecords { database }.set(service::REGIONS, &regions).await?;
        text.push_str("the regions are set; replicas use them from the next request on\n");
    }
    Ok(text)
}
