//! What must hold for any bytes of a peer, one function per fuzz target; the corpus is replayed through the same functions.
//!
//! In: bytes, as they could stand in a body. Each function panics when a promise is broken: a parser that panics, an output
//! that the next parser refuses, a rewrite that a second pass changes again, a cap that does not hold.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use edge_runner::limits;
use edge_runner::proto::candidate::{RemotePolicy, parse_remote};
use edge_runner::proto::crypto;
use edge_runner::proto::frames::{self, Frame};
use edge_runner::proto::mediaroom::signal::{Output, Signal};
use edge_runner::proto::mediaroom::wire::{self, DataPacket, Request, SignalRequest, SignalResponse};
use edge_runner::proto::offer::{Candidates, Offer};
use edge_runner::proto::sdp::{keep_only_host_candidate, prepare_offer, rewrite_answer_for_device};
use edge_runner::proto::telephony::{self, Call, Heard, Provider};
use edge_runner::proto::token::{Family, Refusal, Tokens};
use prost::Message as _;
use serde_json::Value;
use str0m::change::SdpOffer;
use str0m::crypto::CryptoProvider;
use str0m::{Candidate, Rtc};

const HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);

/// An offer that was made fit loses no section in str0m, neither in reading nor in the answer.
pub fn sdp_offer(bytes: &[u8]) {
    let Ok(prepared) = prepare_offer(&String::from_utf8_lossy(bytes)) else {
        return;
    };
    let again = prepare_offer(&prepared.sdp).expect("what is fit stays fit");
    assert_eq!(again.sdp, prepared.sdp);
    assert!(again.candidates.is_empty());
    assert!(prepared.candidates.len() <= limits::OFFER_CANDIDATES_MAX);
    for text in &prepared.candidates {
        candidate(text.as_bytes());
    }
    let Ok(offer) = SdpOffer::from_sdp_string(&prepared.sdp) else {
        return;
    };
    let sections = |sdp: &str| sdp.matches("\nm=").count();
    assert_eq!(sections(&offer.to_sdp_string()), sections(&prepared.sdp));
    let mut rtc = Rtc::builder()
        .set_crypto_provider(provider())
        .set_dtls_cert(crypto::certificate().expect("a certificate").clone())
        .clear_codecs()
        .enable_opus(true, false)
        .build(Instant::now());
    if let Ok(answer) = rtc.sdp_api().accept_offer(offer) {
        let answer = answer.to_sdp_string();
        assert_eq!(sections(&answer), sections(&prepared.sdp));
        sdp_answer(answer.as_bytes());
    }
}

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(crypto::provider())).clone()
}

/// An answer that may be sent has one candidate of the host, short lines, and stays as it is in a second pass.
pub fn sdp_answer(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(device) = rewrite_answer_for_device(&text, HOST) {
        assert_eq!(rewrite_answer_for_device(&device, HOST).as_ref(), Ok(&device));
        assert!(device.ends_with("\r\n"));
        for line in device.split("\r\n") {
            assert!(line.len() <= limits::DEVICE_LINE_BYTES_MAX);
            assert!(line != "a=ice-lite" && !line.starts_with("a=extmap"));
            assert!(!line.starts_with("a=fingerprint:") || line.starts_with("a=fingerprint:sha-256 "));
        }
        assert!(serde_json::json!(device).to_string().len() <= limits::DEVICE_BODY_BYTES_MAX);
        let candidates: Vec<&str> = device
            .split("\r\n")
            .filter(|line| line.starts_with("a=candidate:"))
            .collect();
        assert_eq!(candidates.len(), 1);
        assert_eq!(candidates[0].split_ascii_whitespace().nth(4), Some("192.0.2.10"));
    }
    if let Ok(browser) = keep_only_host_candidate(&text, HOST) {
        assert_eq!(keep_only_host_candidate(&browser, HOST).as_ref(), Ok(&browser));
    }
}

/// A candidate that is used reads well to str0m, as the same address, and is no longer than it was.
pub fn candidate(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for loopback_offered in [false, true] {
        let policy = RemotePolicy {
            loopback_offered,
            named_by_operator: loopback_offered,
        };
        if let Ok(usable) = parse_remote(&text, &policy) {
            let read = Candidate::from_sdp_string(&usable.text).expect("str0m reads it");
            assert_eq!(read.addr(), usable.addr);
            assert!(usable.addr.port() != 0 && (loopback_offered || !usable.addr.ip().is_loopback()));
            assert_eq!(parse_remote(&usable.text, &policy), Ok(usable));
        }
    }
}

/// A body that is taken has every string within its cap; an SDP in it is as hostile as any.
pub fn offer_body(bytes: &[u8]) {
    if let Ok(offer) = Offer::parse(bytes) {
        assert!(offer.sdp.len() <= limits::OFFER_SDP_BYTES_MAX);
        assert!(
            offer
                .pc_id
                .is_none_or(|id| !id.is_empty() && id.len() <= limits::PC_ID_BYTES_MAX)
        );
        let _ = prepare_offer(&offer.sdp);
    }
    if let Ok(patch) = Candidates::parse(bytes) {
        assert!(patch.candidates.len() <= limits::CANDIDATES_MAX);
    }
}

/// A frame that is read gives samples for all of its PCM or an error, and means the same once it is written again.
pub fn frames(bytes: &[u8]) {
    match frames::decode(bytes.to_vec().into()) {
        Ok(Frame::Audio { pcm, rate_hz, channels }) => {
            assert!(pcm.len() <= bytes.len());
            let mut heard = vec![0];
            if frames::samples(&pcm, channels, &mut heard).is_err() {
                assert_eq!(heard, [0]);
                return;
            }
            heard.remove(0);
            assert_eq!(heard.len(), pcm.len() / 2 / channels.max(1) as usize);
            if channels <= 1 {
                let again = frames::decode(frames::audio(&heard, rate_hz).into());
                assert_eq!(
                    again,
                    Ok(Frame::Audio {
                        pcm,
                        rate_hz,
                        channels: 1
                    })
                );
            }
        }
        Ok(Frame::Message(text)) => assert_eq!(frames::decode(frames::message(&text).into()), Ok(Frame::Message(text))),
        _ => {}
    }
}

/// A token that is taken is, byte for byte, one that was made here, and is not taken twice. The corpus has some of this key.
pub fn token(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let now = Instant::now();
    let mut tokens = Tokens::new([7; 32], now);
    for family in [Family::Call, Family::Client] {
        if let Ok(claims) = tokens.take(&text, family, now) {
            assert!(text.len() <= limits::TOKEN_BYTES_MAX);
            assert_eq!(tokens.mint(family, &claims.id, now), text);
            assert_eq!(tokens.take(&text, family, now), Err(Refusal::Used));
        }
    }
}

/// Any text can follow a call's start: no more samples come of it than it has bytes, no object ends the call, and what the
/// call is told in turn is JSON of the sizes that its provider takes.
pub fn telephony(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines();
    let Some(mut call) = lines.by_ref().find_map(|line| telephony::detect(line).ok().flatten()) else {
        return;
    };
    assert!(call.stream_id.len().max(call.call_id.len()) <= limits::TELEPHONY_ID_BYTES_MAX);
    assert!(
        ["from", "to"]
            .iter()
            .all(|key| call.data[key].is_string() || call.data[key].is_null())
    );
    assert!(call.data["body"].is_object());
    let (mut pcm, mut line_bytes) = (Vec::new(), 0);
    for line in lines {
        let before = pcm.len();
        line_bytes += line.len();
        match call.read(line, &mut pcm) {
            Ok(Heard::Audio) => assert!(pcm.len() > before),
            Ok(Heard::Dtmf(key)) => assert!("0123456789*#".contains(key)),
            Ok(Heard::Mark(name)) => {
                assert!(name.len() <= limits::MARK_BYTES_MAX);
                assert!(serde_json::from_str::<Value>(&call.mark(&name)).is_ok_and(|mark| mark.is_object()));
            }
            Ok(Heard::Stop | Heard::Nothing) => {}
            Err(_) => assert!(!serde_json::from_str::<Value>(line).is_ok_and(|value| value.is_object())),
        }
        assert!(pcm.len() <= line_bytes);
    }
    assert!(serde_json::from_str::<Value>(&call.clear()).is_ok_and(|clear| clear.is_object()));
    say(&mut call, &pcm);
}

/// What was heard can be said, cut as the provider wants it; provider d, which is told what it tells, hears the same.
fn say(call: &mut Call, heard: &[i16]) {
    let samples = |time: Duration| (time.as_millis() * u128::from(call.tx.rate_hz) / 1_000) as usize;
    let (length, multiple) = (samples(call.chunk().length), samples(call.chunk().multiple));
    for chunk in heard.chunks(length).chain([&[][..]]) {
        let mut chunk = chunk.to_vec();
        chunk.resize(chunk.len().next_multiple_of(multiple), 0);
        let text = call.media(&chunk);
        let message: Value = serde_json::from_str(&text).expect("JSON");
        let payload = message["media"]["payload"].as_str().expect("a payload");
        let bytes = payload.len() / 4 * 3 - payload.matches('=').count();
        if call.provider == Provider::D {
            assert!(bytes.is_multiple_of(320) && bytes <= 100_000 && (bytes >= 3_200 || chunk.len() < length));
            let mut back = Vec::new();
            call.read(&text, &mut back).expect("an object");
            assert_eq!(back, chunk);
        } else {
            assert_eq!(bytes, chunk.len());
        }
    }
}

/// Whatever a media-room server sends, as the first message, as a later one, or as many with their lengths before them: who comes
/// was not there, who goes was, and after a goodbye nothing follows.
pub fn mediaroom_signal(bytes: &[u8]) {
    let mut first = Stay::new();
    first.hear(bytes);
    let mut later = Stay::joined();
    later.hear(bytes);
    let mut many = Stay::joined();
    let mut rest = bytes;
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length)).min(after.len());
        let (message, after) = after.split_at(length);
        many.hear(message);
        many.wait();
        rest = after;
    }
    many.signal.leave();
    many.check();
    assert!(many.over);
}

/// A stay in a room, and what its outputs say of it.
struct Stay {
    signal: Signal,
    now: Instant,
    /// Who is there, and whether they speak.
    present: BTreeMap<Arc<str>, bool>,
    subscribed: BTreeSet<String>,
    over: bool,
}

impl Stay {
    fn new() -> Stay {
        let now = Instant::now();
        Stay {
            signal: Signal::new(now),
            now,
            present: BTreeMap::new(),
            subscribed: BTreeSet::new(),
            over: false,
        }
    }

    /// One that the server let in, with everything asked for that it can answer.
    fn joined() -> Stay {
        let mut stay = Stay::new();
        let mut join = wire::JoinResponse::default();
        let own = wire::ParticipantInfo {
            sid: "PA_own".into(),
            identity: "Agent-1".into(),
            ..Default::default()
        };
        join.participant = Some(own);
        let message = SignalResponse {
            message: Some(wire::Response::Join(Box::new(join))),
        };
        stay.hear(&message.encode_to_vec());
        stay.signal.add_track("cid", "bot-audio");
        stay.signal.offer("v=0".into());
        stay.check();
        assert!(!stay.over);
        stay
    }

    fn hear(&mut self, message: &[u8]) {
        let heard = self.signal.handle_message(message.to_vec().into(), self.now);
        assert!(heard.is_ok() || !self.over);
        self.check();
    }

    fn wait(&mut self) {
        self.now += Duration::from_millis(700);
        self.signal.handle_timeout(self.now, 1_795_252_753_000);
        self.check();
        assert!(
            self.signal
                .poll_timeout()
                .is_none_or(|due| !self.over && due > self.now)
        );
    }

    fn check(&mut self) {
        while let Some(output) = self.signal.poll_output() {
            assert!(!self.over, "{output:?} after the end");
            match output {
                Output::Send(bytes) => self.sent(&bytes),
                Output::ParticipantJoined(who) => {
                    assert!((1..=limits::ROOM_NAME_BYTES_MAX).contains(&who.identity.len()));
                    assert!(who.name.len() <= limits::ROOM_NAME_BYTES_MAX);
                    assert_eq!(self.present.insert(who.identity, false), None);
                }
                Output::ParticipantLeft(who) => assert_eq!(self.present.remove(&who.identity), Some(false)),
                Output::Speaking { identity, speaking } => {
                    assert_eq!(self.present.insert(identity, speaking), Some(!speaking));
                }
                Output::Candidate { candidate, .. } => {
                    assert!((1..=limits::CANDIDATE_BYTES_MAX).contains(&candidate.len()));
                    assert!(!candidate.contains(char::is_control));
                }
                Output::Token(token) => assert!(token.expose().bytes().all(|byte| byte.is_ascii_graphic())),
                Output::Leave { .. } | Output::Silent => self.over = true,
                _ => {}
            }
        }
        assert!(self.present.len() <= limits::ROOM_PARTICIPANTS_MAX && self.signal.callers() <= self.present.len());
        self.subscribed.retain(|sid| self.signal.owner(sid).is_some());
        assert!(self.subscribed.len() <= limits::ROOM_TRACKS_MAX);
        for sid in &self.subscribed {
            let owner = self.signal.owner(sid).expect("kept above");
            assert!(self.present.contains_key(owner));
        }
    }

    fn sent(&mut self, bytes: &[u8]) {
        let request = SignalRequest::decode(bytes).expect("a request");
        match request.message.expect("one that is known") {
            Request::Subscription(subscription) => {
                for sid in subscription.track_sids {
                    assert!(self.signal.owner(&sid).is_some());
                    self.subscribed.insert(sid);
                }
            }
            Request::Leave(_) => self.over = true,
            _ => {}
        }
    }
}

/// A packet of a room's data channel that is read means the same once it is written again.
pub fn mediaroom_data(bytes: &[u8]) {
    if let Ok(packet) = DataPacket::decode(bytes) {
        assert_eq!(DataPacket::decode(&*packet.encode_to_vec()), Ok(packet));
    }
}
