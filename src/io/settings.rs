//! The settings of a runner, as its page shows and changes them.
//!
//! In: requests that passed the API key and are of no other page. Out: JSON, without secrets.
//! [`mod@file`] writes the file of settings; `proto::setup::change` decides what may be changed.
//! The watcher of the settings reads and writes, one request after the other, so that a reload by
//! SIGHUP and a change never mix.

mod changes;
pub mod file;

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use edge_runner_http::common::{PeerInfo, Reply, json_reply, lock, random};
use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

pub use self::changes::PageSource;
use self::file::SettingsStore;
use crate::config::{Config, Secret};
use crate::features::Feature;
use crate::io::RunError;
use crate::io::http::app::RunnerApp;
use crate::io::http::body::{AcceptedBody, read};
use crate::io::http::error::{HttpError, ModuleRefusal};
use crate::io::local::{self, Local};
use crate::io::module::{Module, ModuleStartup, RouteRequest};
use crate::io::running::{RunningModule, RunningModules};
use crate::io::setup::SERVICE_CHECKS;
use crate::proto::http::route::{Route, RouteError};
use crate::proto::setup::SetupError;
use crate::proto::setup::asked::AskedServices;
use crate::proto::setup::change::{ChangeError, FieldState, SettingsChange, describe};

/// Requests that wait for the watcher.
const REQUESTS: usize = 4;

pub const MODULE: Option<&Module> = Some(&Module {
    run: Some(run),
    answer: Some(|request| Box::pin(answer(request))),
    ..Module::new(Feature::Setup)
});

/// A request to the watcher of the settings.
pub enum SettingsRequest {
    Read(oneshot::Sender<Result<Vec<FieldState>, String>>),
    Change(SettingsChange, oneshot::Sender<Result<TakenChange, ChangeError>>),
}

/// A change that was taken.
pub struct TakenChange {
    /// The new key of callers.
    pub key: Option<Secret>,
    /// The settings that a restart applies, by their keys.
    pub waiting: Vec<String>,
    /// Whether the runner restarts now.
    pub restarts: bool,
}

/// What the page needs while the runner runs.
pub struct SettingsPage {
    store: SettingsStore,
    /// Differs for each start, so that the page notices a restart.
    run: String,
    requests: mpsc::Sender<SettingsRequest>,
    /// Until the watcher takes it.
    received: Mutex<Option<mpsc::Receiver<SettingsRequest>>>,
    asked: Mutex<AskedServices>,
    /// Held by the request whose programs list the sound devices.
    listing: tokio::sync::Mutex<()>,
}

impl RunningModule for SettingsPage {}

/// The requests of the page.
pub struct SettingsRequests(Option<mpsc::Receiver<SettingsRequest>>);

impl SettingsRequests {
    pub fn of(modules: &RunningModules) -> SettingsRequests {
        let page = modules.get::<SettingsPage>();
        SettingsRequests(page.and_then(|page| lock(&page.received).take()))
    }

    /// Waits for the next one; for ever without a page.
    pub async fn next(&mut self) -> SettingsRequest {
        if let Some(requests) = &mut self.0
            && let Some(request) = requests.recv().await
        {
            return request;
        }
        std::future::pending().await
    }
}

fn run(startup: &ModuleStartup<'_>) -> Result<Option<Arc<dyn RunningModule>>, RunError> {
    let Some(file) = &startup.app.config.settings_page else {
        return Ok(None);
    };
    let store = open(file)?;
    if let Some(reason) = store.rejection() {
        log::warn!(
            "the last change of the settings page was taken back: {reason}; the change is in {}.rejected",
            store.path().display()
        );
    }
    let (requests, received) = mpsc::channel(REQUESTS);
    Ok(Some(Arc::new(SettingsPage {
        store,
        run: HEXLOWER.encode(&random::<8>()),
        requests,
        received: Mutex::new(Some(received)),
        asked: Mutex::default(),
        listing: tokio::sync::Mutex::default(),
    })))
}

/// Opens the file of settings for its page.
///
/// # Errors
/// [`RunError::Misuse`] if it is not there.
pub fn open(file: &std::path::Path) -> Result<SettingsStore, RunError> {
    SettingsStore::open(file)
        .map_err(|error| RunError::Misuse(format!("`--settings page`: --config {}: {error}", file.display())))
}

async fn answer(request: RouteRequest<'_>) -> Result<Reply, HttpError> {
    let RouteRequest {
        app,
        head,
        route,
        body,
        peer,
        ..
    } = request;
    let Some(page) = app.modules.get::<SettingsPage>() else {
        let detail =
            "this runner's page changes no settings: that needs `--settings page`, `--config FILE` and an API key";
        return Err(ModuleRefusal::new(StatusCode::NOT_FOUND, detail).into());
    };
    match route {
        Route::Settings => {
            let (fields, devices) = tokio::join!(page.fields(), page.devices(&app.config));
            let mut settings = page.describe(&app.config, app.sessions.count(), &fields?);
            settings["devices"] = devices;
            Ok(unstored(StatusCode::OK, &settings))
        }
        Route::ChangeSettings => {
            let body = read(app.conn_limits, &head.headers, AcceptedBody::Json, body).await?;
            page.change(&body, peer).await
        }
        Route::TestSound => {
            read(app.conn_limits, &head.headers, AcceptedBody::Json, body).await?;
            test_sound(app).await
        }
        _ => {
            let body = read(app.conn_limits, &head.headers, AcceptedBody::Json, body).await?;
            page.check(&body).await
        }
    }
}

/// The watcher has ended, because the runner stops.
fn stopping() -> HttpError {
    ModuleRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "this runner is stopping").into()
}

impl SettingsPage {
    /// Returns the settings as a start would have them now.
    async fn fields(&self) -> Result<Vec<FieldState>, HttpError> {
        let (answer, answered) = oneshot::channel();
        let sent = self.requests.send(SettingsRequest::Read(answer)).await;
        sent.map_err(|_| stopping())?;
        let fields = answered.await.map_err(|_| stopping())?;
        fields.map_err(|error| {
            let detail = format!("the settings cannot be read: {error}");
            ModuleRefusal::logged(StatusCode::INTERNAL_SERVER_ERROR, detail).into()
        })
    }

    /// Returns the sound devices of this machine; null in a build without the sound card.
    async fn devices(&self, config: &Config) -> Value {
        if !Feature::Local.in_this_build() {
            return Value::Null;
        }
        let _alone = self.listing.lock().await;
        local::describe(&config.withheld).await
    }

    fn describe(&self, config: &Config, sessions: usize, fields: &[FieldState]) -> Value {
        json!({
            "run": self.run,
            "file": self.store.path().display().to_string(),
            "rejected": self.store.rejection(),
            "sessions": sessions,
            "drain_s": config.drain.as_secs(),
            "assistants": Feature::Assistants.in_this_build(),
            "local": config.local.as_ref().is_some_and(|local| !local.types),
            "fields": describe(fields),
        })
    }

    async fn change(&self, body: &Bytes, peer: PeerInfo) -> Result<Reply, HttpError> {
        let change = match SettingsChange::parse(body) {
            Ok(change) => change,
            Err(error) => return Ok(refused(&error)),
        };
        let (answer, answered) = oneshot::channel();
        let sent = self.requests.send(SettingsRequest::Change(change, answer)).await;
        sent.map_err(|_| stopping())?;
        Ok(match answered.await.map_err(|_| stopping())? {
            Ok(taken) => {
                log::info!("settings page: {} has changed the settings", peer.source);
                let json = json!({
                    "key": taken.key.as_ref().map(Secret::expose),
                    "waiting": taken.waiting,
                    "restarts": taken.restarts,
                });
                unstored(StatusCode::OK, &json)
            }
            Err(error) => refused(&error),
        })
    }

    /// Asks services, as the setup page of a board does.
    async fn check(&self, body: &Bytes) -> Result<Reply, HttpError> {
        let Some(checks) = SERVICE_CHECKS else {
            return Err(HttpError::Route(RouteError::NotFound));
        };
        let fields = self.fields().await?;
        let reports = (checks.of_runner)(&self.asked, body, &fields).await;
        let reports = reports.map_err(|error| {
            let status = match error {
                SetupError::Busy(_) => StatusCode::TOO_MANY_REQUESTS,
                _ => StatusCode::BAD_REQUEST,
            };
            ModuleRefusal::new(status, error)
        })?;
        Ok(unstored(StatusCode::OK, &reports))
    }
}

/// Tests the sound card of `--local`.
async fn test_sound(app: &RunnerApp) -> Result<Reply, HttpError> {
    if !Feature::Local.in_this_build() {
        return Err(HttpError::Route(RouteError::NotFound));
    }
    let local = app.modules.get::<Local>();
    let Some(tester) = local.as_ref().and_then(|local| local.tester.as_ref()) else {
        let detail = "this runner's sound card is no caller: that needs `--local`";
        return Err(ModuleRefusal::new(StatusCode::NOT_FOUND, detail).into());
    };
    match tester.test(app.sessions.shutdown()).await {
        Ok(report) => Ok(unstored(StatusCode::OK, &json!(report))),
        Err(refusal) => Err(ModuleRefusal::new(refusal.status(), refusal).into()),
    }
}

fn refused(error: &ChangeError) -> Reply {
    let status = match error {
        ChangeError::File(_) => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::BAD_REQUEST,
    };
    unstored(status, &json!({"detail": error.to_string(), "field": error.key()}))
}

fn unstored(status: StatusCode, json: &Value) -> Reply {
    let mut reply = json_reply(status, json.to_string());
    let no_store = HeaderValue::from_static("no-store");
    reply.headers_mut().insert(header::CACHE_CONTROL, no_store);
    reply
}
