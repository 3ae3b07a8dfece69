//! What requests need of the service, whatever keeps its records and archives.
//!
//! [`Backend::Embedded`] is one machine: SQLite, and a folder. With the cargo feature `scale`,
//! `Backend::Shared` is one of several replicas on PostgreSQL and an object store. Rules about
//! requests and builds are in the core, which both ask.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::http::request::Parts;

use super::build_log::{BuildLog, LogPage};
use super::build_service::{BuildService, CreateResult};
use super::keys::{KeySnapshot, KeyStore};
use super::records::{RecordError, SqliteRecords};
use super::reloading_file::ReloadingFile;
#[cfg(feature = "scale")]
use super::scale::service::SharedService;
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

/// What keeps keys, regions, uploads and builds.
pub enum Backend {
    Embedded(EmbeddedBackend),
    #[cfg(feature = "scale")]
    Shared(Arc<SharedService>),
}

/// One machine.
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

/// Where a stored image is.
pub enum ImageSource {
    File(PathBuf),
    /// A URL that is valid for a while.
    #[cfg(feature = "scale")]
    Link(String),
}

impl Backend {
    /// Prepares for the first request.
    ///
    /// # Errors
    /// [`RecordError`] when the records cannot be read.
    pub async fn recover(&self) -> Result<(), RecordError> {
        match self {
            Backend::Embedded(backend) => backend.builds.recover().await,
            #[cfg(feature = "scale")]
            Backend::Shared(_) => Ok(()),
        }
    }

    /// Waits until no command runs and every result is recorded.
    pub async fn idle(&self) {
        match self {
            Backend::Embedded(backend) => backend.builds.idle().await,
            #[cfg(feature = "scale")]
            Backend::Shared(service) => service.idle().await,
        }
    }

    /// Returns the keys as far as a request needs them, and whether they could be read.
    pub async fn keys(&self, head: &Parts) -> (KeySnapshot<'_>, Result<(), ApiError>) {
        match self {
            Backend::Embedded(backend) => {
                let _ = head;
                (backend.keys.snapshot(), Ok(()))
            }
            #[cfg(feature = "scale")]
            Backend::Shared(service) => service.keys(head).await,
        }
    }

    /// Returns the regions.
    ///
    /// # Errors
    /// 500 or 503.
    pub async fn regions(&self) -> Result<Arc<Regions>, ApiError> {
        match self {
            Backend::Embedded(backend) => match &backend.regions {
                Some(file) => file.load().map_err(|reason| ApiError::internal(reason.to_string())),
                None => Ok(Arc::default()),
            },
            #[cfg(feature = "scale")]
            Backend::Shared(service) => service.regions().await,
        }
    }

    /// Tells whether requests of the API are answered here.
    pub fn has_api(&self) -> bool {
        match self {
            Backend::Embedded(_) => true,
            #[cfg(feature = "scale")]
            Backend::Shared(service) => service.has_api(),
        }
    }

    /// Tells whether builds can run at all.
    pub fn has_builds(&self) -> bool {
        match self {
            Backend::Embedded(backend) => backend.has_builds,
            // The workers have the command.
            #[cfg(feature = "scale")]
            Backend::Shared(_) => true,
        }
    }

    /// Returns what keeps grants from being issued.
    pub async fn obstacle(&self) -> Option<&'static str> {
        match self {
            Backend::Embedded(backend) => match self.regions().await {
                Err(_) => Some("regions"),
                Ok(_) => backend.uploads.obstacle().await,
            },
            #[cfg(feature = "scale")]
            Backend::Shared(service) => service.obstacle().await,
        }
    }

    /// Returns what the metrics show of this moment.
    pub async fn snapshot(&self) -> CloudSnapshot<'_> {
        match self {
            Backend::Embedded(backend) => {
                let records = backend.records.clone();
                let queue = tasks::blocking(move || records.queue(unix_time_ms()));
                CloudSnapshot {
                    role: Role::All.name(),
                    queue: queue.await.ok().and_then(Result::ok),
                    running: backend.builds.running(),
                    database: backend.records.metrics(),
                    store: None,
                    process: procfs::process(),
                }
            }
            #[cfg(feature = "scale")]
            Backend::Shared(service) => service.snapshot().await,
        }
    }

    /// Issues a grant and returns its JSON. `base` is the scheme and host of the request.
    ///
    /// # Errors
    /// 503 or 500.
    pub async fn grant(&self, to: &KeyHolder, region: &Slug, base: &str) -> Result<String, ApiError> {
        // `serde_json::Value` would not keep the order of members.
        let json = match self {
            Backend::Embedded(backend) => {
                let url = format!("{base}/{}", grant::BUCKET);
                serde_json::to_string(&backend.uploads.grant(to, region, url).await?)
            }
            #[cfg(feature = "scale")]
            Backend::Shared(service) => serde_json::to_string(&service.grant(to, region).await?),
        };
        json.map_err(|error| ApiError::internal(error.to_string()))
    }

    /// Receives an upload.
    ///
    /// # Errors
    /// The first error of the upload; 404 where the object store receives it.
    pub async fn receive(
        &self,
        head: &Parts,
        body: Incoming,
        conn_state: &ConnState,
    ) -> Result<StoredUpload, ApiError> {
        match self {
            Backend::Embedded(backend) => backend.uploads.receive(head, body, conn_state).await,
            #[cfg(feature = "scale")]
            Backend::Shared(_) => Err(ApiError::not_found("uploads go to the URL of their grant")),
        }
    }

    /// Creates a build, or finds a success with the same archive, region and build file.
    ///
    /// # Errors
    /// 400, 403, 429, 500 or 503.
    pub async fn create(&self, org: Org, wanted: BuildRequest, base: String) -> Result<CreateResult, ApiError> {
        match self {
            Backend::Embedded(backend) => backend.builds.create(org, wanted, base).await,
            #[cfg(feature = "scale")]
            Backend::Shared(service) => service.create(org, wanted, base).await,
        }
    }

    /// Returns a build.
    ///
    /// # Errors
    /// 404, 500 or 503.
    pub async fn build(&self, org: &Org, id: Uuid) -> Result<Build, ApiError> {
        match self {
            Backend::Embedded(backend) => backend.builds.get(org, id).await,
            #[cfg(feature = "scale")]
            Backend::Shared(service) => service.build(org, id).await,
        }
    }

    /// Returns a page of builds and their total number.
    ///
    /// # Errors
    /// 500 or 503.
    pub async fn list(&self, org: Org, filter: BuildFilter) -> Result<(Vec<Build>, u64), ApiError> {
        match self {
            Backend::Embedded(backend) => backend.builds.list(org, filter).await,
            #[cfg(feature = "scale")]
            Backend::Shared(service) => service.list(&org, &filter).await,
        }
    }

    /// Returns a page of a build's log.
    ///
    /// # Errors
    /// 400 for a token of another log, 500 or 503.
    pub async fn log_page(&self, id: Uuid, lines: LogQuery) -> Result<LogPage, ApiError> {
        let page = match self {
            Backend::Embedded(backend) => {
                let path = backend.builds.log_path(id);
                let read = move || BuildLog::read_page(&path, lines.token.as_deref(), lines.limit);
                let read = tasks::blocking(read).await;
                read.map_err(|panic| ApiError::internal(panic.to_string()))?
            }
            #[cfg(feature = "scale")]
            Backend::Shared(service) => service.log_page(id, lines).await?,
        };
        page.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => {
                ApiError::bad_request("`nextToken` is not from this log; omit it to start at the beginning")
            }
            _ => ApiError::internal(format!("reading the log of build {id}: {error}")),
        })
    }

    /// Returns where the stored image of a build is. `method` is that of the request.
    pub fn image(&self, build: &Build, name: &str, method: &str) -> ImageSource {
        match self {
            Backend::Embedded(backend) => {
                let _ = method;
                ImageSource::File(backend.builds.images_path(build.id).join(name))
            }
            #[cfg(feature = "scale")]
            Backend::Shared(service) => ImageSource::Link(service.image_link(build, name, method)),
        }
    }
}
