//! The container `legacy` of audio tracks: a timestamp before each Opus packet.
//!
//! In and out: a frame, which is a QUIC varint (RFC 9000 section 16) with the presentation time in
//! microseconds and then the bare packet; and the time in ticks of 48 kHz. Source:
//! `docs/spec/moq.md`.

use bytes::Bytes;

/// Ticks of the media clock per millisecond.
const TICKS_PER_MS: u64 = 48;

/// The largest value of a QUIC varint.
const VARINT_MAX: u64 = (1 << 62) - 1;

/// A frame of an audio track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaFrame {
    /// Presentation time in microseconds, from any start.
    pub timestamp_us: u64,
    /// One Opus packet.
    pub payload: Bytes,
}

impl MediaFrame {
    /// Reads a frame. Returns `None` if it ends before its payload.
    pub fn read(frame: &Bytes) -> Option<MediaFrame> {
        let first = *frame.first()?;
        let length = 1_usize << (first >> 6);
        let rest = frame.get(1..length)?;
        let timestamp_us = rest
            .iter()
            .fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
        let payload = frame.slice(length..);
        (!payload.is_empty()).then_some(MediaFrame { timestamp_us, payload })
    }

    /// Returns the presentation time in ticks of 48 kHz.
    pub fn ticks(&self) -> u64 {
        self.timestamp_us / 1_000 * TICKS_PER_MS + self.timestamp_us % 1_000 * TICKS_PER_MS / 1_000
    }
}

/// Appends a frame to `out`. Times above the range of a varint are limited to it, which takes
/// 146,000 years.
pub fn write_media_frame(timestamp_us: u64, payload: &[u8], out: &mut Vec<u8>) {
    let value = timestamp_us.min(VARINT_MAX);
    let bytes = value.to_be_bytes();
    let (length, prefix): (usize, u8) = match value {
        0..0x40 => (1, 0x00),
        0x40..0x4000 => (2, 0x40),
        0x4000..0x4000_0000 => (4, 0x80),
        _ => (8, 0xc0),
    };
    let start = out.len();
    out.extend_from_slice(&bytes[8 - length..]);
    out[start] |= prefix;
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a browser's frame: 20,000 us.
    #[test]
    fn reads_and_writes_the_frame_of_a_browser() {
        let bytes = Bytes::from_static(&[0x80, 0x00, 0x4e, 0x20, 0xf8, 0xff, 0xfe]);
        let frame = MediaFrame::read(&bytes).unwrap();
        assert_eq!((frame.timestamp_us, frame.ticks()), (20_000, 960));
        assert_eq!(frame.payload[..], [0xf8, 0xff, 0xfe]);
        let mut out = Vec::new();
        write_media_frame(20_000, &frame.payload, &mut out);
        assert_eq!(out, bytes);
    }

    #[test]
    fn every_timestamp_survives() {
        for shift in 0..62 {
            for value in [(1 << shift) - 1, 1 << shift, (1 << shift) + 1] {
                let mut out = Vec::new();
                write_media_frame(value, b"x", &mut out);
                let frame = MediaFrame::read(&Bytes::from(out)).unwrap();
                assert_eq!((frame.timestamp_us, &frame.payload[..]), (value, &b"x"[..]));
                assert!(frame.ticks().abs_diff(value / 125 * 6) <= 6);
            }
        }
        let mut out = Vec::new();
        write_media_frame(u64::MAX, b"x", &mut out);
        assert_eq!(MediaFrame::read(&Bytes::from(out)).unwrap().timestamp_us, VARINT_MAX);
    }

    #[test]
    fn frames_without_a_payload_are_rejected() {
        for bytes in [
            &[][..],
            &[0x05],
            &[0x80, 0x00, 0x4e],
            &[0x80, 0x00, 0x4e, 0x20],
            &[0xc0],
        ] {
            assert_eq!(MediaFrame::read(&Bytes::copy_from_slice(bytes)), None, "{bytes:?}");
        }
    }
}
