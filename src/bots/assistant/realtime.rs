//! The bot `realtime`: a caller talks to a speech-to-speech service.
//!
//! In: the events of the session. Out: speech and RTVI messages. The engine of `proto::assistant`
//! decides; this file stamps the time, moves its outputs, and queues its speech in pieces with a
//! mark behind each, by which the engine knows what was heard. Of a service, the log names classes
//! of errors only, never its words.

use std::sync::Arc;
use std::time::Instant;

use tokio::time::sleep_until;

use super::call::{LAST_MARK, QueueFuture, now, outcome, profile, queue, queued};
use super::service_socket::{ServiceEvent, ServiceSocket};
use super::session_reports::SessionReports;
use super::tools::{SessionTools, ToolsEvent};
use crate::bot::{Audio, BotError, RunnerArguments};
use crate::config::Config;
use crate::io::websocket_client::SocketError;
use crate::limits::ASSISTANT_LAST_SPEECH_WITHIN;
use crate::proto::assistant::body::BodyOptions;
use crate::proto::assistant::functions::FunctionHost;
use crate::proto::assistant::realtime::{Realtime, refusal_code};
use crate::proto::assistant::report::{ConnectFailure, EndReason, RealtimeOutput, ServiceLog};
use crate::proto::metrics::RunnerMetrics;
use crate::rtvi::{Request, Rtvi, RtviEvent};

/// Runs the bot until the session is over.
///
/// # Errors
/// [`crate::bot::MissingField`] in a session without media; a service that cannot be used.
pub async fn realtime(mut args: RunnerArguments) -> Result<(), BotError> {
    let config = args.cli_args.clone();
    let profile = profile(&args, config.assistant.realtime.line_codec);
    // The parsed body may take a hundred times its bytes, and is not kept for the session.
    let body = BodyOptions::new(
        &args.body.take(),
        &config.assistant,
        &config.assistant.realtime.instructions,
    );
    let metrics = args.metrics.clone();
    let tools = SessionTools::start(&config, &args);
    let rtvi = Rtvi::open(&mut args, Audio::at(profile.line.rate_hz()))?;
    let assistant = Arc::new(config.assistant.clone());
    let mut bot = RealtimeBot {
        engine: Realtime::new(assistant, profile, body, now()),
        rtvi,
        socket: ServiceSocket::default(),
        tools,
        speech: None,
        reports: SessionReports::new("realtime", &config.assistant.realtime.model),
        end: None,
        config,
        metrics,
    };
    let result = bot.run().await;
    bot.socket.finish().await;
    result
}

struct RealtimeBot {
    engine: Realtime,
    rtvi: Rtvi,
    socket: ServiceSocket,
    tools: SessionTools,
    /// The piece that waits for room in the queue.
    speech: Option<QueueFuture>,
    reports: SessionReports,
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
                    None | Some(RtviEvent::Left(_)) => return outcome(self.end.take(), &self.rtvi),
                    Some(RtviEvent::Mark { name, .. }) if name == LAST_MARK => return outcome(self.end.take(), &self.rtvi),
                    Some(event) => self.handle_caller(event),
                },
                event = self.socket.recv() => self.handle_service(event),
                pcm = queued(&mut self.speech) => {
                    self.speech = None;
                    buffer = pcm;
                }
                () = sleep_until(deadline.into()) => match self.end {
                    Some(_) => return outcome(self.end.take(), &self.rtvi),
                    None => self.engine.handle_timeout(now()),
                },
                // The last, so that a program that floods delays nothing else.
                event = self.tools.recv() => self.handle_tools(event),
            }
        }
    }

    fn handle_caller(&mut self, event: RtviEvent) {
        let now = now();
        match event {
            RtviEvent::Joined => self.engine.handle_joined(now),
            RtviEvent::Ready => self.engine.handle_ready(now),
            RtviEvent::Audio(frame) => self.engine.handle_audio(&frame, now),
            RtviEvent::Text { content, options } => self.engine.handle_text(&content, options, now),
            RtviEvent::Muted(is_muted) => self.engine.handle_hold(is_muted, now),
            RtviEvent::Held => self.engine.handle_hold(true, now),
            RtviEvent::Resumed => self.engine.handle_hold(false, now),
            RtviEvent::Dtmf(key) => self.engine.handle_dtmf(key, now),
            RtviEvent::Request(Request::FunctionResult(result)) => {
                self.engine
                    .handle_function_result(FunctionHost::Page, &result.tool_call_id, &result.result, now);
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

    fn handle_tools(&mut self, event: ToolsEvent) {
        match event {
            ToolsEvent::Declared(functions) => self.engine.handle_functions(&functions, now()),
            ToolsEvent::Output { call_id, output } => {
                self.engine
                    .handle_function_result(FunctionHost::Tools, &call_id, &output, now());
            }
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
                    self.reports.interrupt(&mut self.rtvi);
                }
                RealtimeOutput::RunFunction(call) => self.tools.call(&call),
                RealtimeOutput::Report(report) => self.reports.tell(&mut self.rtvi, report),
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
