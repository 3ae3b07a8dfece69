//! Properties of the parsers, one function per fuzz target. The replay of the corpus calls the same
//! functions.
//!
//! In: bytes of a peer. A function panics when a property fails: a parser panics, the next parser
//! rejects an output, a second pass changes an output again, or a limit is exceeded.

#[path = "entries/acme.rs"]
pub mod acme;
#[path = "entries/assistants.rs"]
pub mod assistants;
#[path = "entries/call.rs"]
mod call;
#[path = "entries/caller.rs"]
pub mod caller;
#[path = "entries/cloud.rs"]
pub mod cloud;
#[path = "entries/cluster.rs"]
pub mod cluster;
#[path = "entries/configuration.rs"]
pub mod configuration;
#[path = "entries/http.rs"]
pub mod http;
#[path = "entries/local.rs"]
pub mod local;
#[path = "entries/media.rs"]
pub mod media;
#[path = "entries/moq.rs"]
pub mod moq;
#[path = "entries/offers.rs"]
pub mod offers;
#[path = "entries/process.rs"]
pub mod process;
#[path = "entries/providers.rs"]
pub mod providers;
#[path = "entries/quic.rs"]
pub mod quic;
#[path = "entries/records.rs"]
pub mod records;
#[path = "entries/rtvi.rs"]
pub mod rtvi;
#[path = "entries/scenario.rs"]
pub mod scenario;
#[path = "entries/sctp.rs"]
mod sctp;
#[path = "entries/settings.rs"]
pub mod settings;
#[path = "entries/setup.rs"]
pub mod setup;
#[path = "entries/start.rs"]
pub mod start;
#[path = "entries/tools.rs"]
pub mod tools;
#[path = "entries/turn.rs"]
pub mod turn;
#[path = "entries/update.rs"]
pub mod update;
#[path = "entries/webhooks.rs"]
pub mod webhooks;
#[path = "entries/whatsapp.rs"]
pub mod whatsapp;
#[path = "entries/whip.rs"]
pub mod whip;
#[path = "entries/worker.rs"]
pub mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::net::Ipv4Addr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use edge_runner_cloud::io::{dir, extract};
use edge_runner_cloud::proto::api_error::ApiError;
use edge_runner_cloud::proto::build::Slug;
use edge_runner_cloud::proto::grant::{self, GrantTerms};
use edge_runner_cloud::proto::policy::{Policy, PolicyViolation};
use edge_runner_cloud::proto::sign::{GrantSigner, STORE, SigningKey};
use edge_runner_cloud::proto::unpack::{self, ExtractOp, UnpackError, UnpackLimits, UnpackStats, Unpacker};
use edge_runner_cloud::proto::verify::UploadForm;
use edge_runner_proto::bot_message;
use edge_runner_proto::http::token::{Issuer, SocketKind, SocketTokens, TokenError};
use edge_runner_proto::limits;
use edge_runner_proto::livekit::remote_calls::RemoteCalls;
use edge_runner_proto::livekit::roster::{RoomRole, RosterChange};
use edge_runner_proto::livekit::signal::{LeaveAction, SignalClient, SignalOutput};
use edge_runner_proto::livekit::text_stream::TextStreams;
use edge_runner_proto::livekit::wire::{self, DataPacket, DataValue, SignalRequest, SignalRequestKind, SignalResponse};
use edge_runner_proto::server::multipart::{self, MultipartError, MultipartEvent, MultipartParser};
use edge_runner_proto::sockets::frames::{self, ProtobufFrame};
use edge_runner_proto::telephony::{self, PROVIDERS, ProviderInput, TelephonyCall};
use edge_runner_proto::time::RequestTime;
use edge_runner_proto::uuid::Uuid;
use edge_runner_proto::webrtc::candidate::{RemoteCandidatePolicy, parse_remote};
use edge_runner_proto::webrtc::connection::PeerConnection;
use edge_runner_proto::webrtc::offer::{CandidatesBody, OfferBody};
use edge_runner_proto::webrtc::sdp::{DtlsRole, keep_only_host_candidate, prepare_offer, rewrite_answer_for_device};
use prost::Message as _;
use serde_json::Value;
use str0m::Candidate;

const HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);

/// A prepared offer keeps all its sections in the answer.
pub fn sdp_offer(bytes: &[u8]) {
    let Ok(prepared) = prepare_offer(&String::from_utf8_lossy(bytes)) else {
        return;
    };
    // Whole line ends make it longer, by a byte for each line.
    assert!(prepared.sdp.len() <= 2 * limits::OFFER_SDP_BYTES_MAX);
    if prepared.sdp.len() <= limits::OFFER_SDP_BYTES_MAX {
        let again = prepare_offer(&prepared.sdp).expect("a prepared offer is valid");
        // What tells the stacks apart may be in a section that is declined, and so not in it.
        if again.client_stack == prepared.client_stack {
            assert_eq!(again.sdp, prepared.sdp);
        }
        assert!(again.candidates.is_empty());
    }
    assert!(prepared.candidates.len() <= limits::OFFER_CANDIDATES_MAX);
    for text in &prepared.candidates {
        candidate(text.as_bytes());
    }
    let setup = offers::setup(None, Some(offers::DEVICE));
    if let Ok((_, answer)) = PeerConnection::accept(&prepared.sdp, &setup, Instant::now()) {
        let sections = |sdp: &str| sdp.matches("\nm=").count();
        assert_eq!(sections(&answer), sections(&prepared.sdp));
        sdp_answer(answer.as_bytes());
    }
}

/// A valid answer has one host candidate and short lines, and a second pass does not change it.
pub fn sdp_answer(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for role in [DtlsRole::Client, DtlsRole::Server] {
        let Ok(device) = rewrite_answer_for_device(&text, HOST, role) else {
            continue;
        };
        assert_eq!(rewrite_answer_for_device(&device, HOST, role).as_ref(), Ok(&device));
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

/// str0m parses an accepted candidate as the same address, and the text does not grow.
pub fn candidate(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for loopback_offered in [false, true] {
        let policy = RemoteCandidatePolicy {
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

/// Every string of an accepted body is within its limit. Its SDP is untrusted input.
pub fn offer_body(bytes: &[u8]) {
    if let Ok(offer) = OfferBody::parse(bytes) {
        assert!(offer.sdp.len() <= limits::OFFER_SDP_BYTES_MAX);
        assert!(
            offer
                .pc_id
                .is_none_or(|id| !id.is_empty() && id.len() <= limits::PC_ID_BYTES_MAX)
        );
        let _ = prepare_offer(&offer.sdp);
    }
    if let Ok(patch) = CandidatesBody::parse(bytes) {
        assert!(patch.candidates.len() <= limits::CANDIDATES_MAX);
    }
}

/// A decoded frame gives samples for all of its PCM or an error, and encodes back to the same
/// frame.
pub fn frames(bytes: &[u8]) {
    match frames::decode(bytes.to_vec().into()) {
        Ok(ProtobufFrame::Audio { pcm, rate_hz, channels }) => {
            assert!(pcm.len() <= bytes.len());
            let mut received = vec![0];
            if frames::samples(&pcm, channels, &mut received).is_err() {
                assert_eq!(received, [0]);
                return;
            }
            received.remove(0);
            assert_eq!(received.len(), pcm.len() / 2 / channels.max(1) as usize);
            if channels <= 1 {
                let again = frames::decode(frames::audio(&received, rate_hz).into());
                assert_eq!(
                    again,
                    Ok(ProtobufFrame::Audio {
                        pcm,
                        rate_hz,
                        channels: 1
                    })
                );
            }
        }
        Ok(ProtobufFrame::Message(text)) => assert_eq!(
            frames::decode(frames::message(&text).into()),
            Ok(ProtobufFrame::Message(text))
        ),
        _ => {}
    }
}

/// A valid token equals one that was minted here, byte for byte, and can be redeemed once. The
/// corpus contains tokens of this key.
pub fn token(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let now = Instant::now();
    let mut tokens = SocketTokens::new([7; 32], now);
    let now = RequestTime { now, unix_s: 0 };
    let made = [SocketKind::Call, SocketKind::Client].map(|family| tokens.mint(family, TOKEN_ID, Issuer::Anyone, now));
    for family in [SocketKind::Call, SocketKind::Client] {
        if let Ok(unused) = tokens.verify(&text, family, now) {
            unused.redeem();
            assert!(made.iter().any(|made| *made == text));
            assert_eq!(tokens.verify(&text, family, now).err(), Some(TokenError::Used));
        }
    }
}

/// The id of the tokens in the corpus.
const TOKEN_ID: &str = "056305c4-5f0e-4f3c-9d7e-6c1f0a2b3c4d";

/// Any text may follow the start of a call: it yields no more samples than it has bytes, no JSON
/// object is unreadable, and replies are JSON of the sizes that the provider accepts.
pub fn telephony(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines();
    let Some(mut call) = lines
        .by_ref()
        .find_map(|line| telephony::detect(&PROVIDERS, line).ok().flatten())
    else {
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
            Ok(ProviderInput::Audio) => assert!(pcm.len() > before),
            Ok(ProviderInput::Dtmf(key)) => assert!("0123456789*#".contains(key)),
            Ok(ProviderInput::Mark(name)) => {
                assert!(name.len() <= limits::MARK_BYTES_MAX);
                assert!(serde_json::from_str::<Value>(&call.mark(&name)).is_ok_and(|mark| mark.is_object()));
            }
            Ok(ProviderInput::Stop | ProviderInput::Nothing) => {}
            Err(_) => assert!(!serde_json::from_str::<Value>(line).is_ok_and(|value| value.is_object())),
        }
        assert!(pcm.len() <= line_bytes);
    }
    assert!(serde_json::from_str::<Value>(&call.clear()).is_ok_and(|clear| clear.is_object()));
    encode_audio(&mut call, &pcm);
}

/// Encodes the received audio in chunks of the provider; Exotel's own messages decode to the same
/// audio.
fn encode_audio(call: &mut TelephonyCall, received: &[i16]) {
    let samples = |time: Duration| (time.as_millis() * u128::from(call.tx.rate_hz) / 1_000) as usize;
    let (length, multiple) = (samples(call.chunk().length), samples(call.chunk().multiple));
    for chunk in received.chunks(length).chain([&[][..]]) {
        let mut chunk = chunk.to_vec();
        chunk.resize(chunk.len().next_multiple_of(multiple), 0);
        let text = call.media(&chunk);
        let message: Value = serde_json::from_str(&text).expect("JSON");
        let payload = message["media"]["payload"].as_str().expect("a payload");
        let bytes = payload.len() / 4 * 3 - payload.matches('=').count();
        if call.provider.name == "exotel" {
            assert!(bytes.is_multiple_of(320) && bytes <= 100_000 && (bytes >= 3_200 || chunk.len() < length));
            let mut back = Vec::new();
            call.read(&text, &mut back).expect("an object");
            assert_eq!(back, chunk);
        } else {
            assert_eq!(bytes, chunk.len());
        }
    }
}

/// Any messages of a LiveKit server, as the first message, as a later one, or as a sequence with
/// length prefixes. A participant joins only when absent and leaves only when present. Nothing
/// follows a leave, and only our own leave follows the loss of a connection that may be resumed.
pub fn livekit_signal(bytes: &[u8]) {
    let mut first = SignalHarness::new();
    first.handle(bytes);
    let mut later = SignalHarness::joined();
    later.handle(bytes);
    let mut many = SignalHarness::joined();
    let mut rest = bytes;
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length)).min(after.len());
        let (message, after) = after.split_at(length);
        many.handle(message);
        many.advance();
        rest = after;
    }
    many.signal.leave();
    many.check();
    assert!(many.left);
}

/// A signalling client and the state that its outputs describe.
struct SignalHarness {
    signal: SignalClient,
    now: Instant,
    /// Participants, and whether each speaks.
    present: BTreeMap<Arc<str>, bool>,
    subscribed: BTreeSet<String>,
    suspended: bool,
    left: bool,
}

impl SignalHarness {
    fn new() -> SignalHarness {
        let now = Instant::now();
        SignalHarness {
            signal: SignalClient::new(RoomRole::Bot, now),
            now,
            present: BTreeMap::new(),
            subscribed: BTreeSet::new(),
            suspended: false,
            left: false,
        }
    }

    /// Joins, with a track and an offer pending.
    fn joined() -> SignalHarness {
        let mut harness = SignalHarness::new();
        let mut join = wire::JoinResponse::default();
        let own = wire::ParticipantInfo {
            sid: "PA_own".into(),
            identity: "Agent-1".into(),
            ..Default::default()
        };
        join.participant = Some(own);
        let message = SignalResponse {
            message: Some(wire::ServerMessage::Join(Box::new(join))),
        };
        harness.handle(&message.encode_to_vec());
        harness.signal.add_track("cid", "bot-audio");
        harness.signal.offer("v=0".into());
        harness.check();
        assert!(!harness.left);
        harness
    }

    fn handle(&mut self, message: &[u8]) {
        let handled = self.signal.handle_message(message.to_vec().into(), self.now);
        assert!(handled.is_ok() || self.is_up());
        self.check();
    }

    fn advance(&mut self) {
        self.now += Duration::from_millis(700);
        self.signal.handle_timeout(self.now, 1_795_252_753_000);
        self.check();
        assert!(
            self.signal
                .poll_timeout()
                .is_none_or(|due| self.is_up() && due > self.now)
        );
    }

    fn is_up(&self) -> bool {
        !self.suspended && !self.left
    }

    fn check(&mut self) {
        while let Some(output) = self.signal.poll_output() {
            assert!(!self.left, "{output:?} after the end");
            assert!(
                !self.suspended || matches!(output, SignalOutput::Send(_)),
                "{output:?} without a connection"
            );
            match output {
                SignalOutput::Send(bytes) => self.handle_request(&bytes),
                SignalOutput::Change(RosterChange::Joined(who)) => {
                    assert!((1..=limits::ROOM_NAME_BYTES_MAX).contains(&who.identity.len()));
                    assert!(who.name.len() <= limits::ROOM_NAME_BYTES_MAX);
                    assert_eq!(self.present.insert(who.identity, false), None);
                }
                SignalOutput::Change(RosterChange::Left(who)) => {
                    assert_eq!(self.present.remove(&who.identity), Some(false))
                }
                SignalOutput::Change(RosterChange::Speaking { identity, speaking }) => {
                    assert_eq!(self.present.insert(identity, speaking), Some(!speaking));
                }
                SignalOutput::Candidate { candidate, .. } => {
                    assert!((1..=limits::CANDIDATE_BYTES_MAX).contains(&candidate.len()));
                    assert!(!candidate.contains(char::is_control));
                }
                SignalOutput::Token(token) => assert!(token.expose().bytes().all(|byte| byte.is_ascii_graphic())),
                SignalOutput::PingTimeout
                | SignalOutput::Leave {
                    action: LeaveAction::Resume,
                    ..
                } => self.suspended = true,
                SignalOutput::Leave { .. } => self.left = true,
                _ => {}
            }
        }
        assert!(self.present.len() <= limits::ROOM_PARTICIPANTS_MAX && self.signal.callers() <= self.present.len());
        self.subscribed.retain(|sid| self.signal.track_owner(sid).is_some());
        assert!(self.subscribed.len() <= limits::ROOM_TRACKS_MAX);
        for sid in &self.subscribed {
            let owner = self.signal.track_owner(sid).expect("kept above");
            assert!(self.present.contains_key(owner));
        }
    }

    fn handle_request(&mut self, bytes: &[u8]) {
        let request = SignalRequest::decode(bytes).expect("a request");
        let message = request.message.expect("one that is known");
        assert!(!self.suspended || matches!(message, SignalRequestKind::Leave(_)));
        match message {
            SignalRequestKind::Subscription(subscription) => {
                for sid in subscription.track_sids {
                    assert!(self.signal.track_owner(&sid).is_some());
                    self.subscribed.insert(sid);
                }
            }
            SignalRequestKind::Leave(_) => self.left = true,
            _ => {}
        }
    }
}

/// A decoded data packet encodes back to the same packet. Packets of several participants, one
/// after the other, make no text that is too long and no more than one answer to each call. The
/// bytes are also a message of the bot.
pub fn livekit_data(bytes: &[u8]) {
    if let Ok(packet) = DataPacket::decode(bytes) {
        assert_eq!(DataPacket::decode(&*packet.encode_to_vec()), Ok(packet));
    }
    bot_message::read(&String::from_utf8_lossy(bytes));
    let (mut streams, mut calls) = (TextStreams::default(), RemoteCalls::default());
    let mut now = Instant::now();
    let mut rest = bytes;
    // One byte says who sends the next packet and when, another one how long it is.
    while let [who, length, tail @ ..] = rest {
        let (packet, tail) = tail.split_at(tail.len().min(usize::from(*length)));
        rest = tail;
        now += Duration::from_millis(100 * u64::from(who >> 2));
        let identity = ["ann", "bob", "eve", ""][usize::from(who & 3)];
        match DataPacket::decode(packet).ok().and_then(|packet| packet.value) {
            Some(DataValue::StreamHeader(header)) => streams.handle_header(identity, &header, now),
            Some(DataValue::StreamChunk(chunk)) => streams.handle_chunk(identity, &chunk, now),
            Some(DataValue::StreamTrailer(trailer)) => {
                let text = streams.handle_trailer(identity, &trailer, now).unwrap_or_default();
                assert!(text.len() <= limits::ROOM_STREAM_BYTES_MAX);
            }
            Some(DataValue::RpcRequest(request)) => {
                let start = calls.handle_request(identity, request, now);
                let (answers, is_passed) = (start.packets.len(), start.message.is_some());
                assert!(
                    matches!((answers, is_passed), (0, false) | (1, true) | (2, false)),
                    "{answers}"
                );
                assert!(calls.handle_timeout(now).len() <= limits::ROOM_CALLS_MAX);
            }
            _ => {}
        }
    }
}

/// The chunking of a body does not matter; all output occurs in the input; an accepted form encodes
/// back to the same form. The boundary is `B`. The bytes are also parsed as the value of a
/// `Content-Type`.
pub fn multipart(bytes: &[u8]) {
    if let Some(boundary) = multipart::boundary(bytes) {
        assert!((1..=limits::BOUNDARY_BYTES_MAX).contains(&boundary.len()) && !boundary.contains('\r'));
    }
    let whole = ParsedForm::read([bytes]);
    assert_eq!(ParsedForm::read(bytes.chunks(1)), whole);
    for size in [2, 3, 5, 64, 1_000] {
        assert_eq!(ParsedForm::read(bytes.chunks(size)), whole);
    }
    let field_bytes: usize = whole.fields.iter().map(|(name, value)| name.len() + value.len()).sum();
    assert!(field_bytes <= limits::FIELDS_BYTES_MAX);
    let file = whole.file.as_deref().unwrap_or_default();
    assert!(field_bytes + file.len() <= bytes.len());
    assert!(file.is_empty() || bytes.windows(file.len()).any(|window| window == file));
    assert!(bytes.len() - file.len() <= limits::FRAME_BYTES_MAX || whole.outcome.is_err());
    if whole.outcome.is_ok() {
        assert!(whole.ended && whole.file.is_some());
        let again = whole.encode();
        if again.len() - file.len() <= limits::FRAME_BYTES_MAX {
            assert_eq!(ParsedForm::read([&again[..]]), whole);
        }
    }
}

/// The content of a form.
#[derive(Debug, PartialEq, Eq)]
struct ParsedForm {
    fields: Vec<(String, Vec<u8>)>,
    file: Option<Vec<u8>>,
    ended: bool,
    outcome: Result<(), MultipartError>,
}

impl ParsedForm {
    fn read<'b>(pieces: impl IntoIterator<Item = &'b [u8]>) -> ParsedForm {
        let mut form = ParsedForm {
            fields: Vec::new(),
            file: None,
            ended: false,
            outcome: Ok(()),
        };
        let mut parser = MultipartParser::new("B");
        for piece in pieces {
            form.outcome = parser.push(piece, &mut |event| {
                assert!(!form.ended);
                match event {
                    MultipartEvent::Field { name, value } => {
                        assert!(form.file.is_none() && name != "file");
                        form.fields.push((name.to_owned(), value.to_vec()));
                    }
                    MultipartEvent::File => assert_eq!(form.file.replace(Vec::new()), None),
                    MultipartEvent::Data(data) => form.file.as_mut().expect("it began").extend_from_slice(data),
                    MultipartEvent::FileEnd => assert!(form.file.is_some()),
                    MultipartEvent::End => form.ended = true,
                }
                Ok(())
            });
            if form.outcome.is_err() {
                return form;
            }
        }
        form.outcome = parser.finish();
        form
    }

    fn encode(&self) -> Vec<u8> {
        let file = ("file".to_owned(), self.file.clone().expect("a whole form has one"));
        let mut body = Vec::new();
        for (name, value) in self.fields.iter().chain([&file]) {
            let name = name.replace('\\', "\\\\").replace('"', "\\\"");
            let head = format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
            body.extend([head.as_bytes(), value, b"\r\n"].concat());
        }
        body.extend(b"--B--");
        body
    }
}

/// A valid policy accepts the form that it describes, rejects that form with a field less or more,
/// and needs a valid signature. The input is the document, and as raw bytes also its base64 text.
pub fn policy(bytes: &[u8]) {
    let _ = Policy::parse(bytes);
    let text = BASE64.encode(bytes);
    let read = Policy::parse(text.as_bytes());
    let signing = GrantSigner::Fixed(SigningKey {
        id: "SK1".into(),
        secret: b"secret".to_vec(),
    });
    assert_eq!(verify_form(&signing, &text, "0").code, "SignatureDoesNotMatch");
    let signature = STORE.sign(b"secret", "19700101", "us-west", text.as_bytes());
    let refused = verify_form(&signing, &text, &signature);
    assert_eq!(refused.code == "InvalidPolicyDocument", read.is_err());
    let Ok(policy) = read else {
        return;
    };
    let document: Value = serde_json::from_slice(bytes).expect("it was read");
    let mut form: Vec<(String, String)> = Vec::new();
    for condition in document["conditions"].as_array().expect("it was read") {
        let (field, value) = match condition {
            Value::Object(exact) => exact
                .iter()
                .next()
                .map(|(field, value)| (field.clone(), value))
                .expect("one"),
            range if range[0] == "content-length-range" => continue,
            other => (other[1].as_str().expect("text")[1..].to_owned(), &other[2]),
        };
        form.push((field, value.as_str().expect("text").to_owned()));
    }
    let names: BTreeSet<&String> = form.iter().map(|(name, _)| name).collect();
    if names.len() < form.len() {
        return;
    }
    let size = policy.check(&form).expect("the form that it describes");
    assert!(size.0 <= size.1);
    for at in 0..form.len() {
        let mut less = form.clone();
        let (field, _) = less.remove(at);
        assert!(matches!(policy.check(&less), Err(PolicyViolation::Condition { field: unmet, .. }) if unmet == field));
    }
    let mut extra = "extra".to_owned();
    while names.contains(&extra) {
        extra.push('x');
    }
    let more = [&form[..], &[(extra.clone(), String::new())]].concat();
    assert_eq!(policy.check(&more), Err(PolicyViolation::ExtraField(extra)));
}

/// Verifies the form of a grant with another policy. The token has expired, so the form is never
/// accepted.
fn verify_form(signing: &GrantSigner, policy: &str, signature: &str) -> ApiError {
    let name = Slug::parse("us-west").expect("a name");
    let terms = GrantTerms {
        org: &name,
        upload: Uuid::v4([7; 16]),
        region: &name,
        url: "",
        size_max: 1,
        expires_ms: 1,
    };
    let mut fields = grant::issue(signing, &terms, 0).upload_fields;
    fields.policy = policy.into();
    fields.signature = signature.into();
    let mut form = UploadForm::default();
    let fields = serde_json::to_value(&fields).expect("JSON");
    for (name, value) in fields.as_object().expect("an object") {
        let value = value.as_str().expect("text");
        form.add(name, value.as_bytes()).expect("no field is there twice");
    }
    form.verify(signing, 1).expect_err("the token is expired")
}

/// The chunking of an archive does not matter. No entry is created outside the folder, no link of
/// an accepted archive leads outside, and the files on disk match the entries. Header checksums are
/// corrected first, so that a changed byte reaches the later checks. Input with a gzip header is
/// used as it is.
pub fn tar_entries(bytes: &[u8]) {
    let packed = match bytes {
        [0x1f, 0x8b, ..] => bytes.to_vec(),
        _ => gzip_stored(&correct_checksums(bytes)),
    };
    let expected = list_ops(&packed, packed.len().max(1));
    for size in [7, 300] {
        let again = list_ops(&packed, size);
        match (&expected.1, &again.1) {
            // The chunking decides how much data precedes the detection of broken gzip data.
            (Err(unpack::ArchiveError::Gzip(_)), Err(_)) | (Err(_), Err(unpack::ArchiveError::Gzip(_))) => {}
            _ => assert_eq!(expected, again),
        }
    }
    let root = TestDir::create();
    let context = root.0.join("context");
    let taken = extract::extract(&mut &packed[..], &context, LIMITS, "f", &|| false);
    let around = fs::read_dir(&root.0).expect("a folder").count();
    let witness = root.0.join("witness");
    assert_eq!((around, fs::read(&witness).expect("a file")), (2, b"witness".to_vec()));
    assert_eq!(fs::metadata(&witness).expect("a file").nlink(), 1);
    let found = walk(&context);
    assert!(found.len() as u64 <= LIMITS.entries_max);
    match taken {
        Ok(sum) => {
            assert_eq!(expected.1, Ok(sum));
            let named: BTreeSet<PathBuf> = expected.0.iter().map(|op| context.join(path_of(op))).collect();
            assert_eq!(found, named);
            let bytes: u64 = found.iter().map(|path| size_of_file(path)).sum();
            assert!(bytes <= LIMITS.bytes_max && sum.bytes <= LIMITS.bytes_max);
            for path in &found {
                // A dangling link is allowed; every other link resolves to a path inside.
                assert!(fs::canonicalize(path).map_or(true, |to| to.starts_with(&context)));
            }
            assert!(fs::metadata(context.join("f")).expect("it was looked for").is_file());
        }
        Err(extract::ExtractError::Refused(refusal)) => {
            let text = refusal.to_string();
            assert!(
                text.chars().count() < 1_000 && !text.contains(char::is_control),
                "{text:?}"
            );
            assert!(expected.1.is_err());
        }
        Err(other) => panic!("{other}"),
    }
}

const LIMITS: UnpackLimits = UnpackLimits {
    bytes_max: 256 * 1024,
    entries_max: 300,
};

/// Returns the operations and the result of an archive that arrives in chunks of `size` bytes.
fn list_ops(packed: &[u8], size: usize) -> (Vec<ExtractOp>, Result<UnpackStats, unpack::ArchiveError>) {
    let mut ops = Vec::new();
    let ended = read_ops(ChunkReader(packed, size), &mut ops);
    let sum = ended.map_err(|failure| match failure {
        UnpackError::Refused(refusal) => refusal,
        UnpackError::Read(error) => panic!("memory does not fail: {error}"),
    });
    (ops, sum)
}

fn read_ops(chunks: ChunkReader, ops: &mut Vec<ExtractOp>) -> Result<UnpackStats, UnpackError> {
    let mut unpacker = Unpacker::new(chunks, LIMITS)?;
    let mut data = [0; 1000];
    while let Some(op) = unpacker.next_op()? {
        let mut owed = 0;
        if let ExtractOp::File { size, mode, .. } = op {
            assert_eq!(mode & !0o777, 0);
            owed = size;
        }
        ops.push(op);
        loop {
            match unpacker.read(&mut data)? {
                0 => break,
                count => owed -= count as u64,
            }
        }
        assert_eq!(owed, 0);
    }
    unpacker.finish("f")
}

/// A reader that returns at most this many bytes per read.
struct ChunkReader<'a>(&'a [u8], usize);

impl Read for ChunkReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let room = into.len().min(self.1);
        self.0.read(&mut into[..room])
    }
}

fn path_of(op: &ExtractOp) -> &Path {
    use std::os::unix::ffi::OsStrExt as _;
    let (ExtractOp::Dir { path, .. }
    | ExtractOp::File { path, .. }
    | ExtractOp::Symlink { path, .. }
    | ExtractOp::HardLink { path, .. }) = op;
    assert!(
        !path
            .split(|&byte| byte == b'/')
            .any(|part| matches!(part, b"" | b"." | b".."))
    );
    Path::new(std::ffi::OsStr::from_bytes(path))
}

fn size_of_file(path: &Path) -> u64 {
    let found = fs::symlink_metadata(path).expect("it was there");
    // Every hard link of the file is in the list.
    if found.is_file() {
        found.len() / found.nlink()
    } else {
        0
    }
}

/// Returns all paths below a folder, without following links. Fails on anything but files, folders
/// and links.
fn walk(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut due = vec![folder.to_owned()];
    while let Some(folder) = due.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let metadata = fs::symlink_metadata(&path).expect("it was there");
            let kind = metadata.file_type();
            assert!(kind.is_file() || kind.is_dir() || kind.is_symlink());
            assert!(kind.is_symlink() || metadata.permissions().mode() & 0o7000 == 0);
            if kind.is_dir() {
                due.push(path.clone());
            }
            found.insert(path);
        }
    }
    found
}

/// A folder with an empty one for the context, and a file beside it that must not change.
struct TestDir(PathBuf);

impl TestDir {
    fn create() -> TestDir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("edge-runner-tar-{}-{count}", std::process::id());
        let path = std::env::temp_dir().canonicalize().expect("it is there").join(name);
        fs::create_dir_all(path.join("context")).expect("a folder");
        fs::write(path.join("witness"), "witness").expect("a file");
        TestDir(path)
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        dir::remove_tree(&self.0).expect("it can be removed");
    }
}

/// Corrects the checksum of each header.
fn correct_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut plain = bytes.to_vec();
    let mut at = 0;
    while let Some(block) = plain.get_mut(at..at + 512) {
        if block.iter().all(|&byte| byte == 0) {
            break;
        }
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let digits = block[124..136].iter().filter(|byte| (b'0'..b'8').contains(byte));
        let size = digits.fold(0_u64, |size, digit| size << 3 | u64::from(digit - b'0'));
        let follows = matches!(block[156], 0 | b'0' | b'7' | b'x' | b'g' | b'L' | b'K');
        let size = if follows { size.min(1 << 20) as usize } else { 0 };
        at += 512 + size.next_multiple_of(512);
    }
    plain
}

/// Returns gzip data of uncompressed blocks.
fn gzip_stored(plain: &[u8]) -> Vec<u8> {
    let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    for block in plain.chunks(0xffff) {
        packed.push(0);
        packed.extend((block.len() as u16).to_le_bytes());
        packed.extend((!(block.len() as u16)).to_le_bytes());
        packed.extend(block);
    }
    packed.extend([1, 0, 0, 0xff, 0xff]);
    let crc = plain.iter().fold(!0_u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            crc >> 1 ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    });
    packed.extend((!crc).to_le_bytes());
    packed.extend((plain.len() as u32).to_le_bytes());
    packed
}
