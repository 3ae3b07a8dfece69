//! Decodes strings in the Huffman code of HPACK and QPACK (RFC 7541, Appendix B).
//!
//! The code is canonical: codes of one length are consecutive, in the order of their symbols, so
//! the number of codes of each length and the symbols in order describe all of it.

/// The number of codes of each length in bits.
const CODES_OF_LENGTH: [u8; 31] = [
    0, 0, 0, 0, 0, 10, 26, 32, 6, 0, 5, 3, 2, 6, 2, 3, 0, 0, 0, 3, 8, 13, 26, 29, 12, 4, 15, 19, 29, 0, 3,
];

/// Symbols in the order of their codes; the end-of-string code is last, and absent here.
#[rustfmt::skip]
const SYMBOLS: [u8; 256] = [
    48, 49, 50, 97, 99, 101, 105, 111, 115, 116, 32, 37, 45, 46, 47, 51, 52, 53, 54, 55, 56, 57,
    61, 65, 95, 98, 100, 102, 103, 104, 108, 109, 110, 112, 114, 117, 58, 66, 67, 68, 69, 70, 71,
    72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 89, 106, 107, 113, 118, 119,
    120, 121, 122, 38, 42, 44, 59, 88, 90, 33, 34, 40, 41, 63, 39, 43, 124, 35, 62, 0, 36, 64, 91,
    93, 126, 94, 125, 60, 96, 123, 92, 195, 208, 128, 130, 131, 162, 184, 194, 224, 226, 153, 161,
    167, 172, 176, 177, 179, 209, 216, 217, 227, 229, 230, 129, 132, 133, 134, 136, 146, 154, 156,
    160, 163, 164, 169, 170, 173, 178, 181, 185, 186, 187, 189, 190, 196, 198, 228, 232, 233, 1,
    135, 137, 138, 139, 140, 141, 143, 147, 149, 150, 151, 152, 155, 157, 158, 165, 166, 168, 174,
    175, 180, 182, 183, 188, 191, 197, 231, 239, 9, 142, 144, 145, 148, 159, 171, 206, 215, 225,
    236, 237, 199, 207, 234, 235, 192, 193, 200, 201, 202, 205, 210, 213, 218, 219, 238, 240, 242,
    243, 255, 203, 204, 211, 212, 214, 221, 222, 223, 241, 244, 245, 246, 247, 248, 250, 251, 252,
    253, 254, 2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 23, 24, 25, 26, 27, 28,
    29, 30, 31, 127, 220, 249, 10, 13, 22,
];

/// A code with more than 7 bits of padding, padding that is not all ones, or the end-of-string
/// symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidHuffmanCode;

/// Appends the decoded string to `output`. The output has at most 8/5 of the input's bytes.
pub fn decode_huffman(input: &[u8], output: &mut Vec<u8>) -> Result<(), InvalidHuffmanCode> {
    let mut walk = Walk::default();
    for byte in input {
        for shift in (0..8).rev() {
            if let Some(symbol) = walk.push(byte >> shift & 1)? {
                output.push(symbol);
                walk = Walk::default();
            }
        }
    }
    // Padding is the beginning of the end-of-string code, which has only ones.
    let is_padding = walk.length <= 7 && walk.code == (1 << walk.length) - 1;
    is_padding.then_some(()).ok_or(InvalidHuffmanCode)
}

/// The bits of a code so far.
#[derive(Default)]
struct Walk {
    code: u32,
    length: usize,
    /// The first code of this length.
    first: u32,
    /// Symbols with shorter codes.
    index: usize,
}

impl Walk {
    fn push(&mut self, bit: u8) -> Result<Option<u8>, InvalidHuffmanCode> {
        let shorter = CODES_OF_LENGTH[self.length];
        self.first = (self.first + u32::from(shorter)) << 1;
        self.index += usize::from(shorter);
        self.code = self.code << 1 | u32::from(bit);
        self.length += 1;
        let count = CODES_OF_LENGTH.get(self.length).ok_or(InvalidHuffmanCode)?;
        let offset = self.code - self.first;
        if offset < u32::from(*count) {
            return Ok(SYMBOLS.get(self.index + offset as usize).copied());
        }
        match self.length + 1 < CODES_OF_LENGTH.len() {
            true => Ok(None),
            false => Err(InvalidHuffmanCode),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(input: &[u8]) -> Result<Vec<u8>, InvalidHuffmanCode> {
        let mut output = Vec::new();
        decode_huffman(input, &mut output).map(|()| output)
    }

    #[test]
    fn the_examples_of_rfc_7541_decode() {
        let host = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(decode(&host).unwrap(), b"www.example.com");
        assert_eq!(decode(&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]).unwrap(), b"no-cache");
        assert_eq!(decode(&[]).unwrap(), b"");
    }

    #[test]
    fn every_symbol_has_its_own_code() {
        // The code of each symbol, encoded by the same canonical rule in the other direction.
        let (mut code, mut index) = (0_u64, 0);
        for (length, count) in CODES_OF_LENGTH.iter().enumerate() {
            code <<= 1;
            for _ in 0..*count {
                let padded = (code << (64 - length)) | (u64::MAX >> length);
                let bytes = &padded.to_be_bytes()[..length.div_ceil(8)];
                assert_eq!(decode(bytes).unwrap(), [SYMBOLS[index]], "{length} bits");
                (code, index) = (code + 1, index + 1);
            }
        }
        assert_eq!(index, 256);
        assert_eq!(code, (1 << 30) - 1, "only the end of string is left");
        let mut sorted = SYMBOLS;
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..=255));
    }

    #[test]
    fn wrong_padding_and_the_end_of_string_are_errors() {
        // 'a' is 00011, then the padding.
        assert_eq!(decode(&[0b0001_1111]).unwrap(), b"a");
        assert_eq!(decode(&[0b0001_1000]), Err(InvalidHuffmanCode));
        assert_eq!(decode(&[0b0001_1111, 0xff]), Err(InvalidHuffmanCode));
        assert_eq!(decode(&[0xff; 4]), Err(InvalidHuffmanCode));
        assert_eq!(decode(&[0xff; 40]), Err(InvalidHuffmanCode));
    }
}
