//! Connections that are lost in the middle of something.

use super::*;

impl Rig {
    /// Loses the connection, and opens the next one. What is sent on it stays in `sent`.
    fn reconnect(&mut self) {
        self.session.handle_closed(None, self.now);
        self.drain();
        self.sent.clear();
        self.pass(Duration::from_secs(4));
        self.open();
    }

    fn reports(&self, report: &ClientReport) -> usize {
        let is_it = |output: &&RealtimeOutput| matches!(output, RealtimeOutput::Report(known) if known == report);
        self.outputs.iter().filter(is_it).count()
    }
}

/// The next service gets the keys, once.
#[test]
fn keys_that_are_pressed_during_an_outage_are_not_lost() {
    let mut rig = Rig::ready();
    rig.session.handle_closed(None, rig.now);
    for key in ['4', '2', '#'] {
        rig.session.handle_dtmf(key, rig.now);
    }
    rig.pass(Duration::ZERO);
    rig.sent.clear();
    rig.open();
    let text = rig.sent[1]["item"]["content"][0]["text"].as_str().expect("a text");
    assert!(text.ends_with(": 42"), "{text}");
    assert_eq!(
        rig.types(),
        ["session.update", "conversation.item.create", "response.create"]
    );
}

/// A client that shows who speaks is not left with a turn that never ends.
#[test]
fn a_turn_of_the_caller_ends_with_its_connection() {
    let mut rig = Rig::ready();
    rig.hear(json!({"type": "input_audio_buffer.speech_started", "item_id": "u"}));
    rig.reconnect();
    assert_eq!(rig.reports(&ClientReport::UserStoppedSpeaking), 1);
    rig.reconnect();
    assert_eq!(rig.reports(&ClientReport::UserStoppedSpeaking), 1);
}

fn begin_response(rig: &mut Rig) {
    rig.hear(json!({"type": "response.created", "response": {"id": "a"}}));
}

#[test]
fn an_answer_that_is_lost_before_its_first_sound_is_asked_for_again() {
    let mut rig = Rig::ready();
    begin_response(&mut rig);
    rig.reconnect();
    assert_eq!(rig.types(), ["session.update", "response.create"]);
    // It is lost before the service has begun it.
    rig.reconnect();
    assert_eq!(rig.types(), ["session.update", "response.create"]);
    begin_response(&mut rig);
    rig.hear(json!({"type": "response.done", "response": {"id": "a", "status": "completed"}}));
    rig.reconnect();
    assert_eq!(rig.types(), ["session.update"], "it was given");
}

/// The caller has finished, and the service has not begun to answer. Words without a text are asked
/// for once more.
#[test]
fn a_question_that_is_lost_before_its_answer_is_answered_all_the_same() {
    for is_known in [true, false] {
        let mut rig = Rig::ready();
        rig.hear(json!({"type": "input_audio_buffer.speech_started", "item_id": "u"}));
        rig.hear(json!({"type": "input_audio_buffer.speech_stopped", "item_id": "u"}));
        if is_known {
            rig.hear(
                json!({"type": "conversation.item.input_audio_transcription.completed", "item_id": "u",
                "transcript": "Where are you?"}),
            );
        }
        // It is lost again before the next service has begun to answer.
        for _ in 0..2 {
            rig.reconnect();
            let asked = rig.sent.last().expect("a request")["response"]["instructions"].clone();
            if is_known {
                assert_eq!(asked, Value::Null);
                assert_eq!(
                    rig.types(),
                    ["session.update", "conversation.item.create", "response.create"]
                );
            } else {
                assert_eq!(asked, SAY_AGAIN);
                assert_eq!(rig.types(), ["session.update", "response.create"]);
            }
        }
        begin_response(&mut rig);
        rig.hear(json!({"type": "response.done", "response": {"id": "a", "status": "completed"}}));
        rig.reconnect();
        assert!(!rig.types().contains(&"response.create".to_owned()), "it was answered");
    }
}

/// A caller who was answered with a failure is not answered again after a loss, and the connection
/// can be renewed.
#[test]
fn a_question_that_the_service_refused_is_not_asked_again() {
    let mut rig = Rig::ready();
    rig.hear(json!({"type": "input_audio_buffer.speech_started", "item_id": "u"}));
    rig.hear(json!({"type": "input_audio_buffer.speech_stopped", "item_id": "u"}));
    assert!(!rig.session.is_between_turns(), "an answer is due");
    rig.hear(json!({"type": "error", "error": {"type": "rate_limit_error", "code": "rate_limit_exceeded"}}));
    assert!(rig.session.question.is_none());
    rig.reconnect();
    assert!(!rig.types().contains(&"response.create".to_owned()));
}

/// Who goes on speaking has not finished, and the next service hears the rest.
#[test]
fn a_caller_who_speaks_at_a_loss_is_not_answered_before_the_end() {
    let mut rig = Rig::ready();
    for event in ["speech_started", "speech_stopped", "speech_started"] {
        rig.hear(json!({"type": format!("input_audio_buffer.{event}"), "item_id": "u"}));
    }
    rig.reconnect();
    assert_eq!(rig.types(), ["session.update"]);
}

#[test]
fn a_greeting_that_is_lost_is_given_again() {
    let mut rig = Rig::new(BROWSER, Greeting::Text("Welcome.".into()));
    rig.session.handle_joined(rig.now);
    rig.open();
    let greeting = rig.sent.last().expect("a request")["response"].clone();
    assert!(greeting.to_string().contains("Welcome."), "{greeting}");
    begin_response(&mut rig);
    rig.speak("a", "i", 2_400);
    rig.reconnect();
    assert_eq!(rig.sent.last().expect("a request")["response"], greeting);
}

/// The next service gets what was played, and goes on from there.
#[test]
fn speech_that_is_cut_by_a_loss_is_remembered_as_far_as_it_was_heard() {
    for is_done in [false, true] {
        let mut rig = Rig::ready();
        begin_response(&mut rig);
        rig.hear(
            json!({"type": "response.output_audio_transcript.delta", "response_id": "a", "item_id": "i",
            "delta": "One two three four. "}),
        );
        rig.speak("a", "i", 4_800);
        if is_done {
            rig.hear(json!({"type": "response.output_audio.done", "item_id": "i"}));
            rig.hear(json!({"type": "response.done", "response": {"id": "a", "status": "completed"}}));
        }
        let mark = rig.session.next_speech(&mut Vec::new()).expect("speech");
        rig.session.handle_mark(&mark.0, true, rig.now);
        rig.reconnect();
        let item = rig.sent[1]["item"].clone();
        assert_eq!(
            (&item["role"], &item["content"][0]["text"]),
            (&json!("assistant"), &json!("One two"))
        );
        assert_eq!(
            rig.types(),
            ["session.update", "conversation.item.create", "response.create"]
        );
    }
}

#[test]
fn an_answer_that_the_caller_interrupted_is_not_asked_for_again() {
    let mut rig = Rig::ready();
    begin_response(&mut rig);
    rig.hear(json!({"type": "input_audio_buffer.speech_started", "item_id": "u"}));
    rig.reconnect();
    assert_eq!(rig.types(), ["session.update"]);
}

/// The sounds of the runner are no answer.
#[test]
fn a_loss_without_an_answer_asks_for_none() {
    let mut rig = Rig::ready();
    rig.session.tell_failure(HOLD_ON);
    assert!(rig.session.playback.is_speaking());
    rig.reconnect();
    assert_eq!(rig.types(), ["session.update"]);
}

#[test]
fn a_function_that_runs_at_a_loss_is_given_up_and_the_caller_gets_an_answer() {
    let mut rig = Rig::ready();
    rig.session.declare(&[json!({"type": "function", "name": "t"})]);
    begin_response(&mut rig);
    rig.hear(
        json!({"type": "response.function_call_arguments.done", "response_id": "a", "item_id": "f",
        "call_id": "c", "name": "t", "arguments": "{}"}),
    );
    rig.hear(json!({"type": "response.done", "response": {"id": "a", "status": "completed"}}));
    rig.reconnect();
    assert_eq!(rig.types(), ["session.update", "response.create"]);
    let stopped = ClientReport::FunctionStopped {
        call_id: "c".to_owned(),
        name: "t".to_owned(),
        is_cancelled: true,
    };
    assert_eq!(rig.reports(&stopped), 1);
    rig.session
        .handle_function_result(FunctionHost::Tools, "c", &json!("late"), rig.now);
    rig.drain();
    assert_eq!(rig.types(), [""; 0]);
}
