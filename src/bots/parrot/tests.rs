//! Whole calls with the parrot on the test's own clock: the test drives the transport frame by
//! frame, and checks everything that the client receives.

use std::task::{Context, Waker};

use serde_json::{Value, json};

use super::*;
use crate::bot::media::{Event, LeaveReason};
use crate::limits::{BOT_IDLE, PARROT_UTTERANCE_MAX};
use crate::rtvi::tests::Caller;

const FRAME: usize = 320;
const FRAME_TIME: Duration = Duration::from_millis(20);
/// Sample values that the test's detector takes for speech and for silence.
const SPEECH: i16 = 4_000;
const SILENCE: i16 = 3;

struct Loud;

impl SpeechDetector for Loud {
    fn is_speech(&mut self, pcm: &[i16]) -> bool {
        pcm.iter().any(|sample| sample.abs() > 100)
    }
}

/// A call: the transport side and the parrot, on one clock.
struct Call {
    caller: Caller,
    parrot: Parrot<Loud>,
    now: Instant,
    began: Instant,
    /// The audio that left for the caller, without gaps.
    received: Vec<i16>,
    audible: bool,
    /// The messages to the client, each with its time.
    read: Vec<(Duration, Value)>,
    over: bool,
}

impl Call {
    fn with(embedded: bool, body: Value, idle_timeout: Duration) -> Self {
        let (caller, mut args) = Caller::new(embedded, body);
        args.idle_timeout = idle_timeout;
        let rtvi = Rtvi::open(&mut args, Audio::at(RATE_HZ)).expect("a WebRTC session has media");
        let began = Instant::now();
        let mut call = Call {
            caller,
            parrot: Parrot::new(rtvi, &args, Loud, began),
            now: began,
            began,
            received: Vec::new(),
            audible: false,
            read: Vec::new(),
            over: false,
        };
        call.caller.transport_side.push(Event::Joined);
        call.turn();
        call
    }

    /// Returns a call with a browser after the handshake, without the greeting.
    fn connected() -> Self {
        let mut call = Call::with(false, json!({"greeting": false}), BOT_IDLE);
        call.caller.send("client-ready", "1", json!({"version": "2.1.0"}));
        call.turn();
        call.read.clear();
        call
    }

    /// Polls the parrot until it waits.
    fn turn(&mut self) {
        if self.over {
            return;
        }
        let mut context = Context::from_waker(Waker::noop());
        loop {
            let event = match std::pin::pin!(self.parrot.rtvi.recv()).poll(&mut context) {
                std::task::Poll::Ready(event) => event,
                std::task::Poll::Pending => break,
            };
            let Some(event) = event else {
                self.over = true;
                break;
            };
            self.over |= self.parrot.handle_event(event, self.now).is_break();
        }
        if let Some(voice) = &mut self.parrot.speech
            && voice.as_mut().poll(&mut context).is_ready()
        {
            self.parrot.speech = None;
        }
        if self.now >= self.parrot.poll_timeout() {
            self.over |= self.parrot.handle_timeout(self.now).is_break();
            assert!(
                self.over || self.parrot.poll_timeout() > self.now,
                "a deadline that does not move would spin"
            );
        }
        let at = self.now - self.began;
        self.read
            .extend(self.caller.received().into_iter().map(|message| (at, message)));
    }

    /// Advances the clock by 20 ms: pushes a frame, if there is one, and takes a frame.
    fn tick(&mut self, frame: Option<[i16; FRAME]>) {
        self.now += FRAME_TIME;
        if let Some(frame) = frame {
            self.caller.transport_side.push_audio(&frame, RATE_HZ);
        }
        self.turn();
        if self.caller.transport_side.take_interruption() && self.audible {
            self.audible = false;
            self.caller.transport_side.push(Event::SpeechStopped);
        }
        self.caller.transport_side.audio();
        let taken = self.caller.transport_side.take_audio(&mut self.received, FRAME);
        if (taken > 0) != self.audible {
            self.audible = taken > 0;
            let event = if self.audible {
                Event::SpeechStarted
            } else {
                Event::SpeechStopped
            };
            self.caller.transport_side.push(event);
        }
        self.turn();
    }

    fn hears(&mut self, sample: i16, ms: u64) {
        for _ in 0..ms / 20 {
            self.tick(Some([sample; FRAME]));
        }
    }

    fn hears_nothing(&mut self, ms: u64) {
        for _ in 0..ms / 20 {
            self.tick(None);
        }
    }

    /// Takes the types of the messages since the last call, without levels.
    fn types(&mut self) -> Vec<String> {
        let kind = |(_, message): (Duration, Value)| message["type"].as_str().expect("a type").to_owned();
        self.read
            .drain(..)
            .map(kind)
            .filter(|kind| !kind.ends_with("audio-level"))
            .collect()
    }

    fn texts(&self) -> Vec<&str> {
        let is_shown = |message: &&Value| message["type"] == "bot-output";
        let shown = self.read.iter().map(|(_, message)| message).filter(is_shown);
        shown
            .map(|message| message["data"]["text"].as_str().expect("text"))
            .collect()
    }
}

#[test]
fn repeats_the_caller_after_a_pause() {
    let mut call = Call::connected();
    call.hears(SILENCE, 500);
    call.hears(SPEECH, 1_200);
    call.hears(SILENCE, 2_600);
    assert_eq!(call.texts(), ["You spoke for 1.2 s."]);
    let metrics = call.read.iter().find(|(_, message)| message["type"] == "metrics");
    let waited = metrics.expect("a measure").1["data"]["ttfb"][0]["value"]
        .as_f64()
        .expect("seconds");
    assert!((0.70..0.75).contains(&waited), "{waited}: the pause and the next frame");
    assert_eq!(
        call.types(),
        [
            "user-started-speaking",
            "user-stopped-speaking",
            "bot-output",
            "bot-started-speaking",
            "metrics",
            "bot-stopped-speaking",
        ]
    );
    let parts = [(SILENCE, 300), (SPEECH, 1_200), (SILENCE, 200)];
    let said: Vec<i16> = parts.iter().flat_map(|(sample, ms)| vec![*sample; ms * 16]).collect();
    assert!(
        call.received == said,
        "every sample, the first syllable included: {}",
        call.received.len()
    );
}

#[test]
fn repeats_many_turns() {
    let mut call = Call::connected();
    for turn in 1..=5 {
        call.hears(SPEECH, 300 * turn);
        call.hears(SILENCE, 900 + 300 * turn + 600);
        let types = call.types();
        assert_eq!(types.len(), 6, "turn {turn}: {types:?}");
        assert!(call.parrot.playback.is_none() && call.parrot.speech.is_none());
    }
}

#[test]
fn stops_when_the_caller_interrupts() {
    let mut call = Call::connected();
    call.hears(SPEECH, 5_000);
    call.hears(SILENCE, 1_500);
    assert!(call.audible);
    call.types();
    let received = call.received.len();
    call.hears(200, 220);
    assert!(call.audible, "less than a quarter of a second is no interruption");
    call.hears(200, 40);
    assert!(!call.audible);
    assert_eq!(
        call.received.len(),
        received + 11 * FRAME,
        "nothing is heard from the frame on that decided it"
    );
    assert_eq!(
        call.types(),
        ["user-started-speaking", "bot-interrupted", "bot-stopped-speaking"]
    );

    call.received.clear();
    call.hears(SILENCE, 1_500);
    assert_eq!(
        call.received.iter().filter(|sample| **sample == 200).count(),
        260 * 16,
        "it listened meanwhile"
    );
    assert!(
        !call.received.contains(&SPEECH),
        "what it was interrupted in is forgotten"
    );
}

#[test]
fn a_short_sound_is_reported_and_not_repeated() {
    let mut call = Call::connected();
    call.hears(SPEECH, 100);
    call.hears(SILENCE, 2_000);
    assert_eq!(call.types(), ["user-started-speaking", "user-stopped-speaking"]);
    assert!(call.received.is_empty());
}

#[test]
fn an_utterance_above_the_cap_is_answered_once() {
    let mut call = Call::connected();
    let limit_ms = PARROT_UTTERANCE_MAX.as_millis() as u64;
    call.hears(SPEECH, limit_ms + 100);
    assert_eq!(call.texts(), ["You spoke for 30.0 s and more, which I cannot keep."]);
    assert!(call.audible, "it does not wait for a pause that may never come");
    call.types();
    call.hears(SPEECH, limit_ms + 20_000);
    assert_eq!(
        call.types(),
        ["bot-stopped-speaking"],
        "the rest of that breath starts nothing"
    );
    assert_eq!(call.received.len() as u64, limit_ms * 16);
    call.hears(SILENCE, 100);
    call.hears(SPEECH, 500);
    assert_eq!(call.types(), ["user-started-speaking"]);
}

#[test]
fn a_caller_who_mutes_in_mid_sentence_is_answered() {
    let mut call = Call::connected();
    call.hears(SPEECH, 600);
    call.hears_nothing(980);
    assert_eq!(call.types(), ["user-started-speaking"]);
    call.hears_nothing(2_000);
    assert_eq!(
        call.types(),
        [
            "user-stopped-speaking",
            "bot-output",
            "bot-started-speaking",
            "metrics",
            "bot-stopped-speaking"
        ]
    );
    assert_eq!(call.received, vec![SPEECH; 600 * 16]);
}

/// Some clients on a plain socket connect before they can play audio, so the greeting waits for
/// `client-ready`, which a telephone does not send.
#[test]
fn the_greeting_on_a_plain_socket_waits_for_client_ready() {
    use crate::config::Transport;
    use crate::proto::telephony::PROVIDERS;
    for (transport, data, at_once) in [
        (Transport::WebSocket, None, false),
        (Transport::Telephony(PROVIDERS[0]), Some(json!({})), true),
    ] {
        let (caller, mut args) = Caller::on_socket(transport, data, json!({}));
        let rtvi = Rtvi::open(&mut args, Audio::at(RATE_HZ)).expect("a socket has media");
        let now = Instant::now();
        let mut parrot = Parrot::new(rtvi, &args, Vad::new(RATE_HZ), now);
        let _ = parrot.handle_event(RtviEvent::Joined, now);
        assert_eq!(parrot.speech.is_some(), at_once);
        let _ = parrot.handle_event(RtviEvent::Ready, now);
        assert!(parrot.speech.is_some());
        drop(caller);
    }
}

#[test]
fn greets_with_two_notes_unless_greeting_is_false() {
    let mut call = Call::with(false, json!({}), BOT_IDLE);
    call.hears(SILENCE, 1_000);
    assert_eq!(call.received, sound::chime(RATE_HZ));
    assert_eq!(call.types(), ["bot-started-speaking", "bot-stopped-speaking"]);
    for body in [
        json!({"greeting": "yes"}),
        json!({"greeting": null}),
        json!([1]),
        json!(null),
    ] {
        let mut call = Call::with(false, body, BOT_IDLE);
        call.hears(SILENCE, 100);
        assert!(!call.received.is_empty(), "only `false` turns the greeting off");
    }
    let mut call = Call::with(false, json!({"greeting": false}), BOT_IDLE);
    call.hears(SILENCE, 1_000);
    assert!(call.received.is_empty());
    call.caller.send("client-ready", "1", json!({"version": "2.1.0"}));
    call.turn();
    assert_eq!(call.types(), ["bot-ready", "bot-output"]);
}

#[test]
fn leaves_after_the_idle_timeout() {
    let idle = BOT_IDLE.as_millis() as u64;
    let mut call = Call::connected();
    call.hears(SILENCE, idle - 20);
    assert!(!call.over);
    call.hears(SILENCE, 20);
    assert!(call.over);
    assert_eq!(call.texts(), ["No one spoke for 300 s. Goodbye."]);
}

#[test]
fn every_action_of_the_caller_restarts_the_idle_timeout() {
    type Deed = fn(&mut Call);
    let deeds: [Deed; 5] = [
        |call| call.caller.send("send-text", "1", json!({"content": "hello"})),
        |call| call.caller.send("client-message", "1", json!({"t": "x"})),
        |call| call.caller.transport_side.push(Event::Dtmf('5')),
        |call| call.caller.transport_side.push(Event::Restored),
        |call| call.hears(SPEECH, 100),
    ];
    for deed in deeds {
        let mut call = Call::with(false, json!({"greeting": false}), Duration::from_secs(5));
        call.hears(SILENCE, 4_900);
        deed(&mut call);
        call.hears(SILENCE, 4_900);
        assert!(!call.over);
        call.hears(SILENCE, 2_000);
        assert!(call.over);
    }
}

/// An utterance and its answer that are both longer than the idle timeout: the parrot neither
/// leaves nor spins.
#[test]
fn does_not_leave_during_speech() {
    for embedded in [false, true] {
        let mut call = Call::with(embedded, json!({"greeting": false}), Duration::from_secs(2));
        call.hears(SPEECH, 8_000);
        assert!(!call.over);
        call.hears_nothing(1_000 + 8_000 + 1_900);
        assert!(!call.over && !call.audible);
        call.hears_nothing(200);
        assert!(call.over);
    }
}

#[test]
fn answers_text_and_messages() {
    let mut call = Call::connected();
    call.caller
        .send("send-text", "a", json!({"content": "hello", "options": {}}));
    call.caller
        .send("client-message", "b", json!({"t": "echo", "d": {"n": 7}}));
    call.caller.send("client-message", "c", json!({"t": "other"}));
    call.caller.send("dtmf", "d", json!({"buttons": ["4"]}));
    call.turn();
    assert_eq!(call.texts(), ["hello", "You pressed 4."]);
    let answers: Vec<&Value> = call
        .read
        .iter()
        .map(|(_, message)| message)
        .filter(|m| m.get("id").is_some())
        .collect();
    assert_eq!(answers[0]["type"], "server-response");
    assert_eq!(
        (&answers[0]["id"], &answers[0]["data"]),
        (&json!("b"), &json!({"t": "echo", "d": {"n": 7}}))
    );
    assert_eq!(
        (&answers[1]["type"], &answers[1]["id"]),
        (&json!("error-response"), &json!("c"))
    );
}

#[test]
fn text_interrupts_playback_unless_it_may_wait() {
    for (options, interrupted) in [(json!({}), true), (json!({"run_immediately": false}), false)] {
        let mut call = Call::connected();
        call.hears(SPEECH, 3_000);
        call.hears(SILENCE, 1_000);
        assert!(call.audible);
        call.caller
            .send("send-text", "a", json!({"content": "stop", "options": options}));
        call.hears(SILENCE, 40);
        assert_eq!(call.audible, !interrupted);
        assert_eq!(call.types().contains(&"bot-interrupted".to_owned()), interrupted);
    }
}

#[test]
fn is_silent_while_the_caller_is_lost() {
    let mut call = Call::connected();
    call.hears(SPEECH, 3_000);
    call.hears(SILENCE, 1_000);
    call.types();
    call.caller.transport_side.push(Event::Lost);
    call.hears_nothing(100);
    assert_eq!(call.types(), ["bot-interrupted", "bot-stopped-speaking"]);
    call.hears_nothing(5_000);
    call.caller.transport_side.push(Event::Restored);
    call.hears(SILENCE, 1_000);
    assert_eq!(call.texts(), ["There you are again."]);

    call.hears(SPEECH, 200);
    call.types();
    call.caller.transport_side.push(Event::Lost);
    call.hears_nothing(3_000);
    assert_eq!(
        call.types(),
        ["user-stopped-speaking"],
        "an utterance is not repeated to a lost caller"
    );
}

#[test]
fn sends_both_levels_five_times_a_second() {
    let mut call = Call::connected();
    call.hears(SILENCE, 2_000);
    let levels = |call: &mut Call, kind: &str| -> Vec<(Duration, f64)> {
        let of_kind = call.read.iter().filter(|(_, message)| message["type"] == kind);
        of_kind
            .map(|(at, message)| (*at, message["data"]["value"].as_f64().expect("a number")))
            .collect()
    };
    assert_eq!(
        levels(&mut call, "user-audio-level"),
        [],
        "a level that stays 0 is not sent"
    );
    call.hears(SPEECH, 1_000);
    // Each interval reports the louder of two alternating levels.
    for _ in 0..25 {
        call.hears(SPEECH, 20);
        call.hears(2 * SPEECH, 20);
    }
    let user = levels(&mut call, "user-audio-level");
    assert!(
        (2..=4).contains(&user.len()),
        "a level that does not change is not repeated: {user:?}"
    );
    assert!((user[0].1 - 0.696).abs() < 0.001, "{user:?}");
    for pair in user.windows(2) {
        assert!(pair[1].0 - pair[0].0 >= PARROT_LEVEL_INTERVAL);
    }
    call.read.clear();
    call.hears_nothing(5_000);
    let bot = levels(&mut call, "bot-audio-level");
    assert!(bot.len() >= 3 && bot.iter().any(|(_, level)| *level > 0.6), "{bot:?}");
    assert_eq!(bot.last().map(|(_, level)| *level), Some(0.0));
}

#[test]
fn a_microcontroller_gets_only_speaking_events() {
    let mut call = Call::with(true, json!({}), Duration::from_secs(60));
    call.hears(SILENCE, 1_000);
    call.hears(SPEECH, 1_000);
    call.hears(SILENCE, 3_000);
    assert_eq!(
        call.received.len(),
        sound::chime(RATE_HZ).len() + (300 + 1_000 + 200) * 16
    );
    assert!(call.read.len() <= 6, "{:?}", call.read);
    assert_eq!(
        call.types(),
        [
            "bot-started-speaking",
            "bot-stopped-speaking",
            "user-started-speaking",
            "user-stopped-speaking",
            "bot-started-speaking",
            "bot-stopped-speaking",
        ]
    );
}

#[test]
fn ends_when_the_caller_leaves_or_the_runner_stops() {
    type End = fn(&Call);
    let ends: [End; 3] = [
        |call| call.caller.transport_side.push(Event::Left(LeaveReason::Left)),
        |call| call.caller.send("disconnect-bot", "1", json!({})),
        |call| call.caller.stop.set(),
    ];
    for end in ends {
        let mut call = Call::connected();
        call.hears(SPEECH, 500);
        end(&call);
        call.turn();
        assert!(call.over);
    }
}

/// Ten minutes of random events from one seed: turns alternate, text is answered, nothing spins,
/// and the parrot's memory stays bounded.
#[test]
fn turns_alternate_and_memory_stays_bounded_on_random_events() {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |below: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut call = Call::with(false, json!({}), BOT_IDLE);
    let (mut sample, mut comes, mut texts) = (SILENCE, true, 0);
    for _ in 0..30_000 {
        match random(400) {
            0..8 => sample = SPEECH,
            8..20 => sample = SILENCE,
            20 => comes = false,
            21..24 => comes = true,
            24 => call.caller.transport_side.push(Event::Lost),
            25 => call.caller.transport_side.push(Event::Restored),
            26 => call.caller.send("client-ready", "1", json!({})),
            27..30 => {
                texts += 1;
                let options = json!({"run_immediately": random(2) == 0});
                call.caller
                    .send("send-text", "1", json!({"content": "T", "options": options}));
            }
            30 => call.caller.send("dtmf", "1", json!({"buttons": vec!["1"; 40]})),
            31 => call.caller.send("raw-audio", "1", json!({})),
            32 => call.caller.transport_side.push(Event::Message("\u{0}[".repeat(50))),
            33 => call.caller.transport_side.push(Event::SpeechStopped),
            _ => {}
        }
        call.tick(comes.then_some([sample; FRAME]));
        assert!(!call.over);
        call.received.clear();
    }
    let count = |kind: &str| call.read.iter().filter(|(_, message)| message["type"] == kind).count();
    assert!(count("user-started-speaking") > 50 && count("bot-interrupted") > 20 && count("metrics") > 20);
    assert_eq!(call.texts().iter().filter(|text| **text == "T").count(), texts);
    let of_user = |message: &Value| match message["type"].as_str() {
        Some("user-started-speaking") => Some(true),
        Some("user-stopped-speaking") => Some(false),
        _ => None,
    };
    let turns: Vec<bool> = call.read.iter().filter_map(|(_, message)| of_user(message)).collect();
    assert!(
        turns[0] && turns.windows(2).all(|pair| pair[0] != pair[1]),
        "a turn started or ended twice"
    );
}

/// The async loop with the real detector and recorded speech, on tokio's paused clock.
#[tokio::test(start_paused = true)]
async fn the_loop_repeats_two_sentences_and_leaves_after_the_idle_timeout() {
    let (caller, args) = Caller::new(false, json!({"greeting": false}));
    let began = tokio::time::Instant::now();
    let bot = async {
        parrot(args).await.expect("a good end");
        began.elapsed()
    };
    let said = sentences();
    let call = async {
        let room = |ms: usize| [3_i16, -3].repeat(ms * 8);
        let mut audible = false;
        let mut received = Vec::new();
        let mut ticks = tokio::time::interval(FRAME_TIME);
        caller.transport_side.push(Event::Joined);
        for frame in [room(1_000), said.clone(), room(5_000)].concat().chunks(FRAME) {
            ticks.tick().await;
            caller.transport_side.push_audio(frame, RATE_HZ);
            caller.transport_side.audio();
            let taken = caller.transport_side.take_audio(&mut received, FRAME);
            if (taken > 0) != audible {
                audible = taken > 0;
                caller.transport_side.push(if audible {
                    Event::SpeechStarted
                } else {
                    Event::SpeechStopped
                });
            }
        }
        received
    };
    let (lasted, received) = tokio::join!(bot, call);
    let start = received
        .windows(64)
        .position(|window| window == &said[..64])
        .expect("the first syllable");
    assert!(start <= 300 * 16, "and no more than the lead before it");
    assert_eq!(received[start..start + said.len()], said[..]);
    // 1 s of noise, 2.5 s of speech, 0.7 s of pause and 3.0 s of playback; the idle timeout counts
    // from there.
    let quiet_from = lasted - BOT_IDLE;
    let expected = Duration::from_millis(6_900)..Duration::from_millis(7_400);
    assert!(expected.contains(&quiet_from), "{quiet_from:?}");
}

/// Two sentences at 16 kHz; see `tests/data/audio/README.md`.
fn sentences() -> Vec<i16> {
    let bytes = include_bytes!("../../../tests/data/audio/speech.raw");
    bytes
        .chunks_exact(2)
        .map(|sample| i16::from_le_bytes([sample[0], sample[1]]))
        .collect()
}
