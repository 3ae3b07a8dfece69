//! Synthesised speech over HTTP: the request, and a reader of the audio.
//!
//! In: a text; then pieces of the body, cut anywhere, also within a sample. Out: the request as
//! JSON; then `i16` mono samples and their rate. The body is headerless PCM at a known rate, or a
//! WAV file, which is recognised by its first bytes whatever was asked for. Lengths in the header
//! are ignored, since streams write 0 or 0xFFFFFFFF. Channels are averaged. Source: the types of
//! the Python library `openai`; Microsoft, "Multiple Channel Audio Data and WAVE Files".

use serde_json::{Map, Value, json};

use super::failure::ServiceFailure;
use crate::limits::RATES_HZ;

/// Characters of one request to a voice: the most that services accept.
const SPEECH_TEXT_CHARS_MAX: usize = 4_096;
/// Bytes of a WAV header with all that may stand before the samples.
const WAV_HEADER_BYTES_MAX: usize = 64 * 1024;

/// The length of a WAV header with PCM and nothing else.
pub const WAV_HEADER_BYTES: usize = 44;

/// What every request to a voice contains.
#[derive(Clone, Debug, Default)]
pub struct VoiceSettings {
    pub model: Option<String>,
    pub voice: Option<String>,
    /// For Wyoming servers, which choose a voice by it.
    pub language: Option<String>,
    /// The rate of the headerless PCM to ask for; without it, a WAV file is asked for.
    pub pcm_rate_hz: Option<u32>,
    pub speed: Option<f64>,
    /// Further fields of an HTTP request. They cannot replace those above and the text.
    pub extra: Map<String, Value>,
}

/// Returns the body of a request.
pub fn speech_request(settings: &VoiceSettings, text: &str) -> Value {
    let text = match text.char_indices().nth(SPEECH_TEXT_CHARS_MAX) {
        Some((end, _)) => &text[..end],
        None => text,
    };
    let mut body = settings.extra.clone();
    let format = if settings.pcm_rate_hz.is_some() { "pcm" } else { "wav" };
    let fields = [
        ("model", json!(settings.model)),
        ("voice", json!(settings.voice)),
        ("speed", json!(settings.speed)),
        ("input", json!(text)),
        ("response_format", json!(format)),
    ];
    let given = fields.into_iter().filter(|(_, value)| !value.is_null());
    body.extend(given.map(|(name, value)| (name.to_owned(), value)));
    Value::Object(body)
}

/// Joins bytes to samples.
#[derive(Debug, Default)]
pub struct PcmReader {
    channels: usize,
    /// The beginning of a frame of samples.
    held: Vec<u8>,
}

impl PcmReader {
    /// Creates a reader of interleaved samples, which it averages.
    pub fn new(channels: usize) -> Self {
        PcmReader {
            channels: channels.max(1),
            held: Vec::new(),
        }
    }

    /// Reads bytes, and appends samples.
    pub fn push(&mut self, mut bytes: &[u8], pcm: &mut Vec<i16>) {
        let frame_bytes = 2 * self.channels.max(1);
        if !self.held.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(frame_bytes - self.held.len()));
            self.held.extend_from_slice(part);
            bytes = rest;
            if self.held.len() < frame_bytes {
                return;
            }
            pcm.push(averaged(&self.held));
            self.held.clear();
        }
        let frames = bytes.chunks_exact(frame_bytes);
        self.held.extend_from_slice(frames.remainder());
        pcm.extend(frames.map(averaged));
    }
}

fn averaged(frame: &[u8]) -> i16 {
    let samples = frame.chunks_exact(2);
    let count = samples.len() as i32;
    let sum: i32 = samples
        .map(|pair| i32::from(i16::from_le_bytes([pair[0], pair[1]])))
        .sum();
    (sum / count.max(1)) as i16
}

/// Reads the audio of one answer.
#[derive(Debug)]
pub struct SpeechReader {
    state: SpeechReaderState,
    rate_hz: Option<u32>,
}

#[derive(Debug)]
enum SpeechReaderState {
    /// The beginning, until it is known whether there is a header, and where it ends.
    Head(Vec<u8>, WavChunks),
    Samples(PcmReader),
}

impl SpeechReader {
    /// Creates a reader. `pcm_rate_hz` is the rate of a body without a header; without a rate, such
    /// a body is an error.
    pub fn new(pcm_rate_hz: Option<u32>) -> Self {
        SpeechReader {
            state: SpeechReaderState::Head(Vec::new(), WavChunks::default()),
            rate_hz: pcm_rate_hz,
        }
    }

    /// Returns the rate, which is certain once there are samples.
    pub fn rate_hz(&self) -> Option<u32> {
        self.rate_hz
    }

    /// Reads a piece of the body, and appends samples.
    ///
    /// # Errors
    /// [`ServiceFailure::Malformed`] for a body that is neither PCM at a known rate nor WAV with 16
    /// bits.
    pub fn push(&mut self, bytes: &[u8], pcm: &mut Vec<i16>) -> Result<(), ServiceFailure> {
        match &mut self.state {
            SpeechReaderState::Samples(samples) => {
                samples.push(bytes, pcm);
                return Ok(());
            }
            SpeechReaderState::Head(head, _) => head.extend_from_slice(bytes),
        }
        self.read_head(false, pcm)
    }

    /// Reads the end of the body, and appends the rest.
    ///
    /// # Errors
    /// As [`SpeechReader::push`].
    pub fn finish(&mut self, pcm: &mut Vec<i16>) -> Result<(), ServiceFailure> {
        self.read_head(true, pcm)
    }

    fn read_head(&mut self, is_end: bool, pcm: &mut Vec<i16>) -> Result<(), ServiceFailure> {
        let SpeechReaderState::Head(head, chunks) = &mut self.state else {
            return Ok(());
        };
        let begins = |at: usize, tag: &[u8]| {
            let part = head.get(at..).unwrap_or_default();
            let part = &part[..part.len().min(tag.len())];
            part == &tag[..part.len()]
        };
        let may_be_wav = begins(0, b"RIFF") && begins(8, b"WAVE");
        if may_be_wav && head.len() < 12 && !is_end {
            return Ok(());
        }
        let (mut samples, start) = if may_be_wav && head.len() >= 12 {
            match chunks.read(head)? {
                Some(found) => {
                    self.rate_hz = Some(found.rate_hz);
                    (PcmReader::new(found.channels), found.start)
                }
                None if is_end => return Err(ServiceFailure::CutShort),
                None if head.len() > WAV_HEADER_BYTES_MAX => {
                    return Err(ServiceFailure::Malformed("a WAV header that is too long"));
                }
                None => return Ok(()),
            }
        } else if self.rate_hz.is_some() || head.is_empty() {
            (PcmReader::new(1), 0)
        } else {
            return Err(ServiceFailure::Malformed("audio that is no WAV file"));
        };
        samples.push(&head[start..], pcm);
        self.state = SpeechReaderState::Samples(samples);
        Ok(())
    }
}

/// What a WAV header says.
struct WavHead {
    rate_hz: u32,
    channels: usize,
    /// Where the samples begin.
    start: usize,
}

/// Reads the chunks of a header. What it has read stays read when more bytes come, so that a header
/// in many pieces costs no more than one in a single piece.
#[derive(Debug)]
struct WavChunks {
    /// Where the next chunk begins.
    at: usize,
    /// The rate in Hz and the channels, once they are known.
    format: Option<(u32, usize)>,
}

impl Default for WavChunks {
    fn default() -> Self {
        // After `RIFF`, a length and `WAVE`.
        WavChunks { at: 12, format: None }
    }
}

impl WavChunks {
    /// Reads a header up to the samples; `None` if more bytes are needed.
    fn read(&mut self, bytes: &[u8]) -> Result<Option<WavHead>, ServiceFailure> {
        let number = |at: usize| -> Option<u32> { Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?)) };
        let short = |at: usize| -> Option<u16> { Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)) };
        loop {
            let (Some(tag), Some(length)) = (bytes.get(self.at..self.at + 4), number(self.at + 4)) else {
                return Ok(None);
            };
            let body = self.at + 8;
            match tag {
                b"data" => {
                    let (rate_hz, channels) = self
                        .format
                        .ok_or(ServiceFailure::Malformed("a WAV file without a format"))?;
                    return Ok(Some(WavHead {
                        rate_hz,
                        channels,
                        start: body,
                    }));
                }
                b"fmt " => {
                    let (Some(kind), Some(channels), Some(rate_hz), Some(bits)) =
                        (short(body), short(body + 2), number(body + 4), short(body + 14))
                    else {
                        return Ok(None);
                    };
                    // 1 is PCM, 0xFFFE is described further on, by those who write 16 bits as PCM.
                    let is_known = matches!(kind, 1 | 0xFFFE) && bits == 16 && (1..=2).contains(&channels);
                    if !is_known || !RATES_HZ.contains(&rate_hz) {
                        return Err(ServiceFailure::Malformed(
                            "a WAV file with no 16-bit PCM of 8 to 48 kHz",
                        ));
                    }
                    self.format = Some((rate_hz, usize::from(channels)));
                }
                _ => {}
            }
            // Chunks have an even length.
            let length = length as usize;
            self.at = body
                .saturating_add(length.saturating_add(length % 2))
                .min(WAV_HEADER_BYTES_MAX + 1);
            if self.at > WAV_HEADER_BYTES_MAX {
                return Err(ServiceFailure::Malformed("a WAV header that is too long"));
            }
        }
    }
}

/// Returns the header of a WAV file with this many samples, mono.
pub fn wav_header(rate_hz: u32, samples: usize) -> [u8; WAV_HEADER_BYTES] {
    let data_bytes = u32::try_from(2 * samples).unwrap_or(u32::MAX);
    let mut header = [0; WAV_HEADER_BYTES];
    header[..4].copy_from_slice(b"RIFF");
    header[4..8].copy_from_slice(&data_bytes.saturating_add(36).to_le_bytes());
    header[8..16].copy_from_slice(b"WAVEfmt ");
    header[16..20].copy_from_slice(&16_u32.to_le_bytes());
    // PCM, one channel.
    header[20..24].copy_from_slice(&[1, 0, 1, 0]);
    header[24..28].copy_from_slice(&rate_hz.to_le_bytes());
    header[28..32].copy_from_slice(&(2 * rate_hz).to_le_bytes());
    // Two bytes for each frame, 16 bits for each sample.
    header[32..36].copy_from_slice(&[2, 0, 16, 0]);
    header[36..40].copy_from_slice(b"data");
    header[40..].copy_from_slice(&data_bytes.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a body in pieces, and returns the rate and the samples.
    fn read(
        body: &[u8],
        pcm_rate_hz: Option<u32>,
        piece_bytes: usize,
    ) -> Result<(Option<u32>, Vec<i16>), ServiceFailure> {
        let (mut reader, mut pcm) = (SpeechReader::new(pcm_rate_hz), Vec::new());
        for piece in body.chunks(piece_bytes) {
            reader.push(piece, &mut pcm)?;
        }
        reader.finish(&mut pcm)?;
        Ok((reader.rate_hz(), pcm))
    }

    fn wav(rate_hz: u32, data: &[u8]) -> Vec<u8> {
        let mut file = wav_header(rate_hz, 0).to_vec();
        file.extend_from_slice(data);
        file
    }

    #[test]
    fn a_request_has_the_text_up_to_its_limit() {
        let mut settings = VoiceSettings {
            voice: Some("v".to_owned()),
            ..VoiceSettings::default()
        };
        assert_eq!(
            speech_request(&settings, "Hi"),
            json!({"voice": "v", "input": "Hi", "response_format": "wav"})
        );
        settings.pcm_rate_hz = Some(24_000);
        settings.model = Some("m".to_owned());
        settings.extra = json!({"sample_rate": 24_000, "input": "x"})
            .as_object()
            .expect("an object")
            .clone();
        let body = speech_request(&settings, &"é".repeat(SPEECH_TEXT_CHARS_MAX + 1));
        assert_eq!(
            (&body["response_format"], &body["sample_rate"]),
            (&json!("pcm"), &json!(24_000))
        );
        assert_eq!(
            body["input"].as_str().map(|text| text.chars().count()),
            Some(SPEECH_TEXT_CHARS_MAX)
        );
    }

    #[test]
    fn samples_are_the_same_however_they_are_cut() {
        let pcm = [1_i16, -2, 0x7FFF, -0x8000];
        let data: Vec<u8> = pcm.iter().flat_map(|sample| sample.to_le_bytes()).chain([9]).collect();
        let mut streamed = wav(22_050, &data);
        streamed[4..8].fill(0xFF);
        streamed[40..44].fill(0xFF);
        let mut listed = wav(16_000, &data);
        listed.splice(36..36, *b"LIST\x03\0\0\0abc\0");
        let mut described = wav(16_000, &data);
        described[20..22].copy_from_slice(&[0xFE, 0xFF]);
        described[16] = 40;
        described.splice(36..36, [0; 24]);
        for (body, given, rate_hz) in [
            (data.clone(), Some(24_000), 24_000),
            (wav(22_050, &data), None, 22_050),
            (streamed, Some(24_000), 22_050),
            (listed, None, 16_000),
            (described, None, 16_000),
        ] {
            for piece_bytes in 1..=body.len() {
                assert_eq!(
                    read(&body, given, piece_bytes),
                    Ok((Some(rate_hz), pcm.to_vec())),
                    "{piece_bytes}"
                );
            }
        }
    }

    #[test]
    fn channels_are_averaged() {
        let mut body = wav(48_000, &[10, 0, 20, 0, 1, 0, 4, 0, 7]);
        body[22] = 2;
        for piece_bytes in 1..body.len() {
            assert_eq!(
                read(&body, None, piece_bytes),
                Ok((Some(48_000), vec![15, 2])),
                "{piece_bytes}"
            );
        }
    }

    #[test]
    fn short_bodies_are_pcm_or_nothing() {
        assert_eq!(read(b"", None, 1), Ok((None, vec![])));
        assert_eq!(
            read(b"RI", Some(8_000), 1),
            Ok((Some(8_000), vec![i16::from_le_bytes(*b"RI")]))
        );
        assert_eq!(read(b"RIFF", Some(8_000), 1).map(|it| it.1.len()), Ok(2));
        assert_eq!(read(b"RIFFxxxxWAVE", Some(8_000), 1), Err(ServiceFailure::CutShort));
        assert_eq!(
            read(b"{}", None, 1),
            Err(ServiceFailure::Malformed("audio that is no WAV file"))
        );
    }

    #[test]
    fn other_formats_and_long_headers_are_rejected() {
        let changed = |at: usize, value: u8| {
            let mut body = wav(16_000, &[0; 4]);
            body[at] = value;
            body
        };
        let long = |bytes: usize| {
            let mut body = wav(16_000, &[0; 4]);
            let mut chunk = b"LIST".to_vec();
            chunk.extend_from_slice(&(bytes as u32).to_le_bytes());
            chunk.resize(8 + bytes, 0);
            body.splice(36..36, chunk);
            body
        };
        for body in [
            changed(20, 3),
            changed(22, 0),
            changed(22, 6),
            changed(34, 8),
            changed(25, 0),
            changed(16, 255),
        ] {
            assert!(matches!(
                read(&body, None, 7),
                Err(ServiceFailure::Malformed(_) | ServiceFailure::CutShort)
            ));
        }
        assert!(read(&long(WAV_HEADER_BYTES_MAX - 44), None, 1_000).is_ok());
        assert!(matches!(
            read(&long(WAV_HEADER_BYTES_MAX), None, 1_000),
            Err(ServiceFailure::Malformed(_))
        ));
        let mut formless = b"RIFFxxxxWAVEdata".to_vec();
        formless.extend_from_slice(&[0; 8]);
        assert_eq!(
            read(&formless, None, 1),
            Err(ServiceFailure::Malformed("a WAV file without a format"))
        );
    }
}
