//! The metrics of the runner for `/metrics`: sessions, media, delays, refusals.
//!
//! In: counts of sessions, delays, refusals; at a scrape, the values that only the driver knows
//! ([`MetricsSnapshot`]). Out: [`RunnerMetrics::render`], the text for Prometheus. Label values are
//! constants of this file, so their number is fixed: no address, no id. A session counts in plain
//! numbers and flushes the differences by its [`SessionMetrics`] once a second and at its end; no
//! packet takes a lock or touches shared memory. Source: Prometheus "Text-based format" 0.0.4,
//! "Metric and label naming".

mod assistants;
pub mod bots;
pub mod histogram;
pub mod process;
mod session;
pub mod text;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::assistant::report::AssistantCount;
use crate::audio::CODEC_NAMES;
use crate::counts::{COUNTERS, COUNTS, CounterScope};
use crate::event::LeaveReason;
use crate::features::Feature;
use crate::refusal::SessionRefusal;
use crate::transport::Transport;
use crate::webrtc::gather::ServerState;
use histogram::{Histogram, HistogramBounds, ms};
use process::ProcessStats;
pub use session::SessionMetrics;
use text::{MetricKind, MetricsText};

/// Clients that may read `/metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricsAccess {
    /// None.
    Off,
    /// Clients on this machine that connect without a proxy.
    #[default]
    Local,
    /// Clients with the API key, from any machine.
    Key,
    /// Every client.
    Any,
}

/// Labels of refused offers, indexed by [`refusal_index`].
const REFUSALS: [&str; 9] = [
    "bad_sdp",
    "unknown_connection",
    "full",
    "stopping",
    "no_candidate",
    "answer_too_long",
    "share",
    "no_answer",
    "caller",
];

fn refusal_index(refusal: &SessionRefusal) -> usize {
    match refusal {
        SessionRefusal::BadSdp(_) => 0,
        SessionRefusal::UnknownConnection | SessionRefusal::OtherReplica(_) => 1,
        SessionRefusal::Full | SessionRefusal::BotFull(_) => 2,
        SessionRefusal::Stopping => 3,
        SessionRefusal::NoCandidate(_) => 4,
        SessionRefusal::AnswerTooLong(_) => 5,
        SessionRefusal::SourceQuota => 6,
        SessionRefusal::CallerNotAllowed(_) => 8,
        SessionRefusal::Internal(_) => 7,
    }
}

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

const ANSWER: HistogramBounds = ms([1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000]);
const CONNECT: HistogramBounds = ms([50, 100, 200, 300, 500, 1_000, 2_000, 5_000, 10_000, 15_000]);
const LATENESS: HistogramBounds = ms([1, 2, 3, 5, 10, 20, 50, 100, 500, 1_000]);

/// The metrics of one transport.
#[derive(Default)]
struct TransportMetrics {
    live: AtomicU64,
    started: AtomicU64,
    ended: [AtomicU64; LeaveReason::ALL.len()],
    counts: [AtomicU64; COUNTS],
    waiting_frames: AtomicU64,
    waiting_speech_us: AtomicU64,
}

/// All metrics. Created once per runner.
#[derive(Default)]
pub struct RunnerMetrics {
    rows: [TransportMetrics; Transport::OF_SESSIONS.len()],
    codecs: [AtomicU64; CODEC_NAMES.len()],
    refused: [AtomicU64; REFUSALS.len()],
    responses: [AtomicU64; CLASSES.len()],
    answer: Histogram,
    connect: Histogram,
    lateness: Histogram,
    assistants: assistants::AssistantMetrics,
}

/// Values of the driver at the time of a scrape.
#[derive(Clone, Debug, Default)]
pub struct MetricsSnapshot {
    pub process: Option<ProcessStats>,
    /// Datagrams without a session, and datagrams whose session had a full queue.
    pub unmatched_datagrams: u64,
    pub inbox_full: u64,
    /// State of the configured ICE servers.
    pub ice_servers: Vec<ServerState>,
    /// Live tasks.
    pub tasks: u64,
    /// Stalls of the runtime, and of session tasks.
    pub runtime_stalls: u64,
    pub task_stalls: u64,
}

impl RunnerMetrics {
    /// Records a rejected offer or socket.
    pub fn offer_refused(&self, refusal: &SessionRefusal) {
        self.refused[refusal_index(refusal)].fetch_add(1, Relaxed);
    }

    /// Records an HTTP response with this status.
    pub fn responded(&self, status: u16) {
        if let Some(class) = self.responses.get(usize::from(status / 100).wrapping_sub(1)) {
            class.fetch_add(1, Relaxed);
        }
    }

    /// Records the time in which an offer was answered.
    pub fn offer_answered(&self, after: Duration) {
        self.answer.observe(&ANSWER, after);
    }

    /// Records the time from the answer to the connection.
    pub fn connected(&self, after: Duration) {
        self.connect.observe(&CONNECT, after);
    }

    /// Records a WebRTC connection with the codec of this name.
    pub fn codec_negotiated(&self, codec: &str) {
        if let Some(at) = CODEC_NAMES.iter().position(|name| *name == codec) {
            self.codecs[at].fetch_add(1, Relaxed);
        }
    }

    /// Records what happened with the service of an assistant.
    pub fn assistant(&self, count: AssistantCount) {
        self.assistants.add(count);
    }

    /// Returns the text for Prometheus. `of_modules` adds the families of the running modules.
    pub fn render(&self, seen: &MetricsSnapshot, of_modules: impl FnOnce(&mut MetricsText)) -> String {
        let mut text = MetricsText::default();
        text.family(
            "edge_runner_build_info",
            MetricKind::Gauge,
            "The version of the runner.",
        );
        text.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
        self.render_sessions(&mut text);
        self.render_media(&mut text);
        text.family(
            "edge_runner_webrtc_callers_total",
            MetricKind::Counter,
            "Callers that were connected over WebRTC, by the codec that they speak.",
        );
        for (codec, count) in CODEC_NAMES.iter().zip(&self.codecs) {
            text.sample(&[("codec", codec)], count.load(Relaxed));
        }
        text.family(
            "edge_runner_offers_refused_total",
            MetricKind::Counter,
            "WebRTC offers and socket upgrades that became no session.",
        );
        for (reason, count) in REFUSALS.iter().zip(&self.refused) {
            text.sample(&[("reason", reason)], count.load(Relaxed));
        }
        text.family(
            "edge_runner_http_responses_total",
            MetricKind::Counter,
            "Answers of the HTTP server by the class of their status.",
        );
        for (class, count) in CLASSES.iter().zip(&self.responses) {
            text.sample(&[("class", class)], count.load(Relaxed));
        }
        self.render_delays(&mut text);
        of_modules(&mut text);
        if Feature::Assistants.in_this_build() {
            self.assistants.render(&mut text);
        }
        render_seen(&mut text, seen);
        text.into_string()
    }

    fn rows(&self) -> impl Iterator<Item = (Transport, &TransportMetrics)> {
        let all = Transport::OF_SESSIONS
            .into_iter()
            .map(|transport| (transport, self.row(transport)));
        all.filter(|(transport, _)| transport.in_this_build())
    }

    fn row(&self, transport: Transport) -> &TransportMetrics {
        let at = Transport::OF_SESSIONS.iter().position(|known| *known == transport);
        &self.rows[at.expect("every transport is one of the list")]
    }

    fn render_sessions(&self, text: &mut MetricsText) {
        text.family("edge_runner_sessions", MetricKind::Gauge, "Live sessions.");
        for (transport, row) in self.rows() {
            text.sample(&[("transport", transport.name())], row.live.load(Relaxed));
        }
        text.family(
            "edge_runner_sessions_started_total",
            MetricKind::Counter,
            "Sessions that began.",
        );
        for (transport, row) in self.rows() {
            text.sample(&[("transport", transport.name())], row.started.load(Relaxed));
        }
        text.family(
            "edge_runner_sessions_ended_total",
            MetricKind::Counter,
            "Sessions that ended, by the reason.",
        );
        for (transport, row) in self.rows() {
            for (outcome, count) in LeaveReason::ALL.map(LeaveReason::label).iter().zip(&row.ended) {
                text.sample(
                    &[("transport", transport.name()), ("outcome", outcome)],
                    count.load(Relaxed),
                );
            }
        }
    }

    fn render_media(&self, text: &mut MetricsText) {
        for (what, name, help, of) in COUNTERS {
            text.family(name, MetricKind::Counter, help);
            for (transport, row) in self.rows() {
                if of == CounterScope::All || transport.has_rtp() {
                    let count = row.counts[what as usize].load(Relaxed);
                    text.sample(&[("transport", transport.name())], count);
                }
            }
        }
        text.family(
            "edge_runner_bot_queue_frames",
            MetricKind::Gauge,
            "Audio frames that wait for the bots of live sessions.",
        );
        for (transport, row) in self.rows() {
            text.sample(&[("transport", transport.name())], row.waiting_frames.load(Relaxed));
        }
        text.family(
            "edge_runner_speech_queue_seconds",
            MetricKind::Gauge,
            "Speech of bots that waits to leave, over all live sessions.",
        );
        for (transport, row) in self.rows() {
            let speech = Duration::from_micros(row.waiting_speech_us.load(Relaxed));
            text.sample(&[("transport", transport.name())], speech.as_secs_f64());
        }
    }

    fn render_delays(&self, text: &mut MetricsText) {
        let histograms = [
            (
                &self.answer,
                &ANSWER,
                "edge_runner_offer_to_answer_seconds",
                "From a WebRTC offer to its answer.",
            ),
            (
                &self.connect,
                &CONNECT,
                "edge_runner_answer_to_connected_seconds",
                "From an answer to the connection that carries audio.",
            ),
            (
                &self.lateness,
                &LATENESS,
                "edge_runner_timer_lateness_seconds",
                "How late the deadlines of live sessions were served.",
            ),
        ];
        for (histogram, bounds, name, help) in histograms {
            histogram.render(text, bounds, name, help);
        }
    }
}

fn render_seen(text: &mut MetricsText, seen: &MetricsSnapshot) {
    text.family(
        "edge_runner_datagrams_dropped_total",
        MetricKind::Counter,
        "Datagrams that reached no session: of strangers, or for a session with a full inbox.",
    );
    text.sample(&[("reason", "stranger")], seen.unmatched_datagrams);
    text.sample(&[("reason", "inbox_full")], seen.inbox_full);
    text.family("edge_runner_tasks", MetricKind::Gauge, "Tasks that have not ended.");
    text.sample(&[], seen.tasks);
    text.family(
        "edge_runner_stalls_total",
        MetricKind::Counter,
        "How often the runtime stood still, or a task of a session kept its thread for too long.",
    );
    text.sample(&[("of", "runtime")], seen.runtime_stalls);
    text.sample(&[("of", "task")], seen.task_stalls);
    render_ice_servers(text, &seen.ice_servers);
    if let Some(process) = &seen.process {
        process.render(text);
    }
}

/// Omitted without servers: zeros would indicate a failure.
fn render_ice_servers(text: &mut MetricsText, servers: &[ServerState]) {
    if servers.is_empty() {
        return;
    }
    text.family(
        "edge_runner_ice_servers",
        MetricKind::Gauge,
        "STUN and TURN servers of the configuration, by state.",
    );
    let state = |server: &ServerState| match server {
        ServerState::Working => "up",
        ServerState::Failed(_) => "down",
        ServerState::Trying => "trying",
        ServerState::Unused(_) => "unused",
    };
    for name in ["up", "down", "trying", "unused"] {
        let count = servers.iter().filter(|server| state(server) == name).count();
        text.sample(&[("state", name)], count);
    }
}

/// Returns whether this header, in lower case, shows that a proxy forwards the request.
pub fn is_forwarding(header: &str) -> bool {
    matches!(header, "forwarded" | "x-real-ip" | "via") || header.starts_with("x-forwarded-")
}

/// Why access to the metrics is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsDenied {
    /// Metrics are disabled.
    Off,
    /// The peer is another machine.
    Remote,
    /// A local proxy forwards a remote request.
    Forwarded,
    /// Live sessions, which other machines could list and end without a key.
    NoKey,
}

impl fmt::Display for MetricsDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MetricsDenied::Off => "there are no metrics: the runner was started with --metrics off",
            MetricsDenied::Remote => {
                "only this machine may read the metrics and live sessions; --metrics key opens them to those with the \
                 key of --api-key-file, --metrics any the metrics to every machine"
            }
            MetricsDenied::Forwarded => {
                "a proxy asks for somebody else, and only this machine may read the metrics and live sessions; \
                 --metrics key opens them to those with the key of --api-key-file, --metrics any the metrics to \
                 everyone"
            }
            MetricsDenied::NoKey => {
                "with --metrics any or a proxy, live sessions are for those with a key: set --api-key-file"
            }
        })
    }
}

impl std::error::Error for MetricsDenied {}

/// Checks whether a client may read the metrics.
///
/// # Errors
/// Returns a [`MetricsDenied`] if it may not.
pub fn check_access(access: MetricsAccess, peer_is_loopback: bool, forwarded: bool) -> Result<(), MetricsDenied> {
    match access {
        MetricsAccess::Off => Err(MetricsDenied::Off),
        // `AccessPolicy::authorize` has checked the key.
        MetricsAccess::Any | MetricsAccess::Key => Ok(()),
        MetricsAccess::Local if !peer_is_loopback => Err(MetricsDenied::Remote),
        MetricsAccess::Local if forwarded => Err(MetricsDenied::Forwarded),
        MetricsAccess::Local => Ok(()),
    }
}

#[cfg(test)]
mod tests;
