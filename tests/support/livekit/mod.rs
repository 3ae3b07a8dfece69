//! A small LiveKit server for tests: signalling, rooms, and forwarding of audio and data.
//!
//! It serves published LiveKit clients too, and `tests/peers/room` checks it with them. Like the
//! real server, it refuses before the upgrade, keeps the order of messages, offers to subscribers,
//! writes `PA_...|TR_...` in `a=msid`, separates subscriber streams by SSRC alone, trickles
//! candidates, detects speakers by audio levels, stamps messages with their sender, keeps lost
//! connections for 5 s, and reuses the sections of ended tracks. Unlike it: audio only, no resume,
//! no TURN, no TCP.
//!
//! [`http`] is its HTTP, [`hub`] its state, [`transport`] one peer connection, [`speakers`] the
//! speaker detection, [`token`] its access tokens. The unit tests of `proto::livekit` simulate a
//! server in virtual time instead. Source: `docs/spec/livekit.md` 2 to 5.

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

/// The behaviour of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address of HTTP and media.
    pub address: IpAddr,
    /// The HTTP port; 0 selects a free one.
    pub port: u16,
    /// One UDP port for all connections, as in most deployments; 0 selects a free one. `None` gives
    /// each connection its own.
    pub udp_port: Option<u16>,
    pub ice_lite: bool,
    /// Whether to offer redundant audio to subscribers, although none is sent.
    pub red: bool,
    pub key: String,
    pub secret: String,
    pub ping_interval_s: i32,
    pub ping_timeout_s: i32,
    /// Whether rooms are created by their first participant.
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

/// A test's order to the server. As JSON: `{"order": "leave", "identity": "...", "reason": 4,
/// "action": 2}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum Order {
    /// Sends a `leave` with action 0 and this reason.
    Evict {
        identity: String,
        reason: i32,
    },
    /// Sends a `leave` with this action: 0 disconnect, 1 resume, 2 reconnect.
    Leave {
        identity: String,
        reason: i32,
        action: i32,
    },
    /// Closes the WebSocket without a close frame. Media remains for 5 s.
    HangUp {
        identity: String,
    },
    /// Sends nothing more on the WebSocket, not even pongs.
    Silence {
        identity: String,
    },
    /// Refuses all joins.
    Refuse {
        status: u16,
        words: String,
    },
    Admit,
    /// Sends `leave` to everybody, and stops.
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

/// The statistics of a participant.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ParticipantStats {
    pub sid: String,
    /// 1 joined, 2 active.
    pub state: i32,
    pub kind: i32,
    pub protocol: i32,
    pub auto_subscribe: bool,
    /// The sids of its tracks that have sent packets.
    pub tracks: Vec<String>,
    /// The sids of the tracks that it subscribes to.
    pub subscribed: Vec<String>,
    pub speaking: bool,
    pub packets_in: u64,
    /// Packets with an audio level.
    pub levels: u64,
    pub packets_out: u64,
    pub messages_in: u64,
    pub messages_out: u64,
}

/// A running server. Dropping it kills it without any leave.
pub struct Server {
    options: Options,
    hub: mpsc::UnboundedSender<Input>,
    tasks: [JoinHandle<()>; 2],
}

impl Server {
    /// Starts the server. It listens when this returns.
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

    /// The options, with the ports that it has.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The URL for clients.
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

    /// Stops the server, with a leave to everybody or as if it were killed.
    pub async fn stop(mut self, graceful: bool) {
        self.end(graceful).await;
    }

    /// Stops the server and starts it again on the same ports, with empty rooms.
    pub async fn restart(mut self, graceful: bool) -> io::Result<Self> {
        self.end(graceful).await;
        Self::start(self.options.clone()).await
    }

    async fn end(&mut self, graceful: bool) {
        let [http, hub] = &mut self.tasks;
        http.abort();
        let _ = http.await;
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
