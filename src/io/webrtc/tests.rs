//! Sessions with their tasks, bots and a real UDP port, by tokio's clock.
//!
//! Without a caller the clock is paused and jumps from deadline to deadline. A caller connects over
//! loopback in real time, and the clock is paused once the call is up. `GUARD` only turns a hang
//! into a failure.

mod calls;
mod ice_tcp;
mod lives;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::net::UdpSocket;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;
use crate::bot::{Audio, BotError, RunnerArguments, SessionId, Shutdown, ShutdownTrigger};
use crate::config::{BuiltInBot, Config, Host};
use crate::io::addresses::{local_addresses, own_addresses};
use crate::io::services::Services;
use crate::io::tasks::SlotPool;
use crate::io::webrtc::gather::Gatherer;
use crate::io::webrtc::udp::UdpPort;
use crate::logging;
use crate::proto::testing::client::TestClient;
use crate::proto::webrtc::offer::RemoteCandidate;

const GUARD: Duration = Duration::from_secs(60);

/// A driver and its environment.
struct Rig {
    engine: WebRtc,
    live: SlotPool,
    stop: ShutdownTrigger,
    /// What every bot did, in order.
    seen: UnboundedReceiver<(SessionId, String)>,
    /// The number of live bots that ignore everything.
    stubborn: Arc<AtomicUsize>,
    leases: Arc<AtomicUsize>,
    sessions: usize,
    reader: tokio::task::JoinHandle<()>,
}

/// Counts itself while it is alive.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Counted(counter.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A bot that does what its body says: `panic`, `fail`, `ignore`, `return`, or else report events;
/// with `obey` it panics at the first message.
async fn play(
    mut args: RunnerArguments,
    seen: UnboundedSender<(SessionId, String)>,
    stubborn: Arc<AtomicUsize>,
) -> Result<(), BotError> {
    let mark = args.body["mark"].as_str().unwrap_or_default().to_owned();
    match args.body["do"].as_str() {
        Some("panic") => panic!("{mark}"),
        Some("fail") => return Err(mark.into()),
        Some("return") => return Ok(()),
        Some("ignore") => {
            let _here = Counted::new(&stubborn);
            std::future::pending::<()>().await;
        }
        _ => {}
    }
    let mut media = args.media(Audio::at(16_000))?;
    let mut frames = 0;
    while let Some(event) = media.recv().await {
        let reported = match event {
            bot::Event::Audio(_) => {
                frames += 1;
                if frames % 50 != 0 {
                    continue;
                }
                "a second of audio".to_owned()
            }
            bot::Event::Message(text) if args.body["do"] == "obey" => panic!("{text}"),
            bot::Event::Message(text) => {
                media.send_message(format!("you said {text}"))?;
                format!("message {text}")
            }
            bot::Event::Left(reason) => format!("left: {reason}"),
            other => format!("{other:?}"),
        };
        let _ = seen.send((args.session_id.clone(), reported));
    }
    Ok(())
}

fn config(embedded: Option<std::net::Ipv4Addr>) -> Config {
    crate::proto::config! {
        host: Host::Address(std::net::Ipv4Addr::LOCALHOST.into()),
        port: 0,
        embedded: embedded,
        bot: BuiltInBot::Echo,
        sessions_max: 0,
        ..Config::default()
    }
}

impl Rig {
    fn new(sessions_max: usize) -> Rig {
        Rig::with(config(None), sessions_max)
    }

    fn with(config: Config, sessions_max: usize) -> Rig {
        Rig::listening(config, sessions_max, Vec::new())
    }

    /// Creates a rig whose HTTP server has these addresses.
    fn listening(config: Config, sessions_max: usize, http: Vec<SocketAddr>) -> Rig {
        let (sender, seen) = unbounded_channel();
        let stubborn = Arc::<AtomicUsize>::default();
        let counter = stubborn.clone();
        let bot = bot::erase(move |args| play(args, sender.clone(), counter.clone()));
        let port = UdpPort::bind(config.host, 0).expect("a free port");
        let reader = tokio::spawn(port.clone().run());
        let live = SlotPool::new(sessions_max);
        let (stop, shutdown) = Shutdown::channel();
        let gatherer = Gatherer::start(&config, &port, &Services::default());
        let sessions = Sessions::new(Arc::new(config), bot, live.clone(), shutdown);
        let sockets = Sockets {
            port,
            reader: reader.abort_handle(),
            gatherer,
            http,
        };
        let engine = WebRtc::new(sessions, Arc::new(ConnectionContext::default()), sockets);
        Rig {
            engine,
            live,
            stop,
            seen,
            stubborn,
            leases: Arc::default(),
            sessions: 0,
            reader,
        }
    }

    /// Makes an offer as HTTP does. A new session is `session N`, and its bot does what `body`
    /// says.
    async fn offer(&mut self, offer: OfferBody, body: Value) -> Result<AnswerBody, SessionRefusal> {
        self.sessions += 1;
        let lease = Counted::new(&self.leases);
        let start = SessionStart {
            session_id: format!("session {}", self.sessions).into(),
            body,
            bot: self.engine.sessions().bots().default(),
            log_client: logging::LogClient::new(Arc::default(), [127, 0, 0, 1].into(), false),
            lease: Some(Box::new(lease)),
        };
        let requester = Requester {
            source: std::net::IpAddr::from([127, 0, 0, 1]).into(),
            is_authorised: false,
            local_address: None,
        };
        self.engine.offer(offer, requester, || Ok(start)).await
    }

    /// Makes a session whose client never connects.
    async fn session(&mut self, body: Value) -> Result<AnswerBody, SessionRefusal> {
        let sdp = TestClient::at("127.0.0.1:9", tasks::now()).offer();
        self.offer(new(sdp), body).await
    }

    /// Tells whether the connection is registered.
    async fn knows(&self, pc_id: &str) -> bool {
        let candidates = CandidatesBody {
            pc_id: pc_id.to_owned(),
            candidates: vec![RemoteCandidate {
                candidate: String::new(),
                sdp_mid: None,
                sdp_mline_index: None,
            }],
        };
        self.engine.candidates(candidates).await.is_ok()
    }

    /// Waits for the next report of a bot.
    async fn reported(&mut self) -> String {
        let reported = tokio::time::timeout(GUARD, self.seen.recv()).await;
        reported
            .expect("a bot that tells something")
            .expect("the engine holds a sender")
            .1
    }

    /// Waits for this report of a bot, and returns the earlier ones.
    async fn until_reported(&mut self, wanted: &str) -> Vec<String> {
        let mut before = Vec::new();
        loop {
            let reported = self.reported().await;
            if reported == wanted {
                return before;
            }
            before.push(reported);
        }
    }

    /// Waits until no session is left, and asserts that nothing of them remains.
    async fn empty(&self) {
        tokio::time::timeout(GUARD, self.live.wait_empty())
            .await
            .expect("no session in the end");
        assert_eq!(self.engine.sessions().count(), 0);
        assert_eq!(self.engine.shared.registered(), (0, 0));
        assert_eq!(self.engine.shared.sockets.port.routed(), (0, 0));
        assert_eq!(self.leases.load(Ordering::Relaxed), 0);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// An offer for a new connection.
fn new(sdp: String) -> OfferBody {
    OfferBody {
        sdp,
        pc_id: None,
        restart_pc: false,
        request_data: None,
    }
}

/// An offer for a known connection.
fn known(sdp: String, pc_id: &str, restart_pc: bool) -> OfferBody {
    OfferBody {
        pc_id: Some(pc_id.to_owned()),
        restart_pc,
        ..new(sdp)
    }
}

/// A client with a socket.
struct Caller {
    client: TestClient,
    socket: UdpSocket,
}

impl Caller {
    async fn new() -> Caller {
        Caller::at(Ipv4Addr::LOCALHOST).await
    }

    /// A caller at a loopback address.
    async fn at(address: Ipv4Addr) -> Caller {
        let socket = UdpSocket::bind((address, 0)).await.expect("a free port");
        let address = socket.local_addr().expect("a bound socket has an address").to_string();
        Caller {
            client: TestClient::at(&address, tasks::now()),
            socket,
        }
    }

    /// Starts a session and connects to it.
    async fn call(&mut self, rig: &mut Rig, body: Value) -> AnswerBody {
        let offer = new(self.client.offer());
        let answer = rig.offer(offer, body).await.expect("an answer");
        self.client.accept(&answer.sdp);
        self.connect().await;
        answer
    }

    async fn connect(&mut self) {
        self.until(|client| client.connected && client.open_channel().is_some())
            .await;
    }

    /// Moves datagrams and the clock until `done`.
    async fn until(&mut self, done: impl Fn(&TestClient) -> bool) {
        let carrying = async {
            let mut buffer = [0; 2_048];
            loop {
                self.flush().await;
                if done(&self.client) {
                    return;
                }
                let address = self.client.address;
                tokio::select! {
                    received = self.socket.recv_from(&mut buffer) => {
                        // An ICMP error of an earlier datagram.
                        if let Ok((bytes, source)) = received {
                            self.client.handle_datagram(source, address, &buffer[..bytes], tasks::now());
                        }
                    }
                    () = tokio::time::sleep_until(self.client.wake().into()) => self.client.handle_timeout(tasks::now()),
                }
            }
        };
        tokio::time::timeout(GUARD, carrying)
            .await
            .expect("what was waited for");
    }

    async fn flush(&mut self) {
        for (destination, contents) in self.client.drain(tasks::now()) {
            // Not every address of the answer is reachable from loopback.
            let _ = self.socket.send_to(&contents, destination).await;
        }
    }
}

/// The port of one session is not forwarded by a router, so it ignores the router's addresses.
#[test]
fn a_call_port_ignores_router_addresses() {
    let router: std::net::IpAddr = "203.0.113.9".parse().expect("an address");
    let config = crate::proto::config! {
        ice_addresses: vec![router],
        ..config(None)
    };
    assert!(local_addresses(&config).contains(&router));
    let own = own_addresses(&config);
    assert!(!own.is_empty() && !own.contains(&router));
}
