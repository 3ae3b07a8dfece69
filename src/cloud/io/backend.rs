//! What requests need of the service, whatever keeps its records and archives.
//!
//! [`EmbeddedBackend`](super::embedded::EmbeddedBackend) is one machine: SQLite, and a folder. With
//! the cargo feature `scale`, `SharedService` is one of several replicas on PostgreSQL and an
//! object store; [`SCALE`](super::SCALE) has the functions that open it. Rules about requests and
//! builds are in the core, which both ask.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::http::request::Parts;
use serde::Serialize;
use tokio::sync::watch;

use super::build_log::LogPage;
use super::build_service::CreateResult;
use super::keys::KeySnapshot;
use super::records::RecordError;
use super::upload::StoredUpload;
use crate::ServeError;
use crate::config::{CloudConfig, SharedConfig, SharedTask};
use crate::proto::api_error::ApiError;
use crate::proto::build::{Build, BuildFilter, BuildRequest, Org, Slug};
use crate::proto::keys::KeyHolder;
use crate::proto::log_query::LogQuery;
use crate::proto::metrics::{CloudMetrics, CloudSnapshot};
use crate::proto::regions::Regions;
use edge_runner_http::server::ConnState;
use edge_runner_http::shutdown::Shutdown;
use edge_runner_http::tasks::BoxedTask;
use edge_runner_proto::uuid::Uuid;

/// The future of a backend.
pub type BackendFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The future of a request, whose error is its response.
pub type ApiFuture<'a, T> = BackendFuture<'a, Result<T, ApiError>>;

/// Keeps keys, regions, uploads and builds. The service chooses one at its start.
pub trait Backend: Send + Sync {
    /// Prepares for the first request.
    ///
    /// # Errors
    /// [`RecordError`] when the records cannot be read.
    fn recover(&self) -> BackendFuture<'_, Result<(), RecordError>>;

    /// Returns the number of builds that run here or whose results are being recorded.
    fn busy(&self) -> watch::Receiver<usize>;

    /// Waits, after the stop, until no build is begun or runs here any more.
    fn ended(&self) -> BackendFuture<'_, ()>;

    /// Returns the keys as far as a request needs them, and whether they could be read.
    fn keys<'a>(&'a self, head: &'a Parts) -> BackendFuture<'a, (KeySnapshot<'a>, Result<(), ApiError>)>;

    /// Returns the regions.
    ///
    /// # Errors
    /// 500 or 503.
    fn regions(&self) -> ApiFuture<'_, Arc<Regions>>;

    /// Tells whether requests of the API are answered here.
    fn has_api(&self) -> bool;

    /// Tells whether builds can run at all.
    fn has_builds(&self) -> bool;

    /// Returns what keeps grants from being issued.
    fn obstacle(&self) -> BackendFuture<'_, Option<&'static str>>;

    /// Returns what the metrics show of this moment.
    fn snapshot(&self) -> BackendFuture<'_, CloudSnapshot<'_>>;

    /// Issues a grant and returns its JSON. `base` is the scheme and host of the request.
    ///
    /// # Errors
    /// 503 or 500.
    fn grant<'a>(&'a self, to: &'a KeyHolder, region: &'a Slug, base: &'a str) -> ApiFuture<'a, String>;

    /// Receives an upload.
    ///
    /// # Errors
    /// The first error of the upload; 404 where the object store receives it.
    fn receive<'a>(&'a self, head: &'a Parts, body: Incoming, conn_state: &'a ConnState)
    -> ApiFuture<'a, StoredUpload>;

    /// Creates a build, or finds a success with the same archive, region and build file.
    ///
    /// # Errors
    /// 400, 403, 429, 500 or 503.
    fn create(&self, org: Org, wanted: BuildRequest, base: String) -> ApiFuture<'_, CreateResult>;

    /// Returns a build.
    ///
    /// # Errors
    /// 404, 500 or 503.
    fn build<'a>(&'a self, org: &'a Org, id: Uuid) -> ApiFuture<'a, Build>;

    /// Returns a page of builds and their total number.
    ///
    /// # Errors
    /// 500 or 503.
    fn list(&self, org: Org, filter: BuildFilter) -> ApiFuture<'_, (Vec<Build>, u64)>;

    /// Returns a page of a build's log; `InvalidInput` for a token of another log.
    ///
    /// # Errors
    /// 500 or 503.
    fn log_page(&self, id: Uuid, lines: LogQuery) -> ApiFuture<'_, io::Result<LogPage>>;

    /// Returns where the stored image of a build is. `method` is that of the request.
    fn image(&self, build: &Build, name: &str, method: &str) -> ImageSource;
}

/// Where a stored image is.
pub enum ImageSource {
    File(PathBuf),
    /// A URL that is valid for a while.
    Link(String),
}

/// Returns the JSON of a grant. `serde_json::Value` would not keep the order of members.
pub(super) fn grant_json(grant: &impl Serialize) -> Result<String, ApiError> {
    serde_json::to_string(grant).map_err(|error| ApiError::internal(error.to_string()))
}

/// What answers requests, and the tasks that it depends on.
pub type BackendParts = (Box<dyn Backend>, Vec<(&'static str, BoxedTask)>);

/// What the cargo feature `scale` adds.
pub struct ScaleDriver {
    /// Opens database and store of a replica.
    pub start: OpenReplicaFn,
    /// Runs a command on database and store, and returns text for the user, or why it failed.
    pub run: fn(SharedTask) -> SharedTaskFuture,
}

type SharedTaskFuture = Pin<Box<dyn Future<Output = Result<String, String>>>>;
type OpenReplicaFn = for<'a> fn(
    &'a CloudConfig,
    &'a SharedConfig,
    Shutdown,
    &'a Arc<CloudMetrics>,
) -> BackendFuture<'a, Result<BackendParts, ServeError>>;
