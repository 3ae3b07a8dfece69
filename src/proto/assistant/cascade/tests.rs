//! The engine against scripted services, with a clock of its own.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::assistant::config::{DetectorKind, ToolsConfig};
use crate::assistant::report::TokenUsage;
use crate::assistant::services::chat::ChatOutcome;
use crate::assistant::services::failure::ServiceFailure;
use crate::audio::tone::Tone;

const BROWSER: CallProfile = CallProfile::BROWSER;

const FRAME: Duration = Duration::from_millis(20);
const FRAME_SAMPLES: usize = 320;
/// The voice of the tests speaks each sentence for a second.
const VOICE_RATE_HZ: u32 = 16_000;

/// A session, the time, and what the engine has put out.
struct World {
    session: Cascade,
    now: Instant,
    outputs: Vec<CascadeOutput>,
    tone: Tone,
    hiss: i16,
}

impl World {
    fn new(profile: CallProfile, config: AssistantConfig, body: &Value) -> Self {
        let body = BodyOptions::new(body, &config, &config.cascade.instructions);
        let now = Instant::now();
        World {
            session: Cascade::new(Arc::new(config), profile, body, now),
            now,
            outputs: Vec::new(),
            tone: Tone::new(1_000.0, RECOGNIZER_RATE_HZ),
            hiss: 40,
        }
    }

    /// A session of a caller in a quiet room, without greeting.
    fn joined() -> Self {
        World::joined_with(&json!({}), |_| {})
    }

    fn joined_with(body: &Value, configure: impl FnOnce(&mut AssistantConfig)) -> Self {
        let mut config = AssistantConfig {
            greeting: Greeting::Off,
            ..AssistantConfig::default()
        };
        config.cascade.instructions = "Be brief.".to_owned();
        config.body_may.tools = true;
        configure(&mut config);
        let mut world = World::new(BROWSER, config, body);
        world.session.handle_joined(world.now);
        world.be_silent(600);
        world
    }

    fn drain(&mut self) {
        while let Some(output) = self.session.poll_output() {
            self.outputs.push(output);
        }
    }

    fn take(&mut self) -> Vec<CascadeOutput> {
        self.drain();
        std::mem::take(&mut self.outputs)
    }

    /// Lets time pass, and does what is due.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.session.poll_timeout() <= end && !self.session.is_over {
            self.now = self.now.max(self.session.poll_timeout());
            self.session.handle_timeout(self.now);
        }
        self.now = end;
        self.drain();
    }

    fn hear(&mut self, pcm: &[i16]) {
        self.pass(FRAME);
        self.session.handle_audio(pcm, self.now);
        self.drain();
    }

    fn speak(&mut self, ms: usize) {
        for _ in 0..ms / 20 {
            let pcm = self.tone.take(FRAME_SAMPLES);
            self.hear(&pcm);
        }
    }

    fn be_silent(&mut self, ms: usize) {
        for _ in 0..ms / 20 {
            let pcm: Vec<i16> = (0..FRAME_SAMPLES)
                .map(|_| {
                    self.hiss = -self.hiss;
                    self.hiss
                })
                .collect();
            self.hear(&pcm);
        }
    }

    /// The caller says something, and the recogniser understands it.
    fn say(&mut self, text: &str) {
        self.speak(400);
        self.be_silent(800);
        let id = self.recognition();
        self.session.handle_transcript(id, text, true, self.now);
        self.drain();
    }

    fn newest(&self, of: impl Fn(&CascadeOutput) -> Option<u64>) -> u64 {
        self.outputs.iter().rev().find_map(of).expect("a request")
    }

    fn recognition(&self) -> u64 {
        self.newest(|output| match output {
            CascadeOutput::StartRecognition { id } => Some(*id),
            _ => None,
        })
    }

    fn chat(&self) -> u64 {
        self.newest(|output| match output {
            CascadeOutput::StartChat { id, .. } => Some(*id),
            _ => None,
        })
    }

    /// Returns the roles and texts of the newest request, without the instructions.
    fn asked(&self) -> Vec<(String, String)> {
        let request = self.outputs.iter().rev().find_map(|output| match output {
            CascadeOutput::StartChat { request, .. } => Some(request),
            _ => None,
        });
        let messages = &request.expect("a chat").messages[1..];
        let text = |message: &Value, name: &str| message[name].as_str().expect("a text").to_owned();
        messages
            .iter()
            .map(|message| (text(message, "role"), text(message, "content")))
            .collect()
    }

    fn chats(&self) -> usize {
        self.outputs
            .iter()
            .filter(|output| matches!(output, CascadeOutput::StartChat { .. }))
            .count()
    }

    fn write(&mut self, text: &str) {
        self.session.handle_chat_text(self.chat(), text, self.now);
        self.drain();
    }

    fn finish(&mut self) {
        self.finish_with(Vec::new());
    }

    fn finish_with(&mut self, calls: Vec<ChatCall>) {
        self.session.handle_chat_done(self.chat(), outcome(calls), self.now);
        self.drain();
    }

    /// Returns the sentences that were asked for.
    fn sentences(&self) -> BTreeMap<u64, &str> {
        self.outputs
            .iter()
            .filter_map(|output| match output {
                CascadeOutput::Synthesize { id, text } => Some((*id, text.as_str())),
                _ => None,
            })
            .collect()
    }

    /// The voice speaks the sentence that it was asked for last.
    fn voice(&mut self) {
        let (id, _) = self.sentences().pop_last().expect("a sentence");
        let pcm = vec![1_000; VOICE_RATE_HZ as usize];
        self.session.handle_speech(id, &pcm, VOICE_RATE_HZ, self.now);
        self.session.handle_speech_done(id, self.now);
        self.drain();
    }

    /// Plays at most so many pieces of 100 ms. Returns how many there were.
    fn play(&mut self, pieces_max: usize) -> usize {
        let mut pcm = Vec::new();
        for played in 0..pieces_max {
            let Some(mark) = self.session.next_speech(&mut pcm) else {
                return played;
            };
            if played == 0 {
                self.session.handle_speech_started(self.now);
            }
            self.pass(Duration::from_millis(100));
            self.session.handle_mark(&mark.0, true, self.now);
            self.drain();
        }
        pieces_max
    }

    /// An answer is given, spoken and heard.
    fn answer(&mut self, text: &str) {
        self.write(text);
        self.finish();
        loop {
            let asked = self.sentences().len();
            self.voice();
            self.play(100);
            if self.sentences().len() == asked {
                return;
            }
        }
    }

    fn reports(&self) -> impl Iterator<Item = &ClientReport> {
        self.outputs.iter().filter_map(|output| match output {
            CascadeOutput::Report(report) => Some(report),
            _ => None,
        })
    }

    fn is_cancelled(&self, id: u64) -> bool {
        self.outputs.contains(&CascadeOutput::Cancel { id })
    }

    fn end(&self) -> Option<&EndReason> {
        self.outputs.iter().find_map(|output| match output {
            CascadeOutput::End(reason) => Some(reason),
            _ => None,
        })
    }
}

fn outcome(calls: Vec<ChatCall>) -> ChatOutcome {
    ChatOutcome {
        text: String::new(),
        calls,
        end: ChatEnd::Complete,
        usage: TokenUsage::default(),
    }
}

fn pair(role: &str, text: &str) -> (String, String) {
    (role.to_owned(), text.to_owned())
}

#[test]
fn a_turn_is_recognised_while_it_is_spoken() {
    let mut world = World::joined();
    world.take();
    world.speak(400);
    let id = world.recognition();
    world.be_silent(800);
    let outputs = world.take();
    let samples: usize = outputs
        .iter()
        .map(|output| match output {
            CascadeOutput::RecognizeAudio { id: of, pcm } => {
                assert_eq!(*of, id);
                pcm.len()
            }
            _ => 0,
        })
        .sum();
    // 300 ms before the speech, the speech, and 700 ms that end it, to a frame or two.
    let ms = samples * 1_000 / RECOGNIZER_RATE_HZ as usize;
    assert!((1_380..=1_460).contains(&ms), "{ms} ms");
    let at = |wanted: &CascadeOutput| outputs.iter().position(|output| output == wanted);
    let finished = at(&CascadeOutput::FinishRecognition { id }).expect("the turn has ended");
    let last = outputs
        .iter()
        .rposition(|output| matches!(output, CascadeOutput::RecognizeAudio { .. }));
    assert!(Some(finished) > last, "all audio precedes the end");
    assert!(at(&CascadeOutput::Report(ClientReport::UserStartedSpeaking)).is_some());
    assert!(at(&CascadeOutput::Report(ClientReport::UserStoppedSpeaking)).is_some());
}

#[test]
fn an_answer_is_spoken_while_the_model_writes() {
    let mut world = World::joined();
    world.say("What is it?");
    assert_eq!(world.asked(), [pair("user", "What is it?")]);
    world.write("It is a bird");
    assert_eq!(world.sentences().len(), 0);
    world.write(". It sings. It");
    assert_eq!(world.sentences().into_values().collect::<Vec<_>>(), ["It is a bird."]);
    world.voice();
    assert_eq!(world.sentences().len(), 2, "the next is made while the first is heard");
    world.voice();
    world.write(" flies. And more.");
    assert_eq!(world.sentences().len(), 2, "no more than one is ahead");
    assert_eq!(world.play(10), 10);
    assert_eq!(world.sentences().len(), 3);
    world.finish();
    world.voice();
    world.play(100);
    world.voice();
    assert_eq!(world.play(100), 10);
    let waited = world.reports().filter_map(|report| match report {
        ClientReport::FirstSound(waited) => Some(*waited),
        _ => None,
    });
    let waited: Vec<Duration> = waited.collect();
    assert_eq!(waited.len(), 1);
    // 700 ms of silence end the turn; all services answer at once.
    assert!((780..=840).contains(&waited[0].as_millis()), "{waited:?}");
    assert!(
        world
            .reports()
            .any(|report| matches!(report, ClientReport::SentenceBegins { id: 4, text } if text == "And more."))
    );
    world.say("Why?");
    assert_eq!(
        world.asked(),
        [
            pair("user", "What is it?"),
            pair("assistant", "It is a bird. It sings. It flies. And more."),
            pair("user", "Why?"),
        ]
    );
}

#[test]
fn speech_before_the_answer_is_heard_joins_the_question() {
    let mut world = World::joined();
    world.say("Turn on");
    let (first, chat) = (world.chat(), "Which one? ");
    world.write(chat);
    let (synthesis, _) = world.sentences().pop_last().expect("a sentence");
    world.speak(400);
    assert!(world.is_cancelled(first) && world.is_cancelled(synthesis));
    world.be_silent(800);
    assert_eq!(world.chats(), 1, "the recogniser has not answered yet");
    let id = world.recognition();
    world.session.handle_transcript(id, "the light", true, world.now);
    world.drain();
    assert_eq!(world.asked(), [pair("user", "Turn on the light")]);
    // A late answer to the dropped request changes nothing.
    world.session.handle_chat_text(first, "Late. Later.", world.now);
    world
        .session
        .handle_speech(synthesis, &[1; 1_000], VOICE_RATE_HZ, world.now);
    assert_eq!(world.session.next_speech(&mut Vec::new()), None);
}

#[test]
fn two_utterances_are_joined_in_the_order_of_speech() {
    let mut world = World::joined();
    world.speak(400);
    world.be_silent(800);
    let first = world.recognition();
    world.speak(400);
    world.be_silent(800);
    let second = world.recognition();
    world.session.handle_transcript(second, "two", true, world.now);
    world.drain();
    assert_eq!(world.chats(), 0);
    world.session.handle_transcript(first, "one", true, world.now);
    world.drain();
    assert_eq!(world.asked(), [pair("user", "one two")]);
}

/// A session whose answer of three sentences is heard to the middle of the second.
fn interrupted() -> World {
    let mut world = World::joined();
    world.say("Tell me.");
    world.answer("Well then. ");
    world.be_silent(2_000);
    world.say("More.");
    world.write("One is here. Two is here. Three is here. Four is");
    world.voice();
    world.voice();
    assert_eq!(world.play(16), 16);
    world.take();
    world.speak(280);
    assert_eq!(world.outputs, [], "short sounds do not interrupt");
    world.speak(60);
    assert!(world.outputs.contains(&CascadeOutput::Interrupt));
    assert!(world.outputs.contains(&CascadeOutput::Count(AssistantCount::BargeIn)));
    assert_eq!(world.session.next_speech(&mut Vec::new()), None);
    world
}

#[test]
fn words_of_the_caller_drop_the_answer_and_the_model_knows_what_was_heard() {
    let mut world = interrupted();
    world.be_silent(800);
    let id = world.recognition();
    world.session.handle_transcript(id, "Stop", false, world.now);
    world.drain();
    assert!(
        world
            .outputs
            .iter()
            .any(|output| matches!(output, CascadeOutput::Cancel { .. })),
        "the model stops with the first word"
    );
    world.session.handle_transcript(id, "Stop it.", true, world.now);
    world.drain();
    let asked = world.asked();
    assert_eq!(
        asked[asked.len() - 2..],
        [pair("assistant", "One is here. Two is"), pair("user", "Stop it.")]
    );
}

#[test]
fn a_sound_without_words_lets_the_answer_go_on() {
    let mut world = interrupted();
    world.be_silent(800);
    let id = world.recognition();
    world.session.handle_transcript(id, " ", true, world.now);
    world.drain();
    assert_eq!(
        world.sentences().into_values().collect::<Vec<_>>(),
        ["Three is here."],
        "the cut sentence is not repeated"
    );
    let chat = world
        .session
        .answer
        .as_ref()
        .and_then(|answer| answer.chat)
        .expect("it still writes");
    world.session.handle_chat_text(chat, " here.", world.now);
    world.session.handle_chat_done(chat, outcome(Vec::new()), world.now);
    world.voice();
    world.play(100);
    world.voice();
    world.play(100);
    assert!(world.session.answer.is_none());
    world.say("Good.");
    let asked = world.asked();
    let heard = "One is here. Two is here. Three is here. Four is here.";
    assert_eq!(asked[asked.len() - 2], pair("assistant", heard));
}

#[test]
fn without_interruptions_the_caller_is_not_heard_during_speech() {
    let mut world = World::joined_with(&json!({}), |config| config.interrupt = false);
    world.say("Go.");
    world.write("A first sentence. A second one. ");
    world.voice();
    world.play(5);
    world.take();
    world.speak(600);
    assert_eq!(world.take(), []);
}

#[test]
fn the_first_two_seconds_of_speech_are_not_interrupted() {
    let mut world = World::joined();
    world.say("Go.");
    world.write("One is here. Two is here. Three is here. ");
    world.voice();
    world.voice();
    world.play(5);
    world.take();
    world.speak(600);
    assert_eq!(world.take(), [], "an echo canceller adapts");
    world.be_silent(1_000);
    world.speak(400);
    assert!(world.take().contains(&CascadeOutput::Interrupt));
}

#[test]
fn thinking_is_heard_as_ticks() {
    let mut world = World::joined();
    world.say("Think.");
    world.take();
    world.pass(Duration::from_millis(2_900));
    assert_eq!(world.play(1), 0);
    world.pass(Duration::from_millis(200));
    assert_eq!(world.play(2), 1, "after 3 s");
    world.pass(Duration::from_millis(1_700));
    assert_eq!(world.play(1), 0);
    world.pass(Duration::from_millis(200));
    assert_eq!(world.play(2), 1, "every 2 s");
    assert!(
        !world
            .reports()
            .any(|report| matches!(report, ClientReport::FirstSound(_))),
        "a tick is no answer"
    );
}

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
fn a_marker_of_the_recogniser_is_no_question() {
    let mut world = World::joined();
    for marker in ["[BLANK_AUDIO]", "(music)", "."] {
        world.say(marker);
        assert_eq!(world.chats(), 0, "{marker}");
    }
    let is_transcript = |report: &ClientReport| matches!(report, ClientReport::Transcript { .. });
    assert!(!world.reports().any(is_transcript));
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

#[test]
fn a_greeting_of_the_operator_needs_no_model() {
    let mut world = World::joined_with(&json!({}), |config| {
        config.greeting = Greeting::Text("Welcome to the shop.".to_owned());
    });
    assert_eq!(world.chats(), 0);
    assert_eq!(
        world.sentences().into_values().collect::<Vec<_>>(),
        ["Welcome to the shop."]
    );
    world.voice();
    world.play(100);
    world.say("Hello.");
    assert_eq!(world.asked()[1], pair("assistant", "Welcome to the shop."));
    assert!(World::joined_with(&json!({}), |config| config.greeting = Greeting::Default).chats() == 1);
    let unwanted = World::joined_with(&json!({"greeting": false}), |config| {
        config.greeting = Greeting::Default
    });
    assert_eq!(unwanted.chats(), 0);
}

#[test]
fn a_session_can_be_text_alone() {
    let mut world = World::joined_with(&json!({"text_only": true}), |_| {});
    world.say("Hello.");
    world.write("Good day. How are you?");
    world.finish();
    assert_eq!(world.sentences().len(), 0);
    let shown = ClientReport::Shown("Good day. How are you?".to_owned());
    assert!(world.reports().any(|report| *report == shown));
    world.pass(Duration::from_secs(10));
    assert_eq!(world.play(1), 0, "and it does not tick");
}

#[test]
fn keys_and_typed_texts_are_questions() {
    let mut world = World::joined();
    world.session.handle_dtmf('4', world.now);
    world.session.handle_dtmf('2', world.now);
    world.pass(Duration::from_secs(2));
    assert!(world.asked()[0].1.ends_with(": 42"));
    let options = TextOptions {
        run_immediately: false,
        audio_response: false,
    };
    world.session.handle_text("typed", options, world.now);
    world.drain();
    assert_eq!(world.chats(), 1, "after the answer in progress");
    world.answer("Forty-two. ");
    assert_eq!(world.asked().last(), Some(&pair("user", "typed")));
    world.write("In writing.");
    world.finish();
    assert_eq!(world.sentences().len(), 1, "no speech is asked for");
}

fn tools() -> Value {
    json!({"tools": [{"type": "function", "name": "f"}]})
}

fn call(call_id: &str, name: &str) -> ChatCall {
    ChatCall {
        call_id: call_id.to_owned(),
        name: name.to_owned(),
        arguments: "{}".to_owned(),
    }
}

#[test]
fn functions_of_the_page_are_answered_before_the_model_goes_on() {
    let mut world = World::joined_with(&tools(), |_| {});
    world.say("Look.");
    world.write("Let me see.");
    world.finish_with(vec![call("a", "f"), call("b", "unknown")]);
    assert!(
        world
            .reports()
            .any(|report| matches!(report, ClientReport::FunctionStarted(call) if call.call_id == "a"))
    );
    assert_eq!(world.chats(), 1);
    world
        .session
        .handle_function_result(FunctionHost::Page, "a", &json!({"x": 1}), world.now);
    world.drain();
    assert_eq!(world.chats(), 2);
    let asked = world.asked();
    assert_eq!(asked[1], pair("assistant", "Let me see."));
    assert_eq!(asked[2].0, "tool");
    assert_eq!(asked[3], pair("tool", r#"{"x":1}"#));
    world.voice();
    world.answer("It is one. ");
    world.say("Thanks.");
    assert_eq!(world.asked()[4], pair("assistant", "It is one."));
}

/// The model is asked once the operator's functions are known. A call is for the driver, of which
/// the client sees the name only; when what runs it is gone, the model learns it.
#[test]
fn functions_of_the_operator_are_declared_and_run() {
    let mut world = World::joined_with(&json!({}), |config| {
        config.tools = Some(ToolsConfig::Program(vec!["p".to_owned()]));
        config.cascade.functions = vec![json!({"type": "function", "name": "of_page"})];
    });
    world.say("Look.");
    assert_eq!(world.chats(), 0, "the functions are not known");
    let declared = [json!({"type": "function", "name": "t", "description": "d"})];
    world.session.handle_functions(&declared, world.now);
    world.drain();
    let tools = |world: &World| {
        let request = world.outputs.iter().rev().find_map(|output| match output {
            CascadeOutput::StartChat { request, .. } => Some(request.tools.clone()),
            _ => None,
        });
        request.expect("a chat")
    };
    assert_eq!(
        tools(&world),
        [
            json!({"type": "function", "function": {"name": "of_page"}}),
            json!({"type": "function", "function": {"name": "t", "description": "d"}}),
        ]
    );
    world.finish_with(vec![ChatCall {
        arguments: r#"{"x": 1}"#.to_owned(),
        ..call("a", "t")
    }]);
    let run = world.outputs.iter().find_map(|output| match output {
        CascadeOutput::RunFunction(call) => Some(call.clone()),
        _ => None,
    });
    assert_eq!(run.expect("it runs").arguments, json!({"x": 1}));
    let told = world.reports().find_map(|report| match report {
        ClientReport::FunctionStarted(call) => Some(call.clone()),
        _ => None,
    });
    assert_eq!(told.expect("the client is told").arguments, Value::Null);
    world
        .session
        .handle_function_result(FunctionHost::Page, "a", &json!("forged"), world.now);
    world.drain();
    assert_eq!(world.chats(), 1);
    world
        .session
        .handle_function_result(FunctionHost::Tools, "a", &json!({"y": 2}), world.now);
    world.drain();
    assert_eq!(world.asked().last(), Some(&pair("tool", r#"{"y":2}"#)));
    world.finish_with(vec![call("b", "t")]);
    world.session.handle_functions(&[], world.now);
    world.drain();
    assert_eq!(world.chats(), 3);
    let (role, output) = world.asked().pop().expect("a message");
    assert!(role == "tool" && output.contains("cannot be run"), "{output}");
    assert_eq!(tools(&world).len(), 1, "only the page's is left");
}

/// A caller in noise as loud as the speech is heard by the neural detector alone.
#[cfg(feature = "vad")]
#[test]
fn the_neural_detector_hears_a_caller_in_loud_noise() {
    let turns = |detector| {
        let mut world = World::joined_with(&json!({}), |config| config.cascade.detector = detector);
        world.take();
        // Two sentences, 16 kHz; see `tests/data/audio/README.md`.
        let bytes = include_bytes!("../../../../tests/data/audio/speech.raw");
        let (samples, _) = bytes.as_chunks::<2>();
        let speech: Vec<i16> = samples.iter().map(|sample| i16::from_le_bytes(*sample)).collect();
        let power = |pcm: &[i16]| pcm.iter().map(|sample| f64::from(*sample).powi(2)).sum::<f64>();
        let effective = (power(&speech) / speech.len() as f64).sqrt();
        let mut seed = 1_u32;
        let mut noise = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (f64::from(seed >> 8) / 8_388_608.0 - 1.0) * 3_f64.sqrt() * effective
        };
        let mut hear = |world: &mut World, pcm: &[i16]| {
            for frame in pcm.chunks_exact(FRAME_SAMPLES) {
                let noisy: Vec<i16> = frame
                    .iter()
                    .map(|sample| (f64::from(*sample) + noise()) as i16)
                    .collect();
                world.hear(&noisy);
            }
        };
        // Until the noise is the background.
        hear(&mut world, &vec![0; 8 * 16_000]);
        world.take();
        hear(&mut world, &[speech, vec![0; 16_000]].concat());
        let is_start = |output: &&CascadeOutput| matches!(output, CascadeOutput::StartRecognition { .. });
        world.outputs.iter().filter(is_start).count()
    };
    assert_eq!(turns(DetectorKind::Energy), 0);
    assert!((1..=2).contains(&turns(DetectorKind::Neural)));
}

#[test]
fn a_function_that_is_interrupted_gets_an_output() {
    let mut world = World::joined_with(&tools(), |_| {});
    world.say("Look.");
    world.finish_with(vec![call("a", "f")]);
    world.say("No.");
    let asked = world.asked();
    assert_eq!(
        asked[1..].iter().map(|(role, _)| role.as_str()).collect::<Vec<_>>(),
        ["assistant", "tool", "assistant", "user"]
    );
    let stopped = |report: &ClientReport| matches!(report, ClientReport::FunctionStopped { is_cancelled: true, .. });
    assert!(world.reports().any(stopped));
}

#[test]
fn the_model_can_end_a_telephone_call_after_its_goodbye() {
    let config = AssistantConfig {
        greeting: Greeting::Off,
        ..AssistantConfig::default()
    };
    let mut world = World::new(CallProfile::TELEPHONE, config, &json!({}));
    world.session.handle_joined(world.now);
    world.be_silent(600);
    world.say("Goodbye.");
    world.write("Goodbye then.");
    world.finish_with(vec![call("a", "end_call")]);
    assert_eq!(world.end(), None);
    world.voice();
    world.play(100);
    assert!(matches!(world.end(), Some(EndReason::Done(_))));
    assert_eq!(world.chats(), 1);
}

#[test]
fn keys_are_pressed_behind_the_answer_and_nothing_interrupts_them() {
    let config = AssistantConfig {
        greeting: Greeting::Off,
        ..AssistantConfig::default()
    };
    let mut world = World::new(CallProfile::TELEPHONE, config, &json!({}));
    world.session.handle_joined(world.now);
    world.be_silent(600);
    world.say("For sales press one.");
    world.write("One moment.");
    world.finish_with(vec![ChatCall {
        arguments: r#"{"keys": "1"}"#.to_owned(),
        ..call("a", "press_keys")
    }]);
    assert!(!world.session.is_pressing(), "the sentence is heard first");
    world.voice();
    while !world.session.is_pressing() {
        assert_eq!(world.play(1), 1, "speech waits");
    }
    world.speak(400);
    assert!(world.session.is_pressing(), "the menu speaks on");
    assert_eq!(world.chats(), 1);
    assert_eq!(world.play(100), 3);
    assert_eq!(world.chats(), 2, "the model goes on once the keys were heard");
    assert_eq!(world.asked().last(), Some(&pair("tool", r#"{"ok":true}"#)));
}

#[test]
fn silence_and_length_end_a_session() {
    let mut world = World::joined();
    world.pass(Duration::from_secs(301));
    assert!(matches!(world.end(), Some(EndReason::Done("no one spoke"))));
    let mut world = World::joined_with(&json!({}), |config| config.minutes_max = Duration::from_secs(60));
    world.pass(Duration::from_secs(31));
    assert!(world.asked()[0].1.contains("Say goodbye"));
    world.answer("Goodbye. ");
    world.pass(Duration::from_secs(30));
    assert!(matches!(
        world.end(),
        Some(EndReason::Done("the session has reached its length"))
    ));
}

#[test]
fn a_recogniser_may_end_the_turn() {
    let mut world = World::joined();
    world.speak(400);
    world.be_silent(100);
    let id = world.recognition();
    world.session.handle_transcript(id, "Quick.", true, world.now);
    world.drain();
    assert_eq!(world.asked(), [pair("user", "Quick.")]);
    world.take();
    world.be_silent(1_000);
    assert_eq!(world.take(), [], "the turn has no second end");
}

#[test]
fn unknown_identifiers_are_ignored() {
    let mut world = World::joined();
    world.take();
    world.session.handle_transcript(7, "x", true, world.now);
    world.session.handle_chat_text(7, "x", world.now);
    world
        .session
        .handle_chat_done(7, outcome(vec![call("a", "f")]), world.now);
    world.session.handle_speech(7, &[1; 100], VOICE_RATE_HZ, world.now);
    world.session.handle_speech_done(7, world.now);
    world.session.handle_failed(7, &ServiceFailure::RefusedKey, world.now);
    world.session.handle_mark("sentence 1", true, world.now);
    assert_eq!(world.take(), []);
}
