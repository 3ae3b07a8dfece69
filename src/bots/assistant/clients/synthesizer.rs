//! Text to speech: a Wyoming server, or an HTTP service.
//!
//! In: a sentence. Out: `i16` mono samples with their rate, as fast as the service makes them and
//! their owner takes them: a service that runs ahead is not read. One connection for each sentence.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::http_exchange::{HttpPost, post};
use super::wyoming_stream::WyomingStream;
use super::{AnswerClock, FirstByteTimeout, ServiceSession};
use crate::limits::{RATES_HZ, SPEECH_MAX};
use crate::proto::assistant::services::endpoint::{HttpBase, ServiceAccess, ServiceAuthority, ServiceEndpoint};
use crate::proto::assistant::services::failure::ServiceFailure;
use crate::proto::assistant::services::progress::ServiceProgress;
use crate::proto::assistant::services::speech::{PcmReader, SpeechReader, VoiceSettings, speech_request};
use crate::proto::assistant::services::wyoming::{WyomingEvent, write_synthesize};

/// A service that speaks.
#[derive(Clone)]
pub struct SpeechSynthesizer {
    access: ServiceAccess,
    settings: Arc<VoiceSettings>,
    first_byte_timeout: FirstByteTimeout,
}

/// What a voice says.
#[derive(Debug, PartialEq, Eq)]
pub enum VoiceEvent {
    /// Samples, mono.
    Audio { pcm: Vec<i16>, rate_hz: u32 },
    /// The last event.
    Done,
}

impl SpeechSynthesizer {
    pub fn new(access: ServiceAccess, settings: VoiceSettings) -> Self {
        SpeechSynthesizer {
            access,
            settings: Arc::new(settings),
            first_byte_timeout: FirstByteTimeout::default(),
        }
    }

    /// Asks for the speech of a text.
    pub fn start(&self, text: &str) -> ServiceSession<VoiceEvent> {
        let this = self.clone();
        match self.access.endpoint().clone() {
            ServiceEndpoint::Wyoming(server) => {
                let text = text.to_owned();
                ServiceSession::new(|events| this.run_wyoming(server, text, events))
            }
            ServiceEndpoint::Http(base) => {
                let body = speech_request(&self.settings, text).to_string().into_bytes();
                ServiceSession::new(|events| this.run_http(base, body, events))
            }
        }
    }

    async fn run_http(
        self,
        base: HttpBase,
        body: Vec<u8>,
        events: mpsc::Sender<VoiceEvent>,
    ) -> Result<VoiceEvent, ServiceFailure> {
        let mut answer = post(HttpPost {
            base,
            access: self.access,
            path: "audio/speech",
            content_type: "application/json".to_owned(),
            body,
            first_byte_timeout: self.first_byte_timeout,
        })
        .await?;
        match &*answer.content_type {
            "" | "application/octet-stream" | "audio/pcm" | "audio/l16" | "audio/raw" => {}
            other if other.starts_with("audio/") && other.ends_with("wav") => {}
            "audio/wave" | "audio/vnd.wave" => {}
            _ => return Err(answer.unexpected("audio that is neither PCM nor WAV").await),
        }
        let (mut reader, mut length) = (SpeechReader::new(self.settings.pcm_rate_hz), SpeechLength::default());
        loop {
            let piece = answer.next_piece().await?;
            let mut pcm = Vec::new();
            match &piece {
                Some(bytes) => reader.push(bytes, &mut pcm)?,
                None => reader.finish(&mut pcm)?,
            }
            let rate_hz = reader.rate_hz().filter(|_| !pcm.is_empty());
            let is_over = rate_hz.is_some_and(|rate_hz| length.add(pcm.len(), rate_hz));
            match rate_hz {
                Some(rate_hz) => {
                    answer.clock.handle_progress(ServiceProgress::Output);
                    answer.clock.send(&events, VoiceEvent::Audio { pcm, rate_hz }).await;
                }
                None => answer.clock.handle_progress(match &piece {
                    Some(header) if !header.is_empty() => ServiceProgress::Working,
                    _ => ServiceProgress::None,
                }),
            }
            if piece.is_none() || is_over {
                return Ok(VoiceEvent::Done);
            }
        }
    }

    async fn run_wyoming(
        self,
        server: ServiceAuthority,
        text: String,
        events: mpsc::Sender<VoiceEvent>,
    ) -> Result<VoiceEvent, ServiceFailure> {
        let mut stream = WyomingStream::connect(&server).await?;
        let (voice, language) = (self.settings.voice.as_deref(), self.settings.language.as_deref());
        write_synthesize(&mut stream.unsent, &text, voice, language);
        let mut clock = AnswerClock::start(self.first_byte_timeout);
        let (mut format, mut length) = (None, SpeechLength::default());
        loop {
            let event = clock.within(stream.next_event()).await??;
            match &*event.kind {
                "audio-start" => {
                    format = Some(AudioFormat::of(&event)?);
                    clock.handle_progress(ServiceProgress::Working);
                }
                "audio-chunk" => {
                    let format = match &mut format {
                        Some(format) => format,
                        None => format.insert(AudioFormat::of(&event)?),
                    };
                    let (mut pcm, rate_hz) = (Vec::new(), format.rate_hz);
                    format.reader.push(&event.payload, &mut pcm);
                    if pcm.is_empty() {
                        clock.handle_progress(ServiceProgress::None);
                        continue;
                    }
                    let is_over = length.add(pcm.len(), rate_hz);
                    clock.handle_progress(ServiceProgress::Output);
                    clock.send(&events, VoiceEvent::Audio { pcm, rate_hz }).await;
                    if is_over {
                        return Ok(VoiceEvent::Done);
                    }
                }
                "audio-stop" => return Ok(VoiceEvent::Done),
                _ => clock.handle_progress(ServiceProgress::None),
            }
        }
    }
}

/// The format of the audio of a Wyoming server.
struct AudioFormat {
    rate_hz: u32,
    reader: PcmReader,
}

impl AudioFormat {
    fn of(event: &WyomingEvent) -> Result<Self, ServiceFailure> {
        let wrong = ServiceFailure::Malformed("audio that is no 16-bit PCM of 8 to 48 kHz");
        let rate_hz = event.number("rate").and_then(|rate_hz| u32::try_from(rate_hz).ok());
        let channels = event.number("channels").unwrap_or(1);
        match rate_hz.filter(|rate_hz| RATES_HZ.contains(rate_hz)) {
            Some(rate_hz) if event.number("width") == Some(2) && (1..=2).contains(&channels) => Ok(AudioFormat {
                rate_hz,
                reader: PcmReader::new(channels as usize),
            }),
            _ => Err(wrong),
        }
    }
}

/// The length of the speech so far.
#[derive(Default)]
struct SpeechLength(Duration);

impl SpeechLength {
    /// Adds samples. Returns whether there is more speech than any text has.
    fn add(&mut self, samples: usize, rate_hz: u32) -> bool {
        self.0 += Duration::from_micros(samples as u64 * 1_000_000 / u64::from(rate_hz));
        self.0 > SPEECH_MAX
    }
}
