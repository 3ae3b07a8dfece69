//! Services that are away, refuse, or answer nothing.

use super::*;

impl World {
    fn fail(&mut self, id: u64, failure: &ServiceFailure) {
        self.session.handle_failed(id, failure, self.now);
        self.drain();
    }

    fn told(&self, words: &str) -> usize {
        let is_told = |report: &&ClientReport| matches!(report, ClientReport::Error { text } if text.contains(words));
        self.reports().filter(is_told).count()
    }

    fn logged(&self, words: &str) -> bool {
        let is_logged = |output: &CascadeOutput| matches!(output, CascadeOutput::Log(line) if line.contains(words));
        self.outputs.iter().any(is_logged)
    }
}

/// The caller hears once that it takes a while, and the question is not lost.
#[test]
fn a_service_that_is_away_is_asked_again_until_the_patience_is_over() {
    let mut world = World::joined();
    world.say("Hello.");
    let begun = world.now;
    while world.end().is_none() {
        let asked = world.chats();
        world.fail(world.chat(), &ServiceFailure::Fault);
        while world.chats() == asked && world.end().is_none() {
            world.pass(Duration::from_millis(100));
        }
    }
    assert!(
        (30..32).contains(&(world.now - begun).as_secs()),
        "{:?}",
        world.now - begun
    );
    assert!(matches!(world.end(), Some(EndReason::Failed(why)) if why.starts_with("the chat model")));
    assert_eq!(world.told("hold on"), 1);
    assert_eq!(world.asked(), [pair("user", "Hello.")]);
}

#[test]
fn a_service_names_the_time_to_wait() {
    let mut world = World::joined();
    world.say("Hello.");
    world.fail(world.chat(), &ServiceFailure::Busy(Duration::from_secs(6)));
    assert_eq!(
        (world.told("hold on"), world.play(100)),
        (1, 5),
        "the wait is played once"
    );
    world.pass(Duration::from_millis(5_400));
    assert_eq!(world.chats(), 1);
    world.pass(Duration::from_millis(200));
    assert_eq!(world.chats(), 2);
    world.answer("Good day. ");
    // Later failures begin a new wait.
    world.say("And now?");
    world.fail(world.chat(), &ServiceFailure::Fault);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.asked().last(), Some(&pair("user", "And now?")));
}

/// A caller on the telephone is silent for 30 s at most, but may wait longer.
#[test]
fn the_wait_for_a_service_is_no_silence_of_the_caller() {
    let config = AssistantConfig {
        greeting: Greeting::Off,
        patience: Duration::from_secs(120),
        ..AssistantConfig::default()
    };
    let mut world = World::new(CallProfile::TELEPHONE, config, &json!({}));
    world.session.handle_joined(world.now);
    world.be_silent(600);
    world.say("Hello.");
    world.fail(world.chat(), &ServiceFailure::Busy(Duration::from_secs(60)));
    world.pass(Duration::from_secs(61));
    assert_eq!((world.end(), world.chats()), (None, 2));
    world.pass(Duration::from_secs(31));
    assert!(world.end().is_some(), "while the service is asked, silence counts");
}

#[test]
fn a_refused_request_costs_its_answer_once_the_service_has_answered() {
    let refusals = [
        ServiceFailure::Rejected(400),
        ServiceFailure::Forbidden,
        ServiceFailure::UnknownModel,
        ServiceFailure::RefusedContent,
        ServiceFailure::TooLong,
    ];
    for failure in refusals {
        let mut first = World::joined();
        first.say("Hello.");
        first.fail(first.chat(), &failure);
        let is_of_request = matches!(failure, ServiceFailure::RefusedContent | ServiceFailure::TooLong);
        assert_eq!(first.end().is_none(), is_of_request, "{failure}: the first request");

        let mut world = World::joined();
        world.say("Hello.");
        world.answer("Good day. ");
        world.say("Something odd.");
        let asked = world.chats();
        world.fail(world.chat(), &failure);
        if failure.may_be_length() {
            assert_eq!(
                world.asked(),
                [pair("user", "Something odd.")],
                "{failure}: without the oldest turn"
            );
            world.fail(world.chat(), &failure);
        }
        assert!(world.logged(&failure.to_string()), "{failure}");
        assert_eq!(world.told("no answer"), 1, "{failure}");
        assert_eq!(world.play(100), 5, "{failure}: the notes");
        world.pass(Duration::from_secs(1));
        assert_eq!(world.chats(), asked + usize::from(failure.may_be_length()), "{failure}");
        world.say("Something else.");
        let said = world.asked();
        assert_eq!(said[0], pair("user", "Hello."), "{failure}: the memory stays");
        let last = said.last().expect("a question").1.clone();
        assert_eq!(last.contains("odd"), !failure.is_about_words(), "{failure}: {last}");
        assert_eq!(world.end(), None, "{failure}");
    }
}

#[test]
fn a_conversation_that_is_too_long_is_shortened_by_halves() {
    let mut world = World::joined();
    for turn in 0..8 {
        world.say(&format!("Question {turn}."));
        world.answer("An answer. ");
    }
    world.say("Question 8.");
    world.fail(world.chat(), &ServiceFailure::Rejected(400));
    assert_eq!(world.asked()[0], pair("user", "Question 4."));
    world.fail(world.chat(), &ServiceFailure::TooLong);
    assert_eq!(world.asked()[0], pair("user", "Question 6."));
    world.answer("An answer. ");
    assert_eq!(world.told("no answer"), 0);
    world.say("Question 9.");
    assert_eq!(
        world.asked()[0],
        pair("user", "Question 6."),
        "what was too long stays away"
    );
}

#[test]
fn an_answer_without_a_word_is_asked_for_once_more() {
    let mut world = World::joined();
    world.say("Hello.");
    world.write(" \n");
    world.finish();
    assert!(world.logged("without a word"));
    assert_eq!((world.chats(), world.told("no answer")), (2, 0));
    world.finish();
    assert_eq!((world.chats(), world.told("no answer")), (2, 1));
    assert_eq!(world.play(100), 5, "the notes");
    let completed = CascadeOutput::Count(AssistantCount::Response(ResponseStatus::Completed));
    assert!(!world.outputs.contains(&completed));
    world.say("Are you there?");
    world.answer("Yes. ");
    assert!(world.outputs.contains(&completed));
}

#[test]
fn a_sentence_that_the_voice_refuses_costs_that_sentence() {
    let mut world = World::joined();
    world.say("Hello.");
    world.write("One is here. Two is not. Three is here. ");
    world.voice();
    let (id, text) = world.sentences().pop_last().expect("a sentence");
    assert_eq!(text, "Two is not.");
    world.fail(id, &ServiceFailure::Rejected(400));
    assert_eq!(world.told("no answer"), 1);
    world.play(100);
    assert_eq!(world.sentences().pop_last().expect("a sentence").1, "Three is here.");
    assert_eq!(world.end(), None);
}

/// The model goes on with the outputs of functions once it can be asked again.
#[test]
fn a_busy_service_does_not_lose_the_outputs_of_functions() {
    let mut world = World::joined_with(&tools(), |_| {});
    world.say("Look.");
    world.finish_with(vec![call("a", "f")]);
    world
        .session
        .handle_function_result(FunctionHost::Page, "a", &json!({"x": 1}), world.now);
    world.drain();
    for chats in 2..12 {
        assert_eq!(world.chats(), chats);
        world.fail(world.chat(), &ServiceFailure::Busy(Duration::from_secs(1)));
        world.pass(Duration::from_secs(1));
        world.session.record(CascadeService::Model).handle_answered();
        world.pass(Duration::from_secs(3));
        world.session.handle_timeout(world.now);
        world.drain();
    }
    assert_eq!(world.asked().last(), Some(&pair("tool", r#"{"x":1}"#)));
    world.answer("It is one. ");
    assert_eq!(world.told("no answer"), 0);
}

#[test]
fn an_answer_between_failures_starts_the_count_again() {
    let mut world = World::joined();
    for _ in 0..4 {
        world.say("Hello.");
        let id = world.chat();
        world.session.handle_failed(id, &ServiceFailure::CutShort, world.now);
        world.drain();
        world.pass(Duration::from_secs(1));
        world.answer("Good day. ");
    }
    assert_eq!(world.end(), None);
}

#[test]
fn a_refused_key_ends_the_call_at_once() {
    let mut world = World::joined();
    world.say("Hello.");
    let id = world.chat();
    world.session.handle_failed(id, &ServiceFailure::RefusedKey, world.now);
    world.drain();
    let reason = EndReason::Failed("the chat model: it does not accept the key".to_owned());
    assert_eq!(world.end(), Some(&reason));
    world.pass(Duration::from_secs(10));
    assert_eq!(world.chats(), 1, "the model is not asked again");
    assert_eq!(world.play(100), 5, "half a second of notes");
}

#[test]
fn a_recogniser_that_fails_is_heard_and_the_call_goes_on() {
    let mut world = World::joined();
    world.speak(400);
    let id = world.recognition();
    world.session.handle_failed(id, &ServiceFailure::Fault, world.now);
    world.speak(400);
    assert_eq!(world.recognition(), id, "the rest is no utterance of its own");
    let is_error = |report: &ClientReport| matches!(report, ClientReport::Error { .. });
    assert!(!world.reports().any(is_error));
    world.be_silent(1_000);
    assert!(world.reports().any(is_error));
    assert_eq!(world.play(100), 5);
    world.say("Again.");
    assert_eq!(world.asked(), [pair("user", "Again.")]);
}

#[test]
fn a_sentence_without_speech_is_asked_for_again() {
    let mut world = World::joined();
    world.say("Hello.");
    world.write("Good day. ");
    let (id, _) = world.sentences().pop_last().expect("a sentence");
    world.session.handle_failed(id, &ServiceFailure::CutShort, world.now);
    world.drain();
    world.pass(Duration::from_secs(1));
    assert_eq!(
        world.sentences().into_values().collect::<Vec<_>>(),
        ["Good day.", "Good day."]
    );
}
