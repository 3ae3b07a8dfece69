//! Field sections in QPACK (RFC 9204), with the static table and without a dynamic one.
//!
//! SETTINGS_QPACK_MAX_TABLE_CAPACITY keeps its default of 0, so a peer that refers to a dynamic
//! table violates the protocol, and neither end needs encoder and decoder streams.

use super::huffman::decode_huffman;

/// The largest field section: the bytes of names and values, and 32 for each line (RFC 9114,
/// section 4.2.2). A CONNECT request of a browser has about 600. Sent as
/// SETTINGS_MAX_FIELD_SECTION_SIZE, and the limit of the encoded bytes too.
pub const FIELD_SECTION_MAX: usize = 16 * 1024;

/// What RFC 9114 counts for a line beside its name and value.
const LINE_OVERHEAD: usize = 32;

/// Why a field section was not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpackError {
    /// Not valid, or with references to a dynamic table.
    Invalid,
    /// More than [`FIELD_SECTION_MAX`].
    TooLarge,
}

/// Decodes a field section. `field` receives each name and value in order. Lines of the static
/// table that have no use here have an empty name.
pub fn decode_fields(section: &[u8], mut field: impl FnMut(&[u8], &[u8])) -> Result<(), QpackError> {
    let mut input = QpackInput {
        bytes: section,
        budget: FIELD_SECTION_MAX,
    };
    let required_insert_count = input.integer(8)?;
    input.integer(7)?;
    if required_insert_count != 0 {
        return Err(QpackError::Invalid);
    }
    let (mut name, mut value) = (Vec::new(), Vec::new());
    while let Some(&first) = input.bytes.first() {
        input.charge(LINE_OVERHEAD)?;
        if first & 0b1100_0000 == 0b1100_0000 {
            let (name, value) = static_entry(input.integer(6)?)?;
            input.charge(name.len() + value.len())?;
            field(name.as_bytes(), value.as_bytes());
        } else if first & 0b1101_0000 == 0b0101_0000 {
            let (name, _) = static_entry(input.integer(4)?)?;
            input.charge(name.len())?;
            input.string(7, &mut value)?;
            field(name.as_bytes(), &value);
        } else if first & 0b1110_0000 == 0b0010_0000 {
            input.string(3, &mut name)?;
            input.string(7, &mut value)?;
            field(&name, &value);
        } else {
            // The other representations refer to the dynamic table.
            return Err(QpackError::Invalid);
        }
    }
    Ok(())
}

/// The rest of a field section.
struct QpackInput<'a> {
    bytes: &'a [u8],
    /// Bytes that names, values and overheads may still have.
    budget: usize,
}

impl QpackInput<'_> {
    fn charge(&mut self, bytes: usize) -> Result<(), QpackError> {
        self.budget = self.budget.checked_sub(bytes).ok_or(QpackError::TooLarge)?;
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, QpackError> {
        let (&byte, rest) = self.bytes.split_first().ok_or(QpackError::Invalid)?;
        self.bytes = rest;
        Ok(byte)
    }

    /// Reads an integer with a prefix of `bits` bits (RFC 7541, section 5.1).
    fn integer(&mut self, bits: u32) -> Result<usize, QpackError> {
        let mask = (1_usize << bits) - 1;
        let mut value = usize::from(self.byte()?) & mask;
        if value < mask {
            return Ok(value);
        }
        // Three bytes reach 2 MiB, far more than a section has.
        for shift in [0, 7, 14] {
            let byte = usize::from(self.byte()?);
            value += (byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(QpackError::TooLarge)
    }

    /// Reads a string whose length has a prefix of `bits` bits, after the bit of the Huffman code.
    fn string(&mut self, bits: u32, output: &mut Vec<u8>) -> Result<(), QpackError> {
        output.clear();
        let is_huffman = self.bytes.first().is_some_and(|byte| byte >> bits & 1 == 1);
        let length = self.integer(bits)?;
        if length > self.bytes.len() {
            return Err(QpackError::Invalid);
        }
        let (string, rest) = self.bytes.split_at(length);
        self.bytes = rest;
        match is_huffman {
            true => decode_huffman(string, output).map_err(|_| QpackError::Invalid)?,
            false => output.extend_from_slice(string),
        }
        self.charge(output.len())
    }
}

/// An entry of the static table (RFC 9204, Appendix A): those of requests and responses of
/// CONNECT, and an empty one for the others.
fn static_entry(index: usize) -> Result<(&'static str, &'static str), QpackError> {
    Ok(match index {
        0 => (":authority", ""),
        1 => (":path", "/"),
        15 => (":method", "CONNECT"),
        16 => (":method", "DELETE"),
        17 => (":method", "GET"),
        18 => (":method", "HEAD"),
        19 => (":method", "OPTIONS"),
        20 => (":method", "POST"),
        21 => (":method", "PUT"),
        22 => (":scheme", "http"),
        23 => (":scheme", "https"),
        24 => (":status", "103"),
        25 => (":status", "200"),
        26 => (":status", "304"),
        27 => (":status", "404"),
        28 => (":status", "503"),
        63 => (":status", "100"),
        64 => (":status", "204"),
        65 => (":status", "206"),
        66 => (":status", "302"),
        67 => (":status", "400"),
        68 => (":status", "403"),
        69 => (":status", "421"),
        70 => (":status", "425"),
        71 => (":status", "500"),
        90 => ("origin", ""),
        2..=98 => ("", ""),
        _ => return Err(QpackError::Invalid),
    })
}

/// Writes a field section: literals without Huffman code, so that nothing is searched.
pub struct FieldWriter(Vec<u8>);

impl FieldWriter {
    pub fn new() -> Self {
        // Required Insert Count and Delta Base of 0.
        Self(vec![0, 0])
    }

    /// A line of the static table.
    pub fn indexed(mut self, index: u8) -> Self {
        self.integer(0b1100_0000, 6, usize::from(index));
        self
    }

    /// A name of the static table, and a value.
    pub fn named(mut self, index: u8, value: &str) -> Self {
        self.integer(0b0101_0000, 4, usize::from(index));
        self.string(0, 7, value)
    }

    /// A name in lower case, and a value.
    pub fn literal(self, name: &str, value: &str) -> Self {
        self.string(0b0010_0000, 3, name).string(0, 7, value)
    }

    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    fn string(mut self, flags: u8, bits: u32, text: &str) -> Self {
        self.integer(flags, bits, text.len());
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    fn integer(&mut self, flags: u8, bits: u32, value: usize) {
        let mask = (1_usize << bits) - 1;
        if value < mask {
            self.0.push(flags | value as u8);
            return;
        }
        self.0.push(flags | mask as u8);
        let mut rest = value - mask;
        while rest >= 0x80 {
            self.0.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.0.push(rest as u8);
    }
}
