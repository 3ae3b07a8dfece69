//! Records of calls, and the routes that read them.
//!
//! In: what passes between sessions and their bots, and requests of the operator. Out: JSON. The
//! routes are for those that may list live sessions. `proto::calls` keeps the records, and
//! [`writer`] writes them to a folder if that is wanted.

mod writer;

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use edge_runner_http::common::{Reply, json_reply, lock, unix_time_ms};
use hyper::StatusCode;
use hyper::header::{self, HeaderValue};

use self::writer::CallWriter;
use crate::bot::SessionId;
use crate::config::Config;
use crate::features::Feature;
use crate::io::RunError;
use crate::io::http::error::{HttpError, ModuleRefusal};
use crate::io::http::operator;
use crate::io::module::{Module, ModuleStartup, RouteRequest};
use crate::io::observer::{ObserveSessions, ObservedSession, SessionObserver};
use crate::io::running::{ModuleFuture, RunningModule};
use crate::io::tasks;
use crate::proto::calls::{CallBeginning, CallEnding, CallLog, CallQuery, CallRecorder};
use crate::proto::counts::Counts;
use crate::proto::event::{LeaveReason, SessionEvent};
use crate::proto::http::route::{Route, RouteError};

/// Time for the last records on a slow disk.
const WRITTEN_WITHIN: Duration = Duration::from_secs(2);

pub const MODULE: Module = Module {
    check: Some(|config| Box::pin(std::future::ready(check(config)))),
    run: Some(run),
    answer: Some(|request| Box::pin(std::future::ready(answer(&request)))),
    ..Module::new(Feature::Calls)
};

/// The records of one runner.
pub struct Calls {
    log: Mutex<CallLog>,
    /// `None` without `--calls-dir`.
    writer: Option<Arc<CallWriter>>,
}

impl RunningModule for Calls {
    fn end(&self) -> ModuleFuture<'_, ()> {
        Box::pin(async {
            let Some(writer) = self.writer.clone() else {
                return;
            };
            let finished = tokio::task::spawn_blocking(move || writer.finish());
            if tokio::time::timeout(WRITTEN_WITHIN, finished).await.is_err() {
                log::warn!("the last records of calls are not written: the disk of --calls-dir does not answer");
            }
        })
    }
}

/// Checks that records can be written where they are to be.
fn check(config: &Config) -> Result<(), RunError> {
    let Some(folder) = &config.calls.dir else {
        return Ok(());
    };
    writer::check(folder).map_err(|source| unusable(folder, source))
}

fn unusable(folder: &Path, source: io::Error) -> RunError {
    RunError::CallsFolder {
        path: folder.to_owned(),
        source,
    }
}

fn run(startup: &ModuleStartup<'_>) -> Result<Option<Arc<dyn RunningModule>>, RunError> {
    let config = &startup.app.config.calls;
    if config.kept == 0 && config.dir.is_none() {
        return Ok(None);
    }
    let writer = match &config.dir {
        Some(folder) => Some(Arc::new(
            CallWriter::start(folder).map_err(|source| unusable(folder, source))?,
        )),
        None => None,
    };
    let calls = Arc::new(Calls {
        log: Mutex::new(CallLog::new(config)),
        writer,
    });
    startup.app.sessions.observe(calls.clone());
    Ok(Some(calls))
}

fn answer(request: &RouteRequest<'_>) -> Result<Reply, HttpError> {
    let RouteRequest { app, head, peer, .. } = request;
    operator::check_sessions_access(app, &head.headers, *peer)?;
    let Some(calls) = app.modules.get::<Calls>() else {
        let detail = "there are no records of calls: the runner was started with --calls-kept 0";
        return Err(ModuleRefusal::new(StatusCode::NOT_FOUND, detail).into());
    };
    let body = match &request.route {
        Route::Calls => {
            let query = CallQuery::parse(head.uri.query().unwrap_or_default())
                .map_err(|wrong| ModuleRefusal::new(StatusCode::BAD_REQUEST, wrong))?;
            lock(&calls.log).list(&query, tasks::now())
        }
        Route::Call(id) => lock(&calls.log).describe(id, tasks::now()).ok_or_else(|| {
            ModuleRefusal::new(StatusCode::NOT_FOUND, "no call has this id, or its record was dropped")
        })?,
        _ => return Err(HttpError::Route(RouteError::NotFound)),
    };
    let mut reply = json_reply(StatusCode::OK, body);
    let no_store = HeaderValue::from_static("no-store");
    reply.headers_mut().insert(header::CACHE_CONTROL, no_store);
    Ok(reply)
}

impl ObserveSessions for Calls {
    fn begin(self: Arc<Self>, session: ObservedSession<'_>) -> Box<dyn SessionObserver> {
        lock(&self.log).begin(CallBeginning {
            id: session.id.clone(),
            transport: session.transport,
            call_data: session.call_data,
            now: tasks::now(),
            unix_ms: unix_time_ms(),
        });
        Box::new(CallObserver {
            calls: self,
            id: session.id,
        })
    }
}

/// Records one call.
struct CallObserver {
    calls: Arc<Calls>,
    id: SessionId,
}

impl CallObserver {
    fn record(&self, handle: impl FnOnce(&mut CallRecorder)) {
        if let Some(call) = lock(&self.calls.log).live(&self.id) {
            handle(call);
        }
    }
}

impl SessionObserver for CallObserver {
    fn event(&self, event: &SessionEvent) {
        self.record(|call| call.handle_event(event, tasks::now()));
    }

    fn bot_message(&self, text: &str) {
        self.record(|call| call.handle_bot_message(text, tasks::now()));
    }

    fn interruption(&self) {
        self.record(CallRecorder::handle_interruption);
    }

    fn end(&self, reason: LeaveReason, bot_error: Option<&str>, counts: &Counts) {
        let end = CallEnding {
            reason,
            bot_error,
            counts: *counts,
            now: tasks::now(),
        };
        let record = lock(&self.calls.log).end(&self.id, end);
        if let (Some(writer), Some(record)) = (&self.calls.writer, record) {
            writer.write(record.to_string());
        }
    }
}

impl Drop for CallObserver {
    /// Ends the record of a session whose task panicked.
    fn drop(&mut self) {
        self.end(LeaveReason::Failed, None, &Counts::default());
    }
}
