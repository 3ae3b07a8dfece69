//! The server over real TCP, on free ports, with bots that the tests control.
//!
//! No test waits for time to pass: a timeout that is to expire is set to zero. `GUARD` only turns a
//! hang into a failure.

mod hostile;
mod requests;
mod rooms;
mod sockets;
mod uploads;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::bot::{self, Audio, BotError, Event, RunnerArguments, Shutdown, ShutdownTrigger};
use crate::config::{Config, Host};
use crate::io::server::{ConnPhase, bind, serve};
use crate::io::services::Services;
use crate::io::sessions::Sessions;
use crate::io::tasks::{Slot, SlotPool};
use crate::limits;
use edge_runner_http::common::ConnLimits;

const GUARD: Duration = Duration::from_secs(60);

/// An offer of a browser.
const OFFER: &str = include_str!("../../../tests/data/sdp/chrome.offer.sdp");

/// What a bot was given. The bot runs until this is dropped.
struct StartedBot {
    session_id: String,
    body: Value,
    token: Option<String>,
    /// Messages of a client on a WebSocket.
    said: UnboundedReceiver<String>,
    _end: oneshot::Sender<()>,
}

impl StartedBot {
    fn given(&self) -> (String, Value) {
        (self.session_id.clone(), self.body.clone())
    }
}

/// Reports its arguments, and runs until the test drops them.
async fn tell(mut args: RunnerArguments, begun: UnboundedSender<StartedBot>) -> Result<(), BotError> {
    let ((end, ended), (says, said)) = (oneshot::channel(), unbounded_channel());
    let started = StartedBot {
        session_id: args.session_id.to_string(),
        body: args.body.clone(),
        token: args.token().ok().map(str::to_owned),
        said,
        _end: end,
    };
    let _ = begun.send(started);
    if args.websocket().is_err() {
        let _ = ended.await;
        return Ok(());
    }
    let mut media = args.media(Audio::at(16_000))?;
    let hears = async {
        while let Some(event) = media.recv().await {
            if let Event::Message(text) = event {
                let _ = says.send(text);
            }
        }
    };
    tokio::select! {
        _ = ended => {}
        () = hears => {}
    }
    Ok(())
}

fn config() -> Config {
    crate::proto::config! {
        host: Host::Address(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        port: 0,
        rtc_port: Some(0),
        host_names: vec!["h".into(), "a".into()],
        ..Config::default()
    }
}

/// A running server, whose bots report their arguments.
struct Runner {
    address: SocketAddr,
    sessions: Sessions,
    live: SlotPool,
    begun: tokio::sync::Mutex<UnboundedReceiver<StartedBot>>,
    tls: Option<Arc<ServerTls>>,
    stop: ShutdownTrigger,
    served: JoinHandle<()>,
}

impl Runner {
    async fn start() -> Runner {
        Runner::with(config(), ConnLimits::default()).await
    }

    async fn with(config: Config, conn_limits: ConnLimits) -> Runner {
        let listeners = bind(config.host, config.port).await.expect("a free port");
        let address = listeners.addresses()[0];
        let tls = ServerTls::open(&config.tls_settings()).expect("a certificate");
        let (begin, begun) = unbounded_channel();
        let bot = bot::erase(move |args| tell(args, begin.clone()));
        let (stop, shutdown) = Shutdown::channel();
        let live = SlotPool::new(config.sessions_max);
        // Only the server stops: requests in progress are answered as before.
        let sessions = Sessions::new(Arc::new(config), bot, live.clone(), Shutdown::default());
        let services = Services::default();
        let mut app = RunnerApp::new(sessions.clone(), tls.clone(), custom_routes::CustomRoutes::default());
        modules::run(&mut app, &listeners, &services).expect("a free port");
        app.conn_limits = conn_limits;
        let served = tokio::spawn(serve(listeners, Arc::new(app), shutdown));
        Runner {
            address,
            sessions,
            live,
            begun: begun.into(),
            tls,
            stop,
            served,
        }
    }

    /// Waits for the next bot.
    async fn begun(&self) -> StartedBot {
        let begun = async { self.begun.lock().await.recv().await };
        let begun = tokio::time::timeout(GUARD, begun).await.expect("a bot begins");
        begun.expect("the runner holds a sender")
    }

    /// Lets a bot return, and waits for the end of its session.
    async fn end(&self, begun: StartedBot) {
        let live = self.live.count();
        drop(begun);
        let ended = async {
            while self.live.count() == live {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(GUARD, ended).await.expect("the session ends");
    }

    /// Takes every slot until the result is dropped.
    fn fill(&self) -> Vec<Slot> {
        std::iter::from_fn(|| self.live.try_acquire()).collect()
    }

    async fn client(&self) -> Client {
        let stream = TcpStream::connect(self.address).await.expect("the server listens");
        Client {
            stream,
            read: Vec::new(),
        }
    }

    /// Sends one request on its own connection; `head` is the request line and further header
    /// lines.
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

/// A connection of a client that writes raw bytes.
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

    /// Reads one response, which must have a length.
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

    /// Reads the head of a response.
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

    /// Returns the status and the `detail` of an error.
    fn refusal(&self) -> (u16, String) {
        (
            self.status,
            self.json()["detail"].as_str().expect("a detail").to_owned(),
        )
    }
}

/// At the cap a new connection evicts the one idle for longest; one being answered keeps its
/// permit.
#[tokio::test]
async fn a_connection_above_the_cap_evicts_an_idle_one() {
    // Connections of a proxy have no share.
    let localhost = crate::proto::config! {
        host: Host::Localhost,
        proxy: Some("bots.example.net".into()),
        ..config()
    };
    let runner = Runner::with(localhost, ConnLimits::default()).await;
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

/// Connections without a request do not block the requests of others.
#[tokio::test]
async fn silent_connections_do_not_block_others() {
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

/// A stop closes idle connections, refuses new ones, and does not wait for an incomplete request.
#[tokio::test]
async fn a_stop_closes_every_connection() {
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
