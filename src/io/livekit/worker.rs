//! The drivers of the agent workers, one for each agent name of the runner: its WebSocket, its
//! clock, and the sessions of its jobs.
//!
//! In: frames of the server, news of sessions, a drain. Out: the commands of [`AgentWorker`], and
//! its state in a [`WorkerHandle`]. One task each; it ends when it is told to stop. The sessions do
//! not need it.

mod cpu;

use std::collections::HashMap;
use std::future::{Future, pending};
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZero;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use edge_runner_http::common::{lock, random};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep_until, timeout};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message as Frame};

use self::cpu::{CpuReading, CpuReadings};
use super::dial::open;
use super::job::{JobOrder, SessionJobEvent, link};
use super::{RoomEntry, begin_in};
use crate::bot::SessionId;
use crate::config::{Config, MediaroomWorker, Transport};
use crate::io::admission::SessionPermit;
use crate::io::services::Services;
use crate::io::sessions::{CallAttempt, SessionStart, Sessions};
use crate::io::tasks;
use crate::io::websocket_client::{ClientSocket, SocketError, SocketLimits};
use crate::limits::{
    JOB_METADATA_BYTES_MAX, JOB_OFFERS_MAX, PROCESS_BODY_BYTES_MAX, ROOM_REFUSAL_BYTES_MAX, WORKER_MESSAGE_BYTES_MAX,
    WORKER_SEND_BYTES_MAX,
};
use crate::logging::LogClient;
use crate::proto::bots::{BotChoice, UnknownBot};
use crate::proto::http::registry;
use crate::proto::http::traceparent::Traceparent;
use crate::proto::livekit::connection_details::LiveKitCredentials;
use crate::proto::livekit::session::JobEvent;
use crate::proto::livekit::worker::report::WorkerReport;
use crate::proto::livekit::worker::{
    AgentWorker, AssignedJob, JobOutcome, SessionSlots, WorkerCommand, WorkerSettings,
};
use crate::proto::livekit::{registrations, socket_base};
use crate::proto::participant::Participant;
use crate::proto::server::admission::{PendingKind, Requester};
use crate::proto::server::log_limit::LogLimit;
use crate::proto::server::source::SourceKey;
use crate::proto::webrtc::connection::ConnectionContext;

/// Time from the URL of the server to an open WebSocket.
const WORKER_DIAL_WITHIN: Duration = Duration::from_secs(10);
/// Time for the server to take a message.
const WORKER_SEND_WITHIN: Duration = Duration::from_secs(5);

const LIMITS: SocketLimits = SocketLimits {
    within: WORKER_DIAL_WITHIN,
    message_bytes_max: WORKER_MESSAGE_BYTES_MAX,
    send_bytes_max: WORKER_SEND_BYTES_MAX,
    refusal_bytes_max: ROOM_REFUSAL_BYTES_MAX,
};

/// Jobs count as requests of this machine's operator, who holds the API secret.
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A handle to a worker of a runner.
pub struct WorkerHandle {
    report: Arc<Mutex<WorkerReport>>,
    orders: mpsc::Sender<WorkerOrder>,
}

impl WorkerHandle {
    /// Returns the state of the worker.
    pub fn report(&self) -> WorkerReport {
        lock(&self.report).clone()
    }

    /// Takes no further job.
    pub async fn drain(&self) {
        // The task has ended if this fails.
        let _ = self.orders.send(WorkerOrder::Drain).await;
    }

    /// Closes the connection, and waits until it is closed.
    pub async fn stop(&self) {
        let (done, stopped) = oneshot::channel();
        if self.orders.send(WorkerOrder::Stop(done)).await.is_ok() {
            let _ = stopped.await;
        }
    }
}

enum WorkerOrder {
    Drain,
    Stop(oneshot::Sender<()>),
}

/// Starts the workers of a runner; none without `--register`. Sessions use `common`.
pub fn start(
    sessions: &Sessions,
    common: &Arc<ConnectionContext>,
    log_limit: &Arc<Mutex<LogLimit>>,
    services: &Services,
) -> Vec<WorkerHandle> {
    let config = sessions.config();
    let cpu = Arc::new(CpuReadings::new(config.of_bots().any(|bot| bot.command.is_some())));
    let registrations = registrations(config).into_iter();
    registrations
        .filter_map(|worker| {
            let settings = settings(config, worker)?;
            let client = LogClient::new(log_limit.clone(), SERVER, true);
            Some(start_one(
                sessions,
                common.clone(),
                client,
                settings,
                cpu.clone(),
                services,
            ))
        })
        .collect()
}

/// Starts the worker of one agent name.
fn start_one(
    sessions: &Sessions,
    common: Arc<ConnectionContext>,
    log_client: LogClient,
    settings: WorkerSettings,
    cpu: Arc<CpuReadings>,
    services: &Services,
) -> WorkerHandle {
    let config = sessions.config();
    let agent_name = settings.worker.agent_name.clone();
    let places = RunnerSlots(sessions.clone());
    let mut worker = AgentWorker::new(
        settings,
        places,
        u64::from_be_bytes(random()),
        unix_time(),
        tasks::now(),
    );
    let report = Arc::new(Mutex::new(worker.report().clone()));
    let (orders, orders_in) = mpsc::channel(4);
    // Each session has few news.
    let (news, news_in) = mpsc::channel(4 * config.sessions_max + JOB_OFFERS_MAX);
    let driver = WorkerDriver {
        worker,
        socket: WorkerSocket::Closed,
        sessions: sessions.clone(),
        common,
        log_client,
        agent_name,
        jobs: HashMap::new(),
        news,
        report: report.clone(),
        cpu,
        measuring: None,
    };
    services.spawn("the LiveKit worker", driver.run(orders_in, news_in));
    WorkerHandle { report, orders }
}

fn unix_time() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

/// Returns the settings; `None` without a server.
fn settings(config: &Config, worker: &MediaroomWorker) -> Option<WorkerSettings> {
    let mediaroom = &config.mediaroom;
    Some(WorkerSettings {
        urls: mediaroom.urls().map(str::to_owned).collect(),
        key: mediaroom.key.clone()?,
        secret: mediaroom.secret.clone()?,
        worker: worker.clone(),
        cores: std::thread::available_parallelism().map_or(1, NonZero::get),
        metadata_bytes_max: match config.of_bots().any(|bot| bot.command.is_some()) {
            // A program gets it twice: as `body`, and as it is.
            true => PROCESS_BODY_BYTES_MAX / 3,
            false => JOB_METADATA_BYTES_MAX,
        },
        bots: config.bots.names().map(str::to_owned).collect(),
    })
}

/// The places of a runner, shared with its sessions of other transports.
struct RunnerSlots(Sessions);

impl SessionSlots for RunnerSlots {
    type Place = SessionPermit;

    fn reserve(&mut self, source: Option<SourceKey>) -> Option<SessionPermit> {
        if self.0.is_closed() || self.used() >= self.max() {
            return None;
        }
        let requester = Requester {
            source: source.unwrap_or(SourceKey::from(SERVER)),
            is_authorised: source.is_none(),
            local_address: None,
        };
        // Who asked without a key may never join.
        let kind = match source {
            Some(_) => PendingKind::Silent,
            None => PendingKind::Caller,
        };
        // A job that this runner declines may go to another one, so it evicts no waiting caller.
        let permit = self
            .0
            .admission()
            .newcomer(|admission| admission.session_in_free_slot(requester, kind));
        permit.ok()
    }

    fn used(&self) -> usize {
        self.0.count()
    }

    fn max(&self) -> usize {
        self.0.config().sessions_max
    }
}

/// The WebSocket of the worker.
enum WorkerSocket {
    Closed,
    Connecting(Pin<Box<dyn Future<Output = Result<Box<ClientSocket>, SocketError>> + Send>>),
    Open(Box<ClientSocket>),
}

/// An event of the WebSocket.
enum WorkerEvent {
    Connected(Result<Box<ClientSocket>, SocketError>),
    Frame(Option<Result<Frame, Error>>),
}

impl WorkerSocket {
    /// Waits for the next event. Cancel safe.
    async fn event(&mut self) -> WorkerEvent {
        match self {
            WorkerSocket::Closed => pending().await,
            WorkerSocket::Connecting(connecting) => WorkerEvent::Connected(connecting.as_mut().await),
            WorkerSocket::Open(socket) => WorkerEvent::Frame(socket.next().await),
        }
    }
}

/// The task of a worker.
struct WorkerDriver {
    worker: AgentWorker<RunnerSlots>,
    socket: WorkerSocket,
    sessions: Sessions,
    common: Arc<ConnectionContext>,
    log_client: LogClient,
    /// The name by which rooms ask this worker for a bot.
    agent_name: String,
    /// The orders of each live session, by job.
    jobs: HashMap<String, mpsc::Sender<JobOrder>>,
    news: mpsc::Sender<SessionJobEvent>,
    report: Arc<Mutex<WorkerReport>>,
    cpu: Arc<CpuReadings>,
    /// The measurement of processor time that has not ended.
    measuring: Option<JoinHandle<CpuReading>>,
}

impl WorkerDriver {
    async fn run(mut self, mut orders: mpsc::Receiver<WorkerOrder>, mut news: mpsc::Receiver<SessionJobEvent>) {
        let sessions = self.sessions.clone();
        loop {
            let freed = sessions.next_end();
            self.reap(&mut news).await;
            self.worker.set_clock(unix_time(), tasks::now());
            self.worker.handle_places(tasks::now());
            self.perform_all().await;
            let until = self.worker.poll_timeout();
            tokio::select! {
                event = self.socket.event() => self.handle_event(event),
                CpuReading { at, total } = measured(&mut self.measuring) => self.worker.handle_cpu(total, at),
                Some(news) = news.recv() => self.handle_news(news).await,
                order = orders.recv() => match order {
                    Some(WorkerOrder::Drain) => self.worker.handle_drain(tasks::now()),
                    Some(WorkerOrder::Stop(done)) => {
                        // The last session may have ended this moment.
                        self.reap(&mut news).await;
                        self.worker.handle_stop();
                        self.perform_all().await;
                        // An error means that the runner no longer waits.
                        let _ = done.send(());
                        return;
                    }
                    // The runner is gone.
                    None => return,
                },
                // The next turn looks at the places.
                () = freed => {}
                () = sleep(until) => {
                    self.worker.set_clock(unix_time(), tasks::now());
                    self.worker.handle_timeout(tasks::now());
                }
            }
        }
    }

    fn handle_event(&mut self, event: WorkerEvent) {
        let now = tasks::now();
        match event {
            WorkerEvent::Connected(Ok(socket)) => {
                self.socket = WorkerSocket::Open(socket);
                self.worker.handle_open(now);
            }
            WorkerEvent::Connected(Err(error)) => {
                self.socket = WorkerSocket::Closed;
                match error {
                    SocketError::Refused { status, .. } => self.worker.handle_refused(status, now),
                    error => self.worker.handle_unreachable(&error.to_string(), now),
                }
            }
            WorkerEvent::Frame(Some(Ok(Frame::Binary(bytes)))) => self.worker.handle_message(bytes, now),
            WorkerEvent::Frame(Some(Ok(_))) => self.worker.handle_frame(now),
            WorkerEvent::Frame(None) => self.handle_closed(now),
            WorkerEvent::Frame(Some(Err(error))) => {
                log::debug!("worker: {error}");
                self.handle_closed(now);
            }
        }
    }

    fn handle_closed(&mut self, now: Instant) {
        self.socket = WorkerSocket::Closed;
        self.worker.handle_socket_closed(now);
    }

    async fn handle_news(&mut self, news: SessionJobEvent) {
        let SessionJobEvent {
            job_id, news, reported, ..
        } = news;
        match news {
            JobEvent::Joined => self.worker.handle_joined(&job_id, tasks::now()),
            JobEvent::Ended(outcome) => self.worker.handle_job_end(&job_id, outcome, tasks::now()),
            JobEvent::Terminated { was_live } => self.worker.handle_terminated(was_live),
        }
        if let Some(reported) = reported {
            self.perform_all().await;
            // An error means that the session no longer waits.
            let _ = reported.send(());
        }
    }

    /// Reports the jobs whose sessions have ended. What a session told before its end comes first.
    async fn reap(&mut self, news: &mut mpsc::Receiver<SessionJobEvent>) {
        let gone: Vec<_> = self.jobs.extract_if(|_, orders| orders.is_closed()).collect();
        while let Ok(news) = news.try_recv() {
            self.handle_news(news).await;
        }
        for (id, _) in gone {
            self.worker.handle_session_gone(&id, tasks::now());
        }
    }

    async fn perform_all(&mut self) {
        // Before anybody else hears of it, and once more after what the commands change.
        lock(&self.report).clone_from(self.worker.report());
        while let Some(command) = self.worker.poll_command() {
            self.perform(command).await;
        }
        lock(&self.report).clone_from(self.worker.report());
    }

    async fn perform(&mut self, command: WorkerCommand<SessionPermit>) {
        match command {
            WorkerCommand::Dial(request) => self.socket = WorkerSocket::Connecting(Box::pin(open(request, LIMITS))),
            WorkerCommand::Send(bytes) => self.send(Frame::Binary(Bytes::from(bytes))).await,
            WorkerCommand::CloseSocket => {
                let code = CloseCode::Normal;
                self.send(Frame::Close(Some(CloseFrame {
                    code,
                    reason: "".into(),
                })))
                .await;
                self.socket = WorkerSocket::Closed;
            }
            WorkerCommand::MeasureCpu => {
                // It may read a file per process of the machine.
                let cpu = self.cpu.clone();
                self.measuring
                    .get_or_insert_with(|| spawn_blocking(move || cpu.read(tasks::now())));
            }
            WorkerCommand::Start(job) => self.start(*job),
            WorkerCommand::Terminate(id) => {
                if let Some(orders) = self.jobs.get(&id) {
                    // A full queue has a termination already.
                    let _ = orders.try_send(JobOrder::Terminate);
                }
            }
        }
    }

    async fn send(&mut self, frame: Frame) {
        let WorkerSocket::Open(socket) = &mut self.socket else {
            return;
        };
        match timeout(WORKER_SEND_WITHIN, socket.send(frame)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                log::debug!("worker: {error}");
                self.handle_closed(tasks::now());
            }
            Err(_) => {
                log::debug!("worker: the server does not read");
                self.handle_closed(tasks::now());
            }
        }
    }

    /// Starts the session of a job.
    fn start(&mut self, assigned: AssignedJob<SessionPermit>) {
        let AssignedJob {
            job,
            room_name,
            session_id,
            bot,
            urls,
            token,
            rules,
            place,
        } = assigned;
        let body = job.body();
        let caller = job.participant.as_ref().map(|who| who.as_participant());
        let choice = BotChoice {
            name: bot.as_deref(),
            endpoint: None,
            body: Some(&body),
            agent: Some(&self.agent_name),
            dialled: caller.as_ref().map_or([None; 2], Participant::dialled),
        };
        // The worker has refused a job of an unknown bot.
        let bots = self.sessions.bots();
        let mut bot = bots.choose(choice).unwrap_or_else(|UnknownBot| bots.default());
        let telephone = caller.as_ref().filter(|caller| caller.is_telephone);
        let session_id = session_id
            .filter(|id| !self.sessions.is_live(id))
            .map_or_else(|| registry::session_id(random()), SessionId::from);
        let allowed = telephone.map_or(Ok(()), |caller| bot.check_caller(caller.number()));
        if let Err(refused) = allowed.and_then(|()| bot.take_place()) {
            let numbers = telephone.map(|caller| (caller.number(), caller.dialled()[0]));
            let call = CallAttempt {
                id: session_id,
                transport: Some(Transport::Mediaroom),
                source: place.requester().source,
                call_data: &numbers.map_or(Value::Null, |(from, to)| json!({"from": from, "to": to})),
                trace: Traceparent::of_body(&body),
            };
            self.sessions
                .note_refused(call, bot.row().name().map(|name| &**name), &refused);
            log::warn!("job {} gets no session: {refused}", job.id);
            let outcome = JobOutcome::Failed(refused.to_string());
            self.worker.handle_job_end(&job.id, outcome, tasks::now());
            return self.worker.handle_session_gone(&job.id, tasks::now());
        }
        let (link, orders) = link(job.id.clone(), self.news.clone());
        self.jobs.insert(job.id.clone(), orders);
        let start = SessionStart {
            session_id,
            body,
            bot,
            log_client: self.log_client.clone(),
            lease: None,
        };
        let mut urls = urls.iter().map(|url| socket_base(url));
        let mediaroom = &self.sessions.config().mediaroom;
        let credentials = LiveKitCredentials::new(mediaroom).ok();
        let room = RoomEntry {
            agent_name: self.agent_name.clone(),
            service: credentials.map(|credentials| credentials.service(&room_name)),
            room_name,
            url: urls.next().unwrap_or_default(),
            other_urls: urls.collect(),
            token,
            job: Some((Arc::new(job), rules, link)),
        };
        begin_in(self.sessions.clone(), place, self.common.clone(), start, room);
    }
}

/// Waits for the end of a measurement; for ever without one. Cancel safe.
async fn measured(measuring: &mut Option<JoinHandle<CpuReading>>) -> CpuReading {
    let Some(task) = measuring else {
        return pending().await;
    };
    let total = task.await;
    *measuring = None;
    match total {
        Ok(reading) => reading,
        // A panic, or the end of the runtime.
        Err(_) => pending().await,
    }
}

async fn sleep(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until.into()).await,
        None => pending().await,
    }
}
