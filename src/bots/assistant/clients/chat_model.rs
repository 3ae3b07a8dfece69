//! Texts to text: chat completions over HTTP, or a Wyoming server that handles texts.
//!
//! In: the messages of the conversation and the functions. Out: text to speak as it is written,
//! then the calls of functions. A Wyoming server gets the last message of the caller alone, and
//! calls no functions.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::mpsc;

use super::http_exchange::{HttpPost, post};
use super::wyoming_stream::WyomingStream;
use super::{AnswerClock, FirstByteTimeout, ServiceSession, cut_off};
use crate::limits::{CHAT_TEXT_BYTES_MAX, SSE_STREAM_BYTES_MAX};
use crate::proto::assistant::cascade::{ChatEnd, ChatRequest};
use crate::proto::assistant::report::TokenUsage;
use crate::proto::assistant::services::chat::{ChatOutcome, ChatReader, ChatSettings, request_body};
use crate::proto::assistant::services::endpoint::{HttpBase, ServiceAccess, ServiceAuthority, ServiceEndpoint};
use crate::proto::assistant::services::failure::ServiceFailure;
use crate::proto::assistant::services::progress::ServiceProgress;
use crate::proto::assistant::services::sse::SseReader;
use crate::proto::assistant::services::wyoming::write_handle;

/// A service that answers texts.
#[derive(Clone)]
pub struct ChatModel {
    access: ServiceAccess,
    settings: Arc<ChatSettings>,
    /// For Wyoming servers.
    language: Option<String>,
    first_byte_timeout: FirstByteTimeout,
}

/// What a model says.
#[derive(Debug, PartialEq, Eq)]
pub enum ChatEvent {
    Text(String),
    /// The rest, and the last event.
    Done(ChatOutcome),
}

impl ChatModel {
    pub fn new(access: ServiceAccess, settings: ChatSettings, language: Option<String>) -> Self {
        ChatModel {
            access,
            settings: Arc::new(settings),
            language,
            first_byte_timeout: FirstByteTimeout::default(),
        }
    }

    /// Asks for the next message.
    pub fn start(&self, request: ChatRequest) -> ServiceSession<ChatEvent> {
        let this = self.clone();
        match self.access.endpoint().clone() {
            ServiceEndpoint::Wyoming(server) => {
                let text = last_of_caller(&request.messages).to_owned();
                ServiceSession::new(|events| this.run_wyoming(server, text, events))
            }
            ServiceEndpoint::Http(base) => {
                let body = request_body(&self.settings, request).to_string().into_bytes();
                ServiceSession::new(|events| this.run_http(base, body, events))
            }
        }
    }

    async fn run_http(
        self,
        base: HttpBase,
        body: Vec<u8>,
        events: mpsc::Sender<ChatEvent>,
    ) -> Result<ChatEvent, ServiceFailure> {
        let mut answer = post(HttpPost {
            base,
            access: self.access,
            path: "chat/completions",
            content_type: "application/json".to_owned(),
            body,
            first_byte_timeout: self.first_byte_timeout,
        })
        .await?;
        if answer.content_type != "text/event-stream" {
            return Err(answer.unexpected("an answer that is no stream of events").await);
        }
        let (mut lines, mut reader, mut read_bytes) =
            (SseReader::default(), ChatReader::new(self.settings.marks.clone()), 0);
        let too_long = |_| ServiceFailure::Malformed("an event is too long");
        while let Some(piece) = answer.next_piece().await? {
            read_bytes += piece.len();
            if read_bytes > SSE_STREAM_BYTES_MAX {
                return Err(ServiceFailure::Malformed("an answer that is too long"));
            }
            let (mut bytes, mut text) = (&piece[..], String::new());
            let mut failure = None;
            while let Some(data) = lines.next_event(&mut bytes).map_err(too_long)? {
                match reader.read(&data, &mut text) {
                    Ok(progress) => answer.clock.handle_progress(progress),
                    Err(cause) => {
                        failure = Some(cause);
                        break;
                    }
                }
            }
            if !text.is_empty() {
                answer.clock.send(&events, ChatEvent::Text(text)).await;
            }
            if let Some(failure) = failure {
                return Err(failure);
            }
            if reader.is_done() {
                return reader.finish().map(ChatEvent::Done);
            }
        }
        let mut text = String::new();
        if let Some(data) = lines.finish().map_err(too_long)? {
            reader.read(&data, &mut text).map_err(cut_off)?;
        }
        let mut outcome = reader.finish()?;
        outcome.text.insert_str(0, &text);
        Ok(ChatEvent::Done(outcome))
    }

    async fn run_wyoming(
        self,
        server: ServiceAuthority,
        text: String,
        events: mpsc::Sender<ChatEvent>,
    ) -> Result<ChatEvent, ServiceFailure> {
        let mut stream = WyomingStream::connect(&server).await?;
        write_handle(&mut stream.unsent, &text, self.language.as_deref());
        let mut clock = AnswerClock::start(self.first_byte_timeout);
        let (mut is_streamed, mut text_bytes) = (false, 0);
        loop {
            let event = clock.within(stream.next_event()).await??;
            let text = event.text("text");
            match &*event.kind {
                "handled-start" => {
                    is_streamed = true;
                    clock.handle_progress(ServiceProgress::Working);
                }
                "handled-chunk" if text.is_empty() => clock.handle_progress(ServiceProgress::None),
                "handled-chunk" => {
                    clock.handle_progress(ServiceProgress::Output);
                    text_bytes += text.len();
                    if text_bytes > CHAT_TEXT_BYTES_MAX {
                        return Ok(done(String::new(), ChatEnd::CutOff));
                    }
                    clock.send(&events, ChatEvent::Text(text.to_owned())).await;
                }
                "handled-stop" => return Ok(done(String::new(), ChatEnd::Complete)),
                // It repeats what was streamed.
                "handled" if is_streamed => clock.handle_progress(ServiceProgress::Working),
                // An apology, in words for the caller.
                "handled" | "not-handled" if text.len() <= CHAT_TEXT_BYTES_MAX => {
                    return Ok(done(text.to_owned(), ChatEnd::Complete));
                }
                "handled" | "not-handled" => return Err(ServiceFailure::Malformed("a text that is too long")),
                _ => clock.handle_progress(ServiceProgress::None),
            }
        }
    }
}

fn done(text: String, end: ChatEnd) -> ChatEvent {
    ChatEvent::Done(ChatOutcome {
        text,
        calls: Vec::new(),
        end,
        usage: TokenUsage::default(),
    })
}

/// Returns the last text of the caller.
fn last_of_caller(messages: &[Value]) -> &str {
    let of_caller = messages.iter().rev().find(|message| message["role"] == "user");
    of_caller
        .and_then(|message| message["content"].as_str())
        .unwrap_or_default()
}
