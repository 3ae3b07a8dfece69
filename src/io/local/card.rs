//! Sound cards that are opened without ALSA's programs.
//!
//! In: a card of the kernel, and the rate of PCM. Out: what `commands` has of a command: bytes of
//! mono PCM, what happens to the loudspeaker, and why it failed. `transfer` of the core says when a
//! card is asked whether it has or takes frames. It could be waited for, but it reports lost audio
//! as an error of its file, which tokio keeps as the end of that file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::ioctl::{NoArg, Opcode, Updater, ioctl, opcode};
use tokio::sync::mpsc;
use tokio::time::{sleep_until, timeout};

use super::device_events::{LoudspeakerEvent, MicrophoneEvent};
use crate::io::tasks;
use crate::proto::local::direction::AudioDirection;
use crate::proto::local::kernel::negotiation::{CardForm, negotiate};
use crate::proto::local::kernel::params::{HwParams, IOCTL_GROUP, IOCTL_HW_PARAMS, IOCTL_HW_REFINE, IOCTL_PREPARE};
use crate::proto::local::kernel::transfer::{CardAnswer, CardPlayer, CardRecorder, PlaybackStep, RecordingStep};
use crate::proto::local::kernel::{CardError, KernelCard};
use crate::proto::local::listing::{self, CardAccess, SoundCard};
use crate::proto::local::sound_test::SoundReport;
use crate::proto::local::supervision::{CommandFailure, Supervision};

/// Pieces and events of a test that wait.
const EVENTS_MAX: usize = 16;

const HW_REFINE: Opcode = opcode::read_write::<HwParams>(IOCTL_GROUP, IOCTL_HW_REFINE);
const HW_PARAMS: Opcode = opcode::read_write::<HwParams>(IOCTL_GROUP, IOCTL_HW_PARAMS);
const PREPARE: Opcode = opcode::none(IOCTL_GROUP, IOCTL_PREPARE);

/// Returns the cards of the kernel.
pub fn cards() -> Vec<SoundCard> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    listing::cards(&read("/proc/asound/cards"), &read("/proc/asound/pcm"), access)
}

/// Returns whether this user may use a card: ALSA opens its control file first.
fn access(card: u32) -> CardAccess {
    match fs::File::open(format!("/dev/snd/controlC{card}")) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => CardAccess::Denied,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => CardAccess::Hidden,
        _ => CardAccess::Allowed,
    }
}

/// An open device of a card, which never blocks.
trait OpenCard: Send {
    fn form(&self) -> CardForm;

    /// Reads whole frames. The first call starts the card.
    fn read(&mut self, frames: &mut [u8]) -> io::Result<usize>;

    /// Writes whole frames. The first call starts the card.
    fn write(&mut self, frames: &[u8]) -> io::Result<usize>;

    /// Makes a card ready again that has lost audio.
    fn prepare(&mut self) -> io::Result<()>;
}

/// A device of the kernel.
struct CardFile {
    file: File,
    form: CardForm,
}

impl CardFile {
    /// Opens a device, which may take some 100 ms.
    fn open(card: &KernelCard, direction: AudioDirection, rate_hz: u32) -> Result<CardFile, CardError> {
        let path = card.path(&cards(), direction).ok_or(CardError::Missing)?;
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32);
        let file = options.open(path).map_err(|error| card_error(&error))?;
        let mut params = negotiate(rate_hz, &mut |params| match exchange::<HW_REFINE>(&file, params) {
            Ok(()) => Ok(true),
            Err(Errno::INVAL) => Ok(false),
            Err(error) => Err(card_error(&error.into())),
        })?;
        exchange::<HW_PARAMS>(&file, &mut params).map_err(|error| card_error(&error.into()))?;
        let form = CardForm::of(&params)?;
        let mut card = CardFile { file, form };
        card.prepare().map_err(|error| card_error(&error))?;
        Ok(card)
    }
}

impl OpenCard for CardFile {
    fn form(&self) -> CardForm {
        self.form
    }

    fn read(&mut self, frames: &mut [u8]) -> io::Result<usize> {
        self.file.read(frames)
    }

    fn write(&mut self, frames: &[u8]) -> io::Result<usize> {
        self.file.write(frames)
    }

    fn prepare(&mut self) -> io::Result<()> {
        // SAFETY: this call of the PCM interface has no argument, and touches no memory of ours.
        unsafe { ioctl(&self.file, NoArg::<PREPARE>::new()) }.map_err(io::Error::from)
    }
}

/// Asks a card what it has of these ranges, or sets it.
fn exchange<const OPCODE: Opcode>(file: &File, params: &mut HwParams) -> rustix::io::Result<()> {
    // SAFETY: both calls read and write one `struct snd_pcm_hw_params`, whose size is in the
    // number of the call, and which `HwParams` has the layout of. Every value of its fields is one.
    unsafe { ioctl(file, Updater::<OPCODE, HwParams>::new(params)) }
}

/// Returns what an error of a card means. The words of the system differ between C libraries.
fn card_error(error: &io::Error) -> CardError {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::NXIO) => CardError::Missing,
        // It waits for its turn, if it may.
        Some(Errno::BUSY | Errno::AGAIN) => CardError::Busy,
        Some(Errno::NODEV) => CardError::Unplugged,
        Some(Errno::ACCESS | Errno::PERM) => CardError::Denied,
        _ => CardError::Other(error.to_string()),
    }
}

/// Returns what the result of a read or a write means.
fn answer(result: io::Result<usize>) -> CardAnswer {
    // ESTRPIPE, which only Linux has.
    const SUSPENDED: i32 = 86;
    match result {
        Ok(bytes) => CardAnswer::Moved(bytes),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            CardAnswer::Pending
        }
        Err(error) if Errno::from_io_error(&error) == Some(Errno::PIPE) => CardAnswer::Xrun,
        Err(error) if error.raw_os_error() == Some(SUSPENDED) => CardAnswer::Xrun,
        Err(error) => CardAnswer::Failed(card_error(&error)),
    }
}

/// Returns why a card is not opened, with the words for the log.
fn failure(supervision: &mut Supervision, error: &CardError) -> CommandFailure {
    supervision.handle_line(&error.to_string(), tasks::now());
    CommandFailure::Card
}

async fn open(card: &KernelCard, direction: AudioDirection, rate_hz: u32) -> Result<CardFile, CardError> {
    let card = card.clone();
    let opened = tasks::blocking(move || CardFile::open(&card, direction, rate_hz)).await;
    let opened = opened.unwrap_or_else(|error| Err(CardError::Other(error.to_string())))?;
    log::debug!("{direction:?} is set to {:?}", opened.form);
    Ok(opened)
}

/// Passes on what a card records, at a rate in Hz. Returns `None` when its user is gone.
pub async fn record(
    card: &KernelCard,
    rate_hz: u32,
    supervision: &mut Supervision,
    events: &mpsc::Sender<MicrophoneEvent>,
) -> Option<CommandFailure> {
    match open(card, AudioDirection::In, rate_hz).await {
        Ok(card) => read_frames(card, rate_hz, supervision, events).await,
        Err(error) => Some(failure(supervision, &error)),
    }
}

async fn read_frames(
    mut card: impl OpenCard,
    rate_hz: u32,
    supervision: &mut Supervision,
    events: &mpsc::Sender<MicrophoneEvent>,
) -> Option<CommandFailure> {
    let mut recorder = CardRecorder::new(card.form(), rate_hz, supervision, tasks::now());
    events.send(MicrophoneEvent::Started).await.ok()?;
    loop {
        match recorder.poll_step(tasks::now()) {
            RecordingStep::Read(buffer) => {
                let answer = answer(card.read(buffer));
                recorder.handle_answer(answer, tasks::now());
            }
            RecordingStep::Pcm(pcm) => events.send(MicrophoneEvent::Bytes(pcm)).await.ok()?,
            RecordingStep::Prepare => {
                let prepared = card.prepare().map_err(|error| card_error(&error));
                recorder.handle_prepared(prepared, tasks::now());
                events.send(MicrophoneEvent::Overrun).await.ok()?;
            }
            RecordingStep::Wait(at) => sleep_until(at.into()).await,
            RecordingStep::End(failure) => return Some(failure),
        }
    }
}

/// Plays chunks at a rate in Hz, and then the rest. Returns `None` when its user is gone. `piped`
/// are the bytes of chunks that the card has not taken.
pub async fn play(
    card: &KernelCard,
    rate_hz: u32,
    supervision: &mut Supervision,
    chunks: &mut mpsc::Receiver<Vec<u8>>,
    events: &mpsc::Sender<LoudspeakerEvent>,
    piped: &AtomicUsize,
) -> Option<CommandFailure> {
    match open(card, AudioDirection::Out, rate_hz).await {
        Ok(card) => write_frames(card, rate_hz, supervision, chunks, events, piped).await,
        Err(error) => Some(failure(supervision, &error)),
    }
}

async fn write_frames(
    mut card: impl OpenCard,
    rate_hz: u32,
    supervision: &mut Supervision,
    chunks: &mut mpsc::Receiver<Vec<u8>>,
    events: &mpsc::Sender<LoudspeakerEvent>,
    piped: &AtomicUsize,
) -> Option<CommandFailure> {
    let mut player = CardPlayer::new(card.form(), rate_hz, supervision, tasks::now());
    let mut waiting = 0;
    loop {
        piped.store(player.pending() + waiting, Relaxed);
        match player.poll_step(tasks::now()) {
            PlaybackStep::NextChunk => {
                let chunk = chunks.recv().await;
                waiting = chunk.as_ref().map_or(0, |chunk| chunks.len() * chunk.len());
                player.handle_chunk(chunk.as_deref(), tasks::now());
            }
            PlaybackStep::Write(frames) => {
                let answer = answer(card.write(frames));
                player.handle_answer(answer, tasks::now());
            }
            PlaybackStep::Prepare => {
                let prepared = card.prepare().map_err(|error| card_error(&error));
                player.handle_prepared(prepared, tasks::now());
                let _ = events.try_send(LoudspeakerEvent::Underrun);
            }
            PlaybackStep::Wait(at) => sleep_until(at.into()).await,
            PlaybackStep::Played(at) => {
                sleep_until(at.into()).await;
                return None;
            }
            PlaybackStep::End(failure) => return Some(failure),
        }
    }
}

/// Plays PCM to its end, as `commands::once::play_once` does.
///
/// # Errors
/// What a page shows of a card that failed, or has not played all of it `within` this time.
pub async fn play_once(card: &KernelCard, rate_hz: u32, pcm: &[u8], within: Duration) -> Result<(), SoundReport> {
    let (chunks, mut received) = mpsc::channel(1);
    let _ = chunks.try_send(pcm.to_vec());
    drop(chunks);
    let (events, _reported) = mpsc::channel(EVENTS_MAX);
    let piped = AtomicUsize::default();
    let mut supervision = Supervision::new(AudioDirection::Out, &card.to_string());
    let playing = play(card, rate_hz, &mut supervision, &mut received, &events, &piped);
    match timeout(within, playing).await {
        Ok(None) => Ok(()),
        Ok(Some(failure)) => Err(SoundReport::of_failure(&supervision, &failure)),
        Err(_) => Err(SoundReport::of_failure(&supervision, &CommandFailure::Hung)),
    }
}

/// Records so many bytes of PCM, as `commands::once::record_once` does.
///
/// # Errors
/// What a page shows of a card that failed, or moves no audio.
pub async fn record_once(
    card: &KernelCard,
    rate_hz: u32,
    bytes: usize,
    within: Duration,
) -> Result<Vec<u8>, SoundReport> {
    let (events, mut received) = mpsc::channel(EVENTS_MAX);
    let mut supervision = Supervision::new(AudioDirection::In, &card.to_string());
    let mut recorded = Vec::with_capacity(bytes);
    let ended = {
        let collecting = async {
            while recorded.len() < bytes {
                match received.recv().await {
                    Some(MicrophoneEvent::Bytes(piece)) => recorded.extend(piece),
                    Some(MicrophoneEvent::Started | MicrophoneEvent::Overrun | MicrophoneEvent::Failed) => {}
                    None => break,
                }
            }
        };
        tokio::select! {
            failure = record(card, rate_hz, &mut supervision, &events) => failure,
            _ = timeout(within, collecting) => None,
        }
    };
    let hung = || (recorded.len() < bytes / 3).then_some(CommandFailure::Hung);
    if let Some(failure) = ended.or_else(hung) {
        return Err(SoundReport::of_failure(&supervision, &failure));
    }
    recorded.truncate(bytes);
    Ok(recorded)
}

#[cfg(test)]
mod tests;
