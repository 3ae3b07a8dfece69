//! The sending halves of request streams: small messages that wait while a stream takes no bytes.

use std::collections::HashMap;

use crate::moq::link::{MoqStreams, StreamId};

use super::STREAM_CODE_CANCEL;

/// Bytes that wait on one request stream. A reply has up to 100 and an announcement up to 1100; a
/// peer that lets more wait does not read.
const CONTROL_WAITING_BYTES_MAX: usize = 8 * 1024;
/// The send order of request streams: before every group.
const CONTROL_PRIORITY: i32 = 3;

/// What could not be sent yet, by stream.
#[derive(Debug, Default)]
pub struct ControlStreams {
    waiting: HashMap<StreamId, WaitingControl>,
}

#[derive(Debug, Default)]
struct WaitingControl {
    bytes: Vec<u8>,
    is_finished: bool,
}

impl ControlStreams {
    /// Gives a new stream the send order of requests.
    pub fn prioritize(id: StreamId, streams: &mut impl MoqStreams) {
        streams.set_priority(id, CONTROL_PRIORITY);
    }

    /// Sends a message, in order with those before. A peer that does not read loses the stream.
    pub fn send(&mut self, id: StreamId, message: &[u8], streams: &mut impl MoqStreams) {
        if let Some(waiting) = self.waiting.get_mut(&id) {
            if waiting.bytes.len() + message.len() <= CONTROL_WAITING_BYTES_MAX {
                waiting.bytes.extend_from_slice(message);
            } else {
                self.abort(id, STREAM_CODE_CANCEL, streams);
            }
            return;
        }
        let taken = streams.write(id, message);
        if taken < message.len() {
            let bytes = message[taken..].to_vec();
            let waiting = WaitingControl {
                bytes,
                is_finished: false,
            };
            self.waiting.insert(id, waiting);
        }
    }

    /// Ends a stream after its messages.
    pub fn finish(&mut self, id: StreamId, streams: &mut impl MoqStreams) {
        match self.waiting.get_mut(&id) {
            Some(waiting) => waiting.is_finished = true,
            None => streams.finish(id),
        }
    }

    /// Aborts the sending half of a stream.
    pub fn abort(&mut self, id: StreamId, code: u32, streams: &mut impl MoqStreams) {
        self.waiting.remove(&id);
        streams.reset(id, code);
    }

    /// Sends what waits on a stream that takes bytes again.
    pub fn handle_writable(&mut self, id: StreamId, streams: &mut impl MoqStreams) {
        let Some(waiting) = self.waiting.get_mut(&id) else {
            return;
        };
        let taken = streams.write(id, &waiting.bytes);
        waiting.bytes.drain(..taken);
        if waiting.bytes.is_empty() {
            if waiting.is_finished {
                streams.finish(id);
            }
            self.waiting.remove(&id);
        }
    }
}
