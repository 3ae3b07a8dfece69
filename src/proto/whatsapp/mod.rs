//! WhatsApp calls: a user calls a business, and the runner answers.
//!
//! The provider posts signed webhooks, the answers are requests to the Graph API, and the audio is
//! WebRTC. [`signature`] verifies webhooks and the challenge of the address, [`webhook`] parses
//! events, [`call_table`] remembers calls, [`graph`] creates requests and judges answers, and
//! [`call`] is the state machine of one call. `io::whatsapp` sends the requests and runs the
//! sessions. Source: `docs/spec/whatsapp.md` 6; RFC 2104.

pub mod call;
pub mod call_table;
pub mod config;
pub mod doctor;
pub mod endpoints;
pub mod graph;
pub mod options;
pub mod signature;
pub mod webhook;

/// Masks a phone number for the log, except for its last three digits.
pub fn masked(number: &str) -> String {
    let digits: Vec<char> = number.chars().filter(char::is_ascii_digit).collect();
    let tail = &digits[digits.len().saturating_sub(MASKED_DIGITS)..];
    // Short numbers are masked completely.
    match digits.len() > 2 * MASKED_DIGITS {
        true => format!("\u{2026}{}", tail.iter().collect::<String>()),
        false => "\u{2026}".to_owned(),
    }
}

/// Digits of a phone number that are logged.
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
