//! The engine against scripted services, with a clock of its own.

mod failures;
mod functions;
mod hold;
mod turns;

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
struct Rig {
    session: Cascade,
    now: Instant,
    outputs: Vec<CascadeOutput>,
    tone: Tone,
    hiss: i16,
}

impl Rig {
    fn new(profile: CallProfile, config: AssistantConfig, body: &Value) -> Self {
        let body = BodyOptions::new(body, &config, &config.cascade.instructions);
        let now = Instant::now();
        Rig {
            session: Cascade::new(Arc::new(config), profile, body, now),
            now,
            outputs: Vec::new(),
            tone: Tone::new(1_000.0, RECOGNIZER_RATE_HZ),
            hiss: 40,
        }
    }

    /// A session of a caller in a quiet room, without greeting.
    fn joined() -> Self {
        Rig::joined_with(&json!({}), |_| {})
    }

    fn joined_with(body: &Value, configure: impl FnOnce(&mut AssistantConfig)) -> Self {
        let mut config = AssistantConfig {
            greeting: Greeting::Off,
            ..AssistantConfig::default()
        };
        config.cascade.instructions = "Be brief.".to_owned();
        config.body_permissions.tools = true;
        configure(&mut config);
        let mut rig = Rig::new(BROWSER, config, body);
        rig.session.handle_joined(rig.now);
        rig.be_silent(600);
        rig
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

fn tools() -> Value {
    json!({"tools": [{"type": "function", "name": "f"}]})
}

fn call(call_id: &str, name: &str) -> ChatCall {
    ChatCall {
        call_id: call_id.to_owned(),
        name: name.to_owned(),
        arguments: "{}".to_owned(),
        extra_content: Value::Null,
    }
}

#[test]
fn a_greeting_of_the_operator_needs_no_model() {
    let mut rig = Rig::joined_with(&json!({}), |config| {
        config.greeting = Greeting::Text("Welcome to the shop.".to_owned());
    });
    assert_eq!(rig.chats(), 0);
    assert_eq!(
        rig.sentences().into_values().collect::<Vec<_>>(),
        ["Welcome to the shop."]
    );
    rig.voice();
    rig.play(100);
    rig.say("Hello.");
    assert_eq!(rig.asked()[1], pair("assistant", "Welcome to the shop."));
    assert!(Rig::joined_with(&json!({}), |config| config.greeting = Greeting::Default).chats() == 1);
    let unwanted = Rig::joined_with(&json!({"greeting": false}), |config| {
        config.greeting = Greeting::Default
    });
    assert_eq!(unwanted.chats(), 0);
}

#[test]
fn a_session_can_be_text_alone() {
    let mut rig = Rig::joined_with(&json!({"text_only": true}), |_| {});
    rig.say("Hello.");
    rig.write("Good day. How are you?");
    rig.finish();
    assert_eq!(rig.sentences().len(), 0);
    let shown = ClientReport::Shown("Good day. How are you?".to_owned());
    assert!(rig.reports().any(|report| *report == shown));
    rig.pass(Duration::from_secs(10));
    assert_eq!(rig.play(1), 0, "and it does not tick");
}

#[test]
fn keys_and_typed_texts_are_questions() {
    let mut rig = Rig::joined();
    rig.session.handle_dtmf('4', rig.now);
    rig.session.handle_dtmf('2', rig.now);
    rig.pass(Duration::from_secs(2));
    assert!(rig.asked()[0].1.ends_with(": 42"));
    let options = TextOptions {
        run_immediately: false,
        audio_response: false,
    };
    rig.session.handle_text("typed", options, rig.now);
    rig.drain();
    assert_eq!(rig.chats(), 1, "after the answer in progress");
    rig.answer("Forty-two. ");
    assert_eq!(rig.asked().last(), Some(&pair("user", "typed")));
    rig.write("In writing.");
    rig.finish();
    assert_eq!(rig.sentences().len(), 1, "no speech is asked for");
}

#[test]
fn silence_and_length_end_a_session() {
    let mut rig = Rig::joined();
    rig.pass(Duration::from_secs(301));
    assert!(matches!(rig.end(), Some(EndReason::Done("no one spoke"))));
    let mut rig = Rig::joined_with(&json!({}), |config| config.minutes_max = Duration::from_secs(60));
    rig.pass(Duration::from_secs(31));
    assert!(rig.asked()[0].1.contains("Say goodbye"));
    rig.answer("Goodbye. ");
    rig.pass(Duration::from_secs(30));
    assert!(matches!(
        rig.end(),
        Some(EndReason::Done("the session has reached its length"))
    ));
}

#[test]
fn unknown_identifiers_are_ignored() {
    let mut rig = Rig::joined();
    rig.take();
    rig.session.handle_transcript(7, "x", true, rig.now);
    rig.session.handle_chat_text(7, "x", rig.now);
    rig.session.handle_chat_done(7, outcome(vec![call("a", "f")]), rig.now);
    rig.session.handle_speech(7, &[1; 100], VOICE_RATE_HZ, rig.now);
    rig.session.handle_speech_done(7, rig.now);
    rig.session.handle_failed(7, &ServiceFailure::RefusedKey, rig.now);
    rig.session.handle_mark("sentence 1", true, rig.now);
    assert_eq!(rig.take(), []);
}
