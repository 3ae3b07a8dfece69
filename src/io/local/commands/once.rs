//! A command that is run once, or a card that is opened once, for the test of the sound card.
//!
//! In: PCM to play, or the length of a recording, and a time. Out: the end of the sound, the
//! recording, or what a page shows of the failure. Dropping a future ends its process group.

use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::ChildStdin;
use tokio::time::sleep;

use super::{CommandSpec, PIPE_BYTES, RunningCommand, StderrLines, shrink};
use crate::config::{AudioBackEnd, AudioDevice};
use crate::io::local::card;
use crate::io::tasks;
use crate::proto::local::direction::AudioDirection;
use crate::proto::local::sound_test::SoundReport;
use crate::proto::local::supervision::{CommandFailure, Supervision};

/// A command that runs once, with what it writes on stderr.
struct OnceCommand {
    command: RunningCommand,
    lines: StderrLines,
    supervision: Supervision,
}

impl OnceCommand {
    /// Starts it.
    fn start(
        device: &AudioDevice,
        words: &[String],
        withheld: &[String],
        direction: AudioDirection,
    ) -> Result<Self, SoundReport> {
        let spec = CommandSpec::new(device, withheld, direction);
        let mut supervision = spec.supervision();
        let mut command = match spec.start(words) {
            Ok(command) => command,
            Err(failure) => return Err(SoundReport::of_failure(&supervision, &failure)),
        };
        supervision.handle_started(tasks::now());
        let lines = StderrLines::of(&mut command);
        Ok(OnceCommand {
            command,
            lines,
            supervision,
        })
    }

    /// Returns what a page shows of a failure.
    fn report(&self, failure: &CommandFailure) -> SoundReport {
        SoundReport::of_failure(&self.supervision, failure)
    }

    /// Waits for the end of a command that has failed, and returns what a page shows of it.
    async fn failed(mut self) -> SoundReport {
        let failure = self.command.ended(&mut self.lines, &mut self.supervision).await;
        self.report(&failure)
    }
}

/// Plays PCM to its end. A player that has read all of it and stays is ended after `within`.
///
/// # Errors
/// What a page shows of a player that failed, or has not read all of it `within` this time.
pub async fn play_once(
    device: &AudioDevice,
    withheld: &[String],
    pcm: &[u8],
    within: Duration,
) -> Result<(), SoundReport> {
    let words = match &device.back_end {
        AudioBackEnd::Command(words) => words,
        AudioBackEnd::Kernel(card) => return card::play_once(card, device.rate_hz, pcm, within).await,
    };
    let mut once = OnceCommand::start(device, words, withheld, AudioDirection::Out)?;
    let mut stdin = once.command.child.stdin.take();
    if let Some(stdin) = &stdin {
        shrink(stdin);
    }
    let mut due = pin!(sleep(within));
    let mut written = 0;
    let status = loop {
        tokio::select! {
            wrote = write_to(&mut stdin, &pcm[written..]) => {
                written += wrote;
                if wrote == 0 || written == pcm.len() {
                    stdin = None;
                }
            }
            status = once.command.wait() => break status,
            _ = once.lines.read(&mut once.supervision), if once.lines.is_open => {}
            () = &mut due => {
                return match written == pcm.len() {
                    true => Ok(()),
                    false => Err(once.report(&CommandFailure::Hung)),
                };
            }
        }
    };
    if written == pcm.len() && status.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err(once.failed().await)
}

/// Writes once to a pipe, and returns how much it took: nothing if it is closed. Without a pipe it
/// waits for ever. Cancel safe.
async fn write_to(pipe: &mut Option<ChildStdin>, bytes: &[u8]) -> usize {
    match pipe {
        Some(pipe) => pipe.write(bytes).await.unwrap_or_default(),
        None => std::future::pending().await,
    }
}

/// Records so many bytes of PCM, or at least a third of them `within` a time.
///
/// # Errors
/// What a page shows of a command that failed, or moves no audio.
pub async fn record_once(
    device: &AudioDevice,
    withheld: &[String],
    bytes: usize,
    within: Duration,
) -> Result<Vec<u8>, SoundReport> {
    let words = match &device.back_end {
        AudioBackEnd::Command(words) => words,
        AudioBackEnd::Kernel(card) => return card::record_once(card, device.rate_hz, bytes, within).await,
    };
    let mut once = OnceCommand::start(device, words, withheld, AudioDirection::In)?;
    let mut stdout = once.command.child.stdout.take();
    let mut due = pin!(sleep(within));
    let mut recorded = Vec::with_capacity(bytes + PIPE_BYTES);
    let mut buffer = [0; PIPE_BYTES];
    while recorded.len() < bytes {
        let Some(pipe) = &mut stdout else { break };
        tokio::select! {
            read = pipe.read(&mut buffer) => match read {
                Ok(count @ 1..) => recorded.extend_from_slice(&buffer[..count]),
                Ok(0) | Err(_) => return Err(once.failed().await),
            },
            _ = once.lines.read(&mut once.supervision), if once.lines.is_open => {}
            () = &mut due => break,
        }
    }
    if recorded.len() < bytes / 3 {
        return Err(once.report(&CommandFailure::Hung));
    }
    recorded.truncate(bytes);
    Ok(recorded)
}
