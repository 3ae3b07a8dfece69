//! Tests of the pacer of a sound card, on a clock of their own.

use super::*;

const MS: Duration = Duration::from_millis(1);
const PTIME: Duration = Duration::from_millis(20);
const CALL: ChunkFormat = ChunkFormat {
    rate_hz: 8_000,
    chunk: 160,
    multiple: 1,
    lead: Duration::from_millis(200),
};

/// An output and its time after the start: chunks by their length, marks by their name.
#[derive(Debug, PartialEq, Eq, Clone)]
enum Left {
    Chunk(usize),
    Mark(String),
    Started,
    Stopped,
}

fn drain(pacer: &mut PlayoutPacer, now: Instant, left: &mut Vec<(Instant, Left)>) {
    while let Some(output) = pacer.poll_output(now) {
        let output = match output {
            PlayoutOutput::Chunk(pcm) => Left::Chunk(pcm.len()),
            PlayoutOutput::Mark(name) => Left::Mark(name),
            PlayoutOutput::SpeechStarted => Left::Started,
            PlayoutOutput::SpeechStopped => Left::Stopped,
        };
        left.push((now, output));
    }
}

/// Queues a long speech as the queue has capacity, from deadline to deadline, until all was
/// played.
fn say(pacer: &mut PlayoutPacer, samples: usize, start: Instant) -> Vec<(Instant, Left)> {
    let (mut left, mut rest, mut now) = (Vec::new(), samples, start);
    loop {
        let piece = rest.min(pacer.free_capacity());
        pacer.handle_audio(&vec![1_000; piece], now);
        rest -= piece;
        drain(pacer, now, &mut left);
        if rest > 0 && pacer.free_capacity() > 0 {
            continue;
        }
        match pacer.poll_timeout() {
            Some(at) => now = at,
            None => return left,
        }
    }
}

fn chunks(left: &[(Instant, Left)]) -> Vec<(Instant, usize)> {
    let chunk = |(at, left): &(Instant, Left)| match left {
        Left::Chunk(samples) => Some((*at, *samples)),
        _ => None,
    };
    left.iter().filter_map(chunk).collect()
}

/// The far end never holds more than the lead and one chunk, and every deadline is the start
/// plus whole chunks.
#[test]
fn a_long_speech_leaves_at_playout_speed() {
    let start = Instant::now();
    let left = say(&mut PlayoutPacer::new(CALL), 8_000 * 10, start);
    let chunks = chunks(&left);
    assert_eq!(chunks.len(), 500);
    for (nth, (at, samples)) in chunks.iter().enumerate() {
        assert_eq!(*samples, 160);
        // The first eleven fill the lead; each further one leaves when a chunk of the lead
        // starts to play.
        let due = start + PTIME * u32::try_from(nth).expect("few").saturating_sub(10);
        assert_eq!(*at, due, "chunk {nth}");
    }
    assert_eq!(left.first().map(|(_, left)| left), Some(&Left::Started));
    let (stopped, last) = left.last().expect("something left");
    assert_eq!(*last, Left::Stopped);
    assert_eq!(*stopped, start + Duration::from_secs(10) + SPEECH_HANGOVER);
}

/// Real-time input leaves at once: the pacer does not wait for a fuller chunk.
#[test]
fn live_frames_are_not_delayed() {
    let start = Instant::now();
    let mut pacer = PlayoutPacer::new(CALL);
    for nth in 0..100 {
        let now = start + PTIME * nth;
        pacer.handle_audio(&[500; 160], now);
        let mut left = Vec::new();
        drain(&mut pacer, now, &mut left);
        assert_eq!(chunks(&left), [(now, 160)]);
    }
}

/// The rest of an utterance waits for more speech, and is then padded to the provider's
/// multiple.
#[test]
fn pads_the_last_chunk() {
    let start = Instant::now();
    let cut = ChunkFormat {
        chunk: 1_600,
        multiple: 160,
        ..CALL
    };
    let mut pacer = PlayoutPacer::new(cut);
    let left = say(&mut pacer, 1_600 + 170, start);
    assert_eq!(chunks(&left), [(start, 1_600), (start + UTTERANCE_REST_WAIT, 320)]);
    // Speech that arrives within that time continues the utterance.
    pacer.handle_audio(&[1; 800], start);
    pacer.handle_audio(&[1; 800], start + UTTERANCE_REST_WAIT - MS);
    let mut left = Vec::new();
    drain(&mut pacer, start + UTTERANCE_REST_WAIT - MS, &mut left);
    assert_eq!(
        chunks(&left).iter().map(|(_, samples)| *samples).collect::<Vec<_>>(),
        [1_600]
    );
}

/// After a pause, speech leaves at once, and the pacer does not catch up.
#[test]
fn speech_after_a_pause_leaves_at_once() {
    let start = Instant::now();
    let mut pacer = PlayoutPacer::new(CALL);
    say(&mut pacer, 8_000, start);
    let later = start + Duration::from_secs(60);
    let left = say(&mut pacer, 8_000, later);
    assert_eq!(left[0], (later, Left::Started));
    let at_once = chunks(&left).iter().filter(|(at, _)| *at == later).count();
    assert_eq!(at_once, 11);
}

#[test]
fn an_interruption_drops_all_queued_speech() {
    let start = Instant::now();
    let mut pacer = PlayoutPacer::new(CALL);
    let mut left = Vec::new();
    pacer.handle_audio(&[1; 160 * 11], start);
    drain(&mut pacer, start, &mut left);
    pacer.handle_audio(&[1; 700], start);
    pacer.handle_mark("never".into());
    assert_eq!(pacer.handle_interruption(), ["never"]);
    left.clear();
    drain(&mut pacer, start, &mut left);
    assert_eq!(left, [(start, Left::Stopped)]);
    assert_eq!((pacer.poll_timeout(), pacer.is_sent()), (None, true));
    // The far end was cleared, so the lead is free again.
    pacer.handle_audio(&[1; 160], start);
    left.clear();
    drain(&mut pacer, start, &mut left);
    assert_eq!(left, [(start, Left::Started), (start, Left::Chunk(160))]);
}

/// A mark leaves after the speech before it and before the speech after it.
#[test]
fn marks_keep_their_place() {
    let start = Instant::now();
    let mut pacer = PlayoutPacer::new(CALL);
    let mut left = Vec::new();
    pacer.handle_mark("first".into());
    pacer.handle_audio(&[1; 320], start);
    pacer.handle_mark("second".into());
    pacer.handle_audio(&[1; 160], start);
    drain(&mut pacer, start, &mut left);
    let order: Vec<Left> = left.into_iter().map(|(_, left)| left).collect();
    let mark = |name: &str| Left::Mark(name.into());
    let chunk = Left::Chunk(160);
    assert_eq!(
        order,
        [
            mark("first"),
            Left::Started,
            chunk.clone(),
            chunk.clone(),
            mark("second"),
            chunk
        ]
    );
}

/// Digital silence is sent, and does not count as speech.
#[test]
fn silence_is_not_speech() {
    let start = Instant::now();
    let mut pacer = PlayoutPacer::new(CALL);
    let mut left = Vec::new();
    pacer.handle_audio(&[0; 320], start);
    drain(&mut pacer, start, &mut left);
    assert_eq!(left, [(start, Left::Chunk(160)), (start, Left::Chunk(160))]);
}

#[test]
fn a_full_queue_accepts_nothing() {
    let start = Instant::now();
    let mut pacer = PlayoutPacer::new(CALL);
    let free_capacity = pacer.free_capacity();
    assert_eq!(free_capacity, 800, "100 ms");
    pacer.handle_audio(&vec![1; free_capacity], start);
    assert_eq!(pacer.free_capacity(), 0);
    let wide = PlayoutPacer::new(ChunkFormat { chunk: 1_600, ..CALL });
    assert_eq!(wide.free_capacity(), 3_200, "two messages");
}
