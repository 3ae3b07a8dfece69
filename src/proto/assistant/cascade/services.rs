//! What the services answer: the recogniser's texts, the model's, and speech.

use std::time::{Duration, Instant};

use super::answer::SpeechState;
use super::failures::CascadeService;
use super::{Cascade, CascadeOutput, ChatCall, ChatEnd, sentence_item};
use crate::assistant::functions::FunctionHost;
use crate::assistant::report::{AssistantCount, ClientReport, ResponseStatus, TokenUsage};
use crate::assistant::services::chat::ChatOutcome;
use crate::assistant::services::failure::ServiceFailure;
use crate::audio::rate_converter::RateConverter;
use crate::limits::RATES_HZ;

impl Cascade {
    /// A text of the recogniser: all that it has heard so far, or the final text.
    pub fn handle_transcript(&mut self, id: u64, text: &str, is_final: bool, now: Instant) {
        if self.service(id) != Some(CascadeService::Recognizer) {
            return;
        }
        self.record(CascadeService::Recognizer).handle_answered();
        let text = spoken_words(text);
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
            self.caller_audio.clear();
            self.stopwatch.begin(self.turns.spoken_until().unwrap_or(now));
            self.turns.reset();
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
            if !text.trim().is_empty() {
                self.stopwatch.handle_token(now);
                self.handle_chat_answered();
            }
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
        for (at, mut call) in outcome.calls.into_iter().enumerate() {
            if call.call_id.is_empty() {
                // Some servers send no identifier, by which outputs belong to their calls.
                call.call_id = format!("call_{id}_{at}");
            }
            self.handle_call(id, call, now);
        }
        let Some(answer) = self.answer.as_ref().filter(|answer| answer.chat == Some(id)) else {
            return;
        };
        if !answer.has_text && self.history.calls(answer.message) == 0 {
            return self.handle_failed(id, &ServiceFailure::Empty, now);
        }
        self.handle_chat_answered();
        let Some(answer) = self.answer.as_mut() else { return };
        answer.chat = None;
        answer.finish_text(&mut self.sentences);
        let (message, is_text_only) = (answer.message, answer.is_text_only);
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
            return self.handle_failed(id, &ServiceFailure::UnsupportedRate(rate_hz), now);
        }
        self.record(CascadeService::Voice).handle_answered();
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
            if let Some(sentence) = self.answer.as_mut().and_then(|answer| answer.sentence(number)) {
                sentence.is_cut = true;
            }
            self.outputs.push_back(CascadeOutput::Cancel { id });
            self.handle_speech_done(id, now);
        }
        self.plan_tick(now);
    }

    /// The speech of a sentence is complete. Speech without a sound is a failure.
    pub fn handle_speech_done(&mut self, id: u64, now: Instant) {
        let Some((_, number)) = self.synthesis.filter(|(known, _)| *known == id) else {
            return;
        };
        if let Some(sentence) = self.answer.as_mut().and_then(|answer| answer.sentence(number)) {
            if !sentence.has_audio {
                return self.handle_failed(id, &ServiceFailure::Empty, now);
            }
            sentence.speech = SpeechState::Complete;
        }
        self.synthesis = None;
        self.playback.complete(&sentence_item(number));
        self.advance(now);
    }

    /// Hands the recognised texts to the history, in their order.
    pub(super) fn settle(&mut self, now: Instant) {
        while let Some(text) = self.recognitions.next_text() {
            if text.is_empty() {
                continue;
            }
            self.stopwatch.handle_recognized(now);
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
}

/// Returns what the caller said: nothing for a text without a letter or digit, and for the markers
/// of recognisers such as `[BLANK_AUDIO]`, `(music)` and `*coughs*`.
fn spoken_words(text: &str) -> &str {
    let text = text.trim();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|letter: char| !letter.is_alphanumeric() && !"[(*".contains(letter));
        let marks = [('[', ']'), ('(', ')'), ('*', '*')];
        let Some((_, end)) = marks.into_iter().find(|(start, _)| rest.starts_with(*start)) else {
            break;
        };
        match rest[1..].find(end) {
            Some(length) => rest = &rest[length + 2..],
            None if rest.starts_with('*') => rest = &rest[1..],
            // A marker that is still written.
            None => return "",
        }
    }
    match rest.is_empty() {
        true => "",
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_of_recognisers_are_no_words() {
        for text in [
            "",
            " . ",
            "...",
            "[BLANK_AUDIO]",
            " (music) ",
            "[ Silence ] (wind blowing)",
            "*coughs*",
            "\u{266a} \u{266a}",
            "(",
        ] {
            assert_eq!(spoken_words(text), "", "{text}");
        }
        for text in ["5", "\u{597d}", "[laughs] Yes.", "Call (me)", "2 * 3 * 4", "*5"] {
            assert_eq!(spoken_words(text), text);
        }
        assert_eq!(spoken_words(" Hello. \n"), "Hello.");
    }
}
