//! Tests of the calls that are kept.

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
            source: None,
            trace: None,
            now: self.start + Duration::from_secs(at_s),
            unix_ms: 1_795_904_000_000 + at_s * 1000,
        });
    }

    fn ending(&self, outcome: CallOutcome, at_s: u64) -> CallEnding<'static> {
        CallEnding {
            outcome,
            bot_error: None,
            provider_error: None,
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
            source: None,
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
                (&record["endedBy"], &record["duration_ms"]),
                (&json!("caller"), &json!(20_000))
            );
        }
    }
    assert_eq!(rig.list("outcome=busy&number=66").0, ["c", "b"]);
}

/// A flood of calls that are refused makes few records, which others of the next minute follow.
/// Those that its provider reports again, and dialled ones that are not answered, do not count.
#[test]
fn a_flood_of_refused_calls_makes_few_records() {
    let mut rig = rig(10_000);
    let mut records = Vec::new();
    for nth in 0..1000_u64 {
        let at_s = nth / 10;
        let (id, outcome) = match nth % 2 {
            0 => (format!("full {nth}"), CallOutcome::Full),
            _ => (format!("busy {nth}"), CallOutcome::Busy),
        };
        let beginning = |rig: &Rig| CallBeginning {
            id: id.as_str().into(),
            transport: Some(Transport::WebRtc),
            bot: None,
            call_data: None,
            source: None,
            trace: None,
            now: rig.start + Duration::from_secs(at_s),
            unix_ms: 1_795_904_000_000,
        };
        let (first, again) = (beginning(&rig), beginning(&rig));
        let recorded = rig.log.miss(first, rig.ending(outcome, at_s)).is_some();
        assert!(recorded || outcome == CallOutcome::Full);
        if recorded {
            assert!(rig.log.miss(again, rig.ending(outcome, at_s)).is_none());
            records.extend((outcome == CallOutcome::Full).then_some(at_s));
        }
    }
    let of_minute = |minute| records.iter().filter(|at_s| **at_s / 60 == minute).count();
    assert_eq!((of_minute(0), of_minute(1)), (60, 60));
}

/// Refused calls have limits of their own: a flood of them displaces no record of another call, nor
/// does it go without a record among many others.
#[test]
fn refused_calls_displace_no_others() {
    for kept in [0, 1, 8, 10_000] {
        let mut rig = rig(kept);
        for nth in 0..200 {
            rig.begin(&format!("talked {nth}"), Transport::WebRtc, "", nth);
            rig.end(&format!("talked {nth}"), LeaveReason::Left, nth);
        }
        let others = rig.list("outcome=left&limit=200").0;
        assert_eq!(others.len(), kept.min(200));
        let number = "9".repeat(200);
        for nth in 0..5000 {
            let id = format!("refused {nth}");
            rig.begin(&id, Transport::Telephony(TWILIO), &number, nth);
            let end = rig.ending(CallOutcome::Refused, nth);
            assert!(rig.log.end(&id, end).is_some());
        }
        assert_eq!(rig.list("outcome=left&limit=200").0, others);
        let refused = rig.log.refused.calls.len();
        assert!(refused <= kept.div_ceil(4) && (kept == 0 || refused > 0), "{refused}");
        assert!(rig.log.refused.bytes <= REFUSED_BYTES_MAX);
        let sum: usize = rig.log.refused.calls.iter().map(|(_, bytes, _)| bytes).sum();
        assert_eq!(rig.log.refused.bytes, sum);
        let latest = rig.list("outcome=refused&limit=1").0;
        assert_eq!(latest.first().map(String::as_str), (kept > 0).then_some("refused 4999"));
    }
    // The share of the default fits into its bytes.
    let mut rig = rig(200);
    let number = "9".repeat(200);
    for nth in 0..200 {
        let id = format!("refused {nth}");
        rig.begin(&id, Transport::Telephony(TWILIO), &number, nth);
        let end = rig.ending(CallOutcome::Refused, nth);
        rig.log.end(&id, end);
    }
    assert_eq!(rig.log.refused.calls.len(), 50);
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
    assert!(rig.log.ended.bytes + rig.log.refused.bytes <= CALLS_BYTES_MAX);
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
