//! The sound card of a caller who talks.
//!
//! In: what the microphone records, at [`RATE_HZ`](super::RATE_HZ) in pieces of any length, and
//! what the caller hears of the bot. Out: 20 ms of the microphone for each frame of the caller's
//! clock, and whether a frame is played. The clock of the card and that of the caller differ, and
//! some commands write in pieces of a tenth of a second: what always waits is left out but for
//! 40 ms.

use std::collections::VecDeque;

use super::FRAME_SAMPLES;
use super::sound::has_sound;

/// Samples that wait before the first frame, and all the time.
const BUFFERED: usize = 2 * FRAME_SAMPLES;
/// Samples that wait at most, half a second; the oldest are dropped.
const WAITING_MAX: usize = 25 * FRAME_SAMPLES;
/// Frames over which what waits is watched: a second.
const WATCHED_FRAMES: usize = 50;
/// Frames without sound that are played behind sound. A bot that is silent is not played, since in
/// half duplex the microphone is muted meanwhile.
const QUIET_FRAMES_MAX: usize = 10;

/// Exchanges the sound of a conversation with a sound card.
pub trait CallerCard: Send {
    /// Takes the next 20 ms that the caller hears, and returns those that the microphone has
    /// recorded; `None` once the card is gone.
    fn exchange(&mut self, received: &[i16; FRAME_SAMPLES]) -> Option<[i16; FRAME_SAMPLES]>;
}

/// What the microphone has recorded, and which frames of the bot are played.
pub struct CardFrames {
    waiting: VecDeque<i16>,
    is_flowing: bool,
    /// The least that waited behind how many frames.
    watched: (usize, usize),
    /// Frames since the bot's last sound; `None` before the first.
    quiet: Option<usize>,
}

impl Default for CardFrames {
    fn default() -> Self {
        CardFrames {
            waiting: VecDeque::new(),
            is_flowing: false,
            watched: (usize::MAX, 0),
            quiet: None,
        }
    }
}

impl CardFrames {
    /// Handles PCM of the microphone.
    pub fn handle_recorded(&mut self, pcm: &[i16]) {
        self.waiting.extend(pcm);
        let surplus = self.waiting.len().saturating_sub(WAITING_MAX);
        self.waiting.drain(..surplus);
    }

    /// Returns the next 20 ms of the microphone; silence where it is late.
    pub fn next_recorded(&mut self) -> [i16; FRAME_SAMPLES] {
        let mut frame = [0; FRAME_SAMPLES];
        self.is_flowing |= self.waiting.len() >= BUFFERED;
        if self.is_flowing {
            let count = self.waiting.len().min(FRAME_SAMPLES);
            for (to, from) in frame.iter_mut().zip(self.waiting.drain(..count)) {
                *to = from;
            }
            self.is_flowing = count == FRAME_SAMPLES;
        }
        self.watch();
        frame
    }

    /// Leaves out what has waited all the time.
    fn watch(&mut self) {
        let (least, frames) = &mut self.watched;
        *least = self.waiting.len().min(*least);
        *frames += 1;
        if *frames == WATCHED_FRAMES {
            self.waiting.drain(..least.saturating_sub(BUFFERED));
            self.watched = (usize::MAX, 0);
        }
    }

    /// Returns whether a frame of the bot is played.
    pub fn is_played(&mut self, received: &[i16]) -> bool {
        self.quiet = match (has_sound(received), self.quiet) {
            (true, _) => Some(0),
            (false, quiet) => quiet.map(|frames| frames + 1),
        };
        self.quiet.is_some_and(|frames| frames <= QUIET_FRAMES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_microphone_is_evened_out_and_is_never_late_for_long() {
        let mut frames = CardFrames::default();
        frames.handle_recorded(&[7; FRAME_SAMPLES]);
        assert_eq!(frames.next_recorded(), [0; FRAME_SAMPLES], "it is buffered");
        frames.handle_recorded(&[8; FRAME_SAMPLES + 10]);
        assert_eq!(frames.next_recorded(), [7; FRAME_SAMPLES]);
        assert_eq!(frames.next_recorded(), [8; FRAME_SAMPLES]);
        let rest = frames.next_recorded();
        assert_eq!((rest[9], rest[10]), (8, 0));
        frames.handle_recorded(&[9; FRAME_SAMPLES]);
        assert_eq!(frames.next_recorded(), [0; FRAME_SAMPLES], "it is buffered again");
        // A caller that was stopped for a while hears the newest.
        frames.handle_recorded(&[1; 16_000]);
        frames.handle_recorded(&[2; WAITING_MAX]);
        for _ in 0..WAITING_MAX / FRAME_SAMPLES {
            assert_eq!(frames.next_recorded(), [2; FRAME_SAMPLES]);
        }
        assert_eq!(frames.next_recorded(), [0; FRAME_SAMPLES]);
    }

    /// A command that writes 128 ms at a time, and has written half a second before the call.
    #[test]
    fn pieces_have_no_gaps_and_their_delay_is_short() {
        let mut frames = CardFrames::default();
        frames.handle_recorded(&[1; WAITING_MAX]);
        let mut recorded = 0;
        for frame in 0..500 {
            while recorded + 2_048 <= frame * FRAME_SAMPLES {
                frames.handle_recorded(&[1; 2_048]);
                recorded += 2_048;
            }
            assert_eq!(frames.next_recorded(), [1; FRAME_SAMPLES], "{frame}");
        }
        let most = BUFFERED + 2_048 + FRAME_SAMPLES;
        assert!(frames.waiting.len() <= most, "{}", frames.waiting.len());
    }

    #[test]
    fn a_silent_bot_is_not_played() {
        let mut frames = CardFrames::default();
        assert!(!frames.is_played(&[0; FRAME_SAMPLES]));
        assert!(frames.is_played(&[700; FRAME_SAMPLES]));
        for _ in 0..QUIET_FRAMES_MAX {
            assert!(frames.is_played(&[0; FRAME_SAMPLES]));
        }
        assert!(!frames.is_played(&[0; FRAME_SAMPLES]));
    }
}
