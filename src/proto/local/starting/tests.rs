//! Tests of how a session at the sound card begins.

use super::*;

const S: Duration = Duration::from_secs(1);
const RATE_HZ: u32 = 16_000;

/// A room: noise at this level.
fn noise(milliseconds: u32, level: i32) -> Vec<i16> {
    let samples = RATE_HZ / 1000 * milliseconds;
    let mut state = 1_u32;
    (0..samples)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 16) as i32 % (2 * level + 1) - level) as i16
        })
        .collect()
}

/// Speech begins a session, and what was said before the detector was sure comes with it.
#[test]
fn speech_begins_a_session_with_its_first_words() {
    let now = Instant::now();
    let mut gate = StartGate::new(LocalStart::Speech, RATE_HZ);
    for _ in 0..20 {
        gate.handle_audio(&noise(100, 30));
        assert_eq!(gate.poll_start(now), None);
    }
    // A click is no speech.
    gate.handle_audio(&noise(50, 8_000));
    gate.handle_audio(&noise(500, 30));
    assert_eq!(gate.poll_start(now), None);
    let speech = noise(150, 8_000);
    gate.handle_audio(&speech);
    let preroll = gate.poll_start(now).expect("a start");
    assert_eq!(preroll.len(), RATE_HZ as usize, "a second");
    assert_eq!(preroll[preroll.len() - speech.len()..], speech);
    assert_eq!(gate.poll_start(now), None, "one start");
}

#[test]
fn the_echo_after_a_session_begins_no_other() {
    let start = Instant::now();
    let mut gate = StartGate::new(LocalStart::Speech, RATE_HZ);
    gate.handle_audio(&noise(2_000, 30));
    gate.handle_session_end(start, SessionEnd::Left(LeaveReason::Left), start + 60 * S);
    gate.handle_audio(&noise(300, 8_000));
    assert_eq!(gate.poll_start(start + 60 * S), None);
    assert_eq!(gate.poll_timeout(), Some(start + 61 * S));
    assert_eq!(gate.poll_start(start + 61 * S), None, "said in the pause");
    gate.handle_audio(&noise(300, 8_000));
    assert!(gate.poll_start(start + 61 * S).is_some());
}

/// A bot that fails at once is not started a hundred times a minute.
#[test]
fn sessions_that_fail_pause_longer_and_longer() {
    let mut now = Instant::now();
    let mut gate = StartGate::new(LocalStart::Always, RATE_HZ);
    assert_eq!(gate.poll_start(now), None, "the microphone is not there");
    let mut pauses = Vec::new();
    for _ in 0..7 {
        gate.handle_audio(&[0; 160]);
        assert!(gate.poll_start(now).is_some());
        gate.handle_session_end(now, SessionEnd::Left(LeaveReason::BotFailed), now);
        let at = gate.poll_timeout().expect("a pause");
        gate.handle_audio(&[0; 160]);
        assert_eq!(gate.poll_start(now), None);
        pauses.push((at - now).as_secs());
        now = at;
    }
    assert_eq!(pauses, [2, 5, 10, 30, 30, 30, 30]);
    gate.handle_audio(&[0; 160]);
    assert!(gate.poll_start(now).is_some());
    gate.handle_session_end(now, SessionEnd::Left(LeaveReason::BotFailed), now + SHORT_SESSION);
    assert_eq!(gate.poll_timeout(), Some(now + SHORT_SESSION + AFTER_SESSION));
}

/// With `always` nothing but the pause delays the next session: a program that ends at once, with
/// whatever code, is not started every second. What the user ends says nothing about the bot.
#[test]
fn short_sessions_that_begin_by_themselves_pause_however_they_end() {
    for reason in LeaveReason::ALL {
        let mut now = Instant::now();
        let mut gate = StartGate::new(LocalStart::Always, RATE_HZ);
        let mut pauses = Vec::new();
        for _ in 0..5 {
            gate.handle_audio(&[0; 160]);
            assert!(gate.poll_start(now).is_some(), "{reason}");
            gate.handle_session_end(now, SessionEnd::Left(reason), now);
            let at = gate.poll_timeout().expect("a pause");
            pauses.push((at - now).as_secs());
            now = at;
        }
        assert_eq!(pauses, [2, 5, 10, 30, 30], "{reason}");
        gate.handle_line();
        assert!(gate.poll_start(now - S).is_some(), "a line does not wait");
        gate.handle_session_end(now, SessionEnd::User, now);
        assert_eq!(gate.poll_timeout(), Some(now + AFTER_SESSION));
    }
}

/// A bot that hangs up, and a wake word that no words follow, are no failures: the next word
/// begins a session as soon as the echo is over.
#[test]
fn short_sessions_that_end_well_do_not_delay_the_next_one() {
    for reason in LeaveReason::ALL {
        let mut now = Instant::now();
        let mut gate = StartGate::new(LocalStart::Wake, RATE_HZ);
        let mut pauses = Vec::new();
        for _ in 0..5 {
            gate.handle_audio(&[0; 160]);
            gate.handle_wake_word(gate.position());
            assert!(gate.poll_start(now).is_some(), "{reason}");
            let end = now + 5 * S;
            gate.handle_session_end(now, SessionEnd::Left(reason), end);
            now = gate.poll_timeout().expect("a pause");
            pauses.push((now - end).as_secs());
        }
        let expected = match reason {
            LeaveReason::BotFailed
            | LeaveReason::Failed
            | LeaveReason::Vanished
            | LeaveReason::NeverConnected
            | LeaveReason::Stalled => [2, 5, 10, 30, 30],
            _ => [1; 5],
        };
        assert_eq!(pauses, expected, "{reason}");
    }
}

/// Who ends the session at the terminal wants no other at once.
#[test]
fn a_session_that_the_user_ended_begins_again_with_a_line() {
    let start = Instant::now();
    let mut gate = StartGate::new(LocalStart::Always, RATE_HZ);
    gate.handle_line();
    gate.handle_audio(&[0; 160]);
    assert!(!gate.waits_for_line() && gate.poll_start(start).is_some());
    gate.handle_session_end(start, SessionEnd::User, start + S);
    gate.handle_audio(&[0; 160]);
    assert!(gate.waits_for_line());
    assert_eq!(gate.poll_start(start + 9 * S), None);
    gate.handle_line();
    assert!(!gate.waits_for_line());
    assert!(gate.poll_start(start + 9 * S).is_some());
}

/// What follows the wake word is there, however late its detection comes; the word is not.
#[test]
fn a_wake_word_begins_a_session_with_what_follows_it() {
    let start = Instant::now();
    let mut gate = StartGate::new(LocalStart::Wake, RATE_HZ);
    assert!(!gate.waits_for_line(), "the microphone runs");
    gate.handle_audio(&noise(5_000, 8_000));
    assert_eq!(gate.poll_start(start), None, "speech is no wake word");
    let word_end = gate.position();
    assert_eq!(word_end, 5 * S);
    let command = noise(300, 9_000);
    gate.handle_audio(&command);
    gate.handle_wake_word(word_end);
    let preroll = gate.poll_start(start).expect("a start");
    assert_eq!(preroll.len(), 16 * 500, "200 ms before, and 300 ms after");
    assert_eq!(preroll[16 * 200..], command);
    assert_eq!(gate.poll_start(start), None, "one start");

    gate.handle_session_end(start, SessionEnd::Left(LeaveReason::Left), start + 60 * S);
    gate.handle_audio(&noise(2_000, 30));
    gate.handle_wake_word(gate.position());
    assert_eq!(gate.poll_start(start + 60 * S), None, "in the pause");
    assert_eq!(gate.poll_start(start + 61 * S), None);
    // A position that is no longer kept, or beyond all audio, is the nearest one.
    for (position, kept_ms) in [(Duration::ZERO, 1_000), (900 * S, 200)] {
        gate.handle_audio(&noise(2_000, 30));
        gate.handle_wake_word(position);
        let preroll = gate.poll_start(start + 62 * S).expect("a start");
        assert_eq!(preroll.len(), 16 * kept_ms, "{position:?}");
    }
    gate.handle_line();
    assert_eq!(gate.poll_start(start + 62 * S), Some(Vec::new()), "by the terminal");
}

/// A user without a terminal and keys has ended the session by a stop word.
#[test]
fn a_session_that_no_one_could_begin_begins_by_itself() {
    let start = Instant::now();
    let mut gate = StartGate::new(LocalStart::Always, RATE_HZ);
    gate.handle_session_end(start, SessionEnd::User, start);
    gate.handle_absent_user();
    gate.handle_audio(&[0; 160]);
    assert!(!gate.waits_for_line() && gate.poll_start(start).is_none(), "the echo");
    assert!(gate.poll_start(start + AFTER_SESSION).is_some());
}

/// A key is not typed by chance: it begins a session of any start, also within a pause.
#[test]
fn a_key_begins_a_session_of_any_start() {
    let start = Instant::now();
    for kind in [
        LocalStart::Always,
        LocalStart::Speech,
        LocalStart::Key,
        LocalStart::Wake,
    ] {
        let mut gate = StartGate::new(kind, RATE_HZ);
        assert_eq!(gate.poll_start(start), None);
        gate.handle_key();
        assert!(!gate.waits_for_line() && gate.poll_start(start).is_some(), "{kind:?}");
        gate.handle_session_end(start, SessionEnd::User, start + 60 * S);
        let end = start + 60 * S;
        assert_eq!(gate.poll_start(end), None, "{kind:?}");
        gate.handle_key();
        assert!(gate.poll_start(end).is_some(), "{kind:?}");
        assert_eq!(gate.poll_start(end), None, "{kind:?}");
    }
}

#[test]
fn a_line_begins_a_session_with_nothing_before_it() {
    let now = Instant::now();
    let mut gate = StartGate::new(LocalStart::Key, RATE_HZ);
    assert!(gate.waits_for_line());
    gate.handle_audio(&noise(2_000, 8_000));
    assert_eq!(gate.poll_start(now), None);
    gate.handle_line();
    assert_eq!(gate.poll_start(now), Some(Vec::new()));
    gate.handle_session_end(now, SessionEnd::Left(LeaveReason::BotFailed), now);
    assert_eq!(gate.poll_start(now), None);
    gate.handle_line();
    assert_eq!(gate.poll_start(now), Some(Vec::new()));
}
