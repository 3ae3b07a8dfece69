//! What is remembered of calls that the runner dials: how many, their retries, and the calls that
//! have yet to be answered.
//!
//! In: requests with their `Idempotency-Key`, outcomes, webhooks, ends, and `now`. Out: whether to
//! dial, the call that a webhook or a media socket belongs to, and each call that became no
//! session, once, with what its provider has to end. A request with a key that was used is never
//! dialled again within an hour: it gets the same reply. The number of calls per minute bounds all
//! that is kept.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::metrics::DialCounts;
use super::{DialOutcome, OutboundRequest};
use crate::SessionId;
use crate::answered_by::AnsweredBy;
use crate::calls::CallOutcome;
use crate::event::LeaveReason;
use crate::limits::{DIAL_KEY_KEPT, DIALS_PER_MINUTE_MAX, HANG_UP_ID_BYTES_MAX};
use crate::telephony::proof::CallKey;

/// Bytes of an `Idempotency-Key`.
const KEY_BYTES_MAX: usize = 255;
const MINUTE: Duration = Duration::from_secs(60);
/// Time from the request until the call is answered: the longest time that a provider lets a
/// telephone ring by itself is two minutes. Who answered is reported within half a minute.
pub const ANSWERED_WITHIN: Duration = Duration::from_secs(180);

/// The reply to a request, which its retries get as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialReply {
    pub status: u16,
    /// JSON.
    pub body: String,
    /// For the log, if the call was not placed.
    pub warning: Option<String>,
}

impl DialReply {
    fn of(provider: &str, id: &str, outcome: &DialOutcome, has_key: bool) -> Self {
        let again = match has_key {
            true => "; use another Idempotency-Key to dial again",
            false => "",
        };
        let failed = |status, why: String| DialReply {
            status,
            body: json!({"detail": why, "id": id}).to_string(),
            warning: Some(why),
        };
        match outcome {
            DialOutcome::Placed(call_id) => DialReply {
                status: 201,
                body: json!({"id": id, "provider": provider, "call_id": call_id}).to_string(),
                warning: None,
            },
            DialOutcome::Refused(why) => failed(502, format!("{provider} does not dial: {why}{again}")),
            DialOutcome::Unknown(why) => failed(
                504,
                format!("it is not known whether {provider} dials: {why}; look there{again}"),
            ),
        }
    }
}

/// What to do with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialAdmission {
    Dial,
    /// Nothing: the request was made before, with this reply.
    Repeated(DialReply),
}

/// Why a request is not dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialRefusal {
    /// The key is empty, too long, or not printable ASCII.
    Key,
    /// The first request with this key waits for its provider.
    Running,
    /// The key was used for another request.
    OtherRequest,
    /// Too many calls in a minute; the time after which one is possible.
    TooMany(Duration),
}

impl fmt::Display for DialRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DialRefusal::Key => write!(
                f,
                "Idempotency-Key has 1 to {KEY_BYTES_MAX} printable characters of ASCII"
            ),
            DialRefusal::Running => {
                f.write_str("the first request with this Idempotency-Key waits for its provider; try again later")
            }
            DialRefusal::OtherRequest => f.write_str("this Idempotency-Key was used for another request"),
            DialRefusal::TooMany(_) => write!(f, "at most {DIALS_PER_MINUTE_MAX} calls are dialled in a minute"),
        }
    }
}

impl std::error::Error for DialRefusal {}

/// What the bot of a dialled call is told.
#[derive(Clone, PartialEq, Eq)]
pub struct DialledCall {
    pub to: String,
    pub from: String,
    pub body: Option<Map<String, Value>>,
    /// Who answered, if that is known already.
    pub answered_by: Option<AnsweredBy>,
}

impl DialledCall {
    /// Completes the data of the call for its bot.
    pub fn complete(self, call_data: &mut Value) {
        call_data["from"] = self.from.into();
        call_data["to"] = self.to.into();
        call_data["direction"] = "outbound".into();
        if let Some(body) = self.body {
            call_data["body"] = body.into();
        }
        if let Some(by) = self.answered_by {
            call_data["answered_by"] = by.label().into();
        }
    }
}

/// A request that had a key.
struct KeyedRequest {
    key: [u8; 32],
    request: [u8; 32],
    id: SessionId,
    at: Instant,
    /// `None` while the provider is asked.
    reply: Option<DialReply>,
}

/// A call that its provider has to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OngoingCall {
    /// The provider's id; not empty.
    pub call_id: String,
    /// Whether it was answered; else it rings.
    pub is_answered: bool,
}

/// What the webhook of a call means that the runner dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialledWebhook {
    /// The call was not dialled here.
    Unknown,
    Answered,
    /// The call was ended here while it rang.
    Ended,
}

/// A call that was to be dialled and became no session.
pub struct UnansweredCall {
    pub id: SessionId,
    pub call: DialledCall,
    /// The bot that the request named.
    pub bot: Option<String>,
    pub outcome: CallOutcome,
    /// What the provider answered in place of dialling.
    pub provider_error: Option<String>,
    /// The time from the request to the end.
    pub after: Duration,
    /// The call at its provider, if it was ended here.
    pub ongoing: Option<OngoingCall>,
}

/// A call that was dialled.
struct OpenCall {
    id: SessionId,
    call: DialledCall,
    bot: Option<String>,
    at: Instant,
    /// Why it is not known whether the provider dials.
    error: Option<String>,
    /// The provider's id, as far as it is known; else empty.
    call_id: String,
    /// Once its webhook came.
    key: Option<CallKey>,
    media: MediaState,
}

/// What became of the audio of a dialled call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MediaState {
    Awaited,
    /// It has a media socket.
    Claimed,
    /// The bot has its data.
    Begun,
    /// The call was ended before it had any.
    Ended,
}

impl OpenCall {
    fn is_recent(&self, now: Instant) -> bool {
        now < self.at + ANSWERED_WITHIN
    }

    /// Returns the call at its provider, once that has named it.
    fn ongoing(&self) -> Option<OngoingCall> {
        (!self.call_id.is_empty()).then(|| OngoingCall {
            call_id: self.call_id.clone(),
            is_answered: self.key.is_some(),
        })
    }
}

/// The calls of one runner.
pub struct DialLedger {
    provider: &'static str,
    dialled: VecDeque<Instant>,
    keyed: VecDeque<KeyedRequest>,
    open: VecDeque<OpenCall>,
    counts: DialCounts,
}

impl DialLedger {
    /// Creates an empty ledger; `provider` is its name in replies.
    pub fn new(provider: &'static str) -> Self {
        DialLedger {
            provider,
            dialled: VecDeque::new(),
            keyed: VecDeque::new(),
            open: VecDeque::new(),
            counts: DialCounts::default(),
        }
    }

    /// Takes a request, whose session will be `id`. `json` is its body.
    ///
    /// # Errors
    /// [`DialRefusal`].
    pub fn admit(
        &mut self,
        key: Option<&[u8]>,
        json: &[u8],
        request: OutboundRequest,
        id: SessionId,
        now: Instant,
    ) -> Result<DialAdmission, DialRefusal> {
        let is_plain = |key: &[u8]| {
            (1..=KEY_BYTES_MAX).contains(&key.len()) && key.iter().all(|byte| (b' '..=b'~').contains(byte))
        };
        if !key.is_none_or(is_plain) {
            return Err(DialRefusal::Key);
        }
        self.expire(now);
        let hash = |text: &[u8]| -> [u8; 32] { Sha256::digest(text).into() };
        let keyed = key.map(|key| (hash(key), hash(json)));
        if let Some((key, request)) = keyed
            && let Some(known) = self.keyed.iter().find(|known| known.key == key)
        {
            return match &known.reply {
                _ if known.request != request => Err(DialRefusal::OtherRequest),
                None => Err(DialRefusal::Running),
                Some(reply) => {
                    self.counts.repeated += 1;
                    Ok(DialAdmission::Repeated(reply.clone()))
                }
            };
        }
        if self.dialled.len() >= DIALS_PER_MINUTE_MAX {
            self.counts.limited += 1;
            let oldest = self.dialled.front().map_or(now, |at| *at + MINUTE);
            return Err(DialRefusal::TooMany(oldest.saturating_duration_since(now)));
        }
        self.dialled.push_back(now);
        if let Some((key, request)) = keyed {
            self.keyed.push_back(KeyedRequest {
                key,
                request,
                id: id.clone(),
                at: now,
                reply: None,
            });
        }
        self.open.push_back(OpenCall {
            id,
            bot: request.bot,
            call: DialledCall {
                to: request.to,
                from: request.from,
                body: request.body,
                answered_by: None,
            },
            at: now,
            error: None,
            call_id: String::new(),
            key: None,
            media: MediaState::Awaited,
        });
        Ok(DialAdmission::Dial)
    }

    /// Takes the outcome of a request. Returns the reply, and the call if the provider refuses it.
    pub fn finish(&mut self, id: &str, outcome: &DialOutcome, now: Instant) -> (DialReply, Option<UnansweredCall>) {
        let known = self.keyed.iter_mut().find(|known| *known.id == *id);
        let reply = DialReply::of(self.provider, id, outcome, known.is_some());
        if let Some(known) = known {
            known.reply = Some(reply.clone());
        }
        let mut refused = None;
        match outcome {
            DialOutcome::Placed(call_id) => {
                self.counts.placed += 1;
                // The webhook may have come before, with the id.
                if let Some(open) = self.find(id).filter(|open| open.call_id.is_empty()) {
                    open.call_id.clone_from(call_id);
                }
            }
            DialOutcome::Refused(why) => {
                self.counts.refused += 1;
                refused = self.remove(id, |open| open.media != MediaState::Ended).map(|open| {
                    let why = Some(why.clone());
                    self.miss(open, CallOutcome::NotDialled, why, now)
                });
            }
            DialOutcome::Unknown(why) => {
                self.counts.unknown += 1;
                if let Some(open) = self.find(id) {
                    open.error = Some(why.clone());
                }
            }
        }
        (reply, refused)
    }

    /// Returns the call that was ended while its provider was asked to dial, which it did: to be
    /// called after [`DialLedger::finish`].
    pub fn ended_early(&mut self, id: &str) -> Option<OngoingCall> {
        let open = self.find(id).filter(|open| open.media == MediaState::Ended)?;
        open.ongoing()
    }

    /// Notes the provider's call of a webhook, and its id there.
    pub fn handle_webhook(&mut self, id: &str, (call, call_id): (CallKey, &str), now: Instant) -> DialledWebhook {
        let Some(open) = self.find(id).filter(|open| open.is_recent(now)) else {
            return DialledWebhook::Unknown;
        };
        if open.media == MediaState::Ended {
            return DialledWebhook::Ended;
        }
        open.error = None;
        if (1..=HANG_UP_ID_BYTES_MAX).contains(&call_id.len()) {
            call_id.clone_into(&mut open.call_id);
        }
        let is_new = open.key.replace(call).is_none();
        self.counts.answered += u64::from(is_new);
        DialledWebhook::Answered
    }

    /// Notes who answered. Returns whether the call is known.
    pub fn handle_report(&mut self, id: &str, by: AnsweredBy, now: Instant) -> bool {
        let open = self.find(id).filter(|open| open.is_recent(now));
        open.map(|open| open.call.answered_by = Some(by)).is_some()
    }

    /// Takes the provider's report of the end of a call. Returns the call if it became no session.
    pub fn handle_end(&mut self, id: &str, outcome: CallOutcome, now: Instant) -> Option<UnansweredCall> {
        let open = self.remove(id, |open| open.media == MediaState::Awaited)?;
        Some(self.miss(open, outcome, None, now))
    }

    /// Takes the end of a media socket. Returns its call if that became no session.
    pub fn handle_media_end(&mut self, id: &str, now: Instant) -> Option<UnansweredCall> {
        let open = self.remove(id, |open| open.media == MediaState::Claimed)?;
        Some(self.miss(open, LeaveReason::NeverConnected.into(), None, now))
    }

    /// Forgets the calls whose time is over: to be called [`ANSWERED_WITHIN`] after each request.
    /// Returns those that became no session.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<UnansweredCall> {
        let is_done = |open: &OpenCall| matches!(open.media, MediaState::Begun | MediaState::Ended);
        self.open.retain(|open| !is_done(open) || open.is_recent(now));
        let is_over = |open: &OpenCall| open.media == MediaState::Awaited && !open.is_recent(now);
        self.take_unanswered(is_over, now, |open| match open.key {
            Some(_) => LeaveReason::NeverConnected.into(),
            None => CallOutcome::Unreported,
        })
    }

    /// Takes the end of a call by the operator. Returns the call if it has no media socket.
    pub fn handle_operator_end(&mut self, id: &str, now: Instant) -> Option<UnansweredCall> {
        let is_it = |open: &OpenCall| *open.id == *id && open.media == MediaState::Awaited;
        let at = self.open.iter().position(is_it)?;
        Some(self.end(at, CallOutcome::Canceled, now))
    }

    /// Takes the end of the runner, which answers no webhook any more. Returns the calls that have
    /// no media socket.
    pub fn handle_stop(&mut self, now: Instant) -> Vec<UnansweredCall> {
        let open = self.open.iter().enumerate();
        let awaited = open.filter_map(|(at, open)| (open.media == MediaState::Awaited).then_some(at));
        let awaited: Vec<usize> = awaited.collect();
        let ended = awaited.into_iter();
        ended
            .map(|at| self.end(at, LeaveReason::Shutdown.into(), now))
            .collect()
    }

    /// Returns the session of a media socket, once, and the bot that the request named: `key` is
    /// the provider's call.
    pub fn claim(&mut self, key: &str) -> Option<(SessionId, Option<String>)> {
        let is_it = |open: &&mut OpenCall| open.key.is_some_and(|own| own.to_string() == key);
        let open = self.open.iter_mut().find(is_it)?;
        (open.media == MediaState::Awaited).then(|| {
            open.media = MediaState::Claimed;
            (open.id.clone(), open.bot.clone())
        })
    }

    /// Returns what the bot is told at its start.
    pub fn begin(&mut self, id: &str) -> Option<DialledCall> {
        let open = self.find(id)?;
        open.media = MediaState::Begun;
        let call = open.call.clone();
        open.call.body = None;
        open.call.answered_by = None;
        Some(call)
    }

    /// Takes what was reported since the start of the bot.
    pub fn take_answered_by(&mut self, id: &str) -> Option<AnsweredBy> {
        let open = self.find(id).filter(|open| open.media == MediaState::Begun)?;
        open.call.answered_by.take()
    }

    pub fn counts(&self) -> DialCounts {
        self.counts
    }

    fn find(&mut self, id: &str) -> Option<&mut OpenCall> {
        self.open.iter_mut().find(|open| *open.id == *id)
    }

    fn remove(&mut self, id: &str, is_it: impl Fn(&OpenCall) -> bool) -> Option<OpenCall> {
        let at = self.open.iter().position(|open| *open.id == *id && is_it(open))?;
        self.open.remove(at)
    }

    fn take_unanswered(
        &mut self,
        is_it: impl Fn(&OpenCall) -> bool,
        now: Instant,
        outcome: impl Fn(&OpenCall) -> CallOutcome,
    ) -> Vec<UnansweredCall> {
        let (taken, kept) = std::mem::take(&mut self.open).into_iter().partition(is_it);
        self.open = kept;
        let taken: VecDeque<OpenCall> = taken;
        let unanswered = taken.into_iter().map(|mut open| {
            let (outcome, error) = (outcome(&open), open.error.take());
            self.miss(open, outcome, error, now)
        });
        unanswered.collect()
    }

    /// Ends a call that has no media socket. It is remembered, so that its webhook starts none.
    fn end(&mut self, at: usize, outcome: CallOutcome, now: Instant) -> UnansweredCall {
        let open = &mut self.open[at];
        open.media = MediaState::Ended;
        self.counts.count_unanswered(outcome);
        UnansweredCall {
            id: open.id.clone(),
            call: open.call.clone(),
            bot: open.bot.clone(),
            outcome,
            provider_error: open.error.take(),
            after: now.saturating_duration_since(open.at),
            ongoing: open.ongoing(),
        }
    }

    /// Counts a call that became no session.
    fn miss(
        &mut self,
        open: OpenCall,
        outcome: CallOutcome,
        provider_error: Option<String>,
        now: Instant,
    ) -> UnansweredCall {
        self.counts.count_unanswered(outcome);
        UnansweredCall {
            id: open.id,
            call: open.call,
            bot: open.bot,
            outcome,
            provider_error,
            after: now.saturating_duration_since(open.at),
            ongoing: None,
        }
    }

    fn expire(&mut self, now: Instant) {
        let is_over = |at: Instant, after: Duration| now >= at + after;
        self.dialled.retain(|at| !is_over(*at, MINUTE));
        self.keyed.retain(|known| !is_over(known.at, DIAL_KEY_KEPT));
    }
}

#[cfg(test)]
mod tests;
