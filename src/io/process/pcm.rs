//! The media of one session over a program's standard streams: `--bot-audio pcm`.
//!
//! To the program's stdin: the caller's speech. From its stdout: the bot's. Both are 16-bit signed
//! little-endian mono PCM at one rate, without a header. RTVI is answered here; texts, messages,
//! keys and marks do not reach the program: texts and messages are answered by an error. Neither
//! direction waits for the other: a program that does not read loses the oldest speech, and one
//! that writes faster than real time waits in `write`. The output ends with the program, even if a
//! process that it left behind holds the pipe open.

use std::pin::pin;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, ChildStdout};

use super::MediaEnd;
use super::protobuf::ProgramSignals;
use crate::bot::Output;
use crate::proto::process::inbound_queue::InboundQueue;
use crate::rtvi::{Rtvi, RtviEvent};

/// Bytes that the pipe of a program holds per direction with `--bot-audio pcm`: one page, 128 ms at
/// 16 kHz, to keep the audio recent.
const PROCESS_PIPE_BYTES: usize = 4096;

/// The standard streams of a program that carry its audio.
pub struct Pipes {
    stdin: ChildStdin,
    stdout: ChildStdout,
}

impl Pipes {
    /// Takes both pipes and shrinks their buffers, so that the audio in them is recent. Linux alone
    /// lets a program choose their size.
    pub fn new(stdin: ChildStdin, stdout: ChildStdout) -> Self {
        #[cfg(target_os = "linux")]
        for resized in [
            rustix::pipe::fcntl_setpipe_size(&stdin, PROCESS_PIPE_BYTES),
            rustix::pipe::fcntl_setpipe_size(&stdout, PROCESS_PIPE_BYTES),
        ] {
            // A larger pipe only delays the audio of a slow program.
            if let Err(error) = resized {
                log::debug!("resizing a pipe of the bot: {error}");
            }
        }
        Pipes { stdin, stdout }
    }
}

/// The caller's speech for the program.
struct Input {
    /// `None` once the program has closed its end.
    stdin: Option<ChildStdin>,
    queue: InboundQueue,
    /// The frame that is being written, and how many bytes of it were written.
    frame: Vec<u8>,
    written: usize,
}

impl Input {
    fn push(&mut self, pcm: &[i16]) {
        if self.stdin.is_some() {
            let frame = pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect();
            self.queue.push_speech(frame, pcm.len());
        }
    }

    /// Writes some of the queue. Returns `false` once nothing is left to write. Cancel safe.
    async fn write_some(&mut self) -> bool {
        let Some(stdin) = &mut self.stdin else { return false };
        if self.written == self.frame.len() {
            let Some(frame) = self.queue.pop() else { return false };
            (self.frame, self.written) = (frame, 0);
        }
        match stdin.write(&self.frame[self.written..]).await {
            Ok(count) => self.written += count,
            Err(error) => {
                log::debug!("the bot reads no more: {error}");
                self.stdin = None;
                self.queue.clear();
            }
        }
        true
    }
}

/// The streams of a program whose session is over.
pub struct ClosingPipes {
    input: Input,
    stdout: ChildStdout,
}

impl ClosingPipes {
    /// Writes what is queued, closes the program's input, and discards its output until the program
    /// closes it.
    pub async fn close(self) {
        let ClosingPipes { mut input, mut stdout } = self;
        let end_input = async {
            while input.write_some().await {}
            drop(input);
        };
        let discard = async {
            let _ = tokio::io::copy(&mut stdout, &mut tokio::io::sink()).await;
        };
        tokio::join!(end_input, discard);
    }
}

/// Carries the media of one session until the session or the program's output ends.
pub async fn run(mut rtvi: Rtvi, pipes: Pipes, signals: &ProgramSignals) -> MediaEnd {
    let Pipes { stdin, mut stdout } = pipes;
    let mut input = Input {
        stdin: Some(stdin),
        queue: InboundQueue::default(),
        frame: Vec::new(),
        written: 0,
    };
    let output = rtvi.output().clone();
    let has_hung_up = {
        let mut speech = pin!(forward_speech(&mut stdout, &output, signals));
        let mut is_writing = false;
        loop {
            tokio::select! {
                event = rtvi.recv() => match event {
                    None | Some(RtviEvent::Left(_)) => break false,
                    Some(RtviEvent::Audio(frame)) => {
                        input.push(&frame);
                        is_writing = true;
                    }
                    Some(RtviEvent::JoinFailed(reason)) => log::warn!("the room was not joined: {reason}"),
                    Some(RtviEvent::Text { .. }) => rtvi.error("this bot hears speech only, no text", false),
                    Some(RtviEvent::Message(request)) => rtvi.reject(&request, "this bot takes no messages"),
                    Some(_) => {}
                },
                more = input.write_some(), if is_writing => is_writing = more,
                is_over = &mut speech => break !is_over,
            }
        }
    };
    let dropped = input.queue.take_dropped();
    if dropped.frames > 0 {
        log::warn!(
            "the bot did not read in time: {} frames to it were dropped",
            dropped.frames
        );
    }
    match has_hung_up {
        true => MediaEnd::HungUp,
        false => MediaEnd::EndOfInput(ClosingPipes { input, stdout }),
    }
}

/// Hands the program's output to the session as fast as the session takes it. Returns whether the
/// session ended first.
async fn forward_speech(stdout: &mut ChildStdout, output: &Output, signals: &ProgramSignals) -> bool {
    let mut bytes = [0; PROCESS_PIPE_BYTES];
    let mut samples = Vec::with_capacity(PROCESS_PIPE_BYTES / 2);
    // The first half of a sample whose second half was not read yet.
    let mut half = 0;
    // The bytes that are still read once the program has ended: those in the pipe.
    let mut rest_bytes = None;
    loop {
        if rest_bytes == Some(0) {
            return false;
        }
        let free = PROCESS_PIPE_BYTES - half;
        let end = half + rest_bytes.map_or(free, |rest: usize| rest.min(free));
        let read = tokio::select! {
            read = stdout.read(&mut bytes[half..end]) => read,
            () = signals.group_ended.notified(), if rest_bytes.is_none() => {
                let waiting = rustix::io::ioctl_fionread(&*stdout).unwrap_or_default();
                rest_bytes = Some(waiting.try_into().unwrap_or(usize::MAX));
                continue;
            }
        };
        let Ok(count @ 1..) = read else {
            return false;
        };
        if let Some(rest) = &mut rest_bytes {
            *rest -= count;
        }
        let (pairs, rest) = bytes[..half + count].as_chunks::<2>();
        samples.clear();
        samples.extend(pairs.iter().map(|pair| i16::from_le_bytes(*pair)));
        half = rest.len();
        if let [byte] = *rest {
            bytes[0] = byte;
        }
        if output.send_audio(&samples).await.is_err() {
            return true;
        }
    }
}

#[cfg(test)]
mod tests;
