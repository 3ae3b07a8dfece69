//! One payload of audio, as RTP brings it, with its place in the stream.

use std::sync::Arc;

/// One payload of audio that came.
pub struct AudioPacket {
    /// Extended RTP sequence number.
    pub sequence: u64,
    /// Extended RTP timestamp, by the clock of the codec.
    pub timestamp: u64,
    pub payload: Arc<[u8]>,
}
