//! The records of live calls and of the last ones.
//!
//! In: the start and the end of calls, and queries. Out: the JSON of `GET /calls` and
//! `GET /calls/ID`. Live calls are as many as sessions may be; the oldest ended ones are
//! dropped at the limits of their number and bytes.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use super::config::CallsConfig;
use super::outcome::CallOutcome;
use super::recorder::{CallBeginning, CallEnding, CallRecorder};
use crate::http::route::Query;
use crate::limits::CALLS_BYTES_MAX;
use crate::sorting;
use crate::text::beginning;
use crate::time::parse_iso;
use crate::transport::Transport;

/// Calls of one reply, if the query names no number.
const PAGE_DEFAULT: usize = 50;
/// Most calls of one reply.
const PAGE_MAX: usize = 200;

/// The calls of a runner.
#[derive(Debug)]
pub struct CallLog {
    kept: usize,
    has_texts: bool,
    live: BTreeMap<Arc<str>, CallRecorder>,
    /// The latest last, each with its id and bytes.
    ended: VecDeque<(Arc<str>, usize, CallRecorder)>,
    ended_bytes: usize,
}

/// Which calls a request asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CallQuery {
    transport: Option<Transport>,
    /// The name of one of several bots.
    bot: Option<String>,
    outcome: Option<CallOutcome>,
    /// A part of the caller's or the dialled number, or of the caller's name.
    number: Option<String>,
    /// Milliseconds since 1970.
    since: Option<u64>,
    until: Option<u64>,
    limit: Option<usize>,
    /// The id of the call at which the page before this one ended.
    after: Option<String>,
}

/// The fields of a query.
const FIELDS: [&str; 8] = [
    "transport",
    "bot",
    "outcome",
    "number",
    "since",
    "until",
    "limit",
    "after",
];
/// Bytes of an unknown field that its error repeats.
const FIELD_BYTES_MAX: usize = 64;

/// A query that cannot be answered.
#[derive(Debug, PartialEq, Eq)]
pub enum CallQueryError {
    /// The value of a field is invalid.
    Value {
        field: &'static str,
        expected: &'static str,
    },
    /// There is no such field.
    Unknown(String),
}

impl fmt::Display for CallQueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallQueryError::Value { field, expected } => write!(f, "`{field}` takes {expected}"),
            CallQueryError::Unknown(field) => {
                write!(
                    f,
                    "`{field}` is no field of this query; there are: {}",
                    FIELDS.join(", ")
                )
            }
        }
    }
}

impl std::error::Error for CallQueryError {}

impl CallQuery {
    /// Reads the percent-encoded text after the `?`. An empty field selects nothing.
    ///
    /// # Errors
    /// Returns a [`CallQueryError`] for an unknown field, and for one whose value is invalid.
    pub fn parse(query: &str) -> Result<Self, CallQueryError> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let query = Query::new(query);
        for (name, value) in pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))) {
            let Some(field) = FIELDS.into_iter().find(|field| *field == name) else {
                return Err(CallQueryError::Unknown(beginning(name, FIELD_BYTES_MAX).to_owned()));
            };
            if !value.is_empty() && query.value(field).is_none() {
                let expected = "text of UTF-8, percent-encoded";
                return Err(CallQueryError::Value { field, expected });
            }
        }
        fn read<T>(
            query: Query<'_>,
            field: &'static str,
            expected: &'static str,
            parse: impl FnOnce(&str) -> Option<T>,
        ) -> Result<Option<T>, CallQueryError> {
            match query.value(field) {
                Some(text) => parse(&text).map(Some).ok_or(CallQueryError::Value { field, expected }),
                None => Ok(None),
            }
        }
        const TIME: &str = "a time such as 2026-11-28T09:14:00Z";
        Ok(CallQuery {
            transport: read(query, "transport", "the name of a transport", Transport::of_session)?,
            bot: query.value("bot"),
            outcome: read(
                query,
                "outcome",
                "an outcome such as `left` or `bot_failed`",
                CallOutcome::of_label,
            )?,
            number: query.value("number"),
            since: read(query, "since", TIME, parse_iso)?,
            until: read(query, "until", TIME, parse_iso)?,
            limit: read(query, "limit", "a number from 1 to 200", |text| {
                text.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit))
            })?,
            after: query.value("after"),
        })
    }

    fn selects(&self, call: &CallRecorder) -> bool {
        self.transport
            .is_none_or(|transport| call.transport() == Some(transport))
            && self.bot.as_ref().is_none_or(|bot| call.bot() == Some(bot))
            && self.outcome.is_none_or(|outcome| call.outcome() == Some(outcome))
            && self.number.as_ref().is_none_or(|number| call.is_of(number))
            && self.since.is_none_or(|since| call.unix_ms() >= since)
            && self.until.is_none_or(|until| call.unix_ms() < until)
    }
}

impl CallLog {
    pub fn new(config: &CallsConfig) -> Self {
        CallLog {
            kept: config.kept,
            has_texts: config.has_texts,
            live: BTreeMap::new(),
            ended: VecDeque::new(),
            ended_bytes: 0,
        }
    }

    /// Begins the record of a call.
    pub fn begin(&mut self, beginning: CallBeginning<'_>) {
        let id = beginning.id.clone();
        self.live.insert(id, CallRecorder::new(beginning, self.has_texts));
    }

    /// Records a call that became no session. Returns the JSON of its record; `None` if the call
    /// has one, as one that its provider reports again.
    pub fn miss(&mut self, beginning: CallBeginning<'_>, end: CallEnding<'_>) -> Option<Value> {
        if self.find(&beginning.id).is_some() {
            return None;
        }
        let id = beginning.id.clone();
        self.begin(beginning);
        self.end(&id, end)
    }

    /// Returns the row of a live call.
    pub fn row(&self, id: &str, now: Instant) -> Option<Value> {
        self.live.get(id).map(|call| call.summary(now))
    }

    /// Returns the recorder of a live call.
    pub fn live(&mut self, id: &str) -> Option<&mut CallRecorder> {
        self.live.get_mut(id)
    }

    /// Ends a call, and drops records above the limits. Returns the JSON of the record; `None` if
    /// the call is not live.
    pub fn end(&mut self, id: &str, end: CallEnding<'_>) -> Option<Value> {
        let (id, mut call) = self.live.remove_entry(id)?;
        let now = end.now;
        call.handle_end(end);
        let record = call.describe(now);
        let bytes = call.bytes();
        self.ended_bytes += bytes;
        self.ended.push_back((id, bytes, call));
        while self.ended.len() > self.kept || self.ended_bytes > CALLS_BYTES_MAX {
            let Some((_, bytes, _)) = self.ended.pop_front() else {
                break;
            };
            self.ended_bytes -= bytes;
        }
        Some(record)
    }

    /// Returns the JSON of `GET /calls`: the latest call first, and the id for `after` if there are
    /// more.
    pub fn list(&self, query: &CallQuery, now: Instant) -> String {
        let mut calls: Vec<(&Arc<str>, &CallRecorder)> = self.live.iter().collect();
        calls.extend(self.ended.iter().map(|(id, _, call)| (id, call)));
        // Ids make the order total.
        sorting::sort_by_key(&mut calls, |(id, call)| {
            (std::cmp::Reverse(call.began()), (*id).clone())
        });
        let skipped = match &query.after {
            Some(after) => calls
                .iter()
                .position(|(id, _)| ***id == **after)
                .map_or(calls.len(), |at| at + 1),
            None => 0,
        };
        let limit = query.limit.unwrap_or(PAGE_DEFAULT);
        let mut selected = calls.into_iter().skip(skipped).filter(|(_, call)| query.selects(call));
        let page: Vec<(&Arc<str>, &CallRecorder)> = selected.by_ref().take(limit).collect();
        let next = selected.next().and(page.last()).map(|(id, _)| &***id);
        let calls: Vec<Value> = page.iter().map(|(_, call)| call.summary(now)).collect();
        json!({"calls": calls, "next": next}).to_string()
    }

    /// Returns the JSON of `GET /calls/ID`; `None` if no call has this id.
    pub fn describe(&self, id: &str, now: Instant) -> Option<String> {
        self.find(id).map(|call| call.describe(now).to_string())
    }

    /// Returns the name of the file with the sound of a call; `None` if there is none.
    pub fn recording(&self, id: &str) -> Option<String> {
        self.find(id)?.recording().map(str::to_owned)
    }

    fn find(&self, id: &str) -> Option<&CallRecorder> {
        let ended = || {
            self.ended
                .iter()
                .rev()
                .find(|(known, ..)| &**known == id)
                .map(|(_, _, call)| call)
        };
        self.live.get(id).or_else(ended)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bot_message;
    use crate::counts::{Counts, NetworkTimes};
    use crate::event::{LeaveReason, SessionEvent};
    use crate::telephony::named::TWILIO;

    struct Rig {
        log: CallLog,
        start: Instant,
    }

    fn rig(kept: usize) -> Rig {
        let config = CallsConfig {
            kept,
            ..CallsConfig::default()
        };
        Rig {
            log: CallLog::new(&config),
            start: Instant::now(),
        }
    }

    impl Rig {
        /// A call that begins at this second.
        fn begin(&mut self, id: &str, transport: Transport, from: &str, at_s: u64) {
            self.log.begin(CallBeginning {
                id: id.into(),
                transport: Some(transport),
                bot: (transport == Transport::WebRtc).then(|| "sales".into()),
                call_data: Some(&json!({"from": from, "to": "+431"})),
                trace: None,
                now: self.start + Duration::from_secs(at_s),
                unix_ms: 1_795_904_000_000 + at_s * 1000,
            });
        }

        fn ending(&self, outcome: CallOutcome, at_s: u64) -> CallEnding<'static> {
            CallEnding {
                outcome,
                bot_error: None,
                counts: Counts::default(),
                network: NetworkTimes::default(),
                now: self.start + Duration::from_secs(at_s),
            }
        }

        fn end(&mut self, id: &str, reason: LeaveReason, at_s: u64) {
            let end = self.ending(reason.into(), at_s);
            self.log.end(id, end);
        }

        fn list(&self, query: &str) -> (Vec<String>, Value) {
            let query = CallQuery::parse(query).expect("a valid query");
            let reply = self.log.list(&query, self.start + Duration::from_secs(100));
            let reply: Value = serde_json::from_str(&reply).expect("JSON");
            let ids = reply["calls"].as_array().expect("a list").iter();
            let ids = ids.map(|call| call["id"].as_str().expect("an id").to_owned());
            (ids.collect(), reply["next"].clone())
        }
    }

    #[test]
    fn the_latest_call_is_first_and_pages_follow_each_other() {
        let mut rig = rig(10);
        for (at, id) in ["a", "b", "c", "d"].into_iter().enumerate() {
            rig.begin(id, Transport::WebRtc, "", at as u64);
        }
        rig.end("b", LeaveReason::Left, 50);
        assert_eq!(
            rig.list(""),
            (["d", "c", "b", "a"].map(str::to_owned).to_vec(), Value::Null)
        );
        assert_eq!(rig.list("limit=3").1, json!("b"));
        assert_eq!(rig.list("limit=3&after=b"), (vec!["a".to_owned()], Value::Null));
        assert_eq!(rig.list("after=z").0, Vec::<String>::new());
    }

    #[test]
    fn calls_are_selected_by_transport_outcome_number_and_time() {
        let mut rig = rig(10);
        rig.begin("web", Transport::WebRtc, "", 0);
        rig.begin("phone", Transport::Telephony(TWILIO), "+4366012345", 10);
        rig.begin("other", Transport::Telephony(TWILIO), "+4369999999", 20);
        rig.begin("card", Transport::Local, "", 0);
        rig.end("web", LeaveReason::Vanished, 5);
        rig.end("phone", LeaveReason::BotFailed, 15);
        for (query, ids) in [
            ("transport=twilio", &["other", "phone"][..]),
            ("transport=local", &["card"]),
            ("bot=sales", &["web"]),
            ("bot=other", &[]),
            ("outcome=vanished", &["web"]),
            ("number=66012", &["phone"]),
            ("number=%2B43+660+12", &["phone"]),
            ("number=(660)%20123-45", &["phone"]),
            ("number=", &["other", "phone", "card", "web"]),
            ("number=%2B431&outcome=bot_failed", &["phone"]),
            ("since=2026-11-28T22:13:30Z", &["other", "phone"]),
            ("until=2026-11-28T22:13:30Z", &["card", "web"]),
        ] {
            assert_eq!(rig.list(query).0, ids, "{query}");
        }
        for (query, field) in [
            ("transport=fax", "transport"),
            ("outcome=good", "outcome"),
            ("since=yesterday", "since"),
            ("limit=0", "limit"),
            ("limit=201", "limit"),
        ] {
            let wrong = CallQuery::parse(query).expect_err(query);
            assert!(
                matches!(wrong, CallQueryError::Value { field: named, .. } if named == field),
                "{wrong}"
            );
        }
        let badly_encoded = CallQuery::parse("number=%zz").expect_err("no UTF-8");
        assert_eq!(
            badly_encoded.to_string(),
            "`number` takes text of UTF-8, percent-encoded"
        );
        for query in ["reason=left", "reason", "limit=3&Outcome=left"] {
            let wrong = CallQuery::parse(query).expect_err(query).to_string();
            assert!(
                wrong.contains("is no field of this query; there are: transport, bot,"),
                "{wrong}"
            );
        }
    }

    /// A call that became no session has one record, within the same limit.
    #[test]
    fn a_missed_call_is_recorded_once() {
        let mut rig = rig(2);
        for (nth, (id, is_new)) in [("a", true), ("a", false), ("b", true), ("c", true)]
            .into_iter()
            .enumerate()
        {
            let beginning = CallBeginning {
                id: id.into(),
                transport: Some(Transport::Telephony(TWILIO)),
                bot: None,
                call_data: Some(&json!({"from": "+431", "to": "+4366", "direction": "outbound"})),
                trace: None,
                now: rig.start + Duration::from_secs(nth as u64),
                unix_ms: 1_795_904_000_000,
            };
            let end = rig.ending(CallOutcome::Busy, nth as u64 + 20);
            let record = rig.log.miss(beginning, end);
            assert_eq!(record.is_some(), is_new, "{id}");
            if let Some(record) = record {
                assert_eq!(
                    (&record["state"], &record["outcome"]),
                    (&json!("ended"), &json!("busy"))
                );
                assert_eq!(
                    (&record["ended_by"], &record["duration_ms"]),
                    (&json!("caller"), &json!(20_000))
                );
            }
        }
        assert_eq!(rig.list("outcome=busy&number=66").0, ["c", "b"]);
    }

    #[test]
    fn ended_calls_are_dropped_at_their_number() {
        let mut rig = rig(2);
        for (at, id) in ["a", "b", "c"].into_iter().enumerate() {
            rig.begin(id, Transport::WebRtc, "", at as u64);
            rig.end(id, LeaveReason::Left, 50);
        }
        rig.begin("live", Transport::WebRtc, "", 60);
        assert_eq!(rig.list("").0, ["live", "c", "b"]);
        assert!(rig.log.describe("a", rig.start).is_none() && rig.log.describe("live", rig.start).is_some());
    }

    /// Records of many long conversations stay within the bytes of the limit.
    #[test]
    fn ended_calls_are_dropped_at_their_bytes() {
        let mut rig = rig(10_000);
        let text = "word ".repeat(200);
        let message = json!({"label": "rtvi-ai", "type": "user-transcription", "data": {"text": text, "final": true}});
        let (message, pause) = (
            message.to_string(),
            r#"{"label":"rtvi-ai","type":"bot-tts-text","data":{"text":"x"}}"#,
        );
        assert_ne!(bot_message::read(&message), bot_message::BotMessage::Other);
        for nth in 0..200 {
            let (id, now) = (format!("{nth:04}"), rig.start);
            rig.begin(&id, Transport::WebRtc, "", nth);
            let call = rig.log.live(&id).expect("a live call");
            call.handle_event(&SessionEvent::Joined, now);
            for _ in 0..30 {
                call.handle_bot_message(&message, now);
                call.handle_bot_message(pause, now);
            }
            rig.end(&id, LeaveReason::Left, nth + 1);
        }
        assert!(rig.log.ended_bytes <= CALLS_BYTES_MAX);
        let (ids, _) = rig.list("limit=200");
        assert!((40..200).contains(&ids.len()), "{}", ids.len());
        assert_eq!(ids[0], "0199");
    }

    #[test]
    fn a_call_that_did_not_begin_does_not_end() {
        let mut rig = rig(2);
        rig.end("a", LeaveReason::Left, 1);
        assert_eq!(rig.list(""), (Vec::new(), Value::Null));
    }
}
