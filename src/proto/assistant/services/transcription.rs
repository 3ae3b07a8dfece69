//! Transcription of a whole utterance over HTTP: the form with the recording, and the answer.
//!
//! In: samples at 16 kHz; then the body of the answer, or the data of its server-sent events. Out:
//! a `multipart/form-data` body with a WAV file; then the text. Source: the types of the Python
//! library `openai`, RFC 7578.

use serde_json::Value;

use super::failure::ServiceFailure;
use super::progress::ServiceProgress;
use super::speech::wav_header;
use crate::assistant::cascade::RECOGNIZER_RATE_HZ;
use crate::limits::TRANSCRIPT_BYTES_MAX;
use crate::text::beginning;

/// What every request to a recogniser contains.
#[derive(Clone, Debug, Default)]
pub struct RecognizerSettings {
    pub model: Option<String>,
    pub language: Option<String>,
    /// Words that the recogniser may expect. Wyoming servers do not receive it.
    pub prompt: Option<String>,
    /// Whether to ask for the text while it is made. Servers that cannot do so reject it.
    pub is_streamed: bool,
}

/// Returns the fields of the form and the recording. `boundary` is random, so that no recording
/// contains it.
pub fn form(settings: &RecognizerSettings, boundary: &str, pcm: &[i16]) -> Vec<u8> {
    let mut body = Vec::with_capacity(2 * pcm.len() + 1024);
    let fields = [
        ("model", settings.model.as_deref()),
        ("language", settings.language.as_deref()),
        ("prompt", settings.prompt.as_deref()),
        ("response_format", Some("json")),
        ("stream", settings.is_streamed.then_some("true")),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            let head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
            body.extend_from_slice(head.as_bytes());
        }
    }
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"speech.wav\"\r\nContent-Type: \
         audio/wav\r\n\r\n"
    );
    body.extend_from_slice(head.as_bytes());
    body.extend_from_slice(&wav_header(RECOGNIZER_RATE_HZ, pcm.len()));
    body.extend(pcm.iter().flat_map(|sample| sample.to_le_bytes()));
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    body
}

/// Returns the text of an answer in one piece.
///
/// # Errors
/// [`ServiceFailure::Malformed`] without a text, or the error that the service reports.
pub fn text_of(body: &[u8]) -> Result<String, ServiceFailure> {
    let answer: Value =
        serde_json::from_slice(body).map_err(|_| ServiceFailure::Malformed("a text that is no JSON"))?;
    if let Some(error) = answer.get("error").filter(|error| !error.is_null()) {
        return Err(ServiceFailure::of_error(error));
    }
    match answer.get("text").and_then(Value::as_str) {
        Some(text) => Ok(beginning(text, TRANSCRIPT_BYTES_MAX).to_owned()),
        None => Err(ServiceFailure::Malformed("an answer without a text")),
    }
}

/// Reads a streamed answer.
#[derive(Debug, Default)]
pub struct TranscriptReader {
    text: String,
    is_done: bool,
}

impl TranscriptReader {
    /// Reads the data of an event. The text has grown by [`ServiceProgress::Output`].
    ///
    /// # Errors
    /// [`ServiceFailure`] if the service reports an error, or the data is no JSON.
    pub fn read(&mut self, data: &str) -> Result<ServiceProgress, ServiceFailure> {
        if self.is_done || data.trim() == "[DONE]" {
            return Ok(ServiceProgress::None);
        }
        let event: Value = serde_json::from_str(data).map_err(|_| ServiceFailure::Malformed("an event is no JSON"))?;
        if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
            return Err(ServiceFailure::of_error(error));
        }
        let field = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
        match field("type") {
            "transcript.text.delta" => {
                let left = TRANSCRIPT_BYTES_MAX - self.text.len();
                self.text.push_str(beginning(field("delta"), left));
                Ok(match field("delta") {
                    "" => ServiceProgress::None,
                    _ => ServiceProgress::Output,
                })
            }
            "transcript.text.done" => {
                self.text = beginning(field("text"), TRANSCRIPT_BYTES_MAX).to_owned();
                self.is_done = true;
                Ok(ServiceProgress::Working)
            }
            _ => Ok(ServiceProgress::None),
        }
    }

    /// Returns all of the text so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Returns the text at the end of the stream.
    ///
    /// # Errors
    /// [`ServiceFailure::CutShort`] if the last event is missing.
    pub fn finish(self) -> Result<String, ServiceFailure> {
        match self.is_done {
            true => Ok(self.text),
            false => Err(ServiceFailure::CutShort),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::server::multipart::{self, MultipartError, MultipartEvent, MultipartParser};

    /// The form, as the parser of the runner's own uploads reads it.
    #[test]
    fn a_form_has_the_fields_and_a_wav_file() {
        let settings = RecognizerSettings {
            model: Some("whisper-1".to_owned()),
            language: Some("de".to_owned()),
            is_streamed: true,
            ..RecognizerSettings::default()
        };
        let body = form(&settings, "b0", &[1, -2]);
        let boundary = multipart::boundary(b"multipart/form-data; boundary=b0").expect("a boundary");
        let mut parser = MultipartParser::new(&boundary);
        let (mut fields, mut file) = (Vec::new(), Vec::new());
        parser
            .push(&body, &mut |event| {
                match event {
                    MultipartEvent::Field { name, value } => {
                        fields.push((name.to_owned(), String::from_utf8_lossy(value).into_owned()));
                    }
                    MultipartEvent::Data(data) => file.extend_from_slice(data),
                    _ => {}
                }
                Ok::<(), MultipartError>(())
            })
            .expect("a form");
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(
            fields,
            [
                ("model", "whisper-1"),
                ("language", "de"),
                ("response_format", "json"),
                ("stream", "true")
            ]
        );
        assert_eq!(
            (file.len(), &file[..4], &file[44..]),
            (48, &b"RIFF"[..], &[1, 0, 0xFE, 0xFF][..])
        );
    }

    #[test]
    fn answers_in_one_piece_have_a_text() {
        assert_eq!(text_of(b"{\"text\":\" Hello. \",\"x\":1}"), Ok(" Hello. ".to_owned()));
        assert_eq!(
            text_of(b"{\"text\":null}"),
            Err(ServiceFailure::Malformed("an answer without a text"))
        );
        assert_eq!(
            text_of(b"Hello"),
            Err(ServiceFailure::Malformed("a text that is no JSON"))
        );
        assert_eq!(text_of(b"{\"error\":{\"code\":401}}"), Err(ServiceFailure::RefusedKey));
        let long = json!({"text": "x".repeat(TRANSCRIPT_BYTES_MAX + 1)}).to_string();
        assert_eq!(
            text_of(long.as_bytes()).map(|text| text.len()),
            Ok(TRANSCRIPT_BYTES_MAX)
        );
    }

    #[test]
    fn deltas_are_joined_and_replaced_by_the_final_text() {
        let mut reader = TranscriptReader::default();
        let mut read = |event: Value| {
            let grown = reader.read(&event.to_string());
            (grown, reader.text().to_owned())
        };
        let delta = |delta: &str| json!({"type": "transcript.text.delta", "delta": delta});
        assert_eq!(read(delta("Hel")), (Ok(ServiceProgress::Output), "Hel".to_owned()));
        assert_eq!(
            read(json!({"type": "other", "text": "x"})),
            (Ok(ServiceProgress::None), "Hel".to_owned())
        );
        assert_eq!(read(delta("")), (Ok(ServiceProgress::None), "Hel".to_owned()));
        assert_eq!(
            read(delta(&"l".repeat(TRANSCRIPT_BYTES_MAX))).1.len(),
            TRANSCRIPT_BYTES_MAX
        );
        assert_eq!(
            read(json!({"type": "transcript.text.done", "text": "Hello."})),
            (Ok(ServiceProgress::Working), "Hello.".to_owned())
        );
        assert!(reader.is_done() && reader.finish().is_ok());
        let mut cut = TranscriptReader::default();
        assert_eq!(cut.read("[DONE]"), Ok(ServiceProgress::None));
        assert_eq!(
            cut.read("{\"error\":{\"code\":\"insufficient_quota\"}}"),
            Err(ServiceFailure::NoQuota)
        );
        assert_eq!(cut.finish(), Err(ServiceFailure::CutShort));
    }
}
