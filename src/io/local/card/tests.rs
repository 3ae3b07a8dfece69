//! What the kernel says of a card, in virtual time: a list of answers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::*;
use crate::proto::local::kernel::negotiation::CardFormat;

/// An answer of a card to a read or a write.
enum Answer {
    /// The frames of a read.
    Frames(Vec<u8>),
    /// The bytes that a write takes at most.
    Takes(usize),
    Error(Errno),
}

/// A card that gives these answers in turn, and then neither has nor takes anything.
struct Rig {
    form: CardForm,
    answers: VecDeque<Answer>,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Rig {
    fn new(answers: impl IntoIterator<Item = Answer>) -> Rig {
        Rig {
            form: CardForm {
                format: CardFormat::S16,
                channels: 2,
                rate_hz: 16_000,
                period_frames: 160,
                buffer_frames: 640,
            },
            answers: answers.into_iter().collect(),
            written: Arc::default(),
        }
    }

    fn next(&mut self) -> io::Result<Answer> {
        match self.answers.pop_front() {
            Some(Answer::Error(error)) => Err(error.into()),
            Some(answer) => Ok(answer),
            None => Err(Errno::AGAIN.into()),
        }
    }
}

impl OpenCard for Rig {
    fn form(&self) -> CardForm {
        self.form
    }

    fn read(&mut self, frames: &mut [u8]) -> io::Result<usize> {
        match self.next()? {
            Answer::Frames(bytes) => {
                frames[..bytes.len()].copy_from_slice(&bytes);
                Ok(bytes.len())
            }
            Answer::Takes(_) => panic!("a read"),
            Answer::Error(error) => Err(error.into()),
        }
    }

    fn write(&mut self, frames: &[u8]) -> io::Result<usize> {
        match self.next()? {
            Answer::Takes(most) => {
                let taken = frames.len().min(most);
                self.written.lock().expect("one test").extend(&frames[..taken]);
                Ok(taken)
            }
            Answer::Frames(_) => panic!("a write"),
            Answer::Error(error) => Err(error.into()),
        }
    }

    fn prepare(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Frames of two channels, with this sample in the first one.
fn frames(sample: i16, count: usize) -> Answer {
    Answer::Frames([sample.to_le_bytes(), [0x55; 2]].concat().repeat(count))
}

/// Stands for lost audio among samples.
const OVERRUN: i16 = -1;

/// Runs a card that records. Returns the samples, why it ended, and its supervision.
async fn recorded(card: Rig) -> (Vec<i16>, Option<CommandFailure>, Supervision) {
    let (events, mut received) = mpsc::channel(64);
    let mut supervision = Supervision::new(AudioDirection::In, "kernel:CARD=USB,DEV=0");
    let ended = read_frames(card, 16_000, &mut supervision, &events).await;
    drop(events);
    assert!(matches!(received.recv().await, Some(MicrophoneEvent::Started)));
    let mut samples = Vec::new();
    while let Some(event) = received.recv().await {
        match event {
            MicrophoneEvent::Bytes(bytes) => {
                let pairs = bytes.chunks_exact(2);
                samples.extend(pairs.map(|pair| i16::from_le_bytes([pair[0], pair[1]])));
            }
            MicrophoneEvent::Overrun => samples.push(OVERRUN),
            MicrophoneEvent::Started | MicrophoneEvent::Failed => panic!("bytes"),
        }
    }
    (samples, ended, supervision)
}

/// Runs a card that plays these chunks. Returns the bytes that it took, why it ended, how often it
/// ran dry, and its supervision.
async fn played(card: Rig, chunks: &[Vec<u8>]) -> (Vec<u8>, Option<CommandFailure>, usize, Supervision) {
    let written = card.written.clone();
    let (sender, mut received) = mpsc::channel(8);
    for chunk in chunks {
        sender.try_send(chunk.clone()).expect("room");
    }
    drop(sender);
    let (events, mut reported) = mpsc::channel(8);
    let piped = AtomicUsize::default();
    let mut supervision = Supervision::new(AudioDirection::Out, "kernel:CARD=USB,DEV=0");
    let ended = write_frames(card, 16_000, &mut supervision, &mut received, &events, &piped).await;
    drop(events);
    let mut underruns = 0;
    while let Some(event) = reported.recv().await {
        assert!(matches!(event, LoudspeakerEvent::Underrun));
        underruns += 1;
    }
    let bytes = written.lock().expect("one test").clone();
    (bytes, ended, underruns, supervision)
}

/// A chunk of mono PCM.
fn chunk(sample: i16, samples: usize) -> Vec<u8> {
    sample.to_le_bytes().repeat(samples)
}

/// What the kernel says while a card records: nothing yet, a signal, lost audio, a sleep of the
/// machine, and the end.
#[tokio::test(start_paused = true)]
async fn a_microphone_has_recorded_until_it_was_unplugged() {
    let card = Rig::new([
        Answer::Error(Errno::AGAIN),
        frames(7, 160),
        Answer::Error(Errno::INTR),
        frames(8, 3),
        Answer::Error(Errno::PIPE),
        frames(9, 3),
        Answer::Error(Errno::from_raw_os_error(86)),
        frames(10, 3),
        Answer::Error(Errno::NODEV),
    ]);
    let (samples, ended, supervision) = recorded(card).await;
    let expected = [
        vec![7; 160],
        vec![8; 3],
        vec![OVERRUN],
        vec![9; 3],
        vec![OVERRUN],
        vec![10; 3],
    ];
    assert_eq!(samples, expected.concat());
    assert_eq!((ended, supervision.xruns()), (Some(CommandFailure::Card), 2));
    assert_eq!(supervision.last_words(), Some("No such device"));
}

/// Its user learns of an underrun. What the card has not taken then is not lost, and what it has
/// taken is played before it is closed.
#[tokio::test(start_paused = true)]
async fn a_loudspeaker_plays_to_its_end() {
    let card = Rig::new([
        Answer::Takes(2_400),
        Answer::Error(Errno::AGAIN),
        Answer::Error(Errno::PIPE),
        Answer::Takes(100),
        Answer::Takes(4_000),
        Answer::Takes(4_000),
    ]);
    let start = tasks::now();
    let chunks: Vec<_> = (3..8).map(|sample| chunk(sample, 320)).collect();
    let (bytes, ended, underruns, supervision) = played(card, &chunks).await;
    let both_channels: Vec<_> = (3..8).flat_map(|sample| chunk(sample, 640)).collect();
    assert_eq!(bytes, both_channels);
    assert_eq!((ended, underruns, supervision.xruns()), (None, 1, 1));
    assert!(tasks::now() - start >= Duration::from_millis(50));
}

/// The session learns what waits for the card.
#[tokio::test(start_paused = true)]
async fn what_a_loudspeaker_has_not_taken_is_known() {
    let card = Rig::new([Answer::Takes(3 * 4), Answer::Error(Errno::NODEV)]);
    let (sender, mut received) = mpsc::channel(8);
    for _ in 0..2 {
        sender.try_send(chunk(1, 640)).expect("room");
    }
    let (events, _reported) = mpsc::channel(8);
    let piped = AtomicUsize::default();
    let mut supervision = Supervision::new(AudioDirection::Out, "kernel:CARD=USB,DEV=0");
    let ended = write_frames(card, 16_000, &mut supervision, &mut received, &events, &piped).await;
    assert_eq!(ended, Some(CommandFailure::Card));
    // 637 samples of the first chunk, and the second one.
    assert_eq!(piped.load(Relaxed), 2 * (637 + 640));
}

#[test]
fn errors_of_the_kernel_have_words() {
    for (errno, error) in [
        (Errno::NOENT, CardError::Missing),
        (Errno::NXIO, CardError::Missing),
        (Errno::BUSY, CardError::Busy),
        (Errno::AGAIN, CardError::Busy),
        (Errno::NODEV, CardError::Unplugged),
        (Errno::ACCESS, CardError::Denied),
        (Errno::PERM, CardError::Denied),
    ] {
        assert_eq!(card_error(&errno.into()), error);
    }
    assert!(matches!(card_error(&Errno::IO.into()), CardError::Other(words) if !words.is_empty()));
}

/// A machine without the card, and a file that is no card.
#[tokio::test]
async fn a_card_that_is_not_there_is_missing() {
    let card = KernelCard {
        id: "NoSuchCard".to_owned(),
        device: 0,
    };
    for direction in [AudioDirection::In, AudioDirection::Out] {
        assert_eq!(open(&card, direction, 16_000).await.err(), Some(CardError::Missing));
    }
    let file = File::open("/dev/null").expect("a file");
    let refused = exchange::<HW_REFINE>(&file, &mut HwParams::any());
    assert_eq!(refused, Err(Errno::NOTTY));
    let report = play_once(&card, 16_000, &[0; 32], Duration::from_secs(9)).await;
    assert!(report.is_err_and(|report| report.text.contains("There is no such loudspeaker")));
    let report = record_once(&card, 16_000, 32, Duration::from_secs(9)).await;
    assert!(report.is_err_and(|report| report.text.contains("There is no such microphone")));
}
