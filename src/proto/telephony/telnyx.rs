//! Provider b: snake_case members, `stream_id` beside `start` and not in it, numbers as strings, the call's own codec.
//!
//! In: the provider's `start`, later its `media`, whose order it does not promise, and its `error`. Out: the text of `media`,
//! `mark` and `clear`, none of which names the stream; PCM in the order of `media.chunk`.
//! What the provider sends is what the call's far end speaks; what it is sent is mu-law at 8000 Hz, its default for both
//! directions. Refuses: codecs other than G.711 and headerless PCM.
//! Source: the fact sheet on telephony, section 4.

use log::{debug, warn};
use serde_json::json;

use super::call::State;
use super::message::{self, Complaint, Object};
use super::{Call, Codec, Format, Provider, Refusal};
use crate::limits::{RATES_HZ, TELEPHONY_LOGGED_CHARS_MAX, TELEPHONY_REORDERED_MAX, TELEPHONY_WORD_CHARS_MAX};

/// Events that bring a mark back.
pub(super) const PLAYED: &[&str] = &["mark"];

/// Takes the message if it is this provider's handshake.
pub(super) fn claim(opening: &Object) -> Result<Option<Call>, Refusal> {
    let Some(start) = message::object(opening, "start") else {
        return Ok(None);
    };
    let (Some(stream_id), Some(call_id)) = (message::id(opening, "stream_id"), message::id(start, "call_control_id"))
    else {
        return Ok(None);
    };
    let encoding = message::object(start, "media_format").and_then(|format| message::text(format, "encoding"));
    Ok(Some(Call {
        provider: Provider::B,
        rx: heard(start)?,
        tx: Format::ULAW_8000,
        data: json!({
            "stream_id": stream_id,
            "call_id": call_id,
            "from": message::text(start, "from").unwrap_or_default(),
            "to": message::text(start, "to").unwrap_or_default(),
            "body": message::object(start, "custom_parameters").cloned().unwrap_or_default(),
            "outbound_encoding": encoding.as_deref().unwrap_or("PCMU"),
        }),
        malformed: 0,
        state: State::new(MEDIA_HEAD.to_string()),
        stream_id,
        call_id,
    }))
}

fn heard(start: &Object) -> Result<Format, Refusal> {
    let (encoding, rate_hz) = message::encoding(start, "media_format", "sample_rate", "pcmu");
    let codec = match encoding.as_str() {
        "pcmu" => Codec::Ulaw,
        "pcma" => Codec::Alaw,
        "l16" => Codec::L16,
        _ => return Err(Refusal::encoding(&encoding, rate_hz)),
    };
    match u32::try_from(rate_hz) {
        Ok(rate_hz) if RATES_HZ.contains(&rate_hz) => Ok(Format { codec, rate_hz }),
        _ => Err(Refusal::encoding(&encoding, rate_hz)),
    }
}

/// Logs what the provider has against a message of ours. The text may hold phone numbers, so may its title.
pub(super) fn complain(stream_id: &str, complaint: &Complaint, text: &str) {
    let word = |word: Option<&str>| -> String { word.unwrap_or("?").chars().take(TELEPHONY_WORD_CHARS_MAX).collect() };
    let code = word(complaint.code.as_str().filter(|code| code.len() <= CODE_CHARS_MAX));
    let title = word(complaint.title.as_str()).replace(char::is_numeric, "#");
    warn!("the provider of stream {stream_id} reports error {code}, {title}");
    let whole: String = text.chars().take(TELEPHONY_LOGGED_CHARS_MAX).collect();
    debug!("the error: {whole}");
}

/// Its codes have six digits; what is longer could be somebody's number.
const CODE_CHARS_MAX: usize = 6;

/// Puts frames in the order of their numbers, as far as that costs no more than a few frames of delay.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The number that comes next; none before the first frame.
    next: Option<u64>,
    /// Frames that came too early, by number.
    held: Vec<(u64, Vec<i16>)>,
    /// Frames in a row that came too late.
    late: usize,
}

impl Order {
    /// Takes the frame that was appended to `pcm` from `start` on: it stays, is held back, or is dropped; frames that waited
    /// for it follow.
    pub(super) fn place(&mut self, chunk: u64, start: usize, pcm: &mut Vec<i16>) {
        // Numbers start at 1, as documented; one who starts at 0 loses nothing either.
        let next = *self.next.get_or_insert(chunk.min(1));
        if chunk < next {
            self.late += 1;
            if self.late <= TELEPHONY_REORDERED_MAX {
                pcm.truncate(start);
                return;
            }
            // Nobody is that late: the provider counts from here.
            let frame = pcm.split_off(start);
            self.release_all(pcm);
            pcm.extend(frame);
            self.next = Some(chunk.saturating_add(1));
        } else if chunk == next {
            self.next = Some(chunk.saturating_add(1));
        } else if self.held.iter().any(|(held, _)| *held == chunk) {
            pcm.truncate(start);
            return;
        } else {
            let at = self.held.partition_point(|(held, _)| *held < chunk);
            self.held.insert(at, (chunk, pcm.split_off(start)));
            if self.held.len() > TELEPHONY_REORDERED_MAX {
                self.next = Some(self.held[0].0);
            }
        }
        self.late = 0;
        self.release(pcm);
    }

    /// Appends all that is held.
    pub(super) fn release_all(&mut self, pcm: &mut Vec<i16>) {
        for (chunk, frame) in self.held.drain(..) {
            pcm.extend(frame);
            self.next = Some(chunk.saturating_add(1));
        }
    }

    fn release(&mut self, pcm: &mut Vec<i16>) {
        while self.held.first().is_some_and(|(chunk, _)| Some(*chunk) == self.next) {
            let (chunk, frame) = self.held.remove(0);
            pcm.extend(frame);
            self.next = Some(chunk.saturating_add(1));
        }
    }
}

const MEDIA_HEAD: &str = r#"{"event":"media","media":{"payload":""#;

pub(super) fn clear() -> String {
    r#"{"event":"clear"}"#.to_string()
}

/// The name is JSON already.
pub(super) fn mark(name: &str) -> String {
    format!(r#"{{"event":"mark","mark":{{"name":{name}}}}}"#)
}
