//! [`Caller`]: a call of a telephony provider, from a recording or message by message.
//!
//! In: speech as PCM at the rate of the [`Line`], and keys. Out: messages of the runner, each
//! checked against the format of the provider: exact members, stream id, codec, chunk sizes. Any
//! other message fails the test. Received audio counts as played in real time: a mark is returned
//! once all audio before it was played, or at once on a clear. The messages follow the public
//! references of the providers; recordings are in `tests/data/telephony`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use edge_runner_proto::audio::g711;
use edge_runner_proto::limits::TELEPHONY_UNREADABLE_MAX;
use serde_json::{Value, json};

use super::runner::PATIENCE;
use super::socket::{Socket, SocketEvent, TimedEvent, seconds};
use super::sweep::Sweep;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    Twilio,
    Telnyx,
    Plivo,
    Exotel,
}

pub const ALL: [Provider; 4] = [Provider::Twilio, Provider::Telnyx, Provider::Plivo, Provider::Exotel];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    Ulaw,
    Alaw,
    L16,
}

/// The format of the audio of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    pub codec: Codec,
    pub rate_hz: u32,
}

const fn line(codec: Codec, rate_hz: u32) -> Line {
    Line { codec, rate_hz }
}

/// Runs a function for all providers in parallel.
pub fn each_at_once(work: impl Fn(Provider) + Sync) {
    thread::scope(|scope| {
        let workers = ALL.map(|provider| {
            let work = &work;
            scope.spawn(move || work(provider))
        });
        // Only the first failure is reported.
        for worker in workers {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

/// Calls from every provider at once, and asserts that each call echoes a sweep.
pub fn assert_echo_of_each_provider(runner: SocketAddr) {
    each_at_once(|provider| {
        let mut caller = Caller::dial(runner, provider);
        let sweep = Sweep { ms: 800 };
        caller.say(&sweep.pcm(caller.line.rate_hz));
        let rate_hz = caller.back().rate_hz;
        let samples = (sweep.received_ms() * rate_hz / 1_000) as usize;
        caller.hear_until("the echo", |caller| caller.received.len() >= samples);
        sweep.assert_received(caller.received_from(0), rate_hz, 30.0);
        caller.stop();
        caller.end();
    });
}

impl Codec {
    pub fn encode(self, pcm: &[i16]) -> Vec<u8> {
        match self {
            Self::Ulaw => pcm.iter().map(|sample| g711::ulaw_encode(*sample)).collect(),
            Self::Alaw => pcm.iter().map(|sample| g711::alaw_encode(*sample)).collect(),
            Self::L16 => pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect(),
        }
    }

    fn decode(self, bytes: &[u8]) -> Vec<i16> {
        match self {
            Self::Ulaw => bytes.iter().map(|byte| g711::ulaw_decode(*byte)).collect(),
            Self::Alaw => bytes.iter().map(|byte| g711::alaw_decode(*byte)).collect(),
            Self::L16 => {
                let (pairs, rest) = bytes.as_chunks::<2>();
                assert!(rest.is_empty(), "half a sample");
                pairs.iter().map(|pair| i16::from_le_bytes(*pair)).collect()
            }
        }
    }
}

impl Provider {
    /// Its name in the interface of the runner.
    pub fn transport(self) -> &'static str {
        match self {
            Self::Twilio => "telephony_a",
            Self::Telnyx => "telephony_b",
            Self::Plivo => "telephony_c",
            Self::Exotel => "telephony_d",
        }
    }

    /// Its name in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Twilio => "twilio",
            Self::Telnyx => "telnyx",
            Self::Plivo => "plivo",
            Self::Exotel => "exotel",
        }
    }

    /// Messages of a recorded call.
    pub fn script(self) -> impl Iterator<Item = &'static str> {
        let text = match self {
            Self::Twilio => include_str!("../data/telephony/twilio.jsonl"),
            Self::Telnyx => include_str!("../data/telephony/telnyx.jsonl"),
            Self::Plivo => include_str!("../data/telephony/plivo.jsonl"),
            Self::Exotel => include_str!("../data/telephony/exotel.jsonl"),
        };
        text.lines()
    }

    /// Every audio format of the provider, the default first.
    pub fn lines(self) -> &'static [Line] {
        const TWILIO: &[Line] = &[line(Codec::Ulaw, 8_000)];
        const TELNYX: &[Line] = &[
            line(Codec::Ulaw, 8_000),
            line(Codec::Alaw, 8_000),
            line(Codec::L16, 16_000),
        ];
        const PLIVO: &[Line] = &[
            line(Codec::Ulaw, 8_000),
            line(Codec::L16, 8_000),
            line(Codec::L16, 16_000),
        ];
        const EXOTEL: &[Line] = &[
            line(Codec::L16, 8_000),
            line(Codec::L16, 16_000),
            line(Codec::L16, 24_000),
            line(Codec::Ulaw, 8_000),
        ];
        match self {
            Self::Twilio => TWILIO,
            Self::Telnyx => TELNYX,
            Self::Plivo => PLIVO,
            Self::Exotel => EXOTEL,
        }
    }

    /// The format of the audio that the runner sends back.
    pub fn back(self, line: Line) -> Line {
        match self {
            Self::Twilio | Self::Telnyx | Self::Plivo => NETWORK,
            Self::Exotel => line,
        }
    }

    /// The length of an audio message of the provider.
    pub fn frame_ms(self) -> u32 {
        if self == Self::Exotel { 100 } else { 20 }
    }
}

/// The format that all but Exotel receive, for any format that they send.
const NETWORK: Line = line(Codec::Ulaw, 8_000);

/// An audio message of the runner.
#[derive(Clone, Copy, Debug)]
pub struct Chunk {
    pub at: Instant,
    pub bytes: usize,
    pub samples: usize,
}

pub struct Caller {
    pub provider: Provider,
    pub line: Line,
    pub socket: Socket,
    pub stream_id: String,
    pub call_id: String,
    /// The number that is dialled, where the provider sends it.
    pub to: &'static str,
    /// The time of the first speech of the caller.
    pub said: Option<Instant>,
    /// Audio of the runner, and the messages that carried it.
    pub received: Vec<i16>,
    pub chunks: Vec<Chunk>,
    /// For each clear, the number of chunks before it.
    pub clears: Vec<usize>,
    /// Marks of the runner, and the times at which they were returned.
    pub marks: Vec<String>,
    pub given_back: Vec<Instant>,
    /// Messages of the bot to the provider; with `None` such a message fails the test.
    pub others: Option<Vec<Value>>,
    /// The close of the runner, and whether the connection has ended.
    pub close: Option<(u16, String)>,
    pub gone: bool,
    /// Whether numbers are sent in the other form: as digits where the provider sends text, and as
    /// text where it sends digits.
    pub numbers_turned: bool,
    count: u64,
    frames: u64,
    /// The time at which all received audio is played, and pending marks, each with its time.
    played: Option<Instant>,
    waiting: VecDeque<(Instant, String)>,
}

/// A number as the markup of Plivo passes it on.
pub fn digits(number: &str) -> &str {
    number.trim_start_matches('+')
}

impl Caller {
    /// Connects, and sends nothing yet.
    pub fn connect(addr: SocketAddr, target: &str, provider: Provider, line: Line) -> Self {
        Self::connect_by(Socket::connect(addr, target), provider, line)
    }

    /// Uses an open socket.
    pub fn connect_by(socket: Socket, provider: Provider, line: Line) -> Self {
        let tag = match provider {
            Provider::Twilio => "MZ00000000000000000000000000000001",
            Provider::Telnyx => "7d1a3c52-0b61-4f4e-9f0e-3a8f0c9b2a11",
            Provider::Plivo => "a1a2a3a4-0000-4000-8000-000000000002",
            Provider::Exotel => "s-0001",
        };
        let call_id = match provider {
            Provider::Twilio => "CA00000000000000000000000000000001",
            Provider::Telnyx => "v3:abcDEF123-_",
            Provider::Plivo => "0f0e0d0c-0b0a-4000-8000-000000000001",
            Provider::Exotel => "c-0001",
        };
        Self {
            provider,
            line,
            socket,
            stream_id: tag.into(),
            call_id: call_id.into(),
            to: TO,
            said: None,
            received: Vec::new(),
            chunks: Vec::new(),
            clears: Vec::new(),
            marks: Vec::new(),
            given_back: Vec::new(),
            others: None,
            close: None,
            gone: false,
            numbers_turned: false,
            count: 0,
            frames: 0,
            played: None,
            waiting: VecDeque::new(),
        }
    }

    /// Connects to `/ws` and starts the stream.
    pub fn dial(addr: SocketAddr, provider: Provider) -> Self {
        Self::dial_on(addr, provider, provider.lines()[0])
    }

    /// Connects to another path, with a token in it, and starts the stream.
    pub fn dial_at(addr: SocketAddr, target: &str, provider: Provider) -> Self {
        let mut caller = Self::connect(addr, target, provider, provider.lines()[0]);
        caller.greet();
        caller.start();
        caller
    }

    pub fn dial_on(addr: SocketAddr, provider: Provider, line: Line) -> Self {
        let mut caller = Self::connect(addr, "/ws", provider, line);
        caller.greet();
        caller.start();
        caller
    }

    /// Connects with the ids of the recorded call, and sends nothing yet.
    pub fn scripted(addr: SocketAddr, provider: Provider) -> Self {
        let mut caller = Self::connect(addr, "/ws", provider, provider.lines()[0]);
        let start = provider.script().find(|text| text.contains(r#""event":"start""#));
        let start: Value = serde_json::from_str(start.expect("a call begins")).expect("JSON");
        let text = |value: &Value| value.as_str().expect("an id").to_owned();
        let members = &start["start"];
        (caller.stream_id, caller.call_id) = match provider {
            Provider::Twilio => (text(&members["streamSid"]), text(&members["callSid"])),
            Provider::Telnyx => (text(&start["stream_id"]), text(&members["call_control_id"])),
            Provider::Plivo => (text(&members["streamId"]), text(&members["callId"])),
            Provider::Exotel => (text(&members["stream_sid"]), text(&members["call_sid"])),
        };
        caller
    }

    /// Sends the message before the start. Plivo has none.
    pub fn greet(&mut self) {
        match self.provider {
            Provider::Twilio => self.send(&json!({"event": "connected", "protocol": "Call", "version": "1.0.0"})),
            Provider::Telnyx => self.send(&json!({"event": "connected", "version": "1.0.0"})),
            Provider::Plivo => {}
            Provider::Exotel => self.send(&json!({"event": "connected"})),
        }
    }

    /// Sends the start, with the ids of stream and call.
    pub fn start(&mut self) {
        let (stream_id, call_id) = (self.stream_id.clone(), self.call_id.clone());
        let rate_hz = self.line.rate_hz;
        let encoding = match (self.provider, self.line.codec) {
            (Provider::Telnyx, Codec::Ulaw) => "PCMU",
            (Provider::Telnyx, Codec::Alaw) => "PCMA",
            (Provider::Telnyx, Codec::L16) => "L16",
            (_, Codec::Ulaw) => "audio/x-mulaw",
            (Provider::Exotel, Codec::L16) => "audio/x-raw",
            (_, Codec::L16) => "audio/x-l16",
            (_, Codec::Alaw) => unreachable!("only Telnyx has A-law"),
        };
        let count = self.next_count();
        let start = match self.provider {
            Provider::Twilio => json!({"event": "start", "sequenceNumber": count, "streamSid": stream_id,
                "start": {"accountSid": "AC00000000000000000000000000000001", "streamSid": stream_id, "callSid": call_id,
                    "tracks": ["inbound"], "customParameters": {"from_number": FROM, "to_number": self.to},
                    "mediaFormat": {"encoding": encoding, "sampleRate": rate_hz, "channels": 1}}}),
            Provider::Telnyx => json!({"event": "start", "sequence_number": count, "stream_id": stream_id,
                "start": {"user_id": "1c1d2e3f-0000-4000-8000-000000000001", "call_control_id": call_id,
                    "call_session_id": "11111111-2222-3333-4444-555555555555", "from": FROM, "to": self.to, "tags": [],
                    "client_state": "c3RhdGU=", "custom_parameters": {"customer": "42"},
                    "media_format": {"encoding": encoding, "sample_rate": rate_hz, "channels": 1}}}),
            Provider::Plivo => json!({"event": "start", "sequenceNumber": count,
                "start": {"callId": call_id, "streamId": stream_id, "accountId": "MAXXXXXXXXXXXXXXXXXX", "tracks": ["inbound"],
                    "mediaFormat": {"encoding": encoding, "sampleRate": rate_hz}},
                "extra_headers": format!("from={};to={}", digits(FROM), digits(self.to))}),
            Provider::Exotel => json!({"event": "start", "sequence_number": count, "stream_sid": stream_id,
                "start": {"stream_sid": stream_id, "call_sid": call_id, "account_sid": "acct1", "from": FROM, "to": self.to,
                    "custom_parameters": {"k": "v"},
                    "media_format": {"encoding": encoding, "sample_rate": rate_hz.to_string(), "bit_rate": "16"}}}),
        };
        self.send(&start);
    }

    /// Sends PCM in messages of the provider's length; the last one may be shorter.
    pub fn say(&mut self, pcm: &[i16]) {
        self.say_as(pcm, |payload| payload);
    }

    /// Sends speech whose base64 has another form.
    pub fn say_as(&mut self, pcm: &[i16], form: impl Fn(String) -> String) {
        self.said.get_or_insert_with(Instant::now);
        let samples = self.line.rate_hz * self.provider.frame_ms() / 1_000;
        for frame in pcm.chunks(samples as usize) {
            let payload = BASE64.encode(&self.line.codec.encode(frame));
            self.say_payload(&form(payload));
        }
    }

    /// Sends one audio message with any payload.
    pub fn say_payload(&mut self, payload: &str) {
        self.frames += 1;
        let (count, chunk) = (self.next_count(), self.number(self.frames));
        let timestamp = (self.frames * u64::from(self.provider.frame_ms())).to_string();
        let stream_id = &self.stream_id;
        let media = match self.provider {
            Provider::Twilio => json!({"event": "media", "sequenceNumber": count, "streamSid": stream_id,
                "media": {"track": "inbound", "chunk": chunk, "timestamp": timestamp, "payload": payload}}),
            Provider::Telnyx => json!({"event": "media", "sequence_number": count, "stream_id": stream_id,
                "media": {"track": "inbound", "chunk": chunk, "timestamp": timestamp, "payload": payload}}),
            Provider::Plivo => {
                json!({"event": "media", "sequenceNumber": count, "streamId": stream_id, "extra_headers": "{}",
                "media": {"track": "inbound", "chunk": chunk, "timestamp": timestamp, "payload": payload}})
            }
            Provider::Exotel => json!({"event": "media", "sequence_number": count, "stream_sid": stream_id,
                "media": {"chunk": chunk, "timestamp": timestamp, "payload": payload}}),
        };
        self.send(&media);
    }

    pub fn press(&mut self, digit: &str) {
        let (count, stream_id) = (self.next_count(), &self.stream_id);
        let dtmf = match self.provider {
            Provider::Twilio => json!({"event": "dtmf", "sequenceNumber": count, "streamSid": stream_id,
                "dtmf": {"track": "inbound_track", "digit": digit}}),
            Provider::Telnyx => json!({"event": "dtmf", "sequence_number": count, "stream_id": stream_id,
                "occurred_at": "2026-11-21T12:00:00.000Z", "dtmf": {"digit": digit}}),
            Provider::Plivo => {
                json!({"event": "dtmf", "sequenceNumber": count, "streamId": stream_id, "extra_headers": "{}",
                "dtmf": {"track": "inbound", "digit": digit, "timestamp": "1795252760000"}})
            }
            Provider::Exotel => json!({"event": "dtmf", "sequence_number": count, "stream_sid": stream_id,
                "dtmf": {"digit": digit, "duration": "100"}}),
        };
        self.send(&dtmf);
    }

    /// Returns a mark, because the audio before it was played or cleared.
    pub fn return_mark(&mut self, name: &str) {
        self.given_back.push(Instant::now());
        let (count, stream_id) = (self.next_count(), &self.stream_id);
        let mark = match self.provider {
            Provider::Twilio => {
                json!({"event": "mark", "sequenceNumber": count, "streamSid": stream_id, "mark": {"name": name}})
            }
            Provider::Telnyx => {
                json!({"event": "mark", "sequence_number": count, "stream_id": stream_id, "mark": {"name": name}})
            }
            Provider::Plivo => json!({"event": "playedStream", "streamId": stream_id, "name": name}),
            Provider::Exotel => {
                json!({"event": "mark", "sequence_number": count, "stream_sid": stream_id, "mark": {"name": name}})
            }
        };
        self.send(&mark);
    }

    /// Sends as many binary messages as end a call, or a handshake.
    pub fn send_garbage(&self) {
        for _ in 0..TELEPHONY_UNREADABLE_MAX {
            self.socket.binary(vec![0; 4]);
        }
    }

    /// Sends the stop: the caller hung up.
    pub fn stop(&mut self) {
        let (count, stream_id, call_id) = (self.next_count(), &self.stream_id, &self.call_id);
        let stop = match self.provider {
            Provider::Twilio => json!({"event": "stop", "sequenceNumber": count, "streamSid": stream_id,
                "stop": {"accountSid": "AC00000000000000000000000000000001", "callSid": call_id}}),
            Provider::Telnyx => json!({"event": "stop", "sequence_number": count, "stream_id": stream_id,
                "stop": {"user_id": "1c1d2e3f-0000-4000-8000-000000000001", "call_control_id": call_id}}),
            Provider::Plivo => json!({"event": "stop", "streamId": stream_id, "reason": "call ended"}),
            Provider::Exotel => json!({"event": "stop", "sequence_number": count, "stream_sid": stream_id,
                "stop": {"call_sid": call_id, "account_sid": "acct1", "reason": "callended"}}),
        };
        self.send(&stop);
    }

    pub fn send(&self, message: &Value) {
        self.socket.text(message.to_string());
    }

    fn next_count(&mut self) -> Value {
        self.count += 1;
        self.number(self.count)
    }

    /// Plivo sends numbers as digits, the others as text.
    fn number(&self, n: u64) -> Value {
        if (self.provider == Provider::Plivo) != self.numbers_turned {
            n.into()
        } else {
            n.to_string().into()
        }
    }

    /// Waits until `done`, records everything that arrives, and returns marks that are due.
    pub fn hear_until(&mut self, wanted: &str, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            assert!(!self.gone, "the call ended with {:?} before {wanted}", self.close);
            self.hear_within(PATIENCE, wanted)
                .unwrap_or_else(|| panic!("waited in vain for {wanted}"));
        }
    }

    /// Records the next message, or returns a mark that is due; `None` when neither happens in
    /// time.
    pub fn hear_within(&mut self, time: Duration, wanted: &str) -> Option<()> {
        let due = self
            .waiting
            .front()
            .map(|(due, _)| due.saturating_duration_since(Instant::now()));
        let first = due.filter(|due| *due < time);
        if let Some(arrived) = self.socket.next_within(first.unwrap_or(time), wanted) {
            self.file(arrived);
        } else {
            first?;
            let (_, name) = self.waiting.pop_front()?;
            self.return_mark(&name);
        }
        Some(())
    }

    /// Waits until this many milliseconds of audio arrived.
    pub fn hear_ms(&mut self, ms: u32) {
        let samples = (self.back().rate_hz * ms / 1_000) as usize;
        self.hear_until(&format!("{ms} ms of speech"), |caller| caller.received.len() >= samples);
    }

    /// Waits for the end, and returns the close of the runner.
    pub fn end(&mut self) -> Option<(u16, String)> {
        self.hear_until("the end", |caller| caller.gone);
        self.close.clone()
    }

    pub fn back(&self) -> Line {
        self.provider.back(self.line)
    }

    fn file(&mut self, arrived: TimedEvent) {
        match arrived.event {
            SocketEvent::Text(text) => {
                assert_eq!(self.close, None, "a message after the close: {text}");
                self.read(arrived.at, &text);
            }
            SocketEvent::Binary(bytes) => panic!("provider {:?} takes no binary message: {bytes:?}", self.provider),
            SocketEvent::Close(code, reason) => self.close = Some((code, reason)),
            SocketEvent::Gone(_) => self.gone = true,
        }
    }

    /// Parses a message as strictly as the reference of the provider allows.
    fn read(&mut self, at: Instant, text: &str) {
        let message: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let stream_id = &self.stream_id;
        let payload = message["media"]["payload"].as_str().unwrap_or_default();
        let media = match self.provider {
            Provider::Twilio => json!({"event": "media", "streamSid": stream_id, "media": {"payload": payload}}),
            Provider::Telnyx => json!({"event": "media", "media": {"payload": payload}}),
            Provider::Plivo => json!({"event": "playAudio", "streamId": stream_id,
                "media": {"contentType": "audio/x-mulaw", "sampleRate": 8000, "payload": payload}}),
            Provider::Exotel => json!({"event": "media", "stream_sid": stream_id, "media": {"payload": payload}}),
        };
        let clear = match self.provider {
            Provider::Twilio => json!({"event": "clear", "streamSid": stream_id}),
            Provider::Telnyx => json!({"event": "clear"}),
            Provider::Plivo => json!({"event": "clearAudio", "streamId": stream_id}),
            Provider::Exotel => json!({"event": "clear", "stream_sid": stream_id}),
        };
        let name = message["mark"]["name"]
            .as_str()
            .or(message["name"].as_str())
            .unwrap_or_default();
        let mark = match self.provider {
            Provider::Twilio => json!({"event": "mark", "streamSid": stream_id, "mark": {"name": name}}),
            Provider::Telnyx => json!({"event": "mark", "mark": {"name": name}}),
            Provider::Plivo => json!({"event": "checkpoint", "streamId": stream_id, "name": name}),
            Provider::Exotel => json!({"event": "mark", "stream_sid": stream_id, "mark": {"name": name}}),
        };
        if message == clear {
            self.clears.push(self.chunks.len());
            self.played = None;
            for (_, name) in std::mem::take(&mut self.waiting) {
                self.return_mark(&name);
            }
            return;
        }
        if message == mark {
            self.marks.push(name.to_owned());
            self.waiting.push_back((self.played.unwrap_or(at), name.to_owned()));
            return;
        }
        if message != media
            && let Some(others) = &mut self.others
        {
            others.push(message);
            return;
        }
        assert_eq!(message, media, "provider {:?} knows no such message", self.provider);
        let bytes = BASE64.decode(payload.as_bytes()).expect("base64 with its padding");
        let pcm = self.back().codec.decode(&bytes);
        self.chunks.push(Chunk {
            at,
            bytes: bytes.len(),
            samples: pcm.len(),
        });
        let length = Duration::from_secs(pcm.len() as u64) / self.back().rate_hz;
        self.played = Some(self.played.map_or(at, |played| played.max(at)) + length);
        self.received.extend(pcm);
    }

    /// Audio messages of the runner after the first `before` samples.
    pub fn received_from(&self, before: usize) -> impl Iterator<Item = &[i16]> {
        let mut end = 0;
        self.chunks.iter().filter_map(move |chunk| {
            let start = end;
            end += chunk.samples;
            (start >= before).then(|| &self.received[start..end])
        })
    }

    /// Fails unless every message has a length that the provider accepts.
    pub fn assert_cut(&self) {
        let (last, whole) = self.chunks.split_last().expect("something was said");
        match self.provider {
            Provider::Twilio | Provider::Telnyx | Provider::Plivo => {
                // 20 ms, the shortest that Telnyx accepts.
                assert!(
                    whole.iter().chain([last]).all(|chunk| chunk.bytes == 160),
                    "{:?}",
                    self.chunks
                );
            }
            Provider::Exotel => {
                let bytes_100_ms = if self.line.codec == Codec::L16 { 2 } else { 1 } * self.line.rate_hz as usize / 10;
                let least = bytes_100_ms.max(3_200);
                assert!(
                    whole.iter().all(|chunk| (least..=100_000).contains(&chunk.bytes)),
                    "below {least}: {:?}",
                    self.chunks
                );
                assert!(
                    self.chunks.iter().all(|chunk| chunk.bytes % 320 == 0),
                    "{:?}",
                    self.chunks
                );
            }
        }
    }

    /// Fails if the runner sent more than the provider would have played by then, plus the lead and
    /// one chunk. A slow machine cannot fail this, because delays only make the runner look slower.
    pub fn assert_paced(&self, lead_s: f64) {
        let began = self.said.expect("nothing is answered before something is said");
        let rate_hz = f64::from(self.back().rate_hz);
        let mut sent_s = 0.0;
        for (n, chunk) in self.chunks.iter().enumerate() {
            let length_s = chunk.samples as f64 / rate_hz;
            sent_s += length_s;
            let ahead_s = sent_s - seconds(began, chunk.at);
            assert!(
                ahead_s <= lead_s + length_s,
                "chunk {n} came {ahead_s} s ahead of its playing"
            );
        }
    }
}

/// The numbers of the caller and of the called party.
pub const FROM: &str = "+15550001111";
pub const TO: &str = "+15550002222";
