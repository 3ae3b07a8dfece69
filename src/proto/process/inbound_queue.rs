//! The queue from a session to a program, for the time before it connects or while it does not
//! read.
//!
//! In: encoded frames with their number of samples, and messages. Out: the frames in order. A full
//! queue drops its oldest speech or its oldest messages.

use std::collections::VecDeque;

use crate::limits::{EVENTS_IN_MAX, MESSAGES_IN_BYTES_MAX, PROCESS_IN_SAMPLES_MAX};

/// The queue to one program.
pub struct InboundQueue {
    items: VecDeque<InboundItem>,
    samples: usize,
    messages: usize,
    message_bytes: usize,
    message_bytes_max: usize,
    dropped: DroppedCounts,
}

impl Default for InboundQueue {
    fn default() -> Self {
        InboundQueue::new(MESSAGES_IN_BYTES_MAX)
    }
}

/// The numbers of dropped samples and messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedCounts {
    pub frames: u64,
    pub messages: u64,
}

enum InboundItem {
    Speech { frame: Vec<u8>, samples: usize },
    Message(Vec<u8>),
}

impl InboundQueue {
    /// Creates a queue with a cap on the bytes of its messages.
    pub fn new(message_bytes_max: usize) -> Self {
        InboundQueue {
            items: VecDeque::new(),
            samples: 0,
            messages: 0,
            message_bytes: 0,
            message_bytes_max,
            dropped: DroppedCounts::default(),
        }
    }

    /// Queues a frame of speech. A single frame is accepted at any length.
    pub fn push_speech(&mut self, frame: Vec<u8>, samples: usize) {
        self.samples += samples;
        self.items.push_back(InboundItem::Speech { frame, samples });
        while self.samples > PROCESS_IN_SAMPLES_MAX && self.items.len() - self.messages > 1 {
            let oldest = self
                .items
                .iter()
                .position(|item| matches!(item, InboundItem::Speech { .. }));
            if let Some(InboundItem::Speech { samples, .. }) = oldest.and_then(|at| self.items.remove(at)) {
                self.samples -= samples;
                self.dropped.frames += 1;
            }
        }
    }

    /// Queues a message. A single message is accepted at any length.
    pub fn push_message(&mut self, frame: Vec<u8>) {
        self.messages += 1;
        self.message_bytes += frame.len();
        self.items.push_back(InboundItem::Message(frame));
        while self.messages > EVENTS_IN_MAX || (self.message_bytes > self.message_bytes_max && self.messages > 1) {
            let oldest = self
                .items
                .iter()
                .position(|item| matches!(item, InboundItem::Message(_)));
            if let Some(InboundItem::Message(frame)) = oldest.and_then(|at| self.items.remove(at)) {
                self.messages -= 1;
                self.message_bytes -= frame.len();
                self.dropped.messages += 1;
            }
        }
    }

    /// Returns the next frame.
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        Some(match self.items.pop_front()? {
            InboundItem::Speech { frame, samples } => {
                self.samples -= samples;
                frame
            }
            InboundItem::Message(frame) => {
                self.messages -= 1;
                self.message_bytes -= frame.len();
                frame
            }
        })
    }

    /// Drops the queued speech.
    pub fn drop_speech(&mut self) {
        self.items.retain(|item| matches!(item, InboundItem::Message(_)));
        self.samples = 0;
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Drops the queue when the program has ended.
    pub fn clear(&mut self) {
        while self.pop().is_some() {}
    }

    /// Returns the numbers of items dropped since the last call.
    pub fn take_dropped(&mut self) -> DroppedCounts {
        std::mem::take(&mut self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(backlog: &mut InboundQueue) -> Vec<u8> {
        std::iter::from_fn(|| backlog.pop()).map(|frame| frame[0]).collect()
    }

    /// Nothing is dropped at the limit; beyond it, the oldest speech is dropped, and no message.
    #[test]
    fn drops_the_oldest_speech() {
        let part = PROCESS_IN_SAMPLES_MAX / 4;
        let mut backlog = InboundQueue::default();
        backlog.push_message(vec![9]);
        for name in 0..4 {
            backlog.push_speech(vec![name], part);
        }
        assert_eq!(backlog.take_dropped(), DroppedCounts::default());
        backlog.push_speech(vec![4], part);
        assert_eq!(drain(&mut backlog), [9, 1, 2, 3, 4]);
        assert_eq!(backlog.take_dropped(), DroppedCounts { frames: 1, messages: 0 });

        backlog.push_speech(vec![5], 2 * PROCESS_IN_SAMPLES_MAX);
        assert_eq!(drain(&mut backlog), [5], "one is kept, however long");
        backlog.push_speech(vec![6], PROCESS_IN_SAMPLES_MAX);
        assert_eq!(drain(&mut backlog), [6], "what was taken counts no longer");

        backlog.take_dropped();
        backlog.push_speech(vec![7], PROCESS_IN_SAMPLES_MAX);
        backlog.push_message(vec![8]);
        backlog.drop_speech();
        backlog.push_speech(vec![9], PROCESS_IN_SAMPLES_MAX);
        assert_eq!(drain(&mut backlog), [8, 9], "what was forgotten takes no room");
        assert!(backlog.is_empty());
        assert_eq!(backlog.take_dropped(), DroppedCounts::default());
    }

    #[test]
    fn drops_the_oldest_messages_by_number_and_size() {
        let mut backlog = InboundQueue::default();
        backlog.push_speech(vec![1], 1);
        for _ in 0..EVENTS_IN_MAX {
            backlog.push_message(vec![2]);
        }
        assert_eq!(backlog.take_dropped(), DroppedCounts::default());
        backlog.push_message(vec![3]);
        assert_eq!(backlog.take_dropped(), DroppedCounts { frames: 0, messages: 1 });
        let left = drain(&mut backlog);
        assert_eq!((left.len(), left[0], left[EVENTS_IN_MAX]), (EVENTS_IN_MAX + 1, 1, 3));

        backlog.push_message(vec![4; MESSAGES_IN_BYTES_MAX / 2]);
        backlog.push_message(vec![5; MESSAGES_IN_BYTES_MAX / 2]);
        assert_eq!(backlog.take_dropped(), DroppedCounts::default());
        backlog.push_message(vec![6]);
        assert_eq!(drain(&mut backlog), [5, 6]);
    }
}
