//! Records of calls, and the routes that read them.
//!
//! In: what passes between sessions and their bots, and requests of the operator. Out: JSON, or a
//! stream of events. The routes are for those that may list live sessions. `proto::calls` keeps the
//! records, [`writer`] writes them to a folder if that is wanted, [`sound`] their sound,
//! [`listening`] plays it to operators, [`readers`] has the clients that follow calls, and
//! [`poster`] posts events to the receiver of `--events`.

#[cfg_attr(not(feature = "webrtc"), path = "calls/listening/absent.rs")]
mod listening;
mod poster;
mod readers;
mod sound;
mod tap;
mod writer;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use edge_runner_http::common::{Reply, ResponseBody, json_reply, lock, unix_time_ms};
use edge_runner_http::server::ConnState;
use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use serde_json::Value;

use self::listening::Listening;
use self::poster::EventPoster;
use self::readers::CallReaders;
use self::sound::{CallRecording, SoundWriter};
use self::tap::CallTap;
use self::writer::CallWriter;
use crate::bot::SessionId;
use crate::config::{CallsConfig, Config, Transport};
use crate::features::Feature;
use crate::io::RunError;
use crate::io::http::error::{HttpError, ModuleRefusal};
use crate::io::http::operator;
use crate::io::module::{Module, ModuleStartup, RouteRequest};
use crate::io::observer::{MissedCall, ObserveSessions, ObservedSession, SessionObserver, SoundNotice};
use crate::io::running::{ModuleFuture, RunningModule};
use crate::io::tasks;
use crate::io::written_folder::{self, unusable};
use crate::proto::calls::files::FiledCalls;
use crate::proto::calls::metrics;
use crate::proto::calls::{
    CallBeginning, CallEnding, CallLog, CallOutcome, CallQuery, CallRecorder, CallUpdate, CallerVoice, EventKind,
};
use crate::proto::counts::{Counts, NetworkTimes};
use crate::proto::event::{LeaveReason, SessionEvent};
use crate::proto::http::route::{Route, RouteError};
use crate::proto::http::traceparent::Traceparent;
use crate::proto::metrics::text::MetricsText;
use crate::proto::session::CallerFrame;

/// Time for the last records on a slow disk.
const WRITTEN_WITHIN: Duration = Duration::from_secs(2);
const CALLS_DIR: &str = "--calls-dir";
const RECORD: &str = "--record";

pub const MODULE: Option<&Module> = Some(&Module {
    check: Some(|config| Box::pin(std::future::ready(check(config)))),
    run: Some(run),
    answer: Some(|request| Box::pin(answer(request))),
    hosts: Some(|config| config.calls.events.iter().filter_map(poster::host).collect()),
    ..Module::new(Feature::Calls)
});

/// The records of one runner.
pub struct Calls {
    log: Mutex<CallLog>,
    readers: CallReaders,
    /// `None` without `--calls-dir`.
    writer: Option<Arc<CallWriter>>,
    /// `None` without `--events`.
    poster: Option<Arc<EventPoster>>,
    /// `None` without `--record`.
    sound: Option<Arc<SoundWriter>>,
    listening: Listening,
    config: CallsConfig,
}

impl RunningModule for Calls {
    /// Streams end with the last session, so that the server need not cut them off.
    fn stop(&self) -> Option<(&'static str, ModuleFuture<'_, ()>)> {
        self.readers.close();
        let poster = self.poster.as_ref()?;
        Some(("the receiver of events", Box::pin(poster.finish())))
    }

    fn render_metrics(&self, text: &mut MetricsText) {
        lock(&self.log).refused_counts().render(text);
        if let Some(writer) = &self.writer {
            metrics::render_records(text, writer.dropped());
        }
        if let Some(poster) = &self.poster {
            metrics::render_events(text, poster.counts());
        }
    }

    fn end(&self) -> ModuleFuture<'_, ()> {
        Box::pin(async {
            let (writer, sound) = (self.writer.clone(), self.sound.clone());
            if writer.is_none() && sound.is_none() {
                return;
            }
            let finished = tokio::task::spawn_blocking(move || {
                writer.iter().for_each(|writer| writer.finish());
                sound.iter().for_each(|sound| sound.finish());
            });
            if tokio::time::timeout(WRITTEN_WITHIN, finished).await.is_err() {
                log::warn!("the last records of calls are not written: the disk does not answer");
            }
        })
    }
}

/// Checks that records can be written where they are to be.
fn check(config: &Config) -> Result<(), RunError> {
    for (option, folder) in folders(&config.calls) {
        written_folder::check(folder).map_err(|source| unusable(option, folder, source))?;
    }
    Ok(())
}

/// Returns the options that name folders to write to.
fn folders(config: &CallsConfig) -> impl Iterator<Item = (&'static str, &PathBuf)> {
    let dir = config.dir.iter().map(|folder| (CALLS_DIR, folder));
    dir.chain(config.record.iter().map(|folder| (RECORD, folder)))
}

fn run(startup: &ModuleStartup<'_>) -> Result<Option<Arc<dyn RunningModule>>, RunError> {
    let config = &startup.app.config.calls;
    if config.kept == 0 && config.dir.is_none() && config.events.is_none() && !config.taps_sound() {
        return Ok(None);
    }
    let writer = match &config.dir {
        Some(folder) => Some(Arc::new(
            CallWriter::start(folder).map_err(|source| unusable(CALLS_DIR, folder, source))?,
        )),
        None => None,
    };
    let kept = match &config.dir {
        Some(folder) if config.events.is_some() => {
            writer::kept_events(folder).map_err(|source| unusable(CALLS_DIR, folder, source))?
        }
        _ => Vec::new(),
    };
    let sound = match &config.record {
        Some(folder) => Some(Arc::new(
            SoundWriter::start(folder).map_err(|source| unusable(RECORD, folder, source))?,
        )),
        None => None,
    };
    let receiver = config.events.clone();
    let poster = receiver.map(|receiver| EventPoster::start(receiver, kept, writer.clone()));
    let calls = Arc::new(Calls {
        log: Mutex::new(CallLog::new(config)),
        readers: CallReaders::default(),
        writer,
        poster,
        sound,
        listening: Listening::default(),
        config: config.clone(),
    });
    startup.app.sessions.observe(calls.clone());
    Ok(Some(calls))
}

async fn answer(request: RouteRequest<'_>) -> Result<Reply, HttpError> {
    operator::check_sessions_access(request.app, &request.head.headers, request.peer)?;
    let Some(calls) = request.app.modules.get::<Calls>() else {
        let detail = "there are no records of calls: the runner was started with --calls-kept 0";
        return Err(ModuleRefusal::new(StatusCode::NOT_FOUND, detail).into());
    };
    if let Route::Listen(_) | Route::EndListening(..) = request.route {
        return listening::answer(calls, request).await;
    }
    let RouteRequest {
        head,
        conn_state,
        route,
        ..
    } = request;
    let body = match &route {
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
            return Ok(stream(ResponseBody::events(queue, conn_state.clone())));
        }
        Route::CallRecording(id) => {
            let file = recording(calls, id).await.ok_or_else(|| {
                let detail = "there is no recording of this call, or it is not over";
                ModuleRefusal::new(StatusCode::NOT_FOUND, detail)
            })?;
            return Ok(sound_reply(file, conn_state));
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

/// Opens the whole recording of a call, with its length.
async fn recording(calls: &Calls, id: &str) -> Option<(File, u64)> {
    let name = lock(&calls.log).recording(id)?;
    let path = calls.config.record.as_ref()?.join(name);
    let opened = tasks::blocking(move || {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        io::Result::Ok((file, bytes))
    });
    opened.await.ok()?.ok()
}

fn sound_reply((file, bytes): (File, u64), conn_state: &Arc<ConnState>) -> Reply {
    let mut reply = Reply::new(ResponseBody::part(file, 0..bytes, conn_state.clone()));
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("audio/wav"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
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
        let unix_ms = unix_time_ms();
        lock(&self.log).begin(CallBeginning {
            id: session.id.clone(),
            transport: session.transport,
            bot: session.bot.clone(),
            call_data: session.call_data,
            source: session.source,
            trace: Traceparent::of_body(session.body),
            now,
            unix_ms,
        });
        let tap = self.tap(&session, unix_ms);
        let row = || lock(&self.log).row(&session.id, now);
        self.readers.send(|| row().map(CallUpdate::Started));
        if let (Some(poster), Some(row)) = (&self.poster, self.poster.as_ref().and_then(|_| row())) {
            poster.post(EventKind::Started, &row);
        }
        Box::new(CallObserver {
            calls: self,
            id: session.id,
            tap,
            voice: Mutex::default(),
        })
    }

    fn missed(&self, call: MissedCall<'_>) {
        let now = tasks::now();
        let lasted_ms = u64::try_from(call.lasted.as_millis()).unwrap_or(u64::MAX);
        let beginning = CallBeginning {
            id: call.id,
            transport: call.transport,
            bot: call.bot,
            call_data: Some(call.call_data),
            source: call.source,
            trace: call.trace,
            now: now.checked_sub(call.lasted).unwrap_or(now),
            unix_ms: unix_time_ms().saturating_sub(lasted_ms),
        };
        let end = CallEnding {
            outcome: call.outcome,
            bot_error: None,
            provider_error: call.provider_error,
            counts: Counts::default(),
            network: NetworkTimes::default(),
            now,
        };
        let record = lock(&self.log).miss(beginning, end);
        self.publish(call.outcome, record);
    }
}

impl Calls {
    /// Posts, writes and streams the record of a call that ended.
    fn publish(&self, outcome: CallOutcome, record: Option<Value>) {
        let Some(record) = record else { return };
        // The event is kept first, so that a record on the disk has its event there.
        if let Some(poster) = &self.poster {
            poster.post(EventKind::of_end(outcome), &record);
        }
        if let Some(writer) = &self.writer {
            let calls = match outcome.is_refusal() {
                true => FiledCalls::Refused,
                false => FiledCalls::Ended,
            };
            writer.write(record.to_string(), calls);
        }
        self.readers.send(|| Some(CallUpdate::Ended(record)));
    }

    /// Begins to tap the sound of a session, if it is to be recorded or may be listened to.
    fn tap(self: &Arc<Self>, session: &ObservedSession<'_>, unix_ms: u64) -> CallTap {
        let rate_hz = match session.transport.is_some_and(Transport::is_narrowband) {
            true => 8_000,
            false => 16_000,
        };
        let allows_listening = self.config.allows_listening(session.transport, session.body);
        let listeners = allows_listening.then(|| {
            if let Some(call) = lock(&self.log).live(&session.id) {
                call.allow_listening();
            }
            self.listening
                .begin(&session.id, session.bot.clone(), rate_hz, Arc::downgrade(self))
        });
        CallTap {
            recording: self.record(session, rate_hz, unix_ms),
            listeners,
        }
    }

    /// Begins the recording of a session, if it is to be recorded.
    fn record(&self, session: &ObservedSession<'_>, rate_hz: u32, unix_ms: u64) -> Option<CallRecording> {
        let is_recorded = self.config.records(session.transport, session.body);
        let sound = self.sound.as_ref().filter(|_| is_recorded)?;
        let (recording, name) = sound.begin(&session.id, rate_hz, unix_ms)?;
        if let Some(call) = lock(&self.log).live(&session.id) {
            call.set_recording(name);
        }
        Some(recording)
    }
}

/// Records one call.
struct CallObserver {
    calls: Arc<Calls>,
    id: SessionId,
    tap: CallTap,
    /// The session's task alone takes this lock.
    voice: Mutex<CallerVoice>,
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
        match event {
            SessionEvent::Dtmf(_) => self.tap.press_key(),
            // The bot may take a while to end.
            SessionEvent::Left(_) => self.tap.end(),
            SessionEvent::SpeechStarted => {
                let spoken_until = {
                    let mut voice = lock(&self.voice);
                    voice.set_bot_audible(true);
                    voice.spoken_until()
                };
                return self.record(|call| call.handle_bot_speech(spoken_until, tasks::now()));
            }
            SessionEvent::SpeechStopped => return lock(&self.voice).set_bot_audible(false),
            _ => {}
        }
        self.record(|call| call.handle_event(event, tasks::now()));
    }

    fn bot_message(&self, text: &str) {
        self.record(|call| call.handle_bot_message(text, tasks::now()));
    }

    fn bot_words(&self, text: &str) {
        self.record(|call| call.handle_bot_words(text, tasks::now()));
    }

    fn transfer(&self, target: &str) {
        self.record(|call| call.handle_transfer(target));
    }

    fn hang_up(&self, reason: &str) {
        self.record(|call| call.handle_hang_up(reason));
    }

    fn caller_sound(&self, frame: &CallerFrame<'_>) {
        lock(&self.voice).handle_audio(frame, tasks::now());
        self.tap.caller_sound(frame);
    }

    fn bot_sound(&self, pcm: &[i16], rate_hz: u32) {
        self.tap.bot_sound(pcm, rate_hz);
    }

    fn sound_notice(&self) -> SoundNotice {
        self.tap.notice()
    }

    fn interruption(&self) {
        self.tap.interrupt();
        self.record(CallRecorder::handle_interruption);
    }

    fn network(&self, counts: &Counts, network: NetworkTimes) {
        self.record(|call| call.handle_network(counts, network));
    }

    fn answers(&self) -> Option<String> {
        lock(&self.calls.log).live(&self.id)?.answers()
    }

    fn end(&self, reason: LeaveReason, bot_error: Option<&str>, counts: &Counts, network: NetworkTimes) {
        self.tap.end();
        self.calls.listening.end(&self.id);
        let end = CallEnding {
            outcome: reason.into(),
            bot_error,
            provider_error: None,
            counts: *counts,
            network,
            now: tasks::now(),
        };
        let record = lock(&self.calls.log).end(&self.id, end);
        self.calls.publish(reason.into(), record);
    }
}

impl Drop for CallObserver {
    /// Ends the record of a session whose task panicked.
    fn drop(&mut self) {
        self.end(LeaveReason::Failed, None, &Counts::default(), NetworkTimes::default());
    }
}
