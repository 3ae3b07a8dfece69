//! Reads and writes of QUIC streams that cannot panic: ids of the wrong direction, and streams that
//! are gone, have defined results.

use bytes::Bytes;
use quinn_proto::{Connection, Dir, ReadError, StreamId, VarInt, WriteError};

/// The result of a read, with the code on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawRead {
    Bytes(Bytes),
    Blocked,
    Finished,
    /// Reset by the remote end, or gone.
    Reset(u64),
}

fn can_receive(connection: &Connection, id: StreamId) -> bool {
    id.dir() == Dir::Bi || id.initiator() != connection.side()
}

fn can_send(connection: &Connection, id: StreamId) -> bool {
    id.dir() == Dir::Bi || id.initiator() == connection.side()
}

/// Reads up to `length` bytes.
pub fn read(connection: &mut Connection, id: StreamId, length: usize) -> RawRead {
    if !can_receive(connection, id) {
        return RawRead::Reset(0);
    }
    let mut stream = connection.recv_stream(id);
    let Ok(mut chunks) = stream.read(true) else {
        return RawRead::Reset(0);
    };
    // Dropping `chunks` returns the credit of flow control, and queues its frames.
    match chunks.next(length) {
        Ok(Some(chunk)) => RawRead::Bytes(chunk.bytes),
        Ok(None) => RawRead::Finished,
        Err(ReadError::Blocked) => RawRead::Blocked,
        Err(ReadError::Reset(code)) => RawRead::Reset(code.into_inner()),
    }
}

/// Writes until the stream is blocked, and returns the bytes taken. A stream that is gone takes
/// all.
pub fn write(connection: &mut Connection, id: StreamId, bytes: &[u8]) -> usize {
    if !can_send(connection, id) {
        return bytes.len();
    }
    let mut taken = 0;
    while taken < bytes.len() {
        // The write that is blocked makes quinn report when the stream is writable again.
        match connection.send_stream(id).write(&bytes[taken..]) {
            Ok(written) => taken += written,
            Err(WriteError::Blocked) => return taken,
            Err(WriteError::Stopped(_) | WriteError::ClosedStream) => return bytes.len(),
        }
    }
    taken
}

pub fn finish(connection: &mut Connection, id: StreamId) {
    if can_send(connection, id) {
        // A stream that is gone needs no end.
        let _ = connection.send_stream(id).finish();
    }
}

pub fn reset(connection: &mut Connection, id: StreamId, code: u64) {
    if can_send(connection, id) {
        let _ = connection.send_stream(id).reset(code_of(code));
    }
}

pub fn stop(connection: &mut Connection, id: StreamId, code: u64) {
    if can_receive(connection, id) {
        let _ = connection.recv_stream(id).stop(code_of(code));
    }
}

pub fn set_priority(connection: &mut Connection, id: StreamId, priority: i32) {
    if can_send(connection, id) {
        let _ = connection.send_stream(id).set_priority(priority);
    }
}

/// The code of a frame; codes of this end are below 2^62.
pub fn code_of(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}
