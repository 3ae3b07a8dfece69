//! Voice calls of the messaging app: a user calls a business, and this runner answers for it.
//!
//! The provider posts webhooks that it signs; the answers are requests to its Graph API; the audio is WebRTC. Pure parts:
//! [`signature`] (whose webhook it is, and the challenge that proves the address), [`webhook`] (what it says), [`call_table`] (which
//! calls are known), [`graph`] (requests and what their answers mean), [`call`] (one call from its offer to its end).
//! `io::whatsapp` sends the requests and runs the session. Sources: the provider's calling API reference (June 2026), RFC 2104.

pub mod call;
pub mod call_table;
pub mod graph;
pub mod signature;
pub mod webhook;

/// Returns what may be logged of a phone number: its last three digits.
pub fn masked(number: &str) -> String {
    let digits: Vec<char> = number.chars().filter(char::is_ascii_digit).collect();
    let tail = &digits[digits.len().saturating_sub(MASKED_DIGITS)..];
    // What has few digits is told by none of them.
    match digits.len() > 2 * MASKED_DIGITS {
        true => format!("\u{2026}{}", tail.iter().collect::<String>()),
        false => "\u{2026}".to_owned(),
    }
}

/// Digits of a phone number in the log.
const MASKED_DIGITS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_all_but_three_digits() {
        assert_eq!(masked("15550001234"), "\u{2026}234");
        assert_eq!(masked("+1 555 000-1234"), "\u{2026}234");
        assert_eq!(masked("123456"), "\u{2026}");
        assert_eq!(masked(""), "\u{2026}");
    }
}
