//! What the service does: its connection, its events, and its errors.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client_event;
use super::errors;
use super::server_event::{self, ErrorNames, ServerEvent};
use super::{ActiveResponse, Phase, Realtime, SESSION_WITHIN, TICK_ITEM};
use crate::assistant::outage::OutageStep;
use crate::assistant::report::{
    AssistantCount, ClientReport, ConnectFailure, ConnectionOutcome, EndReason, ErrorClass, Line, RealtimeOutput,
    ResponseStatus, ServiceLog,
};
use crate::audio::g711::Law;
use crate::kit::Speaker;

/// Text of the failure that a client gets with a response.
const NO_ANSWER: &str = "The assistant has no answer; please try again.";

impl Realtime {
    /// The connection is open.
    pub fn handle_connected(&mut self, now: Instant) {
        if self.phase == Phase::Connecting {
            self.phase = Phase::Opening {
                until: now + SESSION_WITHIN,
            };
        }
    }

    /// The connection was not opened.
    pub fn handle_connect_failed(&mut self, failure: ConnectFailure, now: Instant) {
        if self.phase != Phase::Connecting {
            return;
        }
        let class = errors::of_failure(&failure);
        let outcome = match (&failure, class) {
            (_, Some(ErrorClass::Auth)) => ConnectionOutcome::Auth,
            (_, Some(ErrorClass::Quota)) => ConnectionOutcome::Quota,
            (ConnectFailure::Refused { .. }, _) => ConnectionOutcome::Refused,
            _ => ConnectionOutcome::Unreachable,
        };
        self.count(AssistantCount::Connection(outcome));
        let words = match (failure, class) {
            (ConnectFailure::Refused { status, .. }, Some(class)) => {
                format!(
                    "the service refuses connections with status {status}: {}",
                    class.words()
                )
            }
            (ConnectFailure::Unreachable(why), _) => format!("the service is not reached: {why}"),
            _ => "the service does not answer".to_owned(),
        };
        self.retry(words, class.is_some_and(ErrorClass::is_final), now);
    }

    /// The connection ended, with the code of the service if it closed it.
    pub fn handle_closed(&mut self, code: Option<u16>, now: Instant) {
        if !matches!(self.phase, Phase::Opening { .. } | Phase::Ready { .. }) {
            return;
        }
        self.count(AssistantCount::Connection(ConnectionOutcome::Lost));
        let words = match code {
            Some(code) => format!("the service closed the connection with code {code}"),
            None => "the connection to the service was lost".to_owned(),
        };
        self.drop_answer();
        self.retry(words, matches!(code, Some(1000 | 1008 | 4000)), now);
    }

    /// Handles one event of the service.
    pub fn handle_message(&mut self, text: &str, now: Instant) {
        self.handle_event(text, now);
        self.plan_tick(now);
    }

    fn handle_event(&mut self, text: &str, now: Instant) {
        if !matches!(self.phase, Phase::Opening { .. } | Phase::Ready { .. }) {
            return;
        }
        let Some(event) = server_event::parse(text) else { return };
        match event {
            ServerEvent::SessionCreated => self.update_session(),
            ServerEvent::SessionUpdated => self.handle_session_updated(now),
            ServerEvent::SpeechStarted => self.handle_caller_started(now),
            ServerEvent::SpeechStopped => {
                self.is_caller_speaking = false;
                self.question = Some(false);
                self.lifetime.keep(now);
                self.stopwatch.begin(self.speech.take().unwrap_or(now));
                self.report(ClientReport::UserStoppedSpeaking);
            }
            ServerEvent::Transcript {
                item_id,
                text,
                is_final,
            } => self.handle_transcript(&item_id, &text, is_final, now),
            ServerEvent::ResponseCreated { id } => {
                self.question = None;
                if self.active.as_ref().is_none_or(|active| active.id.is_some()) {
                    // The service makes it by itself.
                    self.asked = (None, self.body.text_only);
                }
                self.active = Some(ActiveResponse {
                    id: Some(id),
                    is_failure_reported: false,
                });
                self.report(ClientReport::LlmStarted);
            }
            ServerEvent::Audio {
                response_id,
                item_id,
                content_index,
                bytes,
            } => self.handle_speech(&response_id, &item_id, content_index, &bytes, now),
            ServerEvent::AudioDone { item_id } => {
                self.playback.complete(&item_id);
                self.speech_text.complete(&item_id);
            }
            ServerEvent::SpokenText {
                response_id,
                item_id,
                text,
            } => self.handle_spoken_text(&response_id, &item_id, &text, now),
            ServerEvent::WrittenText { response_id, text } => {
                if !self.is_cancelled(&response_id) {
                    self.stopwatch.handle_token(now);
                    self.speech_text.write(&text);
                    self.tell_text(text);
                }
            }
            ServerEvent::FunctionCalled { mut response_id, call } => {
                if response_id.is_empty() {
                    // Some servers omit it: a call is of the response in progress.
                    let active = self.active.as_ref();
                    response_id = active.and_then(|active| active.id.clone()).unwrap_or_default();
                }
                if let Some(call) = self.drafts.add(&response_id, call) {
                    self.handle_call(&response_id, call, now);
                }
            }
            ServerEvent::ResponseDone {
                id,
                status,
                usage,
                calls,
                error,
            } => {
                for call in calls {
                    self.drafts
                        .add(&id, call)
                        .into_iter()
                        .for_each(|call| self.handle_call(&id, call, now));
                }
                for call in self.drafts.finish(&id) {
                    if status == ResponseStatus::Completed {
                        self.handle_call(&id, call, now);
                    }
                }
                if usage.total > 0 {
                    self.count(AssistantCount::Tokens(usage));
                    self.report(ClientReport::Tokens(usage));
                }
                self.handle_response_done(&id, status, &error, now);
            }
            ServerEvent::Failed(names) => self.handle_error(&names, now),
        }
    }

    pub(super) fn update_session(&mut self) {
        self.is_created = true;
        if !matches!(self.phase, Phase::Opening { .. }) || self.awaits_functions {
            return;
        }
        let session = client_event::session(&self.config, &self.body, self.profile.line, &self.tools);
        self.update_id = self.send(json!({"type": "session.update", "session": session}));
    }

    fn handle_session_updated(&mut self, now: Instant) {
        if !matches!(self.phase, Phase::Opening { .. }) {
            return;
        }
        self.phase = Phase::Ready { since: now };
        self.count(AssistantCount::Connection(ConnectionOutcome::Ok));
        self.outputs.push_back(RealtimeOutput::Log(ServiceLog::Connected));
        if std::mem::replace(&mut self.was_ready, true) {
            self.count(AssistantCount::Reconnect);
        }
        self.repeat_history();
        self.greet();
        self.send_audio();
        self.request_response();
    }

    /// Tells a new session what has been said.
    fn repeat_history(&mut self) {
        let dialect = self.dialect();
        let items = self.transcript.texts().map(|(speaker, text)| {
            let role = match speaker {
                Speaker::Caller => "user",
                Speaker::Bot => "assistant",
            };
            client_event::text_item(role, text, dialect)
        });
        let items: Vec<Value> = items.collect();
        for item in items {
            self.send(item);
        }
    }

    fn handle_caller_started(&mut self, now: Instant) {
        self.lifetime.keep(now);
        self.is_caller_speaking = true;
        self.question = None;
        self.report(ClientReport::UserStartedSpeaking);
        // The keys are pressed to the end: what speaks is the menu that they are for.
        if self.config.interrupt && !self.is_pressing() {
            if self.playback.is_speaking_besides(TICK_ITEM) {
                self.count(AssistantCount::BargeIn);
            }
            self.interrupt();
        }
    }

    fn handle_transcript(&mut self, item_id: &str, text: &str, is_final: bool, now: Instant) {
        if is_final {
            self.stopwatch.handle_recognized(now);
            // Some services make the text before they begin the answer.
            self.question = self.question.map(|_| !text.trim().is_empty());
        }
        let text = match is_final {
            true => self.transcript.complete(item_id, text).to_owned(),
            false => match self.transcript.push_piece(item_id, text) {
                Some(text) => text.to_owned(),
                None => return,
            },
        };
        if text.is_empty() || !self.config.transcripts {
            return;
        }
        self.report(ClientReport::Transcript {
            text: text.clone(),
            is_final,
        });
        if is_final {
            self.report(ClientReport::UserLlmText(text));
        }
    }

    fn handle_speech(&mut self, response_id: &str, item_id: &str, content_index: u64, bytes: &[u8], now: Instant) {
        if self.is_cancelled(response_id) {
            return;
        }
        self.stopwatch.handle_token(now);
        self.lifetime.keep(now);
        let pcm: Vec<i16> = match self.profile.line {
            Line::Pcm24k => {
                let (samples, _) = bytes.as_chunks::<2>();
                samples.iter().map(|sample| i16::from_le_bytes(*sample)).collect()
            }
            Line::G711(laws) => decoded(laws.outbound, bytes),
        };
        let rate_hz = u64::from(self.profile.line.rate_hz());
        let length = Duration::from_micros(pcm.len() as u64 * 1_000_000 / rate_hz);
        self.count(AssistantCount::AudioReceived(length));
        self.speech_text.begin(item_id);
        if !self.playback.push(item_id, content_index, &pcm) {
            // What waits is played; the rest of the answer is given up.
            self.cancel_response();
        }
    }

    fn handle_spoken_text(&mut self, response_id: &str, item_id: &str, text: &str, now: Instant) {
        if self.is_cancelled(response_id) {
            return;
        }
        self.stopwatch.handle_token(now);
        self.speech_text.begin(item_id);
        self.tell_text(text.to_owned());
        for report in self.speech_text.push(item_id, text) {
            self.tell(report);
        }
    }

    fn handle_response_done(&mut self, id: &str, status: ResponseStatus, error: &ErrorNames, now: Instant) {
        self.count(AssistantCount::Response(status));
        self.lifetime.keep(now);
        self.cancelled.retain(|cancelled| cancelled != id);
        let active = self.active.take_if(|a| a.id.as_deref().is_none_or(|a| a == id));
        if active.is_some() {
            self.report(ClientReport::LlmStopped);
        }
        if let Some(text) = self.speech_text.take_written() {
            self.transcript.add(Speaker::Bot, &text);
            self.tell(ClientReport::Shown(text));
        }
        match status {
            ResponseStatus::Failed => {
                let class = errors::classify(error.code.as_deref(), error.kind.as_deref(), false);
                let is_reported = active.is_some_and(|active| active.is_failure_reported);
                if self.is_fatal(class) || !is_reported {
                    self.count(AssistantCount::Error(class));
                    self.handle_no_answer(class, now);
                }
            }
            ResponseStatus::Completed | ResponseStatus::Incomplete => {
                self.has_answered = true;
                self.answers.handle_answered();
                self.connection.handle_answered();
            }
            ResponseStatus::Cancelled => {}
        }
        let answers = self.functions.handle_response_done(id);
        self.answer_functions(answers);
        self.request_response();
    }

    /// The caller gets no answer. The session ends at a refused key, at an error that every answer
    /// would meet if there was none yet, and when the patience of the caller is over.
    fn handle_no_answer(&mut self, class: ErrorClass, now: Instant) {
        self.stopwatch.clear();
        self.answers.handle_asked(now);
        let is_over = match class.is_final() {
            true => self.is_fatal(class),
            false => self.answers.handle_failed(None, self.config.patience, now) == OutageStep::Over,
        };
        if is_over {
            return self.end(EndReason::Failed(format!(
                "the service gives no answer: {}",
                class.words()
            )));
        }
        self.log(format!("a response failed: {}", class.words()));
        self.tell_failure(NO_ANSWER);
    }

    /// Returns whether a refusal ends the session: after an answer, it may be of one request.
    fn is_fatal(&self, class: ErrorClass) -> bool {
        class == ErrorClass::Auth || class.is_final() && !self.has_answered
    }

    /// An error after which the next answer may succeed.
    fn handle_transient_error(&mut self, names: &ErrorNames, class: ErrorClass, now: Instant) {
        // Without a name, the service may have refused the response that was asked for.
        let is_about_request = names.event_id.as_ref().is_none_or(|id| *id == self.request_id);
        let refused = self.active.take_if(|active| active.id.is_none() && is_about_request);
        let is_outage = class.is_final() || errors::is_outage(names.code.as_deref(), names.kind.as_deref());
        if refused.is_none() && !is_outage {
            return self.log(format!("an error: {}", class.words()));
        }
        // The end of a response in progress may tell of the same failure.
        let active = self.active.as_mut();
        if !active.is_some_and(|active| std::mem::replace(&mut active.is_failure_reported, true)) {
            if self.active.is_none() {
                // The answer that was due.
                self.question = None;
            }
            self.handle_no_answer(class, now);
        }
    }

    fn handle_error(&mut self, names: &ErrorNames, now: Instant) {
        let is_of_session = matches!(self.phase, Phase::Opening { .. })
            || names.event_id.as_ref().is_some_and(|id| *id == self.update_id);
        let class = errors::classify(names.code.as_deref(), names.kind.as_deref(), is_of_session);
        self.count(AssistantCount::Error(class));
        match class {
            ErrorClass::Harmless => {
                // The service makes a response by itself: ours follows when it is done.
                if names.code.as_deref() == Some("conversation_already_has_active_response") {
                    self.wanted.get_or_insert((None, self.body.text_only));
                }
            }
            ErrorClass::Expired => {
                self.count(AssistantCount::Connection(ConnectionOutcome::Expired));
                self.drop_answer();
                self.retry(class.words().to_owned(), false, now);
            }
            ErrorClass::Transient if matches!(self.phase, Phase::Opening { .. }) => {
                self.count(AssistantCount::Connection(ConnectionOutcome::Refused));
                self.retry("the service opens no session: a temporary fault".to_owned(), false, now);
            }
            class if class.is_final() && (is_of_session || self.is_fatal(class)) => {
                if matches!(self.phase, Phase::Opening { .. }) {
                    self.count(AssistantCount::Connection(match class {
                        ErrorClass::Auth => ConnectionOutcome::Auth,
                        ErrorClass::Quota => ConnectionOutcome::Quota,
                        _ => ConnectionOutcome::Refused,
                    }));
                }
                let code = names.code.as_ref().or(names.kind.as_ref());
                let code = code.map(|code| format!(" ({code})")).unwrap_or_default();
                self.end(EndReason::Failed(format!(
                    "the service refuses: {}{code}",
                    class.words()
                )));
            }
            _ => self.handle_transient_error(names, class, now),
        }
    }
}

fn decoded(law: Law, bytes: &[u8]) -> Vec<i16> {
    let mut pcm = Vec::with_capacity(bytes.len());
    law.decode(bytes, &mut pcm);
    pcm
}
