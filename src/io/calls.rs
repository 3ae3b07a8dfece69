//! Records of calls, and the routes that read them.
//!
//! In: what passes between sessions and their bots, and requests of the operator. Out: JSON, or a
//! stream of events. The routes are for those that may list live sessions. `proto::calls` keeps the
//! records, [`writer`] writes them to a folder if that is wanted, [`readers`] has the clients that
//! follow calls, and [`poster`] posts events to the receiver of `--events`.

mod poster;
mod readers;
mod writer;

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use edge_runner_http::common::{Reply, ResponseBody, json_reply, lock, unix_time_ms};
use hyper::StatusCode;
use hyper::header::{self, HeaderValue};

use self::poster::EventPoster;
use self::readers::CallReaders;
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
use crate::proto::calls::{CallBeginning, CallEnding, CallLog, CallQuery, CallRecorder, CallUpdate, EventKind};
use crate::proto::counts::Counts;
use crate::proto::event::{LeaveReason, SessionEvent};
use crate::proto::http::route::{Route, RouteError};

/// Time for the last records on a slow disk.
const WRITTEN_WITHIN: Duration = Duration::from_secs(2);

pub const MODULE: Module = Module {
    check: Some(|config| Box::pin(std::future::ready(check(config)))),
    run: Some(run),
    answer: Some(|request| Box::pin(std::future::ready(answer(&request)))),
    hosts: Some(|config| config.calls.events.iter().filter_map(poster::host).collect()),
    ..Module::new(Feature::Calls)
};

/// The records of one runner.
pub struct Calls {
    log: Mutex<CallLog>,
    readers: CallReaders,
    /// `None` without `--calls-dir`.
    writer: Option<Arc<CallWriter>>,
    /// `None` without `--events`.
    poster: Option<Arc<EventPoster>>,
}

impl RunningModule for Calls {
    /// Streams end with the last session, so that the server need not cut them off.
    fn stop(&self) -> Option<(&'static str, ModuleFuture<'_, ()>)> {
        self.readers.close();
        let poster = self.poster.as_ref()?;
        Some(("the receiver of events", Box::pin(poster.finish())))
    }

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
    if config.kept == 0 && config.dir.is_none() && config.events.is_none() {
        return Ok(None);
    }
    let writer = match &config.dir {
        Some(folder) => Some(Arc::new(
            CallWriter::start(folder).map_err(|source| unusable(folder, source))?,
        )),
        None => None,
    };
    let kept = match &config.dir {
        Some(folder) if config.events.is_some() => {
            writer::kept_events(folder).map_err(|source| unusable(folder, source))?
        }
        _ => Vec::new(),
    };
    let receiver = config.events.clone();
    let poster = receiver.map(|receiver| EventPoster::start(receiver, kept, writer.clone()));
    let calls = Arc::new(Calls {
        log: Mutex::new(CallLog::new(config)),
        readers: CallReaders::default(),
        writer,
        poster,
    });
    startup.app.sessions.observe(calls.clone());
    Ok(Some(calls))
}

fn answer(request: &RouteRequest<'_>) -> Result<Reply, HttpError> {
    let RouteRequest {
        app,
        head,
        peer,
        conn_state,
        ..
    } = request;
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
        Route::CallEvents => {
            let queue = calls.readers.add().ok_or_else(|| {
                let detail = "as many clients as possible follow the calls; try again later, or read /calls";
                ModuleRefusal::new(StatusCode::SERVICE_UNAVAILABLE, detail).with_retry()
            })?;
            return Ok(stream(ResponseBody::events(queue, (*conn_state).clone())));
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

fn stream(events: ResponseBody) -> Reply {
    let mut reply = Reply::new(events);
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    // nginx would collect events before it passes them on.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    reply
}

impl ObserveSessions for Calls {
    fn begin(self: Arc<Self>, session: ObservedSession<'_>) -> Box<dyn SessionObserver> {
        let now = tasks::now();
        lock(&self.log).begin(CallBeginning {
            id: session.id.clone(),
            transport: session.transport,
            call_data: session.call_data,
            now,
            unix_ms: unix_time_ms(),
        });
        let row = || lock(&self.log).row(&session.id, now);
        self.readers.send(|| row().map(CallUpdate::Started));
        if let (Some(poster), Some(row)) = (&self.poster, self.poster.as_ref().and_then(|_| row())) {
            poster.post(EventKind::Started, &row);
        }
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
        let news = || lock(&self.calls.log).live(&self.id)?.take_news().map(CallUpdate::Text);
        self.calls.readers.send(news);
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
        let Some(record) = record else { return };
        if let Some(writer) = &self.calls.writer {
            writer.write(record.to_string());
        }
        if let Some(poster) = &self.calls.poster {
            poster.post(EventKind::of_end(reason), &record);
        }
        self.calls.readers.send(|| Some(CallUpdate::Ended(record)));
    }
}

impl Drop for CallObserver {
    /// Ends the record of a session whose task panicked.
    fn drop(&mut self) {
        self.end(LeaveReason::Failed, None, &Counts::default());
    }
}
