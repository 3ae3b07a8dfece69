//! The readers of `/calls/events`.
//!
//! Each has a bounded queue: one that reads too slowly loses its stream, and calls never wait for
//! it.

use std::sync::Mutex;

use bytes::Bytes;
use edge_runner_http::common::lock;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::limits::{CALL_READER_QUEUE, CALL_READERS_MAX};
use crate::proto::calls::CallUpdate;

/// The queues of all readers.
#[derive(Default)]
pub struct CallReaders(Mutex<ReaderQueues>);

#[derive(Default)]
struct ReaderQueues {
    queues: Vec<Sender<Bytes>>,
    /// Readers that were too slow, since the runner started.
    dropped: u64,
}

impl CallReaders {
    /// Adds a reader; `None` if there are as many as may be.
    pub fn add(&self) -> Option<Receiver<Bytes>> {
        let mut readers = lock(&self.0);
        readers.queues.retain(|queue| !queue.is_closed());
        if readers.queues.len() >= CALL_READERS_MAX {
            return None;
        }
        let (queue, waiting) = channel(CALL_READER_QUEUE);
        let _ = queue.try_send(Bytes::from_static(CallUpdate::STREAM_START.as_bytes()));
        readers.queues.push(queue);
        Some(waiting)
    }

    /// Sends an event to all readers. It is not made if there are none.
    pub fn send(&self, make: impl FnOnce() -> Option<CallUpdate>) {
        let mut readers = lock(&self.0);
        if readers.queues.is_empty() {
            return;
        }
        let Some(event) = make() else { return };
        let text = Bytes::from(event.to_stream());
        let ReaderQueues { queues, dropped } = &mut *readers;
        queues.retain(|queue| {
            let is_sent = queue.try_send(text.clone()).is_ok();
            if !is_sent && !queue.is_closed() {
                *dropped += 1;
                log::warn!(
                    "a reader of /calls/events was too slow and is dropped; it should connect again and read /calls \
                     ({dropped} since the start)"
                );
            }
            is_sent
        });
    }

    /// Ends all streams.
    pub fn close(&self) {
        lock(&self.0).queues.clear();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event() -> Option<CallUpdate> {
        Some(CallUpdate::Started(json!({})))
    }

    /// A reader that does not read loses its stream; what was queued stays readable, and the others
    /// go on.
    #[test]
    fn a_slow_reader_is_dropped() {
        let readers = CallReaders::default();
        let (mut slow, mut other) = (readers.add().expect("a place"), readers.add().expect("a place"));
        for _ in 0..CALL_READER_QUEUE {
            readers.send(event);
            while other.try_recv().is_ok() {}
        }
        assert_eq!(lock(&readers.0).dropped, 1);
        for _ in 0..CALL_READER_QUEUE {
            assert!(slow.try_recv().is_ok());
        }
        assert_eq!(
            slow.try_recv(),
            Err(tokio::sync::mpsc::error::TryRecvError::Disconnected)
        );
        readers.send(event);
        assert!(other.try_recv().is_ok());
    }

    #[test]
    fn readers_are_limited_and_one_that_left_makes_room() {
        let readers = CallReaders::default();
        readers.send(|| panic!("no one reads"));
        let mut held: Vec<_> = (0..CALL_READERS_MAX).map_while(|_| readers.add()).collect();
        assert!(held.len() == CALL_READERS_MAX && readers.add().is_none());
        held.pop();
        let last = readers.add();
        assert!(last.is_some() && readers.add().is_none());
        readers.close();
        readers.send(|| panic!("no one reads"));
    }
}
