//! Tests of the playout of the sound card.

use super::*;

const MS: Duration = Duration::from_millis(1);

/// An output: chunks by whether they have sound, marks by their name.
#[derive(Debug, PartialEq, Eq, Clone)]
enum Left {
    Chunk(bool),
    Mark(String),
    Started,
    Stopped,
}

fn drain(playout: &mut Playout, now: Instant) -> Vec<Left> {
    let mut left = Vec::new();
    while let Some(output) = playout.poll_output(now) {
        left.push(match output {
            LocalPlayoutOutput::Chunk(pcm) => {
                assert_eq!(pcm.len(), 320);
                Left::Chunk(pcm.iter().any(|sample| *sample != 0))
            }
            LocalPlayoutOutput::Mark(name) => Left::Mark(name),
            LocalPlayoutOutput::SpeechStarted => Left::Started,
            LocalPlayoutOutput::SpeechStopped => Left::Stopped,
        });
    }
    left
}

/// Follows the deadlines until `until`.
fn run(playout: &mut Playout, from: Instant, until: Instant) -> Vec<(Instant, Left)> {
    let (mut left, mut now) = (Vec::new(), from);
    while now < until {
        left.extend(drain(playout, now).into_iter().map(|left| (now, left)));
        now = playout.poll_timeout(now).expect("a stream has no end");
    }
    left
}

#[test]
fn silence_flows_at_the_speed_of_sound() {
    let start = Instant::now();
    let mut playout = Playout::new(16_000);
    let left = run(&mut playout, start, start + Duration::from_secs(10));
    assert!((500..=503).contains(&left.len()), "{}", left.len());
    assert!(left.iter().all(|(_, left)| *left == Left::Chunk(false)));
    let at_once = left.iter().filter(|(at, _)| *at == start).count();
    assert_eq!(at_once, 3, "the card begins with 60 ms");
}

/// Speech in real time leaves at once, and a late chunk of it finds no gap up to 20 ms.
#[test]
fn live_speech_waits_for_no_fuller_queue() {
    let start = Instant::now();
    let mut playout = Playout::new(16_000);
    drain(&mut playout, start);
    for nth in 1..50 {
        let now = start + 20 * MS * nth;
        playout.handle_audio(&[500; 320]);
        let left = drain(&mut playout, now);
        assert_eq!(left.last(), Some(&Left::Chunk(true)), "{nth}");
    }
}

/// A tone is no speech: it begins at once, and neither its start nor its end is reported.
#[test]
fn a_tone_is_played_beside_the_speech() {
    let start = Instant::now();
    let mut playout = Playout::new(16_000);
    playout.add_tone(vec![700; 500]);
    assert_eq!(
        drain(&mut playout, start),
        [Left::Chunk(true), Left::Chunk(true), Left::Chunk(false)]
    );
    assert!(playout.is_played(start) && playout.sound_end().is_none());
}

/// A change of the volume is a slope, not a click.
#[test]
fn the_volume_changes_within_a_chunk() {
    let start = Instant::now();
    let mut playout = Playout::new(16_000);
    playout.handle_audio(&[8_000; 1_280]);
    let mut chunks = Vec::new();
    for gain in [1.0, 0.25, 0.25, 1.0] {
        playout.set_gain(gain);
        loop {
            match playout.poll_output(start + Duration::from_secs(1)) {
                Some(LocalPlayoutOutput::Chunk(pcm)) => break chunks.push(pcm.to_vec()),
                Some(_) => {}
                None => panic!("a chunk is due"),
            }
        }
    }
    assert!(chunks[0].iter().all(|sample| *sample == 8_000));
    let steps = chunks[1].windows(2).map(|pair| pair[0] - pair[1]);
    assert!(steps.clone().all(|step| (15..=25).contains(&step)), "{:?}", steps.max());
    assert_eq!(chunks[1].last(), Some(&2_000));
    assert!(chunks[2].iter().all(|sample| *sample == 2_000));
    assert_eq!(chunks[3].last(), Some(&8_000));
}

/// A mark returns when the loudspeaker has played the speech before it.
#[test]
fn a_mark_returns_when_its_speech_was_played() {
    let start = Instant::now();
    let mut playout = Playout::new(16_000);
    playout.handle_mark("first".into());
    playout.handle_audio(&[500; 480]);
    playout.handle_mark("second".into());
    let left = run(&mut playout, start, start + Duration::from_secs(1));
    let at = |wanted: &Left| left.iter().find(|(_, left)| left == wanted).map(|(at, _)| *at - start);
    assert_eq!(at(&Left::Mark("first".into())), Some(Duration::ZERO));
    assert_eq!(at(&Left::Started), Some(Duration::ZERO));
    assert_eq!(at(&Left::Mark("second".into())), Some(40 * MS));
    assert_eq!(at(&Left::Stopped), Some(40 * MS + SPEECH_HANGOVER));
    assert!(playout.is_played(start + Duration::from_secs(1)));
}

/// Only what the card holds is still played.
#[test]
fn an_interruption_drops_the_queue_and_returns_its_marks() {
    let start = Instant::now();
    let mut playout = Playout::new(16_000);
    let capacity = playout.free_capacity();
    assert_eq!(capacity, 1_600, "100 ms");
    playout.handle_audio(&vec![500; capacity]);
    playout.handle_mark("never".into());
    let left = drain(&mut playout, start);
    assert_eq!(left.iter().filter(|left| **left == Left::Chunk(true)).count(), 4);
    assert_eq!(playout.handle_interruption(), ["never"]);
    assert_eq!(playout.free_capacity(), capacity);
    assert_eq!(drain(&mut playout, start), [Left::Stopped]);
    assert!(!playout.is_played(start) && playout.is_played(start + 80 * MS));
}

/// A card whose clock is slower than ours fills up, and then gets less silence until the lead
/// is right again.
#[test]
fn a_full_card_is_left_to_play() {
    let start = Instant::now();
    let mut playout = Playout::new(16_000);
    drain(&mut playout, start);
    playout.handle_blocked();
    assert_eq!(playout.poll_timeout(start), None);
    playout.handle_audio(&[500; 320]);
    assert_eq!(drain(&mut playout, start + 900 * MS), []);
    let now = start + Duration::from_secs(1);
    playout.handle_writable(160 * MS, now);
    assert_eq!(playout.poll_timeout(now), Some(now + 100 * MS));
    assert_eq!(drain(&mut playout, now + 100 * MS), [Left::Started, Left::Chunk(true)]);
}

/// A card that has run dry gets its whole lead at once.
#[test]
fn an_underrun_is_filled_at_once() {
    let start = Instant::now();
    let mut playout = Playout::new(16_000);
    drain(&mut playout, start);
    assert_eq!(drain(&mut playout, start + 10 * MS), []);
    playout.handle_underrun(Duration::ZERO, start + 10 * MS);
    assert_eq!(drain(&mut playout, start + 10 * MS).len(), 3);
    assert_eq!(playout.counts(), (6, 1));
    // What its program has not read yet need not be written again.
    playout.handle_underrun(40 * MS, start + 10 * MS);
    assert_eq!(drain(&mut playout, start + 10 * MS).len(), 1);
}

/// Sound that stays in the pipe is latency, which the next pause takes away.
#[test]
fn a_backlog_in_the_pipe_is_left_to_drain() {
    let start = Instant::now();
    for (piped, waits) in [(100 * MS, 100 * MS), (BACKLOG_MAX, 20 * MS)] {
        let mut playout = Playout::new(16_000);
        playout.handle_backlog(piped, start);
        run(&mut playout, start, start + BACKLOG_WINDOW / 2);
        // One moment is no backlog.
        playout.handle_backlog(2 * piped, start + BACKLOG_WINDOW / 2);
        run(&mut playout, start + BACKLOG_WINDOW / 2, start + BACKLOG_WINDOW);
        let now = start + BACKLOG_WINDOW;
        drain(&mut playout, now);
        playout.handle_backlog(piped, now);
        assert_eq!(playout.poll_timeout(now), Some(now + waits));
    }
}

#[test]
fn any_rate_of_the_bot_becomes_that_of_the_card() {
    let start = Instant::now();
    let mut playout = Playout::new(16_000);
    playout.set_rate(24_000);
    let (mut said, mut voiced, mut now) = (0, 0, start);
    while now < start + Duration::from_secs(2) {
        let piece = playout.free_capacity().min(24_000 - said);
        playout.handle_audio(&vec![3_000; piece]);
        said += piece;
        voiced += drain(&mut playout, now)
            .iter()
            .filter(|left| **left == Left::Chunk(true))
            .count();
        now = playout.poll_timeout(now).expect("a stream has no end");
    }
    assert!((49..=51).contains(&voiced), "{voiced} chunks for a second");
}
