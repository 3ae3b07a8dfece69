//! A small DEFLATE compressor for logs of records, with a sync flush after every record.
//!
//! In: the bytes of one record. Out: the compressed bytes, which end at a byte boundary and lack
//! the four bytes `00 00 ff ff` of the flush. Records share one window, so later ones refer to
//! earlier ones. Codes are the fixed ones (RFC 1951 section 3.2.6): the whole state takes 12 KiB,
//! where general compressors need 300 KiB per stream.

/// Bytes of earlier records that a record may refer to: several dozen messages.
const WINDOW_BYTES: usize = 4 * 1024;
/// The longest distance of a match (RFC 1951 section 3.2.5).
const DISTANCE_MAX: usize = 32 * 1024;
/// Shorter matches are not worth their code.
const MATCH_MIN: usize = 4;
/// The longest match (RFC 1951 section 3.2.5).
const MATCH_MAX: usize = 258;
/// Entries of the table of earlier positions, as a power of two.
const TABLE_BITS: u32 = 11;

/// First length and number of extra bits of the length codes from 257 on.
const LENGTHS: [(u16, u8); 29] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 1),
    (13, 1),
    (15, 1),
    (17, 1),
    (19, 2),
    (23, 2),
    (27, 2),
    (31, 2),
    (35, 3),
    (43, 3),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 4),
    (115, 4),
    (131, 5),
    (163, 5),
    (195, 5),
    (227, 5),
    (258, 0),
];

/// Compresses the records of one log.
pub struct RecordDeflater {
    /// The end of the earlier records.
    window: Vec<u8>,
    /// The position in the log of the start of the window, modulo 2^32.
    base: u32,
    /// By hash of four bytes: their last position in the log, modulo 2^32.
    table: Vec<u32>,
}

impl RecordDeflater {
    pub fn new() -> Self {
        RecordDeflater {
            window: Vec::new(),
            base: 0,
            table: Vec::new(),
        }
    }

    /// Compresses one record.
    pub fn compress(&mut self, record: &[u8]) -> Vec<u8> {
        self.table.resize(1 << TABLE_BITS, 0);
        let mut at = self.window.len();
        self.window.extend_from_slice(record);
        let mut out = BitWriter::with_capacity(record.len() / 2 + 8);
        // A block that is not the last, with fixed codes.
        out.write(0b010, 3);
        while at < self.window.len() {
            let found = self.find_match(at);
            let taken = match found {
                Some((distance, length)) => {
                    out.write_match(distance, length);
                    length
                }
                None => {
                    out.write_symbol(u16::from(self.window[at]));
                    1
                }
            };
            for position in at..at + taken {
                self.remember(position);
            }
            at += taken;
        }
        out.write_symbol(256);
        // The header of the empty stored block of the flush; its lengths are left out.
        out.write(0, 3);
        let surplus = self.window.len().saturating_sub(WINDOW_BYTES);
        self.window.drain(..surplus);
        self.window.shrink_to(2 * WINDOW_BYTES);
        self.base = self.base.wrapping_add(surplus as u32);
        out.finish()
    }

    /// Returns the entry of the table for the four bytes at `at`, if there are four.
    fn slot(&self, at: usize) -> Option<usize> {
        let bytes = self.window.get(at..at + MATCH_MIN)?;
        let word = bytes.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
        Some((word.wrapping_mul(0x9e37_79b1) >> (32 - TABLE_BITS)) as usize)
    }

    fn remember(&mut self, at: usize) {
        if let Some(slot) = self.slot(at) {
            self.table[slot] = self.base.wrapping_add(at as u32);
        }
    }

    /// Returns distance and length of a match of the bytes at `at`.
    fn find_match(&self, at: usize) -> Option<(usize, usize)> {
        let before = self.table[self.slot(at)?];
        // An outdated entry gives any distance; the bytes decide.
        let distance = self.base.wrapping_add(at as u32).wrapping_sub(before) as usize;
        if distance == 0 || distance > at.min(DISTANCE_MAX) {
            return None;
        }
        let (here, there) = (&self.window[at..], &self.window[at - distance..]);
        let length = here
            .iter()
            .zip(there)
            .take(MATCH_MAX)
            .take_while(|(one, two)| one == two)
            .count();
        (length >= MATCH_MIN).then_some((distance, length))
    }
}

/// Writes bits, the lowest of a byte first.
struct BitWriter {
    bytes: Vec<u8>,
    bits: u64,
    count: u32,
}

impl BitWriter {
    fn with_capacity(bytes: usize) -> Self {
        BitWriter {
            bytes: Vec::with_capacity(bytes),
            bits: 0,
            count: 0,
        }
    }

    fn write(&mut self, value: u32, count: u32) {
        self.bits |= u64::from(value) << self.count;
        self.count += count;
        while self.count >= 8 {
            self.bytes.push(self.bits as u8);
            self.bits >>= 8;
            self.count -= 8;
        }
    }

    /// Writes a Huffman code, whose highest bit comes first.
    fn write_code(&mut self, code: u32, count: u32) {
        self.write(code.reverse_bits() >> (32 - count), count);
    }

    /// Writes a literal, the end of the block, or the code of a length (RFC 1951 section 3.2.6).
    fn write_symbol(&mut self, symbol: u16) {
        let symbol = u32::from(symbol);
        match symbol {
            0..144 => self.write_code(0x30 + symbol, 8),
            144..256 => self.write_code(0x190 + symbol - 144, 9),
            256..280 => self.write_code(symbol - 256, 7),
            _ => self.write_code(0xc0 + symbol - 280, 8),
        }
    }

    fn write_match(&mut self, distance: usize, length: usize) {
        let index = LENGTHS.partition_point(|(first, _)| usize::from(*first) <= length) - 1;
        let (first, extra) = LENGTHS[index];
        self.write_symbol(257 + index as u16);
        self.write(length as u32 - u32::from(first), extra.into());
        // Two codes for each power of two, from 1 and 2 on.
        let (code, extra) = match distance as u32 - 1 {
            below @ 0..4 => (below, 0),
            below => {
                let extra = below.ilog2() - 1;
                (2 * extra + (below >> extra), extra)
            }
        };
        self.write_code(code, 5);
        self.write((distance as u32 - 1) & ((1 << extra) - 1), extra);
    }

    /// Pads the last byte.
    fn finish(mut self) -> Vec<u8> {
        if self.count > 0 {
            self.bytes.push(self.bits as u8);
        }
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use flate2::{Decompress, FlushDecompress};

    use super::*;

    /// Inflates records one by one, and compares.
    fn check(records: &[Vec<u8>]) -> usize {
        let mut deflater = RecordDeflater::new();
        let mut inflater = Decompress::new(false);
        let mut total = 0;
        for (n, record) in records.iter().enumerate() {
            let mut bytes = deflater.compress(record);
            total += bytes.len();
            bytes.extend_from_slice(&[0, 0, 0xff, 0xff]);
            let mut out = Vec::with_capacity(record.len() + 64);
            inflater
                .decompress_vec(&bytes, &mut out, FlushDecompress::Sync)
                .unwrap();
            assert!(out == *record, "record {n} of {} bytes", record.len());
        }
        total
    }

    #[test]
    fn records_share_a_window() {
        let record = |n: usize| {
            format!(
                r#"{{"label":"rtvi-ai","type":"bot-output","data":{{"text":"word {n}","spoken":true}},"seq":{n},"epoch":"0123456789abcdef"}}"#
            )
        };
        let records: Vec<_> = (0..300).map(|n| record(n).into_bytes()).collect();
        let plain: usize = records.iter().map(Vec::len).sum();
        let total = check(&records);
        assert!(total * 5 < plain, "{total} of {plain} bytes");
    }

    #[test]
    fn any_bytes_survive() {
        let mut state = 1_u32;
        let mut noise = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 24
        };
        let mut records = vec![Vec::new(), vec![b'x'], vec![0; 3], vec![7; 300_000], vec![255; 257]];
        for length in [1, 2, 3, 4, 5, 258, 259, 4_096, 70_000] {
            records.push((0..length).map(|_| noise() as u8).collect());
            records.push((0..length).map(|_| (noise() % 3) as u8).collect());
            records.push((0..length).map(|n| (n / 7 % 251) as u8).collect());
        }
        // Each distance code is used.
        for gap in (0..15).map(|shift| 1_usize << shift) {
            let filling: Vec<u8> = (0..gap).map(|_| noise() as u8).collect();
            records.push([&b"needle needle"[..], &filling, b"needle needle"].concat());
        }
        check(&records);
    }

    /// Positions of a log of more than 4 GiB wrap around.
    #[test]
    fn positions_wrap_around() {
        let mut deflater = RecordDeflater::new();
        deflater.base = u32::MAX - 100;
        let mut inflater = Decompress::new(false);
        for n in 0..50 {
            let record = format!("a record with some text, number {n}");
            let mut bytes = deflater.compress(record.as_bytes());
            bytes.extend_from_slice(&[0, 0, 0xff, 0xff]);
            let mut out = Vec::with_capacity(100);
            inflater
                .decompress_vec(&bytes, &mut out, FlushDecompress::Sync)
                .unwrap();
            assert_eq!(out, record.as_bytes());
        }
        assert!(deflater.window.capacity() <= 4 * WINDOW_BYTES);
    }
}
