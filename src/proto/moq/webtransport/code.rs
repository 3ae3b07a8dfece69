//! Error codes: those of HTTP/3 and WebTransport that this end sends, and the mapping of
//! application codes (draft-ietf-webtrans-http3, section 4.4; RFC 9114, section 8.1; RFC 9204,
//! section 6).

pub const H3_NO_ERROR: u64 = 0x100;
pub const H3_STREAM_CREATION_ERROR: u64 = 0x103;
pub const H3_CLOSED_CRITICAL_STREAM: u64 = 0x104;
pub const H3_FRAME_UNEXPECTED: u64 = 0x105;
pub const H3_FRAME_ERROR: u64 = 0x106;
pub const H3_EXCESSIVE_LOAD: u64 = 0x107;
pub const H3_ID_ERROR: u64 = 0x108;
pub const H3_SETTINGS_ERROR: u64 = 0x109;
pub const H3_MISSING_SETTINGS: u64 = 0x10a;
pub const H3_REQUEST_REJECTED: u64 = 0x10b;
pub const H3_REQUEST_INCOMPLETE: u64 = 0x10d;
pub const H3_MESSAGE_ERROR: u64 = 0x10e;
pub const QPACK_DECOMPRESSION_FAILED: u64 = 0x200;
/// A stream of a session that does not exist.
pub const WT_BUFFERED_STREAM_REJECTED: u64 = 0x3994_bd84;

/// Application codes are mapped from here on, past every 31st code, which HTTP/3 reserves.
const FIRST: u64 = 0x52e4_a40f_a8db;
const LAST: u64 = 0x52e5_ac98_3162;

/// The HTTP/3 code of an application's code.
pub fn code_to_http3(code: u32) -> u64 {
    let code = u64::from(code);
    FIRST + code + code / 0x1e
}

/// The application's code of an HTTP/3 code; `None` if it is not in the mapped range.
pub fn code_from_http3(code: u64) -> Option<u32> {
    if !(FIRST..=LAST).contains(&code) || (code - 0x21).is_multiple_of(0x1f) {
        return None;
    }
    let shifted = code - FIRST;
    u32::try_from(shifted - shifted / 0x1f).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_map_to_http3_and_back() {
        assert_eq!(code_to_http3(0), 0x52e4_a40f_a8db);
        assert_eq!(code_to_http3(29), 0x52e4_a40f_a8f8);
        assert_eq!(code_to_http3(30), 0x52e4_a40f_a8fa);
        assert_eq!(code_to_http3(u32::MAX), LAST);
        for code in (0..100).chain(u32::MAX - 100..=u32::MAX) {
            assert_eq!(code_from_http3(code_to_http3(code)), Some(code));
        }
    }

    #[test]
    fn reserved_and_other_codes_have_no_application_code() {
        assert_eq!(code_from_http3(0), None);
        assert_eq!(code_from_http3(H3_NO_ERROR), None);
        assert_eq!(code_from_http3(FIRST - 1), None);
        assert_eq!(code_from_http3(LAST + 1), None);
        assert_eq!(code_from_http3(0x52e4_a40f_a8f9), None);
        assert_eq!(code_from_http3(u64::MAX), None);
    }
}
