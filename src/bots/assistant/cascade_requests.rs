//! The requests of one session to the services of the bot `cascade`.
//!
//! In: what to ask, by the identifiers of the engine. Out: [`RequestEvent`]s. Requests are served
//! while [`CascadeRequests::recv`] waits; dropping one closes its connection.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};

use super::clients::ServiceSession;
use super::clients::chat_model::{ChatEvent, ChatModel};
use super::clients::recognizer::{Recognition, SpeechRecognizer, TranscriptEvent};
use super::clients::synthesizer::{SpeechSynthesizer, VoiceEvent};
use crate::config::{CascadeServices, ServiceVendor};
use crate::proto::assistant::body::BodyOptions;
use crate::proto::assistant::cascade::ChatRequest;
use crate::proto::assistant::services::chat::{ChatOutcome, ChatSettings, sends_usage_unasked};
use crate::proto::assistant::services::failure::ServiceFailure;
use crate::proto::assistant::services::speech::VoiceSettings;
use crate::proto::assistant::services::transcription::RecognizerSettings;

/// An answer to a request.
#[derive(Debug)]
pub enum RequestEvent {
    Transcript { text: String, is_final: bool },
    ChatText(String),
    ChatDone(ChatOutcome),
    Speech { pcm: Vec<i16>, rate_hz: u32 },
    SpeechDone,
    Failed(ServiceFailure),
}

/// The services, and the requests that are not over.
pub struct CascadeRequests {
    recognizer: SpeechRecognizer,
    model: ChatModel,
    voice: SpeechSynthesizer,
    recognitions: Vec<(u64, Recognition)>,
    chat: Option<(u64, ServiceSession<ChatEvent>)>,
    synthesis: Option<(u64, ServiceSession<VoiceEvent>)>,
}

impl CascadeRequests {
    /// `language` is that of the configuration; the body may name another one.
    pub fn new(services: &CascadeServices, language: Option<&str>, body: &BodyOptions) -> Self {
        let language = body.language.as_deref().or(language).map(str::to_owned);
        let CascadeServices {
            recognizer,
            chat,
            voice,
        } = services;
        let recognizer_settings = RecognizerSettings {
            model: recognizer.model.clone(),
            language: language.clone(),
            prompt: None,
            is_streamed: false,
        };
        let is_other = chat.access.endpoint().vendor() == ServiceVendor::Other;
        let chat_settings = ChatSettings {
            model: chat.model.clone(),
            tokens_max: chat.tokens_max,
            uses_completion_tokens: !is_other,
            sends_usage_unasked: sends_usage_unasked(chat.access.endpoint().host()),
            marks: is_other.then(|| chat.marks.clone()),
            ..ChatSettings::default()
        };
        let voice_settings = VoiceSettings {
            model: voice.model.clone(),
            voice: body.voice.clone().or_else(|| voice.voice.clone()),
            language: language.clone(),
            pcm_rate_hz: voice.rate_hz,
            ..VoiceSettings::default()
        };
        CascadeRequests {
            recognizer: SpeechRecognizer::new(recognizer.access.clone(), recognizer_settings),
            model: ChatModel::new(chat.access.clone(), chat_settings, language),
            voice: SpeechSynthesizer::new(voice.access.clone(), voice_settings),
            recognitions: Vec::new(),
            chat: None,
            synthesis: None,
        }
    }

    pub fn start_recognition(&mut self, id: u64) {
        self.recognitions.push((id, self.recognizer.start()));
    }

    /// Adds audio of an utterance.
    pub fn recognize(&mut self, id: u64, pcm: &[i16]) {
        if let Some(recognition) = self.recognition(id) {
            recognition.push_audio(pcm);
        }
    }

    pub fn finish_recognition(&mut self, id: u64) {
        if let Some(recognition) = self.recognition(id) {
            recognition.finish();
        }
    }

    pub fn start_chat(&mut self, id: u64, request: ChatRequest) {
        self.chat = Some((id, self.model.start(request)));
    }

    pub fn synthesize(&mut self, id: u64, text: &str) {
        self.synthesis = Some((id, self.voice.start(text)));
    }

    /// Ends a request.
    pub fn cancel(&mut self, id: u64) {
        self.recognitions.retain(|(known, _)| *known != id);
        self.chat.take_if(|(known, _)| *known == id);
        self.synthesis.take_if(|(known, _)| *known == id);
    }

    /// Waits for the next answer. While `wants_speech` is false, speech is not read.
    ///
    /// This method is cancel safe: dropping its future loses no answer.
    pub async fn recv(&mut self, wants_speech: bool) -> (u64, RequestEvent) {
        let (id, event, is_last) = poll_fn(|cx| self.poll(cx, wants_speech)).await;
        if is_last {
            self.cancel(id);
        }
        (id, event)
    }

    fn poll(&mut self, cx: &mut Context<'_>, wants_speech: bool) -> Poll<(u64, RequestEvent, bool)> {
        for (id, recognition) in &mut self.recognitions {
            if let Poll::Ready(answer) = pin!(recognition.recv()).poll(cx) {
                return Poll::Ready(transcript(*id, answer));
            }
        }
        if let Some((id, chat)) = &mut self.chat
            && let Poll::Ready(answer) = pin!(chat.recv()).poll(cx)
        {
            return Poll::Ready(chat_answer(*id, answer));
        }
        if let Some((id, synthesis)) = self.synthesis.as_mut().filter(|_| wants_speech)
            && let Poll::Ready(answer) = pin!(synthesis.recv()).poll(cx)
        {
            return Poll::Ready(speech(*id, answer));
        }
        Poll::Pending
    }

    fn recognition(&mut self, id: u64) -> Option<&mut Recognition> {
        let found = self.recognitions.iter_mut().find(|(known, _)| *known == id);
        found.map(|(_, recognition)| recognition)
    }
}

/// Returns an answer, and whether it is the last one.
fn transcript(id: u64, answer: Result<TranscriptEvent, ServiceFailure>) -> (u64, RequestEvent, bool) {
    let (text, is_final) = match answer {
        Ok(TranscriptEvent::Partial(text)) => (text, false),
        Ok(TranscriptEvent::Final(text)) => (text, true),
        Err(failure) => return (id, RequestEvent::Failed(failure), true),
    };
    (id, RequestEvent::Transcript { text, is_final }, is_final)
}

fn chat_answer(id: u64, answer: Result<ChatEvent, ServiceFailure>) -> (u64, RequestEvent, bool) {
    match answer {
        Ok(ChatEvent::Text(text)) => (id, RequestEvent::ChatText(text), false),
        Ok(ChatEvent::Done(outcome)) => (id, RequestEvent::ChatDone(outcome), true),
        Err(failure) => (id, RequestEvent::Failed(failure), true),
    }
}

fn speech(id: u64, answer: Result<VoiceEvent, ServiceFailure>) -> (u64, RequestEvent, bool) {
    match answer {
        Ok(VoiceEvent::Audio { pcm, rate_hz }) => (id, RequestEvent::Speech { pcm, rate_hz }, false),
        Ok(VoiceEvent::Done) => (id, RequestEvent::SpeechDone, true),
        Err(failure) => (id, RequestEvent::Failed(failure), true),
    }
}
