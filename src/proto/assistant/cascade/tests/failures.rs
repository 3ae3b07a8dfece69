//! Services that are away, refuse, or answer nothing.

use super::*;

impl Rig {
    fn fail(&mut self, id: u64, failure: &ServiceFailure) {
        self.session.handle_failed(id, failure, self.now);
        self.drain();
    }

    fn reported(&self, words: &str) -> usize {
        let is_reported =
            |report: &&ClientReport| matches!(report, ClientReport::Error { text } if text.contains(words));
        self.reports().filter(is_reported).count()
    }

    fn logged(&self, words: &str) -> bool {
        let is_logged = |output: &CascadeOutput| matches!(output, CascadeOutput::Log(line) if line.contains(words));
        self.outputs.iter().any(is_logged)
    }
}

/// The caller hears once that it takes a while, and the question is not lost.
#[test]
fn a_service_that_is_away_is_asked_again_until_the_patience_is_over() {
    let mut rig = Rig::joined();
    rig.say("Hello.");
    let begun = rig.now;
    while rig.end().is_none() {
        let asked = rig.chats();
        rig.fail(rig.chat(), &ServiceFailure::Fault);
        while rig.chats() == asked && rig.end().is_none() {
            rig.pass(Duration::from_millis(100));
        }
    }
    assert!((30..32).contains(&(rig.now - begun).as_secs()), "{:?}", rig.now - begun);
    assert!(matches!(rig.end(), Some(EndReason::Failed(why)) if why.starts_with("the chat model")));
    assert_eq!(rig.reported("hold on"), 1);
    assert_eq!(rig.asked(), [pair("user", "Hello.")]);
}

#[test]
fn a_service_names_the_time_to_wait() {
    let mut rig = Rig::joined();
    rig.say("Hello.");
    rig.fail(rig.chat(), &ServiceFailure::Busy(Duration::from_secs(6)));
    assert_eq!(
        (rig.reported("hold on"), rig.play(100)),
        (1, 5),
        "the wait is played once"
    );
    rig.pass(Duration::from_millis(5_400));
    assert_eq!(rig.chats(), 1);
    rig.pass(Duration::from_millis(200));
    assert_eq!(rig.chats(), 2);
    rig.answer("Good day. ");
    // Later failures begin a new wait.
    rig.say("And now?");
    rig.fail(rig.chat(), &ServiceFailure::Fault);
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.asked().last(), Some(&pair("user", "And now?")));
}

/// A caller on the telephone is silent for 30 s at most, but may wait longer.
#[test]
fn the_wait_for_a_service_is_no_silence_of_the_caller() {
    let config = AssistantConfig {
        greeting: Greeting::Off,
        patience: Duration::from_secs(120),
        ..AssistantConfig::default()
    };
    let mut rig = Rig::new(CallProfile::TELEPHONE, config, &json!({}));
    rig.session.handle_joined(rig.now);
    rig.be_silent(600);
    rig.say("Hello.");
    rig.fail(rig.chat(), &ServiceFailure::Busy(Duration::from_secs(60)));
    rig.pass(Duration::from_secs(61));
    assert_eq!((rig.end(), rig.chats()), (None, 2));
    rig.pass(Duration::from_secs(31));
    assert!(rig.end().is_some(), "while the service is asked, silence counts");
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
        let mut first = Rig::joined();
        first.say("Hello.");
        first.fail(first.chat(), &failure);
        let is_of_request = matches!(failure, ServiceFailure::RefusedContent | ServiceFailure::TooLong);
        assert_eq!(first.end().is_none(), is_of_request, "{failure}: the first request");

        let mut rig = Rig::joined();
        rig.say("Hello.");
        rig.answer("Good day. ");
        rig.say("Something odd.");
        let asked = rig.chats();
        rig.fail(rig.chat(), &failure);
        if failure.may_be_length() {
            assert_eq!(
                rig.asked(),
                [pair("user", "Something odd.")],
                "{failure}: without the oldest turn"
            );
            rig.fail(rig.chat(), &failure);
        }
        assert!(rig.logged(&failure.to_string()), "{failure}");
        assert_eq!(rig.reported("no answer"), 1, "{failure}");
        assert_eq!(rig.play(100), 5, "{failure}: the notes");
        rig.pass(Duration::from_secs(1));
        assert_eq!(rig.chats(), asked + usize::from(failure.may_be_length()), "{failure}");
        rig.say("Something else.");
        let said = rig.asked();
        assert_eq!(said[0], pair("user", "Hello."), "{failure}: the memory stays");
        let last = said.last().expect("a question").1.clone();
        assert_eq!(last.contains("odd"), !failure.is_about_words(), "{failure}: {last}");
        assert_eq!(rig.end(), None, "{failure}");
    }
}

#[test]
fn a_conversation_that_is_too_long_is_shortened_by_halves() {
    let mut rig = Rig::joined();
    for turn in 0..8 {
        rig.say(&format!("Question {turn}."));
        rig.answer("An answer. ");
    }
    rig.say("Question 8.");
    rig.fail(rig.chat(), &ServiceFailure::Rejected(400));
    assert_eq!(rig.asked()[0], pair("user", "Question 4."));
    rig.fail(rig.chat(), &ServiceFailure::TooLong);
    assert_eq!(rig.asked()[0], pair("user", "Question 6."));
    rig.answer("An answer. ");
    assert_eq!(rig.reported("no answer"), 0);
    rig.say("Question 9.");
    assert_eq!(
        rig.asked()[0],
        pair("user", "Question 6."),
        "what was too long stays away"
    );
}

#[test]
fn an_answer_without_a_word_is_asked_for_once_more() {
    let mut rig = Rig::joined();
    rig.say("Hello.");
    rig.write(" \n");
    rig.finish();
    assert!(rig.logged("without a word"));
    assert_eq!((rig.chats(), rig.reported("no answer")), (2, 0));
    rig.finish();
    assert_eq!((rig.chats(), rig.reported("no answer")), (2, 1));
    assert_eq!(rig.play(100), 5, "the notes");
    let completed = CascadeOutput::Count(AssistantCount::Response(ResponseStatus::Completed));
    assert!(!rig.outputs.contains(&completed));
    rig.say("Are you there?");
    rig.answer("Yes. ");
    assert!(rig.outputs.contains(&completed));
}

/// LM Studio and LMDeploy do not say that a conversation is too long.
#[test]
fn a_conversation_with_empty_answers_is_shortened_by_halves() {
    let mut rig = Rig::joined();
    for turn in 0..8 {
        rig.say(&format!("Question {turn}."));
        rig.answer("An answer. ");
    }
    rig.say("Question 8.");
    rig.finish();
    assert_eq!(rig.asked()[0], pair("user", "Question 0."), "the same once more");
    rig.finish();
    assert_eq!(rig.asked()[0], pair("user", "Question 4."));
    rig.answer("An answer. ");
    assert_eq!(rig.reported("no answer"), 0);
    rig.say("Question 9.");
    assert_eq!(rig.asked()[0], pair("user", "Question 4."));
}

#[test]
fn a_sentence_that_the_voice_refuses_costs_that_sentence() {
    let mut rig = Rig::joined();
    rig.say("Hello.");
    rig.write("One is here. Two is not. Three is here. ");
    rig.voice();
    let (id, text) = rig.sentences().pop_last().expect("a sentence");
    assert_eq!(text, "Two is not.");
    rig.fail(id, &ServiceFailure::Rejected(400));
    assert_eq!(rig.reported("no answer"), 1);
    rig.play(100);
    assert_eq!(rig.sentences().pop_last().expect("a sentence").1, "Three is here.");
    rig.finish();
    rig.voice();
    rig.play(100);
    rig.say("What is with two?");
    assert_eq!(rig.asked()[1], pair("assistant", "One is here. Three is here."));
    assert_eq!(rig.end(), None);
}

/// A voice that answers nothing is logged, and reported to the client.
#[test]
fn a_voice_without_a_sound_costs_the_sentence() {
    let mut rig = Rig::joined();
    rig.say("Hello.");
    rig.write("One is here. Two is here. ");
    rig.finish();
    let (id, _) = rig.sentences().pop_last().expect("a sentence");
    rig.session.handle_speech_done(id, rig.now);
    rig.drain();
    assert!(rig.logged("the voice: an answer without a word or a sound"));
    assert_eq!(rig.reported("no answer"), 1);
    assert_eq!(rig.play(100), 5, "the notes");
    assert_eq!(rig.sentences().pop_last().expect("a sentence").1, "Two is here.");
    rig.voice();
    assert!(rig.play(100) > 0);
    rig.say("Go on.");
    assert_eq!((rig.chats(), rig.end()), (2, None));
    assert_eq!(rig.asked()[1], pair("assistant", "Two is here."), "what was said");
}

/// Of a sentence that the voice breaks off, the model is given the part that was played. An answer
/// that was played as a whole stays as the model wrote it.
#[test]
fn speech_that_breaks_off_counts_as_far_as_it_was_played() {
    let text = "One is here. Two is a sentence that takes longer than a second.";
    for is_cut in [true, false] {
        let mut rig = Rig::joined();
        rig.say("Hello.");
        rig.write(&text.replace(". ", ".\n\n"));
        rig.finish();
        rig.voice();
        if is_cut {
            let (id, _) = rig.sentences().pop_last().expect("a sentence");
            let pcm = vec![1_000; VOICE_RATE_HZ as usize];
            rig.session.handle_speech(id, &pcm, VOICE_RATE_HZ, rig.now);
            rig.fail(id, &ServiceFailure::Fault);
        } else {
            rig.voice();
        }
        rig.play(100);
        rig.say("Go on.");
        let said = rig.asked()[1].1.clone();
        match is_cut {
            true => assert_eq!(said, "One is here. Two is a"),
            false => assert_eq!(said, text.replace(". ", ".\n\n")),
        }
    }
}

/// The model goes on with the outputs of functions once it can be asked again.
#[test]
fn a_busy_service_does_not_lose_the_outputs_of_functions() {
    let mut rig = Rig::joined_with(&tools(), |_| {});
    rig.say("Look.");
    rig.finish_with(vec![call("a", "f")]);
    rig.session
        .handle_function_result(FunctionHost::Page, "a", &json!({"x": 1}), rig.now);
    rig.drain();
    for chats in 2..12 {
        assert_eq!(rig.chats(), chats);
        rig.fail(rig.chat(), &ServiceFailure::Busy(Duration::from_secs(1)));
        rig.pass(Duration::from_secs(1));
        rig.session.record(CascadeService::Model).handle_answered();
        rig.pass(Duration::from_secs(3));
        rig.session.handle_timeout(rig.now);
        rig.drain();
    }
    assert_eq!(rig.asked().last(), Some(&pair("tool", r#"{"x":1}"#)));
    rig.answer("It is one. ");
    assert_eq!(rig.reported("no answer"), 0);
}

#[test]
fn an_answer_between_failures_starts_the_count_again() {
    let mut rig = Rig::joined();
    for _ in 0..4 {
        rig.say("Hello.");
        let id = rig.chat();
        rig.session.handle_failed(id, &ServiceFailure::CutShort, rig.now);
        rig.drain();
        rig.pass(Duration::from_secs(1));
        rig.answer("Good day. ");
    }
    assert_eq!(rig.end(), None);
}

#[test]
fn a_refused_key_ends_the_call_at_once() {
    let mut rig = Rig::joined();
    rig.say("Hello.");
    let id = rig.chat();
    rig.session.handle_failed(id, &ServiceFailure::RefusedKey, rig.now);
    rig.drain();
    let reason = EndReason::Failed("the chat model: it does not accept the key".to_owned());
    assert_eq!(rig.end(), Some(&reason));
    rig.pass(Duration::from_secs(10));
    assert_eq!(rig.chats(), 1, "the model is not asked again");
    assert_eq!(rig.play(100), 5, "half a second of notes");
}

#[test]
fn a_recogniser_that_fails_is_announced_and_the_call_goes_on() {
    let mut rig = Rig::joined();
    rig.speak(400);
    let id = rig.recognition();
    rig.session.handle_failed(id, &ServiceFailure::Fault, rig.now);
    rig.speak(400);
    assert_eq!(rig.recognition(), id, "the rest is no utterance of its own");
    let is_error = |report: &ClientReport| matches!(report, ClientReport::Error { .. });
    assert!(!rig.reports().any(is_error));
    rig.be_silent(1_000);
    assert!(rig.reports().any(is_error));
    assert_eq!(rig.play(100), 5);
    rig.say("Again.");
    assert_eq!(rig.asked(), [pair("user", "Again.")]);
}

/// The second question begins before the patience with the first failure is over, and ends behind.
#[test]
fn separate_failures_of_the_recogniser_do_not_end_the_call() {
    let mut rig = Rig::joined();
    rig.speak(400);
    rig.be_silent(1_000);
    let first = rig.recognition();
    rig.fail(first, &ServiceFailure::Fault);
    rig.play(100);
    rig.pass(Duration::from_secs(25));
    let failed_at = rig.now - Duration::from_secs(25);
    rig.be_silent(600);
    rig.speak(400);
    assert_ne!(rig.recognition(), first);
    assert!(rig.now - failed_at < Duration::from_secs(29));
    rig.speak(5_000);
    rig.be_silent(1_000);
    assert!(rig.now - failed_at > Duration::from_secs(31));
    rig.fail(rig.recognition(), &ServiceFailure::Fault);
    assert_eq!((rig.reported("say it again"), rig.end()), (2, None));
}

#[test]
fn a_sentence_without_speech_is_asked_for_again() {
    let mut rig = Rig::joined();
    rig.say("Hello.");
    rig.write("Good day. ");
    let (id, _) = rig.sentences().pop_last().expect("a sentence");
    rig.session.handle_failed(id, &ServiceFailure::CutShort, rig.now);
    rig.drain();
    rig.pass(Duration::from_secs(1));
    assert_eq!(
        rig.sentences().into_values().collect::<Vec<_>>(),
        ["Good day.", "Good day."]
    );
}
