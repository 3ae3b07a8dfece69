//! How sessions end, and why.

use std::time::Duration;

use super::super::*;
use super::world::World;
use crate::audio::tone::{Tone, share};
use crate::limits::SHUTDOWN_GRACE;
use crate::moq::link::LinkClosed;

const BOTH: [MoqSessionMode; 2] = [MoqSessionMode::Serve, MoqSessionMode::Dial];

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The last speech is sent; then come the record, the ends of the tracks, and the close.
#[test]
fn a_bot_that_ends_says_goodbye() {
    for mode in BOTH {
        let mut world = World::connected(mode);
        world.bot.queue.extend(Tone::new(700.0, 24_000).take(12_000));
        world.feed();
        let began = world.now - world.start;
        world.session.handle_bot_end(LeaveReason::BotEnded, world.now);
        world.run_until(|world| world.is_gone);
        assert_eq!(world.left(), Some(LeaveReason::BotEnded));
        let heard = world.caller.pcm(0);
        let spoken = heard.iter().filter(|sample| sample.unsigned_abs() > 500).count();
        assert!(spoken > 16_000 / 2 * 8 / 10, "{spoken} samples of 500 ms");
        assert!(share(&heard[1_600..6_400], 700.0, 16_000) > 0.8);
        let told = world.caller.noted("session-ending").expect("the record");
        assert!(told >= began + ms(480), "after the speech");
        let notes: Vec<_> = world.caller.notes.iter().map(|(_, note)| note.as_str()).collect();
        let ended = world
            .caller
            .noted("audio ended: None")
            .unwrap_or_else(|| panic!("{notes:?}"));
        assert!(ended >= told + ms(240), "{told:?} {ended:?}");
        for note in ["records ended: None", "retracted", "closed"] {
            assert!(world.caller.noted(note) >= Some(ended), "{note}: {notes:?}");
        }
        assert_eq!(
            world.caller.closed,
            Some(LinkClosed::ByPeer {
                code: 0,
                reason: String::new()
            })
        );
        assert!(world.is_clean());
    }
}

#[test]
fn a_shutdown_is_quick() {
    for mode in BOTH {
        for loss_percent in [0, 100] {
            let mut world = World::connected(mode);
            world.bot.queue.extend(Tone::new(700.0, 24_000).take(240_000));
            world.run(secs(1));
            world.is_cut = loss_percent == 100;
            let began = world.now;
            world.session.handle_end(LeaveReason::Shutdown, world.now);
            world.run_until(|world| world.is_gone);
            assert!(world.now - began < SHUTDOWN_GRACE, "{:?}", world.now - began);
            assert_eq!(world.left(), Some(LeaveReason::Shutdown));
            assert_eq!(world.caller.noted("session-ending").is_some(), !world.is_cut);
            assert!(world.is_clean());
        }
    }
}

#[test]
fn a_caller_that_closes_or_retracts_has_left() {
    for closes in [true, false] {
        let mut world = World::connected(MoqSessionMode::Serve);
        world.run(secs(1));
        match closes {
            true => world.caller.close(world.now),
            false => world.caller.retract(),
        }
        world.run_until(|world| world.is_gone);
        assert_eq!(world.left(), Some(LeaveReason::Left));
        assert_eq!(world.caller.noted("session-ending"), None);
        assert!(world.is_clean());
    }
}

#[test]
fn a_silent_caller_is_lost_then_vanished() {
    let mut world = World::connected(MoqSessionMode::Serve);
    world.run(secs(1));
    let cut = world.now - world.start;
    world.is_cut = true;
    world.run(secs(10));
    let lost = world.times(&SessionEvent::Lost);
    assert!(
        lost.len() == 1 && lost[0] <= cut + PEER_LOST_AFTER + ms(150),
        "{lost:?}"
    );
    world.is_cut = false;
    world.run(secs(5));
    assert_eq!(world.times(&SessionEvent::Resumed).len(), 1);
    world.is_cut = true;
    let cut = world.now;
    world.run_until(|world| world.is_gone);
    assert_eq!(world.left(), Some(LeaveReason::Vanished));
    assert!(
        (secs(29)..secs(34)).contains(&(world.now - cut)),
        "{:?}",
        world.now - cut
    );
}

#[test]
fn a_session_without_a_caller_says_how_far_it_came() {
    let mut world = World::new(MoqSessionMode::Serve);
    world.run_until(|world| world.is_gone);
    assert_eq!(world.left(), Some(LeaveReason::NeverConnected));
    assert_eq!(world.ms(), 30_000);
    assert!(world.session.diagnosis().unwrap().contains("no connection arrived"));

    let mut world = World::new(MoqSessionMode::Dial);
    world.caller.publishes = false;
    world.run_until(|world| world.is_gone);
    assert_eq!(
        (world.left(), world.is_ready),
        (Some(LeaveReason::NeverConnected), true)
    );
    let text = world.session.diagnosis().unwrap();
    assert!(text.contains("the relay is connected, but no caller"), "{text}");

    let mut world = World::new(MoqSessionMode::Dial);
    world.is_cut = true;
    world.run_until(|world| world.is_gone);
    assert_eq!(
        (world.left(), world.is_ready),
        (Some(LeaveReason::NeverConnected), false)
    );
    let text = world.session.diagnosis().unwrap();
    assert!(text.contains("not reached: no answer within 5 s"), "{text}");
    assert!(world.is_clean());

    let mut world = World::new(MoqSessionMode::Dial);
    world.dial_error = Some("no address for relay.invalid".to_owned());
    world.run_until(|world| world.is_gone);
    let text = world.session.diagnosis().unwrap();
    assert!(text.contains("no address for relay.invalid"), "{text}");
    let pauses: Vec<_> = world
        .dials
        .windows(2)
        .map(|two| (two[1] - two[0]).as_millis())
        .collect();
    assert_eq!(pauses[..4], [500, 1_000, 2_000, 2_000]);

    let world = World::connected(MoqSessionMode::Serve);
    assert!(world.session.diagnosis().unwrap().contains("catalog has not arrived"));
}

/// A bot that ends while no caller is there ends at once.
#[test]
fn a_bot_may_end_before_its_caller_comes() {
    for mode in BOTH {
        let mut world = World::new(mode);
        world.caller.publishes = false;
        world.run(secs(1));
        let began = world.now;
        world.session.handle_bot_end(LeaveReason::BotEnded, world.now);
        world.run_until(|world| world.is_gone);
        assert!(world.now - began < secs(2));
        assert_eq!(world.left(), Some(LeaveReason::BotEnded));
        assert!(world.is_clean());
    }
}
