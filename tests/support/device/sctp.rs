//! The small SCTP of a microcontroller, with its shortcomings.
//!
//! In: decrypted packets. Out: packets to encrypt, events, and violations. It sends one INIT and
//! repeats nothing; answers INIT, INIT ACK and COOKIE ECHO at any time; reads only the first DATA
//! chunk of a packet, each as a message; acknowledges everything up to what arrived, with a window
//! of 2 bytes; and sends unordered on stream 0. It has one send buffer: its channel request
//! overwrites the COOKIE ACK, whose first 16 bytes are sent all the same. Sources: RFC 9260, RFC
//! 8831 and 8832, `docs/spec/devices.md` 8.

use serde_json::Value;

use super::{Direction, Lost, Step};

const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const SACK: u8 = 3;
const ABORT: u8 = 6;
const COOKIE_ECHO: u8 = 10;
const COOKIE_ACK: u8 = 11;
const DATA: u8 = 0;

const PORT: [u8; 2] = 5000_u16.to_be_bytes();
/// The initiate tag of every device.
const TAG: [u8; 4] = 0x1234_5678_u32.to_be_bytes();
const FIRST_TSN: u32 = 1234;
/// The window in the INIT.
const WINDOW_AT_FIRST: [u8; 4] = 0x0010_0000_u32.to_be_bytes();
const WINDOW: [u8; 4] = 2_u32.to_be_bytes();
const COOKIE_PARAMETER: u16 = 7;
/// The cookie of every device.
const COOKIE: [u8; 8] = [0, 7, 0, 8, 0, 0, 0, 2];
const HEADER_BYTES: usize = 12;
const DATA_HEADER_BYTES: usize = 16;
/// Header and COOKIE ACK.
const COOKIE_ACK_BYTES: usize = 16;

const PPID_CONTROL: u32 = 50;
const PPID_TEXT: u32 = 51;
const CHANNEL_ACK: u8 = 2;
const CHANNEL_OPEN: u8 = 3;
/// The stream of the one channel.
const STREAM: u16 = 0;
const UNORDERED_WHOLE: u8 = 0x07;
const WHOLE: u8 = 0x03;
const MESSAGE_BYTES_MAX: usize = 1_000;

#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The association is up: the device requests its channel and uses it at once.
    Connected,
    /// The runner acknowledged the channel, which the device ignores.
    ChannelOpen,
    Message(String),
    Aborted,
}

/// The result of one packet.
#[derive(Debug, Default)]
pub struct Turn {
    pub packets: Vec<Vec<u8>>,
    pub events: Vec<Event>,
    pub violations: Vec<String>,
}

#[derive(Default)]
pub struct Association {
    remote_tag: [u8; 4],
    sent_chunks: u32,
    sent_messages: u16,
    connected: bool,
    /// The chunk to acknowledge.
    unacknowledged: Option<[u8; 4]>,
    /// The chunk that was acknowledged last.
    acknowledged: Option<[u8; 4]>,
}

impl Association {
    /// The only INIT, sent after the handshake.
    pub fn init(&self) -> Vec<u8> {
        packet([0; 4], &[&chunk(INIT, 0, &self.parameters())])
    }

    /// Encodes a text message; `None` before the association is up.
    pub fn message(&mut self, text: &str) -> Option<Vec<u8>> {
        self.connected.then(|| self.data(PPID_TEXT, text.as_bytes()))
    }

    /// Acknowledges the last chunk, with a slow device's delay.
    pub fn acknowledge(&mut self) -> Option<Vec<u8>> {
        let tsn = self.unacknowledged.take()?;
        self.acknowledged = Some(tsn);
        let value = [&tsn[..], &WINDOW, &[0; 4]].concat();
        Some(packet(self.remote_tag, &[&chunk(SACK, 0, &value)]))
    }

    pub fn handle_packet(&mut self, bytes: &[u8]) -> Turn {
        let mut turn = Turn::default();
        if bytes.len() < HEADER_BYTES || checksum(bytes) != bytes[8..12] {
            turn.violations.push("SCTP packet with a wrong CRC32c".into());
            return turn;
        }
        let mut data_chunks = 0;
        for (kind, flags, value) in chunks(&bytes[HEADER_BYTES..]) {
            match kind {
                DATA if data_chunks == 0 => {
                    data_chunks += 1;
                    self.handle_data(flags, value, &mut turn);
                }
                DATA => turn
                    .violations
                    .push("a second DATA chunk in one packet, which is lost".into()),
                INIT => self.handle_init(value, &mut turn),
                INIT_ACK => self.handle_init_ack(value, &mut turn),
                COOKIE_ECHO => self.handle_cookie_echo(&mut turn),
                COOKIE_ACK => {
                    if let Some(request) = self.connect(&mut turn) {
                        turn.packets.push(request);
                    }
                }
                SACK => {}
                ABORT => turn.events.push(Event::Aborted),
                other => turn
                    .violations
                    .push(format!("SCTP chunk {other}, which is never answered")),
            }
        }
        turn
    }

    /// The fixed part of INIT and INIT ACK.
    fn parameters(&self) -> Vec<u8> {
        let tsn = (FIRST_TSN + self.sent_chunks).to_be_bytes();
        [&TAG[..], &WINDOW_AT_FIRST, &[0xff; 4], &tsn].concat()
    }

    fn handle_init(&mut self, value: &[u8], turn: &mut Turn) {
        let Some(tag) = value.first_chunk() else {
            turn.violations.push("a short INIT".into());
            return;
        };
        self.remote_tag = *tag;
        let value = [&self.parameters()[..], &COOKIE].concat();
        turn.packets.push(packet(*tag, &[&chunk(INIT_ACK, 0, &value)]));
    }

    /// The first one opens the channel, whose request overwrites the COOKIE ACK.
    fn handle_cookie_echo(&mut self, turn: &mut Turn) {
        let acknowledgement = match self.connect(turn) {
            None => packet(self.remote_tag, &[&chunk(COOKIE_ACK, 0, &[])]),
            Some(request) => {
                let mut garbage = request[..COOKIE_ACK_BYTES].to_vec();
                garbage[8..12].fill(0);
                let check = checksum(&garbage);
                garbage[8..12].copy_from_slice(&check);
                turn.packets.push(request);
                garbage
            }
        };
        turn.packets.push(acknowledgement);
    }

    /// Enters the established state. Returns the channel request the first time.
    fn connect(&mut self, turn: &mut Turn) -> Option<Vec<u8>> {
        if std::mem::replace(&mut self.connected, true) {
            return None;
        }
        turn.events.push(Event::Connected);
        Some(self.open())
    }

    fn handle_init_ack(&mut self, value: &[u8], turn: &mut Turn) {
        let Some((fixed, parameters)) = value.split_at_checked(16) else {
            turn.violations.push("a short INIT ACK".into());
            return;
        };
        self.remote_tag.copy_from_slice(&fixed[..4]);
        // It searches every second byte for the parameter, without a bound.
        let words = parameters
            .chunks_exact(2)
            .map(|word| u16::from_be_bytes([word[0], word[1]]));
        let cookie = words.clone().position(|word| word == COOKIE_PARAMETER).and_then(|at| {
            let length = words.clone().nth(at + 1)?;
            parameters.get(2 * at + 4..2 * at + usize::from(length))
        });
        match cookie {
            Some(cookie) => {
                let echo = chunk(COOKIE_ECHO, 0, cookie);
                turn.packets.push(packet(self.remote_tag, &[&echo]));
            }
            None => turn
                .violations
                .push("an INIT ACK without a cookie, at which the device crashes".into()),
        }
    }

    fn handle_data(&mut self, flags: u8, value: &[u8], turn: &mut Turn) {
        let Some((head, content)) = value.split_at_checked(DATA_HEADER_BYTES - 4) else {
            turn.violations.push("a short DATA chunk".into());
            return;
        };
        let tsn: [u8; 4] = head[..4].try_into().expect("four bytes");
        let stream = u16::from_be_bytes([head[4], head[5]]);
        let ppid = u32::from_be_bytes(head[8..12].try_into().expect("four bytes"));
        // It may be sent again while its acknowledgement is under way, and the next with it.
        let is_missed = |waiting| waiting != tsn && self.acknowledged != Some(waiting);
        if self.unacknowledged.is_some_and(is_missed) {
            turn.violations
                .push("a second chunk before the first was acknowledged".into());
        }
        self.unacknowledged = Some(tsn);
        if stream != STREAM {
            turn.violations.push(format!("data on stream {stream}"));
        }
        if flags & WHOLE != WHOLE {
            turn.violations.push(format!(
                "a message in pieces: flags {flags:#04x}, {} bytes",
                content.len()
            ));
        }
        match (ppid, content.first()) {
            (PPID_CONTROL, Some(&CHANNEL_ACK)) => turn.events.push(Event::ChannelOpen),
            (PPID_CONTROL, Some(&CHANNEL_OPEN)) => turn.violations.push("the runner opens a channel of its own".into()),
            (PPID_TEXT, _) => {
                turn.violations.extend(check_message(content));
                turn.events
                    .push(Event::Message(String::from_utf8_lossy(content).into_owned()));
            }
            _ => turn
                .violations
                .push(format!("a message with PPID {ppid}, which is dropped")),
        }
    }

    /// Encodes the channel request: reliable and ordered.
    fn open(&mut self) -> Vec<u8> {
        let label = b"rtvi-ai";
        let length = u16::try_from(label.len()).expect("short").to_be_bytes();
        let fixed = [CHANNEL_OPEN, 0, 0, 0, 0, 0, 0, 0];
        self.data(PPID_CONTROL, &[&fixed[..], &length, &[0, 0], label].concat())
    }

    fn data(&mut self, ppid: u32, content: &[u8]) -> Vec<u8> {
        let tsn = (FIRST_TSN + self.sent_chunks).to_be_bytes();
        let sequence = self.sent_messages.to_be_bytes();
        self.sent_chunks += 1;
        self.sent_messages += 1;
        let head = [&tsn[..], &STREAM.to_be_bytes(), &sequence, &ppid.to_be_bytes()].concat();
        packet(
            self.remote_tag,
            &[&chunk(DATA, UNORDERED_WHOLE, &[&head, content].concat())],
        )
    }
}

impl Lost {
    /// Returns whether a packet in this direction is the one.
    pub fn is(&self, direction: Direction, bytes: &[u8]) -> bool {
        let value = |(_, _, value): (u8, u8, _)| value;
        let first = chunks(bytes.get(HEADER_BYTES..).unwrap_or_default()).into_iter().next();
        let control = |kind: u8| {
            let content = first.map(value).and_then(|value: &[u8]| value.get(8..));
            content.is_some_and(|content| content.starts_with(&[0, 0, 0, 50, kind]))
        };
        let is_step = match bytes.get(HEADER_BYTES) {
            Some(&INIT) => self.step == Step::Init,
            Some(&INIT_ACK) => self.step == Step::InitAck,
            Some(&COOKIE_ECHO) => self.step == Step::CookieEcho,
            Some(&COOKIE_ACK) => self.step == Step::CookieAck,
            Some(&SACK) => self.step == Step::Sack,
            Some(&DATA) if control(CHANNEL_OPEN) => self.step == Step::Open,
            Some(&DATA) if control(CHANNEL_ACK) => self.step == Step::OpenAck,
            Some(&DATA) if first.is_none() => self.step == Step::CookieAck,
            _ => false,
        };
        is_step && self.direction == direction
    }
}

/// Checks what the firmware's message handler needs in order not to crash.
fn check_message(content: &[u8]) -> Vec<String> {
    let mut violations = Vec::new();
    if content.len() > MESSAGE_BYTES_MAX {
        violations.push(format!(
            "a message of {} bytes, {MESSAGE_BYTES_MAX} are safe",
            content.len()
        ));
    }
    let json: Value = serde_json::from_slice(content).unwrap_or_default();
    match json["type"].as_str() {
        None => violations.push(format!(
            "a message without a string `type`: {}",
            String::from_utf8_lossy(content)
        )),
        Some("bot-tts-text") if !json["data"]["text"].is_string() => {
            violations.push("bot-tts-text without a string `data.text`".into());
        }
        Some(_) => {}
    }
    violations
}

/// Splits a packet into type, flags and value of each chunk.
fn chunks(mut rest: &[u8]) -> Vec<(u8, u8, &[u8])> {
    let mut found = Vec::new();
    while rest.len() >= 4 {
        let length = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        let Some(value) = rest.get(4..length) else { break };
        found.push((rest[0], rest[1], value));
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

fn chunk(kind: u8, flags: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).expect("below the MTU").to_be_bytes();
    let mut bytes = [&[kind, flags][..], &length, value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn packet(tag: [u8; 4], chunks: &[&[u8]]) -> Vec<u8> {
    let mut bytes = [&PORT[..], &PORT, &tag, &[0; 4], &chunks.concat()].concat();
    let check = checksum(&bytes);
    bytes[8..12].copy_from_slice(&check);
    bytes
}

/// CRC32c over the packet with a zero checksum field, in wire order.
fn checksum(bytes: &[u8]) -> [u8; 4] {
    let mut blank = bytes.to_vec();
    blank[8..12].fill(0);
    super::crc(&blank, 0x82f6_3b78).to_le_bytes()
}
