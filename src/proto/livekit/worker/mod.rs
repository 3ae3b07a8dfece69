//! An agent worker: the registration of the runner at a LiveKit server, which assigns rooms to it.
//!
//! `Pause -> Dialling -> Registering -> Registered -> Pause ...`, for ever, until it is stopped.
//! In: the result of a dial, messages of the server, what the sessions of jobs report, processor
//! time, and `now`. Out, by [`AgentWorker::poll_command`]: a WebSocket to open, messages to send,
//! sessions to start and to end. The jobs outlive the connection: the two are independent. A place
//! is reserved with each accepted job, so the runner never has more sessions than places.
//!
//! This file is the connection; `jobs` answers offers and keeps the jobs, [`load`] measures the
//! load, [`wire`] has the messages, `tokens` the tokens, `room_api` the API of the server,
//! [`dispatch`] serves `/start`, `requester` says who asked, [`webhook`] finds lost bots,
//! [`watcher`] replaces them, [`cpu`] reads processor time, and [`report`] is the state for
//! `/status` and `/metrics`. Source: `docs/spec/livekit.md` 6.

mod agent_dispatch;
pub mod cpu;
pub mod dispatch;
mod jobs;
pub mod load;
pub mod metrics;
pub mod report;
mod requester;
mod room_api;
mod tokens;
pub mod watcher;
pub mod webhook;
pub mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::job::Job;
use crate::job::JobType;
use crate::livekit::config::MediaroomWorker;
use crate::livekit::http_base;
use crate::livekit::roster::truncated;
use crate::livekit::session::{DialRequest, JobRules};
use crate::livekit::wire::ParticipantPermission;
use crate::secret::Secret;
use crate::server::source::SourceKey;
use jobs::{Promise, PromiseKey, ServedJob};
use load::LoadMeter;
use report::{WorkerCounts, WorkerReport, WorkerState};
pub(in crate::livekit) use room_api::{ListedParticipant, participants};
use wire::{
    MigrateJobs, RegisterWorker, UpdateWorker, WorkerPing, WorkerRegistered, WorkerRequestKind, WorkerResponseKind,
};

/// Interval of load reports: that of the published workers.
const WORKER_STATUS_INTERVAL: Duration = Duration::from_millis(2_500);
/// Interval of checks whether timers are late.
const WORKER_TICK: Duration = Duration::from_millis(500);
/// Time without any frame after which the server counts as lost: it pings every 10 s.
const WORKER_SILENCE_MAX: Duration = Duration::from_secs(25);
/// Interval of the runner's own pings.
const WORKER_PING_INTERVAL: Duration = Duration::from_secs(10);
/// Time for the server to answer the registration.
const WORKER_REGISTER_WITHIN: Duration = Duration::from_secs(10);
/// Pauses between rounds of attempts to register; the last one repeats for ever. Up to a quarter of
/// each, and up to `WORKER_JITTER`, is added at random, so that the runners of a restarted server
/// do not return all at once.
const WORKER_PAUSES: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(10),
];
/// See `WORKER_PAUSES`.
const WORKER_JITTER: Duration = Duration::from_millis(250);
/// Time that a registration must have lasted for its loss to start the pauses anew.
const WORKER_SETTLED: Duration = Duration::from_secs(10);

/// The places of the runner, which all of its sessions share.
pub trait SessionSlots {
    /// A reserved place. Dropping it releases it.
    type Place;

    /// Reserves a place, at once or not at all. A job that an anonymous request has asked for has
    /// the source of the request.
    fn reserve(&mut self, source: Option<SourceKey>) -> Option<Self::Place>;

    /// Returns the number of places in use, reserved ones included.
    fn used(&self) -> usize;

    /// Returns the number of all places.
    fn max(&self) -> usize;
}

/// The parameters of a worker.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// The URLs of the server, at least one, in the order in which they are tried.
    pub urls: Vec<String>,
    pub key: String,
    pub secret: Secret,
    pub worker: MediaroomWorker,
    /// Processors that the runner may use.
    pub cores: usize,
    /// Bytes of metadata that the bot can be given: fewer for a program.
    pub metadata_bytes_max: usize,
    /// The names of the runner's bots, if it has several.
    pub bots: Vec<String>,
}

/// A job whose session starts.
pub struct AssignedJob<P> {
    pub job: Job,
    pub room_name: String,
    /// The session id that the dispatch names, if it is a UUID.
    pub session_id: Option<String>,
    /// The bot that the dispatch names.
    pub bot: Option<String>,
    /// The URLs of the room's server, the preferred one first.
    pub urls: Vec<String>,
    pub token: Secret,
    pub rules: JobRules,
    pub place: P,
}

/// A command to the driver.
pub enum WorkerCommand<P> {
    /// Exactly one of [`AgentWorker::handle_open`], [`AgentWorker::handle_refused`] and
    /// [`AgentWorker::handle_unreachable`] follows, unless the socket is closed first.
    Dial(DialRequest),
    /// One binary message.
    Send(Vec<u8>),
    /// Closes the socket with code 1000, or cancels the dial.
    CloseSocket,
    /// [`AgentWorker::handle_cpu`] follows.
    MeasureCpu,
    Start(Box<AssignedJob<P>>),
    /// Tells the session of this job that the server took the job back.
    Terminate(String),
}

/// The outcome of a job, which the server is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    Success,
    /// With the reason.
    Failed(String),
}

/// The state of the connection.
enum WorkerLink {
    /// The next dial is due then.
    Pause(Instant),
    Dialling,
    /// The answer to the registration is due then.
    Registering(Instant),
    Registered(WorkerRegistration),
    Stopped,
}

/// An accepted registration.
struct WorkerRegistration {
    since: Instant,
    status_due: Instant,
    ping_due: Instant,
}

/// The worker of one runner.
pub struct AgentWorker<P: SessionSlots> {
    settings: WorkerSettings,
    places: P,
    link: WorkerLink,
    /// The attempt: a round through all URLs, and the URL in it.
    round: usize,
    url_at: usize,
    last_frame: Instant,
    meter: LoadMeter,
    next_tick: Instant,
    draining: bool,
    /// Whether the last status said that this worker takes no job.
    was_full: bool,
    /// Accepted jobs that are not assigned yet, by id.
    promises: BTreeMap<String, Promise<P::Place>>,
    /// Accepted jobs that were not assigned in time.
    expired: VecDeque<(String, PromiseKey)>,
    /// Assigned jobs whose sessions have not ended, by id.
    jobs: BTreeMap<String, ServedJob>,
    commands: VecDeque<WorkerCommand<P::Place>>,
    report: WorkerReport,
    /// Why the last attempt at each URL failed, as the log has it. Empty since the registration.
    last_words: Vec<String>,
    notices: NoticeGate,
    /// State of the generator of jitter; never zero.
    random: u64,
    /// The same moment by the monotonic and by the Unix clock.
    clock: (Instant, Duration),
    /// Since when there is no registration; `None` with one.
    unregistered_since: Option<Instant>,
}

impl<P: SessionSlots> AgentWorker<P> {
    /// Creates a worker that dials at once. `seed` is random, `unix` is `now` as Unix time.
    pub fn new(settings: WorkerSettings, places: P, seed: u64, unix: Duration, now: Instant) -> Self {
        let report = WorkerReport {
            agent_name: settings.worker.agent_name.clone(),
            job_type: settings.worker.job_type,
            url: settings.urls.first().cloned().unwrap_or_default(),
            places: places.max(),
            since_s: unix.as_secs(),
            ..WorkerReport::default()
        };
        AgentWorker {
            last_words: vec![String::new(); settings.urls.len()],
            meter: LoadMeter::new(settings.worker.target_load_percent, settings.cores),
            settings,
            places,
            link: WorkerLink::Pause(now),
            round: 0,
            url_at: 0,
            last_frame: now,
            next_tick: now + WORKER_TICK,
            draining: false,
            was_full: false,
            promises: BTreeMap::new(),
            expired: VecDeque::new(),
            jobs: BTreeMap::new(),
            commands: VecDeque::new(),
            report,
            notices: NoticeGate::default(),
            random: seed | 1,
            clock: (now, unix),
            unregistered_since: Some(now),
        }
    }

    /// Handles the open WebSocket: registers.
    pub fn handle_open(&mut self, now: Instant) {
        if !matches!(self.link, WorkerLink::Dialling) {
            return self.commands.push_back(WorkerCommand::CloseSocket);
        }
        self.last_frame = now;
        self.link = WorkerLink::Registering(now + WORKER_REGISTER_WITHIN);
        let worker = &self.settings.worker;
        let register = RegisterWorker {
            job_type: wire_type(worker.job_type),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            allowed_permissions: Some(ParticipantPermission {
                can_subscribe: true,
                can_publish: true,
                can_publish_data: true,
                can_update_metadata: true,
                ..ParticipantPermission::default()
            }),
            agent_name: worker.agent_name.clone(),
            deployment: worker.deployment.clone(),
        };
        self.send(WorkerRequestKind::Register(register));
    }

    /// Handles an HTTP answer that is not a WebSocket upgrade. Its text is not taken: servers
    /// repeat the token in it.
    pub fn handle_refused(&mut self, status: u16, now: Instant) {
        if !matches!(self.link, WorkerLink::Dialling) {
            return;
        }
        let is_refusal = matches!(status, 400..=499) && status != 429;
        self.handle_failed_attempt(is_refusal, refusal_words(status), now);
    }

    /// Handles a dial without an answer.
    pub fn handle_unreachable(&mut self, why: &str, now: Instant) {
        if matches!(self.link, WorkerLink::Dialling) {
            self.handle_failed_attempt(false, format!("the server was not reached: {why}"), now);
        }
    }

    /// Handles the end of the WebSocket, closed by the server or broken.
    pub fn handle_socket_closed(&mut self, now: Instant) {
        match self.link {
            WorkerLink::Registered(_) => self.handle_lost("the server closed it", now),
            WorkerLink::Registering(_) => {
                let words = "the server closed the connection instead of registering the worker: it does not take the job type, \
                             the name or the deployment, or it was restarted";
                self.handle_failed_attempt(true, words.to_owned(), now);
            }
            _ => {}
        }
    }

    /// Handles any frame of the server, a ping too: it is alive.
    pub fn handle_frame(&mut self, now: Instant) {
        self.last_frame = now;
    }

    /// Handles one binary message of the server.
    pub fn handle_message(&mut self, bytes: Bytes, now: Instant) {
        self.last_frame = now;
        let message = match wire::parse(bytes) {
            Ok(message) => message.message,
            Err(error) => {
                return self
                    .notices
                    .warn(now, &format!("a message of the server is ignored: {error}"));
            }
        };
        match (message, &self.link) {
            (Some(WorkerResponseKind::Register(registered)), WorkerLink::Registering(_)) => {
                self.handle_registered(registered, now);
            }
            (Some(message), WorkerLink::Registered(_)) => match message {
                WorkerResponseKind::Availability(offer) => self.handle_offer(*offer, now),
                WorkerResponseKind::Assignment(assignment) => self.handle_assignment(*assignment, now),
                WorkerResponseKind::Termination(ended) => self.handle_termination(&ended.job_id, now),
                WorkerResponseKind::GoAway(_) => log::debug!("the server is going to close the connection"),
                WorkerResponseKind::Pong(_) | WorkerResponseKind::Register(_) => {}
            },
            _ => log::debug!("an unknown or early message of the server is ignored"),
        }
    }

    /// Handles the processor time that the runner and its bots have used in all. The next status
    /// follows.
    pub fn handle_cpu(&mut self, total: Duration, now: Instant) {
        self.meter.handle_cpu(total, now);
        self.send_status(now);
    }

    /// Handles places that sessions of any transport may have released: the server gives this
    /// worker no job before it hears that there is a place again.
    pub fn handle_places(&mut self, now: Instant) {
        if self.was_full && !self.is_full(now) {
            self.send_status(now);
        }
    }

    /// Takes no further job. The jobs go on.
    pub fn handle_drain(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.draining, true) {
            self.report.is_draining = true;
            self.send_status(now);
        }
    }

    /// Ends the connection for good.
    pub fn handle_stop(&mut self) {
        if !matches!(self.link, WorkerLink::Stopped | WorkerLink::Pause(_)) {
            self.commands.push_back(WorkerCommand::CloseSocket);
        }
        self.link = WorkerLink::Stopped;
        self.promises.clear();
        self.report.state = WorkerState::Connecting;
    }

    /// Handles the deadline of [`AgentWorker::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        if now >= self.next_tick {
            self.meter.handle_lateness(now - self.next_tick, now);
            self.next_tick = now + WORKER_TICK;
        }
        self.expire_promises(now);
        match &mut self.link {
            WorkerLink::Pause(until) if now >= *until => self.dial(now),
            WorkerLink::Registering(until) if now >= *until => {
                self.commands.push_back(WorkerCommand::CloseSocket);
                let words = format!(
                    "no answer to the registration within {} s",
                    WORKER_REGISTER_WITHIN.as_secs()
                );
                self.handle_failed_attempt(false, words, now);
            }
            WorkerLink::Registered(_) if now >= self.last_frame + WORKER_SILENCE_MAX => {
                self.commands.push_back(WorkerCommand::CloseSocket);
                let words = format!("no sign of the server for {} s", WORKER_SILENCE_MAX.as_secs());
                self.handle_lost(&words, now);
            }
            WorkerLink::Registered(registration) => {
                let is_due = now >= registration.status_due;
                let pings = now >= registration.ping_due;
                if is_due {
                    registration.status_due = now + WORKER_STATUS_INTERVAL;
                    self.commands.push_back(WorkerCommand::MeasureCpu);
                }
                if pings {
                    registration.ping_due = now + WORKER_PING_INTERVAL;
                    let timestamp = i64::try_from(self.unix(now).as_millis()).unwrap_or(i64::MAX);
                    self.send(WorkerRequestKind::Ping(WorkerPing { timestamp }));
                }
            }
            _ => {}
        }
    }

    /// Returns when [`AgentWorker::handle_timeout`] is due; `None` once it is stopped.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let link = match &self.link {
            WorkerLink::Stopped => return None,
            WorkerLink::Pause(until) | WorkerLink::Registering(until) => Some(*until),
            WorkerLink::Dialling => None,
            WorkerLink::Registered(registration) => Some(
                registration
                    .status_due
                    .min(registration.ping_due)
                    .min(self.last_frame + WORKER_SILENCE_MAX),
            ),
        };
        let promise = self.promises.values().map(|promise| promise.until).min();
        [link, promise].into_iter().flatten().chain([self.next_tick]).min()
    }

    /// Returns the next command.
    pub fn poll_command(&mut self) -> Option<WorkerCommand<P::Place>> {
        self.commands.pop_front()
    }

    /// Returns the state for `/status` and `/metrics`.
    pub fn report(&mut self) -> &WorkerReport {
        self.report.jobs = self.jobs.len();
        self.report.used = self.places.used();
        self.report.load = self.meter.load(self.report.used, self.places.max());
        &self.report
    }

    fn url(&self) -> &str {
        self.settings
            .urls
            .get(self.url_at)
            .map(String::as_str)
            .unwrap_or_default()
    }

    fn dial(&mut self, now: Instant) {
        self.link = WorkerLink::Dialling;
        let url = self.url().to_owned();
        let now_s = self.unix(now).as_secs();
        let request = worker_request(&url, &self.settings.key, &self.settings.secret, now_s);
        self.report.url = url;
        self.commands.push_back(WorkerCommand::Dial(request));
    }

    fn handle_registered(&mut self, registered: WorkerRegistered, now: Instant) {
        let info = registered.server_info.unwrap_or_default();
        self.link = WorkerLink::Registered(WorkerRegistration {
            since: now,
            status_due: now + WORKER_STATUS_INTERVAL,
            ping_due: now + WORKER_PING_INTERVAL,
        });
        self.last_words.iter_mut().for_each(String::clear);
        self.report.state = WorkerState::Registered;
        self.report.counts.registrations += 1;
        self.report.since_s = self.unix(now).as_secs();
        self.unregistered_since = None;
        self.report.id = plain(&registered.worker_id);
        self.report.server_version = plain(&info.version);
        self.report.region = plain(&info.region);
        self.report.node = plain(&info.node_id);
        let WorkerReport { id, server_version, .. } = &self.report;
        match &*self.settings.worker.agent_name {
            "" => log::info!("registered for every room, {id}, server {server_version}"),
            name => log::info!("registered as `{name}`, {id}, server {server_version}"),
        }
        let live = || self.jobs.iter().filter(|(_, job)| !job.has_ended);
        if live().next().is_some() {
            let job_ids = live().map(|(id, _)| id.clone()).collect();
            self.send(WorkerRequestKind::Migrate(MigrateJobs { job_ids }));
        }
        self.send_status(now);
        self.commands.push_back(WorkerCommand::MeasureCpu);
    }

    /// Handles a failed attempt to register. A refusal is reported as such.
    fn handle_failed_attempt(&mut self, is_refusal: bool, words: String, now: Instant) {
        self.report.state = match is_refusal {
            true => WorkerState::Refused,
            false => WorkerState::Connecting,
        };
        let is_known = self.last_words.get(self.url_at) == Some(&words);
        let level = if is_known { log::Level::Debug } else { log::Level::Warn };
        log::log!(level, "{}: {words}", self.url());
        if let Some(last) = self.last_words.get_mut(self.url_at) {
            *last = words;
        }
        self.url_at += 1;
        let mut pause = Duration::ZERO;
        if self.url_at >= self.settings.urls.len() {
            self.url_at = 0;
            self.round += 1;
            pause = WORKER_PAUSES[self.round.min(WORKER_PAUSES.len() - 1)];
        }
        self.pause(pause, now);
    }

    /// Handles the loss of a registration. Accepted jobs that are not assigned are void: the server
    /// has forgotten this worker. Assigned jobs go on.
    fn handle_lost(&mut self, why: &str, now: Instant) {
        log::warn!("the connection to the LiveKit server is lost: {why}; jobs go on");
        if let WorkerLink::Registered(registration) = &self.link
            && now >= registration.since + WORKER_SETTLED
        {
            self.round = 0;
        } else {
            self.round += 1;
        }
        self.url_at = 0;
        self.promises.clear();
        self.report.state = WorkerState::Connecting;
        self.report.counts.losses += 1;
        self.report.since_s = self.unix(now).as_secs();
        self.unregistered_since = Some(now);
        self.pause(WORKER_PAUSES[self.round.min(WORKER_PAUSES.len() - 1)], now);
    }

    fn pause(&mut self, pause: Duration, now: Instant) {
        let quarter = pause / 4;
        let jitter = WORKER_JITTER + quarter;
        let jitter_ms = u64::try_from(jitter.as_millis()).unwrap_or(u64::MAX).max(1);
        self.link = WorkerLink::Pause(now + pause + Duration::from_millis(self.next_random() % jitter_ms));
    }

    /// Returns the next number of a xorshift generator, which spreads the returns of runners.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Tells whether the runner takes no job now.
    fn is_full(&self, now: Instant) -> bool {
        self.draining || self.meter.is_overloaded(now) || self.places.used() >= self.places.max()
    }

    /// Reports status and load, if registered.
    fn send_status(&mut self, now: Instant) {
        let full = self.is_full(now);
        self.was_full = full;
        let load = match full {
            true => 1.0,
            false => self.meter.load(self.places.used(), self.places.max()),
        };
        let jobs = self.jobs.values().filter(|job| !job.has_ended).count();
        self.send(WorkerRequestKind::UpdateWorker(UpdateWorker {
            status: Some(i32::from(full)),
            load,
            job_count: u32::try_from(jobs).unwrap_or(u32::MAX),
        }));
    }

    /// Queues a message, unless there is no connection.
    fn send(&mut self, kind: WorkerRequestKind) {
        let is_open = match self.link {
            WorkerLink::Registered(_) => true,
            WorkerLink::Registering(_) => matches!(kind, WorkerRequestKind::Register(_)),
            _ => false,
        };
        if is_open {
            self.commands.push_back(WorkerCommand::Send(kind.into()));
        }
    }

    /// Takes the Unix time of `now`. The system's clock may be set at any time, and the monotonic
    /// one stands still while the machine sleeps: call it before every dial, so that the token's
    /// times are those of other machines.
    pub fn set_clock(&mut self, unix: Duration, now: Instant) {
        self.clock = (now, unix);
        // A clock that was wrong at the start of the machine is right by now.
        if let Some(since) = self.unregistered_since {
            let passed = now.saturating_duration_since(since);
            self.report.since_s = unix.saturating_sub(passed).as_secs();
        }
    }

    fn unix(&self, now: Instant) -> Duration {
        let (then, unix) = self.clock;
        unix + now.saturating_duration_since(then)
    }

    fn counts(&mut self) -> &mut WorkerCounts {
        &mut self.report.counts
    }
}

/// Returns the WebSocket that a worker opens at this URL of a server.
pub fn worker_request(url: &str, key: &str, secret: &Secret, now_s: u64) -> DialRequest {
    DialRequest {
        url: format!("{}/agent", http_base(url)),
        token: tokens::worker_token(key, secret, now_s),
    }
}

/// Returns the words for a refusal of that WebSocket. The text of the refusal is not among them:
/// servers repeat the token in it.
pub fn refusal_words(status: u16) -> String {
    match status {
        401 => "the server refused the worker (401): MEDIAROOM_API_KEY or MEDIAROOM_API_SECRET is wrong, or the clocks differ"
            .to_owned(),
        404 => "no `/agent` there (404): an old server, or a proxy without the path".to_owned(),
        _ => format!("the server refused the worker ({status})"),
    }
}

/// Returns the number of a job type on the wire.
fn wire_type(job_type: JobType) -> i32 {
    match job_type {
        JobType::Room => 0,
        JobType::Publisher => 1,
        JobType::Participant => 2,
    }
}

/// Returns the text of a server without control characters and of bounded length, for the log.
fn plain(text: &str) -> String {
    truncated(text).chars().filter(|letter| !letter.is_control()).collect()
}

/// Keeps a server from flooding the log: one line per second at its level, the others at DEBUG.
#[derive(Debug, Default)]
struct NoticeGate {
    next: Option<Instant>,
    left_out: u64,
}

impl NoticeGate {
    /// Interval of lines.
    const INTERVAL: Duration = Duration::from_secs(1);

    fn info(&mut self, now: Instant, words: &str) {
        self.write(log::Level::Info, now, words);
    }

    fn warn(&mut self, now: Instant, words: &str) {
        self.write(log::Level::Warn, now, words);
    }

    fn write(&mut self, level: log::Level, now: Instant, words: &str) {
        if self.next.is_some_and(|next| now < next) {
            self.left_out += 1;
            log::debug!("{words}");
            return;
        }
        self.next = Some(now + Self::INTERVAL);
        match std::mem::take(&mut self.left_out) {
            0 => log::log!(level, "{words}"),
            count => log::log!(level, "{words}; {count} lines about jobs were left out before"),
        }
    }
}

#[cfg(test)]
mod tests;
