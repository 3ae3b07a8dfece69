//! Speech to text: a Wyoming server, which hears the speech while it is spoken, or an HTTP service,
//! which gets the whole utterance.
//!
//! In: samples at 16 kHz, then the end of the utterance. Out: the text so far, where the service
//! tells it, and the final text. A server that finds the end by itself may answer first.

use std::future::pending;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use edge_runner_http::common::random;
use tokio::sync::mpsc;

use super::http_exchange::{HttpPost, post};
use super::wyoming_stream::WyomingStream;
use super::{AnswerClock, FirstByteTimeout, ServiceSession, cut_off, send};
use crate::limits::{SSE_STREAM_BYTES_MAX, TRANSCRIPT_BYTES_MAX, UTTERANCE_SAMPLES_MAX};
use crate::proto::assistant::services::endpoint::{HttpBase, ServiceAccess, ServiceAuthority, ServiceEndpoint};
use crate::proto::assistant::services::failure::ServiceFailure;
use crate::proto::assistant::services::progress::ServiceProgress;
use crate::proto::assistant::services::sse::SseReader;
use crate::proto::assistant::services::transcription::{RecognizerSettings, TranscriptReader, form, text_of};
use crate::proto::assistant::services::wyoming::{write_audio, write_audio_stop, write_transcribe};

/// Bytes of an answer in one piece: its text may come with words and times.
const ANSWER_BYTES_MAX: usize = 32 * TRANSCRIPT_BYTES_MAX;

/// A service that recognises speech.
#[derive(Clone)]
pub struct SpeechRecognizer {
    access: ServiceAccess,
    settings: Arc<RecognizerSettings>,
    first_byte_timeout: FirstByteTimeout,
}

/// What a recogniser says.
#[derive(Debug, PartialEq, Eq)]
pub enum TranscriptEvent {
    /// All of the text so far.
    Partial(String),
    /// The whole text, empty if there was no speech. The last event.
    Final(String),
}

/// One utterance.
pub struct Recognition {
    session: ServiceSession<TranscriptEvent>,
    /// Dropped at the end of the utterance. It holds no more than the cap of samples.
    audio: Option<mpsc::UnboundedSender<Vec<i16>>>,
    samples: usize,
}

impl SpeechRecognizer {
    pub fn new(access: ServiceAccess, settings: RecognizerSettings) -> Self {
        SpeechRecognizer {
            access,
            settings: Arc::new(settings),
            first_byte_timeout: FirstByteTimeout::default(),
        }
    }

    /// Begins an utterance.
    pub fn start(&self) -> Recognition {
        let (sender, audio) = mpsc::unbounded_channel();
        let this = self.clone();
        Recognition {
            session: ServiceSession::new(|events| async move {
                match this.access.endpoint().clone() {
                    ServiceEndpoint::Wyoming(server) => this.run_wyoming(server, audio, events).await,
                    ServiceEndpoint::Http(base) => this.run_http(base, audio, events).await,
                }
            }),
            audio: Some(sender),
            samples: 0,
        }
    }

    async fn run_wyoming(
        self,
        server: ServiceAuthority,
        mut audio: mpsc::UnboundedReceiver<Vec<i16>>,
        events: mpsc::Sender<TranscriptEvent>,
    ) -> Result<TranscriptEvent, ServiceFailure> {
        let mut stream = WyomingStream::connect(&server).await?;
        let (model, language) = (self.settings.model.as_deref(), self.settings.language.as_deref());
        write_transcribe(&mut stream.unsent, model, language);
        let mut partial = String::new();
        // Runs from the end of the utterance.
        let mut clock: Option<AnswerClock> = None;
        loop {
            let event = tokio::select! {
                event = async {
                    match &clock {
                        Some(clock) => clock.within(stream.next_event()).await?,
                        None => stream.next_event().await,
                    }
                } => event?,
                piece = next_audio(&mut audio, clock.is_some()) => {
                    match piece {
                        Some(pcm) => write_audio(&mut stream.unsent, &pcm),
                        None => {
                            write_audio_stop(&mut stream.unsent);
                            clock = Some(AnswerClock::start(self.first_byte_timeout.clone()));
                        }
                    }
                    continue;
                }
            };
            let text = event.text("text");
            let progress = match &*event.kind {
                "transcript" => return Ok(TranscriptEvent::Final(bounded(text).to_owned())),
                "transcript-chunk" if !text.is_empty() => ServiceProgress::Output,
                _ => ServiceProgress::None,
            };
            if progress == ServiceProgress::Output {
                partial.push_str(text);
                partial.truncate(bounded(&partial).len());
            }
            match (&mut clock, progress) {
                (None, ServiceProgress::Output) => send(&events, TranscriptEvent::Partial(partial.clone())).await,
                (Some(clock), ServiceProgress::Output) => {
                    clock.handle_progress(progress);
                    clock.send(&events, TranscriptEvent::Partial(partial.clone())).await;
                }
                (Some(clock), _) => clock.handle_progress(progress),
                (None, _) => {}
            }
        }
    }

    async fn run_http(
        self,
        base: HttpBase,
        mut audio: mpsc::UnboundedReceiver<Vec<i16>>,
        events: mpsc::Sender<TranscriptEvent>,
    ) -> Result<TranscriptEvent, ServiceFailure> {
        let mut pcm = Vec::new();
        while let Some(piece) = audio.recv().await {
            pcm.extend_from_slice(&piece);
        }
        let boundary = HEXLOWER.encode(&random::<16>());
        let mut answer = post(HttpPost {
            base,
            access: self.access,
            path: "audio/transcriptions",
            content_type: format!("multipart/form-data; boundary={boundary}"),
            body: form(&self.settings, &boundary, &pcm),
            first_byte_timeout: self.first_byte_timeout,
        })
        .await?;
        drop(pcm);
        if answer.content_type != "text/event-stream" {
            return text_of(&answer.collect(ANSWER_BYTES_MAX).await?).map(TranscriptEvent::Final);
        }
        let (mut lines, mut reader, mut read_bytes) = (SseReader::default(), TranscriptReader::default(), 0);
        let too_long = |_| ServiceFailure::Malformed("an event is too long");
        while let Some(piece) = answer.next_piece().await? {
            read_bytes += piece.len();
            if read_bytes > SSE_STREAM_BYTES_MAX {
                return Err(ServiceFailure::Malformed("an answer that is too long"));
            }
            let mut bytes = &piece[..];
            while let Some(data) = lines.next_event(&mut bytes).map_err(too_long)? {
                let progress = reader.read(&data)?;
                answer.clock.handle_progress(progress);
                if progress == ServiceProgress::Output {
                    let partial = TranscriptEvent::Partial(reader.text().to_owned());
                    answer.clock.send(&events, partial).await;
                }
            }
            if reader.is_done() {
                break;
            }
        }
        if let Some(data) = lines.finish().map_err(too_long)? {
            reader.read(&data).map_err(cut_off)?;
        }
        reader.finish().map(TranscriptEvent::Final)
    }
}

/// Returns the next samples, `None` once at the end of the utterance.
async fn next_audio(audio: &mut mpsc::UnboundedReceiver<Vec<i16>>, has_ended: bool) -> Option<Vec<i16>> {
    match has_ended {
        true => pending().await,
        false => audio.recv().await,
    }
}

fn bounded(text: &str) -> &str {
    let end = (0..=TRANSCRIPT_BYTES_MAX.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

impl Recognition {
    /// Adds samples at 16 kHz. Those beyond the longest utterance are dropped.
    pub fn push_audio(&mut self, pcm: &[i16]) {
        let pcm = &pcm[..pcm.len().min(UTTERANCE_SAMPLES_MAX - self.samples)];
        if let Some(audio) = self.audio.as_ref().filter(|_| !pcm.is_empty()) {
            self.samples += pcm.len();
            // A recogniser that has answered needs no more.
            let _ = audio.send(pcm.to_vec());
        }
    }

    /// Ends the utterance.
    pub fn finish(&mut self) {
        self.audio = None;
    }

    /// Returns the next event; after the last one it waits for ever. Loses nothing when dropped.
    ///
    /// # Errors
    /// [`ServiceFailure`] as the last event.
    pub async fn recv(&mut self) -> Result<TranscriptEvent, ServiceFailure> {
        self.session.recv().await
    }
}
