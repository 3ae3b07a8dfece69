//! SDP text, line in, line out: offers made fit for str0m's parser, answers made fit for microcontrollers.
//!
//! [`prepare_offer`] takes the offer of any client, word for word, and gives a tidy one plus the
//! candidates that stood in it; [`prepare_room`] does so for the server of a media room.
//! [`rewrite_answer_for_device`] takes str0m's answer and gives one that the small parsers on
//! microcontrollers read without harm; [`write_declined`] puts right what str0m says of sections
//! that it declines; [`prepare_call`] and [`write_call_answer`] do what calls of the messaging app
//! need; [`keep_only_host_candidate`] does the least for a browser of the same server.
//! All lines that leave end in CRLF. Refused: text that is no SDP, text above a cap, sections that
//! this runner has no answer for, answers that would harm a device. Sources: RFC 8866, RFC 8839,
//! RFC 9143, the field notes on embedded clients.

mod answer;
mod call;
mod client_stack;
mod declined;
mod offer;
mod section;

pub use answer::{DeviceAnswerError, keep_only_host_candidate, rewrite_answer_for_device};
pub use call::{CallAnswer, CallError, prepare_call, write_call_answer};
pub use client_stack::{ClientStack, DtlsRole};
pub use declined::{name_rejected_formats, rewrite_declined_sections};
pub use offer::{PreparedOffer, SdpError, prepare_offer, prepare_sfu_description};
pub use section::NegotiatedCodec;

/// Splits a line into the letter before `=` and the value after it.
fn split_line(line: &str) -> Option<(char, &str)> {
    let mut chars = line.chars();
    let kind = chars.next().filter(char::is_ascii_lowercase)?;
    let value = chars.as_str().strip_prefix('=')?;
    Some((kind, value))
}

/// Splits an attribute into its name and its value, which is empty for a flag.
fn split_attribute(attribute: &str) -> (&str, &str) {
    attribute.split_once(':').unwrap_or((attribute, ""))
}

/// Returns the RTP payload type at the start of an attribute's value.
fn payload_type(value: &str) -> Option<u8> {
    let word = value.split(' ').next()?;
    // RFC 3550 section 5.1: seven bits. A leading `+` or `0` would be another spelling of the same number.
    word.parse()
        .ok()
        .filter(|number: &u8| *number < 128 && number.to_string() == word)
}

/// Returns the part of a peer's text that an error repeats.
fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}

fn push_line(text: &mut String, parts: &[&str]) {
    parts.iter().for_each(|part| text.push_str(part));
    text.push_str("\r\n");
}

#[cfg(test)]
mod tests;
