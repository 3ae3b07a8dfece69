//! SDP: normalizes and reads offers, and writes answers for clients.
//!
//! [`prepare_offer`] normalizes a client's offer and extracts its candidates;
//! [`prepare_sfu_description`] does so for a media-room server, and [`prepare_call`] for a WhatsApp
//! call. [`SdpDescription`] is what str0m is set up from, and [`write_answer`] writes the answer.
//! [`rewrite_answer_for_device`] adapts an answer to the parsers of microcontrollers,
//! [`rewrite_declined_sections`] corrects declined sections, [`insert_declined_sections`] adds
//! those that were taken out of the offer, [`write_call_answer`] keeps the lines that WhatsApp
//! documents, and [`keep_only_host_candidate`] serves browsers of a runner with `--embedded`. All
//! written lines end in CRLF. Rejected: text that is not SDP or exceeds a cap, unsupported sections
//! of a room, and answers that would harm a device. Sources: RFC 8866, RFC 8839, RFC 9143,
//! `docs/spec/devices.md` 3.

mod answer;
mod client_stack;
mod declined;
mod description;
mod extensions;
mod offer;
mod section;
mod whatsapp;
mod write;

pub use answer::{DeviceAnswerError, keep_only_host_candidate, rewrite_answer_for_device};
pub use client_stack::{ClientStack, DtlsRole};
pub use declined::{DeclinedSection, insert_declined_sections, name_rejected_formats, rewrite_declined_sections};
pub use description::{CertificateDigest, DescribedSection, SdpDescription, SectionKind, attribute};
pub use extensions::{AUDIO_LEVEL_URI, MID_URI};
pub use offer::{PreparedOffer, SdpError, prepare_offer, prepare_sfu_description};
pub use section::NegotiatedCodec;
pub use whatsapp::{CallAnswer, CallError, prepare_call, write_call_answer};
pub use write::{AcceptedAudio, AnswerTransport, AnsweredSection, write_answer};

/// Splits a line into its type letter and its value.
fn split_line(line: &str) -> Option<(char, &str)> {
    let mut chars = line.chars();
    let kind = chars.next().filter(char::is_ascii_lowercase)?;
    let value = chars.as_str().strip_prefix('=')?;
    Some((kind, value))
}

/// Splits an attribute into name and value; a flag has an empty value.
fn split_attribute(attribute: &str) -> (&str, &str) {
    attribute.split_once(':').unwrap_or((attribute, ""))
}

/// Returns the RTP payload type at the start of an attribute's value.
fn payload_type(value: &str) -> Option<u8> {
    let word = value.split(' ').next()?;
    // RFC 3550 section 5.1: seven bits. A leading `+` or `0` would be a second spelling.
    word.parse()
        .ok()
        .filter(|number: &u8| *number < 128 && number.to_string() == word)
}

/// Returns the start of a peer's text for an error message.
fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}

fn push_line(text: &mut String, parts: &[&str]) {
    parts.iter().for_each(|part| text.push_str(part));
    text.push_str("\r\n");
}

#[cfg(test)]
mod tests;
