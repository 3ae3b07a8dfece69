//! [`Client`]: a client of `/ws-client` that plays the received audio and uses RTVI.
//!
//! In: speech at any rate, messages. Out: audio and messages of the runner. Each frame is checked
//! against what such a client can play: 24 kHz mono, whole samples, multiples of 20 ms, JSON in
//! every message. Any other frame fails the test.

use std::net::SocketAddr;
use std::time::Instant;

use edge_runner_proto::sockets::frames::{self, ProtobufFrame};
use serde_json::{Value, json};

use super::socket::{ConnectOptions, HandshakeError, Socket, SocketEvent, TimedEvent, seconds};

/// The playback rate of the client.
pub const CLIENT_RATE_HZ: u32 = 24_000;
/// 20 ms at that rate.
const PIECE: usize = 480;

pub struct Client {
    pub socket: Socket,
    /// The time of the first speech.
    pub said: Option<Instant>,
    pub received: Vec<i16>,
    /// Arrival time and number of samples of each audio frame.
    pub chunks: Vec<(Instant, usize)>,
    pub messages: Vec<Value>,
    pub interruptions: usize,
    pub close: Option<(u16, String)>,
    pub gone: bool,
}

impl Client {
    pub fn connect(addr: SocketAddr, target: &str) -> Self {
        Self::try_connect(addr, target, ConnectOptions::default())
            .unwrap_or_else(|refused| panic!("{target}: {refused:?}"))
    }

    pub fn try_connect(addr: SocketAddr, target: &str, options: ConnectOptions<'_>) -> Result<Self, HandshakeError> {
        Ok(Self {
            socket: Socket::try_connect(addr, target, options)?,
            said: None,
            received: Vec::new(),
            chunks: Vec::new(),
            messages: Vec::new(),
            interruptions: 0,
            close: None,
            gone: false,
        })
    }

    /// Sends PCM in frames of 16 ms, like the stock client.
    pub fn say(&mut self, pcm: &[i16], rate_hz: u32) {
        self.said.get_or_insert_with(Instant::now);
        for frame in pcm.chunks((rate_hz * 16 / 1_000) as usize) {
            self.socket.audio(frame, rate_hz);
        }
    }

    /// Sends an RTVI message.
    pub fn tell(&mut self, kind: &str, id: &str, data: &Value) {
        let message = json!({"label": "rtvi-ai", "type": kind, "id": id, "data": data});
        self.socket.message(&message.to_string());
    }

    /// Sends a request to the bot, and waits for its answer.
    pub fn ask(&mut self, id: &str, data: &Value) -> Value {
        self.tell("client-message", id, &json!({"t": "echo", "d": data}));
        self.hear_message(&format!("the answer to {id}"), |message| {
            message["type"] == "server-response" && message["id"] == id
        })
    }

    /// Waits for a message, which may have arrived already.
    pub fn hear_message(&mut self, wanted: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        self.hear_until(wanted, |client| client.messages.iter().any(&is_it));
        let found = self.messages.iter().find(|message| is_it(message));
        found.cloned().expect("it was just there")
    }

    /// Waits until `done`, and records everything that arrives.
    pub fn hear_until(&mut self, wanted: &str, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            assert!(!self.gone, "the session ended with {:?} before {wanted}", self.close);
            let arrived = self.socket.next(wanted);
            self.file(arrived);
        }
    }

    /// Waits for the end, and returns the close of the runner.
    pub fn end(&mut self) -> Option<(u16, String)> {
        self.hear_until("the end", |client| client.gone);
        self.close.clone()
    }

    fn file(&mut self, arrived: TimedEvent) {
        match arrived.event {
            SocketEvent::Text(text) => panic!("a client cannot read text: {text}"),
            SocketEvent::Binary(bytes) => {
                assert_eq!(self.close, None, "a message after the close");
                self.take(arrived.at, frames::decode(bytes).expect("a frame"));
            }
            SocketEvent::Close(code, reason) => self.close = Some((code, reason)),
            SocketEvent::Gone(_) => self.gone = true,
        }
    }

    fn take(&mut self, at: Instant, frame: ProtobufFrame) {
        match frame {
            ProtobufFrame::Audio { pcm, rate_hz, channels } => {
                assert_eq!(
                    (rate_hz, channels),
                    (CLIENT_RATE_HZ, 1),
                    "the rate or the channels are wrong"
                );
                let before = self.received.len();
                frames::samples(&pcm, channels, &mut self.received).expect("whole samples");
                let samples = self.received.len() - before;
                assert!(
                    samples > 0 && samples.is_multiple_of(PIECE),
                    "a frame of {samples} samples"
                );
                self.chunks.push((at, samples));
            }
            ProtobufFrame::Message(text) => {
                let message = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
                self.messages.push(message);
            }
            ProtobufFrame::Interruption => self.interruptions += 1,
            other => panic!("a client knows no such frame: {other:?}"),
        }
    }

    /// Audio frames of the runner after the first `before` samples.
    pub fn received_from(&self, before: usize) -> impl Iterator<Item = &[i16]> {
        let mut end = 0;
        self.chunks.iter().filter_map(move |(_, samples)| {
            let start = end;
            end += samples;
            (start >= before).then(|| &self.received[start..end])
        })
    }

    /// Fails if the runner sent more than the client could have played by then, plus the lead and
    /// one frame. A slow machine cannot fail this, because delays only make the runner look slower.
    pub fn assert_paced(&self, lead_s: f64) {
        let began = self.said.expect("nothing is answered before something is said");
        let mut sent_s = 0.0;
        for (n, (at, samples)) in self.chunks.iter().enumerate() {
            let length_s = *samples as f64 / f64::from(CLIENT_RATE_HZ);
            sent_s += length_s;
            let ahead_s = sent_s - seconds(began, *at);
            assert!(
                ahead_s <= lead_s + length_s,
                "frame {n} came {ahead_s} s ahead of its playing"
            );
        }
    }
}
