//! Variable-length integers of QUIC (RFC 9000, section 16): 62 bits in 1, 2, 4 or 8 bytes.

/// The largest value.
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// Reads an integer from the start of `bytes`: its value and its length in bytes, or `None` if
/// bytes are missing. Longer encodings than necessary are accepted, as RFC 9000 does.
pub fn read_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = 1 << (first >> 6);
    let rest = bytes.get(1..length)?;
    let value = rest
        .iter()
        .fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Some((value, length))
}

/// Appends an integer in its shortest encoding. Values above [`VARINT_MAX`] become it.
pub fn write_varint(value: u64, out: &mut Vec<u8>) {
    let value = value.min(VARINT_MAX);
    let bytes = value.to_be_bytes();
    match value {
        0..=0x3f => out.push(bytes[7]),
        0x40..=0x3fff => out.extend([bytes[6] | 0x40, bytes[7]]),
        0x4000..=0x3fff_ffff => out.extend([bytes[4] | 0x80, bytes[5], bytes[6], bytes[7]]),
        _ => {
            out.push(bytes[0] | 0xc0);
            out.extend_from_slice(&bytes[1..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_9000_are_read() {
        let examples: [(&[u8], u64); 5] = [
            (
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c],
                151_288_809_941_952_652,
            ),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ];
        for (bytes, value) in examples {
            assert_eq!(read_varint(bytes), Some((value, bytes.len())));
            for cut in 0..bytes.len() {
                assert_eq!(read_varint(&bytes[..cut]), None);
            }
        }
    }

    #[test]
    fn values_survive_writing_and_reading_at_every_boundary() {
        for (value, length) in [
            (0, 1),
            (63, 1),
            (64, 2),
            (16_383, 2),
            (16_384, 4),
            ((1 << 30) - 1, 4),
            (1 << 30, 8),
            (VARINT_MAX, 8),
        ] {
            let mut bytes = Vec::new();
            write_varint(value, &mut bytes);
            assert_eq!(bytes.len(), length);
            assert_eq!(read_varint(&bytes), Some((value, bytes.len())));
        }
    }

    #[test]
    fn a_value_above_62_bits_becomes_the_largest() {
        let mut bytes = Vec::new();
        write_varint(u64::MAX, &mut bytes);
        assert_eq!(read_varint(&bytes), Some((VARINT_MAX, 8)));
    }
}
