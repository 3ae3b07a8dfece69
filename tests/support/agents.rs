//! [`AgentServer`]: the part of a LiveKit server that assigns rooms to workers, scripted by a test.
//!
//! In: the messages that a test sends, and how the API answers. Out: the workers that connect,
//! their messages in order, and the requests to the API. It decides nothing by itself, so a test
//! can make it lie. It has no rooms: the assignments of a test name the server in
//! `support::livekit`. The tokens of workers are verified.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use data_encoding::{BASE64, BASE64URL_NOPAD};
use edge_runner_proto::livekit::wire::{ParticipantInfo, RoomInfo};
use edge_runner_proto::livekit::worker::wire::{
    AvailabilityAnswer, JobAssignment, JobInfo, JobOffer, JobTermination, RegisterWorker, UpdateJob, UpdateWorker,
    WorkerRegistered, WorkerRequest, WorkerRequestKind, WorkerResponse, WorkerResponseKind, WorkerServerInfo,
};
use futures_util::{SinkExt as _, StreamExt as _};
use prost::Message as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::livekit::Options;
use super::runner::{PATIENCE, TestRunner};
use super::socket::runtime;

/// How the API answers, and what it was asked.
#[derive(Default)]
pub struct Api {
    /// Whether the dispatch of a room has a job, from this list on.
    pub taken_after: Option<usize>,
    /// The end of the path and the body of each request.
    pub requests: Vec<(String, Value)>,
    /// Whether no room can be made.
    pub is_broken: bool,
    /// The status with which workers are refused.
    pub refuses: Option<u16>,
    /// Whether requests wait for their answers.
    pub holds: bool,
    /// The participants of every room.
    pub participants: Vec<Value>,
}

/// A server on a free loopback port.
pub struct AgentServer {
    pub addr: SocketAddr,
    pub api: Arc<Mutex<Api>>,
    workers: Receiver<Worker>,
    listener: AbortHandle,
}

impl AgentServer {
    pub fn start() -> Self {
        let listener = runtime()
            .block_on(TcpListener::bind("127.0.0.1:0"))
            .expect("a free port");
        let addr = listener.local_addr().expect("it is bound");
        let (accepted, workers) = channel();
        let api: Arc<Mutex<Api>> = Arc::default();
        let shared = api.clone();
        let task = runtime().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                runtime().spawn(serve(stream, shared.clone(), accepted.clone()));
            }
        });
        Self {
            addr,
            api,
            workers,
            listener: task.abort_handle(),
        }
    }

    /// Starts a runner that registers here.
    pub fn runner(&self, args: &[&str]) -> TestRunner {
        self.runner_among(&[], args)
    }

    /// Starts one in a folder with these files.
    pub fn runner_among(&self, files: &[(&str, &str)], args: &[&str]) -> TestRunner {
        let options = Options::default();
        let url = format!("ws://{}", self.addr);
        let variables = [
            ("MEDIAROOM_URL", &*url),
            ("MEDIAROOM_API_KEY", &options.key),
            ("MEDIAROOM_API_SECRET", &options.secret),
        ];
        TestRunner::start_among(files, &[&["--register"], args].concat(), &variables)
    }

    /// Waits for the next worker, before its registration.
    pub fn accept(&self) -> Worker {
        self.workers.recv_timeout(PATIENCE).expect("a worker connects")
    }

    /// Waits for the next worker and registers it.
    pub fn register(&self) -> Worker {
        let mut worker = self.accept();
        worker.register();
        worker
    }

    /// Returns the requests to the API so far.
    pub fn requests(&self) -> Vec<(String, Value)> {
        self.api.lock().expect("no holder panics").requests.clone()
    }
}

impl Drop for AgentServer {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn serve(mut stream: TcpStream, api: Arc<Mutex<Api>>, accepted: Sender<Worker>) {
    let mut read = Vec::new();
    let end = loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if !matches!(stream.read_buf(&mut read).await, Ok(1..)) {
            return;
        }
    };
    let head = String::from_utf8_lossy(&read[..end]).into_owned();
    let header = |name: &str| {
        let mut rows = head.lines().filter_map(|row| row.split_once(':'));
        let found = rows.find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim().to_owned())
    };
    let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let claims = header("authorization").and_then(|bearer| claims(&bearer));
    let mut body = read.split_off(end);
    let (status, reply) = match (header("sec-websocket-key"), claims) {
        (_, None) => (401, "invalid token: eyJhbGciOiJIUzI1NiJ9".to_owned()),
        (Some(key), Some(claims)) if target == "/agent" => {
            let refuses = api.lock().expect("no holder panics").refuses;
            if refuses.is_none() && claims["video"]["agent"] == true {
                return upgrade(stream, body, &key, accepted).await;
            }
            (refuses.unwrap_or(401), "invalid token: eyJhbGciOiJIUzI1NiJ9".to_owned())
        }
        // A node without rooms, to which a session may turn when its own does not answer.
        (Some(_), Some(_)) => (503, "no rooms".to_owned()),
        (None, Some(_)) => {
            let length = header("content-length")
                .and_then(|length| length.parse().ok())
                .unwrap_or(0);
            while body.len() < length {
                if !matches!(stream.read_buf(&mut body).await, Ok(1..)) {
                    return;
                }
            }
            while api.lock().expect("no holder panics").holds {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let method = target.rsplit('/').next().unwrap_or_default().to_owned();
            let asked = serde_json::from_slice(&body).unwrap_or_default();
            answer(&mut api.lock().expect("no holder panics"), method, asked)
        }
    };
    let text = format!(
        "HTTP/1.1 {status} .\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{reply}",
        reply.len()
    );
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// Verifies a token and returns its claims.
fn claims(bearer: &str) -> Option<Value> {
    use hmac::{Hmac, KeyInit, Mac};
    let token = bearer.strip_prefix("Bearer ")?;
    let (signed, tag) = token.rsplit_once('.')?;
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(Options::default().secret.as_bytes()).ok()?;
    mac.update(signed.as_bytes());
    mac.verify_slice(&BASE64URL_NOPAD.decode(tag.as_bytes()).ok()?).ok()?;
    let claims = BASE64URL_NOPAD.decode(signed.split('.').nth(1)?.as_bytes()).ok()?;
    serde_json::from_slice(&claims).ok()
}

fn answer(api: &mut Api, method: String, asked: Value) -> (u16, String) {
    api.requests.push((method.clone(), asked));
    let reply = match &*method {
        "ListDispatch" => {
            let lists = api
                .requests
                .iter()
                .filter(|(method, _)| method == "ListDispatch")
                .count();
            let is_taken = api.taken_after.is_some_and(|after| lists > after);
            let jobs = if is_taken { json!([{"id": "AJ_1"}]) } else { json!([]) };
            let created = api.requests.iter().rev().find(|(method, _)| method == "CreateRoom");
            let agent_name = created.and_then(|(_, room)| room["agents"][0]["agentName"].as_str());
            let agent_name = agent_name.unwrap_or("bot");
            json!({"agent_dispatches": [{"id": "AD_1", "agent_name": agent_name, "state": {"jobs": jobs}}]})
        }
        "CreateRoom" if api.is_broken => return (500, String::new()),
        "CreateDispatch" => json!({"id": "AD_2"}),
        "ListParticipants" => json!({"participants": api.participants}),
        _ => json!({}),
    };
    (200, reply.to_string())
}

async fn upgrade(mut stream: TcpStream, read: Vec<u8>, key: &str, accepted: Sender<Worker>) {
    let accept = derive_accept_key(key.as_bytes());
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    if stream.write_all(head.as_bytes()).await.is_err() {
        return;
    }
    let mut socket = WebSocketStream::from_partially_read(stream, read, Role::Server, None).await;
    let (outbox, mut letters) = unbounded_channel::<Message>();
    let (received, inbox) = channel();
    let task = runtime().spawn(async move {
        loop {
            tokio::select! {
                letter = letters.recv() => match letter {
                    Some(message) => drop(socket.send(message).await),
                    None => return,
                },
                message = socket.next() => match message {
                    Some(Ok(Message::Binary(bytes))) => {
                        let request = WorkerRequest::decode(bytes).expect("a message of a worker");
                        if received.send(Ok(request.message.expect("a kind"))).is_err() {
                            return;
                        }
                    }
                    Some(Ok(Message::Close(close))) => {
                        let _ = received.send(Err(close.map(|close| close.code.into())));
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                },
            }
        }
    });
    let _ = accepted.send(Worker {
        outbox,
        inbox,
        unread: VecDeque::new(),
        task: task.abort_handle(),
    });
}

/// A connected worker. Dropping it closes the TCP connection without a close frame.
pub struct Worker {
    outbox: UnboundedSender<Message>,
    inbox: Receiver<Result<WorkerRequestKind, Option<u16>>>,
    /// Messages that were passed over.
    unread: VecDeque<WorkerRequestKind>,
    task: AbortHandle,
}

impl Worker {
    /// Waits for the registration and accepts it. Returns it.
    pub fn register(&mut self) -> RegisterWorker {
        let register = self.expect("a registration", |kind| match kind {
            WorkerRequestKind::Register(register) => Some(register.clone()),
            _ => None,
        });
        self.send(WorkerResponseKind::Register(WorkerRegistered {
            worker_id: "AW_test".into(),
            server_info: Some(WorkerServerInfo {
                version: "1.13.5".into(),
                region: "here".into(),
                node_id: "ND_test".into(),
            }),
        }));
        self.status(|_| true);
        register
    }

    pub fn send(&self, kind: WorkerResponseKind) {
        self.raw(WorkerResponse { message: Some(kind) }.encode_to_vec());
    }

    /// Sends bytes, whatever they are.
    pub fn raw(&self, bytes: Vec<u8>) {
        let _ = self.outbox.send(Message::Binary(bytes.into()));
    }

    /// Offers a job and returns the answer.
    pub fn offer(&mut self, job: JobInfo) -> AvailabilityAnswer {
        let id = job.id.clone();
        self.send(WorkerResponseKind::Availability(Box::new(JobOffer { job: Some(job) })));
        self.answer(&id)
    }

    /// Waits for the answer to an offer.
    pub fn answer(&mut self, id: &str) -> AvailabilityAnswer {
        self.expect("an answer", |kind| match kind {
            WorkerRequestKind::Availability(answer) if answer.job_id == id => Some(answer.clone()),
            _ => None,
        })
    }

    /// Assigns a job, whose room is at this URL.
    pub fn assign(&self, job: JobInfo, url: &str, token: &str) {
        self.send(WorkerResponseKind::Assignment(Box::new(JobAssignment {
            job: Some(job),
            url: Some(url.to_owned()),
            token: token.to_owned(),
        })));
    }

    pub fn terminate(&self, id: &str) {
        self.send(WorkerResponseKind::Termination(JobTermination {
            job_id: id.to_owned(),
        }));
    }

    /// Waits for a status of the worker.
    pub fn status(&mut self, is_it: impl Fn(&UpdateWorker) -> bool) -> UpdateWorker {
        self.expect("a status", |kind| match kind {
            WorkerRequestKind::UpdateWorker(update) if is_it(update) => Some(update.clone()),
            _ => None,
        })
    }

    /// Waits for a report about a job.
    pub fn job_report(&mut self, id: &str, status: i32) -> UpdateJob {
        self.expect("a report about the job", |kind| match kind {
            WorkerRequestKind::UpdateJob(update) if update.job_id == id && update.status == status => {
                Some(update.clone())
            }
            _ => None,
        })
    }

    /// Waits for a message. Others are kept for later calls.
    pub fn expect<T>(&mut self, wanted: &str, pick: impl Fn(&WorkerRequestKind) -> Option<T>) -> T {
        if let Some(at) = self.unread.iter().position(|kind| pick(kind).is_some()) {
            let kind = self.unread.remove(at).expect("it was just there");
            return pick(&kind).expect("it was just picked");
        }
        let limit = Instant::now() + PATIENCE;
        loop {
            let left = limit.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(left) {
                Ok(Ok(kind)) => match pick(&kind) {
                    Some(picked) => return picked,
                    None => self.unread.push_back(kind),
                },
                Ok(Err(close)) => panic!("the worker closed ({close:?}) before {wanted}"),
                Err(_) => panic!("waited in vain for {wanted}; there were {:?}", self.unread),
            }
        }
    }

    /// Waits for the close frame of the worker and returns its code.
    pub fn closed(&mut self) -> Option<u16> {
        loop {
            match self.inbox.recv_timeout(PATIENCE).expect("a close") {
                Ok(kind) => self.unread.push_back(kind),
                Err(code) => return code,
            }
        }
    }

    /// Returns the answers that were passed over.
    pub fn has_unread_answer(&self) -> bool {
        let is_answer = |kind: &WorkerRequestKind| matches!(kind, WorkerRequestKind::Availability(_));
        self.unread.iter().any(is_answer)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns the token with which a bot joins a room of the test's own server.
pub fn bot_token(identity: &str, room: &str) -> String {
    room_token(identity, "agent", room)
}

/// Returns the token of a caller.
pub fn caller_token(identity: &str, room: &str) -> String {
    room_token(identity, "standard", room)
}

fn room_token(identity: &str, kind: &str, room: &str) -> String {
    signed_token(json!({
        "sub": identity, "name": identity, "kind": kind,
        "video": {"roomJoin": true, "room": room, "agent": kind == "agent"},
    }))
}

/// Returns the token of a webhook with this body.
pub fn webhook_token(body: &str) -> String {
    use sha2::Digest as _;
    signed_token(json!({"sha256": BASE64.encode(&sha2::Sha256::digest(body.as_bytes()))}))
}

/// Adds key and time to claims, and signs them.
fn signed_token(mut claims: Value) -> String {
    use hmac::{Hmac, KeyInit, Mac};
    let options = Options::default();
    let now_s = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_secs();
    let part = |value: Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    claims["iss"] = json!(options.key);
    claims["exp"] = json!(now_s + 3600);
    let signed = format!("{}.{}", part(json!({"alg": "HS256", "typ": "JWT"})), part(claims));
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(options.secret.as_bytes()).expect("a key of any length");
    mac.update(signed.as_bytes());
    format!("{signed}.{}", BASE64URL_NOPAD.encode(&mac.finalize().into_bytes()))
}

/// Returns a job for a room, for the worker named `bot`.
pub fn job(id: &str, room: &str) -> JobInfo {
    JobInfo {
        id: id.to_owned(),
        room: Some(RoomInfo {
            name: room.to_owned(),
            ..RoomInfo::default()
        }),
        agent_name: "bot".into(),
        ..JobInfo::default()
    }
}

/// Returns a job of a participant.
pub fn participant_job(id: &str, room: &str, identity: &str) -> JobInfo {
    JobInfo {
        job_type: 2,
        participant: Some(ParticipantInfo {
            identity: identity.to_owned(),
            ..ParticipantInfo::default()
        }),
        ..job(id, room)
    }
}
