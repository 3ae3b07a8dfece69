//! A simulated WhatsApp provider: signed webhooks, the Graph API, and the media server of a call.
//!
//! [`Graph`] records and checks each request, and answers by a script. [`Phone`] is the media
//! server of one call: ICE-lite, on str0m, with an offer of the documented shape. It fails the test
//! on media before the accept, on a check that is unsigned or not from the controlling agent, and
//! on a handshake that it would have to start. [`Phone::post`] signs its webhooks.

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use data_encoding::HEXLOWER;
use edge_runner_proto::webrtc::crypto;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha1::Sha1;
use sha2::Sha256;
use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::format::{Codec, FormatParams};
use str0m::media::{Direction, Frequency, MediaKind, Mid, Pt};
use str0m::net::{Protocol, Receive};
use str0m::rtp::RtpWrite;
use str0m::{Candidate, Event, Input, Output, Rtc};

use super::http::{self, Reply};
use super::rest::{Rest, ScriptedAnswer};
use super::runner::{PATIENCE, TestRunner};

pub const TOKEN: &str = "EAAG-canary-token-5101";
pub const APP_SECRET: &str = "canary-secret-5102";
pub const WORD: &str = "canary-word-5103";
pub const NUMBER_ID: &str = "1060000001";
pub const FROM: &str = "15550001111";
pub const NAME: &str = "Canary Zo\u{eb}";
const DONE: &str = r#"{"messaging_product":"whatsapp","success":true}"#;
const OFFER: &str = include_str!("../data/sdp/whatsapp.offer.sdp");
/// 20 ms of silence in Opus, RFC 6716 section 3.1.
const SILENCE: [u8; 3] = [0xf8, 0xff, 0xfe];
const FRAME: Duration = Duration::from_millis(20);

/// The variables of a runner for this provider.
pub fn variables(graph: &Graph) -> Vec<(&'static str, String)> {
    vec![
        ("MESSAGING_TOKEN", TOKEN.to_owned()),
        ("MESSAGING_PHONE_NUMBER_ID", NUMBER_ID.to_owned()),
        ("MESSAGING_APP_SECRET", APP_SECRET.to_owned()),
        ("MESSAGING_WEBHOOK_VERIFICATION_TOKEN", WORD.to_owned()),
        ("MESSAGING_API_URL", format!("{}/v23.0", graph.rest.url())),
    ]
}

/// Starts a runner for this provider, with all log levels.
pub fn runner(graph: &Graph, options: &[&str]) -> TestRunner {
    let variables = variables(graph);
    let mut variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    variables.push(("RUST_LOG", "trace"));
    TestRunner::start_with(&[&["--messaging"], options].concat(), &variables)
}

/// The Graph API.
pub struct Graph {
    rest: Rest,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// Action and call of each request, in order.
    asked: Vec<(String, String)>,
    answers: HashMap<String, String>,
    accepted: HashSet<String>,
    faults: Vec<String>,
}

impl Graph {
    /// Starts an API that accepts every request.
    pub fn kind() -> Self {
        Graph::playing(|_, _| done())
    }

    /// Starts an API that answers by the action and its number of earlier requests.
    pub fn playing(script: impl Fn(&str, usize) -> ScriptedAnswer + Send + 'static) -> Self {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let kept = seen.clone();
        let rest = Rest::playing(move |_, asked| {
            let body: Value = serde_json::from_str(&asked.body).unwrap_or_default();
            let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
            let (action, call_id) = (text("action"), text("call_id"));
            let before = {
                let mut seen = kept.lock().expect("no holder panics");
                let mut fault = |holds: bool, what: &str| {
                    if !holds {
                        seen.faults.push(format!("{action} of {call_id}: {what}"));
                    }
                };
                fault(asked.method == "POST", "method");
                fault(asked.target == format!("/v23.0/{NUMBER_ID}/calls"), "path");
                fault(
                    asked.header("authorization") == Some(&format!("Bearer {TOKEN}")),
                    "bearer",
                );
                fault(asked.header("content-type") == Some("application/json"), "content type");
                fault(text("messaging_product") == "whatsapp", "product");
                let session = &body["session"];
                let sdp = session["sdp"].as_str().unwrap_or_default().to_owned();
                let (names, has_session) = match action.as_str() {
                    "pre_accept" | "accept" => (4, true),
                    _ => (3, false),
                };
                fault(body.as_object().is_some_and(|map| map.len() == names), "members");
                fault(has_session == (session["sdp_type"] == "answer"), "session");
                if has_session {
                    let known = seen.answers.entry(call_id.clone()).or_insert_with(|| sdp.clone());
                    let same = *known == sdp;
                    if !same {
                        seen.faults.push(format!("{action} of {call_id}: another SDP"));
                    }
                }
                let before = seen.asked.iter().filter(|(known, _)| *known == action).count();
                seen.asked.push((action.clone(), call_id.clone()));
                before
            };
            let says = script(&action, before);
            if action == "accept" && matches!(&says, ScriptedAnswer::Json(200, body) if body == DONE) {
                kept.lock().expect("no holder panics").accepted.insert(call_id);
            }
            says
        });
        Graph { rest, seen }
    }

    /// Returns the actions of a call in order, and fails the test on a malformed request.
    pub fn asked(&self, call_id: &str) -> Vec<String> {
        let seen = self.seen.lock().expect("no holder panics");
        assert!(seen.faults.is_empty(), "{:?}", seen.faults);
        let of_call = seen.asked.iter().filter(|(_, id)| id == call_id);
        of_call.map(|(action, _)| action.clone()).collect()
    }

    /// Waits for this many actions of a call, and returns them.
    pub fn wait_for(&self, call_id: &str, wanted: &[&str]) {
        let began = Instant::now();
        while self.asked(call_id) != wanted {
            let asked = self.asked(call_id);
            assert!(began.elapsed() < PATIENCE, "{asked:?} in place of {wanted:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the SDP answer of a call.
    pub fn answer(&self, call_id: &str) -> Option<String> {
        self.seen
            .lock()
            .expect("no holder panics")
            .answers
            .get(call_id)
            .cloned()
    }

    fn has_accepted(&self, call_id: &str) -> bool {
        self.seen.lock().expect("no holder panics").accepted.contains(call_id)
    }
}

pub fn done() -> ScriptedAnswer {
    ScriptedAnswer::Json(200, DONE.to_owned())
}

pub fn failed(status: u16, code: i64) -> ScriptedAnswer {
    let error = json!({"error": {"message": "no", "type": "OAuthException", "code": code, "fbtrace_id": "AbC"}});
    ScriptedAnswer::Json(status, error.to_string())
}

/// Returns the signature header of a body.
pub fn signature(secret: &str, body: &[u8]) -> String {
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key");
    let mac = mac.chain_update(body).finalize().into_bytes();
    format!("X-Hub-Signature-256: sha256={}", HEXLOWER.encode(&mac))
}

/// Posts a signed webhook.
pub fn post(runner: &TestRunner, body: &[u8]) -> Reply {
    let signature = signature(APP_SECRET, body);
    http::request(
        runner.addr,
        "POST",
        "/messaging",
        &["Content-Type: application/json", &signature],
        body,
    )
    .expect("the runner answers")
}

/// Creates a webhook of calls.
pub fn webhook(calls: &[Value]) -> Vec<u8> {
    let value = json!({
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": "15550002222", "phone_number_id": NUMBER_ID},
        "contacts": [{"profile": {"name": NAME}, "wa_id": FROM}],
        "calls": calls,
    });
    let changes = json!([{"field": "calls", "value": value}]);
    let webhook = json!({"object": "whatsapp_business_account", "entry": [{"id": "102", "changes": changes}]});
    webhook.to_string().into_bytes()
}

/// The member `calls` for a call that began this many seconds ago.
pub fn connect(call_id: &str, offer: &str, age_s: u64) -> Value {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("a clock");
    json!({
        "id": call_id, "from": FROM, "to": "15550002222", "event": "connect", "direction": "USER_INITIATED",
        "timestamp": (now.as_secs() - age_s).to_string(), "session": {"sdp_type": "offer", "sdp": offer},
    })
}

/// The same for a call that has ended.
pub fn terminate(call_id: &str) -> Value {
    json!({
        "id": call_id, "from": FROM, "to": "15550002222", "event": "terminate", "direction": "USER_INITIATED",
        "timestamp": "1795252811", "status": "COMPLETED",
    })
}

/// The media server of one call.
pub struct Phone {
    pub call_id: String,
    pub offer: String,
    rtc: Rtc,
    socket: UdpSocket,
    here: SocketAddr,
    mid: Mid,
    pending: Option<SdpPendingOffer>,
    password: String,
    sequence: u64,
    ticks: u32,
    due: Instant,
    pub is_secured: bool,
    /// RTP packets of the runner.
    pub received: usize,
    /// Whether DTLS records arrived, so the runner began.
    greeted: bool,
    pub checks: usize,
}

impl Phone {
    pub fn new(call_id: &str) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let here = socket.local_addr().expect("it is bound");
        let mut config = Rtc::builder()
            .set_crypto_provider(Arc::new(crypto::provider()))
            .set_dtls_cert(crypto::certificate().expect("a certificate").clone())
            .set_rtp_mode(true)
            .set_ice_lite(true)
            .clear_codecs()
            .enable_opus(true, false);
        let keys: Pt = 126.into();
        let format = FormatParams::default();
        let codecs = config.codec_config();
        codecs.add_config(keys, None, Codec::Tele, Frequency::EIGHT_KHZ, None, format);
        let mut rtc = config.build(Instant::now());
        rtc.add_local_candidate(Candidate::host(here, Protocol::Udp).expect("an address"));
        let mut api = rtc.sdp_api();
        let mid = api.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        let (made, pending) = api.apply().expect("something is offered");
        let made = made.to_sdp_string();
        let of = |name: &str| {
            let line = made.lines().find(|line| line.starts_with(name));
            line.unwrap_or_else(|| panic!("no {name} in {made}")).to_owned()
        };
        assert!(made.contains("a=ice-lite"), "{made}");
        let password = of("a=ice-pwd:")["a=ice-pwd:".len()..].to_owned();
        let candidate = format!(
            "a=candidate:1 1 udp 2113937151 {} {} typ host generation 0",
            here.ip(),
            here.port()
        );
        let mut offer = String::new();
        let mut has_candidate = false;
        for line in OFFER.lines() {
            let line = match line.split_once(':').map_or(line, |(name, _)| name) {
                "a=candidate" if has_candidate => continue,
                "a=candidate" => {
                    has_candidate = true;
                    candidate.clone()
                }
                "a=ice-ufrag" => of("a=ice-ufrag:"),
                "a=ice-pwd" => of("a=ice-pwd:"),
                "a=fingerprint" => of("a=fingerprint:"),
                "a=ssrc" => of("a=ssrc:"),
                _ => line.to_owned(),
            };
            offer.push_str(&line);
            offer.push_str("\r\n");
        }
        Phone {
            call_id: call_id.to_owned(),
            offer,
            rtc,
            socket,
            here,
            mid,
            pending: Some(pending),
            password,
            sequence: 1,
            ticks: 960,
            due: Instant::now(),
            is_secured: false,
            received: 0,
            greeted: false,
            checks: 0,
        }
    }

    /// Posts the webhook of an incoming call, and connects its media.
    pub fn call(runner: &TestRunner, call_id: &str) -> Self {
        let phone = Phone::new(call_id);
        let reply = phone.connect(runner);
        assert_eq!((reply.status, reply.text().as_str()), (200, r#"{"status":"success"}"#));
        phone
    }

    /// Posts the webhook of the call's beginning.
    pub fn connect(&self, runner: &TestRunner) -> Reply {
        post(runner, &webhook(&[connect(&self.call_id, &self.offer, 0)]))
    }

    /// Posts the webhook of its end.
    pub fn hang_up(&self, runner: &TestRunner) -> Reply {
        post(runner, &webhook(&[terminate(&self.call_id)]))
    }

    /// Runs until `done`, or fails the test.
    pub fn until(&mut self, graph: &Graph, wanted: &str, done: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !done(self) {
            assert!(
                began.elapsed() < PATIENCE,
                "{wanted} never came; {} heard",
                self.received
            );
            self.live(graph);
        }
    }

    /// Runs one step of at most 20 ms.
    pub fn live(&mut self, graph: &Graph) {
        if let Some(answer) = graph.answer(&self.call_id).filter(|_| self.pending.is_some()) {
            self.take_answer(&answer);
        }
        let until = self.turn(graph.has_accepted(&self.call_id));
        let wait = until.saturating_duration_since(Instant::now());
        let wait = wait.clamp(Duration::from_millis(1), FRAME);
        self.socket.set_read_timeout(Some(wait)).expect("a socket");
        let mut buffer = [0; 2_000];
        if let Ok((length, source)) = self.socket.recv_from(&mut buffer) {
            self.take(&buffer[..length], source, graph);
        }
    }

    /// Sends audio until this many packets of the runner have arrived.
    pub fn hear(&mut self, graph: &Graph, packets: usize) {
        let wanted = self.received + packets;
        self.until(graph, "sound of the bot", |phone| phone.received >= wanted);
    }

    /// Presses a key: RFC 4733 events while it is down, and three end events, on the stream of the
    /// audio.
    pub fn press(&mut self, event: u8) {
        for n in 1..=8_u16 {
            let is_over = n > 5;
            let [high, low] = (n.min(6) * 160).to_be_bytes();
            let payload = [event, if is_over { 0x8a } else { 0x0a }, high, low];
            self.write(126.into(), &payload, self.ticks);
        }
        self.ticks += 6 * 960;
    }

    fn write(&mut self, pt: Pt, payload: &[u8], ticks: u32) {
        let (mid, sequence, now) = (self.mid, self.sequence, Instant::now());
        let mut api = self.rtc.direct_api();
        let stream = api.stream_tx_by_mid(mid, None).expect("its audio");
        stream.write_rtp(RtpWrite::new(pt, sequence.into(), ticks, now, payload));
        self.sequence += 1;
        self.drain();
    }

    fn take_answer(&mut self, answer: &str) {
        let pending = self.pending.take().expect("an offer waits");
        let mid = self.mid.to_string();
        let answer = answer
            .replace("a=mid:audio", &format!("a=mid:{mid}"))
            .replace("BUNDLE audio", &format!("BUNDLE {mid}"));
        let answer = SdpAnswer::from_sdp_string(&answer).expect("an answer");
        let api = self.rtc.sdp_api();
        api.accept_answer(pending, answer).expect("it answers the offer");
    }

    fn turn(&mut self, may_speak: bool) -> Instant {
        let now = Instant::now();
        if self.is_secured && may_speak && now >= self.due {
            self.due = now.max(self.due + FRAME);
            self.ticks += 960;
            self.write(111.into(), &SILENCE, self.ticks);
        }
        let _ = self.rtc.handle_input(Input::Timeout(now));
        self.drain().min(self.due.max(now))
    }

    fn drain(&mut self) -> Instant {
        loop {
            match self.rtc.poll_output() {
                Ok(Output::Timeout(at)) => return at,
                Ok(Output::Transmit(transmit)) => {
                    let contents: &[u8] = &transmit.contents;
                    let is_check = contents[..2] == [0, 1];
                    assert!(!is_check, "a lite server sends no checks");
                    let _ = self.socket.send_to(contents, transmit.destination);
                }
                Ok(Output::Event(Event::Connected)) => self.is_secured = true,
                Ok(Output::Event(_)) => {}
                Err(_) => return Instant::now() + FRAME,
            }
        }
    }

    /// Checks and handles a packet of the runner.
    fn take(&mut self, packet: &[u8], source: SocketAddr, graph: &Graph) {
        match packet[0] {
            0..=3 => self.judge_check(packet),
            20..=63 if !self.greeted => {
                assert_eq!(
                    (packet[0], packet[13]),
                    (22, 1),
                    "the handshake begins with a ClientHello"
                );
                self.greeted = true;
            }
            128..=191 if !(192..=223).contains(&packet[1]) => {
                assert!(graph.has_accepted(&self.call_id), "media before the accept is done");
                self.received += 1;
            }
            _ => {}
        }
        if let Ok(receive) = Receive::new(Protocol::Udp, source, self.here, packet) {
            let _ = self.rtc.handle_input(Input::Receive(Instant::now(), receive));
        }
    }

    /// A check must be signed and come from the controlling agent (RFC 8445 section 7.1, RFC 5389
    /// section 15.4).
    fn judge_check(&mut self, packet: &[u8]) {
        assert_eq!(packet[..2], [0, 1], "a check");
        let mut at = 20;
        let (mut integrity, mut controlling) = (None, false);
        while at + 4 <= packet.len() {
            let number = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
            let (kind, length) = (number(at), usize::from(number(at + 2)));
            match kind {
                0x0008 => integrity = Some(at),
                0x802a => controlling = true,
                _ => {}
            }
            at += 4 + length.div_ceil(4) * 4;
        }
        let integrity = integrity.expect("a check without integrity");
        let mut signed = packet[..integrity].to_vec();
        let length = u16::try_from(integrity + 24 - 20).expect("short");
        signed[2..4].copy_from_slice(&length.to_be_bytes());
        let mac = Hmac::<Sha1>::new_from_slice(self.password.as_bytes()).expect("a key");
        let mac = mac.chain_update(&signed).finalize().into_bytes();
        assert_eq!(
            mac[..],
            packet[integrity + 4..integrity + 24],
            "a check that is signed wrongly"
        );
        assert!(controlling, "the runner has to be the controlling end");
        self.checks += 1;
    }
}
