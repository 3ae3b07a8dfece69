//! Cards that lose audio, hang, are unplugged and come back, in virtual time: what the kernel does
//! is a list of answers.

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
    prepared: VecDeque<io::Result<()>>,
    written: Arc<Mutex<Vec<u8>>>,
    /// Whether the last answer is repeated.
    repeats: Option<Errno>,
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
            prepared: VecDeque::new(),
            written: Arc::default(),
            repeats: None,
        }
    }

    fn next(&mut self) -> io::Result<Answer> {
        match self.answers.pop_front() {
            Some(Answer::Error(error)) => Err(error.into()),
            Some(answer) => Ok(answer),
            None => Err(self.repeats.unwrap_or(Errno::AGAIN).into()),
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
        self.prepared.pop_front().unwrap_or(Ok(()))
    }
}

/// Frames of two channels, with this sample in the first one.
fn frames(sample: i16, count: usize) -> Answer {
    Answer::Frames([sample.to_le_bytes(), [0x55; 2]].concat().repeat(count))
}

/// Runs a card that records. Returns the samples, why it ended, and its supervision.
async fn recorded(card: Rig) -> (Vec<i16>, Option<CommandFailure>, Supervision) {
    let (events, mut received) = mpsc::channel(64);
    let mut supervision = Supervision::new(AudioDirection::In, "kernel:CARD=USB,DEV=0");
    let ended = read_frames(card, 16_000, &mut supervision, &events).await;
    drop(events);
    assert!(matches!(received.recv().await, Some(MicrophoneEvent::Started)));
    let mut samples = Vec::new();
    while let Some(event) = received.recv().await {
        let MicrophoneEvent::Bytes(bytes) = event else {
            panic!("bytes");
        };
        let pairs = bytes.chunks_exact(2);
        samples.extend(pairs.map(|pair| i16::from_le_bytes([pair[0], pair[1]])));
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

#[tokio::test(start_paused = true)]
async fn a_card_that_was_unplugged_has_recorded_until_then_and_says_so() {
    let card = Rig::new([
        Answer::Error(Errno::AGAIN),
        frames(7, 160),
        Answer::Error(Errno::AGAIN),
        Answer::Error(Errno::INTR),
        frames(8, 3),
        Answer::Error(Errno::NODEV),
    ]);
    let (samples, ended, supervision) = recorded(card).await;
    assert_eq!(samples, [vec![7; 160], vec![8; 3]].concat());
    assert_eq!((ended, supervision.xruns()), (Some(CommandFailure::Card), 0));
    let words = supervision.describe(&CommandFailure::Card);
    assert_eq!(
        words,
        "`kernel:CARD=USB,DEV=0`: No such device (was the card unplugged?)"
    );
}

/// Audio that was lost is counted, also after a sleep of the machine, and the card goes on.
#[tokio::test(start_paused = true)]
async fn a_microphone_that_lost_audio_goes_on() {
    let suspended = Errno::from_raw_os_error(86);
    let card = Rig::new([
        frames(1, 10),
        Answer::Error(Errno::PIPE),
        Answer::Error(Errno::AGAIN),
        frames(2, 10),
        Answer::Error(suspended),
        frames(3, 10),
        Answer::Error(Errno::IO),
    ]);
    let (samples, ended, supervision) = recorded(card).await;
    assert_eq!(samples, [vec![1; 10], vec![2; 10], vec![3; 10]].concat());
    assert_eq!((ended, supervision.xruns()), (Some(CommandFailure::Card), 2));
}

#[tokio::test(start_paused = true)]
async fn a_card_that_moves_no_audio_is_given_up() {
    let start = tasks::now();
    let (_, ended, _) = recorded(Rig::new([])).await;
    assert_eq!(ended, Some(CommandFailure::Hung));
    let never = tasks::now() - start;
    assert!(never >= Duration::from_secs(5), "it may start slowly: {never:?}");
    let start = tasks::now();
    let (_, ended, _) = recorded(Rig::new([frames(1, 10)])).await;
    assert_eq!(ended, Some(CommandFailure::Hung));
    let stopped = tasks::now() - start;
    assert!(
        stopped >= Duration::from_secs(1) && stopped < Duration::from_secs(2),
        "{stopped:?}"
    );
    let (_, ended, ..) = played(Rig::new([Answer::Takes(640)]), &[chunk(1, 640)]).await;
    assert_eq!(ended, Some(CommandFailure::Hung));
}

#[tokio::test(start_paused = true)]
async fn a_card_that_loses_all_audio_is_given_up() {
    let mut card = Rig::new([]);
    card.repeats = Some(Errno::PIPE);
    let (samples, ended, _) = recorded(card).await;
    assert!(samples.is_empty());
    assert_eq!(ended, Some(CommandFailure::Loops));
    let mut card = Rig::new([]);
    card.repeats = Some(Errno::PIPE);
    let (_, ended, ..) = played(card, &[chunk(1, 320)]).await;
    assert_eq!(ended, Some(CommandFailure::Loops));
}

/// A card takes what it has room for; what it has not taken when it runs dry is not lost.
#[tokio::test(start_paused = true)]
async fn a_loudspeaker_gets_all_frames_in_pieces() {
    let card = Rig::new([
        Answer::Takes(2_400),
        Answer::Error(Errno::AGAIN),
        Answer::Error(Errno::PIPE),
        Answer::Takes(100),
        Answer::Takes(4_000),
        Answer::Takes(4_000),
    ]);
    let chunks: Vec<_> = (3..8).map(|sample| chunk(sample, 320)).collect();
    let (bytes, ended, underruns, supervision) = played(card, &chunks).await;
    let both_channels: Vec<_> = (3..8).flat_map(|sample| chunk(sample, 640)).collect();
    assert_eq!(bytes, both_channels);
    assert_eq!((ended, underruns, supervision.xruns()), (None, 1, 1));
}

/// A USB card takes what there is at once. With less than 35 ms it would run dry before the next
/// chunk, and again after each underrun.
#[tokio::test(start_paused = true)]
async fn a_loudspeaker_starts_with_35_ms() {
    let mut card = Rig::new([Answer::Takes(4_000), Answer::Error(Errno::PIPE), Answer::Takes(4_000)]);
    card.repeats = Some(Errno::AGAIN);
    let written = card.written.clone();
    let (sender, mut received) = mpsc::channel(8);
    let (events, _reported) = mpsc::channel(8);
    let test = async {
        for (nth, taken) in [0, 2 * 1_280, 2 * 1_280, 4 * 1_280].into_iter().enumerate() {
            sender.send(chunk(nth as i16, 320)).await.expect("it plays");
            sleep(Duration::from_millis(20)).await;
            assert_eq!(written.lock().expect("one test").len(), taken, "{nth}");
        }
    };
    let piped = AtomicUsize::default();
    let mut supervision = Supervision::new(AudioDirection::Out, "kernel:CARD=USB,DEV=0");
    tokio::select! {
        _ = write_frames(card, 16_000, &mut supervision, &mut received, &events, &piped) => panic!("it plays"),
        () = test => {}
    }
    assert_eq!(piped.load(Relaxed), 0);
}

/// The rest in the card is played before it is closed.
#[tokio::test(start_paused = true)]
async fn a_loudspeaker_without_a_user_plays_its_buffer() {
    let start = tasks::now();
    let (_, ended, ..) = played(Rig::new([Answer::Takes(4_000)]), &[chunk(1, 160)]).await;
    assert_eq!(ended, None);
    assert!(tasks::now() - start >= Duration::from_millis(40));
}

#[tokio::test(start_paused = true)]
async fn a_card_that_cannot_go_on_has_failed() {
    let mut card = Rig::new([Answer::Error(Errno::PIPE)]);
    card.prepared.push_back(Err(Errno::NODEV.into()));
    let (_, ended, supervision) = recorded(card).await;
    assert_eq!(ended, Some(CommandFailure::Card));
    assert_eq!(supervision.last_words(), Some("No such device"));
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
