//! A service on one machine: records in SQLite, archives and images in a folder.

use std::future::ready;
use std::io;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::http::request::Parts;
use tokio::sync::watch;

use super::backend::{ApiFuture, Backend, BackendFuture, ImageSource, grant_json};
use super::build_log::{BuildLog, LogPage};
use super::build_service::{BuildService, CreateResult};
use super::keys::{KeySnapshot, KeyStore};
use super::records::{RecordError, SqliteRecords};
use super::reloading_file::ReloadingFile;
use super::upload::{StoredUpload, UploadService};
use crate::config::Role;
use crate::proto::api_error::ApiError;
use crate::proto::build::{Build, BuildFilter, BuildRequest, Org, Slug};
use crate::proto::grant;
use crate::proto::keys::KeyHolder;
use crate::proto::log_query::LogQuery;
use crate::proto::metrics::CloudSnapshot;
use crate::proto::regions::Regions;
use edge_runner_http::common::unix_time_ms;
use edge_runner_http::procfs;
use edge_runner_http::server::ConnState;
use edge_runner_http::tasks;
use edge_runner_proto::uuid::Uuid;

/// The parts of the service.
pub struct EmbeddedBackend {
    pub keys: Arc<KeyStore>,
    /// `None`: the single region `local`.
    pub regions: Option<ReloadingFile<Regions>>,
    pub uploads: Arc<UploadService>,
    pub builds: Arc<BuildService>,
    pub records: Arc<SqliteRecords>,
    /// Whether there is a builder command.
    pub has_builds: bool,
}

impl EmbeddedBackend {
    fn load_regions(&self) -> Result<Arc<Regions>, ApiError> {
        match &self.regions {
            Some(file) => file.load().map_err(|reason| ApiError::internal(reason.to_string())),
            None => Ok(Arc::default()),
        }
    }
}

impl Backend for EmbeddedBackend {
    fn recover(&self) -> BackendFuture<'_, Result<(), RecordError>> {
        Box::pin(self.builds.recover())
    }

    fn busy(&self) -> watch::Receiver<usize> {
        self.builds.busy()
    }

    fn ended(&self) -> BackendFuture<'_, ()> {
        let mut busy = self.builds.busy();
        Box::pin(async move {
            let _ = busy.wait_for(|busy| *busy == 0).await;
        })
    }

    fn keys<'a>(&'a self, _: &'a Parts) -> BackendFuture<'a, (KeySnapshot<'a>, Result<(), ApiError>)> {
        Box::pin(ready((self.keys.snapshot(), Ok(()))))
    }

    fn regions(&self) -> ApiFuture<'_, Arc<Regions>> {
        Box::pin(ready(self.load_regions()))
    }

    fn has_api(&self) -> bool {
        true
    }

    fn has_builds(&self) -> bool {
        self.has_builds
    }

    fn obstacle(&self) -> BackendFuture<'_, Option<&'static str>> {
        Box::pin(async move {
            match self.load_regions() {
                Err(_) => Some("regions"),
                Ok(_) => self.uploads.obstacle().await,
            }
        })
    }

    fn snapshot(&self) -> BackendFuture<'_, CloudSnapshot<'_>> {
        Box::pin(async move {
            let records = self.records.clone();
            let queue = tasks::blocking(move || records.queue(unix_time_ms()));
            CloudSnapshot {
                role: Role::All.name(),
                queue: queue.await.ok().and_then(Result::ok),
                running: *self.builds.busy().borrow(),
                database: self.records.metrics(),
                store: None,
                process: procfs::process(),
            }
        })
    }

    fn grant<'a>(&'a self, to: &'a KeyHolder, region: &'a Slug, base: &'a str) -> ApiFuture<'a, String> {
        Box::pin(async move {
            let url = format!("{base}/{}", grant::BUCKET);
            grant_json(&self.uploads.grant(to, region, url).await?)
        })
    }

    fn receive<'a>(
        &'a self,
        head: &'a Parts,
        body: Incoming,
        conn_state: &'a ConnState,
    ) -> ApiFuture<'a, StoredUpload> {
        Box::pin(self.uploads.receive(head, body, conn_state))
    }

    fn create(&self, org: Org, wanted: BuildRequest, base: String) -> ApiFuture<'_, CreateResult> {
        Box::pin(self.builds.create(org, wanted, base))
    }

    fn build<'a>(&'a self, org: &'a Org, id: Uuid) -> ApiFuture<'a, Build> {
        Box::pin(self.builds.get(org, id))
    }

    fn list(&self, org: Org, filter: BuildFilter) -> ApiFuture<'_, (Vec<Build>, u64)> {
        Box::pin(self.builds.list(org, filter))
    }

    fn log_page(&self, id: Uuid, lines: LogQuery) -> ApiFuture<'_, io::Result<LogPage>> {
        let path = self.builds.log_path(id);
        Box::pin(async move {
            let read = move || BuildLog::read_page(&path, lines.token.as_deref(), lines.limit);
            let read = tasks::blocking(read).await;
            read.map_err(|panic| ApiError::internal(panic.to_string()))
        })
    }

    fn image(&self, build: &Build, name: &str, _: &str) -> ImageSource {
        ImageSource::File(self.builds.images_path(build.id).join(name))
    }
}
