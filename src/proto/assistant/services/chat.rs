//! Chat completions, streamed: the request, and a reader of the chunks.
//!
//! In: messages and functions; then the data of each server-sent event. Out: the request as JSON;
//! then text to speak, and at the end calls of functions and the token count. Reasoning is never
//! text: neither `reasoning` and `reasoning_content` nor what stands between `<think>` and
//! `</think>`, of which some servers send the second tag alone. The words of a `refusal` are text.
//! A stream without `finish_reason` is a failure, since some servers end an answer that way when
//! the model fails, and so is the reason `error`. Source: the types of the Python library `openai`,
//! the sources of Ollama, llama.cpp and vLLM, and `docs/spec/chat.md`, which has the dialects of
//! other servers.

mod reasoning;

use serde_json::{Map, Value, json};

use self::reasoning::ReasoningFilter;
use super::failure::ServiceFailure;
use super::progress::ServiceProgress;
use crate::assistant::cascade::{ChatCall, ChatEnd, ChatRequest};
use crate::assistant::reasoning_marks::{ReasoningMarks, SharedMarks};
use crate::assistant::report::TokenUsage;
use crate::limits::{CHAT_CALLS_BYTES_MAX, CHAT_CALLS_MAX, CHAT_TEXT_BYTES_MAX};
use crate::text::beginning;

/// What every request to a model contains.
#[derive(Clone, Default)]
pub struct ChatSettings {
    pub model: String,
    pub tokens_max: Option<u32>,
    /// Whether the limit is called `max_completion_tokens`, as the newest models want, and not
    /// `max_tokens`.
    pub uses_completion_tokens: bool,
    /// Whether the service tells the usage unasked, and refuses to be asked for it.
    pub sends_usage_unasked: bool,
    /// How the model marks its reasoning, if that is to be found out.
    pub marks: Option<SharedMarks>,
    /// Further fields. They cannot replace those above, the messages and the functions.
    pub extra: Map<String, Value>,
}

/// Returns whether the service at this host tells the usage unasked, and answers 422 to a request
/// that asks for it (`docs/spec/chat.md`).
pub fn sends_usage_unasked(host: &str) -> bool {
    host.eq_ignore_ascii_case("api.mistral.ai")
}

/// Returns the body of a request.
pub fn request_body(settings: &ChatSettings, request: ChatRequest) -> Value {
    let mut body = settings.extra.clone();
    body.insert("model".to_owned(), settings.model.as_str().into());
    body.insert("messages".to_owned(), request.messages.into());
    body.insert("stream".to_owned(), true.into());
    if !settings.sends_usage_unasked {
        body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    if let Some(tokens) = settings.tokens_max {
        let name = match settings.uses_completion_tokens {
            true => "max_completion_tokens",
            false => "max_tokens",
        };
        body.insert(name.to_owned(), tokens.into());
    }
    if let Some(temperature) = request.temperature {
        body.insert("temperature".to_owned(), temperature.into());
    }
    if !request.tools.is_empty() {
        body.insert("tools".to_owned(), request.tools.into());
    }
    Value::Object(body)
}

/// A whole answer, but for its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatOutcome {
    /// The rest of the text.
    pub text: String,
    pub calls: Vec<ChatCall>,
    pub end: ChatEnd,
    pub usage: TokenUsage,
}

/// Reads one answer.
#[derive(Debug, Default)]
pub struct ChatReader {
    marks: Option<SharedMarks>,
    reasoning: ReasoningFilter,
    calls: Vec<IndexedCall>,
    text_bytes: usize,
    call_bytes: usize,
    /// Of text, reasoning and calls, as they arrived.
    input_bytes: usize,
    end: Option<ChatEnd>,
    usage: TokenUsage,
    is_done: bool,
}

/// A call whose pieces arrive under an index.
#[derive(Debug)]
struct IndexedCall {
    index: u64,
    call: ChatCall,
}

impl ChatReader {
    pub fn new(marks: Option<SharedMarks>) -> Self {
        let known = marks.as_ref().map_or(ReasoningMarks::Whole, SharedMarks::get);
        ChatReader {
            marks,
            reasoning: ReasoningFilter::new(known),
            ..ChatReader::default()
        }
    }

    /// Reads the data of an event, and appends its text. Text that is withheld, because it may be
    /// reasoning, is [`ServiceProgress::Working`].
    ///
    /// # Errors
    /// [`ServiceFailure`] if the service reports an error, or the data is no chunk.
    pub fn read(&mut self, data: &str, text: &mut String) -> Result<ServiceProgress, ServiceFailure> {
        let (before, bytes_before) = (text.len(), self.input_bytes);
        self.read_chunk(data, text)?;
        Ok(match (text.len() > before, self.input_bytes > bytes_before) {
            (true, _) => ServiceProgress::Output,
            (false, true) => ServiceProgress::Working,
            (false, false) => ServiceProgress::None,
        })
    }

    fn read_chunk(&mut self, data: &str, text: &mut String) -> Result<(), ServiceFailure> {
        if data.trim() == "[DONE]" {
            self.is_done = true;
        }
        if self.is_done {
            return Ok(());
        }
        let chunk: Value = serde_json::from_str(data).map_err(|_| ServiceFailure::Malformed("a chunk is no JSON"))?;
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            return Err(ServiceFailure::of_error(error));
        }
        if chunk.get("object").and_then(Value::as_str) == Some("error") {
            return Err(ServiceFailure::of_error(&chunk));
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            self.usage = token_usage(usage);
        }
        // The chunk with the usage has no choice.
        let Some(choice) = chunk.get("choices").and_then(|choices| choices.get(0)) else {
            return Ok(());
        };
        if let Some(error) = choice.get("error").filter(|error| !error.is_null()) {
            return Err(ServiceFailure::of_error(error));
        }
        let delta = choice.get("delta").unwrap_or(&Value::Null);
        let length = |name: &str| delta.get(name).and_then(Value::as_str).map_or(0, str::len);
        let reasoning_bytes = length("reasoning") + length("reasoning_content");
        if reasoning_bytes > 0 {
            self.input_bytes += reasoning_bytes;
            let before = text.len();
            self.reasoning.handle_reasoning(text);
            self.text_bytes += text.len() - before;
        }
        match delta.get("content") {
            Some(Value::String(content)) => self.read_content(content, text),
            // Some servers send parts, among them such with reasoning.
            Some(Value::Array(parts)) => {
                let of_text = |part: &Value| (part["type"] == "text").then(|| part["text"].as_str().map(str::to_owned));
                for content in parts.iter().filter_map(of_text).flatten() {
                    self.read_content(&content, text);
                }
            }
            _ => {}
        }
        if let Some(refusal) = delta.get("refusal").and_then(Value::as_str) {
            self.read_content(refusal, text);
        }
        if let Some(calls) = delta.get("tool_calls").and_then(Value::as_array) {
            for call in calls {
                self.read_call(call)?;
            }
        }
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            if reason == "error" {
                return Err(ServiceFailure::Fault);
            }
            self.end(match reason {
                "length" | "content_filter" => ChatEnd::CutOff,
                _ => ChatEnd::Complete,
            });
        }
        Ok(())
    }

    /// Returns whether nothing of the answer is missing.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Returns the rest at the end of the stream.
    ///
    /// # Errors
    /// [`ServiceFailure::CutShort`] if the answer is not complete.
    pub fn finish(self) -> Result<ChatOutcome, ServiceFailure> {
        let end = self.end.ok_or(ServiceFailure::CutShort)?;
        let (text, learnt) = self.reasoning.finish(end == ChatEnd::CutOff);
        if let Some(marks) = &self.marks {
            marks.set(learnt);
        }
        Ok(ChatOutcome {
            text,
            calls: self.calls.into_iter().map(|indexed| indexed.call).collect(),
            end,
            usage: self.usage,
        })
    }

    fn end(&mut self, end: ChatEnd) {
        // A second reason does not make a cut answer complete.
        self.end.get_or_insert(end);
    }

    fn read_content(&mut self, content: &str, text: &mut String) {
        self.input_bytes += content.len();
        let before = text.len();
        self.reasoning.push(content, text);
        let left = CHAT_TEXT_BYTES_MAX - self.text_bytes;
        let kept = beginning(&text[before..], left).len();
        if before + kept < text.len() {
            text.truncate(before + kept);
            self.end = Some(ChatEnd::CutOff);
            self.is_done = true;
        }
        self.text_bytes += kept;
    }

    fn read_call(&mut self, piece: &Value) -> Result<(), ServiceFailure> {
        let function = piece.get("function").unwrap_or(&Value::Null);
        let field = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (call_id, name) = (field(piece, "id"), field(function, "name"));
        let arguments = match function.get("arguments") {
            Some(Value::String(text)) => text.clone(),
            // Some servers send an object.
            Some(arguments @ Value::Object(_)) => arguments.to_string(),
            _ => String::new(),
        };
        let extra_content = piece.get("extra_content").filter(|extra| extra.is_object());
        let extra_bytes = extra_content.map_or(0, |extra| extra.to_string().len());
        let piece_bytes = call_id.len() + name.len() + arguments.len() + extra_bytes;
        self.call_bytes += piece_bytes;
        self.input_bytes += piece_bytes;
        if self.call_bytes > CHAT_CALLS_BYTES_MAX {
            return Err(ServiceFailure::Malformed("its function calls are too long"));
        }
        let index = piece.get("index").and_then(Value::as_u64);
        // Without an index a new identifier begins a new call. With one it takes a name as well:
        // some servers send a new identifier with each piece.
        let known = self.calls.iter().rposition(|known| match index {
            Some(index) if known.index == index => {
                call_id.is_empty() || name.is_empty() || known.call.call_id == call_id
            }
            Some(_) => false,
            None => !call_id.is_empty() && known.call.call_id == call_id,
        });
        let known = match (known, index) {
            (None, None) if call_id.is_empty() && name.is_empty() => self.calls.len().checked_sub(1),
            (known, _) => known,
        };
        let at = match known {
            Some(at) => at,
            None if self.calls.len() == CHAT_CALLS_MAX => {
                return Err(ServiceFailure::Malformed("it calls too many functions"));
            }
            None => {
                let index = index.unwrap_or(self.calls.len() as u64);
                let call = ChatCall {
                    call_id: String::new(),
                    name: String::new(),
                    arguments: String::new(),
                    extra_content: Value::Null,
                };
                self.calls.push(IndexedCall { index, call });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[at].call;
        if call.call_id.is_empty() {
            call.call_id = call_id;
        }
        if call.name.is_empty() {
            call.name = name;
        }
        call.arguments.push_str(&arguments);
        if let Some(extra) = extra_content.filter(|_| call.extra_content.is_null()) {
            call.extra_content = extra.clone();
        }
        Ok(())
    }
}

fn token_usage(usage: &Value) -> TokenUsage {
    let number = |value: &Value, name: &str| value.get(name).and_then(Value::as_u64).unwrap_or_default();
    let cached = usage
        .get("prompt_tokens_details")
        .map(|details| number(details, "cached_tokens"));
    TokenUsage {
        input: number(usage, "prompt_tokens"),
        output: number(usage, "completion_tokens"),
        cached: cached.unwrap_or_default(),
        total: number(usage, "total_tokens"),
    }
}

#[cfg(test)]
mod tests;
