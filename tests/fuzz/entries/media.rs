//! Properties of the packets of a caller: STUN, DTLS records, RTP and RTCP, SCTP and data channels,
//! and of a whole session.
//!
//! In: operations of [`Operations`], whose kinds each function names. Data without a valid
//! signature, tag or record protection changes nothing, from any address: a well-behaved caller
//! still connects, is received and stays connected.

use std::time::Duration;

use edge_runner_proto::event::{LeaveReason, SessionEvent};
use edge_runner_proto::limits;
use edge_runner_proto::session::Session as _;
use edge_runner_proto::webrtc::crypto;
use edge_runner_proto::webrtc::rfc4571::Rfc4571Reader;

use super::call::{Begins, Call, Operations, SILENCE, attribute, caller, mapped, outsider, provider, rtp, runner};
use super::sctp::{self, chunk};

/// Operations of one input. More only slow the run.
const OPERATIONS_MAX: usize = 64;

fn operations(bytes: &[u8]) -> (Begins, impl Iterator<Item = (u8, &[u8])>) {
    let (first, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let begins = if first & 1 == 0 {
        Begins::Caller
    } else {
        Begins::Session
    };
    (begins, Operations(rest).take(OPERATIONS_MAX))
}

fn number(data: &[u8], at: usize) -> u16 {
    let byte = |at: usize| data.get(at).copied().unwrap_or_default();
    u16::from_be_bytes([byte(at), byte(at + 1)])
}

fn short(data: &[u8]) -> Duration {
    Duration::from_millis(u64::from(data.first().copied().unwrap_or_default()) * 10)
}

/// STUN before a connection: unsigned messages do not prevent it.
pub fn stun(bytes: &[u8]) {
    framed(bytes);
    let (begins, operations) = operations(bytes);
    let mut call = Call::new(begins);
    let (mut unsigned, mut time) = (true, Duration::ZERO);
    for (kind, data) in operations {
        let is_stun = data.first().is_none_or(|first| *first < 4);
        match kind % 12 {
            0 => {
                unsigned &= is_stun;
                call.arrive(caller(), data);
            }
            1 => call.arrive(outsider(), data),
            2 => {
                unsigned = false;
                let attributes = [&call.user_name(), data].concat();
                let message = call.sealed(0x0001, [1; 12], &attributes, true);
                call.arrive(caller(), &message);
            }
            3 => {
                unsigned = false;
                let message = call.sealed(number(data, 0), [2; 12], data.get(2..).unwrap_or_default(), true);
                call.arrive(caller(), &message);
            }
            4 => {
                let message = call.sealed(0x0001, [3; 12], &[&call.user_name(), data].concat(), false);
                call.arrive(caller(), &message);
            }
            5 | 6 => {
                unsigned = false;
                let class = if kind % 12 == 5 { 0x0101 } else { 0x0111 };
                let transaction = call.checked.unwrap_or([4; 12]);
                let attributes = [&mapped(runner()), data].concat();
                let message = call.sealed(class, transaction, &attributes, false);
                call.arrive(caller(), &message);
            }
            7 => call.check(),
            8 => {
                time += short(data);
                call.advance(short(data));
            }
            9 => {
                unsigned = false;
                call.session.add_remote_candidate(&String::from_utf8_lossy(data));
                call.settle();
            }
            10 => {
                let message = call.sealed(0x0011, [5; 12], data, true);
                call.arrive(caller(), &message);
            }
            _ => {
                unsigned = false;
                let mut from = outsider();
                from.set_port(number(data, 0).max(1024));
                let message = call.sealed(0x0001, [6; 12], &call.check_attributes(), true);
                call.arrive(from, &message);
            }
        }
        call.settle();
    }
    if unsigned && time < Duration::from_secs(5) {
        assert!(
            call.connect(),
            "it connects in spite of foreign packets: {:?}",
            call.events
        );
    } else {
        call.connect();
    }
}

fn framed(bytes: &[u8]) {
    let mut stream = Rfc4571Reader::default();
    let mut taken = 0;
    for piece in bytes.chunks(7) {
        stream.buffer_mut().extend_from_slice(piece);
        while let Ok(Some(packet)) = stream.next_packet() {
            taken += packet.len() + 2;
        }
    }
    assert!(taken <= bytes.len());
}

/// Handshake records that are lost, duplicated, swapped, changed or forged. A handshake with only
/// losses and duplicates completes.
pub fn dtls(bytes: &[u8]) {
    let (begins, operations) = operations(bytes);
    let mut call = Call::new(begins);
    call.check();
    let (mut intact, mut lost, mut time) = (true, 0, Duration::ZERO);
    for (kind, data) in operations {
        let next = |call: &mut Call| call.under_way.pop_front().unwrap_or_default();
        match kind % 11 {
            0 => {
                let datagram = next(&mut call);
                call.arrive(caller(), &datagram);
            }
            1 => {
                lost += 1;
                next(&mut call);
            }
            2 => {
                let datagram = next(&mut call);
                call.arrive(caller(), &datagram);
                call.arrive(caller(), &datagram);
            }
            3 => {
                let datagram = next(&mut call);
                call.under_way.push_back(datagram);
            }
            4 => {
                intact = false;
                let mut datagram = next(&mut call);
                let at = usize::from(number(data, 0)) % datagram.len().max(1);
                for (byte, other) in datagram.iter_mut().skip(at).zip(data.get(2..).unwrap_or_default()) {
                    *byte ^= other;
                }
                call.arrive(caller(), &datagram);
            }
            5 => {
                intact = false;
                let mut datagram = next(&mut call);
                datagram.truncate(usize::from(number(data, 0)));
                call.arrive(caller(), &datagram);
            }
            6 => {
                intact = false;
                call.arrive(caller(), data);
            }
            7 => {
                time += short(data);
                call.advance(short(data));
            }
            8 => {
                intact = false;
                let datagram = [next(&mut call), next(&mut call)].concat();
                call.arrive(caller(), &datagram);
            }
            9 => call.arrive(outsider(), data),
            _ => {
                // A handshake record with a valid header: type, version, epoch 0, number, length.
                intact = false;
                let (kind, body) = data.split_first().unwrap_or((&22, &[]));
                let length = (body.len() as u16).to_be_bytes();
                let record = [
                    &[20 + kind % 8, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, *kind][..],
                    &length,
                    body,
                ]
                .concat();
                call.arrive(caller(), &record);
            }
        }
    }
    call.settle();
    if intact && lost <= 2 && time < Duration::from_secs(2) {
        assert!(call.connect(), "the handshake comes to its end: {:?}", call.events);
    } else {
        call.connect();
    }
    forged_records(&mut call, bytes);
}

/// After the handshake, unprotected records do not end the connection.
fn forged_records(call: &mut Call, bytes: &[u8]) {
    if !call.events.contains(&SessionEvent::Joined) || call.is_gone() {
        return;
    }
    let before = call.events.len();
    for (_, data) in Operations(bytes.get(1..).unwrap_or_default()).take(OPERATIONS_MAX) {
        call.arrive(caller(), data);
        call.settle();
    }
    let ended = call.events[before..]
        .iter()
        .any(|event| matches!(event, SessionEvent::Left(_)));
    assert!(!ended, "a forged record ended the call: {:?}", call.events);
}

/// Plain and sealed RTP and RTCP. Unsealed packets do not silence the caller, and outgoing packets
/// open with its keys.
pub fn media(bytes: &[u8]) {
    ciphers(bytes);
    let (begins, operations) = operations(bytes);
    let mut call = Call::connected(begins);
    let mut unsealed = true;
    for (kind, data) in operations {
        match kind % 9 {
            0 => call.arrive(caller(), data),
            1 => call.arrive(outsider(), data),
            2 => {
                unsealed = false;
                call.send_rtp(data);
            }
            3 => {
                unsealed = false;
                call.send_rtcp(data);
            }
            4 => {
                unsealed = false;
                let packet = rtp(
                    number(data, 0),
                    u32::from(number(data, 2)) << 8,
                    data.get(4..).unwrap_or_default(),
                );
                call.send_rtp(&packet);
            }
            5 => call.send_audio(),
            6 => call.speech += usize::from(number(data, 0)),
            7 => call.advance(short(data)),
            _ => {
                // A packet with a valid header and a forged tag.
                let packet = rtp(number(data, 0), 0, &[&SILENCE[..], data, &[0; 16]].concat());
                call.arrive(caller(), &packet);
            }
        }
        call.settle();
        assert!(call.samples_received <= 16_000 * 60);
    }
    if unsealed && !call.is_gone() {
        let left = call.events.iter().any(|event| matches!(event, SessionEvent::Left(_)));
        assert!(!left, "unsealed data ended the call: {:?}", call.events);
        let before = call.samples_received;
        for _ in 0..25 {
            call.send_audio();
            call.advance(Duration::from_millis(20));
        }
        assert!(call.samples_received > before, "the caller is heard");
    }
    call.advance(Duration::from_millis(200));
}

/// The ciphers alone: they open sealed data, and reject changed data and short buffers.
fn ciphers(bytes: &[u8]) {
    let (head, body) = bytes.split_at(bytes.len().min(12));
    let mut iv = [0; 12];
    iv[..head.len()].copy_from_slice(head);
    let suite = provider().srtp_provider;
    let mut gcm = suite.aead_aes_128_gcm().create_cipher([3; 16], true);
    let mut sealed = vec![0; body.len() + 16];
    gcm.encrypt(&iv, head, body, &mut sealed).expect("it fits");
    let mut plain = vec![0; body.len()];
    let length = gcm.decrypt(&iv, &[head, &[]], &sealed, &mut plain).expect("it opens");
    assert_eq!(plain[..length], *body);
    assert!(gcm.decrypt(&iv, &[head], body, &mut plain).is_err());
    assert!(gcm.encrypt(&iv, head, body, &mut sealed[1..]).is_err());
    let mut counter = suite.aes_128_cm_sha1_80().create_cipher([3; 16], true);
    let mut iv = [9; 16];
    iv[..head.len()].copy_from_slice(head);
    sealed.truncate(body.len());
    counter.encrypt(&iv, body, &mut sealed).expect("it fits");
    counter.decrypt(&iv, &sealed, &mut plain).expect("it fits");
    assert_eq!(plain, body);
    let mut packet = bytes.to_vec();
    let stripped = crypto::strip_empty_extension(&mut packet);
    assert!(stripped.len() <= bytes.len());
}

/// SCTP chunks, messages that open channels, and texts, of a connected caller.
pub fn channels(bytes: &[u8]) {
    let (begins, operations) = operations(bytes);
    let mut call = Call::connected(begins);
    assert!(call.association.up && call.association.channel_open);
    for (kind, data) in operations {
        let at = |at: usize| data.get(at).copied().unwrap_or_default();
        match kind % 10 {
            0 => call.send_plain(data),
            1 => {
                let packet = call.association.packet(data);
                call.send_plain(&packet);
            }
            2 => {
                let content = data.get(4..).unwrap_or_default();
                let data = call
                    .association
                    .data(at(0), number(data, 1), u32::from(at(3) % 60), content);
                let packet = call.association.packet(&data);
                call.send_plain(&packet);
            }
            3 => call
                .association
                .send(number(data, 0) % 64, sctp::CONTROL, data.get(2..).unwrap_or_default()),
            4 => call
                .association
                .open(number(data, 0) % 64, data.get(2..).unwrap_or_default()),
            5 => {
                let text = data.get(3..).unwrap_or_default().repeat(usize::from(at(2)) + 1);
                call.association.send(number(data, 0) % 8, sctp::TEXT, &text);
            }
            6 => {
                let packet = call
                    .association
                    .packet(&chunk(at(0), at(1), data.get(2..).unwrap_or_default()));
                call.send_plain(&packet);
            }
            7 => call.advance(short(data)),
            8 => call.session.handle_message(String::from_utf8_lossy(data).into_owned()),
            _ => {
                // An outgoing stream reset (RFC 6525): the channel closes.
                let stream = number(data, 0) % 64;
                let mut request = Vec::new();
                let numbers = [&1_000_u32.to_be_bytes()[..], &[0; 8], &stream.to_be_bytes()].concat();
                attribute(&mut request, 13, &numbers);
                let length = (request.len() as u16 - 2).to_be_bytes();
                request[2..4].copy_from_slice(&length);
                let packet = call.association.packet(&chunk(130, 0, &request));
                call.send_plain(&packet);
            }
        }
        call.settle();
    }
    call.advance(Duration::from_millis(500));
    let received: usize = call.texts().iter().map(|text| text.len()).sum();
    assert!(received <= bytes.len() * 256);
}

/// A whole session with a well-behaved caller, compared with a model. Messages arrive once and in
/// order, and the session ends for the expected reason within its time.
pub fn session(bytes: &[u8]) {
    let (begins, operations) = operations(bytes);
    let mut call = Call::connected(begins);
    let mut model = Model::default();
    for (kind, data) in operations {
        if model.ended {
            break;
        }
        match kind % 12 {
            0 => model.advance(&mut call, short(data)),
            1 => model.advance(&mut call, short(data) * 8),
            2 if !call.unplugged => {
                call.send_audio();
                call.settle();
                model.silent = Duration::ZERO;
            }
            3 if !call.unplugged => {
                let text = format!("{{\"text\":{:?}}}", String::from_utf8_lossy(data));
                call.association.send(0, sctp::TEXT, text.as_bytes());
                call.settle();
                model.silent = Duration::ZERO;
                model.asked.push(text);
            }
            4 => {
                let text = format!("{{\"answer\":{:?}}}", String::from_utf8_lossy(data));
                call.session.handle_message(text.clone());
                call.settle();
                model.answered.push(text);
                model.advance(&mut call, Duration::from_millis(1));
            }
            5 => call.speech = (call.speech + usize::from(number(data, 0))).min(32_000),
            6 => {
                call.speech = 0;
                call.session.handle_interruption(call.now);
                call.settle();
            }
            7 => call.unplugged = !call.unplugged,
            8 => {
                call.session.handle_bot_end(LeaveReason::BotEnded, call.now);
                call.settle();
                model.end(
                    &mut call,
                    limits::FINISH_WITHIN,
                    &[LeaveReason::BotEnded, LeaveReason::Vanished],
                );
            }
            9 => {
                call.session.handle_end(LeaveReason::Shutdown, call.now);
                call.settle();
                model.end(&mut call, Duration::ZERO, &[LeaveReason::Shutdown]);
            }
            10 if !call.unplugged => assert!(call.renegotiate().is_ok()),
            // The caller dropped its connection, and data in flight with it.
            11 if !call.unplugged && call.association.texts.len() == model.answered.len() => {
                assert!(call.restart() && call.connect());
                call.advance(Duration::from_millis(50));
            }
            _ => {}
        }
        model.hold(&call);
    }
    if !model.ended {
        call.unplugged = true;
        call.under_way.clear();
        model.end(&mut call, limits::PEER_FREED_AFTER, &[LeaveReason::Vanished]);
    }
    model.hold(&call);
}

/// The expected state of a session.
#[derive(Default)]
struct Model {
    /// Texts that the caller sent.
    asked: Vec<String>,
    /// Texts that the bot sent.
    answered: Vec<String>,
    /// The longest possible time since the last packet of the caller.
    silent: Duration,
    ended: bool,
}

impl Model {
    fn advance(&mut self, call: &mut Call, time: Duration) {
        call.advance(time);
        self.silent = if call.unplugged {
            self.silent + time
        } else {
            Duration::ZERO
        };
        if self.silent >= limits::PEER_FREED_AFTER
            && call.events.iter().any(|event| matches!(event, SessionEvent::Left(_)))
        {
            self.ended = true;
            call.advance(limits::GOODBYE_WITHIN + limits::CLOSE_WITHIN);
            assert!(call.is_gone());
        }
    }

    /// Expects the session to end within a time and for one of these reasons, and to be closed
    /// afterwards.
    fn end(&mut self, call: &mut Call, within: Duration, reasons: &[LeaveReason]) {
        self.ended = true;
        call.advance(within);
        let reason = call.events.iter().find_map(|event| match event {
            SessionEvent::Left(reason) => Some(*reason),
            _ => None,
        });
        assert!(
            reason.is_some_and(|reason| reasons.contains(&reason)),
            "{reason:?} of {reasons:?}"
        );
        call.advance(limits::GOODBYE_WITHIN + limits::CLOSE_WITHIN);
        assert!(call.is_gone(), "nothing is left of it");
    }

    fn hold(&self, call: &Call) {
        assert_eq!(call.texts(), self.asked);
        let taken: Vec<&String> = call
            .association
            .texts
            .iter()
            .filter(|text| text.starts_with("{\"answer\""))
            .collect();
        assert!(taken.len() <= self.answered.len());
        assert!(taken.iter().zip(&self.answered).all(|(one, other)| *one == other));
    }
}
