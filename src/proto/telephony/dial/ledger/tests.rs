//! Tests of idempotency keys, on a clock of their own.

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

    /// Takes the webhook of a call. Returns whether the call was dialled and goes on.
    fn answer(&mut self, id: &str, call: CallKey) -> bool {
        self.ledger.handle_webhook(id, (call, "CA01"), self.now) == DialledWebhook::Answered
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }
}

const TO: &str = "+15550001111";
const OTHER: &str = "+15550003333";

/// What a call was recorded as, and what its provider said.
fn facts(unanswered: &UnansweredCall) -> (&str, &str, Option<&str>, Duration) {
    let error = unanswered.provider_error.as_deref();
    (&unanswered.id, unanswered.outcome.label(), error, unanswered.after)
}

fn placed() -> DialOutcome {
    DialOutcome::Placed("CA01".to_owned())
}

/// A retry never dials: neither while the first request runs, nor after it, nor when its
/// outcome is unknown, nor when the provider refused it.
#[test]
fn a_retry_does_not_dial() {
    let why = "status 503".to_owned();
    for outcome in [
        placed(),
        DialOutcome::Unknown(why.clone()),
        DialOutcome::Refused(why.clone()),
    ] {
        let mut rig = Rig::new();
        assert_eq!(rig.ask(Some("a"), TO), Ok(DialAdmission::Dial));
        assert_eq!(rig.ask(Some("a"), TO), Err(DialRefusal::Running));
        let (reply, _) = rig.ledger.finish("1", &outcome, rig.now);
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

/// What a provider refuses is missed at once, and once.
#[test]
fn a_refused_call_is_missed() {
    let mut rig = Rig::new();
    assert_eq!(rig.ask(None, TO), Ok(DialAdmission::Dial));
    rig.pass(Duration::from_secs(2));
    let why = "status 400".to_owned();
    let (reply, refused) = rig.ledger.finish("1", &DialOutcome::Refused(why.clone()), rig.now);
    assert_eq!(reply.status, 502);
    assert_eq!(reply.body, r#"{"detail":"twilio does not dial: status 400","id":"1"}"#);
    let refused = refused.expect("the call");
    assert_eq!(
        facts(&refused),
        ("1", "not_dialled", Some("status 400"), Duration::from_secs(2))
    );
    assert!(!rig.answer("1", CallKey::of(TWILIO, "CA01")));
    assert!(rig.ledger.handle_end("1", CallOutcome::Busy, rig.now).is_none());
    assert_eq!(rig.ask(Some("a"), TO), Ok(DialAdmission::Dial));
    let (reply, missed) = rig.ledger.finish("2", &placed(), rig.now);
    assert!(missed.is_none());
    assert_eq!((reply.status, reply.warning), (201, None));
    assert_eq!(reply.body, r#"{"call_id":"CA01","id":"2","provider":"twilio"}"#);
    assert_eq!((rig.ledger.counts().placed, rig.ledger.counts().refused), (1, 1));
    // A retry with the key gets the refusal again, which says what to do.
    assert_eq!(rig.ask(Some("b"), TO), Ok(DialAdmission::Dial));
    let (reply, refused) = rig.ledger.finish("3", &DialOutcome::Refused(why), rig.now);
    assert!(refused.is_some());
    assert!(reply.body.contains("use another Idempotency-Key"), "{}", reply.body);
    assert_eq!(rig.ask(Some("b"), TO), Ok(DialAdmission::Repeated(reply)));
    rig.pass(ANSWERED_WITHIN);
    let late = rig.ledger.handle_timeout(rig.now);
    assert_eq!(late.iter().map(|call| &*call.id).collect::<Vec<_>>(), ["2"]);
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
    rig.ledger.finish(&rig.number.to_string(), &placed(), rig.now);
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
    assert!(!rig.answer("2", call), "another id");
    for _ in 0..2 {
        assert!(rig.answer("1", call));
    }
    assert_eq!(rig.ledger.counts().answered, 1);
    assert_eq!(rig.ledger.claim(&CallKey::of(TWILIO, "CA02").to_string()), None);
    assert_eq!(rig.ledger.claim(&call.to_string()), Some(("1".into(), None)));
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

/// Calls without an answer are forgotten at the timeout of each, so memory is bounded by the calls
/// of a minute.
#[test]
fn calls_without_an_answer_are_forgotten() {
    let mut rig = Rig::new();
    for minute in 0..10 {
        for call in 0..DIALS_PER_MINUTE_MAX {
            let key = format!("{minute} {call}");
            assert_eq!(rig.ask(Some(&key), TO), Ok(DialAdmission::Dial));
        }
        rig.pass(MINUTE);
        rig.ledger.handle_timeout(rig.now);
    }
    let minutes = ANSWERED_WITHIN.as_secs() as usize / 60;
    assert!(rig.ledger.open.len() <= minutes * DIALS_PER_MINUTE_MAX);
    assert_eq!(rig.ledger.keyed.len(), 10 * DIALS_PER_MINUTE_MAX);
    rig.pass(DIAL_KEY_KEPT);
    rig.ledger.expire(rig.now);
    rig.ledger.handle_timeout(rig.now);
    assert!(rig.ledger.keyed.is_empty() && rig.ledger.open.is_empty() && rig.ledger.dialled.is_empty());
}

/// The end of a call that has a session is that of the session; another call is missed once.
#[test]
fn a_call_without_an_answer_is_missed_once() {
    let mut rig = Rig::new();
    for _ in 0..3 {
        assert_eq!(rig.ask(None, TO), Ok(DialAdmission::Dial));
    }
    let key = CallKey::of(TWILIO, "CA01");
    rig.pass(Duration::from_secs(20));
    assert!(rig.answer("2", key));
    assert!(rig.ledger.claim(&key.to_string()).is_some());
    let mut end = |id: &str| rig.ledger.handle_end(id, CallOutcome::Busy, rig.now);
    assert!(end("2").is_none(), "it has a session");
    let unanswered = end("1").expect("the call");
    assert_eq!(facts(&unanswered), ("1", "busy", None, Duration::from_secs(20)));
    assert_eq!(unanswered.call.to.as_str(), TO);
    assert!(end("1").is_none(), "it was returned");
    assert!(end("7").is_none(), "it was not dialled");
}

/// What no provider reports is missed when the time of an answer is over: without a webhook, with
/// one and no socket, and where it was not known whether the provider dials.
#[test]
fn a_call_that_is_never_reported_is_missed_once() {
    let mut rig = Rig::new();
    for id in ["1", "2", "3", "4", "5"] {
        assert_eq!(rig.ask(None, TO), Ok(DialAdmission::Dial));
        let outcome = match id {
            "3" | "4" => DialOutcome::Unknown("status 503".to_owned()),
            _ => placed(),
        };
        assert!(rig.ledger.finish(id, &outcome, rig.now).1.is_none());
    }
    for id in ["2", "4", "5"] {
        assert!(rig.answer(id, CallKey::of(TWILIO, id)));
    }
    assert!(rig.ledger.claim(&CallKey::of(TWILIO, "5").to_string()).is_some());
    rig.ledger.begin("5").expect("a session");
    rig.pass(ANSWERED_WITHIN - Duration::from_nanos(1));
    assert!(rig.ledger.handle_timeout(rig.now).is_empty());
    rig.pass(Duration::from_nanos(1));
    let missed = rig.ledger.handle_timeout(rig.now);
    let after = ANSWERED_WITHIN;
    let missed: Vec<_> = missed.iter().map(facts).collect();
    assert_eq!(
        missed,
        [
            ("1", "unreported", None, after),
            ("2", "never_connected", None, after),
            ("3", "unreported", Some("status 503"), after),
            ("4", "never_connected", None, after),
        ]
    );
    assert!(rig.ledger.handle_timeout(rig.now).is_empty());
    assert!(rig.ledger.handle_end("1", CallOutcome::Busy, rig.now).is_none());
    assert!(rig.ledger.open.is_empty());
}

/// A socket that ends before its bot began leaves a call without a session; one whose bot began
/// does not, whenever its end comes.
#[test]
fn a_socket_without_a_session_is_a_missed_call() {
    let mut rig = Rig::new();
    for id in ["1", "2"] {
        assert_eq!(rig.ask(None, TO), Ok(DialAdmission::Dial));
        let key = CallKey::of(TWILIO, id);
        assert!(rig.answer(id, key));
        assert!(rig.ledger.claim(&key.to_string()).is_some());
    }
    rig.ledger.begin("2").expect("a session");
    rig.pass(ANSWERED_WITHIN);
    // The socket is still open, so its end is waited for.
    assert!(rig.ledger.handle_timeout(rig.now).is_empty());
    let missed = rig.ledger.handle_media_end("1", rig.now).expect("the call");
    assert_eq!(facts(&missed), ("1", "never_connected", None, ANSWERED_WITHIN));
    assert!(rig.ledger.handle_media_end("1", rig.now).is_none());
    assert!(rig.ledger.handle_media_end("2", rig.now).is_none());
}

/// A runner that stops answers no webhook, so the calls that still ring become no sessions.
#[test]
fn calls_that_ring_end_with_the_runner() {
    let mut rig = Rig::new();
    for _ in 0..2 {
        assert_eq!(rig.ask(None, TO), Ok(DialAdmission::Dial));
    }
    let key = CallKey::of(TWILIO, "CA01");
    assert!(rig.answer("2", key));
    assert!(rig.ledger.claim(&key.to_string()).is_some());
    rig.pass(Duration::from_secs(9));
    let missed = rig.ledger.handle_stop(rig.now);
    assert_eq!(missed.iter().map(|call| &call.ongoing).collect::<Vec<_>>(), [&None]);
    let missed: Vec<_> = missed.iter().map(facts).collect();
    assert_eq!(missed, [("1", "shutdown", None, Duration::from_secs(9))]);
    // The provider answers while the runner stops.
    let refused = DialOutcome::Refused("status 400".to_owned());
    assert!(rig.ledger.finish("1", &refused, rig.now).1.is_none());
    assert_eq!(rig.ledger.ended_early("1"), None);
    assert!(rig.ledger.handle_stop(rig.now).is_empty());
}

/// A call that is ended before it has a media socket goes on at its provider, which is to end it:
/// by the id of its answer to the request, or by that of the webhook once it came. It becomes no
/// session, and is counted once.
#[test]
fn a_call_that_is_ended_while_it_rings_is_to_be_hung_up() {
    let ongoing = |call_id: &str, is_answered| {
        let call_id = call_id.to_owned();
        Some(OngoingCall { call_id, is_answered })
    };
    let mut rig = Rig::new();
    for _ in 0..4 {
        assert_eq!(rig.ask(None, TO), Ok(DialAdmission::Dial));
    }
    for id in ["1", "2"] {
        rig.ledger
            .finish(id, &DialOutcome::Placed("request".to_owned()), rig.now);
        assert_eq!(rig.ledger.ended_early(id), None, "it goes on");
    }
    let key = CallKey::of(TWILIO, "CA01");
    assert!(rig.answer("2", key));
    for (id, expected) in [
        ("1", ongoing("request", false)),
        ("2", ongoing("CA01", true)),
        ("3", None),
    ] {
        let ended = rig.ledger.handle_operator_end(id, rig.now).expect("the call");
        assert_eq!((facts(&ended).1, &ended.ongoing), ("canceled", &expected), "{id}");
        assert!(rig.ledger.handle_operator_end(id, rig.now).is_none(), "once");
        assert!(
            rig.ledger.handle_end(id, CallOutcome::Canceled, rig.now).is_none(),
            "once"
        );
    }
    assert!(rig.ledger.handle_operator_end("7", rig.now).is_none());
    // The provider answers the third request after the end of its call, and the fourth not at all.
    rig.ledger.finish("3", &DialOutcome::Placed("late".to_owned()), rig.now);
    assert_eq!(rig.ledger.ended_early("3"), ongoing("late", false));
    rig.ledger
        .finish("4", &DialOutcome::Unknown("status 503".to_owned()), rig.now);
    let stopped = rig.ledger.handle_stop(rig.now);
    let stopped: Vec<_> = stopped.iter().map(|call| (facts(call), &call.ongoing)).collect();
    assert_eq!(
        stopped,
        [(("4", "shutdown", Some("status 503"), Duration::ZERO), &None)]
    );
    // A telephone that is picked up at this moment gets no session, and is not forgotten too early.
    for id in ["1", "2", "3", "4"] {
        let webhook = rig.ledger.handle_webhook(id, (key, "CA01"), rig.now);
        assert_eq!(webhook, DialledWebhook::Ended, "{id}");
        assert_eq!(rig.ledger.claim(&key.to_string()), None);
    }
    rig.pass(ANSWERED_WITHIN);
    assert!(rig.ledger.handle_timeout(rig.now).is_empty());
    assert!(rig.ledger.open.is_empty());
}
