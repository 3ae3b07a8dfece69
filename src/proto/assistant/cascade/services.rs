//! What the services answer: the recogniser's texts, the model's, and speech.

use std::time::{Duration, Instant};

use super::answer::SpeechState;
use super::{Cascade, CascadeOutput, ChatCall, ChatEnd, sentence_item};
use crate::assistant::functions::FunctionHost;
use crate::assistant::report::{AssistantCount, ClientReport, ErrorClass, ResponseStatus, TokenUsage};
use crate::assistant::services::chat::ChatOutcome;
use crate::assistant::sound;
use crate::audio::rate_converter::RateConverter;
use crate::limits::RATES_HZ;

/// Text of the failure of a recogniser that a client gets.
const NOT_UNDERSTOOD: &str = "The assistant could not hear you; please say it again.";
/// Text of the failure of an answer.
const NO_ANSWER: &str = "The assistant has no answer; please try again.";

/// The service of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CascadeService {
    Recognizer,
    Model,
    Voice,
}

impl CascadeService {
    fn name(self) -> &'static str {
        match self {
            CascadeService::Recognizer => "the recogniser",
            CascadeService::Model => "the chat model",
            CascadeService::Voice => "the voice",
        }
    }
}

impl Cascade {
    /// A text of the recogniser: all that it has heard so far, or the final text.
    pub fn handle_transcript(&mut self, id: u64, text: &str, is_final: bool, now: Instant) {
        if self.service(id) != Some(CascadeService::Recognizer) {
            return;
        }
        let text = text.trim();
        if !text.is_empty() && self.answer.is_some() {
            // The caller interrupts with words.
            self.drop_answer();
        }
        if !is_final {
            if !text.is_empty() {
                self.tell(ClientReport::Transcript {
                    text: text.to_owned(),
                    is_final,
                });
            }
            return;
        }
        if self.hearing == Some(id) {
            // The recogniser has found the end of the utterance first.
            self.hearing = None;
            self.heard.clear();
            self.turns.reset();
            self.spoken_until = Some(now);
            self.report(ClientReport::UserStoppedSpeaking);
        }
        self.recognitions.complete(id, text);
        self.settle(now);
    }

    /// Text of the model.
    pub fn handle_chat_text(&mut self, id: u64, text: &str, now: Instant) {
        let Some(answer) = self.answer.as_mut().filter(|answer| answer.chat == Some(id)) else {
            return;
        };
        if self.history.push_bot(answer.message, text) {
            answer.push_text(text, &mut self.sentences);
            self.tell(ClientReport::LlmText(text.to_owned()));
            self.advance(now);
        } else {
            self.outputs.push_back(CascadeOutput::Cancel { id });
            let outcome = ChatOutcome {
                text: String::new(),
                calls: Vec::new(),
                end: ChatEnd::CutOff,
                usage: TokenUsage::default(),
            };
            self.handle_chat_done(id, outcome, now);
        }
    }

    /// The model has ended its message.
    pub fn handle_chat_done(&mut self, id: u64, outcome: ChatOutcome, now: Instant) {
        let usage = outcome.usage;
        if usage.total > 0 {
            self.count(AssistantCount::Tokens(usage));
            self.report(ClientReport::Tokens(usage));
        }
        if !outcome.text.is_empty() {
            self.handle_chat_text(id, &outcome.text, now);
        }
        for call in outcome.calls {
            self.handle_call(id, call, now);
        }
        let Some(answer) = self.answer.as_mut().filter(|answer| answer.chat == Some(id)) else {
            return;
        };
        answer.chat = None;
        answer.finish_text(&mut self.sentences);
        let (message, is_text_only, has_text) = (answer.message, answer.is_text_only, answer.has_text);
        self.lifetime.keep(now);
        self.count(AssistantCount::Response(match outcome.end {
            ChatEnd::Complete => ResponseStatus::Completed,
            ChatEnd::CutOff => ResponseStatus::Incomplete,
        }));
        self.report(ClientReport::LlmStopped);
        let text = self.history.text(message).trim().to_owned();
        if is_text_only && !text.is_empty() {
            self.tell(ClientReport::Shown(text));
        }
        if !has_text && self.history.calls(message) == 0 {
            self.report(ClientReport::Error { text: NO_ANSWER });
        }
        let answers = self.functions.handle_response_done(&id.to_string());
        self.answer_functions(answers);
        self.advance(now);
    }

    fn handle_call(&mut self, id: u64, call: ChatCall, now: Instant) {
        let Some(answer) = self.answer.as_ref().filter(|answer| answer.chat == Some(id)) else {
            return;
        };
        let called = self.functions.handle_call(
            &id.to_string(),
            call.call_id.clone(),
            call.name.clone(),
            &call.arguments,
            self.profile.has_page,
            now,
        );
        let Some(called) = called else { return };
        self.history.add_call(answer.message, call);
        self.hangs_up |= called.ends_call;
        self.presses.extend(called.presses);
        if let Some((call, host)) = called.started {
            self.report(ClientReport::FunctionStarted(call.for_client(host)));
            if host == FunctionHost::Tools {
                self.outputs.push_back(CascadeOutput::RunFunction(call));
            }
        }
        self.answer_functions(called.answers);
    }

    /// Speech of a sentence, at a rate in hertz.
    pub fn handle_speech(&mut self, id: u64, pcm: &[i16], rate_hz: u32, now: Instant) {
        let Some((_, number)) = self.synthesis.filter(|(known, _)| *known == id) else {
            return;
        };
        if !RATES_HZ.contains(&rate_hz) {
            let why = format!("it speaks at {rate_hz} Hz, which is not supported");
            return self.handle_failed(id, ErrorClass::Protocol, &why, now);
        }
        let to_hz = self.profile.line.rate_hz();
        if self
            .converter
            .as_ref()
            .is_none_or(|converter| converter.from_hz() != rate_hz)
        {
            self.converter = Some(RateConverter::new(rate_hz, to_hz));
        }
        let length = Duration::from_micros(pcm.len() as u64 * 1_000_000 / u64::from(rate_hz));
        self.count(AssistantCount::AudioReceived(length));
        self.lifetime.keep(now);
        let converter = self.converter.as_mut().expect("it was just set");
        let pcm = converter.convert(pcm);
        if let Some(sentence) = self.answer.as_mut().and_then(|answer| answer.sentence(number)) {
            sentence.has_audio |= !pcm.is_empty();
        }
        if !self.playback.push(&sentence_item(number), 0, pcm) {
            // What waits is played; the rest of the sentence is given up.
            self.outputs.push_back(CascadeOutput::Cancel { id });
            self.handle_speech_done(id, now);
        }
        self.plan_tick(now);
    }

    /// The speech of a sentence is complete.
    pub fn handle_speech_done(&mut self, id: u64, now: Instant) {
        let Some((_, number)) = self.synthesis.take_if(|(known, _)| *known == id) else {
            return;
        };
        if let Some(sentence) = self.answer.as_mut().and_then(|answer| answer.sentence(number)) {
            sentence.speech = SpeechState::Complete;
        }
        self.playback.complete(&sentence_item(number));
        self.advance(now);
    }

    /// A request has failed, for a reason in words of the runner.
    pub fn handle_failed(&mut self, id: u64, class: ErrorClass, why: &str, now: Instant) {
        let Some(service) = self.service(id) else { return };
        let words = format!("{}: {why}", service.name());
        match service {
            CascadeService::Recognizer => self.handle_recognition_failed(id, class, words, now),
            CascadeService::Model => self.handle_chat_failed(class, words, now),
            CascadeService::Voice => self.handle_speech_failed(id, class, words, now),
        }
    }

    /// The caller is told at the end of the utterance: the rest of it is not taken for a new one.
    fn handle_recognition_failed(&mut self, id: u64, class: ErrorClass, words: String, now: Instant) {
        self.fail(class, words, now);
        if self.is_over {
            return;
        }
        if self.hearing.take_if(|known| *known == id).is_some() {
            self.failed_hearing = Some(id);
        } else {
            self.handle_not_understood(id, now);
        }
    }

    pub(super) fn handle_not_understood(&mut self, id: u64, now: Instant) {
        self.report(ClientReport::Error { text: NOT_UNDERSTOOD });
        if self.answer.is_none() && !self.body.text_only {
            self.play(&sound::notes(self.profile.line.rate_hz()));
        }
        self.spoken_until = None;
        self.recognitions.complete(id, "");
        self.settle(now);
    }

    /// A message that the model has not begun is asked for again; one that was cut off stays so.
    fn handle_chat_failed(&mut self, class: ErrorClass, words: String, now: Instant) {
        self.count(AssistantCount::Response(ResponseStatus::Failed));
        let Some(answer) = &mut self.answer else { return };
        answer.chat = None;
        self.report(ClientReport::LlmStopped);
        self.fail(class, words, now);
        let Some(answer) = self.answer.as_mut().filter(|_| !self.is_over) else {
            return;
        };
        if answer.has_text || answer.rounds > 0 || self.history.calls(answer.message) > 0 {
            answer.has_failed = true;
            answer.finish_text(&mut self.sentences);
            let outputs = self.functions.abort("the answer failed");
            self.add_outputs(outputs);
            self.presses.clear();
            self.report(ClientReport::Error { text: NO_ANSWER });
        } else {
            self.due = Some(answer.is_text_only);
            self.drop_answer();
        }
        self.advance(now);
    }

    /// A sentence of which nothing was received is asked for again.
    fn handle_speech_failed(&mut self, id: u64, class: ErrorClass, words: String, now: Instant) {
        let Some((_, number)) = self.synthesis.take_if(|(known, _)| *known == id) else {
            return;
        };
        self.fail(class, words, now);
        if let Some(sentence) = self.answer.as_mut().and_then(|answer| answer.sentence(number)) {
            sentence.speech = match sentence.has_audio {
                true => SpeechState::Complete,
                false => SpeechState::Waiting,
            };
        }
        self.playback.complete(&sentence_item(number));
        self.advance(now);
    }

    /// Hands the recognised texts to the history, in their order.
    fn settle(&mut self, now: Instant) {
        while let Some(text) = self.recognitions.next_text() {
            if text.is_empty() {
                continue;
            }
            self.history.add_caller(&text);
            self.due = Some(self.body.text_only);
            self.tell(ClientReport::Transcript {
                text: text.clone(),
                is_final: true,
            });
            self.tell(ClientReport::UserLlmText(text));
        }
        self.advance(now);
    }

    /// Returns the service of a request that is not over.
    fn service(&self, id: u64) -> Option<CascadeService> {
        if self.is_over {
            None
        } else if self.recognitions.contains(id) {
            Some(CascadeService::Recognizer)
        } else if self.answer.as_ref().is_some_and(|answer| answer.chat == Some(id)) {
            Some(CascadeService::Model)
        } else if self.synthesis.is_some_and(|(known, _)| known == id) {
            Some(CascadeService::Voice)
        } else {
            None
        }
    }
}
