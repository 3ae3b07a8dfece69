//! Records of calls, and the routes that read them.
//!
//! In: what passes between sessions and their bots, and requests of the operator. Out: JSON. The
//! routes are for those that may list live sessions. `proto::calls` keeps the records.

use std::sync::{Arc, Mutex};

use edge_runner_http::common::{Reply, json_reply, lock, unix_time_ms};
use hyper::StatusCode;
use hyper::header::{self, HeaderValue};

use crate::bot::SessionId;
use crate::features::Feature;
use crate::io::RunError;
use crate::io::http::error::{HttpError, ModuleRefusal};
use crate::io::http::operator;
use crate::io::module::{Module, ModuleStartup, RouteRequest};
use crate::io::observer::{ObserveSessions, ObservedSession, SessionObserver};
use crate::io::running::RunningModule;
use crate::io::tasks;
use crate::proto::calls::{CallBeginning, CallEnding, CallLog, CallQuery, CallRecorder};
use crate::proto::counts::Counts;
use crate::proto::event::{LeaveReason, SessionEvent};
use crate::proto::http::route::{Route, RouteError};

pub const MODULE: Module = Module {
    run: Some(run),
    answer: Some(|request| Box::pin(std::future::ready(answer(&request)))),
    ..Module::new(Feature::Calls)
};

/// The records of one runner.
pub struct Calls(Mutex<CallLog>);

impl RunningModule for Calls {}

#[allow(clippy::unnecessary_wraps, reason = "the row of a module")]
fn run(startup: &ModuleStartup<'_>) -> Result<Option<Arc<dyn RunningModule>>, RunError> {
    let config = startup.app.config.calls;
    if config.kept == 0 {
        return Ok(None);
    }
    let calls = Arc::new(Calls(Mutex::new(CallLog::new(config))));
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
            lock(&calls.0).list(&query, tasks::now())
        }
        Route::Call(id) => lock(&calls.0)
            .describe(id, tasks::now())
            .ok_or_else(|| ModuleRefusal::new(StatusCode::NOT_FOUND, "no call has this id, or its record gave way"))?,
        _ => return Err(HttpError::Route(RouteError::NotFound)),
    };
    let mut reply = json_reply(StatusCode::OK, body);
    let no_store = HeaderValue::from_static("no-store");
    reply.headers_mut().insert(header::CACHE_CONTROL, no_store);
    Ok(reply)
}

impl ObserveSessions for Calls {
    fn begin(self: Arc<Self>, session: ObservedSession<'_>) -> Box<dyn SessionObserver> {
        lock(&self.0).begin(CallBeginning {
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
        if let Some(call) = lock(&self.calls.0).live(&self.id) {
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
        lock(&self.calls.0).end(&self.id, end);
    }
}

impl Drop for CallObserver {
    /// Ends the record of a session whose task panicked.
    fn drop(&mut self) {
        self.end(LeaveReason::Failed, None, &Counts::default());
    }
}
