//! Cuts the bytes of one stream into integers, messages and frames, wherever reads split them.

use bytes::{Buf, Bytes};

use crate::moq::varint::read_varint;

/// Bytes of the longest integer.
const VARINT_BYTES_MAX: usize = 8;

/// A frame or message whose length exceeds its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OversizeFrame {
    pub length: u64,
}

/// The bytes of an item that has not arrived whole. Complete items in one read are not copied.
#[derive(Debug, Default)]
pub struct MoqStreamReader {
    partial: Vec<u8>,
}

impl MoqStreamReader {
    /// Takes a bare integer from the front of `input`. Without one it keeps all of `input`.
    pub fn varint(&mut self, input: &mut Bytes) -> Option<u64> {
        if self.partial.is_empty() {
            if let Some((value, length)) = read_varint(input) {
                input.advance(length);
                return Some(value);
            }
            self.keep(input, VARINT_BYTES_MAX);
            return None;
        }
        let (value, _) = self.partial_varint(input)?;
        self.partial.clear();
        Some(value)
    }

    /// Takes an item with its length (varint) in front, at most `bytes_max` long. Without a whole
    /// item it keeps all of `input`. It rejects an item as soon as its length is known.
    pub fn item(&mut self, input: &mut Bytes, bytes_max: usize) -> Result<Option<Bytes>, OversizeFrame> {
        if self.partial.is_empty() {
            let Some((length, prefix)) = read_varint(input) else {
                self.keep(input, VARINT_BYTES_MAX);
                return Ok(None);
            };
            check(length, bytes_max)?;
            let end = prefix + length as usize;
            if input.len() >= end {
                input.advance(prefix);
                return Ok(Some(input.split_to(length as usize)));
            }
            self.keep(input, end);
            return Ok(None);
        }
        let Some((length, prefix)) = self.partial_varint(input) else {
            return Ok(None);
        };
        check(length, bytes_max)?;
        let end = prefix + length as usize;
        self.keep(input, end - self.partial.len());
        if self.partial.len() < end {
            return Ok(None);
        }
        let mut item = Bytes::from(std::mem::take(&mut self.partial));
        item.advance(prefix);
        Ok(Some(item))
    }

    /// The number of bytes kept of an incomplete item.
    pub fn partial_bytes(&self) -> usize {
        self.partial.len()
    }

    /// The integer in front of the kept bytes, completed from `input` byte by byte.
    fn partial_varint(&mut self, input: &mut Bytes) -> Option<(u64, usize)> {
        loop {
            if let Some(found) = read_varint(&self.partial) {
                return Some(found);
            }
            if !input.has_remaining() {
                return None;
            }
            self.keep(input, 1);
        }
    }

    fn keep(&mut self, input: &mut Bytes, bytes_max: usize) {
        let taken = input.split_to(bytes_max.min(input.len()));
        self.partial.extend_from_slice(&taken);
    }
}

fn check(length: u64, bytes_max: usize) -> Result<(), OversizeFrame> {
    match length > bytes_max as u64 {
        true => Err(OversizeFrame { length }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an integer, then items, from `bytes` in reads of `step` bytes.
    fn read(bytes: &[u8], step: usize) -> (Option<u64>, Vec<Vec<u8>>) {
        let mut reader = MoqStreamReader::default();
        let mut first = None;
        let mut items = Vec::new();
        for part in bytes.chunks(step) {
            let mut input = Bytes::copy_from_slice(part);
            if first.is_none() {
                first = reader.varint(&mut input);
            }
            while first.is_some()
                && let Some(item) = reader.item(&mut input, 100).expect("short items")
            {
                items.push(item.to_vec());
            }
            assert!(input.is_empty(), "all bytes are taken");
        }
        (first, items)
    }

    #[test]
    fn every_split_gives_the_same_items() {
        let mut bytes = vec![0x44, 0x01];
        for item in [&b"a"[..], b"", &[7; 70], b"end"] {
            crate::moq::varint::write_varint(item.len() as u64, &mut bytes);
            bytes.extend_from_slice(item);
        }
        let whole = read(&bytes, bytes.len());
        assert_eq!(whole.0, Some(0x401));
        assert_eq!(whole.1, [b"a".to_vec(), vec![], vec![7; 70], b"end".to_vec()]);
        for step in 1..bytes.len() {
            assert_eq!(read(&bytes, step), whole, "reads of {step} bytes");
        }
    }

    #[test]
    fn a_long_item_is_rejected_before_its_bytes_arrive() {
        for (length, is_rejected) in [(100_u64, false), (101, true), (1 << 40, true)] {
            let mut bytes = Vec::new();
            crate::moq::varint::write_varint(length, &mut bytes);
            for step in 1..=bytes.len() {
                let mut reader = MoqStreamReader::default();
                let outcomes: Vec<_> = bytes
                    .chunks(step)
                    .map(|part| reader.item(&mut Bytes::copy_from_slice(part), 100))
                    .collect();
                assert_eq!(outcomes.last().expect("a read").is_err(), is_rejected, "{length}");
            }
        }
    }
}
