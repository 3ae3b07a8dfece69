//! What the client of an assistant is told, as RTVI messages.

use std::collections::VecDeque;

use serde_json::Value;

use crate::proto::assistant::answer_stopwatch::MeasuredAnswer;
use crate::proto::assistant::report::{ClientReport, TokenUsage};
use crate::rtvi::{AnswerStage, AnswerTime, Measure, Metrics, Rtvi, Sentence, ToClient, Tokens};

/// Sentences whose progress is told.
const SENTENCES_MAX: usize = 64;

/// Tells the client of a session.
pub struct SessionReports {
    /// The name of the bot in metrics for the client.
    processor: &'static str,
    model: String,
    sentences: VecDeque<(u32, Sentence)>,
}

impl SessionReports {
    pub fn new(processor: &'static str, model: &str) -> Self {
        SessionReports {
            processor,
            model: model.to_owned(),
            sentences: VecDeque::new(),
        }
    }

    /// Forgets the sentences that are not spoken any more, and drops the queued speech.
    pub fn interrupt(&mut self, rtvi: &mut Rtvi) {
        self.sentences.clear();
        rtvi.interrupt();
    }

    pub fn tell(&mut self, rtvi: &mut Rtvi, report: ClientReport) {
        match report {
            ClientReport::UserStartedSpeaking => rtvi.user_started_speaking(),
            ClientReport::UserStoppedSpeaking => rtvi.user_stopped_speaking(),
            ClientReport::Transcript { text, is_final } => rtvi.transcript(&text, is_final),
            ClientReport::UserLlmText(text) => rtvi.send(&ToClient::UserLlmText { text: &text }),
            ClientReport::LlmStarted => rtvi.send(&ToClient::BotLlmStarted),
            ClientReport::LlmText(text) => rtvi.send(&ToClient::BotLlmText { text: &text }),
            ClientReport::LlmStopped => rtvi.send(&ToClient::BotLlmStopped),
            ClientReport::SentenceBegins { id, text } => {
                if self.sentences.len() == SENTENCES_MAX {
                    self.sentences.pop_front();
                }
                let text = text.trim_end();
                rtvi.send(&ToClient::BotTranscription { text });
                self.sentences.push_back((id, rtvi.begin_sentence(text)));
            }
            ClientReport::SentenceSpoken { id, bytes } => {
                if let Some((_, sentence)) = self.sentences.iter_mut().find(|(known, _)| *known == id) {
                    rtvi.progress(sentence, bytes);
                }
            }
            ClientReport::Shown(text) => rtvi.show(&text),
            ClientReport::FirstSound(answer) => self.tell_first_sound(rtvi, &answer),
            ClientReport::Tokens(usage) => tell_tokens(rtvi, usage),
            ClientReport::FunctionStarted(call) => {
                rtvi.send(&ToClient::LlmFunctionCallStarted {
                    function_name: Some(&call.name),
                });
                rtvi.send(&ToClient::LlmFunctionCallInProgress {
                    tool_call_id: &call.call_id,
                    function_name: Some(&call.name),
                    arguments: call.arguments.as_object(),
                });
            }
            ClientReport::FunctionStopped {
                call_id,
                name,
                is_cancelled,
            } => rtvi.send(&ToClient::LlmFunctionCallStopped {
                tool_call_id: &call_id,
                cancelled: is_cancelled,
                function_name: Some(&name),
                result: None::<&Value>,
            }),
            ClientReport::Error { text } => rtvi.error(text, false),
        }
    }

    fn tell_first_sound(&self, rtvi: &Rtvi, answer: &MeasuredAnswer) {
        let latency = answer.latency.as_secs_f64();
        let stages = answer.stages.iter().map(|(name, time)| AnswerStage {
            name,
            value: time.as_secs_f64(),
        });
        let stages: Vec<AnswerStage<'_>> = stages.collect();
        let measure = Measure {
            processor: self.processor,
            model: Some(&self.model),
            value: latency,
        };
        rtvi.metrics(&Metrics {
            ttfb: &[measure],
            answer: Some(AnswerTime {
                latency,
                stages: &stages,
            }),
            ..Metrics::default()
        });
    }
}

fn tell_tokens(rtvi: &Rtvi, usage: TokenUsage) {
    rtvi.metrics(&Metrics {
        tokens: &[Tokens {
            prompt_tokens: usage.input,
            completion_tokens: usage.output,
            total_tokens: usage.total,
        }],
        ..Metrics::default()
    });
}
