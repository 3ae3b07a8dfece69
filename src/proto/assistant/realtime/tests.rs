//! The engine against a scripted service, with a clock of its own.

use serde_json::{Value, json};

use super::*;
use crate::assistant::config::ToolsConfig;
use crate::assistant::report::ConnectFailure;
use crate::assistant::service_url::ServiceUrl;

/// A session, its service, and the time.
struct World {
    session: Realtime,
    now: Instant,
    /// Events of the engine that are not audio, and its other outputs.
    sent: Vec<Value>,
    outputs: Vec<RealtimeOutput>,
}

const BROWSER: CallProfile = CallProfile::BROWSER;

impl World {
    fn new(profile: CallProfile, greeting: Greeting) -> Self {
        World::with(
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
        let mut world = World {
            session: Realtime::new(Arc::new(config), profile, body, now),
            now,
            sent: Vec::new(),
            outputs: Vec::new(),
        };
        world.drain();
        world
    }

    /// A session whose service is ready and whose caller is there.
    fn ready() -> Self {
        World::ready_with(BROWSER)
    }

    fn ready_with(profile: CallProfile) -> Self {
        let mut world = World::new(profile, Greeting::Off);
        world.session.handle_joined(world.now);
        world.open();
        world.sent.clear();
        world
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
    let mut world = World::new(BROWSER, Greeting::Text("Welcome.".into()));
    world.open();
    assert_eq!(world.types(), ["session.update"]);
    world.session.handle_joined(world.now);
    world.drain();
    assert_eq!(world.types(), ["response.create"]);
    let late = CallProfile {
        greet_on_ready: true,
        ..BROWSER
    };
    let mut world = World::new(late, Greeting::Default);
    world.session.handle_joined(world.now);
    world.open();
    assert_eq!(world.types(), ["session.update"]);
    world.session.handle_ready(world.now);
    world.drain();
    assert_eq!(world.types(), ["response.create"]);
}

#[test]
fn one_response_is_asked_for_at_a_time() {
    let mut world = World::ready();
    world.hear(json!({"type": "response.created", "response": {"id": "a"}}));
    let options = TextOptions {
        run_immediately: false,
        audio_response: true,
    };
    world.session.handle_text("hello", options, world.now);
    world.drain();
    assert_eq!(world.types(), ["conversation.item.create"]);
    world.hear(json!({"type": "response.done", "response": {"id": "a", "status": "completed"}}));
    assert_eq!(world.types(), ["response.create"]);
    world.hear(json!({"type": "error", "error": {"code": "conversation_already_has_active_response"}}));
    world.hear(json!({"type": "response.created", "response": {"id": "b"}}));
    world.hear(json!({"type": "response.done", "response": {"id": "b", "status": "completed"}}));
    assert_eq!(
        world.types(),
        ["response.create"],
        "the service answered by itself first"
    );
}

#[test]
fn an_interruption_before_the_first_sound_sends_no_truncation() {
    let mut world = World::ready();
    world.hear(json!({"type": "response.created", "response": {"id": "a"}}));
    world.hear(json!({"type": "input_audio_buffer.speech_started", "item_id": "u"}));
    world.speak("a", "i", 2_400);
    assert_eq!(
        world.session.next_speech(&mut Vec::new()),
        None,
        "a delayed delta is dropped"
    );
    assert_eq!(world.types(), [""; 0]);
    world.hear(json!({"type": "response.done", "response": {"id": "a", "status": "cancelled"}}));
    world.hear(json!({"type": "response.created", "response": {"id": "b"}}));
    world.speak("b", "j", 2_400);
    assert!(world.session.next_speech(&mut Vec::new()).is_some());
}

#[test]
fn an_answer_that_is_longer_than_the_cap_is_cancelled() {
    let mut world = World::ready();
    world.hear(json!({"type": "response.created", "response": {"id": "a"}}));
    for _ in 0..64 {
        world.speak("a", "i", 24_000);
    }
    assert_eq!(world.types(), [""; 0]);
    world.speak("a", "i", 1);
    assert_eq!(world.types(), ["response.cancel"]);
    world.speak("a", "i", 1);
    assert_eq!(world.types(), [""; 0]);
}

/// The first attempt follows at once; the caller is told once that it takes a while.
#[test]
fn a_lost_connection_is_tried_until_the_patience_is_over() {
    let mut world = World::ready();
    world.session.handle_closed(None, world.now);
    world.pass(Duration::ZERO);
    assert_eq!(world.connects(), 2);
    let begun = world.now;
    while !world.is_over() {
        let connects = world.connects();
        world.session.handle_connect_failed(ConnectFailure::TimedOut, world.now);
        world.drain();
        while world.connects() == connects && !world.is_over() {
            world.pass(Duration::from_millis(100));
        }
    }
    assert!(matches!(world.end(), Some(EndReason::Failed(_))), "{:?}", world.end());
    assert!(
        (30..32).contains(&(world.now - begun).as_secs()),
        "{:?}",
        world.now - begun
    );
    let is_told = |output: &&RealtimeOutput| matches!(output, RealtimeOutput::Report(ClientReport::Error { .. }));
    assert_eq!(world.outputs.iter().filter(is_told).count(), 1);
    assert!(
        world.session.next_speech(&mut Vec::new()).is_some(),
        "the sound of the failure"
    );
}

#[test]
fn an_outage_that_is_over_is_forgotten() {
    let mut world = World::ready();
    for _ in 0..4 {
        world.session.handle_closed(None, world.now);
        for _ in 0..5 {
            world.pass(Duration::from_secs(4));
            world.session.handle_connect_failed(ConnectFailure::TimedOut, world.now);
        }
        world.pass(Duration::from_secs(4));
        world.open();
        world.hear(json!({"type": "response.created", "response": {"id": "a"}}));
        world.hear(json!({"type": "response.done", "response": {"id": "a", "status": "completed"}}));
    }
    assert!(!world.is_over());
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
            let mut world = World::ready();
            if is_answered {
                world.hear(json!({"type": "response.created", "response": {"id": "a"}}));
                world.hear(json!({"type": "response.done", "response": {"id": "a", "status": "completed"}}));
            }
            world.hear(json!({"type": "response.created", "response": {"id": "b"}}));
            if by_error {
                world.hear(json!({"type": "error", "error": {"code": code}}));
            }
            world.hear(failed(code));
            assert_eq!(world.is_over(), is_over, "{code} {is_answered} {by_error}");
            assert!(world.session.next_speech(&mut Vec::new()).is_some(), "the notes");
        }
    }
}

#[test]
fn final_errors_and_closes_are_not_retried() {
    for event in [
        json!({"type": "error", "error": {"code": "insufficient_quota", "message": "hunter2"}}),
        json!({"type": "error", "error": {"type": "invalid_api_key"}}),
    ] {
        let mut world = World::ready();
        world.hear(event);
        let Some(EndReason::Failed(words)) = world.end() else {
            panic!("it ends")
        };
        assert!(!words.contains("hunter2"));
    }
    for code in [1000, 1008, 4000] {
        let mut world = World::ready();
        world.session.handle_closed(Some(code), world.now);
        world.drain();
        assert!(world.is_over(), "{code}");
    }
    let mut world = World::ready();
    world.session.handle_closed(Some(1001), world.now);
    world.pass(Duration::ZERO);
    assert_eq!((world.connects(), world.is_over()), (2, false));
}

#[test]
fn a_service_whose_sessions_expire_at_once_is_given_up() {
    let mut world = World::ready();
    for _ in 0..10 {
        world.hear(json!({"type": "error", "error": {"code": "session_expired"}}));
        world.pass(Duration::from_secs(4));
        world.open();
    }
    assert!(
        world.is_over() && world.connects() > 5,
        "{} connections",
        world.connects()
    );
}

#[test]
fn failed_responses_in_a_row_end_the_session_after_the_patience() {
    let mut world = World::ready();
    for number in 0..4 {
        assert!(!world.is_over(), "{number}");
        world.pass(Duration::from_secs(10));
        world.hear(json!({"type": "response.created", "response": {"id": "a"}}));
        world.hear(
            json!({"type": "response.done", "response": {"id": "a", "status": "failed",
            "status_details": {"error": {"code": "server_error"}}}}),
        );
    }
    assert!(world.is_over());
}

/// A fault of the service costs an answer, whichever event tells it. Errors about other events cost
/// nothing.
#[test]
fn errors_that_cost_an_answer_are_told() {
    let rate_limit = || json!({"type": "error", "error": {"type": "rate_limit_error", "code": "rate_limit_exceeded"}});
    let told = |world: &World| {
        let is_error = |output: &&RealtimeOutput| matches!(output, RealtimeOutput::Report(ClientReport::Error { .. }));
        world.outputs.iter().filter(is_error).count()
    };
    let options = TextOptions {
        run_immediately: false,
        audio_response: true,
    };
    let mut world = World::ready();
    for _ in 0..5 {
        world.hear(json!({"type": "error", "error": {"code": "invalid_value", "event_id": "u99"}}));
    }
    assert_eq!((told(&world), world.is_over()), (0, false));
    // A refused request: the next one is sent.
    world.session.handle_text("hello", options, world.now);
    world.drain();
    let id = world.sent.last().expect("a request")["event_id"].clone();
    world.hear(json!({"type": "error", "error": {"code": "invalid_value", "event_id": id}}));
    assert_eq!(told(&world), 1);
    assert!(world.session.next_speech(&mut Vec::new()).is_some(), "two notes");
    world.types();
    world.session.handle_text("hello", options, world.now);
    world.drain();
    assert_eq!(world.types(), ["conversation.item.create", "response.create"]);
    // An answer resets the count.
    world.hear(json!({"type": "response.created", "response": {"id": "a"}}));
    world.hear(json!({"type": "response.done", "response": {"id": "a", "status": "completed"}}));
    // One failure that two events tell.
    world.hear(json!({"type": "response.created", "response": {"id": "b"}}));
    world.hear(rate_limit());
    let failed = |id: &str| {
        json!({"type": "response.done", "response": {"id": id, "status": "failed",
            "status_details": {"error": {"code": "rate_limit_exceeded"}}}})
    };
    world.hear(failed("b"));
    assert_eq!((told(&world), world.is_over()), (2, false));
    world.hear(rate_limit());
    assert_eq!((told(&world), world.is_over()), (3, false));
}

/// The service may be told of the functions later than it waits for a session.
#[test]
fn a_slow_program_of_functions_does_not_cost_the_connection() {
    let config = AssistantConfig {
        tools: Some(ToolsConfig::Program(vec!["p".to_owned()])),
        ..AssistantConfig::default()
    };
    let mut world = World::with(BROWSER, config);
    world.session.handle_connected(world.now);
    world.hear(json!({"type": "session.created"}));
    world.pass(Duration::from_secs(20));
    assert_eq!((world.connects(), world.is_over()), (1, false));
    world.session.handle_functions(&[], world.now);
    world.drain();
    assert_eq!(world.types(), ["session.update"]);
    world.pass(SESSION_WITHIN);
    assert_eq!(world.connects(), 2, "the service has to accept them in time");
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
    let mut world = World::with(BROWSER, config);
    world
        .session
        .handle_functions(&[json!({"type": "function", "name": "t"})], world.now);
    world.session.handle_joined(world.now);
    world.open();
    world.hear(json!({"type": "input_audio_buffer.speech_started", "item_id": "u"}));
    world.hear(json!({"type": "input_audio_buffer.speech_stopped", "item_id": "u"}));
    world.hear(json!({"type": "response.created", "response": {"id": "r"}}));
    world.speak("r", "i", 2_400);
    world.hear(
        json!({"type": "response.function_call_arguments.done", "response_id": "r", "item_id": "f",
        "call_id": "c", "name": "t", "arguments": "{}"}),
    );
    world.hear(json!({"type": "response.done", "response": {"id": "r", "status": "completed"}}));
    let mut pcm = Vec::new();
    let speech = world.session.next_speech(&mut pcm).expect("speech");
    world.pass(Duration::from_secs(4));
    assert_eq!(world.session.next_speech(&mut pcm), None, "the bot still speaks");
    world.session.handle_mark(&speech.0, true, world.now);
    world.pass(Duration::from_millis(2_999));
    assert_eq!(world.session.next_speech(&mut pcm), None);
    world.pass(Duration::from_millis(1));
    let tick = world.session.next_speech(&mut pcm).expect("a tick");
    assert_eq!(pcm, sound::tick(24_000));
    world.session.handle_speech_started(world.now);
    world.pass(Duration::from_millis(60));
    world.session.handle_mark(&tick.0, true, world.now);
    world.pass(Duration::from_millis(1_940));
    assert!(world.session.next_speech(&mut pcm).is_some(), "the next tick");
    world.hear(json!({"type": "input_audio_buffer.speech_started", "item_id": "v"}));
    let is_counted = |output: &RealtimeOutput| {
        let RealtimeOutput::Count(count) = output else {
            return false;
        };
        matches!(count, AssistantCount::FirstSound(_) | AssistantCount::BargeIn)
    };
    assert!(!world.outputs.iter().any(is_counted));
    world.hear(json!({"type": "input_audio_buffer.speech_stopped", "item_id": "v"}));
    world
        .session
        .handle_function_result(FunctionHost::Tools, "c", &json!("out"), world.now);
    world.pass(Duration::from_secs(10));
    assert_eq!(world.session.next_speech(&mut pcm), None);
}

#[test]
fn an_old_connection_is_renewed_between_turns() {
    // The audio of a telephone: without optimisation, base64 of 50 minutes takes its time.
    let profile = CallProfile {
        line: CallProfile::TELEPHONE.line,
        ..BROWSER
    };
    let mut world = World::ready_with(profile);
    let mut config = AssistantConfig::clone(&world.session.config);
    config.idle = Some(Duration::from_secs(3_600));
    world.session.lifetime = Lifetime::new(&config, false, Duration::from_secs(55 * 60), world.now);
    world.hear(json!({"type": "response.created", "response": {"id": "a"}}));
    world.pass(RENEW_AFTER);
    assert_eq!(world.connects(), 1, "not in the middle of an answer");
    world.hear(json!({"type": "response.done", "response": {"id": "a", "status": "completed"}}));
    world.pass(Duration::from_secs(1));
    assert_eq!(world.connects(), 2);
    assert!(!world.is_over());
}

#[test]
fn silence_ends_a_session_and_its_length_ends_with_a_goodbye() {
    let mut world = World::ready();
    world.pass(Duration::from_millis(299_999));
    assert!(!world.is_over());
    world.pass(Duration::from_millis(1));
    assert_eq!(world.end(), Some(&EndReason::Done("no one spoke")));

    let mut world = World::ready();
    for _ in 0..14 {
        world.pass(Duration::from_secs(60));
        world.session.handle_dtmf('#', world.now);
    }
    world.pass(Duration::from_secs(29));
    assert_eq!(world.types(), [""; 0]);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.types(), ["conversation.item.create", "response.create"]);
    world.pass(Duration::from_secs(30));
    assert_eq!(
        world.end(),
        Some(&EndReason::Done("the session has reached its length"))
    );
}

#[test]
fn keys_are_sent_together() {
    let mut world = World::ready();
    for key in ['1', '2'] {
        world.session.handle_dtmf(key, world.now);
    }
    world.pass(Duration::from_millis(1_999));
    assert_eq!(world.types(), [""; 0]);
    world.pass(Duration::from_millis(1));
    assert!(world.sent[0].to_string().contains(": 12\""), "{:?}", world.sent);
    assert_eq!(world.types(), ["conversation.item.create", "response.create"]);
}

#[test]
fn keys_are_pressed_behind_the_speech_and_nothing_interrupts_them() {
    let mut world = World::ready_with(CallProfile::TELEPHONE);
    world.hear(json!({"type": "response.created", "response": {"id": "r"}}));
    world.speak("r", "i", 400);
    let press = |call_id: &str| {
        json!({"type": "response.function_call_arguments.done", "response_id": "r", "item_id": "f",
            "call_id": call_id, "name": "press_keys", "arguments": "{\"keys\": \"1\"}"})
    };
    world.hear(press("c"));
    world.hear(json!({"type": "response.done", "response": {"id": "r", "status": "completed"}}));
    world.hear(json!({"type": "input_audio_buffer.speech_started"}));
    assert_eq!(world.types(), [""; 0], "the menu speaks on");
    let mut pcm = Vec::new();
    let mut marks = Vec::new();
    while let Some(mark) = world.session.next_speech(&mut pcm) {
        marks.push(mark);
    }
    // 100 ms of speech, and 300 ms of the key.
    assert_eq!(marks.len(), 4);
    for mark in &marks[..3] {
        world.session.handle_mark(&mark.0, true, world.now);
    }
    world.drain();
    assert_eq!(world.types(), [""; 0], "the key was not heard to its end");
    world.session.handle_mark(&marks[3].0, true, world.now);
    world.hear(json!({"type": "input_audio_buffer.speech_stopped"}));
    assert_eq!(world.types(), ["conversation.item.create", "response.create"]);
}

#[test]
fn a_service_that_opens_no_session_is_given_up() {
    let mut world = World::new(BROWSER, Greeting::Off);
    world.session.handle_connected(world.now);
    world.pass(SESSION_WITHIN);
    assert_eq!(world.connects(), 2);
}

#[test]
fn hostile_events_change_nothing() {
    let mut world = World::ready();
    for text in [
        "{",
        r#"{"type":"session.created"}"#,
        r#"{"type":"response.done","response":{"id":"x"}}"#,
        r#"{"type":"response.output_audio.delta","delta":"AA==","item_id":"i"}"#,
        r#"{"type":"response.output_audio.done","item_id":"none"}"#,
        r#"{"type":"response.output_audio_transcript.delta","delta":"x","item_id":"none"}"#,
    ] {
        world.session.handle_message(text, world.now);
        world.drain();
    }
    assert!(!world.is_over());
    assert_eq!(world.types(), [""; 0]);
}

/// The session is configured once the operator's functions are known, and a call of one of them is
/// for the driver; the client sees its name only.
#[test]
fn functions_of_the_operator_are_declared_and_run() {
    let config = AssistantConfig {
        tools: Some(ToolsConfig::Program(vec!["p".to_owned()])),
        ..AssistantConfig::default()
    };
    let mut world = World::with(BROWSER, config);
    world.session.handle_joined(world.now);
    world.session.handle_connected(world.now);
    world.hear(json!({"type": "session.created"}));
    assert_eq!(world.types(), [""; 0], "the functions are not known");
    world
        .session
        .handle_functions(&[json!({"type": "function", "name": "t"})], world.now);
    world.drain();
    assert_eq!(world.sent[0]["session"]["tools"][0]["name"], "t");
    world.hear(json!({"type": "session.updated"}));
    world.hear(json!({"type": "response.created", "response": {"id": "r"}}));
    world.sent.clear();
    world.hear(
        json!({"type": "response.function_call_arguments.done", "response_id": "r", "item_id": "i",
        "call_id": "c", "name": "t", "arguments": "{\"x\": 1}"}),
    );
    let run = world.outputs.iter().find_map(|output| match output {
        RealtimeOutput::RunFunction(call) => Some(call.clone()),
        _ => None,
    });
    assert_eq!(run.expect("it runs").arguments, json!({"x": 1}));
    let told = world.outputs.iter().find_map(|output| match output {
        RealtimeOutput::Report(ClientReport::FunctionStarted(call)) => Some(call.clone()),
        _ => None,
    });
    assert_eq!(told.expect("the client is told").arguments, Value::Null);
    world.hear(json!({"type": "response.done", "response": {"id": "r", "status": "completed"}}));
    world
        .session
        .handle_function_result(FunctionHost::Page, "c", &json!("forged"), world.now);
    world.drain();
    assert_eq!(world.types(), [""; 0]);
    world
        .session
        .handle_function_result(FunctionHost::Tools, "c", &json!("out"), world.now);
    world.drain();
    assert_eq!(world.types(), ["conversation.item.create", "response.create"]);
}
