//! [`MoqClient`]: a caller over Media over QUIC, on a socket and in a thread of its own.
//!
//! In: the reply of `/start`; Opus packets, messages. Out: what it observed: announcements, packets
//! of the bot, records, ends. Its link and peer are the library's own, as they are used by a
//! relay's client; `tests/peers/moq` checks the wire format with other implementations.

mod certificate;
mod connection;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use edge_runner_proto::audio::opus::{Decoder, Encoder, EncoderSettings};
use edge_runner_proto::moq::link::LinkClosed;
use serde_json::Value;

use self::connection::MoqConnection;
use super::runner::PATIENCE;
use super::sound::{FRAME, RATE_HZ, Speech, tone_share};

/// Packets of a bot's audio by which a tone is recognised.
const TONE_PACKETS: usize = 50;

/// What a caller needs to reach its session: the reply of `/start`.
#[derive(Clone, Debug)]
pub struct MoqInvitation {
    pub address: SocketAddr,
    /// `host:port` of the URL.
    authority: String,
    /// Path and query of the URL.
    pub path: String,
    /// Empty if the reply has none: the test then sets it.
    pub certificate_hash: Vec<u8>,
    pub namespace: String,
    bot_id: String,
    client_id: String,
    /// The idle time that the caller demands; the shorter one of both ends counts.
    pub idle: Option<Duration>,
    /// The address that the caller comes from.
    pub from: Ipv4Addr,
}

impl MoqInvitation {
    pub fn read(reply: &Value) -> Self {
        let text = |name: &str| {
            reply["moq"][name]
                .as_str()
                .unwrap_or_else(|| panic!("no {name} in {reply}"))
        };
        let rest = text("relayUrl").strip_prefix("https://").expect("an https URL");
        let (authority, path) = rest.split_once('/').expect("a path");
        MoqInvitation {
            address: authority.parse().expect("an IP address"),
            authority: authority.to_owned(),
            path: format!("/{path}"),
            certificate_hash: match &reply["moq"]["certHash"] {
                Value::Null => Vec::new(),
                _ => BASE64.decode(text("certHash").as_bytes()).expect("a hash in Base64"),
            },
            namespace: text("namespace").to_owned(),
            bot_id: text("botId").to_owned(),
            client_id: text("clientId").to_owned(),
            idle: None,
            from: Ipv4Addr::LOCALHOST,
        }
    }

    /// Returns the path of the bot's broadcast.
    pub fn bot_path(&self) -> String {
        format!("{}/{}", self.namespace, self.bot_id)
    }

    /// Returns the path of the caller's broadcast.
    pub fn caller_path(&self) -> String {
        format!("{}/{}", self.namespace, self.client_id)
    }
}

/// A packet of the bot's audio.
pub struct MoqPacket {
    #[allow(dead_code, reason = "tests/bench measures with it")]
    pub at: Instant,
    pub group: u64,
    pub timestamp_us: u64,
    pub payload: Vec<u8>,
}

/// What a caller has observed.
#[derive(Default)]
pub struct MoqObserved {
    pub is_connected: bool,
    /// Paths of the broadcasts that the runner announced.
    pub announced: BTreeSet<String>,
    /// Whether the bot subscribed to the caller's audio.
    pub is_received: bool,
    pub catalogs: Vec<Value>,
    pub received: Vec<MoqPacket>,
    /// When each packet was sent.
    pub sent: Vec<Instant>,
    /// RTVI messages of the bot.
    pub messages: Vec<Value>,
    /// Types of the records for the transport.
    pub controls: Vec<String>,
    /// Subscriptions that ended, as path and track, with the code of a reset.
    pub ended: Vec<(String, Option<u32>)>,
    pub closed: Option<LinkClosed>,
    /// The last datagram that was sent.
    pub datagram: Vec<u8>,
}

enum MoqOrder {
    /// Sends these packets in turn, one every 20 ms, from a time on.
    Speak(Arc<Vec<Vec<u8>>>, Instant),
    Say(String),
    Subscribe {
        broadcast: String,
        track: String,
    },
    /// Closes the session.
    Leave,
    /// Stops without a close.
    Vanish,
}

/// What the thread and the test share.
#[derive(Default)]
struct MoqShared {
    observed: Mutex<MoqObserved>,
    changed: Condvar,
}

impl MoqShared {
    fn lock(&self) -> MutexGuard<'_, MoqObserved> {
        self.observed.lock().expect("no holder panics")
    }
}

pub struct MoqClient {
    pub invitation: MoqInvitation,
    shared: Arc<MoqShared>,
    orders: mpsc::Sender<MoqOrder>,
    /// Wakes the thread by an empty datagram to its socket.
    waker: UdpSocket,
    thread: Option<JoinHandle<()>>,
}

impl MoqClient {
    /// Connects and announces the caller's broadcast.
    pub fn connect(invitation: &MoqInvitation) -> Self {
        let socket = UdpSocket::bind((invitation.from, 0)).expect("a free port");
        let waker = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let own = socket.local_addr().expect("it is bound");
        waker.connect(own).expect("loopback is there");
        let shared = Arc::<MoqShared>::default();
        let (orders, ordered) = mpsc::channel();
        let connection = MoqConnection::new(invitation.clone(), socket, shared.clone());
        MoqClient {
            invitation: invitation.clone(),
            shared,
            orders,
            waker,
            thread: Some(std::thread::spawn(move || connection.run(&ordered))),
        }
    }

    /// Sends these Opus packets in turn, one every 20 ms, from a time on.
    pub fn speak(&self, packets: Arc<Vec<Vec<u8>>>, first: Instant) {
        self.order(MoqOrder::Speak(packets, first));
    }

    /// Sends a tone from now on.
    pub fn hum(&self, hz: f64) {
        self.speak(Arc::new(tone(hz)), Instant::now());
    }

    /// Appends a record to the caller's log.
    pub fn say(&self, message: &Value) {
        self.order(MoqOrder::Say(message.to_string()));
    }

    /// Subscribes to a track of any broadcast.
    pub fn subscribe(&self, broadcast: &str, track: &str) {
        let (broadcast, track) = (broadcast.to_owned(), track.to_owned());
        self.order(MoqOrder::Subscribe { broadcast, track });
    }

    pub fn leave(&self) {
        self.order(MoqOrder::Leave);
    }

    /// Closes the socket without a word, as a peer that lost its power.
    pub fn vanish(mut self) {
        self.stop();
    }

    fn order(&self, order: MoqOrder) {
        // A thread that has ended takes no orders.
        if self.orders.send(order).is_ok() {
            let _ = self.waker.send(&[]);
        }
    }

    fn stop(&mut self) {
        self.order(MoqOrder::Vanish);
        let thread = self.thread.take();
        let ended = thread.map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(!matches!(ended, Some(Err(_))), "the thread of a caller panicked");
        }
    }

    pub fn observed(&self) -> MutexGuard<'_, MoqObserved> {
        self.shared.lock()
    }

    /// Waits until `done`, or fails the test.
    pub fn wait_for(&self, wanted: &str, mut done: impl FnMut(&MoqObserved) -> bool) {
        let start = Instant::now();
        let mut observed = self.shared.lock();
        while !done(&observed) {
            let left = PATIENCE.saturating_sub(start.elapsed());
            assert!(
                !left.is_zero(),
                "no {wanted}; announced {:?}, {} packets heard, messages {:?}, controls {:?}, ended {:?}, closed {:?}",
                observed.announced,
                observed.received.len(),
                observed.messages,
                observed.controls,
                observed.ended,
                observed.closed
            );
            let waited = self.shared.changed.wait_timeout(observed, left);
            observed = waited.expect("no holder panics").0;
        }
    }

    /// Waits until the last second of the bot's audio is this tone.
    pub fn wait_for_tone(&self, hz: f64) {
        self.observed().received.clear();
        self.wait_for(&format!("tone of {hz} Hz"), |observed| {
            let received = observed.received.len();
            received > TONE_PACKETS && tone_share(&pcm(&observed.received[received - TONE_PACKETS..]), hz) > 0.8
        });
    }

    /// Waits for an RTVI message, and returns it.
    pub fn wait_for_message(&self, kind: &str, id: &str) -> Value {
        let mut found = Value::Null;
        self.wait_for(&format!("{kind} {id}"), |observed| {
            let mut messages = observed.messages.iter();
            let message = messages.find(|message| message["type"] == kind && message["id"] == id);
            found = message.cloned().unwrap_or_default();
            message.is_some()
        });
        found
    }

    /// Waits for the end of the connection, and returns its reason.
    pub fn wait_for_end(&self) -> LinkClosed {
        self.wait_for("end", |observed| observed.closed.is_some());
        self.observed().closed.clone().expect("it was just there")
    }
}

impl Drop for MoqClient {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns a second of a tone, as packets of 20 ms.
fn tone(hz: f64) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new(RATE_HZ, EncoderSettings::default()).expect("a rate of Opus");
    let frames = (0..50).map(|n| Speech::Tone { hz }.frame(n * FRAME));
    let packets = frames.map(|pcm| {
        let mut packet = vec![0; 400];
        let length = encoder.encode(&pcm, &mut packet).expect("a frame of Opus");
        packet.truncate(length);
        packet
    });
    packets.collect()
}

/// Decodes packets in the order of their timestamps.
fn pcm(packets: &[MoqPacket]) -> Vec<i16> {
    let mut packets: Vec<&MoqPacket> = packets.iter().collect();
    packets.sort_by_key(|packet| packet.timestamp_us);
    let mut decoder = Decoder::new(RATE_HZ).expect("a rate of Opus");
    let mut pcm = Vec::new();
    for packet in packets {
        pcm.extend_from_slice(decoder.decode(&packet.payload).expect("Opus"));
    }
    pcm
}
