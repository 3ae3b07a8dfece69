//! Records in both directions.

use std::time::Duration;

use super::super::*;
use super::world::World;
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
        let mut world = World::connected(mode);
        world.caller.say(READY.as_bytes(), world.now);
        world.run_until(|world| !world.messages().is_empty());
        assert_eq!(world.messages(), [READY]);
        world.session.handle_message(BOT_READY.to_owned());
        world.run(secs(1));
        let texts: Vec<_> = world.caller.texts.iter().map(|text| parsed(text)).collect();
        assert_eq!(texts, [parsed(BOT_READY)]);
    }
}

/// Messages from before the caller arrives are kept, within their limits.
#[test]
fn early_messages_wait_for_the_caller() {
    for mode in [MoqSessionMode::Serve, MoqSessionMode::Dial] {
        let mut world = World::new(mode);
        for n in 0..3 {
            world.session.handle_message(format!("{{\"n\":{n}}}"));
        }
        world.connect();
        world.run(secs(1));
        assert_eq!(world.caller.texts, [r#"{"n":0}"#, r#"{"n":1}"#, r#"{"n":2}"#]);
    }
    let mut world = World::new(MoqSessionMode::Serve);
    for n in 0..MESSAGES_OUT_MAX + 5 {
        world.session.handle_message(format!("{{\"n\":{n}}}"));
    }
    world.connect();
    world.run(secs(1));
    assert_eq!(world.caller.texts.len(), MESSAGES_OUT_MAX);
    assert_eq!(world.caller.texts[0], r#"{"n":5}"#);
}

/// A bot may say much at once, before and during the call.
#[test]
fn a_burst_of_messages_is_sent_in_order() {
    let burst = |from: usize| -> Vec<String> {
        let texts = (from..from + 200).map(|n| format!("{{\"n\":{n},\"text\":\"{}\"}}", "x".repeat(1_000)));
        texts.collect()
    };
    for mode in [MoqSessionMode::Serve, MoqSessionMode::Dial] {
        let mut world = World::new(mode);
        for text in burst(0) {
            world.session.handle_message(text);
        }
        world.connect();
        world.run(secs(1));
        assert!(world.caller.texts == burst(0), "{} of 200", world.caller.texts.len());
        for text in burst(200) {
            world.session.handle_message(text);
        }
        world.run(secs(1));
        assert!(world.caller.texts[200..] == burst(200), "{}", world.caller.texts.len());
        let mut counts = Counts::default();
        world.session.update_counts(&mut counts);
        assert_eq!(counts.get(Count::MessagesDropped), 0);
    }
}

#[test]
fn only_objects_of_a_length_are_sent() {
    let mut world = World::connected(MoqSessionMode::Serve);
    let fill = |bytes: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8));
    for text in [
        "text".to_owned(),
        "[1]".to_owned(),
        fill(MESSAGE_BYTES_MAX + 1),
        fill(MESSAGE_BYTES_MAX),
    ] {
        world.session.handle_message(text);
    }
    world.run(secs(2));
    let lengths: Vec<_> = world.caller.texts.iter().map(String::len).collect();
    assert_eq!(lengths, [MESSAGE_BYTES_MAX]);
    assert_eq!(world.session.bot.messages_dropped(), 3);
}

#[test]
fn records_that_are_no_messages_do_not_reach_the_bot() {
    let mut world = World::connected(MoqSessionMode::Serve);
    let records = [
        "[1,2]",
        "\"text\"",
        "7",
        "nonsense",
        r#"{"label":"moq-transport","type":"anything"}"#,
        READY,
    ];
    for record in records {
        world.caller.say(record.as_bytes(), world.now);
    }
    world.caller.say(&vec![b' '; MESSAGE_BYTES_MAX + 1], world.now);
    world.caller.say(b"{\"last\":1}", world.now);
    world.run(secs(2));
    assert_eq!(world.messages(), [READY, "{\"last\":1}"]);
    assert_eq!(world.left(), None);
}

#[test]
fn an_inflate_bomb_ends_the_session() {
    let mut world = World::connected(MoqSessionMode::Serve);
    world.caller.say(&vec![b' '; 8 * MESSAGE_BYTES_MAX], world.now);
    world.run(secs(5));
    assert_eq!(world.left(), Some(LeaveReason::Protocol));
    assert!(world.caller.closed.is_some());
    assert!(world.is_clean());
}

#[test]
fn a_log_that_is_not_deflate_ends_the_session() {
    let mut world = World::connected(MoqSessionMode::Serve);
    let track = world.caller.record_track;
    world.caller.write(track, &[0xff; 30], world.now);
    world.run(secs(5));
    assert_eq!(world.left(), Some(LeaveReason::Protocol));
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
    let mut world = World::connected(MoqSessionMode::Dial);
    for n in 0..14 {
        let text = format!("{{\"n\":{n},\"text\":\"{}\"}}", noise(200_000, n));
        world.session.handle_message(text);
        world.run(secs(4));
    }
    let numbers = |world: &World| -> Vec<_> {
        let texts = world.caller.texts.iter();
        texts.map(|text| parsed(text)["n"].as_u64().unwrap()).collect()
    };
    assert_eq!(numbers(&world), (0..14).collect::<Vec<_>>());
    world.restart_relay();
    world.session.handle_message("{\"n\":14}".to_owned());
    world.run(secs(15));
    world.session.handle_message("{\"n\":15}".to_owned());
    world.run(secs(1));
    assert_eq!(world.left(), None);
    assert_eq!(numbers(&world).last(), Some(&15));
    assert!(numbers(&world).len() < 14, "{:?}", numbers(&world));
}

/// A caller that does not read the records cannot make the runner keep them all.
#[test]
fn a_caller_that_does_not_read_ends_the_session() {
    let mut world = World::connected(MoqSessionMode::Serve);
    world.is_cut = true;
    for n in 0..20 {
        world
            .session
            .handle_message(format!("{{\"text\":\"{}\"}}", noise(200_000, n)));
        world.run(Duration::from_millis(100));
    }
    world.run(secs(3));
    assert_eq!(world.left(), Some(LeaveReason::Protocol));
    assert!(world.is_clean());
}
