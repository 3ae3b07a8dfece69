//! Reorders the audio of a provider that numbers its messages and does not promise their order.
//!
//! In: frames of PCM with their numbers. Out: the frames in order, delayed by at most
//! `TELEPHONY_REORDERED_MAX` frames. Duplicates and late frames are dropped.

use crate::limits::TELEPHONY_REORDERED_MAX;

/// Orders frames by their numbers, with a delay of a few frames at most.
#[derive(Debug, Default)]
pub(super) struct ReorderBuffer {
    /// The next number; `None` before the first frame.
    next: Option<u64>,
    /// Frames that arrived early, by number.
    held: Vec<(u64, Vec<i16>)>,
    /// Consecutive frames that arrived late.
    late: usize,
}

impl ReorderBuffer {
    /// Orders the frame that was appended to `pcm` at `start`: it stays, is held, or is dropped;
    /// frames that waited for it follow.
    pub(super) fn place(&mut self, chunk: u64, start: usize, pcm: &mut Vec<i16>) {
        // Numbers start at 1, as documented; starting at 0 is supported too.
        let next = *self.next.get_or_insert(chunk.min(1));
        if chunk < next {
            self.late += 1;
            if self.late <= TELEPHONY_REORDERED_MAX {
                pcm.truncate(start);
                return;
            }
            // A frame is never that late: the provider restarted its count.
            let frame = pcm.split_off(start);
            self.release_all(pcm);
            pcm.extend(frame);
            self.next = Some(chunk.saturating_add(1));
        } else if chunk == next {
            self.next = Some(chunk.saturating_add(1));
        } else if self.held.iter().any(|(held, _)| *held == chunk) {
            pcm.truncate(start);
            return;
        } else {
            let at = self.held.partition_point(|(held, _)| *held < chunk);
            self.held.insert(at, (chunk, pcm.split_off(start)));
            if self.held.len() > TELEPHONY_REORDERED_MAX {
                self.next = Some(self.held[0].0);
            }
        }
        self.late = 0;
        self.release(pcm);
    }

    /// Appends all held frames.
    pub(super) fn release_all(&mut self, pcm: &mut Vec<i16>) {
        for (chunk, frame) in self.held.drain(..) {
            pcm.extend(frame);
            self.next = Some(chunk.saturating_add(1));
        }
    }

    fn release(&mut self, pcm: &mut Vec<i16>) {
        while self.held.first().is_some_and(|(chunk, _)| Some(*chunk) == self.next) {
            let (chunk, frame) = self.held.remove(0);
            pcm.extend(frame);
            self.next = Some(chunk.saturating_add(1));
        }
    }
}
