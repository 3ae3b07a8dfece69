//! Properties of `edge-runner call`: what a runner may answer and send to a caller.
//!
//! Messages: a byte that selects the protocol of the WebSocket, then for each message a byte, its
//! length in two bytes, and the message. The byte is the time before the message in hundredths of a
//! second; 255 is the end of the connection. Whatever is sent, the caller plays 20 ms for each
//! 20 ms that pass, keeps a bounded amount, and its call ends with a verdict.
//!
//! Responses: the body of `/start`, the markup of a webhook, an answer to an offer, or the value of
//! `Location`.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use edge_runner_proto::caller::conversation::{CallConversation, ConversationOutput};
use edge_runner_proto::caller::plan::{CallExpectations, CallPlan, PlannedStep};
use edge_runner_proto::caller::provider_webhook;
use edge_runner_proto::caller::socket_protocol::{CallerSocketMessage, SocketProtocol};
use edge_runner_proto::caller::target;
use edge_runner_proto::caller::telephone::TelephoneStream;
use edge_runner_proto::caller::{CheckedStep, FRAME_SAMPLES, WordPattern};
use edge_runner_proto::telephony::PROVIDERS;
use edge_runner_proto::webrtc::call_peer::CallerPeer;

/// Messages of an input.
const MESSAGES_MAX: usize = 128;
/// Longer than any time before a message.
const LONGEST: Duration = Duration::from_secs(600);
/// Outputs of one message or one pause: a frame for each 20 ms of 2.5 s, and what is observed.
const OUTPUTS_MAX: usize = 400;
/// Messages to the runner after one of its own: a mark for each that it asked for.
const REPLIES_MAX: usize = MESSAGES_MAX;
const SENTENCE_BYTES_MAX: usize = 1_000;
const END: u8 = 255;

struct Rig {
    protocol: SocketProtocol,
    conversation: CallConversation,
    began: Instant,
    now: Instant,
    frames: u32,
    has_hung_up: bool,
}

impl Rig {
    fn new(select: u8) -> Rig {
        let began = Instant::now();
        let mut protocol = match usize::from(select) % (PROVIDERS.len() + 2) {
            0 => SocketProtocol::Client,
            number if number > PROVIDERS.len() => SocketProtocol::Eval,
            number => SocketProtocol::Telephone(Box::new(TelephoneStream::new(PROVIDERS[number - 1], "0123456789"))),
        };
        assert!(!protocol.opening().is_empty());
        let plan = CallPlan {
            steps: vec![
                PlannedStep::Keys("1#".into()),
                PlannedStep::Text("hello".into()),
                PlannedStep::Check(Arc::new(CheckedStep {
                    within: LONGEST,
                    texts: WordPattern::parse("thank*").into_iter().collect(),
                    events: vec![serde_json::json!({"type": "server-message", "data": {"n": 1}})],
                    silence: Some(Duration::from_secs(1)),
                    ..CheckedStep::default()
                })),
                PlannedStep::Silence(Duration::from_secs(1)),
            ],
            expect: CallExpectations {
                texts: WordPattern::parse("thank*").into_iter().collect(),
                speech: true,
                latency: Some(Duration::from_secs(1)),
            },
            longest: LONGEST,
            hang_up_after: Duration::from_secs(1),
            records: false,
        };
        let conversation = CallConversation::new(plan, began, began, protocol.has_messages());
        Rig {
            protocol,
            conversation,
            began,
            now: began,
            frames: 0,
            has_hung_up: false,
        }
    }

    fn drain(&mut self) {
        for _ in 0..OUTPUTS_MAX {
            let output = self.conversation.poll_output();
            match &output {
                ConversationOutput::Timeout(at) => {
                    assert!(self.conversation.is_over() || *at >= self.now);
                    return self.reply();
                }
                ConversationOutput::Audio(pcm) => {
                    assert_eq!(pcm.len(), FRAME_SAMPLES);
                    self.frames += 1;
                }
                ConversationOutput::Observed(at, observation) => {
                    // A caller's sound ends with its frame, which is not over yet.
                    assert!(*at <= self.now - self.began + Duration::from_millis(20));
                    assert!(observation.json(1, *at).is_object());
                }
                ConversationOutput::HangUp => assert!(!std::mem::replace(&mut self.has_hung_up, true)),
                ConversationOutput::Key(_) | ConversationOutput::Text(_) | ConversationOutput::Message(..) => {}
            }
            for message in self.protocol.encode(&output) {
                check_sent(&message);
            }
        }
        panic!("more than {OUTPUTS_MAX} outputs");
    }

    fn reply(&mut self) {
        for _ in 0..=REPLIES_MAX {
            match self.protocol.poll_reply(self.now) {
                Some(message) => check_sent(&message),
                None => return,
            }
        }
        panic!("more than {REPLIES_MAX} replies");
    }

    /// Passes the time on, and the message.
    fn step(&mut self, hundredths: u8, message: &[u8]) {
        if hundredths == END {
            let reason = String::from_utf8_lossy(message).into_owned();
            let end = if message.len().is_multiple_of(2) {
                Ok(reason)
            } else {
                Err(reason)
            };
            self.conversation.handle_end(end, self.now);
            return self.drain();
        }
        self.now += Duration::from_millis(u64::from(hundredths) * 10);
        self.conversation.handle_timeout(self.now);
        self.drain();
        let message = match &self.protocol {
            SocketProtocol::Client => CallerSocketMessage::Binary(Bytes::copy_from_slice(message)),
            SocketProtocol::Telephone(_) | SocketProtocol::Eval => {
                CallerSocketMessage::Text(String::from_utf8_lossy(message).into_owned())
            }
        };
        if let Err(error) = self.protocol.handle_message(&mut self.conversation, message, self.now) {
            assert!(!error.is_empty() && error.len() <= SENTENCE_BYTES_MAX, "{error}");
        }
        self.drain();
    }
}

/// The messages of a telephone and of an evaluation are JSON, those of a client are frames.
fn check_sent(message: &CallerSocketMessage) {
    match message {
        CallerSocketMessage::Text(text) => {
            let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
            assert!(value.is_object(), "{text}");
        }
        CallerSocketMessage::Binary(bytes) => assert!(!bytes.is_empty()),
    }
}

/// Messages of a runner on a WebSocket.
pub fn messages(bytes: &[u8]) {
    let Some((select, mut rest)) = bytes.split_first() else {
        return;
    };
    let mut rig = Rig::new(*select);
    let mut messages = 0;
    while let [hundredths, high, low, behind @ ..] = rest
        && messages < MESSAGES_MAX
    {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (message, after) = behind.split_at(behind.len().min(length));
        rig.step(*hundredths, message);
        (rest, messages) = (after, messages + 1);
    }
    if !rig.conversation.is_over() {
        // A pause is not made up for: at most 25 frames are sent at once.
        let passed = (rig.now - rig.began).as_millis() / 20 + 1;
        assert!(
            u128::from(rig.frames) <= passed,
            "{} frames in {passed} slots",
            rig.frames
        );
        rig.conversation.handle_stop(rig.now);
        rig.drain();
    }
    for message in rig.protocol.closing() {
        check_sent(&message);
    }
    let verdict = rig.conversation.verdict();
    assert!(rig.conversation.is_over() && verdict.lasted <= rig.now - rig.began);
    for failure in &verdict.failures {
        assert!(!failure.is_empty());
    }
    assert!(verdict.latencies.len() <= MESSAGES_MAX);
}

/// There is a URL, or a sentence.
fn check_url(result: Result<String, String>) {
    match result {
        Ok(url) => assert!(!url.is_empty()),
        Err(error) => assert!(!error.is_empty() && error.len() <= SENTENCE_BYTES_MAX, "{error}"),
    }
}

/// Responses of a runner over HTTP.
pub fn response(bytes: &[u8]) {
    const BASE: &str = "http://192.0.2.1:7860";
    check_url(target::started_socket(BASE, bytes));
    check_url(target::started_telephone(BASE, bytes));
    if let Ok(url) = target::started_offer(BASE, bytes) {
        let id = url.strip_prefix(BASE).and_then(|path| path.strip_prefix("/sessions/"));
        let id = id.and_then(|path| path.strip_suffix("/api/offer")).expect("an id");
        assert!(!id.is_empty() && !id.contains(['/', '?', '#', '%']), "{url}");
    }
    check_url(provider_webhook::read(bytes).map(|stream| {
        assert!(stream.parameters.is_object() && !stream.url.contains(char::is_whitespace));
        provider_webhook::reached(&stream.url, "bots.example.net", BASE)
    }));
    let text = String::from_utf8_lossy(bytes);
    if let Some(url) = target::resource_url(BASE, &text) {
        assert!(
            url.strip_prefix(BASE).is_some_and(|path| path.starts_with('/')),
            "{url}"
        );
    }
    let sdp = target::answer(bytes).unwrap_or_else(|_| text.into_owned());
    let now = Instant::now();
    let mut peer = CallerPeer::new((Ipv4Addr::LOCALHOST, 4_000).into(), 7, now).expect("a connection");
    match peer.handle_answer(&sdp, now) {
        Ok(()) => {
            peer.handle_timeout(now);
            peer.send_audio(&[1_000; FRAME_SAMPLES], now);
            assert!(peer.handle_answer(&sdp, now).is_err());
        }
        Err(error) => assert!(!error.is_empty(), "{error}"),
    }
}
