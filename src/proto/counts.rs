//! The counters of one session, and the names under which their sums are exported.
//!
//! In: one addition per occurrence. Out: the table of names that `metrics` renders.

use std::fmt;
use std::time::Duration;

/// A number of sessions as text: `1 session`, `2 sessions`.
#[derive(Clone, Copy, Debug)]
pub struct SessionCount(pub usize);

impl fmt::Display for SessionCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.0 == 1 { "session" } else { "sessions" };
        write!(f, "{} {noun}", self.0)
    }
}

/// A counter of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    PacketsIn,
    PacketsOut,
    BytesIn,
    BytesOut,
    FramesIn,
    FramesOut,
    FramesDropped,
    FramesSkipped,
    PacketsLost,
    PacketsLate,
    PacketsUndecodable,
    FramesRecovered,
    FramesConcealed,
    MessagesIn,
    MessagesOut,
    MessagesDropped,
    Interruptions,
}

pub const COUNTS: usize = COUNTERS.len();

/// The sessions that have a counter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CounterScope {
    All,
    /// Sessions with RTP, whose packets can be lost.
    Rtp,
}

/// Name and help of each [`Count`], in order.
pub const COUNTERS: [(Count, &str, &str, CounterScope); 17] = [
    (
        Count::PacketsIn,
        "edge_runner_packets_received_total",
        "Datagrams of WebRTC peers, messages on sockets.",
        CounterScope::All,
    ),
    (
        Count::PacketsOut,
        "edge_runner_packets_sent_total",
        "Datagrams to WebRTC peers, messages on sockets.",
        CounterScope::All,
    ),
    (
        Count::BytesIn,
        "edge_runner_received_bytes_total",
        "Bytes in the packets received.",
        CounterScope::All,
    ),
    (
        Count::BytesOut,
        "edge_runner_sent_bytes_total",
        "Bytes in the packets sent.",
        CounterScope::All,
    ),
    (
        Count::FramesIn,
        "edge_runner_audio_frames_received_total",
        "Audio frames of callers that were passed to bots, including concealed ones.",
        CounterScope::All,
    ),
    (
        Count::FramesOut,
        "edge_runner_audio_frames_sent_total",
        "Audio frames that left for callers, silence included.",
        CounterScope::All,
    ),
    (
        Count::FramesDropped,
        "edge_runner_audio_frames_dropped_total",
        "Audio frames of callers that a slow bot did not read in time.",
        CounterScope::All,
    ),
    (
        Count::FramesSkipped,
        "edge_runner_audio_frames_skipped_total",
        "Audio frames that did not leave because the runner woke up too late.",
        CounterScope::Rtp,
    ),
    (
        Count::PacketsLost,
        "edge_runner_audio_packets_lost_total",
        "Audio packets of callers that were counted as lost.",
        CounterScope::Rtp,
    ),
    (
        Count::PacketsLate,
        "edge_runner_audio_packets_late_total",
        "Audio packets of callers that came after they were given up.",
        CounterScope::Rtp,
    ),
    (
        Count::PacketsUndecodable,
        "edge_runner_audio_packets_unreadable_total",
        "Audio packets of callers that could not be decoded.",
        CounterScope::Rtp,
    ),
    (
        Count::FramesRecovered,
        "edge_runner_audio_frames_recovered_total",
        "Lost audio frames that were read from the packet behind them.",
        CounterScope::Rtp,
    ),
    (
        Count::FramesConcealed,
        "edge_runner_audio_frames_concealed_total",
        "Audio frames that were made up in place of lost ones.",
        CounterScope::Rtp,
    ),
    (
        Count::MessagesIn,
        "edge_runner_messages_received_total",
        "Text messages of callers that were handed to bots.",
        CounterScope::All,
    ),
    (
        Count::MessagesOut,
        "edge_runner_messages_sent_total",
        "Text messages of bots for callers.",
        CounterScope::All,
    ),
    (
        Count::MessagesDropped,
        "edge_runner_messages_dropped_total",
        "Text messages of bots that callers did not take, or could not.",
        CounterScope::All,
    ),
    (
        Count::Interruptions,
        "edge_runner_interruptions_total",
        "Times that a bot took back what it had not said yet.",
        CounterScope::All,
    ),
];

/// The counters of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts(pub [u64; COUNTS]);

impl Counts {
    pub fn add(&mut self, what: Count, more: u64) {
        self.0[what as usize] += more;
    }

    /// Sets a total that another component counts.
    pub fn set(&mut self, what: Count, total: u64) {
        self.0[what as usize] = total;
    }

    pub fn get(&self, what: Count) -> u64 {
        self.0[what as usize]
    }
}

/// What a session knows of its network beside the counters. Each is the latest value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkTimes {
    /// Interarrival jitter of the caller's audio (RFC 3550 section 6.4.1).
    pub jitter: Option<Duration>,
    /// To the caller and back; in a room, to its server.
    pub round_trip: Option<Duration>,
    /// From sending the speech that the bot began last to playing it, as a telephone's provider
    /// reports by a mark.
    pub playout_delay: Option<Duration>,
}

impl NetworkTimes {
    /// Takes newer values. What is not known any more stays as it was, except for the delay, which
    /// is that of one answer.
    pub fn update(&mut self, newer: NetworkTimes) {
        self.jitter = newer.jitter.or(self.jitter);
        self.round_trip = newer.round_trip.or(self.round_trip);
        self.playout_delay = newer.playout_delay;
    }
}

/// The current levels of the queues between a session and its bot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLevels {
    /// Audio frames for the bot.
    pub frames: usize,
    /// Speech for the caller.
    pub speech: Duration,
}
