//! Commands and cards that work, fail, fall silent and come back, in virtual time.

use super::*;
use crate::local::kernel::CardError;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

fn ended() -> CommandFailure {
    CommandFailure::Ended("exit status: 1".into())
}

/// The log has one line per change, and the pauses grow until the command has proven itself.
#[test]
fn a_failing_command_is_started_again_after_growing_pauses() {
    let start = Instant::now();
    let mut mic = Supervision::new(AudioDirection::In, "arecord");
    let mut retries = Vec::new();
    for _ in 0..5 {
        mic.handle_started(start);
        mic.handle_line("arecord: main:831: audio open error: Device or resource busy", start);
        retries.push(mic.handle_failure(&ended()));
    }
    let pauses: Vec<u64> = retries.iter().map(|retry| retry.after.as_secs()).collect();
    assert_eq!(pauses, [1, 2, 5, 10, 10]);
    assert!(retries[0].is_new && retries[1..].iter().all(|retry| !retry.is_new));
    assert_eq!(
        retries[0].words,
        "no microphone: `arecord` ended (exit status: 1): arecord: main:831: audio open error: Device or resource busy \
         (another program has the card open); next attempt in 1 s"
    );
    mic.handle_started(start);
    assert_eq!(mic.handle_traffic(start + S), Some("the microphone works again".into()));
    assert_eq!(mic.handle_traffic(start + S), None);
    assert_eq!(mic.handle_failure(&ended()).after, 10 * S, "it worked for a second");
    mic.handle_started(start);
    mic.handle_traffic(start + 10 * S);
    let again = mic.handle_failure(&ended());
    assert!(again.after == S && again.is_new);
}

#[test]
fn a_missing_program_is_named_with_what_to_do() {
    let mut mic = Supervision::new(AudioDirection::In, "arecord");
    let words = mic.handle_failure(&CommandFailure::NotFound).words;
    assert!(words.contains("alsa-utils") && words.contains("--local-in"), "{words}");
    let mut own = Supervision::new(AudioDirection::Out, "my-player");
    let words = own.handle_failure(&CommandFailure::NotFound).words;
    assert!(
        words.contains("there is no program `my-player`, which --local-out names"),
        "{words}"
    );
    let words = own.handle_failure(&ended()).words;
    assert!(words.contains("ended (exit status: 1) without a word"), "{words}");
}

/// A card of the kernel fails in the words of ALSA, and so with the same advice.
#[test]
fn a_card_without_a_command_says_what_to_do() {
    let start = Instant::now();
    let mut card = Supervision::new(AudioDirection::Out, "kernel:CARD=USB,DEV=0");
    for (error, advice) in [
        (CardError::Busy, "another program has the card open"),
        (CardError::Missing, "`--local-list` lists them"),
        (CardError::Unplugged, "was the card unplugged?"),
        (CardError::Denied, "the group audio"),
        (CardError::Rate(8_000, 11_025), "--local-rate"),
    ] {
        card.handle_started(start);
        card.handle_line(&error.to_string(), start);
        let words = card.describe(&CommandFailure::Card);
        let begins = format!("`kernel:CARD=USB,DEV=0`: {error}");
        assert!(words.starts_with(&begins) && words.contains(advice), "{words}");
    }
    for _ in 0..=XRUNS_PER_S_MAX {
        card.handle_xrun(start);
    }
    assert_eq!(card.poll_failure(start), Some(CommandFailure::Loops));
    assert!(card.describe(&CommandFailure::Loops).ends_with("loses all audio"));
}

/// Polls a command whenever it asks for that. Returns when it failed, and why.
fn failed(command: &mut Supervision) -> (Instant, CommandFailure) {
    loop {
        let now = command.poll_timeout().expect("it runs");
        if let Some(failure) = command.poll_failure(now) {
            return (now, failure);
        }
    }
}

#[test]
fn a_command_without_traffic_hangs() {
    let start = Instant::now();
    let mut mic = Supervision::new(AudioDirection::In, "arecord");
    assert_eq!((mic.poll_timeout(), mic.poll_failure(start)), (None, None));
    mic.handle_started(start);
    assert_eq!(failed(&mut mic), (start + FIRST_WITHIN, CommandFailure::Hung));
    mic.handle_traffic(start + 10 * S);
    assert_eq!(failed(&mut mic), (start + 11 * S, CommandFailure::Hung));
    mic.handle_failure(&CommandFailure::Hung);
    assert_eq!(mic.poll_timeout(), None);
}

/// A process that was stopped, or whose machine slept, asks late whether a command hangs.
#[test]
fn the_time_of_a_process_that_stood_still_is_not_that_of_a_command() {
    let start = Instant::now();
    let mut mic = Supervision::new(AudioDirection::In, "arecord");
    mic.handle_started(start);
    mic.handle_traffic(start);
    for (nth, stood_still) in [MS, S, 60 * S].into_iter().enumerate() {
        let due = mic.poll_timeout().expect("it runs");
        assert_eq!(mic.poll_failure(due + stood_still), None, "{nth}");
    }
    let awake = mic.poll_timeout().expect("it runs");
    assert_eq!(failed(&mut mic), (awake, CommandFailure::Hung));
}

/// A recorder whose sound server was killed writes "overrun!!!" as fast as it can.
#[test]
fn a_flood_of_lost_audio_is_a_failure_and_a_few_are_not() {
    let start = Instant::now();
    let mut mic = Supervision::new(AudioDirection::In, "arecord");
    mic.handle_started(start);
    for nth in 0..1_000 {
        let now = start + 20 * MS * nth;
        mic.handle_traffic(now);
        assert_eq!(
            mic.handle_line("overrun!!! (at least 12.5 ms long)", now),
            StderrLine::Xrun
        );
        assert_eq!(mic.poll_failure(now), None);
    }
    assert_eq!(mic.xruns(), 1_000);
    for _ in 0..=XRUNS_PER_S_MAX {
        mic.handle_line("overrun!!! (at least 12.5 ms long)", start + 30 * S);
    }
    mic.handle_traffic(start + 30 * S);
    assert_eq!(mic.poll_failure(start + 30 * S), Some(CommandFailure::Loops));
}

/// The pipe of a player takes audio before the player has found its card busy.
#[test]
fn a_player_works_only_after_a_while() {
    let start = Instant::now();
    let mut player = Supervision::new(AudioDirection::Out, "aplay");
    player.handle_failure(&ended());
    player.handle_started(start);
    assert_eq!(player.handle_traffic(start + 499 * MS), None);
    assert_eq!(
        player.handle_traffic(start + 500 * MS),
        Some("the loudspeaker works again".into())
    );
}
