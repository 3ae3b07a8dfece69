//! The archive of a release: a tar archive in a gzip file.
//!
//! In: the bytes of the gzip file, and later those of the tar archive. Out: the deflated part, and
//! the content of one file. `io` inflates in between. Damage shows in the checksum of the whole, so
//! the one of gzip is not read. Source: RFC 1952 section 2.3; POSIX.1-2017, pax, "ustar Interchange
//! Format".

/// Bytes of a header of tar, and of what its files are padded to.
const BLOCK: usize = 512;
/// Bytes of the header of gzip without its optional fields, and of what follows the deflated part.
const GZIP_HEAD: usize = 10;
const GZIP_TAIL: usize = 8;

/// Returns the deflated part of a gzip file.
pub fn deflated(gzip: &[u8]) -> Option<&[u8]> {
    let (head, mut rest) = gzip.split_at_checked(GZIP_HEAD)?;
    let [0x1f, 0x8b, 8, flags, ..] = *head else { return None };
    // The name of the file and a comment, which end with a NUL. No other field is in a release.
    if flags & !0b1_1001 != 0 {
        return None;
    }
    for flag in [0b1000, 0b1_0000] {
        if flags & flag != 0 {
            let end = rest.iter().position(|byte| *byte == 0)?;
            rest = &rest[end + 1..];
        }
    }
    Some(rest.split_at_checked(rest.len().checked_sub(GZIP_TAIL)?)?.0)
}

/// Returns the content of the regular file of this path.
pub fn file<'a>(mut tar: &'a [u8], path: &str) -> Option<&'a [u8]> {
    while let Some((head, rest)) = tar.split_first_chunk::<BLOCK>() {
        // Blocks of zeros are the end.
        if head[0] == 0 {
            return None;
        }
        let size = octal(&head[124..136])?;
        let (content, _) = rest.split_at_checked(size)?;
        let is_regular = matches!(head[156], b'0' | 0);
        // A longer path is split, which none of a release is.
        if is_regular && text(&head[..100]) == path.as_bytes() && text(&head[345..500]).is_empty() {
            return Some(content);
        }
        tar = rest.split_at_checked(size.checked_next_multiple_of(BLOCK)?)?.1;
    }
    None
}

/// Returns a field up to its first NUL.
fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Returns the value of a field with octal digits.
fn octal(field: &[u8]) -> Option<usize> {
    let digits = str::from_utf8(text(field)).ok()?.trim();
    usize::from_str_radix(digits, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, kind: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK];
        bytes[..path.len()].copy_from_slice(path.as_bytes());
        bytes[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
        bytes[156] = kind;
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        bytes
    }

    #[test]
    fn a_file_is_found_by_its_path() {
        let mut tar = entry("a/", b'5', b"");
        tar.extend(entry("a/link", b'2', b""));
        tar.extend(entry("a/program", b'0', &[7; 700]));
        tar.extend(entry("a/after", b'0', b"last"));
        tar.extend([0; 2 * BLOCK]);
        assert_eq!(file(&tar, "a/program"), Some(&[7; 700][..]));
        assert_eq!(file(&tar, "a/after"), Some(&b"last"[..]));
        for absent in ["a/", "a/link", "a/prog", "program", ""] {
            assert_eq!(file(&tar, absent), None, "{absent}");
        }
        // Wherever it ends, nothing is read beyond it.
        for end in 0..tar.len() {
            let found = file(&tar[..end], "a/after");
            assert!(found.is_none_or(|content| content == b"last"), "{end}");
        }
    }

    #[test]
    fn a_size_that_is_none_ends_the_search() {
        for size in [
            "99999999999\0",
            "77777777777\0",
            "-0000000001\0",
            "\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}12345\0",
        ] {
            let mut tar = entry("a", b'0', b"");
            tar[124..136].copy_from_slice(size.as_bytes());
            tar.extend(entry("b", b'0', b"x"));
            assert!(file(&tar, "b").is_none_or(|content| content == b"x"), "{size}");
        }
    }

    #[test]
    fn the_header_of_gzip_is_left_out() {
        let plain = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3][..], b"deflated", &[1; 8]].concat();
        assert_eq!(deflated(&plain), Some(&b"deflated"[..]));
        let named = [&[0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 2, 3][..], b"a.tar\0deflated", &[1; 8]].concat();
        assert_eq!(deflated(&named), Some(&b"deflated"[..]));
        let empty = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3, 1, 2, 3];
        for damaged in [
            &empty[..],
            &empty[..4],
            b"",
            b"PK\x03\x04 and more than ten",
            &[0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 2, 3],
        ] {
            assert_eq!(deflated(damaged), None, "{damaged:?}");
        }
    }
}
