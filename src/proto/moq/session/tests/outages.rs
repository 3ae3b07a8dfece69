//! Dial mode: the relay or the caller behind it is lost, and comes back.

use std::time::Duration;

use super::super::*;
use super::caller::CATALOG;
use super::world::World;
use crate::audio::tone::share;
use crate::limits::PEER_LOST_AFTER;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A call that has exchanged audio and records.
fn talking() -> World {
    let mut world = World::connected(MoqSessionMode::Dial);
    let now = world.now;
    world.caller.write(world.caller.catalog_track, CATALOG.as_bytes(), now);
    world.caller.speak(440.0, now);
    for n in 0..3 {
        world.caller.say(format!("{{\"caller\":{n}}}").as_bytes(), now);
        world.session.handle_message(format!("{{\"bot\":{n}}}"));
    }
    world.run(secs(2));
    assert_eq!((world.messages().len(), world.caller.texts.len()), (3, 3));
    world
}

/// A relay that is killed is noticed long before QUIC's idle time; the log is replayed in both
/// directions, and each record is read once.
#[test]
fn a_restarted_relay_is_dialled_again() {
    let mut world = talking();
    let (cut, frames) = (world.now - world.start, world.bot.frames);
    let last_us = world
        .caller
        .heard
        .iter()
        .map(|packet| packet.timestamp_us)
        .max()
        .unwrap();
    let from = world.caller.heard.len();
    world.restart_relay();
    world.session.handle_message("{\"bot\":3}".to_owned());
    world.run(secs(15));
    let (lost, resumed) = (world.times(&SessionEvent::Lost), world.times(&SessionEvent::Resumed));
    assert_eq!((lost.len(), resumed.len()), (1, 1));
    assert!(
        lost[0] < cut + secs(7) && resumed[0] < lost[0] + secs(2),
        "{cut:?} {lost:?} {resumed:?}"
    );
    assert_eq!(
        world.caller.texts,
        (0..4).map(|n| format!("{{\"bot\":{n}}}")).collect::<Vec<_>>()
    );
    assert_eq!(world.messages().len(), 3, "a replayed record is read once");
    world.caller.say(b"{\"caller\":3}", world.now);
    world.run(secs(1));
    assert_eq!(world.messages()[3..], ["{\"caller\":3}"]);
    assert!(world.bot.frames > frames + 300, "{} after {frames}", world.bot.frames);
    let tail = &world.bot.pcm[world.bot.pcm.len() - 32_000..];
    assert!(share(tail, 440.0, 16_000) > 0.9);
    let after = &world.caller.heard[from..];
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
    let mut world = talking();
    world.is_cut = true;
    let cut = world.now;
    world.run_until(|world| world.is_gone);
    assert_eq!(world.left(), Some(LeaveReason::Vanished));
    assert!(
        (secs(30)..secs(40)).contains(&(world.now - cut)),
        "{:?}",
        world.now - cut
    );
    assert!(world.dials.len() < 12, "{:?}", world.dials);
    assert!(world.is_clean());
}

#[test]
fn a_caller_may_come_back_through_the_relay() {
    let mut world = talking();
    world.caller.retract();
    world.run(secs(3));
    assert_eq!(world.times(&SessionEvent::Lost).len(), 1);
    let frames = world.bot.frames;
    world.caller.publish();
    world.run(secs(3));
    assert_eq!(world.times(&SessionEvent::Resumed).len(), 1);
    assert!(world.bot.frames > frames + 100);
    assert_eq!((world.messages().len(), world.dials.len()), (3, 1));
    // Without a caller, the session ends.
    world.caller.retract();
    world.run_until(|world| world.is_gone);
    assert_eq!(world.left(), Some(LeaveReason::Left));
    assert!(world.is_clean());
}

/// A caller that says so does not come back, whether its broadcast is retracted or not.
#[test]
fn a_caller_that_ends_its_session_has_left() {
    for retracts in [true, false] {
        let mut world = talking();
        world
            .caller
            .say(br#"{"label":"moq-transport","type":"session-ending"}"#, world.now);
        world.run(Duration::from_millis(100));
        assert_eq!(world.left(), None);
        if retracts {
            world.caller.retract();
        }
        let began = world.now;
        world.run_until(|world| world.left().is_some());
        assert_eq!(world.left(), Some(LeaveReason::Left));
        assert!(world.now - began < secs(1));
        world.run_until(|world| world.is_gone);
        assert!(world.now - began < secs(3));
    }
}

/// A relay that closes the connection is dialled at once.
#[test]
fn a_relay_that_closes_is_dialled_again() {
    let mut world = talking();
    world.caller.close(world.now);
    world.run(Duration::from_millis(100));
    assert_eq!(world.times(&SessionEvent::Lost).len(), 1);
    world.restart_relay();
    world.run(secs(3));
    assert_eq!(world.times(&SessionEvent::Resumed).len(), 1);
    assert_eq!(world.dials.len(), 2);
}

/// A session that ends while the relay is lost does not wait for it.
#[test]
fn a_session_may_end_during_an_outage() {
    let mut world = talking();
    world.is_cut = true;
    world.run(secs(10));
    let began = world.now;
    world.session.handle_bot_end(LeaveReason::BotEnded, world.now);
    world.run_until(|world| world.is_gone);
    assert!(world.now - began < secs(2));
    assert_eq!(world.left(), Some(LeaveReason::BotEnded));
}

/// After a stall, the deadline of the silence is seen before the datagrams that arrived meanwhile.
#[test]
fn a_stall_of_the_runner_is_no_silence_of_the_caller() {
    for mode in [MoqSessionMode::Serve, MoqSessionMode::Dial] {
        // Before the silence is due, a moment after, and long after.
        for stall in [PEER_LOST_AFTER - secs(1), PEER_LOST_AFTER + ms(1), secs(9)] {
            let mut world = World::connected(mode);
            let now = world.now;
            world.caller.write(world.caller.catalog_track, CATALOG.as_bytes(), now);
            world.caller.speak(440.0, now);
            world.run(secs(2));
            let frames = world.bot.frames;
            world.stall(stall);
            world.run(secs(3));
            assert!(world.times(&SessionEvent::Lost).is_empty(), "{mode:?}, {stall:?}");
            assert!(world.bot.frames > frames + 100, "{mode:?}, {stall:?}");
            assert!(world.dials.len() <= 1, "the relay is kept");
            world.is_cut = true;
            world.run(PEER_LOST_AFTER + ms(150));
            assert_eq!(world.times(&SessionEvent::Lost).len(), 1, "{mode:?}, {stall:?}");
        }
    }
}
