//! A small media-room server for the tests: signalling, rooms, and a forwarder of audio and data.
//!
//! It takes what the published clients of the real server send, and is held against them in `tests/peers/room`; ours then has
//! to get on with the same. As the real server: refusals before the upgrade, the order of messages, two connections with the
//! server as the one that offers to subscribers, `PA_...|TR_...` in `a=msid`, streams to subscribers told apart by SSRC alone,
//! candidates by trickle only, speakers by the senders' audio levels, messages stamped with their sender, 5 s of patience
//! with a lost connection, sections of gone tracks that other tracks get. Unlike it: audio only, nothing can be resumed, no TURN,
//! no TCP.
//!
//! [`http`] is its HTTP, [`hub`] its mind, [`transport`] one peer connection, [`speakers`] who is loud, [`token`] who may come in.
//! Source: the real server's code at version 1.13.5, read, not copied.

pub mod http;
pub mod hub;
pub mod speakers;
pub mod token;
pub mod transport;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use hub::{Hub, Input};

/// How a server behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Of HTTP and of media.
    pub address: IpAddr,
    /// Of HTTP; 0 picks a free one.
    pub port: u16,
    /// One UDP port for everybody, as most deployments have it; 0 picks a free one. Without it each connection has its own.
    pub udp_port: Option<u16>,
    pub ice_lite: bool,
    /// Offer redundant audio to subscribers, though none is sent.
    pub red: bool,
    pub key: String,
    pub secret: String,
    pub ping_interval_s: i32,
    pub ping_timeout_s: i32,
    /// Rooms come into being with their first participant.
    pub auto_create: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST.into(),
            port: 0,
            udp_port: Some(0),
            ice_lite: true,
            red: true,
            key: "devkey".into(),
            secret: "a-secret-of-thirty-two-characters".into(),
            ping_interval_s: 5,
            ping_timeout_s: 15,
            auto_create: true,
        }
    }
}

/// What a test tells the server to do. As JSON: `{"order": "leave", "identity": "...", "reason": 4, "action": 2}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum Order {
    /// A `leave` for good, with this reason.
    Evict {
        identity: String,
        reason: i32,
    },
    /// A `leave` with this action: 0 for good, 1 resume, 2 come back.
    Leave {
        identity: String,
        reason: i32,
        action: i32,
    },
    /// Cut the WebSocket without a word; the media stay for 5 s.
    HangUp {
        identity: String,
    },
    /// Say nothing more on the WebSocket, nor answer pings.
    Silence {
        identity: String,
    },
    /// Refuse whoever comes.
    Refuse {
        status: u16,
        words: String,
    },
    Admit,
    /// Say `leave` to everybody, and end.
    Shutdown,
}

/// What the server has seen.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stats {
    pub joins: u64,
    pub resumes: u64,
    pub refused: u64,
    /// By room and identity.
    pub rooms: BTreeMap<String, BTreeMap<String, ParticipantStats>>,
}

/// A participant.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ParticipantStats {
    pub sid: String,
    /// 1 joined, 2 active.
    pub state: i32,
    pub kind: i32,
    pub protocol: i32,
    pub auto_subscribe: bool,
    /// The sids of its tracks of which packets came.
    pub tracks: Vec<String>,
    /// The sids of tracks that it wants to hear or see.
    pub subscribed: Vec<String>,
    pub speaking: bool,
    pub packets_in: u64,
    /// Packets that told their level.
    pub levels: u64,
    pub packets_out: u64,
    pub messages_in: u64,
    pub messages_out: u64,
}

/// A running server. It ends with its value, without a word to anybody.
pub struct Server {
    options: Options,
    hub: mpsc::UnboundedSender<Input>,
    tasks: [JoinHandle<()>; 2],
}

impl Server {
    /// Starts it; it listens when this returns.
    pub async fn start(mut options: Options) -> io::Result<Self> {
        let listener = TcpListener::bind((options.address, options.port)).await?;
        options.port = listener.local_addr()?.port();
        let mut shared = None;
        if let Some(port) = options.udp_port {
            let socket = UdpSocket::bind((options.address, port)).await?;
            options.udp_port = Some(socket.local_addr()?.port());
            shared = Some(socket);
        }
        let (hub, inputs) = mpsc::unbounded_channel();
        let runs = Hub::new(options.clone(), shared, hub.clone(), inputs);
        let tasks = [tokio::spawn(http::run(listener, hub.clone())), tokio::spawn(runs.run())];
        Ok(Self { options, hub, tasks })
    }

    pub fn port(&self) -> u16 {
        self.options.port
    }

    /// The URL that clients are told.
    pub fn url(&self) -> String {
        format!("ws://{}:{}", self.options.address, self.options.port)
    }

    pub fn order(&self, order: Order) {
        let _ = self.hub.send(Input::Order(order));
    }

    pub async fn stats(&self) -> Stats {
        let (reply, stats) = oneshot::channel();
        let _ = self.hub.send(Input::Stats(reply));
        stats.await.unwrap_or_default()
    }

    /// Ends it: with a word to everybody, or like a process that is killed.
    pub async fn stop(mut self, graceful: bool) {
        self.end(graceful).await;
    }

    /// Ends it and starts it anew on the same ports. Nobody is in it then.
    pub async fn restart(mut self, graceful: bool) -> io::Result<Self> {
        self.end(graceful).await;
        Self::start(self.options.clone()).await
    }

    async fn end(&mut self, graceful: bool) {
        let [door, hub] = &mut self.tasks;
        door.abort();
        let _ = door.await;
        if graceful {
            let _ = self.hub.send(Input::Order(Order::Shutdown));
        } else {
            hub.abort();
        }
        let _ = hub.await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
