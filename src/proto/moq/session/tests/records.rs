//! Records in both directions.

use std::time::Duration;

use super::super::*;
use super::rig::Rig;
use crate::limits::{MESSAGE_BYTES_MAX, MESSAGES_OUT_MAX};

const READY: &str = r#"{"label":"rtvi-ai","type":"client-ready","id":"1","data":{"version":"2.1.0"}}"#;
const BOT_READY: &str = r#"{"label":"rtvi-ai","type":"bot-ready","id":"1","data":{}}"#;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn parsed(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn messages_go_both_ways() {
    for mode in [MoqSessionMode::Serve, MoqSessionMode::Dial] {
        let mut rig = Rig::connected(mode);
        rig.caller.say(READY.as_bytes(), rig.now);
        rig.run_until(|rig| !rig.messages().is_empty());
        assert_eq!(rig.messages(), [READY]);
        rig.session.handle_message(BOT_READY.to_owned());
        rig.run(secs(1));
        let texts: Vec<_> = rig.caller.texts.iter().map(|text| parsed(text)).collect();
        assert_eq!(texts, [parsed(BOT_READY)]);
    }
}

/// Messages from before the caller arrives are kept, within their limits.
#[test]
fn early_messages_wait_for_the_caller() {
    for mode in [MoqSessionMode::Serve, MoqSessionMode::Dial] {
        let mut rig = Rig::new(mode);
        for n in 0..3 {
            rig.session.handle_message(format!("{{\"n\":{n}}}"));
        }
        rig.connect();
        rig.run(secs(1));
        assert_eq!(rig.caller.texts, [r#"{"n":0}"#, r#"{"n":1}"#, r#"{"n":2}"#]);
    }
    let mut rig = Rig::new(MoqSessionMode::Serve);
    for n in 0..MESSAGES_OUT_MAX + 5 {
        rig.session.handle_message(format!("{{\"n\":{n}}}"));
    }
    rig.connect();
    rig.run(secs(1));
    assert_eq!(rig.caller.texts.len(), MESSAGES_OUT_MAX);
    assert_eq!(rig.caller.texts[0], r#"{"n":5}"#);
}

/// A bot may say much at once, before and during the call.
#[test]
fn a_burst_of_messages_is_sent_in_order() {
    let burst = |from: usize| -> Vec<String> {
        let texts = (from..from + 200).map(|n| format!("{{\"n\":{n},\"text\":\"{}\"}}", "x".repeat(1_000)));
        texts.collect()
    };
    for mode in [MoqSessionMode::Serve, MoqSessionMode::Dial] {
        let mut rig = Rig::new(mode);
        for text in burst(0) {
            rig.session.handle_message(text);
        }
        rig.connect();
        rig.run(secs(1));
        assert!(rig.caller.texts == burst(0), "{} of 200", rig.caller.texts.len());
        for text in burst(200) {
            rig.session.handle_message(text);
        }
        rig.run(secs(1));
        assert!(rig.caller.texts[200..] == burst(200), "{}", rig.caller.texts.len());
        let mut counts = Counts::default();
        rig.session.update_counts(&mut counts);
        assert_eq!(counts.get(Count::MessagesDropped), 0);
    }
}

#[test]
fn only_objects_of_a_length_are_sent() {
    let mut rig = Rig::connected(MoqSessionMode::Serve);
    let fill = |bytes: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8));
    for text in [
        "text".to_owned(),
        "[1]".to_owned(),
        fill(MESSAGE_BYTES_MAX + 1),
        fill(MESSAGE_BYTES_MAX),
    ] {
        rig.session.handle_message(text);
    }
    rig.run(secs(2));
    let lengths: Vec<_> = rig.caller.texts.iter().map(String::len).collect();
    assert_eq!(lengths, [MESSAGE_BYTES_MAX]);
    assert_eq!(rig.session.bot.messages_dropped(), 3);
}

#[test]
fn records_that_are_no_messages_do_not_reach_the_bot() {
    let mut rig = Rig::connected(MoqSessionMode::Serve);
    let records = [
        "[1,2]",
        "\"text\"",
        "7",
        "nonsense",
        r#"{"label":"moq-transport","type":"anything"}"#,
        READY,
    ];
    for record in records {
        rig.caller.say(record.as_bytes(), rig.now);
    }
    rig.caller.say(&vec![b' '; MESSAGE_BYTES_MAX + 1], rig.now);
    rig.caller.say(b"{\"last\":1}", rig.now);
    rig.run(secs(2));
    assert_eq!(rig.messages(), [READY, "{\"last\":1}"]);
    assert_eq!(rig.left(), None);
}

#[test]
fn an_inflate_bomb_ends_the_session() {
    let mut rig = Rig::connected(MoqSessionMode::Serve);
    rig.caller.say(&vec![b' '; 8 * MESSAGE_BYTES_MAX], rig.now);
    rig.run(secs(5));
    assert_eq!(rig.left(), Some(LeaveReason::Protocol));
    assert!(rig.caller.closed.is_some());
    assert!(rig.is_clean());
}

#[test]
fn a_log_that_is_not_deflate_ends_the_session() {
    let mut rig = Rig::connected(MoqSessionMode::Serve);
    let track = rig.caller.record_track;
    rig.caller.write(track, &[0xff; 30], rig.now);
    rig.run(secs(5));
    assert_eq!(rig.left(), Some(LeaveReason::Protocol));
}

/// Text that does not compress.
fn noise(bytes: usize, seed: u64) -> String {
    let mut state = seed;
    let letters = (0..bytes).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'0' + (state >> 58) as u8)
    });
    letters.filter(|letter| *letter != '\\').collect()
}

/// A log above its limit goes on for those who read it. After the relay was lost it begins again,
/// because its start is gone.
#[test]
fn a_long_log_goes_on_without_a_replay() {
    let mut rig = Rig::connected(MoqSessionMode::Dial);
    for n in 0..14 {
        let text = format!("{{\"n\":{n},\"text\":\"{}\"}}", noise(200_000, n));
        rig.session.handle_message(text);
        rig.run(secs(4));
    }
    let numbers = |rig: &Rig| -> Vec<_> {
        let texts = rig.caller.texts.iter();
        texts.map(|text| parsed(text)["n"].as_u64().unwrap()).collect()
    };
    assert_eq!(numbers(&rig), (0..14).collect::<Vec<_>>());
    rig.restart_relay();
    rig.session.handle_message("{\"n\":14}".to_owned());
    rig.run(secs(15));
    rig.session.handle_message("{\"n\":15}".to_owned());
    rig.run(secs(1));
    assert_eq!(rig.left(), None);
    assert_eq!(numbers(&rig).last(), Some(&15));
    assert!(numbers(&rig).len() < 14, "{:?}", numbers(&rig));
}

/// A caller that does not read the records cannot make the runner keep them all.
#[test]
fn a_caller_that_does_not_read_ends_the_session() {
    let mut rig = Rig::connected(MoqSessionMode::Serve);
    rig.is_cut = true;
    for n in 0..20 {
        rig.session
            .handle_message(format!("{{\"text\":\"{}\"}}", noise(200_000, n)));
        rig.run(Duration::from_millis(100));
    }
    rig.run(secs(3));
    assert_eq!(rig.left(), Some(LeaveReason::Protocol));
    assert!(rig.is_clean());
}
