//! The I/O of a session of the sound card: both commands, and the terminal.
//!
//! In: what they report, and what the user wants. Out: the commands of [`LocalSession`], which are
//! performed. At the end, the microphone, the terminal and the keys go back to the caller's task.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Context;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use super::commands::{CHUNKS_MAX, CommandSlots, LoudspeakerCommand, MicrophoneCommand, PIPE_BYTES};
use super::device_events::{LoudspeakerEvent, MicrophoneEvent};
use super::hook::LocalState;
use super::{LocalCounts, LocalUser, next_of, until};
use crate::config::LocalConfig;
use crate::io::session::{CloseOutcome, SessionIo, SessionTask};
use crate::io::tasks;
use crate::proto::event::LeaveReason;
use crate::proto::local::capture::{Capture, CaptureCounts};
use crate::proto::local::console::UserWish;
use crate::proto::local::session::{LocalCommand, LocalSession};
use crate::proto::session::Session as _;

/// The buffer of a card, by the default commands.
const CARD_BUFFER: Duration = Duration::from_millis(40);

/// What a session borrows from the caller's task.
pub struct LocalParts {
    pub microphone: MicrophoneCommand,
    pub capture: Capture,
    pub user: LocalUser,
    pub is_ended_by_user: bool,
    /// Why the session has ended.
    pub left: LeaveReason,
}

/// What goes back to its owner when it is dropped, also by a panic.
struct Borrowed<T> {
    lent: Option<T>,
    back: Option<oneshot::Sender<T>>,
}

impl<T> Borrowed<T> {
    fn new(lent: T, back: oneshot::Sender<T>) -> Self {
        Borrowed {
            lent: Some(lent),
            back: Some(back),
        }
    }
}

impl<T> Deref for Borrowed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.lent.as_ref().expect("it is there until it is dropped")
    }
}

impl<T> DerefMut for Borrowed<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.lent.as_mut().expect("it is there until it is dropped")
    }
}

impl<T> Drop for Borrowed<T> {
    fn drop(&mut self) {
        if let (Some(lent), Some(back)) = (self.lent.take(), self.back.take()) {
            // Without a receiver the runner ends, and so do the commands.
            let _ = back.send(lent);
        }
    }
}

/// The I/O of one session.
pub struct LocalIo {
    parts: Borrowed<LocalParts>,
    loudspeaker: LoudspeakerCommand,
    /// A chunk that the loudspeaker does not take yet.
    waiting: Option<Vec<u8>>,
    /// What the loudspeaker holds when it takes chunks again.
    held: Duration,
    bytes_per_s: u32,
    /// The totals of the microphone at the start of the session, and its gaps since then.
    before: CaptureCounts,
    gaps: u64,
    counts: Arc<LocalCounts>,
    pcm: Vec<i16>,
}

/// An input of the session.
pub enum LocalInput {
    Microphone(MicrophoneEvent),
    /// A gap of the microphone is due.
    Gap,
    Loudspeaker(LoudspeakerEvent),
    /// The loudspeaker has taken the chunk that waited.
    Taken,
    Wish(UserWish),
}

impl LocalIo {
    pub fn new(
        parts: LocalParts,
        config: &LocalConfig,
        withheld: &[String],
        slots: &CommandSlots,
        counts: &Arc<LocalCounts>,
        back: oneshot::Sender<LocalParts>,
    ) -> LocalIo {
        let output = &config.output;
        let bytes_per_s = output.rate_hz * u32::from(output.channels) * 2;
        let in_pipe = Duration::from_secs(PIPE_BYTES as u64) / bytes_per_s;
        LocalIo {
            before: parts.capture.counts(),
            gaps: 0,
            parts: Borrowed::new(parts, back),
            loudspeaker: match config.types {
                true => LoudspeakerCommand::silent(),
                false => LoudspeakerCommand::start(output, withheld, slots),
            },
            waiting: None,
            bytes_per_s,
            held: in_pipe + CARD_BUFFER + Duration::from_millis(20 * CHUNKS_MAX as u64),
            counts: counts.clone(),
            pcm: Vec::new(),
        }
    }

    /// Returns the sound in the pipe to the loudspeaker.
    fn piped(&self) -> Duration {
        Duration::from_secs(self.loudspeaker.piped() as u64) / self.bytes_per_s
    }

    /// Passes what the microphone has to the session.
    fn hear(&mut self, session: &mut LocalSession, now: Instant) {
        self.pcm.clear();
        let capture = &mut self.parts.capture;
        capture.take(&mut self.pcm);
        let counts = capture.counts().since(self.before);
        session.handle_microphone(&self.pcm, counts, now);
        self.counts.echoes.fetch_add(u64::from(session.poll_echo()), Relaxed);
        self.counts.gaps.fetch_add(counts.gaps - self.gaps, Relaxed);
        self.gaps = counts.gaps;
    }
}

impl SessionIo for LocalIo {
    type Session = LocalSession;
    type Input = LocalInput;

    async fn recv(&mut self) -> LocalInput {
        let LocalParts {
            microphone,
            capture,
            user,
            ..
        } = &mut *self.parts;
        let chunks = self.loudspeaker.chunks.clone();
        let (gap, reads_at) = (capture.poll_timeout(), capture.reads_at(tasks::now()));
        tokio::select! {
            event = next_of(Some(microphone), reads_at) => LocalInput::Microphone(event),
            () = until(gap) => LocalInput::Gap,
            event = self.loudspeaker.next() => LocalInput::Loudspeaker(event),
            () = taken(&chunks, &mut self.waiting) => LocalInput::Taken,
            wish = user.wish() => LocalInput::Wish(wish),
        }
    }

    fn deliver(&mut self, input: LocalInput, session: &mut LocalSession, _task: &mut SessionTask) {
        let now = tasks::now();
        match input {
            LocalInput::Microphone(MicrophoneEvent::Bytes(bytes)) => {
                self.parts.user.report(LocalState::Call);
                self.parts.capture.handle_bytes(&bytes, now);
                self.hear(session, now);
            }
            LocalInput::Microphone(MicrophoneEvent::Overrun) => {
                self.parts.capture.handle_xrun(now);
                self.hear(session, now);
            }
            LocalInput::Microphone(MicrophoneEvent::Started) => self.parts.capture.handle_restart(),
            LocalInput::Microphone(MicrophoneEvent::Failed) => {
                self.parts.user.hook.handle_state(LocalState::Error);
                self.parts.capture.handle_failure(now);
                self.hear(session, now);
            }
            LocalInput::Gap => {
                self.parts.capture.handle_timeout(now);
                self.hear(session, now);
            }
            LocalInput::Loudspeaker(LoudspeakerEvent::Underrun) => {
                self.counts.underruns.fetch_add(1, Relaxed);
                session.handle_underrun(self.piped(), now);
            }
            LocalInput::Loudspeaker(LoudspeakerEvent::Failed) => session.handle_loss(),
            LocalInput::Taken => session.handle_writable(self.held, now),
            LocalInput::Wish(UserWish::End | UserWish::BeginOrEnd) => {
                self.parts.is_ended_by_user = true;
                session.handle_end(LeaveReason::Left, now);
            }
            LocalInput::Wish(UserWish::Say(line)) => session.handle_typed(&line, now),
            LocalInput::Wish(wish) => {
                self.parts.user.handle_control(&wish, LocalState::Call);
                session.handle_controls(self.parts.user.controls);
            }
        }
    }

    fn perform(
        &mut self,
        command: LocalCommand,
        session: &mut LocalSession,
        _task: &mut SessionTask,
        _cx: &mut Context<'_>,
    ) {
        match command {
            LocalCommand::Play(bytes) => match self.loudspeaker.chunks.try_send(bytes) {
                Ok(()) => session.handle_backlog(self.piped(), tasks::now()),
                Err(TrySendError::Closed(_)) => {}
                Err(TrySendError::Full(bytes)) => {
                    self.waiting = Some(bytes);
                    session.handle_blocked();
                }
            },
            LocalCommand::Show(line) => self.parts.user.terminal.show(&line),
            LocalCommand::ShowLevels(row) => self.parts.user.terminal.show_levels(row),
        }
    }

    fn close(mut self, session: &LocalSession, _task: &SessionTask) -> CloseOutcome {
        self.parts.is_ended_by_user |= session.is_stopped();
        self.parts.left = session.left().unwrap_or(self.parts.left);
        self.parts.user.terminal.hide_levels();
        CloseOutcome::default()
    }
}

/// Waits until the loudspeaker takes the chunk that waits.
async fn taken(chunks: &mpsc::Sender<Vec<u8>>, waiting: &mut Option<Vec<u8>>) {
    if waiting.is_none() {
        return std::future::pending().await;
    }
    match chunks.reserve().await {
        Ok(permit) => {
            if let Some(bytes) = waiting.take() {
                permit.send(bytes);
            }
        }
        Err(_) => *waiting = None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next session has the terminal and the keys of one whose task has panicked.
    #[test]
    fn what_a_session_borrows_comes_back_from_a_panic() {
        let (back, mut returned) = oneshot::channel();
        let mut borrowed = Borrowed::new(6, back);
        *borrowed += 1;
        let panicked = std::panic::AssertUnwindSafe(move || {
            let _borrowed = borrowed;
            // Without the message of a panic.
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(std::panic::catch_unwind(panicked).is_err());
        assert_eq!(returned.try_recv(), Ok(7));
    }
}
