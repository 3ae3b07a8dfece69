//! The server over real TCP, on ports that were free, with an engine that the test plays.
//!
//! Nothing here waits for time to pass: a limit that is to strike is set to nothing, and every exchange has an end of its
//! own. `GUARD` only turns a hang into a failure.

mod hostile;
mod requests;
mod rooms;
mod sockets;
mod uploads;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::floor::Times;
use super::*;
use crate::bot::Shutdown;
use crate::bot::ShutdownTrigger;
use crate::config::Config;
use crate::config::Host;
use crate::io::http::{App, Engine, Refusal};
use crate::io::mediaroom;
use crate::io::room::{Begin, Room};
use crate::io::server::{Phase, bind, serve};
use crate::io::sessions::Start;
use crate::io::socket::{Endpoint, Upgrade};
use crate::io::tls::Tls;
use crate::limits;
use crate::proto::admission::{Kind, Requester};
use crate::proto::offer::{Answer, Candidates, Offer, OfferRefusal};
use crate::proto::whip::{Asked, Done, Opening, Refusal as WhipRefusal};

const GUARD: Duration = Duration::from_secs(30);

/// An engine that takes every offer, but for SDP that names a refusal, and keeps what it was given.
#[derive(Default)]
struct Fake {
    live: Mutex<Vec<Start>>,
    offers: Mutex<Vec<Offer>>,
    candidates: Mutex<Vec<Candidates>>,
    /// Where the last session in a media room began.
    room: Mutex<Option<mediaroom::Room>>,
    closed: AtomicBool,
    full: AtomicBool,
    /// How often a place for a socket was asked for.
    asked: AtomicUsize,
}

impl Fake {
    /// Ends the session of that name, as a bot that returns does.
    fn end(&self, session_id: &str) {
        self.live
            .lock()
            .expect("whole")
            .retain(|start| &*start.session_id != session_id);
    }

    /// The token of the bot that began last in a media room.
    fn bot_token(&self) -> String {
        let room = self.room.lock().expect("whole");
        room.as_ref().expect("a media room").token.expose().to_owned()
    }

    /// The name and body of the newest session.
    fn newest(&self) -> (String, Value) {
        let live = self.live.lock().expect("whole");
        let start = live.last().expect("a session is live");
        (start.session_id.to_string(), start.body.clone())
    }
}

impl Engine for Arc<Fake> {
    async fn framed(&self, _stream: TcpStream, _peer: SocketAddr) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn offer(
        &self,
        offer: Offer,
        _: Requester,
        start: impl FnOnce() -> Start + Send,
    ) -> Result<Answer, OfferRefusal> {
        let (sdp, known) = (offer.sdp.clone(), offer.pc_id.clone());
        self.offers.lock().expect("whole").push(offer);
        match sdp.as_str() {
            "bad" => return Err(OfferRefusal::BadSdp("no m-line".into())),
            "unknown" => return Err(OfferRefusal::UnknownConnection),
            "full" => return Err(OfferRefusal::Full),
            "stopping" => return Err(OfferRefusal::Stopping),
            "no candidate" => return Err(OfferRefusal::NoCandidate("192.0.2.1 is none of 192.0.2.2".into())),
            "too long" => return Err(OfferRefusal::AnswerTooLong("4097 of 4096 bytes".into())),
            _ => {}
        }
        if let Some(pc_id) = known {
            return Ok(Answer { sdp, pc_id });
        }
        let start = start();
        let pc_id = format!("pc of {}", start.session_id);
        self.live.lock().expect("whole").push(start);
        Ok(Answer { sdp, pc_id })
    }

    async fn open(
        &self,
        opening: Opening,
        _: Requester,
        start: impl FnOnce() -> Start + Send,
    ) -> Result<Answer, OfferRefusal> {
        let start = start();
        let pc_id = start.session_id.replace('-', "");
        self.live.lock().expect("whole").push(start);
        let sdp = opening.sdp;
        Ok(Answer { sdp, pc_id })
    }

    async fn resource(&self, _: &str, _: Asked) -> Result<Done, WhipRefusal> {
        Err(OfferRefusal::UnknownConnection.into())
    }

    async fn candidates(&self, candidates: Candidates) -> Result<(), OfferRefusal> {
        if candidates.pc_id == "unknown" {
            return Err(OfferRefusal::UnknownConnection);
        }
        self.candidates.lock().expect("whole").push(candidates);
        Ok(())
    }

    fn sessions(&self) -> usize {
        self.live.lock().expect("whole").len()
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    fn room(&self, _: Requester, _: Kind) -> Result<Begin, Refusal> {
        if self.full.load(Ordering::Relaxed) {
            return Err(Refusal::Offer(OfferRefusal::Full));
        }
        let fake = self.clone();
        Ok(Box::new(move |start, room| {
            if let Room::Media(room) = room {
                *fake.room.lock().expect("whole") = Some(room);
            }
            fake.live.lock().expect("whole").push(start)
        }))
    }

    /// A socket answers with the name of its session, and closes.
    fn socket(&self, _: Endpoint, _: Requester, start: impl FnOnce() -> Start) -> Result<Upgrade, Refusal> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.full.load(Ordering::Relaxed) {
            return Err(Refusal::Offer(OfferRefusal::Full));
        }
        let start = start();
        let name = start.session_id.clone();
        self.live.lock().expect("whole").push(start);
        Ok(Box::new(move |mut stream, read| {
            tokio::spawn(async move {
                stream.write_all(name.as_bytes()).await.expect("the client reads");
                stream.write_all(&read).await.expect("the client reads");
            });
        }))
    }
}

fn config() -> Config {
    Config {
        host: Host::Address(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        port: 0,
        host_names: vec!["h".into(), "a".into()],
        ..Config::default()
    }
}

/// A running server.
struct Runner {
    address: SocketAddr,
    engine: Arc<Fake>,
    tls: Option<Arc<Tls>>,
    stop: ShutdownTrigger,
    served: JoinHandle<()>,
}

impl Runner {
    async fn start() -> Runner {
        Runner::with(config(), Times::default()).await
    }

    async fn with(config: Config, times: Times) -> Runner {
        let engine = Arc::new(Fake::default());
        let listeners = bind(config.host, config.port).await.expect("a free port");
        let address = listeners.addresses()[0];
        let tls = Tls::open(&config.tls_settings()).expect("a certificate");
        let mut app = App::new(Arc::new(config), engine.clone());
        app.times = times;
        app.tls = tls.clone();
        let (stop, shutdown) = Shutdown::channel();
        let served = tokio::spawn(serve(listeners, Arc::new(app), shutdown));
        Runner {
            address,
            engine,
            tls,
            stop,
            served,
        }
    }

    async fn client(&self) -> Client {
        let stream = TcpStream::connect(self.address).await.expect("the server listens");
        Client {
            stream,
            read: Vec::new(),
        }
    }

    /// Sends one request on a connection of its own; `head` is the request line and further header lines.
    async fn ask(&self, head: &str, body: &str) -> Reply {
        let mut client = self.client().await;
        client.ask(head, body).await
    }

    async fn post(&self, path: &str, body: Value) -> Reply {
        self.ask(
            &format!("POST {path} HTTP/1.1\r\nContent-Type: application/json"),
            &body.to_string(),
        )
        .await
    }
}

/// One connection of a client that speaks bytes.
struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Client {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.expect("the server reads");
    }

    async fn ask(&mut self, head: &str, body: &str) -> Reply {
        let length = if body.is_empty() {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        self.send(format!("{head}\r\nHost: localhost\r\n{length}\r\n{body}"))
            .await;
        if head.starts_with("HEAD ") {
            self.head().await
        } else {
            self.reply().await
        }
    }

    /// Reads one reply, which must say how long it is.
    async fn reply(&mut self) -> Reply {
        let mut reply = self.head().await;
        let bodyless = reply.status == 204 || reply.status == 304;
        let length = match reply.header("content-length") {
            Some(length) => length.parse().expect("a number"),
            None if bodyless => 0,
            None => panic!("no length: {reply:?}"),
        };
        assert_eq!(reply.header("transfer-encoding"), None);
        while self.read.len() < length {
            assert!(self.more().await, "the body ended early");
        }
        reply.body = self.read.drain(..length).collect();
        reply
    }

    /// Reads one reply's head.
    async fn head(&mut self) -> Reply {
        loop {
            if let Some(end) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                let head: Vec<u8> = self.read.drain(..end + 4).collect();
                return Reply::parse(std::str::from_utf8(&head).expect("a head is text"));
            }
            assert!(self.more().await, "the head ended early");
        }
    }

    /// Waits for the server to close the connection; returns what it sent before.
    async fn rest(mut self) -> Vec<u8> {
        while self.more().await {}
        self.read
    }

    async fn more(&mut self) -> bool {
        let read = tokio::time::timeout(GUARD, self.stream.read_buf(&mut self.read))
            .await
            .expect("no answer");
        // A reset is an end too.
        read.is_ok_and(|bytes| bytes > 0)
    }
}

#[derive(Debug)]
struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Reply {
    fn parse(head: &str) -> Reply {
        let mut lines = head.trim_end().split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1))
            .expect("a status line");
        let headers = lines.map(|line| line.split_once(": ").expect("a header line"));
        Reply {
            status: status.parse().expect("a number"),
            headers: headers
                .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
                .collect(),
            body: Vec::new(),
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut values = self
            .headers
            .iter()
            .filter(|(known, _)| known == name)
            .map(|(_, value)| value.as_str());
        let value = values.next();
        assert_eq!(values.next(), None, "{name} stands twice");
        value
    }

    fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"));
        serde_json::from_slice(&self.body).expect("a body in JSON")
    }

    /// The status and the `detail` of a refusal.
    fn refusal(&self) -> (u16, String) {
        (
            self.status,
            self.json()["detail"].as_str().expect("a detail").to_owned(),
        )
    }
}

/// At the cap, which all addresses share, the next connection takes the place of the one that was idle for longest, and one
/// that is being answered keeps its own.
#[tokio::test]
async fn a_connection_beyond_the_cap_takes_the_place_of_an_idle_one() {
    // The connections of a proxy are those of many, and have no share.
    let localhost = Config {
        host: Host::Localhost,
        proxy: Some("bots.example.net".into()),
        ..config()
    };
    let runner = Runner::with(localhost, Times::default()).await;
    let mut busy = runner.client().await;
    busy.send("POST /start HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{")
        .await;
    let mut clients = Vec::new();
    for _ in 1..limits::HTTP_CONNECTIONS_MAX {
        let mut client = runner.client().await;
        assert_eq!(client.ask("GET /status HTTP/1.1", "").await.status, 200);
        clients.push(client);
    }
    for client in &mut clients {
        assert_eq!(client.ask("GET /status HTTP/1.1", "").await.status, 200, "all are in");
    }
    assert_eq!(runner.ask("GET /status HTTP/1.1", "").await.status, 200);
    assert_eq!(clients.remove(0).rest().await, b"");
    for client in &mut clients {
        assert_eq!(client.ask("GET /status HTTP/1.1", "").await.status, 200);
    }
    busy.send("}").await;
    assert_eq!(busy.reply().await.status, 200);
}

/// However many connections are opened that never send a request, each request of others is answered.
#[tokio::test]
async fn silent_connections_keep_nobody_out() {
    let runner = Runner::start().await;
    let mut silent = Vec::new();
    for half in [&b""[..], b"POST /start HT", b"\x16\x03\x01\x02"]
        .iter()
        .cycle()
        .take(2 * limits::HTTP_CONNECTIONS_MAX)
    {
        let mut client = runner.client().await;
        client.send(half).await;
        silent.push(client);
        if silent.len().is_multiple_of(16) {
            assert_eq!(runner.post("/start", json!({})).await.status, 200);
        }
    }
    assert_eq!(silent.swap_remove(0).rest().await, b"", "the oldest had to go");
}

/// A stop closes idle connections, refuses new ones, and does not wait for a client that never ends its request.
#[tokio::test]
async fn a_stop_ends_every_connection() {
    let runner = Runner::start().await;
    let mut idle = runner.client().await;
    assert_eq!(idle.ask("GET /status HTTP/1.1", "").await.status, 200);
    let mut busy = runner.client().await;
    busy.send("POST /start HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{")
        .await;
    assert_eq!(
        runner.ask("GET /status HTTP/1.1", "").await.status,
        200,
        "the busy one was accepted before this one"
    );
    runner.stop.set();
    assert_eq!(idle.rest().await, b"");
    busy.send("}").await;
    assert_eq!(busy.reply().await.status, 200, "a request in progress is answered");
    assert_eq!(busy.rest().await, b"");
    tokio::time::timeout(GUARD, runner.served)
        .await
        .expect("the server ends")
        .expect("without a panic");
    assert!(TcpStream::connect(runner.address).await.is_err());
}
