//! How sessions end, and why.

use std::time::Duration;

use super::super::*;
use super::rig::Rig;
use crate::audio::tone::{Tone, share};
use crate::limits::{CONNECT_WITHIN, SHUTDOWN_GRACE};
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
        let mut rig = Rig::connected(mode);
        rig.bot.queue.extend(Tone::new(700.0, 24_000).take(12_000));
        rig.feed();
        let began = rig.now - rig.start;
        rig.session.handle_bot_end(LeaveReason::BotEnded, rig.now);
        rig.run_until(|rig| rig.is_gone);
        assert_eq!(rig.left(), Some(LeaveReason::BotEnded));
        let received = rig.caller.pcm(0);
        let spoken = received.iter().filter(|sample| sample.unsigned_abs() > 500).count();
        assert!(spoken > 16_000 / 2 * 8 / 10, "{spoken} samples of 500 ms");
        assert!(share(&received[1_600..6_400], 700.0, 16_000) > 0.8);
        let reported = rig.caller.noted("session-ending").expect("the record");
        assert!(reported >= began + ms(480), "after the speech");
        let notes: Vec<_> = rig.caller.notes.iter().map(|(_, note)| note.as_str()).collect();
        let ended = rig
            .caller
            .noted("audio ended: None")
            .unwrap_or_else(|| panic!("{notes:?}"));
        assert!(ended >= reported + ms(240), "{reported:?} {ended:?}");
        for note in ["records ended: None", "retracted", "closed"] {
            assert!(rig.caller.noted(note) >= Some(ended), "{note}: {notes:?}");
        }
        assert_eq!(
            rig.caller.closed,
            Some(LinkClosed::ByPeer {
                code: 0,
                reason: String::new()
            })
        );
        assert!(rig.is_clean());
    }
}

#[test]
fn a_shutdown_is_quick() {
    for mode in BOTH {
        for loss_percent in [0, 100] {
            let mut rig = Rig::connected(mode);
            rig.bot.queue.extend(Tone::new(700.0, 24_000).take(240_000));
            rig.run(secs(1));
            rig.is_cut = loss_percent == 100;
            let began = rig.now;
            rig.session.handle_end(LeaveReason::Shutdown, rig.now);
            rig.run_until(|rig| rig.is_gone);
            assert!(rig.now - began < SHUTDOWN_GRACE, "{:?}", rig.now - began);
            assert_eq!(rig.left(), Some(LeaveReason::Shutdown));
            assert_eq!(rig.caller.noted("session-ending").is_some(), !rig.is_cut);
            assert!(rig.is_clean());
        }
    }
}

#[test]
fn a_caller_that_closes_or_retracts_has_left() {
    for closes in [true, false] {
        let mut rig = Rig::connected(MoqSessionMode::Serve);
        rig.run(secs(1));
        match closes {
            true => rig.caller.close(rig.now),
            false => rig.caller.retract(),
        }
        rig.run_until(|rig| rig.is_gone);
        assert_eq!(rig.left(), Some(LeaveReason::Left));
        assert_eq!(rig.caller.noted("session-ending"), None);
        assert!(rig.is_clean());
    }
}

#[test]
fn a_silent_caller_is_lost_then_vanished() {
    let mut rig = Rig::connected(MoqSessionMode::Serve);
    rig.run(secs(1));
    let cut = rig.now - rig.start;
    rig.is_cut = true;
    rig.run(secs(10));
    let lost = rig.times(&SessionEvent::Lost);
    assert!(
        lost.len() == 1 && lost[0] <= cut + PEER_LOST_AFTER + ms(150),
        "{lost:?}"
    );
    rig.is_cut = false;
    rig.run(secs(5));
    assert_eq!(rig.times(&SessionEvent::Restored).len(), 1);
    rig.is_cut = true;
    let cut = rig.now;
    rig.run_until(|rig| rig.is_gone);
    assert_eq!(rig.left(), Some(LeaveReason::Vanished));
    assert!((secs(29)..secs(34)).contains(&(rig.now - cut)), "{:?}", rig.now - cut);
}

#[test]
fn a_session_without_a_caller_says_how_far_it_came() {
    let mut rig = Rig::new(MoqSessionMode::Serve);
    rig.run_until(|rig| rig.is_gone);
    assert_eq!(rig.left(), Some(LeaveReason::NeverConnected));
    assert_eq!(rig.ms(), 30_000);
    assert!(rig.session.diagnosis().unwrap().contains("no connection arrived"));

    let mut rig = Rig::new(MoqSessionMode::Dial);
    rig.caller.publishes = false;
    rig.run_until(|rig| rig.is_gone);
    assert_eq!((rig.left(), rig.is_ready), (Some(LeaveReason::NeverConnected), true));
    let text = rig.session.diagnosis().unwrap();
    assert!(text.contains("the relay is connected, but no caller"), "{text}");

    let mut rig = Rig::new(MoqSessionMode::Dial);
    rig.is_cut = true;
    rig.run_until(|rig| rig.is_gone);
    assert_eq!((rig.left(), rig.is_ready), (Some(LeaveReason::NeverConnected), false));
    let text = rig.session.diagnosis().unwrap();
    assert!(text.contains("not reached: no answer within 5 s"), "{text}");
    assert!(rig.is_clean());

    let mut rig = Rig::new(MoqSessionMode::Dial);
    rig.dial_error = Some("no address for relay.invalid".to_owned());
    rig.run_until(|rig| rig.is_gone);
    let text = rig.session.diagnosis().unwrap();
    assert!(text.contains("no address for relay.invalid"), "{text}");
    let pauses: Vec<_> = rig.dials.windows(2).map(|two| (two[1] - two[0]).as_millis()).collect();
    assert_eq!(pauses[..4], [500, 1_000, 2_000, 2_000]);

    let rig = Rig::connected(MoqSessionMode::Serve);
    assert!(rig.session.diagnosis().unwrap().contains("catalog has not arrived"));
}

/// A caller who comes after the end of the bot is told; one who does not come keeps the session for
/// a short time.
#[test]
fn a_bot_may_end_before_its_caller_comes() {
    for mode in BOTH {
        let mut rig = Rig::new(mode);
        rig.session.handle_bot_end(LeaveReason::BotEnded, rig.now);
        rig.call();
        rig.run_until(|rig| rig.is_gone);
        assert_eq!(rig.left(), Some(LeaveReason::BotEnded));
        assert!(rig.caller.noted("session-ending").is_some(), "{:?}", rig.caller.notes);
        assert!(rig.is_clean());

        let mut rig = Rig::new(mode);
        rig.caller.publishes = false;
        rig.run(secs(1));
        let began = rig.now;
        rig.session.handle_bot_end(LeaveReason::BotEnded, rig.now);
        rig.run_until(|rig| rig.is_gone);
        assert!((CONNECT_WITHIN..CONNECT_WITHIN + secs(2)).contains(&(rig.now - began)));
        assert_eq!(rig.left(), Some(LeaveReason::BotEnded));
        assert!(rig.is_clean());
    }
}
