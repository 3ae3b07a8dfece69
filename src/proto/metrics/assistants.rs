//! The metrics of assistants.
//!
//! In: [`AssistantCount`]s. Out: their families in the text for Prometheus, with fixed labels.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::histogram::{Histogram, HistogramBounds, ms};
use super::text::{MetricKind, MetricsText};
use crate::assistant::report::{AssistantCount, ConnectionOutcome, ErrorClass, ResponseStatus};

const FIRST_SOUND: HistogramBounds = ms([100, 200, 300, 500, 750, 1_000, 1_500, 2_000, 3_000, 5_000]);

/// Labels of tokens.
const TOKENS: [&str; 3] = ["input", "output", "cached"];

/// The sums of all sessions with an assistant.
#[derive(Default)]
pub(super) struct AssistantMetrics {
    connections: [AtomicU64; ConnectionOutcome::LABELS.len()],
    reconnects: AtomicU64,
    responses: [AtomicU64; ResponseStatus::LABELS.len()],
    barge_ins: AtomicU64,
    errors: [AtomicU64; ErrorClass::LABELS.len()],
    audio_sent_us: AtomicU64,
    audio_received_us: AtomicU64,
    tokens: [AtomicU64; TOKENS.len()],
    first_sound: Histogram,
}

fn add(sum: &AtomicU64, more: u64) {
    sum.fetch_add(more, Relaxed);
}

impl AssistantMetrics {
    pub(super) fn add(&self, count: AssistantCount) {
        let us = |length: Duration| length.as_micros() as u64;
        match count {
            AssistantCount::Connection(outcome) => add(&self.connections[outcome as usize], 1),
            AssistantCount::Reconnect => add(&self.reconnects, 1),
            AssistantCount::Response(status) => add(&self.responses[status as usize], 1),
            AssistantCount::BargeIn => add(&self.barge_ins, 1),
            AssistantCount::Error(class) => add(&self.errors[class as usize], 1),
            AssistantCount::AudioSent(length) => add(&self.audio_sent_us, us(length)),
            AssistantCount::AudioReceived(length) => add(&self.audio_received_us, us(length)),
            AssistantCount::Tokens(usage) => {
                for (sum, more) in self.tokens.iter().zip([usage.input, usage.output, usage.cached]) {
                    add(sum, more);
                }
            }
            AssistantCount::FirstSound(after) => self.first_sound.observe(&FIRST_SOUND, after),
        }
    }

    pub(super) fn render(&self, text: &mut MetricsText) {
        text.family(
            "edge_runner_assistant_connections_total",
            MetricKind::Counter,
            "Connections to the service of the bot `realtime`, by outcome. A connection that was established counts \
             again as expired or lost when it ends early.",
        );
        labelled(text, "outcome", &ConnectionOutcome::LABELS, &self.connections);
        text.family(
            "edge_runner_assistant_reconnects_total",
            MetricKind::Counter,
            "Connections that replaced another one in the same session.",
        );
        text.sample(&[], self.reconnects.load(Relaxed));
        text.family(
            "edge_runner_assistant_responses_total",
            MetricKind::Counter,
            "Answers of the service, by status.",
        );
        labelled(text, "status", &ResponseStatus::LABELS, &self.responses);
        text.family(
            "edge_runner_assistant_barge_ins_total",
            MetricKind::Counter,
            "Times that a caller interrupted the bot.",
        );
        text.sample(&[], self.barge_ins.load(Relaxed));
        text.family(
            "edge_runner_assistant_errors_total",
            MetricKind::Counter,
            "Errors that the service reported, by class.",
        );
        labelled(text, "class", &ErrorClass::LABELS, &self.errors);
        text.family(
            "edge_runner_assistant_audio_seconds_total",
            MetricKind::Counter,
            "Seconds of audio sent to the service and received from it.",
        );
        for (direction, sum) in [("sent", &self.audio_sent_us), ("received", &self.audio_received_us)] {
            text.sample(&[("direction", direction)], sum.load(Relaxed) as f64 / 1e6);
        }
        text.family(
            "edge_runner_assistant_tokens_total",
            MetricKind::Counter,
            "Tokens that the service billed; the cached ones are part of the input.",
        );
        labelled(text, "kind", &TOKENS, &self.tokens);
        self.first_sound.render(
            text,
            &FIRST_SOUND,
            "edge_runner_assistant_first_sound_seconds",
            "Time from the end of the caller's speech to the first sound of the answer.",
        );
    }
}

fn labelled(text: &mut MetricsText, label: &'static str, values: &[&'static str], sums: &[AtomicU64]) {
    for (value, sum) in values.iter().zip(sums) {
        text.sample(&[(label, value)], sum.load(Relaxed));
    }
}
