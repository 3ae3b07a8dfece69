//! The bot `realtime`: a caller talks to a speech-to-speech service.
//!
//! In: the events of the session. Out: speech and RTVI messages. The engine of `proto::assistant`
//! decides; this file stamps the time, moves its outputs, and queues its speech in pieces with a
//! mark behind each, by which the engine knows what was heard. Of a service, the log names classes
//! of errors only, never its words.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep_until;

use super::service_socket::{ServiceEvent, ServiceSocket};
use crate::bot::{Audio, BotError, Output, RunnerArguments};
use crate::config::{Config, Transport};
use crate::io::websocket_client::SocketError;
use crate::limits::ASSISTANT_LAST_SPEECH_WITHIN;
use crate::proto::assistant::body::BodyOptions;
use crate::proto::assistant::realtime::{Realtime, refusal_code};
use crate::proto::assistant::report::{
    CallProfile, ClientReport, ConnectFailure, EndReason, Line, RealtimeOutput, ServiceLog, TokenUsage,
};
use crate::proto::metrics::RunnerMetrics;
use crate::rtvi::{Measure, Metrics, Request, Rtvi, RtviEvent, Sentence, ToClient, Tokens};

/// The name in metrics for the client.
const PROCESSOR: &str = "realtime";
/// The mark behind the last speech.
const LAST_MARK: &str = "end";
/// Sentences whose progress is told.
const SENTENCES_MAX: usize = 64;

/// Runs the bot until the session is over.
///
/// # Errors
/// [`crate::bot::MissingField`] in a session without media; a service that cannot be used.
pub async fn realtime(mut args: RunnerArguments) -> Result<(), BotError> {
    let config = args.cli_args.clone();
    let profile = profile(&args, &config);
    let body = BodyOptions::new(&args.body, &config.assistant, &config.assistant.realtime.instructions);
    let metrics = args.metrics.clone();
    let rtvi = Rtvi::open(&mut args, Audio::at(profile.line.rate_hz()))?;
    let assistant = Arc::new(config.assistant.clone());
    let mut bot = RealtimeBot {
        engine: Realtime::new(assistant, profile, body, now()),
        rtvi,
        socket: ServiceSocket::default(),
        speech: None,
        sentences: VecDeque::new(),
        end: None,
        config,
        metrics,
    };
    let result = bot.run().await;
    bot.socket.finish().await;
    result
}

/// Returns what the engine has to know about the caller.
fn profile(args: &RunnerArguments, config: &Config) -> CallProfile {
    let is_telephone = args
        .transport_type()
        .is_ok_and(|name| name != Transport::WebSocket.name());
    let law = args.line_law().filter(|_| args.line_rate_hz() == Some(8_000));
    let has_page = match args.webrtc_connection() {
        Ok(connection) => connection.messages && !connection.embedded,
        Err(_) => !is_telephone,
    };
    CallProfile {
        line: match law.filter(|_| config.assistant.realtime.line_codec) {
            Some(law) => Line::G711(law),
            None => Line::Pcm24k,
        },
        has_page,
        is_telephone,
        // Plain clients connect before they can play audio.
        greet_on_ready: args.transport_type() == Ok(Transport::WebSocket.name()),
    }
}

/// Returns the time of tokio's clock, which tests can advance.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// A future that queues a piece of speech and the mark behind it.
type QueueFuture = Pin<Box<dyn Future<Output = Vec<i16>> + Send>>;

async fn queue(output: Output, pcm: Vec<i16>, mark: String) -> Vec<i16> {
    // After the end of the session, `recv` returns `Left`.
    let _ = output.send_audio(&pcm).await;
    let _ = output.mark(mark);
    pcm
}

async fn queued(speech: &mut Option<QueueFuture>) -> Vec<i16> {
    match speech {
        Some(speech) => speech.await,
        None => std::future::pending().await,
    }
}

struct RealtimeBot {
    engine: Realtime,
    rtvi: Rtvi,
    socket: ServiceSocket,
    /// The piece that waits for room in the queue.
    speech: Option<QueueFuture>,
    sentences: VecDeque<(u32, Sentence)>,
    /// Why the session ends, and until when its last speech may be played.
    end: Option<(EndReason, Instant)>,
    config: Arc<Config>,
    metrics: Arc<RunnerMetrics>,
}

impl RealtimeBot {
    async fn run(&mut self) -> Result<(), BotError> {
        let mut buffer = Vec::new();
        let mut is_last_marked = false;
        loop {
            self.drain();
            if self.speech.is_none() {
                if let Some(mark) = self.engine.next_speech(&mut buffer) {
                    let pcm = std::mem::take(&mut buffer);
                    self.speech = Some(Box::pin(queue(self.rtvi.output().clone(), pcm, mark.0)));
                } else if self.end.is_some() && !is_last_marked {
                    is_last_marked = true;
                    let _ = self.rtvi.output().mark(LAST_MARK);
                }
            }
            let deadline = match &self.end {
                Some((_, until)) => *until,
                None => self.engine.poll_timeout(),
            };
            tokio::select! {
                biased;
                event = self.rtvi.recv() => match event {
                    None | Some(RtviEvent::Left(_)) => return self.outcome(),
                    Some(RtviEvent::Mark { name, .. }) if name == LAST_MARK => return self.outcome(),
                    Some(event) => self.handle_caller(event),
                },
                event = self.socket.recv() => self.handle_service(event),
                pcm = queued(&mut self.speech) => {
                    self.speech = None;
                    buffer = pcm;
                }
                () = sleep_until(deadline.into()) => match self.end {
                    Some(_) => return self.outcome(),
                    None => self.engine.handle_timeout(now()),
                },
            }
        }
    }

    /// Returns the result of the bot.
    fn outcome(&mut self) -> Result<(), BotError> {
        match self.end.take() {
            Some((EndReason::Failed(why), _)) => {
                self.rtvi.error("The assistant is not available.", true);
                Err(why.into())
            }
            Some((EndReason::Done(why), _)) => {
                log::info!("the assistant ends the session: {why}");
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn handle_caller(&mut self, event: RtviEvent) {
        let now = now();
        match event {
            RtviEvent::Joined => self.engine.handle_joined(now),
            RtviEvent::Ready => self.engine.handle_ready(now),
            RtviEvent::Audio(frame) => self.engine.handle_audio(&frame, now),
            RtviEvent::Text { content, options } => self.engine.handle_text(&content, options, now),
            RtviEvent::Dtmf(key) => self.engine.handle_dtmf(key, now),
            RtviEvent::Request(Request::FunctionResult(result)) => {
                self.engine.handle_function_result(&result.tool_call_id, &result.result);
            }
            RtviEvent::SpeechStarted => self.engine.handle_speech_started(now),
            RtviEvent::Mark { name, played } => self.engine.handle_mark(&name, played, now),
            RtviEvent::Message(request) => {
                let why = "the built-in bot `realtime` takes no messages of the application";
                self.rtvi.reject(&request, why);
            }
            _ => {}
        }
    }

    fn handle_service(&mut self, event: ServiceEvent) {
        let now = now();
        match event {
            ServiceEvent::Connected(Ok(())) => self.engine.handle_connected(now),
            ServiceEvent::Connected(Err(error)) => self.engine.handle_connect_failed(failure(error), now),
            ServiceEvent::Text(text) => self.engine.handle_message(&text, now),
            ServiceEvent::Closed(code) => self.engine.handle_closed(code, now),
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.engine.poll_output() {
            match output {
                RealtimeOutput::Connect(request) => self.socket.connect(request.url, request.headers),
                RealtimeOutput::Disconnect { code } => self.socket.close(code),
                RealtimeOutput::Send(text) => self.socket.send(text),
                RealtimeOutput::Interrupt => {
                    self.speech = None;
                    self.sentences.clear();
                    self.rtvi.interrupt();
                }
                RealtimeOutput::Report(report) => self.tell(report),
                RealtimeOutput::Count(count) => self.metrics.assistant(count),
                RealtimeOutput::Log(line) => self.log(line),
                RealtimeOutput::End(reason) => self.end = Some((reason, now() + ASSISTANT_LAST_SPEECH_WITHIN)),
            }
        }
    }

    fn log(&self, line: ServiceLog) {
        let realtime = &self.config.assistant.realtime;
        match line {
            ServiceLog::Connected => log::info!("connected to {}, model {}", realtime.url.host(), realtime.model),
            ServiceLog::Failed(why) => log::warn!("{}: {why}", realtime.url.host()),
        }
    }

    fn tell(&mut self, report: ClientReport) {
        let rtvi = &mut self.rtvi;
        match report {
            ClientReport::UserStartedSpeaking => rtvi.user_started_speaking(),
            ClientReport::UserStoppedSpeaking => rtvi.user_stopped_speaking(),
            ClientReport::Transcript { text, is_final } => rtvi.transcript(&text, is_final),
            ClientReport::UserLlmText(text) => rtvi.send(&ToClient::UserLlmText { text: &text }),
            ClientReport::LlmStarted => rtvi.send(&ToClient::BotLlmStarted),
            ClientReport::LlmText(text) => rtvi.send(&ToClient::BotLlmText { text: &text }),
            ClientReport::LlmStopped => rtvi.send(&ToClient::BotLlmStopped),
            ClientReport::SentenceBegins { id, text } => {
                if self.sentences.len() == SENTENCES_MAX {
                    self.sentences.pop_front();
                }
                let text = text.trim_end();
                rtvi.send(&ToClient::BotTranscription { text });
                self.sentences.push_back((id, rtvi.begin_sentence(text)));
            }
            ClientReport::SentenceSpoken { id, bytes } => {
                if let Some((_, sentence)) = self.sentences.iter_mut().find(|(known, _)| *known == id) {
                    rtvi.progress(sentence, bytes);
                }
            }
            ClientReport::Shown(text) => rtvi.show(&text),
            ClientReport::FirstSound(waited) => self.tell_first_sound(waited),
            ClientReport::Tokens(usage) => self.tell_tokens(usage),
            ClientReport::FunctionStarted(call) => {
                rtvi.send(&ToClient::LlmFunctionCallStarted {
                    function_name: Some(&call.name),
                });
                rtvi.send(&ToClient::LlmFunctionCallInProgress {
                    tool_call_id: &call.call_id,
                    function_name: Some(&call.name),
                    arguments: call.arguments.as_object(),
                });
            }
            ClientReport::FunctionStopped {
                call_id,
                name,
                is_cancelled,
            } => rtvi.send(&ToClient::LlmFunctionCallStopped {
                tool_call_id: &call_id,
                cancelled: is_cancelled,
                function_name: Some(&name),
                result: None::<&Value>,
            }),
            ClientReport::Error { text } => rtvi.error(text, false),
        }
    }

    fn tell_first_sound(&self, waited: Duration) {
        let measure = Measure {
            processor: PROCESSOR,
            model: Some(&self.config.assistant.realtime.model),
            value: waited.as_secs_f64(),
        };
        self.rtvi.metrics(&Metrics {
            ttfb: &[measure],
            ..Metrics::default()
        });
    }

    fn tell_tokens(&self, usage: TokenUsage) {
        self.rtvi.metrics(&Metrics {
            tokens: &[Tokens {
                prompt_tokens: usage.input,
                completion_tokens: usage.output,
                total_tokens: usage.total,
            }],
            ..Metrics::default()
        });
    }
}

/// Converts a failure of the connection. The body of a refusal may quote the key: only its code is
/// kept.
pub fn failure(error: SocketError) -> ConnectFailure {
    match error {
        SocketError::Refused { status, body } => ConnectFailure::Refused {
            status,
            code: refusal_code(&body),
        },
        SocketError::Unreachable(why) => ConnectFailure::Unreachable(why),
        SocketError::TimedOut(_) => ConnectFailure::TimedOut,
    }
}
