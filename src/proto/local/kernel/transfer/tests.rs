//! Cards that lose audio, hang, are unplugged and come back, in virtual time: what the kernel does
//! is a list of answers.

use std::collections::VecDeque;

use super::super::negotiation::CardFormat;
use super::*;
use crate::local::direction::AudioDirection;

const MS: Duration = Duration::from_millis(1);
const FORM: CardForm = CardForm {
    format: CardFormat::S16,
    channels: 2,
    rate_hz: 16_000,
    period_frames: 160,
    buffer_frames: 640,
};
/// Bytes of a frame.
const FRAME: usize = 4;

/// A card that gives these answers in turn, and then the last one again and again. Its time goes on
/// by what each step waits.
struct Rig {
    now: Instant,
    started: Instant,
    answers: VecDeque<CardAnswer>,
    then: CardAnswer,
    prepared: VecDeque<Result<(), CardError>>,
    prepares: usize,
    /// The time at which a chunk of 20 ms comes, one after the other.
    chunk_at: Instant,
    supervision: Supervision,
}

impl Rig {
    fn new(direction: AudioDirection, answers: impl IntoIterator<Item = CardAnswer>) -> Rig {
        let now = Instant::now();
        Rig {
            now,
            started: now,
            answers: answers.into_iter().collect(),
            then: CardAnswer::Pending,
            prepared: VecDeque::new(),
            prepares: 0,
            chunk_at: now,
            supervision: Supervision::new(direction, "kernel:CARD=USB,DEV=0"),
        }
    }

    fn age(&self) -> Duration {
        self.now - self.started
    }

    fn words(&self) -> String {
        self.supervision.describe(&CommandFailure::Card)
    }

    /// Runs a card whose nth read has frames with the sample n. Returns the samples of its PCM, and
    /// why it was closed.
    fn record(&mut self) -> (Vec<i16>, CommandFailure) {
        let (mut samples, mut read) = (Vec::new(), 0_i16);
        let mut recorder = CardRecorder::new(FORM, 16_000, &mut self.supervision, self.now);
        loop {
            match recorder.poll_step(self.now) {
                RecordingStep::Read(buffer) => {
                    let answer = self.answers.pop_front().unwrap_or(self.then.clone());
                    if let CardAnswer::Moved(bytes) = answer {
                        read += 1;
                        let frame = [read.to_le_bytes(), [0x55; 2]].concat();
                        buffer[..bytes].copy_from_slice(&frame.repeat(bytes / FRAME));
                    }
                    recorder.handle_answer(answer, self.now);
                }
                RecordingStep::Pcm(pcm) => {
                    let pairs = pcm.chunks_exact(2);
                    samples.extend(pairs.map(|pair| i16::from_le_bytes([pair[0], pair[1]])));
                }
                RecordingStep::Prepare => {
                    self.prepares += 1;
                    recorder.handle_prepared(self.prepared.pop_front().unwrap_or(Ok(())), self.now);
                }
                RecordingStep::Wait(at) => self.now = at,
                RecordingStep::End(failure) => return (samples, failure),
            }
        }
    }

    /// Runs a card that gets these chunks. Returns what each write offered and when, the bytes that
    /// it took, and why it was closed, if it was.
    fn play(&mut self, chunks: &[Vec<u8>]) -> PlayedCard {
        let mut played = PlayedCard::default();
        let mut chunks = chunks.iter();
        let mut player = CardPlayer::new(FORM, 16_000, &mut self.supervision, self.now);
        loop {
            match player.poll_step(self.now) {
                PlaybackStep::NextChunk => {
                    self.now = self.chunk_at.max(self.now);
                    self.chunk_at += 20 * MS;
                    player.handle_chunk(chunks.next().map(Vec::as_slice), self.now);
                }
                PlaybackStep::Write(frames) => {
                    played.writes.push((self.now - self.started, frames.len()));
                    let answer = self.answers.pop_front().unwrap_or(self.then.clone());
                    let answer = match answer {
                        CardAnswer::Moved(most) => {
                            let taken = frames.len().min(most);
                            played.bytes.extend(&frames[..taken]);
                            CardAnswer::Moved(taken)
                        }
                        answer => answer,
                    };
                    player.handle_answer(answer, self.now);
                }
                PlaybackStep::Prepare => {
                    self.prepares += 1;
                    player.handle_prepared(self.prepared.pop_front().unwrap_or(Ok(())), self.now);
                }
                PlaybackStep::Wait(at) => self.now = at,
                PlaybackStep::Played(at) => {
                    assert_eq!(player.pending(), 0);
                    self.now = at;
                    return played;
                }
                PlaybackStep::End(failure) => {
                    played.failure = Some(failure);
                    return played;
                }
            }
        }
    }
}

#[derive(Default)]
struct PlayedCard {
    writes: Vec<(Duration, usize)>,
    bytes: Vec<u8>,
    failure: Option<CommandFailure>,
}

/// A chunk of mono PCM.
fn chunk(sample: i16, samples: usize) -> Vec<u8> {
    sample.to_le_bytes().repeat(samples)
}

#[test]
fn a_card_that_was_unplugged_has_recorded_until_then_and_says_so() {
    let mut rig = Rig::new(
        AudioDirection::In,
        [
            CardAnswer::Pending,
            CardAnswer::Moved(160 * FRAME),
            CardAnswer::Pending,
            CardAnswer::Moved(3 * FRAME),
            CardAnswer::Failed(CardError::Unplugged),
        ],
    );
    let (samples, failure) = rig.record();
    assert_eq!(samples, [vec![1; 160], vec![2; 3]].concat());
    assert_eq!(failure, CommandFailure::Card);
    // It was asked five times, every 10 ms.
    assert_eq!((rig.age(), rig.supervision.xruns()), (40 * MS, 0));
    assert_eq!(
        rig.words(),
        "`kernel:CARD=USB,DEV=0`: No such device (was the card unplugged?)"
    );
}

/// Audio that was lost is counted, and the card, once it is ready again, is asked at once.
#[test]
fn a_microphone_that_lost_audio_goes_on() {
    let mut rig = Rig::new(
        AudioDirection::In,
        [
            CardAnswer::Moved(10 * FRAME),
            CardAnswer::Xrun,
            CardAnswer::Moved(10 * FRAME),
            CardAnswer::Xrun,
            CardAnswer::Pending,
            CardAnswer::Moved(10 * FRAME),
            CardAnswer::Failed(CardError::Busy),
        ],
    );
    let (samples, _) = rig.record();
    assert_eq!(samples, [vec![1; 10], vec![2; 10], vec![3; 10]].concat());
    assert_eq!((rig.prepares, rig.supervision.xruns()), (2, 2));
    assert_eq!(rig.age(), 40 * MS);
}

#[test]
fn a_card_that_moves_no_audio_is_given_up() {
    let mut never = Rig::new(AudioDirection::In, []);
    assert_eq!(never.record().1, CommandFailure::Hung);
    assert_eq!(never.age(), 5_000 * MS, "it may start slowly");
    let mut stopped = Rig::new(AudioDirection::In, [CardAnswer::Moved(10 * FRAME)]);
    assert_eq!(stopped.record().1, CommandFailure::Hung);
    assert_eq!(stopped.age(), 1_000 * MS);
    let mut full = Rig::new(AudioDirection::Out, [CardAnswer::Moved(640)]);
    let played = full.play(&[chunk(1, 640)]);
    assert_eq!((played.failure, full.age()), (Some(CommandFailure::Hung), 1_000 * MS));
}

#[test]
fn a_card_that_loses_all_audio_is_given_up() {
    for direction in [AudioDirection::In, AudioDirection::Out] {
        let mut rig = Rig::new(direction, []);
        rig.then = CardAnswer::Xrun;
        let failure = match direction {
            AudioDirection::In => Some(rig.record().1),
            AudioDirection::Out => rig.play(&[chunk(1, 640)]).failure,
        };
        assert_eq!(failure, Some(CommandFailure::Loops));
    }
}

/// A card takes what it has room for; what it has not taken when it runs dry is not lost.
#[test]
fn a_loudspeaker_gets_all_frames_in_pieces() {
    let mut rig = Rig::new(
        AudioDirection::Out,
        [
            CardAnswer::Moved(2_400),
            CardAnswer::Pending,
            CardAnswer::Xrun,
            CardAnswer::Moved(100),
        ],
    );
    rig.then = CardAnswer::Moved(4_000);
    let chunks: Vec<_> = (3..8).map(|sample| chunk(sample, 320)).collect();
    let played = rig.play(&chunks);
    let both_channels: Vec<_> = (3..8).flat_map(|sample| chunk(sample, 640)).collect();
    assert_eq!((played.bytes, played.failure), (both_channels, None));
    assert_eq!((rig.prepares, rig.supervision.xruns()), (1, 1));
}

/// A USB card takes what there is at once. With less than 35 ms it would run dry before the next
/// chunk, and again after each underrun.
#[test]
fn a_loudspeaker_starts_with_35_ms() {
    let mut rig = Rig::new(AudioDirection::Out, [CardAnswer::Moved(4_000), CardAnswer::Xrun]);
    rig.then = CardAnswer::Moved(4_000);
    let chunks: Vec<_> = (0..5).map(|sample| chunk(sample, 320)).collect();
    let writes = rig.play(&chunks).writes;
    let size = 320 * FRAME;
    let expected = [
        (20 * MS, 2 * size),
        // It has run dry, and gets nothing until there are two chunks again.
        (40 * MS, size),
        (60 * MS, 2 * size),
        (80 * MS, size),
    ];
    assert_eq!(writes, expected);
}

/// A sentence that is shorter is played too, and its end is waited for.
#[test]
fn a_loudspeaker_without_a_user_plays_what_it_has() {
    let mut rig = Rig::new(AudioDirection::Out, [CardAnswer::Pending, CardAnswer::Moved(4_000)]);
    let played = rig.play(&[chunk(1, 160)]);
    assert_eq!((played.bytes.len(), played.failure), (160 * FRAME, None));
    // The end came with the second chunk, the card took it 10 ms later, and its buffer has 40 ms.
    assert_eq!(rig.age(), (20 + 10 + 40) * MS);
}

#[test]
fn a_card_that_cannot_be_made_ready_has_failed() {
    for direction in [AudioDirection::In, AudioDirection::Out] {
        let mut rig = Rig::new(direction, [CardAnswer::Xrun]);
        rig.prepared.push_back(Err(CardError::Unplugged));
        let failure = match direction {
            AudioDirection::In => Some(rig.record().1),
            AudioDirection::Out => rig.play(&[chunk(1, 640)]).failure,
        };
        assert_eq!(failure, Some(CommandFailure::Card));
        assert_eq!(rig.supervision.last_words(), Some("No such device"));
    }
    // An underrun with little left.
    let answers = [CardAnswer::Moved(620 * FRAME), CardAnswer::Xrun];
    let mut rig = Rig::new(AudioDirection::Out, answers);
    rig.prepared.push_back(Err(CardError::Unplugged));
    let played = rig.play(&[chunk(1, 640)]);
    assert_eq!(
        (played.failure, rig.age()),
        (Some(CommandFailure::Card), Duration::ZERO)
    );
}
