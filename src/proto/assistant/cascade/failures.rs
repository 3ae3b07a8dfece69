//! What becomes of a call whose services fail or refuse a request.
//!
//! In: a [`ServiceFailure`], and the time. Out: what ends the call, what costs one answer, and what
//! is asked again. A refused key ends the call, and so does a refusal of the settings unless the
//! service has answered before. A refused request costs its answer; one that may be too long is
//! asked again without the oldest turns first. A service that is away is asked again as long as the
//! caller has patience.

use std::time::{Duration, Instant};

use super::answer::SpeechState;
use super::{Cascade, FAILURE_ITEM, sentence_item};
use crate::assistant::outage::{Outage, OutageStep};
use crate::assistant::report::{AssistantCount, ClientReport, EndReason, ResponseStatus};
use crate::assistant::services::failure::{FailureScope, ServiceFailure};
use crate::assistant::sound;

/// Text of the failure of a recogniser that a client gets.
const NOT_UNDERSTOOD: &str = "The assistant could not hear you; please say it again.";
/// Text of the failure of an answer.
const NO_ANSWER: &str = "The assistant has no answer; please try again.";
/// Text of a failure that may pass.
const HOLD_ON: &str = "The assistant waits for one of its services; please hold on.";

/// The service of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CascadeService {
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

/// What became of the requests to one service.
#[derive(Debug, Default)]
pub(super) struct ServiceRecord {
    /// Whether it has answered in this call.
    has_answered: bool,
    outage: Outage,
}

impl ServiceRecord {
    pub fn handle_asked(&mut self, now: Instant) {
        self.outage.handle_asked(now);
    }

    pub fn handle_answered(&mut self) {
        self.has_answered = true;
        self.outage.handle_answered();
    }

    /// Returns when the service may be asked again; `None` if it may be asked now.
    pub fn retry_at(&self) -> Option<Instant> {
        self.outage.retry_at()
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.outage.handle_timeout(now);
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The call is over.
    Over,
    /// The request is given up.
    Lost,
    /// It may be made again, and the caller is to be told that it takes a while.
    Again { is_to_report: bool },
}

impl Cascade {
    pub(super) fn record(&mut self, service: CascadeService) -> &mut ServiceRecord {
        &mut self.records[service as usize]
    }

    /// The model has written words, or called functions.
    pub(super) fn handle_chat_answered(&mut self) {
        self.record(CascadeService::Model).handle_answered();
        self.has_asked_again = false;
        // What it did not take is never sent again.
        self.history.forget_oldest(std::mem::take(&mut self.skipped_turns));
    }

    /// A request has failed.
    pub fn handle_failed(&mut self, id: u64, failure: &ServiceFailure, now: Instant) {
        match self.service(id) {
            None => {}
            Some(CascadeService::Recognizer) => self.handle_recognition_failed(id, failure, now),
            Some(CascadeService::Model) => self.handle_chat_failed(failure, now),
            Some(CascadeService::Voice) => self.handle_speech_failed(id, failure, now),
        }
    }

    fn judge(&mut self, service: CascadeService, failure: &ServiceFailure, now: Instant) -> Verdict {
        self.count(AssistantCount::Error(failure.class()));
        let words = format!("{}: {failure}", service.name());
        let has_answered = self.record(service).has_answered;
        let is_of_moment = match failure.scope() {
            FailureScope::Call => {
                self.end(EndReason::Failed(words));
                return Verdict::Over;
            }
            FailureScope::Setup if !has_answered => {
                self.end(EndReason::Failed(words));
                return Verdict::Over;
            }
            FailureScope::Moment => true,
            // The account may be filled within a minute, or never.
            FailureScope::Setup => *failure == ServiceFailure::NoQuota,
            FailureScope::Request => false,
        };
        if !is_of_moment {
            self.log(words);
            return Verdict::Lost;
        }
        let wait = match failure {
            ServiceFailure::Busy(wait) => Some(*wait),
            _ => None,
        };
        let patience: Duration = self.config.patience;
        match self.record(service).outage.handle_failed(wait, patience, now) {
            OutageStep::Over => {
                self.end(EndReason::Failed(words));
                Verdict::Over
            }
            OutageStep::Retry { is_to_report } => {
                self.log(words);
                Verdict::Again { is_to_report }
            }
        }
    }

    /// Tells the caller of a failure after which the call goes on.
    fn tell_failure(&mut self, text: &'static str) {
        self.report(ClientReport::Error { text });
        if !self.body.text_only {
            self.play(&sound::notes(self.profile.line.rate_hz()));
        }
    }

    /// The caller is told at the end of the utterance: the rest of it is not taken for a new one.
    fn handle_recognition_failed(&mut self, id: u64, failure: &ServiceFailure, now: Instant) {
        if self.judge(CascadeService::Recognizer, failure, now) == Verdict::Over {
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
        self.stopwatch.clear();
        self.recognitions.complete(id, "");
        self.settle(now);
    }

    /// A message that the model has not begun is asked for again; one that was cut off stays so.
    fn handle_chat_failed(&mut self, failure: &ServiceFailure, now: Instant) {
        self.count(AssistantCount::Response(ResponseStatus::Failed));
        let Some(answer) = &mut self.answer else { return };
        answer.chat = None;
        let message = answer.message;
        self.report(ClientReport::LlmStopped);
        let verdict = self.judge(CascadeService::Model, failure, now);
        let is_begun = self.history.calls(message) > 0 || !self.history.text(message).trim().is_empty();
        let asks_again = !is_begun
            && match verdict {
                Verdict::Over => return,
                Verdict::Again { .. } => true,
                // Twice in a row it may be all that the server says of a long conversation.
                Verdict::Lost if *failure == ServiceFailure::Empty => {
                    !std::mem::replace(&mut self.has_asked_again, true) || self.skip_turns()
                }
                Verdict::Lost => failure.may_be_length() && self.skip_turns(),
            };
        if asks_again {
            self.repeat_request(message);
            self.tell_wait(verdict);
        } else {
            self.fail_answer(failure, is_begun);
        }
        self.advance(now);
    }

    fn tell_wait(&mut self, verdict: Verdict) {
        if (verdict == Verdict::Again { is_to_report: true }) {
            self.tell_failure(HOLD_ON);
        }
    }

    /// Leaves out the older half of the turns that the model gets. Returns false if only the last
    /// one is left.
    fn skip_turns(&mut self) -> bool {
        let sent = self.history.turns().saturating_sub(self.skipped_turns);
        self.skipped_turns += sent / 2;
        sent > 1
    }

    fn repeat_request(&mut self, message: u64) {
        let Some(answer) = &mut self.answer else { return };
        if answer.rounds == 0 {
            self.due = Some(answer.is_text_only);
            self.drop_answer();
        } else {
            answer.is_due = true;
            answer.rounds -= 1;
            self.history.finish_bot(message);
        }
    }

    /// The caller gets no answer, or no more of it.
    fn fail_answer(&mut self, failure: &ServiceFailure, is_begun: bool) {
        self.skipped_turns = 0;
        self.has_asked_again = false;
        let Some(answer) = &mut self.answer else { return };
        answer.finish_text(&mut self.sentences);
        let is_forgotten = failure.is_about_words() && !is_begun && answer.rounds == 0;
        let outputs = self.functions.abort("the answer failed");
        self.add_outputs(outputs);
        self.presses.clear();
        self.hangs_up = false;
        if is_forgotten {
            // The model would refuse them again with every later question.
            self.drop_answer();
            self.history.forget_last();
        }
        self.tell_failure(NO_ANSWER);
    }

    /// A sentence of which nothing was received is asked for again, unless it is refused.
    fn handle_speech_failed(&mut self, id: u64, failure: &ServiceFailure, now: Instant) {
        let Some((_, number)) = self.synthesis.take_if(|(known, _)| *known == id) else {
            return;
        };
        let verdict = self.judge(CascadeService::Voice, failure, now);
        if verdict == Verdict::Over {
            return;
        }
        let mut is_missing = false;
        if let Some(sentence) = self.answer.as_mut().and_then(|answer| answer.sentence(number)) {
            is_missing = verdict == Verdict::Lost && !sentence.has_audio;
            sentence.speech = match verdict {
                Verdict::Again { .. } if !sentence.has_audio => SpeechState::Waiting,
                _ => SpeechState::Complete,
            };
            sentence.is_cut = sentence.speech == SpeechState::Complete;
        }
        if is_missing {
            self.tell_failure(NO_ANSWER);
        }
        self.tell_wait(verdict);
        self.playback.complete(&sentence_item(number));
        self.advance(now);
    }

    /// Returns the service of a request that is not over.
    pub(super) fn service(&self, id: u64) -> Option<CascadeService> {
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

    /// Plays a sound of a failure.
    pub(super) fn play(&mut self, pcm: &[i16]) {
        self.playback.push_local(FAILURE_ITEM, pcm);
    }
}
