//! The engine against a scripted service, with a clock of its own.

mod losses;

use serde_json::{Value, json};

use super::*;
use crate::assistant::answer_stopwatch::MeasuredAnswer;
use crate::assistant::config::ToolsConfig;
use crate::assistant::report::ConnectFailure;
use crate::assistant::service_url::ServiceUrl;

/// A session, its service, and the time.
struct Rig {
    session: Realtime,
    now: Instant,
    /// Events of the engine that are not audio, and its other outputs.
    sent: Vec<Value>,
    outputs: Vec<RealtimeOutput>,
}

const BROWSER: CallProfile = CallProfile::BROWSER;

impl Rig {
    fn new(profile: CallProfile, greeting: Greeting) -> Self {
        Rig::with(
            profile,
            AssistantConfig {
                greeting,
                ..AssistantConfig::default()
            },
        )
    }

    fn with(profile: CallProfile, mut config: AssistantConfig) -> Self {
        config.realtime.url = ServiceUrl::parse("ws://127.0.0.1/v1").expect("a URL");
        config.realtime.key = Some(Secret::new("k"));
        let body = BodyOptions::new(&json!({}), &config, &config.realtime.instructions);
        let now = Instant::now();
        let mut rig = Rig {
            session: Realtime::new(Arc::new(config), profile, body, now),
            now,
            sent: Vec::new(),
            outputs: Vec::new(),
        };
        rig.drain();
        rig
    }

    /// A session whose service is ready and whose caller is there.
    fn ready() -> Self {
        Rig::ready_with(BROWSER)
    }

    fn ready_with(profile: CallProfile) -> Self {
        let mut rig = Rig::new(profile, Greeting::Off);
        rig.session.handle_joined(rig.now);
        rig.open();
        rig.sent.clear();
        rig
    }

    fn open(&mut self) {
        self.session.handle_connected(self.now);
        self.hear(json!({"type": "session.created"}));
        self.hear(json!({"type": "session.updated"}));
    }

    fn hear(&mut self, event: Value) {
        self.session.handle_message(&event.to_string(), self.now);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.session.poll_output() {
            match output {
                // An hour has 90,000 pieces of audio.
                RealtimeOutput::Send(text) if text.starts_with(r#"{"type":"input_audio_buffer.append","#) => {}
                RealtimeOutput::Count(AssistantCount::AudioSent(_)) => {}
                RealtimeOutput::Send(text) => {
                    let event: Value = serde_json::from_str(&text).expect("JSON");
                    assert!(event["event_id"].is_string(), "{event}");
                    self.sent.push(event);
                }
                other => self.outputs.push(other),
            }
        }
    }

    /// Lets time pass, and does what is due.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.session.poll_timeout() <= end && !self.is_over() {
            self.now = self.now.max(self.session.poll_timeout());
            self.session.handle_timeout(self.now);
            self.drain();
        }
        self.now = end;
    }

    fn speak(&mut self, response_id: &str, item_id: &str, samples: usize) {
        let delta = data_encoding::BASE64.encode(&vec![1; 2 * samples]);
        self.hear(
            json!({"type": "response.output_audio.delta", "response_id": response_id, "item_id": item_id,
            "content_index": 0, "delta": delta}),
        );
    }

    fn types(&mut self) -> Vec<String> {
        let sent = std::mem::take(&mut self.sent);
        sent.iter()
            .map(|event| event["type"].as_str().expect("a type").to_owned())
            .collect()
    }

    fn connects(&self) -> usize {
        let connects = |output: &&RealtimeOutput| matches!(output, RealtimeOutput::Connect(_));
        self.outputs.iter().filter(connects).count()
    }

    fn end(&self) -> Option<&EndReason> {
        self.outputs.iter().find_map(|output| match output {
            RealtimeOutput::End(reason) => Some(reason),
            _ => None,
        })
    }

    fn is_over(&self) -> bool {
        self.end().is_some()
    }
}

#[test]
fn the_greeting_waits_for_service_and_caller() {
    let mut rig = Rig::new(BROWSER, Greeting::Text("Welcome.".into()));
    rig.open();
    assert_eq!(rig.types(), ["session.update"]);
    rig.session.handle_joined(rig.now);
    rig.drain();
    assert_eq!(rig.types(), ["response.create"]);
    let late = CallProfile {
        greet_on_ready: true,
        ..BROWSER
    };
    let mut rig = Rig::new(late, Greeting::Default);
    rig.session.handle_joined(rig.now);
    rig.open();
    assert_eq!(rig.types(), ["session.update"]);
    rig.session.handle_ready(rig.now);
    rig.drain();
    assert_eq!(rig.types(), ["response.create"]);
}

#[test]
fn one_response_is_asked_for_at_a_time() {
    let mut rig = Rig::ready();
    rig.hear(json!({"type": "response.created", "response": {"id": "a"}}));
    let options = TextOptions {
        run_immediately: false,
        audio_response: true,
    };
    rig.session.handle_text("hello", options, rig.now);
    rig.drain();
    assert_eq!(rig.types(), ["conversation.item.create"]);
    rig.hear(json!({"type": "response.done", "response": {"id": "a", "status": "completed"}}));
    assert_eq!(rig.types(), ["response.create"]);
    rig.hear(json!({"type": "error", "error": {"code": "conversation_already_has_active_response"}}));
    rig.hear(json!({"type": "response.created", "response": {"id": "b"}}));
    rig.hear(json!({"type": "response.done", "response": {"id": "b", "status": "completed"}}));
    assert_eq!(rig.types(), ["response.create"], "the service answered by itself first");
}

#[test]
fn an_interruption_before_the_first_sound_sends_no_truncation() {
    let mut rig = Rig::ready();
    rig.hear(json!({"type": "response.created", "response": {"id": "a"}}));
    rig.hear(json!({"type": "input_audio_buffer.speech_started", "item_id": "u"}));
    rig.speak("a", "i", 2_400);
    assert_eq!(
        rig.session.next_speech(&mut Vec::new()),
        None,
        "a delayed delta is dropped"
    );
    assert_eq!(rig.types(), [""; 0]);
    rig.hear(json!({"type": "response.done", "response": {"id": "a", "status": "cancelled"}}));
    rig.hear(json!({"type": "response.created", "response": {"id": "b"}}));
    rig.speak("b", "j", 2_400);
    assert!(rig.session.next_speech(&mut Vec::new()).is_some());
}

#[test]
fn an_answer_that_is_longer_than_the_cap_is_cancelled() {
    let mut rig = Rig::ready();
    rig.hear(json!({"type": "response.created", "response": {"id": "a"}}));
    for _ in 0..64 {
        rig.speak("a", "i", 24_000);
    }
    assert_eq!(rig.types(), [""; 0]);
    rig.speak("a", "i", 1);
    assert_eq!(rig.types(), ["response.cancel"]);
    rig.speak("a", "i", 1);
    assert_eq!(rig.types(), [""; 0]);
}

/// The first attempt follows at once; the caller is told once that it takes a while.
#[test]
fn a_lost_connection_is_tried_until_the_patience_is_over() {
    let mut rig = Rig::ready();
    rig.session.handle_closed(None, rig.now);
    rig.pass(Duration::ZERO);
    assert_eq!(rig.connects(), 2);
    let begun = rig.now;
    while !rig.is_over() {
        let connects = rig.connects();
        rig.session.handle_connect_failed(ConnectFailure::TimedOut, rig.now);
        rig.drain();
        while rig.connects() == connects && !rig.is_over() {
            rig.pass(Duration::from_millis(100));
        }
    }
    assert!(matches!(rig.end(), Some(EndReason::Failed(_))), "{:?}", rig.end());
    assert!((30..32).contains(&(rig.now - begun).as_secs()), "{:?}", rig.now - begun);
    let is_reported = |output: &&RealtimeOutput| matches!(output, RealtimeOutput::Report(ClientReport::Error { .. }));
    assert_eq!(rig.outputs.iter().filter(is_reported).count(), 1);
    assert!(
        rig.session.next_speech(&mut Vec::new()).is_some(),
        "the sound of the failure"
    );
}

#[test]
fn an_outage_that_is_over_is_forgotten() {
    let mut rig = Rig::ready();
    for _ in 0..4 {
        rig.session.handle_closed(None, rig.now);
        for _ in 0..5 {
            rig.pass(Duration::from_secs(4));
            rig.session.handle_connect_failed(ConnectFailure::TimedOut, rig.now);
        }
        rig.pass(Duration::from_secs(4));
        rig.open();
        rig.hear(json!({"type": "response.created", "response": {"id": "a"}}));
        rig.hear(json!({"type": "response.done", "response": {"id": "a", "status": "completed"}}));
    }
    assert!(!rig.is_over());
}

/// A refusal after an answer costs that answer, unless it is the key that is refused.
#[test]
fn one_refused_response_does_not_end_the_session() {
    let failed = |code: &str| {
        json!({"type": "response.done", "response": {"id": "b", "status": "failed",
            "status_details": {"error": {"code": code}}}})
    };
    for (code, is_answered, is_over) in [
        ("unknown_parameter", true, false),
        ("insufficient_quota", true, false),
        ("unknown_parameter", false, true),
        ("invalid_api_key", true, true),
    ] {
        for by_error in [false, true] {
            let mut rig = Rig::ready();
            if is_answered {
                rig.hear(json!({"type": "response.created", "response": {"id": "a"}}));
                rig.hear(json!({"type": "response.done", "response": {"id": "a", "status": "completed"}}));
            }
            rig.hear(json!({"type": "response.created", "response": {"id": "b"}}));
            if by_error {
                rig.hear(json!({"type": "error", "error": {"code": code}}));
            }
            rig.hear(failed(code));
            assert_eq!(rig.is_over(), is_over, "{code} {is_answered} {by_error}");
            assert!(rig.session.next_speech(&mut Vec::new()).is_some(), "the notes");
        }
    }
}

#[test]
fn final_errors_and_closes_are_not_retried() {
    for event in [
        json!({"type": "error", "error": {"code": "insufficient_quota", "message": "hunter2"}}),
        json!({"type": "error", "error": {"type": "invalid_api_key"}}),
    ] {
        let mut rig = Rig::ready();
        rig.hear(event);
        let Some(EndReason::Failed(words)) = rig.end() else {
            panic!("it ends")
        };
        assert!(!words.contains("hunter2"));
    }
    for code in [1000, 1008, 4000] {
        let mut rig = Rig::ready();
        rig.session.handle_closed(Some(code), rig.now);
        rig.drain();
        assert!(rig.is_over(), "{code}");
    }
    let mut rig = Rig::ready();
    rig.session.handle_closed(Some(1001), rig.now);
    rig.pass(Duration::ZERO);
    assert_eq!((rig.connects(), rig.is_over()), (2, false));
}

#[test]
fn a_service_whose_sessions_expire_at_once_is_given_up() {
    let mut rig = Rig::ready();
    for _ in 0..10 {
        rig.hear(json!({"type": "error", "error": {"code": "session_expired"}}));
        rig.pass(Duration::from_secs(4));
        rig.open();
    }
    assert!(rig.is_over() && rig.connects() > 5, "{} connections", rig.connects());
}

#[test]
fn failed_responses_in_a_row_end_the_session_after_the_patience() {
    let mut rig = Rig::ready();
    for number in 0..4 {
        assert!(!rig.is_over(), "{number}");
        rig.pass(Duration::from_secs(10));
        rig.hear(json!({"type": "response.created", "response": {"id": "a"}}));
        rig.hear(
            json!({"type": "response.done", "response": {"id": "a", "status": "failed",
            "status_details": {"error": {"code": "server_error"}}}}),
        );
    }
    assert!(rig.is_over());
}

/// A fault of the service costs an answer, whichever event tells it. Errors about other events cost
/// nothing.
#[test]
fn errors_that_cost_an_answer_are_reported() {
    let rate_limit = || json!({"type": "error", "error": {"type": "rate_limit_error", "code": "rate_limit_exceeded"}});
    let reported = |rig: &Rig| {
        let is_error = |output: &&RealtimeOutput| matches!(output, RealtimeOutput::Report(ClientReport::Error { .. }));
        rig.outputs.iter().filter(is_error).count()
    };
    let options = TextOptions {
        run_immediately: false,
        audio_response: true,
    };
    let mut rig = Rig::ready();
    for _ in 0..5 {
        rig.hear(json!({"type": "error", "error": {"code": "invalid_value", "event_id": "u99"}}));
    }
    assert_eq!((reported(&rig), rig.is_over()), (0, false));
    // A refused request: the next one is sent.
    rig.session.handle_text("hello", options, rig.now);
    rig.drain();
    let id = rig.sent.last().expect("a request")["event_id"].clone();
    rig.hear(json!({"type": "error", "error": {"code": "invalid_value", "event_id": id}}));
    assert_eq!(reported(&rig), 1);
    assert!(rig.session.next_speech(&mut Vec::new()).is_some(), "two notes");
    rig.types();
    rig.session.handle_text("hello", options, rig.now);
    rig.drain();
    assert_eq!(rig.types(), ["conversation.item.create", "response.create"]);
    // An answer resets the count.
    rig.hear(json!({"type": "response.created", "response": {"id": "a"}}));
    rig.hear(json!({"type": "response.done", "response": {"id": "a", "status": "completed"}}));
    // One failure that two events tell.
    rig.hear(json!({"type": "response.created", "response": {"id": "b"}}));
    rig.hear(rate_limit());
    let failed = |id: &str| {
        json!({"type": "response.done", "response": {"id": id, "status": "failed",
            "status_details": {"error": {"code": "rate_limit_exceeded"}}}})
    };
    rig.hear(failed("b"));
    assert_eq!((reported(&rig), rig.is_over()), (2, false));
    rig.hear(rate_limit());
    assert_eq!((reported(&rig), rig.is_over()), (3, false));
}

/// The service may be told of the functions later than it waits for a session.
#[test]
fn a_slow_program_of_functions_does_not_cost_the_connection() {
    let config = AssistantConfig {
        tools: Some(ToolsConfig::Program(vec!["p".to_owned()])),
        ..AssistantConfig::default()
    };
    let mut rig = Rig::with(BROWSER, config);
    rig.session.handle_connected(rig.now);
    rig.hear(json!({"type": "session.created"}));
    rig.pass(Duration::from_secs(20));
    assert_eq!((rig.connects(), rig.is_over()), (1, false));
    rig.session.handle_functions(&[], rig.now);
    rig.drain();
    assert_eq!(rig.types(), ["session.update"]);
    rig.pass(SESSION_WITHIN);
    assert_eq!(rig.connects(), 2, "the service has to accept them in time");
}

/// A caller who waits for a function hears a tick after 3 s of silence and every 2 s, which is no
/// first sound and no speech that could be interrupted.
#[test]
fn a_long_function_ticks() {
    let config = AssistantConfig {
        greeting: Greeting::Off,
        tools: Some(ToolsConfig::Program(vec!["p".to_owned()])),
        ..AssistantConfig::default()
    };
    let mut rig = Rig::with(BROWSER, config);
    rig.session
        .handle_functions(&[json!({"type": "function", "name": "t"})], rig.now);
    rig.session.handle_joined(rig.now);
    rig.open();
    rig.hear(json!({"type": "input_audio_buffer.speech_started", "item_id": "u"}));
    rig.hear(json!({"type": "input_audio_buffer.speech_stopped", "item_id": "u"}));
    rig.hear(json!({"type": "response.created", "response": {"id": "r"}}));
    rig.speak("r", "i", 2_400);
    rig.hear(
        json!({"type": "response.function_call_arguments.done", "response_id": "r", "item_id": "f",
        "call_id": "c", "name": "t", "arguments": "{}"}),
    );
    rig.hear(json!({"type": "response.done", "response": {"id": "r", "status": "completed"}}));
    let mut pcm = Vec::new();
    let speech = rig.session.next_speech(&mut pcm).expect("speech");
    rig.pass(Duration::from_secs(4));
    assert_eq!(rig.session.next_speech(&mut pcm), None, "the bot still speaks");
    rig.session.handle_mark(&speech.0, true, rig.now);
    rig.pass(Duration::from_millis(2_999));
    assert_eq!(rig.session.next_speech(&mut pcm), None);
    rig.pass(Duration::from_millis(1));
    let tick = rig.session.next_speech(&mut pcm).expect("a tick");
    assert_eq!(pcm, sound::tick(24_000));
    rig.session.handle_speech_started(rig.now);
    rig.pass(Duration::from_millis(60));
    rig.session.handle_mark(&tick.0, true, rig.now);
    rig.pass(Duration::from_millis(1_940));
    assert!(rig.session.next_speech(&mut pcm).is_some(), "the next tick");
    rig.hear(json!({"type": "input_audio_buffer.speech_started", "item_id": "v"}));
    let is_counted = |output: &RealtimeOutput| {
        let RealtimeOutput::Count(count) = output else {
            return false;
        };
        matches!(count, AssistantCount::FirstSound(_) | AssistantCount::BargeIn)
    };
    assert!(!rig.outputs.iter().any(is_counted));
    rig.hear(json!({"type": "input_audio_buffer.speech_stopped", "item_id": "v"}));
    rig.session
        .handle_function_result(FunctionHost::Tools, "c", &json!("out"), rig.now);
    rig.pass(Duration::from_secs(10));
    assert_eq!(rig.session.next_speech(&mut pcm), None);
}

/// The service tells of the end of speech after a pause; an answer counts from the last sound.
#[test]
fn an_answer_counts_from_the_last_sound_of_the_caller() {
    let mut rig = Rig::ready();
    for (ms, loud) in [(1_000, 30.0), (600, 8_000.0), (500, 30.0)] {
        let pcm: Vec<i16> = (0..480).map(|at| (loud * (f64::from(at) * 0.4).sin()) as i16).collect();
        for _ in 0..ms / 20 {
            rig.pass(Duration::from_millis(20));
            rig.session.handle_audio(&pcm, rig.now);
            rig.drain();
        }
    }
    rig.hear(json!({"type": "input_audio_buffer.speech_stopped", "item_id": "v"}));
    rig.pass(Duration::from_millis(100));
    rig.hear(
        json!({"type": "conversation.item.input_audio_transcription.completed", "item_id": "v", "transcript": "Hi."}),
    );
    rig.pass(Duration::from_millis(200));
    rig.hear(json!({"type": "response.created", "response": {"id": "a"}}));
    rig.speak("a", "i", 2_400);
    rig.pass(Duration::from_millis(50));
    assert!(rig.session.next_speech(&mut Vec::new()).is_some());
    rig.session.handle_speech_started(rig.now);
    rig.drain();
    let measured = rig.outputs.iter().find_map(|output| match output {
        RealtimeOutput::Report(ClientReport::FirstSound(answer)) => Some(answer.clone()),
        _ => None,
    });
    let ms = Duration::from_millis;
    assert_eq!(
        measured.expect("a time"),
        MeasuredAnswer {
            // The edge of the tone is in the frame behind it.
            latency: ms(830),
            stages: vec![
                ("recognized", ms(580)),
                ("first_token", ms(200)),
                ("first_sound", ms(50))
            ],
        }
    );
    let counted = |output: &RealtimeOutput| matches!(output, RealtimeOutput::Count(AssistantCount::FirstSound(waited)) if *waited == ms(830));
    assert!(rig.outputs.iter().any(counted), "the metric is the same");
}

/// The notes of a failure answer nothing, and an answer that failed has no time.
#[test]
fn a_failure_is_no_first_sound_of_an_answer() {
    let mut rig = Rig::ready();
    let leaves = |rig: &mut Rig| {
        let mark = rig.session.next_speech(&mut Vec::new()).expect("sound");
        rig.session.handle_speech_started(rig.now);
        rig.session.handle_mark(&mark.0, true, rig.now);
        rig.drain();
        let counted = |output: &&RealtimeOutput| matches!(output, RealtimeOutput::Count(AssistantCount::FirstSound(_)));
        rig.outputs.iter().filter(counted).count()
    };
    rig.hear(json!({"type": "input_audio_buffer.speech_stopped", "item_id": "u"}));
    rig.session.tell_failure(HOLD_ON);
    assert_eq!(leaves(&mut rig), 0, "the caller still waits");
    rig.session.playback.interrupt();
    rig.hear(json!({"type": "response.created", "response": {"id": "a"}}));
    rig.hear(
        json!({"type": "response.done", "response": {"id": "a", "status": "failed",
        "status_details": {"error": {"code": "server_error"}}}}),
    );
    assert_eq!(leaves(&mut rig), 0);
    rig.session.playback.interrupt();
    rig.hear(json!({"type": "response.created", "response": {"id": "b"}}));
    rig.speak("b", "i", 2_400);
    assert_eq!(leaves(&mut rig), 0, "it answers no speech");
    rig.hear(json!({"type": "input_audio_buffer.speech_stopped", "item_id": "v"}));
    rig.speak("b", "i", 2_400);
    assert_eq!(leaves(&mut rig), 1);
}

#[test]
fn an_old_connection_is_renewed_between_turns() {
    // The audio of a telephone: without optimisation, base64 of 50 minutes takes its time.
    let profile = CallProfile {
        line: CallProfile::TELEPHONE.line,
        ..BROWSER
    };
    let mut rig = Rig::ready_with(profile);
    let mut config = AssistantConfig::clone(&rig.session.config);
    config.idle = Some(Duration::from_secs(3_600));
    rig.session.lifetime = Lifetime::new(&config, false, Duration::from_secs(55 * 60), rig.now);
    rig.hear(json!({"type": "response.created", "response": {"id": "a"}}));
    rig.pass(RENEW_AFTER);
    assert_eq!(rig.connects(), 1, "not in the middle of an answer");
    rig.session.declare(&[json!({"type": "function", "name": "t"})]);
    rig.hear(
        json!({"type": "response.function_call_arguments.done", "response_id": "a", "item_id": "f",
        "call_id": "c", "name": "t", "arguments": "{}"}),
    );
    rig.hear(json!({"type": "response.done", "response": {"id": "a", "status": "completed"}}));
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.connects(), 1, "nor while a function runs");
    rig.session
        .handle_function_result(FunctionHost::Tools, "c", &json!("out"), rig.now);
    rig.hear(json!({"type": "input_audio_buffer.speech_stopped", "item_id": "u"}));
    rig.hear(json!({"type": "response.created", "response": {"id": "b"}}));
    rig.hear(json!({"type": "input_audio_buffer.speech_started", "item_id": "v"}));
    rig.hear(json!({"type": "input_audio_buffer.speech_stopped", "item_id": "v"}));
    rig.hear(json!({"type": "response.done", "response": {"id": "b", "status": "completed"}}));
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.connects(), 1, "nor while an answer is due");
    rig.hear(json!({"type": "response.created", "response": {"id": "c"}}));
    rig.hear(json!({"type": "response.done", "response": {"id": "c", "status": "completed"}}));
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.connects(), 2);
    assert!(!rig.is_over());
}

#[test]
fn silence_ends_a_session_and_its_length_ends_with_a_goodbye() {
    let mut rig = Rig::ready();
    rig.pass(Duration::from_millis(299_999));
    assert!(!rig.is_over());
    rig.pass(Duration::from_millis(1));
    assert_eq!(rig.end(), Some(&EndReason::Done("no one spoke")));

    let mut rig = Rig::ready();
    for _ in 0..14 {
        rig.pass(Duration::from_secs(60));
        rig.session.handle_dtmf('#', rig.now);
    }
    rig.pass(Duration::from_secs(29));
    assert_eq!(rig.types(), [""; 0]);
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.types(), ["conversation.item.create", "response.create"]);
    rig.pass(Duration::from_secs(30));
    assert_eq!(rig.end(), Some(&EndReason::Done("the session has reached its length")));
}

#[test]
fn keys_are_sent_together() {
    let mut rig = Rig::ready();
    for key in ['1', '2'] {
        rig.session.handle_dtmf(key, rig.now);
    }
    rig.pass(Duration::from_millis(1_999));
    assert_eq!(rig.types(), [""; 0]);
    rig.pass(Duration::from_millis(1));
    assert!(rig.sent[0].to_string().contains(": 12\""), "{:?}", rig.sent);
    assert_eq!(rig.types(), ["conversation.item.create", "response.create"]);
}

#[test]
fn keys_are_pressed_behind_the_speech_and_nothing_interrupts_them() {
    let mut rig = Rig::ready_with(CallProfile::TELEPHONE);
    rig.hear(json!({"type": "response.created", "response": {"id": "r"}}));
    rig.speak("r", "i", 400);
    let press = |call_id: &str| {
        json!({"type": "response.function_call_arguments.done", "response_id": "r", "item_id": "f",
            "call_id": call_id, "name": "press_keys", "arguments": "{\"keys\": \"1\"}"})
    };
    rig.hear(press("c"));
    rig.hear(json!({"type": "response.done", "response": {"id": "r", "status": "completed"}}));
    rig.hear(json!({"type": "input_audio_buffer.speech_started"}));
    assert_eq!(rig.types(), [""; 0], "the menu speaks on");
    let mut pcm = Vec::new();
    let mut marks = Vec::new();
    while let Some(mark) = rig.session.next_speech(&mut pcm) {
        marks.push(mark);
    }
    // 100 ms of speech, and 300 ms of the key.
    assert_eq!(marks.len(), 4);
    for mark in &marks[..3] {
        rig.session.handle_mark(&mark.0, true, rig.now);
    }
    rig.drain();
    assert_eq!(rig.types(), [""; 0], "the key was not heard to its end");
    rig.session.handle_mark(&marks[3].0, true, rig.now);
    rig.hear(json!({"type": "input_audio_buffer.speech_stopped"}));
    assert_eq!(rig.types(), ["conversation.item.create", "response.create"]);
}

/// The model ends a telephone call after its goodbye, unless the caller interrupts that.
#[test]
fn who_interrupts_a_goodbye_is_not_hung_up() {
    for is_interrupted in [false, true] {
        let mut rig = Rig::ready_with(CallProfile::TELEPHONE);
        rig.hear(json!({"type": "response.created", "response": {"id": "r"}}));
        rig.speak("r", "i", 1_600);
        rig.hear(
            json!({"type": "response.function_call_arguments.done", "response_id": "r", "item_id": "f",
            "call_id": "c", "name": "end_call", "arguments": "{}"}),
        );
        rig.hear(json!({"type": "response.done", "response": {"id": "r", "status": "completed"}}));
        assert!(!rig.is_over(), "the goodbye is not played");
        if is_interrupted {
            rig.hear(json!({"type": "input_audio_buffer.speech_started", "item_id": "u"}));
        }
        let mut pcm = Vec::new();
        while let Some(mark) = rig.session.next_speech(&mut pcm) {
            rig.session.handle_mark(&mark.0, true, rig.now);
        }
        rig.hear(json!({"type": "response.output_audio.done", "item_id": "i"}));
        assert_eq!(rig.is_over(), !is_interrupted);
    }
}

#[test]
fn a_service_that_opens_no_session_is_given_up() {
    let mut rig = Rig::new(BROWSER, Greeting::Off);
    rig.session.handle_connected(rig.now);
    rig.pass(SESSION_WITHIN);
    assert_eq!(rig.connects(), 2);
}

#[test]
fn a_temporary_fault_while_a_session_opens_is_retried() {
    for has_update in [false, true] {
        let mut rig = Rig::new(BROWSER, Greeting::Off);
        rig.session.handle_connected(rig.now);
        if has_update {
            rig.hear(json!({"type": "session.created"}));
        }
        rig.hear(json!({"type": "error", "error": {"type": "server_error"}}));
        rig.pass(Duration::ZERO);
        assert_eq!((rig.connects(), rig.is_over()), (2, false));
        rig.open();
        assert!(rig.session.is_ready());
    }
}

#[test]
fn hostile_events_change_nothing() {
    let mut rig = Rig::ready();
    for text in [
        "{",
        r#"{"type":"session.created"}"#,
        r#"{"type":"response.done","response":{"id":"x"}}"#,
        r#"{"type":"response.output_audio.delta","delta":"AA==","item_id":"i"}"#,
        r#"{"type":"response.output_audio.done","item_id":"none"}"#,
        r#"{"type":"response.output_audio_transcript.delta","delta":"x","item_id":"none"}"#,
    ] {
        rig.session.handle_message(text, rig.now);
        rig.drain();
    }
    assert!(!rig.is_over());
    assert_eq!(rig.types(), [""; 0]);
}

/// The session is configured once the operator's functions are known, and a call of one of them is
/// for the driver; the client sees its name only.
#[test]
fn functions_of_the_operator_are_declared_and_run() {
    let config = AssistantConfig {
        tools: Some(ToolsConfig::Program(vec!["p".to_owned()])),
        ..AssistantConfig::default()
    };
    let mut rig = Rig::with(BROWSER, config);
    rig.session.handle_joined(rig.now);
    rig.session.handle_connected(rig.now);
    rig.hear(json!({"type": "session.created"}));
    assert_eq!(rig.types(), [""; 0], "the functions are not known");
    rig.session
        .handle_functions(&[json!({"type": "function", "name": "t"})], rig.now);
    rig.drain();
    assert_eq!(rig.sent[0]["session"]["tools"][0]["name"], "t");
    rig.hear(json!({"type": "session.updated"}));
    rig.hear(json!({"type": "response.created", "response": {"id": "r"}}));
    rig.sent.clear();
    rig.hear(
        json!({"type": "response.function_call_arguments.done", "response_id": "r", "item_id": "i",
        "call_id": "c", "name": "t", "arguments": "{\"x\": 1}"}),
    );
    let run = rig.outputs.iter().find_map(|output| match output {
        RealtimeOutput::RunFunction(call) => Some(call.clone()),
        _ => None,
    });
    assert_eq!(run.expect("it runs").arguments, json!({"x": 1}));
    let reported = rig.outputs.iter().find_map(|output| match output {
        RealtimeOutput::Report(ClientReport::FunctionStarted(call)) => Some(call.clone()),
        _ => None,
    });
    assert_eq!(reported.expect("the client gets a message").arguments, Value::Null);
    rig.hear(json!({"type": "response.done", "response": {"id": "r", "status": "completed"}}));
    rig.session
        .handle_function_result(FunctionHost::Page, "c", &json!("forged"), rig.now);
    rig.drain();
    assert_eq!(rig.types(), [""; 0]);
    rig.session
        .handle_function_result(FunctionHost::Tools, "c", &json!("out"), rig.now);
    rig.drain();
    assert_eq!(rig.types(), ["conversation.item.create", "response.create"]);
}

/// Some servers do not tell the response of a call.
#[test]
fn a_call_without_its_response_is_followed_by_an_answer() {
    let mut rig = Rig::ready();
    rig.session.declare(&[json!({"type": "function", "name": "t"})]);
    rig.hear(json!({"type": "response.created", "response": {"id": "r"}}));
    rig.hear(json!({"type": "response.function_call_arguments.done", "call_id": "c", "name": "t", "arguments": "{}"}));
    rig.hear(json!({"type": "response.done", "response": {"id": "r", "status": "completed"}}));
    assert_eq!(rig.types(), [""; 0]);
    rig.session
        .handle_function_result(FunctionHost::Tools, "c", &json!("out"), rig.now);
    rig.drain();
    assert_eq!(rig.types(), ["conversation.item.create", "response.create"]);
}

/// While the caller holds the call, speech waits, the service hears silence in place of music, and
/// neither silence nor a goodbye ends the call.
#[test]
fn a_held_call_neither_speaks_nor_ends_by_silence() {
    let mut rig = Rig::ready();
    let mut pcm = Vec::new();
    rig.hear(json!({"type": "response.created", "response": {"id": "a"}}));
    rig.speak("a", "i", 4_800);
    assert!(rig.session.next_speech(&mut pcm).is_some());
    rig.session.handle_hold(true, rig.now);
    assert_eq!(rig.session.next_speech(&mut pcm), None);
    rig.hear(json!({"type": "response.done", "response": {"id": "a", "status": "completed"}}));
    rig.session.handle_audio(&[9_000; 2_400], rig.now);
    while let Some(output) = rig.session.poll_output() {
        assert!(!matches!(output, RealtimeOutput::Send(_)), "{output:?}");
    }
    rig.pass(Duration::from_secs(14 * 60));
    assert!(!rig.is_over());
    assert_eq!(rig.session.next_speech(&mut pcm), None);
    rig.session.handle_hold(false, rig.now);
    assert!(rig.session.next_speech(&mut pcm).is_some());
    rig.sent.clear();
    rig.session.handle_hold(true, rig.now);
    rig.pass(Duration::from_secs(45));
    assert_eq!(rig.types(), [""; 0], "a goodbye would not reach the caller");
    rig.session.handle_hold(false, rig.now);
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.types(), ["conversation.item.create", "response.create"]);
    rig.pass(Duration::from_secs(60));
    assert!(rig.is_over(), "by its length");
}
