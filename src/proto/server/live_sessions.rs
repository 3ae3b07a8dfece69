//! The live sessions of a runner, as its operator sees them.
//!
//! In: the start, the counters and the end of each session, and a handle `H` that ends it. Out: the
//! JSON of `GET /sessions`, and the handle of one session. Every entry belongs to a session that
//! holds a permit, so the table is as long as the caps on sessions allow. It contains ids,
//! transports and counters, and neither addresses nor what was said. Of the last bots that failed
//! to start it has the last line of their output too.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::counts::{Count, Counts, QueueLevels};
use crate::sorting;
use crate::transport::Transport;

/// The failures that are kept.
const FAILURES_MAX: usize = 16;

/// The sessions that have a bot, by id.
#[derive(Debug)]
pub struct LiveSessions<H> {
    live: BTreeMap<Arc<str>, LiveSession<H>>,
    /// The ids of sessions whose bot failed to start, the latest last, each with its last line.
    failures: VecDeque<(Arc<str>, String)>,
}

#[derive(Debug)]
struct LiveSession<H> {
    /// `None` if the bot has no transport.
    transport: Option<Transport>,
    /// Which of several bots it is.
    bot: Option<Arc<str>>,
    began: Instant,
    progress: SessionProgress,
    handle: H,
}

/// What a session reports of itself about once a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionProgress {
    /// Whether the caller has connected.
    pub has_caller: bool,
    pub counts: Counts,
    pub waiting: QueueLevels,
}

impl<H> Default for LiveSessions<H> {
    fn default() -> Self {
        LiveSessions {
            live: BTreeMap::new(),
            failures: VecDeque::new(),
        }
    }
}

impl<H: Clone> LiveSessions<H> {
    /// Adds a session. `bot` is the name of one of several bots.
    pub fn begin(
        &mut self,
        id: Arc<str>,
        transport: Option<Transport>,
        bot: Option<Arc<str>>,
        handle: H,
        now: Instant,
    ) {
        let session = LiveSession {
            transport,
            bot,
            began: now,
            progress: SessionProgress::default(),
            handle,
        };
        self.live.insert(id, session);
    }

    /// Replaces the report of a session.
    pub fn update(&mut self, id: &str, progress: SessionProgress) {
        if let Some(session) = self.live.get_mut(id) {
            session.progress = progress;
        }
    }

    /// Removes a session.
    pub fn end(&mut self, id: &str) {
        self.live.remove(id);
    }

    /// Notes the last line of a bot that failed to start.
    pub fn note_failure(&mut self, id: Arc<str>, line: &str) {
        if self.failures.len() == FAILURES_MAX {
            self.failures.pop_front();
        }
        self.failures.push_back((id, line.to_owned()));
    }

    /// Returns the handle of a session; `None` if no live session has this id.
    pub fn handle(&self, id: &str) -> Option<H> {
        self.live.get(id).map(|session| session.handle.clone())
    }

    /// Returns the JSON of `GET /sessions`, the oldest session first.
    pub fn reply(&self, now: Instant) -> String {
        let mut sessions: Vec<(&Arc<str>, &LiveSession<H>)> = self.live.iter().collect();
        sorting::sort_by_key(&mut sessions, |(_, session)| session.began);
        let sessions: Vec<Value> = sessions
            .into_iter()
            .map(|(id, session)| session.describe(id, now))
            .collect();
        let failed = self
            .failures
            .iter()
            .map(|(id, line)| json!({"id": **id, "last_line": line}));
        json!({"sessions": sessions, "failed": failed.collect::<Vec<_>>()}).to_string()
    }
}

impl<H> LiveSession<H> {
    fn describe(&self, id: &str, now: Instant) -> Value {
        let SessionProgress { counts, waiting, .. } = self.progress;
        let count = |what| counts.get(what);
        let mut session = json!({
            "id": id,
            "transport": self.transport.map(Transport::name),
            "age_s": now.saturating_duration_since(self.began).as_secs(),
            "state": self.state(),
            "loss_percent": self.loss_percent(),
            "packets_in": count(Count::PacketsIn),
            "packets_out": count(Count::PacketsOut),
            "messages_in": count(Count::MessagesIn),
            "messages_out": count(Count::MessagesOut),
            "speech_queued_ms": u64::try_from(waiting.speech.as_millis()).unwrap_or(u64::MAX),
        });
        if let Some(bot) = &self.bot {
            session["bot"] = json!(**bot);
        }
        session
    }

    /// Returns what the bot does. A bot with a connection of its own reports nothing.
    fn state(&self) -> &'static str {
        match self.progress {
            _ if !self.transport.is_some_and(Transport::has_media) => "running",
            SessionProgress { has_caller: false, .. } => "connecting",
            SessionProgress { waiting, .. } if waiting.speech > Duration::ZERO => "speaking",
            _ => "listening",
        }
    }

    /// Returns the share of the caller's audio that was lost; `None` without RTP or audio.
    fn loss_percent(&self) -> Option<f64> {
        let counts = self.progress.counts;
        let (lost, frames) = (counts.get(Count::PacketsLost), counts.get(Count::FramesIn));
        let has_rtp = self.transport.is_some_and(Transport::has_rtp);
        let tenths = (u128::from(lost) * 1000).checked_div(frames.max(lost).into())?;
        has_rtp.then_some(tenths as f64 / 10.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(sessions: &LiveSessions<u8>, now: Instant) -> Value {
        serde_json::from_str(&sessions.reply(now)).expect("JSON")
    }

    fn progress(counts: &[(Count, u64)], speech_ms: u64) -> SessionProgress {
        let mut progress = SessionProgress {
            has_caller: true,
            waiting: QueueLevels {
                frames: 0,
                speech: Duration::from_millis(speech_ms),
            },
            ..SessionProgress::default()
        };
        for (what, many) in counts {
            progress.counts.add(*what, *many);
        }
        progress
    }

    #[test]
    fn the_last_lines_of_the_latest_failures_are_listed() {
        let now = Instant::now();
        let mut sessions = LiveSessions::<u8>::default();
        for nth in 0..FAILURES_MAX + 3 {
            sessions.note_failure(nth.to_string().into(), "ImportError");
        }
        let listed = listed(&sessions, now);
        let failed = listed["failed"].as_array().expect("a list");
        assert_eq!(failed.len(), FAILURES_MAX);
        assert_eq!(failed[0], json!({"id": "3", "last_line": "ImportError"}));
    }

    #[test]
    fn sessions_are_listed_from_their_start_to_their_end() {
        let start = Instant::now();
        let later = |s| start + Duration::from_secs(s);
        let mut sessions = LiveSessions::default();
        assert_eq!(listed(&sessions, start), json!({"sessions": [], "failed": []}));
        sessions.begin("b".into(), Some(Transport::WebRtc), None, 1, start);
        sessions.begin("a".into(), Some(Transport::WebSocket), None, 2, later(5));
        let ids = |value: &Value| -> Vec<String> {
            let all = value["sessions"].as_array().expect("a list").iter();
            all.map(|session| session["id"].to_string()).collect()
        };
        assert_eq!(
            ids(&listed(&sessions, later(5))),
            [r#""b""#, r#""a""#],
            "the oldest first"
        );
        assert_eq!((sessions.handle("a"), sessions.handle("c")), (Some(2), None));
        sessions.end("b");
        sessions.update("b", SessionProgress::default());
        assert_eq!(ids(&listed(&sessions, later(5))), [r#""a""#]);
        assert_eq!(sessions.handle("b"), None);
    }

    #[test]
    fn a_session_tells_its_age_state_and_loss() {
        let start = Instant::now();
        let mut sessions = LiveSessions::default();
        sessions.begin("a".into(), Some(Transport::WebRtc), None, 1, start);
        let first =
            |sessions: &LiveSessions<u8>, s| listed(sessions, start + Duration::from_secs(s))["sessions"][0].clone();
        let new = first(&sessions, 0);
        assert_eq!(
            (&new["state"], &new["loss_percent"]),
            (&json!("connecting"), &Value::Null)
        );
        sessions.update("a", progress(&[(Count::FramesIn, 1000), (Count::PacketsLost, 25)], 0));
        let listening = first(&sessions, 61);
        assert_eq!(
            listening,
            json!({
                "id": "a", "transport": "webrtc", "age_s": 61, "state": "listening", "loss_percent": 2.5,
                "packets_in": 0, "packets_out": 0, "messages_in": 0, "messages_out": 0, "speech_queued_ms": 0,
            })
        );
        sessions.update("a", progress(&[], 480));
        let speaking = first(&sessions, 61);
        assert_eq!(
            (&speaking["state"], &speaking["speech_queued_ms"]),
            (&json!("speaking"), &json!(480))
        );
    }

    /// The counters follow a peer's numbers, and any of them has a share.
    #[test]
    fn the_largest_counters_are_listed() {
        let start = Instant::now();
        let mut sessions = LiveSessions::default();
        sessions.begin("a".into(), Some(Transport::WebRtc), None, 1, start);
        let loss = |sessions: &LiveSessions<u8>| listed(sessions, start)["sessions"][0]["loss_percent"].clone();
        for (frames, percent) in [(0, 100.0), (u64::MAX, 100.0)] {
            sessions.update(
                "a",
                progress(&[(Count::FramesIn, frames), (Count::PacketsLost, u64::MAX)], 0),
            );
            assert_eq!(loss(&sessions), json!(percent));
        }
        sessions.update(
            "a",
            progress(&[(Count::FramesIn, u64::MAX), (Count::PacketsLost, 1)], 0),
        );
        assert_eq!(loss(&sessions), json!(0.0));
    }

    /// Nothing is lost on a socket, and a bot with a connection of its own reports nothing.
    #[test]
    fn transports_without_rtp_have_no_loss() {
        let start = Instant::now();
        for (transport, state) in [
            (Some(Transport::WebSocket), "listening"),
            (Some(Transport::Videoroom), "running"),
            (None, "running"),
        ] {
            let mut sessions = LiveSessions::default();
            sessions.begin("a".into(), transport, None, 1, start);
            sessions.update("a", progress(&[(Count::FramesIn, 10), (Count::PacketsLost, 1)], 0));
            let session = &listed(&sessions, start)["sessions"][0];
            assert_eq!(
                (&session["state"], &session["loss_percent"]),
                (&json!(state), &Value::Null)
            );
        }
    }
}
