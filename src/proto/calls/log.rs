//! The records of live calls and of the last ones.
//!
//! In: the start and the end of calls, and queries. Out: the JSON of `GET /calls` and
//! `GET /calls/ID`. Live calls are as many as sessions may be; the oldest ended ones are
//! dropped at the limits of their number and bytes. Refused calls have limits of their own: a
//! caller who may not call can do so often, and displaces no records of others.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::config::CallsConfig;
use super::metrics::RefusedCallCounts;
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

/// One record of a refused call is kept for so many others.
const OTHERS_PER_REFUSED: usize = 4;
/// Bytes of the records of refused calls.
const REFUSED_BYTES_MAX: usize = CALLS_BYTES_MAX / 16;
/// Records of refused calls of one minute; further ones are counted alone. Anyone can ask for a
/// call, and each record goes to the disk and to the receiver of events.
const REFUSED_PER_MINUTE_MAX: u32 = 60;

/// The calls of a runner.
#[derive(Debug)]
pub struct CallLog {
    has_texts: bool,
    live: BTreeMap<Arc<str>, CallRecorder>,
    ended: EndedCalls,
    refused: EndedCalls,
    /// The minute that has begun with a refused call, and how many it has.
    refused_minute: Option<(Instant, u32)>,
    refused_counts: RefusedCallCounts,
}

/// The last calls that ended, within limits.
#[derive(Debug)]
struct EndedCalls {
    calls_max: usize,
    bytes_max: usize,
    /// The latest last, each with its id and bytes.
    calls: VecDeque<(Arc<str>, usize, CallRecorder)>,
    bytes: usize,
}

impl EndedCalls {
    fn new(calls_max: usize, bytes_max: usize) -> Self {
        EndedCalls {
            calls_max,
            bytes_max,
            calls: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Adds the latest call, and drops the oldest ones above the limits.
    fn push(&mut self, id: Arc<str>, call: CallRecorder) {
        let bytes = call.bytes();
        self.bytes += bytes;
        self.calls.push_back((id, bytes, call));
        while self.calls.len() > self.calls_max || self.bytes > self.bytes_max {
            let Some((_, bytes, _)) = self.calls.pop_front() else {
                break;
            };
            self.bytes -= bytes;
        }
    }

    /// Returns the calls, the latest first.
    fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &CallRecorder)> {
        self.calls.iter().rev().map(|(id, _, call)| (id, call))
    }
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
            has_texts: config.has_texts,
            live: BTreeMap::new(),
            ended: EndedCalls::new(config.kept, CALLS_BYTES_MAX - REFUSED_BYTES_MAX),
            refused: EndedCalls::new(config.kept.div_ceil(OTHERS_PER_REFUSED), REFUSED_BYTES_MAX),
            refused_minute: None,
            refused_counts: RefusedCallCounts::default(),
        }
    }

    /// Begins the record of a call.
    pub fn begin(&mut self, beginning: CallBeginning<'_>) {
        let id = beginning.id.clone();
        self.live.insert(id, CallRecorder::new(beginning, self.has_texts));
    }

    /// Records a call that became no session. Returns the JSON of its record; `None` if the call
    /// has one, as one that its provider reports again, or is one of too many refused ones.
    pub fn miss(&mut self, beginning: CallBeginning<'_>, end: CallEnding<'_>) -> Option<Value> {
        if self.find(&beginning.id).is_some() {
            return None;
        }
        self.refused_counts.add(end.outcome);
        if end.outcome.is_refusal() && !self.takes_refused(end.now) {
            return None;
        }
        let id = beginning.id.clone();
        self.begin(beginning);
        self.end(&id, end)
    }

    /// Counts a refused call; returns whether it gets a record.
    fn takes_refused(&mut self, now: Instant) -> bool {
        const MINUTE: Duration = Duration::from_secs(60);
        let minute = self
            .refused_minute
            .filter(|(began, _)| now.saturating_duration_since(*began) < MINUTE);
        let (began, refused) = minute.unwrap_or((now, 0));
        self.refused_minute = Some((began, refused.saturating_add(1)));
        refused < REFUSED_PER_MINUTE_MAX
    }

    /// Returns how many calls were turned away since the start.
    pub fn refused_counts(&self) -> RefusedCallCounts {
        self.refused_counts
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
        let (now, outcome) = (end.now, end.outcome);
        call.handle_end(end);
        let record = call.describe(now);
        let ended = match outcome.is_refusal() {
            true => &mut self.refused,
            false => &mut self.ended,
        };
        ended.push(id, call);
        Some(record)
    }

    /// Returns the JSON of `GET /calls`: the latest call first, and the id for `after` if there are
    /// more.
    pub fn list(&self, query: &CallQuery, now: Instant) -> String {
        let mut calls: Vec<(&Arc<str>, &CallRecorder)> = self.live.iter().collect();
        calls.extend(self.ended.iter().chain(self.refused.iter()));
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
            let mut ended = self.ended.iter().chain(self.refused.iter());
            ended.find(|(known, _)| &***known == id).map(|(_, call)| call)
        };
        self.live.get(id).or_else(ended)
    }
}

#[cfg(test)]
mod tests;
