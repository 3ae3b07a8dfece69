//! What is remembered of calls that the runner dials: how many, their retries, and the calls that
//! have yet to be answered.
//!
//! In: requests with their `Idempotency-Key`, outcomes, webhooks, and `now`. Out: whether to dial,
//! and the call that a webhook or a media socket belongs to. A request with a key that was used is
//! never dialled again within an hour: it gets the same reply, unless the provider refused the
//! first one, so that nothing was dialled. The number of calls per minute bounds all that is kept.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::metrics::DialCounts;
use super::{AnsweredBy, DialOutcome, OutboundRequest};
use crate::SessionId;
use crate::limits::{DIAL_KEY_KEPT, DIALS_PER_MINUTE_MAX};
use crate::telephony::proof::CallKey;

/// Bytes of an `Idempotency-Key`.
const KEY_BYTES_MAX: usize = 255;
const MINUTE: Duration = Duration::from_secs(60);
/// Time from the request until the call is answered: the longest time that a provider lets a
/// telephone ring by itself is two minutes. Who answered is reported within half a minute.
const ANSWERED_WITHIN: Duration = Duration::from_secs(180);

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
    fn of(provider: &str, id: &str, outcome: &DialOutcome) -> Self {
        let failed = |status, why: String| DialReply {
            status,
            body: json!({ "detail": why }).to_string(),
            warning: Some(why),
        };
        match outcome {
            DialOutcome::Placed(call_id) => DialReply {
                status: 201,
                body: json!({"id": id, "provider": provider, "call_id": call_id}).to_string(),
                warning: None,
            },
            DialOutcome::Refused(why) => failed(502, format!("{provider} does not dial: {why}")),
            DialOutcome::Unknown(why) => failed(
                504,
                format!(
                    "it is not known whether {provider} dials: {why}; look there, and use another Idempotency-Key to \
                     dial again"
                ),
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

/// A call that was dialled.
struct OpenCall {
    id: SessionId,
    call: DialledCall,
    at: Instant,
    /// Once its webhook came.
    key: Option<CallKey>,
    /// Whether a media socket belongs to it.
    is_claimed: bool,
    /// Whether the bot has its data.
    is_begun: bool,
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
            call: DialledCall {
                to: request.to,
                from: request.from,
                body: request.body,
                answered_by: None,
            },
            at: now,
            key: None,
            is_claimed: false,
            is_begun: false,
        });
        Ok(DialAdmission::Dial)
    }

    /// Takes the outcome of a request, and returns the reply.
    pub fn finish(&mut self, id: &str, outcome: &DialOutcome) -> DialReply {
        let reply = DialReply::of(self.provider, id, outcome);
        match outcome {
            DialOutcome::Placed(_) => self.counts.placed += 1,
            DialOutcome::Refused(_) => {
                self.counts.refused += 1;
                self.open.retain(|open| *open.id != *id);
                self.keyed.retain(|known| *known.id != *id);
            }
            DialOutcome::Unknown(_) => self.counts.unknown += 1,
        }
        if let Some(known) = self.keyed.iter_mut().find(|known| *known.id == *id) {
            known.reply = Some(reply.clone());
        }
        reply
    }

    /// Notes the provider's call of a webhook. Returns whether the call was dialled here.
    pub fn handle_webhook(&mut self, id: &str, call: CallKey, now: Instant) -> bool {
        self.expire(now);
        let Some(open) = self.find(id) else { return false };
        let is_new = open.key.replace(call).is_none();
        self.counts.answered += u64::from(is_new);
        true
    }

    /// Notes who answered. Returns whether the call is known.
    pub fn handle_report(&mut self, id: &str, by: AnsweredBy, now: Instant) -> bool {
        self.expire(now);
        self.find(id).map(|open| open.call.answered_by = Some(by)).is_some()
    }

    /// Returns the session of a media socket, once: `key` is the provider's call.
    pub fn claim(&mut self, key: &str) -> Option<SessionId> {
        let is_it = |open: &&mut OpenCall| open.key.is_some_and(|own| own.to_string() == key);
        let open = self.open.iter_mut().find(is_it)?;
        (!std::mem::replace(&mut open.is_claimed, true)).then(|| open.id.clone())
    }

    /// Returns what the bot is told at its start.
    pub fn begin(&mut self, id: &str) -> Option<DialledCall> {
        let open = self.find(id)?;
        open.is_begun = true;
        let call = open.call.clone();
        open.call.body = None;
        open.call.answered_by = None;
        Some(call)
    }

    /// Takes what was reported since the start of the bot.
    pub fn take_answered_by(&mut self, id: &str) -> Option<AnsweredBy> {
        self.find(id).filter(|open| open.is_begun)?.call.answered_by.take()
    }

    pub fn counts(&self) -> DialCounts {
        self.counts
    }

    fn find(&mut self, id: &str) -> Option<&mut OpenCall> {
        self.open.iter_mut().find(|open| *open.id == *id)
    }

    fn expire(&mut self, now: Instant) {
        let is_over = |at: Instant, after: Duration| now >= at + after;
        self.dialled.retain(|at| !is_over(*at, MINUTE));
        self.keyed.retain(|known| !is_over(known.at, DIAL_KEY_KEPT));
        self.open.retain(|open| !is_over(open.at, ANSWERED_WITHIN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telephony::named::TWILIO;

    struct Rig {
        ledger: DialLedger,
        now: Instant,
        number: u32,
    }

    impl Rig {
        fn new() -> Self {
            Rig {
                ledger: DialLedger::new("twilio"),
                now: Instant::now(),
                number: 0,
            }
        }

        /// Asks for a call; the session is named by the number of the request.
        fn ask(&mut self, key: Option<&str>, to: &str) -> Result<DialAdmission, DialRefusal> {
            self.number += 1;
            let id = SessionId::from(self.number.to_string());
            let json = json!({"to": to, "body": {"customer": 42}}).to_string();
            let request = OutboundRequest::parse(json.as_bytes(), "+15550002222").expect("a request");
            let key = key.map(str::as_bytes);
            self.ledger.admit(key, json.as_bytes(), request, id, self.now)
        }

        fn pass(&mut self, time: Duration) {
            self.now += time;
        }
    }

    const TO: &str = "+15550001111";
    const OTHER: &str = "+15550003333";

    fn placed() -> DialOutcome {
        DialOutcome::Placed("CA01".to_owned())
    }

    /// A retry never dials: neither while the first request runs, nor after it, nor when its
    /// outcome is unknown.
    #[test]
    fn a_retry_does_not_dial() {
        for outcome in [placed(), DialOutcome::Unknown("status 503".to_owned())] {
            let mut rig = Rig::new();
            assert_eq!(rig.ask(Some("a"), TO), Ok(DialAdmission::Dial));
            assert_eq!(rig.ask(Some("a"), TO), Err(DialRefusal::Running));
            let reply = rig.ledger.finish("1", &outcome);
            for _ in 0..3 {
                assert_eq!(rig.ask(Some("a"), TO), Ok(DialAdmission::Repeated(reply.clone())));
            }
            assert_eq!(rig.ask(Some("a"), OTHER), Err(DialRefusal::OtherRequest));
            assert_eq!(rig.ask(Some("b"), TO), Ok(DialAdmission::Dial));
            assert_eq!(rig.ask(None, TO), Ok(DialAdmission::Dial));
            assert_eq!(rig.ledger.counts().repeated, 3);
            rig.pass(DIAL_KEY_KEPT - Duration::from_nanos(1));
            assert!(matches!(rig.ask(Some("a"), TO), Ok(DialAdmission::Repeated(_))));
            rig.pass(Duration::from_nanos(1));
            assert_eq!(rig.ask(Some("a"), TO), Ok(DialAdmission::Dial));
        }
    }

    #[test]
    fn what_a_provider_refused_can_be_asked_again() {
        let mut rig = Rig::new();
        assert_eq!(rig.ask(Some("a"), TO), Ok(DialAdmission::Dial));
        let reply = rig.ledger.finish("1", &DialOutcome::Refused("status 400".to_owned()));
        assert_eq!(reply.status, 502);
        assert_eq!(reply.body, r#"{"detail":"twilio does not dial: status 400"}"#);
        assert!(!rig.ledger.handle_webhook("1", CallKey::of(TWILIO, "CA01"), rig.now));
        assert_eq!(rig.ask(Some("a"), TO), Ok(DialAdmission::Dial));
        let reply = rig.ledger.finish("2", &placed());
        assert_eq!((reply.status, reply.warning), (201, None));
        assert_eq!(reply.body, r#"{"call_id":"CA01","id":"2","provider":"twilio"}"#);
        assert_eq!((rig.ledger.counts().placed, rig.ledger.counts().refused), (1, 1));
    }

    #[test]
    fn calls_per_minute_have_a_limit() {
        let mut rig = Rig::new();
        for _ in 0..DIALS_PER_MINUTE_MAX {
            assert_eq!(rig.ask(None, TO), Ok(DialAdmission::Dial));
            rig.pass(Duration::from_secs(1));
        }
        let wait = MINUTE - Duration::from_secs(DIALS_PER_MINUTE_MAX as u64);
        assert_eq!(rig.ask(Some("a"), TO), Err(DialRefusal::TooMany(wait)));
        rig.pass(wait);
        assert_eq!(rig.ask(Some("a"), TO), Ok(DialAdmission::Dial));
        assert!(matches!(rig.ask(None, TO), Err(DialRefusal::TooMany(_))));
        assert_eq!(rig.ledger.counts().limited, 2);
        // A retry is no call.
        rig.ledger.finish(&rig.number.to_string(), &placed());
    }

    #[test]
    fn keys_are_printable() {
        let mut rig = Rig::new();
        let longest = "k".repeat(KEY_BYTES_MAX);
        assert_eq!(rig.ask(Some(&longest), TO), Ok(DialAdmission::Dial));
        for wrong in ["", &format!("{longest}k"), "a\tb", "\u{e4}"] {
            assert_eq!(rig.ask(Some(wrong), TO), Err(DialRefusal::Key), "{wrong}");
        }
    }

    /// From the request over the webhook to the media socket and the report.
    #[test]
    fn the_bot_of_a_dialled_call_gets_its_data() {
        let mut rig = Rig::new();
        assert_eq!(rig.ask(None, TO), Ok(DialAdmission::Dial));
        let call = CallKey::of(TWILIO, "CA01");
        assert_eq!(rig.ledger.claim(&call.to_string()), None, "not answered yet");
        assert!(!rig.ledger.handle_webhook("2", call, rig.now), "another id");
        for _ in 0..2 {
            assert!(rig.ledger.handle_webhook("1", call, rig.now));
        }
        assert_eq!(rig.ledger.counts().answered, 1);
        assert_eq!(rig.ledger.claim(&CallKey::of(TWILIO, "CA02").to_string()), None);
        assert_eq!(rig.ledger.claim(&call.to_string()).as_deref(), Some("1"));
        assert_eq!(rig.ledger.claim(&call.to_string()), None, "once");
        let mut data = json!({"call_id": "CA01", "from": null, "to": null, "body": {}});
        rig.ledger.begin("1").expect("its data").complete(&mut data);
        assert_eq!(
            data,
            json!({
                "call_id": "CA01", "from": "+15550002222", "to": TO, "body": {"customer": 42}, "direction": "outbound",
            })
        );
        assert_eq!(rig.ledger.take_answered_by("1"), None);
        assert!(rig.ledger.handle_report("1", AnsweredBy::Machine, rig.now));
        assert_eq!(rig.ledger.take_answered_by("1"), Some(AnsweredBy::Machine));
        assert_eq!(rig.ledger.take_answered_by("1"), None, "once");
        rig.pass(ANSWERED_WITHIN);
        assert!(!rig.ledger.handle_report("1", AnsweredBy::Human, rig.now));
    }

    /// A report that comes before the bot is part of its data.
    #[test]
    fn an_early_report_is_delivered_once() {
        let mut rig = Rig::new();
        assert_eq!(rig.ask(None, TO), Ok(DialAdmission::Dial));
        assert!(rig.ledger.handle_report("1", AnsweredBy::Human, rig.now));
        assert_eq!(rig.ledger.take_answered_by("1"), None, "there is no bot yet");
        let mut data = json!({});
        rig.ledger.begin("1").expect("its data").complete(&mut data);
        assert_eq!(data["answered_by"], "human");
        assert_eq!(rig.ledger.take_answered_by("1"), None);
    }

    /// Calls without an answer are forgotten, so memory is bounded by the calls of a minute.
    #[test]
    fn calls_without_an_answer_are_forgotten() {
        let mut rig = Rig::new();
        for minute in 0..10 {
            for call in 0..DIALS_PER_MINUTE_MAX {
                let key = format!("{minute} {call}");
                assert_eq!(rig.ask(Some(&key), TO), Ok(DialAdmission::Dial));
            }
            rig.pass(MINUTE);
        }
        let minutes = ANSWERED_WITHIN.as_secs() as usize / 60;
        assert!(rig.ledger.open.len() <= minutes * DIALS_PER_MINUTE_MAX);
        assert_eq!(rig.ledger.keyed.len(), 10 * DIALS_PER_MINUTE_MAX);
        rig.pass(DIAL_KEY_KEPT);
        rig.ledger.expire(rig.now);
        assert!(rig.ledger.keyed.is_empty() && rig.ledger.open.is_empty() && rig.ledger.dialled.is_empty());
    }
}
