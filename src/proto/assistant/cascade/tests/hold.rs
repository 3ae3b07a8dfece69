//! Callers who hold the call.

use super::*;

const HOUR: Duration = Duration::from_secs(3_600);

/// Speech waits for the caller, who hears the rest of the answer.
#[test]
fn an_answer_waits_while_the_caller_holds_the_call() {
    let mut rig = Rig::joined();
    rig.say("Hello.");
    rig.write("Good day.");
    rig.finish();
    rig.voice();
    assert_eq!(rig.play(4), 4);
    rig.session.handle_hold(true, rig.now);
    assert_eq!(rig.play(1), 0);
    rig.pass(Duration::from_secs(60));
    assert_eq!(rig.play(1), 0, "nor does it tick");
    rig.session.handle_hold(false, rig.now);
    assert_eq!(rig.play(100), 6, "the voice speaks for a second");
}

/// Music on hold is no turn, and its silence does not end the call; its length does.
#[test]
fn a_held_call_neither_listens_nor_ends_by_silence() {
    let mut rig = Rig::joined_with(&json!({}), |config| config.minutes_max = 2 * HOUR);
    rig.session.handle_hold(true, rig.now);
    rig.speak(2_000);
    rig.pass(HOUR);
    let is_asked = |output: &CascadeOutput| matches!(output, CascadeOutput::StartRecognition { .. });
    assert!(!rig.outputs.iter().any(is_asked) && rig.end().is_none());
    rig.session.handle_hold(false, rig.now);
    rig.say("Are you there?");
    assert_eq!(rig.chats(), 1);
    let mut rig = Rig::joined();
    rig.pass(HOUR);
    assert!(rig.end().is_some(), "without a hold, silence ends it");
}

/// The goodbye before the end of a session waits for a caller who hears it.
#[test]
fn no_goodbye_is_said_into_a_hold() {
    let mut rig = Rig::joined_with(&json!({}), |config| config.minutes_max = HOUR);
    rig.session.handle_hold(true, rig.now);
    rig.pass(HOUR - Duration::from_secs(10));
    assert_eq!(rig.chats(), 0);
    rig.session.handle_hold(false, rig.now);
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.chats(), 1);
    rig.pass(Duration::from_secs(10));
    assert!(rig.end().is_some());
}
