//! The device's state machine, and the loop that runs it on a socket.
//!
//! In: datagrams and the time. Out: datagrams, and the report. Datagrams are tested in the device's
//! order: STUN, then (after the handshake) RTCP, DTLS, RTP.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use edge_runner_proto::audio::g711::Law;
use edge_runner_proto::audio::opus::{Decoder, Encoder, EncoderSettings};

use super::answer::Answer;
use super::dtls::{self, Endpoint};
use super::offer::Codec;
use super::sctp::{self, Association};
use super::srtp::Context;
use super::stun::{self, Message};
use super::{Direction, Options, Packet, Report, SAYS_EVERY, Shared, is_silent};
use crate::support::sound::{FRAME, RATE_HZ};

/// The interval of the device's loop.
const TURN: Duration = Duration::from_millis(2);
/// A check is repeated every 100 turns of the loop, and given up after 1000.
const CHECK_INTERVAL: Duration = Duration::from_millis(1_100);
const CHECKS_MAX: u32 = 10;
const PTIME: Duration = Duration::from_millis(20);
/// One scheduler tick passes before a message is acknowledged.
const ACK_DELAY: Duration = Duration::from_millis(15);
const DATAGRAM_BYTES_MAX: usize = 1_200;
/// The queue of its network stack.
const MAILBOX_DATAGRAMS: usize = 6;
/// Larger than any datagram on loopback.
const BUFFER_BYTES: usize = 65_536;

pub struct Peer {
    /// Outgoing datagrams with their destinations.
    pub outgoing: Vec<(SocketAddr, Vec<u8>)>,
    answer: Answer,
    options: Options,
    checks: u32,
    next_check: Instant,
    /// Exists from the first answered check on.
    server: Option<Endpoint>,
    /// Exists from the end of the handshake on.
    live: Option<Live>,
    last_request: Instant,
    /// Queued datagrams while it is busy, and until when.
    mailbox: Vec<(SocketAddr, Vec<u8>)>,
    busy_until: Option<Instant>,
}

struct Live {
    since: Instant,
    outgoing: Box<Context>,
    incoming: Box<Context>,
    association: Association,
    acknowledge_at: Option<Instant>,
    /// When the next message is due, once the association is up.
    says_next: Option<Instant>,
    said: usize,
    codec: Codec,
    voice: Voice,
    next_frame: Instant,
    frames: u32,
    muted: bool,
}

/// The encoder and decoder.
enum Voice {
    Opus(Box<(Encoder, Decoder)>),
    /// At half the rate of the microphone, without a filter.
    G711(Law),
}

impl Voice {
    fn new(codec: Codec) -> Self {
        let settings = EncoderSettings {
            bitrate_bps: 30_000,
            complexity: 0,
            expected_loss_percent: 0,
        };
        match codec {
            Codec::Opus => {
                let encoder = Encoder::new(RATE_HZ, settings).expect("16 kHz is a rate of Opus");
                let decoder = Decoder::new(RATE_HZ).expect("16 kHz is a rate of Opus");
                Voice::Opus(Box::new((encoder, decoder)))
            }
            Codec::Pcmu => Voice::G711(Law::Mu),
            Codec::Pcma => Voice::G711(Law::A),
            Codec::G722 => unreachable!("no answer has it"),
        }
    }

    fn encode(&mut self, frame: &[i16; FRAME]) -> Vec<u8> {
        match self {
            Voice::Opus(both) => {
                let mut payload = vec![0; 1_275];
                let bytes = both.0.encode(frame, &mut payload).expect("20 ms at 16 kHz");
                payload.truncate(bytes);
                payload
            }
            Voice::G711(law) => {
                let half: Vec<i16> = frame.iter().step_by(2).copied().collect();
                let mut payload = vec![0; half.len()];
                law.encode(&half, &mut payload);
                payload
            }
        }
    }

    /// Decodes a payload; `None` if it is noise.
    fn decode(&mut self, payload: &[u8]) -> Option<Vec<i16>> {
        match self {
            Voice::Opus(both) => both.1.decode(payload).ok().map(<[i16]>::to_vec),
            Voice::G711(law) => {
                let mut half = Vec::new();
                law.decode(payload, &mut half);
                Some(half.iter().flat_map(|sample| [*sample; 2]).collect())
            }
        }
    }

    /// Returns the duration of a packet in ticks.
    fn ticks(&self, payload: &[u8]) -> Option<u32> {
        match self {
            Voice::Opus(_) => opus_ticks(payload),
            Voice::G711(_) => u32::try_from(payload.len()).ok(),
        }
    }
}

/// Runs until the test is done or the device gives up.
pub fn run(mut peer: Peer, socket: &UdpSocket, shared: &Shared) {
    socket.set_read_timeout(Some(TURN)).expect("not zero");
    let mut buffer = vec![0; BUFFER_BYTES];
    while !shared.stop.load(Ordering::Relaxed) {
        for (to, datagram) in peer.outgoing.drain(..) {
            // Loss is allowed; a closed port is reported on receive.
            let _ = socket.send_to(&datagram, to);
        }
        let received = socket.recv_from(&mut buffer);
        let now = Instant::now();
        let mut report = shared.report.lock().expect("the test does not panic while it reads");
        match received {
            Ok((bytes, from)) => peer.handle_datagram(&buffer[..bytes], from, now, &mut report),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            // A port-unreachable for an earlier datagram.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => panic!("receiving: {error}"),
        }
        peer.handle_timeout(now, &mut report);
        shared.changed.notify_all();
        if report.closed.is_some() {
            return;
        }
    }
}

impl Peer {
    pub fn new(answer: Answer, options: Options, now: Instant) -> Self {
        Self {
            outgoing: Vec::new(),
            answer,
            options,
            checks: 0,
            next_check: now,
            server: None,
            live: None,
            last_request: now,
            mailbox: Vec::new(),
            busy_until: None,
        }
    }

    pub fn handle_timeout(&mut self, now: Instant, report: &mut Report) {
        if !self.is_busy(now) {
            for (from, datagram) in std::mem::take(&mut self.mailbox) {
                self.handle_datagram(&datagram, from, now, report);
            }
        }
        if self.server.is_none() && now >= self.next_check {
            if self.checks == CHECKS_MAX {
                report.closed = Some("no answer to any check".into());
                return;
            }
            self.checks += 1;
            self.next_check = now + CHECK_INTERVAL;
            let (ufrag, _) = &self.options.credentials;
            let request = stun::request(&self.answer.ufrag, ufrag, &self.answer.pwd);
            self.send(&request, self.answer.remote);
        }
        let busy = self.is_busy(now);
        if let Some(server) = self.server.as_mut().filter(|_| !busy) {
            server.handle_timeout(now);
            self.drain_dtls(now, report);
        }
        self.speak(now, report);
        self.say(now);
        if let Some(live) = &mut self.live
            && live.acknowledge_at.is_some_and(|at| now >= at)
        {
            live.acknowledge_at = None;
            if let Some(packet) = live.association.acknowledge() {
                self.send_sctp(&[packet]);
            }
        }
        if let Some(limit) = self.options.keep_alive
            && self.live.is_some()
            && now - self.last_request > limit
        {
            report.closed = Some(format!("no binding request for {limit:?}"));
        }
    }

    pub fn handle_datagram(&mut self, datagram: &[u8], from: SocketAddr, now: Instant, report: &mut Report) {
        if self.is_busy(now) {
            if self.mailbox.len() < MAILBOX_DATAGRAMS {
                self.mailbox.push((from, datagram.to_vec()));
            }
            return;
        }
        let at = self.live.as_ref().map(|live| now - live.since);
        if let Some(at) = at {
            report.datagrams.push(at);
        }
        if from != self.answer.remote {
            report.violate(format!(
                "a datagram from {from}, the candidate is {}",
                self.answer.remote
            ));
        }
        if datagram.len() > DATAGRAM_BYTES_MAX {
            let bytes = datagram.len();
            report.violate(format!("a datagram of {bytes} bytes, {DATAGRAM_BYTES_MAX} are safe"));
        }
        if stun::is_stun(datagram) {
            self.handle_stun(datagram, from, now, report);
        } else if let Some(live) = &mut self.live {
            match datagram {
                [_, 192..=223, ..] => {
                    report.rtcp.push(now - live.since);
                    match live.incoming.check_rtcp(datagram) {
                        Err(rule) if !self.options.rebooted => report.violate(rule),
                        _ => {}
                    }
                }
                // The library reads only this much DTLS once connected; a goodbye is recorded.
                [21 | 23, ..] => self.handle_dtls(datagram, now, report),
                [20..=63, ..] if !self.options.shape.is_esp_peer() => {}
                [20..=63, ..] => self.handle_dtls(datagram, now, report),
                _ => match live.incoming.unprotect(datagram) {
                    Ok(packet) => live.handle_rtp(&packet, self.answer.ssrc, now, report),
                    Err(rule) if !self.options.rebooted => report.violate(rule),
                    Err(_) => {}
                },
            }
        } else if matches!(datagram, [20..=63, ..]) {
            self.handle_dtls(datagram, now, report);
        }
    }

    fn is_busy(&self, now: Instant) -> bool {
        self.busy_until.is_some_and(|until| now < until)
    }

    fn handle_stun(&mut self, datagram: &[u8], from: SocketAddr, now: Instant, report: &mut Report) {
        let (ufrag, pwd) = &self.options.credentials;
        if stun::is_for_another(datagram, &format!("{ufrag}:{}", self.answer.ufrag)) {
            return;
        }
        match stun::read(datagram, pwd, &self.answer.pwd) {
            Ok(Message::Request { transaction }) => {
                let response = stun::response(&transaction, from, ufrag, &self.answer.ufrag, pwd);
                self.send(&response, from);
                self.last_request = now;
                report
                    .binding_requests
                    .extend(self.live.as_ref().map(|live| now - live.since));
            }
            Ok(Message::Response) => {
                let (identity, promised) = (&self.options.identity, &self.answer.fingerprint);
                if self.server.is_none() {
                    // libpeer ignores the answer's role.
                    let is_client = self.options.shape.is_esp_peer() && !self.answer.is_active;
                    let mut server = Endpoint::new(is_client, identity, promised);
                    server.loses_finished = self.options.loses_finished;
                    self.server = Some(server);
                    self.busy_until = Some(now + self.options.busy);
                }
            }
            Ok(Message::Other) => {}
            Err(violation) if !self.options.rebooted => report.violate(violation),
            Err(_) => {}
        }
    }

    fn handle_dtls(&mut self, datagram: &[u8], now: Instant, report: &mut Report) {
        // Without an answered check the packet is dropped; the runner repeats it.
        if let Some(server) = &mut self.server {
            server.handle_datagram(datagram);
            self.drain_dtls(now, report);
        }
    }

    fn drain_dtls(&mut self, now: Instant, report: &mut Report) {
        let Some(server) = &mut self.server else { return };
        for rule in std::mem::take(&mut server.violations) {
            if !self.options.rebooted || !rule.contains("does not authenticate") {
                report.violate(rule);
            }
        }
        let (datagrams, events) = (
            std::mem::take(&mut server.datagrams),
            std::mem::take(&mut server.events),
        );
        for datagram in datagrams {
            self.send(&datagram, self.answer.remote);
        }
        for event in events {
            match event {
                dtls::Event::Keys { outgoing, incoming } => {
                    self.live = Some(Live::new(self.options.shape.codec, outgoing, incoming, now));
                    self.last_request = now;
                    report.connected = true;
                    let begins = !self.options.shape.is_esp_peer() || !self.answer.is_active;
                    if self.options.shape.data_channel && begins {
                        self.send_sctp(&[Association::default().init()]);
                    }
                }
                dtls::Event::Data(packet) => self.handle_sctp(&packet, now, report),
                // The device ignores it.
                dtls::Event::Closed => report.goodbye = true,
            }
        }
    }

    fn handle_sctp(&mut self, packet: &[u8], now: Instant, report: &mut Report) {
        if self.loses(Direction::ToDevice, packet) {
            return;
        }
        let Some(live) = &mut self.live else { return };
        let turn = live.association.handle_packet(packet);
        live.acknowledge_at.get_or_insert(now + ACK_DELAY);
        for rule in turn.violations {
            report.violate(rule);
        }
        for event in turn.events {
            match event {
                sctp::Event::Connected => live.says_next = Some(now),
                sctp::Event::ChannelOpen => report.channel_open = true,
                sctp::Event::Message(text) => report.messages.push((now - live.since, text)),
                sctp::Event::Aborted => report.closed = Some("SCTP abort".into()),
            }
        }
        self.send_sctp(&turn.packets);
    }

    /// Returns whether the network loses a packet of the channel's setup.
    fn loses(&mut self, direction: Direction, packet: &[u8]) -> bool {
        let lost = self.options.loses.iter().position(|lost| lost.is(direction, packet));
        lost.map(|at| self.options.loses.remove(at)).is_some()
    }

    /// Sends the next message when it is due.
    fn say(&mut self, now: Instant) {
        let Some(live) = &mut self.live else { return };
        let due = live.says_next.is_some_and(|at| now >= at);
        let Some(text) = self.options.says.get(live.said).filter(|_| due) else {
            return;
        };
        live.said += 1;
        live.says_next = Some(now + SAYS_EVERY);
        if let Some(packet) = live.association.message(text) {
            self.send_sctp(&[packet]);
        }
    }

    fn send_sctp(&mut self, packets: &[Vec<u8>]) {
        for packet in packets {
            let lost = self.loses(Direction::ToRunner, packet);
            if let Some(server) = self.server.as_mut().filter(|_| !lost) {
                server.send(packet);
            }
        }
        let Some(server) = &mut self.server else { return };
        for datagram in std::mem::take(&mut server.datagrams) {
            self.send(&datagram, self.answer.remote);
        }
    }

    /// Sends the microphone's packets that are due.
    fn speak(&mut self, now: Instant, report: &mut Report) {
        let Some(live) = self.live.as_mut().filter(|_| !self.options.mute) else {
            return;
        };
        let mut packets = Vec::new();
        while live.next_frame <= now {
            live.next_frame += PTIME;
            let shut = self.options.mutes_itself && live.muted;
            let frame = if shut {
                [0; FRAME]
            } else {
                self.options.speech.frame(live.frames as usize * FRAME)
            };
            packets.push(live.packet(&frame, &self.options.extension));
        }
        report.sent_packets += packets.len();
        for packet in packets {
            self.send(&packet, self.answer.remote);
        }
    }

    fn send(&mut self, datagram: &[u8], to: SocketAddr) {
        self.outgoing.push((to, datagram.to_vec()));
    }
}

impl Live {
    fn new(codec: Codec, outgoing: Box<Context>, incoming: Box<Context>, now: Instant) -> Self {
        Self {
            since: now,
            outgoing,
            incoming,
            association: Association::default(),
            acknowledge_at: None,
            says_next: None,
            said: 0,
            codec,
            voice: Voice::new(codec),
            next_frame: now,
            frames: 0,
            muted: false,
        }
    }

    /// Encodes the next packet of the microphone.
    fn packet(&mut self, frame: &[i16; FRAME], extension: &[u8]) -> Vec<u8> {
        let first = if extension.is_empty() { 0x80 } else { 0x90 };
        let sequence = u16::try_from(self.frames & 0xffff).expect("16 bits").to_be_bytes();
        let timestamp = self.frames.wrapping_mul(self.codec.ticks()).to_be_bytes();
        self.frames += 1;
        let mut packet = [
            &[first, self.codec.payload_type()][..],
            &sequence,
            &timestamp,
            &self.codec.ssrc().to_be_bytes(),
            extension,
            &self.voice.encode(frame),
        ]
        .concat();
        self.outgoing.protect(&mut packet, extension.len());
        packet
    }

    /// Handles a decrypted packet.
    fn handle_rtp(&mut self, plain: &[u8], ssrc: Option<u32>, now: Instant, report: &mut Report) {
        let (head, payload) = plain.split_at(12);
        let wanted = self.codec.ticks();
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let packet = Packet {
            at: now - self.since,
            sequence: u16::from_be_bytes([head[2], head[3]]),
            timestamp: word(4),
        };
        if head[0] != 0x80 {
            report.violate(format!(
                "RTP: version, padding, extension and CSRC count are {:#04x}, not 0x80",
                head[0]
            ));
        }
        if head[1] & 0x7f != self.codec.payload_type() {
            report.violate(format!("RTP: payload type {}", head[1] & 0x7f));
        }
        if Some(word(8)) != ssrc {
            report.violate(format!("RTP: SSRC {}, the answer said {ssrc:?}", word(8)));
        }
        if let Some(last) = report.audio.last() {
            let gap = packet.sequence.wrapping_sub(last.sequence);
            let ticks = packet.timestamp.wrapping_sub(last.timestamp);
            // A late sender skips timestamps and never catches up in a burst.
            if gap != 1 || ticks == 0 || ticks % wanted != 0 {
                report.violate(format!(
                    "RTP: sequence number {gap} and timestamp {ticks} after the last packet"
                ));
            }
        }
        match self.voice.ticks(payload) {
            Some(ticks) if ticks == wanted => {}
            ticks => report.violate(format!("RTP: a packet of {ticks:?} ticks, {wanted} are wanted")),
        }
        report.audio.push(packet);
        match self.voice.decode(payload) {
            Some(pcm) => {
                self.muted = !is_silent(&pcm);
                report.pcm.extend_from_slice(&pcm);
            }
            None => report.decode_errors += 1,
        }
    }
}

/// Length of a packet at 48 kHz by its first bytes (RFC 6716 section 3.1).
fn opus_ticks(packet: &[u8]) -> Option<u32> {
    let toc = packet.first()?;
    let frame = match toc >> 3 {
        config @ 0..=11 => [480, 960, 1_920, 2_880][usize::from(config & 3)],
        config @ 12..=15 => [480, 960][usize::from(config & 1)],
        config => [120, 240, 480, 960][usize::from(config & 3)],
    };
    let frames = match toc & 3 {
        0 => 1,
        1 | 2 => 2,
        _ => u32::from(packet.get(1)? & 0x3f),
    };
    Some(frame * frames)
}
