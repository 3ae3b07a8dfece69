//! An audio payload with its RTP sequence number and timestamp.

use std::sync::Arc;

/// One received audio payload.
pub struct AudioPacket {
    /// The packet is the first one of another source (SSRC), which has numbers of its own.
    pub is_new_source: bool,
    /// Extended RTP sequence number.
    pub sequence: u64,
    /// Extended RTP timestamp, in ticks of the codec's clock.
    pub timestamp: u64,
    pub payload: Arc<[u8]>,
}
