//! Reorders the audio of a provider that numbers its messages and does not promise their order.
//!
//! In: frames of PCM with their numbers. Out: the frames in order, delayed by at most
//! `TELEPHONY_REORDERED_MAX` frames. Duplicates and late frames are dropped.

use crate::limits::TELEPHONY_REORDERED_MAX;

/// Puts frames in the order of their numbers, as far as that costs no more than a few frames of
/// delay.
#[derive(Debug, Default)]
pub(super) struct ReorderBuffer {
    /// The number that comes next; none before the first frame.
    next: Option<u64>,
    /// Frames that came too early, by number.
    held: Vec<(u64, Vec<i16>)>,
    /// Frames in a row that came too late.
    late: usize,
}

impl ReorderBuffer {
    /// Takes the frame that was appended to `pcm` from `start` on: it stays, is held back, or is
    /// dropped; frames that waited for it follow.
    pub(super) fn place(&mut self, chunk: u64, start: usize, pcm: &mut Vec<i16>) {
        // Numbers start at 1, as documented; a provider that starts at 0 loses nothing either.
        let next = *self.next.get_or_insert(chunk.min(1));
        if chunk < next {
            self.late += 1;
            if self.late <= TELEPHONY_REORDERED_MAX {
                pcm.truncate(start);
                return;
            }
            // A frame is never that late: the provider counts from here.
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

    /// Appends all that is held.
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
