//! Dial mode: the relay or the caller behind it is lost, and comes back.

use std::time::Duration;

use super::super::*;
use super::caller::CATALOG;
use super::rig::Rig;
use crate::audio::tone::share;
use crate::limits::PEER_LOST_AFTER;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A call that has exchanged audio and records.
fn talking() -> Rig {
    let mut rig = Rig::connected(MoqSessionMode::Dial);
    let now = rig.now;
    rig.caller.write(rig.caller.catalog_track, CATALOG.as_bytes(), now);
    rig.caller.speak(440.0, now);
    for n in 0..3 {
        rig.caller.say(format!("{{\"caller\":{n}}}").as_bytes(), now);
        rig.session.handle_message(format!("{{\"bot\":{n}}}"));
    }
    rig.run(secs(2));
    assert_eq!((rig.messages().len(), rig.caller.texts.len()), (3, 3));
    rig
}

/// A relay that is killed is noticed long before QUIC's idle time; the log is replayed in both
/// directions, and each record is read once.
#[test]
fn a_restarted_relay_is_dialled_again() {
    let mut rig = talking();
    let (cut, frames) = (rig.now - rig.start, rig.bot.frames);
    let last_us = rig
        .caller
        .received
        .iter()
        .map(|packet| packet.timestamp_us)
        .max()
        .unwrap();
    let from = rig.caller.received.len();
    rig.restart_relay();
    rig.session.handle_message("{\"bot\":3}".to_owned());
    rig.run(secs(15));
    let (lost, resumed) = (rig.times(&SessionEvent::Lost), rig.times(&SessionEvent::Restored));
    assert_eq!((lost.len(), resumed.len()), (1, 1));
    assert!(
        lost[0] < cut + secs(7) && resumed[0] < lost[0] + secs(2),
        "{cut:?} {lost:?} {resumed:?}"
    );
    assert_eq!(
        rig.caller.texts,
        (0..4).map(|n| format!("{{\"bot\":{n}}}")).collect::<Vec<_>>()
    );
    assert_eq!(rig.messages().len(), 3, "a replayed record is read once");
    rig.caller.say(b"{\"caller\":3}", rig.now);
    rig.run(secs(1));
    assert_eq!(rig.messages()[3..], ["{\"caller\":3}"]);
    assert!(rig.bot.frames > frames + 300, "{} after {frames}", rig.bot.frames);
    let tail = &rig.bot.pcm[rig.bot.pcm.len() - 32_000..];
    assert!(share(tail, 440.0, 16_000) > 0.9);
    let after = &rig.caller.received[from..];
    assert!(after[0].timestamp_us > last_us);
    let gap_us = after[0].timestamp_us - last_us;
    let wall_us = (after[0].at - cut).as_micros() as u64;
    assert!(
        gap_us.abs_diff(wall_us) < 300_000,
        "the clock follows the wall: {gap_us} {wall_us}"
    );
}

#[test]
fn an_outage_of_half_a_minute_ends_the_session() {
    let mut rig = talking();
    rig.is_cut = true;
    let cut = rig.now;
    rig.run_until(|rig| rig.is_gone);
    assert_eq!(rig.left(), Some(LeaveReason::Vanished));
    assert!((secs(30)..secs(40)).contains(&(rig.now - cut)), "{:?}", rig.now - cut);
    assert!(rig.dials.len() < 12, "{:?}", rig.dials);
    assert!(rig.is_clean());
}

#[test]
fn a_caller_may_come_back_through_the_relay() {
    let mut rig = talking();
    rig.caller.retract();
    rig.run(secs(3));
    assert_eq!(rig.times(&SessionEvent::Lost).len(), 1);
    let frames = rig.bot.frames;
    rig.caller.publish();
    rig.run(secs(3));
    assert_eq!(rig.times(&SessionEvent::Restored).len(), 1);
    assert!(rig.bot.frames > frames + 100);
    assert_eq!((rig.messages().len(), rig.dials.len()), (3, 1));
    // Without a caller, the session ends.
    rig.caller.retract();
    rig.run_until(|rig| rig.is_gone);
    assert_eq!(rig.left(), Some(LeaveReason::Left));
    assert!(rig.is_clean());
}

/// A caller that says so does not come back, whether its broadcast is retracted or not.
#[test]
fn a_caller_that_ends_its_session_has_left() {
    for retracts in [true, false] {
        let mut rig = talking();
        rig.caller
            .say(br#"{"label":"moq-transport","type":"session-ending"}"#, rig.now);
        rig.run(Duration::from_millis(100));
        assert_eq!(rig.left(), None);
        if retracts {
            rig.caller.retract();
        }
        let began = rig.now;
        rig.run_until(|rig| rig.left().is_some());
        assert_eq!(rig.left(), Some(LeaveReason::Left));
        assert!(rig.now - began < secs(1));
        rig.run_until(|rig| rig.is_gone);
        assert!(rig.now - began < secs(3));
    }
}

/// A relay that closes the connection is dialled at once.
#[test]
fn a_relay_that_closes_is_dialled_again() {
    let mut rig = talking();
    rig.caller.close(rig.now);
    rig.run(Duration::from_millis(100));
    assert_eq!(rig.times(&SessionEvent::Lost).len(), 1);
    rig.restart_relay();
    rig.run(secs(3));
    assert_eq!(rig.times(&SessionEvent::Restored).len(), 1);
    assert_eq!(rig.dials.len(), 2);
}

/// A session that ends while the relay is lost does not wait for it.
#[test]
fn a_session_may_end_during_an_outage() {
    let mut rig = talking();
    rig.is_cut = true;
    rig.run(secs(10));
    let began = rig.now;
    rig.session.handle_bot_end(LeaveReason::BotEnded, rig.now);
    rig.run_until(|rig| rig.is_gone);
    assert!(rig.now - began < secs(2));
    assert_eq!(rig.left(), Some(LeaveReason::BotEnded));
}

/// After a stall, the deadline of the silence is seen before the datagrams that arrived meanwhile.
#[test]
fn a_stall_of_the_runner_is_no_silence_of_the_caller() {
    for mode in [MoqSessionMode::Serve, MoqSessionMode::Dial] {
        // Before the silence is due, a moment after, and long after.
        for stall in [PEER_LOST_AFTER - secs(1), PEER_LOST_AFTER + ms(1), secs(9)] {
            let mut rig = Rig::connected(mode);
            let now = rig.now;
            rig.caller.write(rig.caller.catalog_track, CATALOG.as_bytes(), now);
            rig.caller.speak(440.0, now);
            rig.run(secs(2));
            let frames = rig.bot.frames;
            rig.stall(stall);
            rig.run(secs(3));
            assert!(rig.times(&SessionEvent::Lost).is_empty(), "{mode:?}, {stall:?}");
            assert!(rig.bot.frames > frames + 100, "{mode:?}, {stall:?}");
            assert!(rig.dials.len() <= 1, "the relay is kept");
            rig.is_cut = true;
            rig.run(PEER_LOST_AFTER + ms(150));
            assert_eq!(rig.times(&SessionEvent::Lost).len(), 1, "{mode:?}, {stall:?}");
        }
    }
}
