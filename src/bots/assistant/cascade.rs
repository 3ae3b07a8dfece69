//! The bot `cascade`: a caller talks to a recogniser, a chat model and a voice.
//!
//! In: the events of the session. Out: speech and RTVI messages. The engine of `proto::assistant`
//! decides; this file stamps the time, moves its outputs, and queues its speech in pieces with a
//! mark behind each, by which the engine knows what was heard. Of a service, the log names classes
//! of failures only, never its words.

use std::sync::Arc;
use std::time::Instant;

use tokio::time::sleep_until;

use super::call::{LAST_MARK, QueueFuture, now, outcome, profile, queue, queued};
use super::cascade_requests::{CascadeRequests, RequestEvent};
use super::session_reports::SessionReports;
use super::tools::{SessionTools, ToolsEvent};
use crate::bot::{Audio, BotError, RunnerArguments};
use crate::limits::ASSISTANT_LAST_SPEECH_WITHIN;
use crate::proto::assistant::body::BodyOptions;
use crate::proto::assistant::cascade::{Cascade, CascadeOutput, RECOGNIZER_RATE_HZ};
use crate::proto::assistant::functions::FunctionHost;
use crate::proto::assistant::report::EndReason;
use crate::proto::metrics::RunnerMetrics;
use crate::rtvi::{Request, Rtvi, RtviEvent};

/// Runs the bot until the session is over.
///
/// # Errors
/// [`crate::bot::MissingField`] in a session without media; services that cannot be used.
pub async fn cascade(mut args: RunnerArguments) -> Result<(), BotError> {
    let config = args.cli_args.clone();
    let assistant = Arc::new(config.assistant.clone());
    let Some(services) = &assistant.cascade.services else {
        return Err("the bot `cascade` has no services".into());
    };
    let profile = profile(&args, true);
    // The parsed body may take a hundred times its bytes, and is not kept for the session.
    let body = BodyOptions::new(&args.body.take(), &assistant, &assistant.cascade.instructions);
    let metrics = args.metrics.clone();
    let tools = SessionTools::start(&config, &args);
    let rtvi = Rtvi::open(&mut args, Audio::new(RECOGNIZER_RATE_HZ, profile.line.rate_hz()))?;
    let mut bot = CascadeBot {
        requests: CascadeRequests::new(services, assistant.cascade.language.as_deref(), &body),
        reports: SessionReports::new("cascade", &services.chat.model),
        engine: Cascade::new(assistant, profile, body, now()),
        rtvi,
        tools,
        speech: None,
        end: None,
        metrics,
    };
    bot.run().await
}

struct CascadeBot {
    engine: Cascade,
    rtvi: Rtvi,
    requests: CascadeRequests,
    tools: SessionTools,
    /// The piece that waits for room in the queue.
    speech: Option<QueueFuture>,
    reports: SessionReports,
    /// Why the session ends, and until when its last speech may be played.
    end: Option<(EndReason, Instant)>,
    metrics: Arc<RunnerMetrics>,
}

impl CascadeBot {
    async fn run(&mut self) -> Result<(), BotError> {
        let mut buffer = Vec::new();
        let mut is_last_marked = false;
        loop {
            self.drain();
            if self.speech.is_none() {
                if let Some(mark) = self.engine.next_speech(&mut buffer) {
                    let pcm = std::mem::take(&mut buffer);
                    self.speech = Some(Box::pin(queue(self.rtvi.output().clone(), pcm, mark.0)));
                    // A sentence begins before its speech.
                    self.drain();
                } else if self.end.is_some() && !is_last_marked {
                    is_last_marked = true;
                    let _ = self.rtvi.output().mark(LAST_MARK);
                }
            }
            let deadline = match &self.end {
                Some((_, until)) => *until,
                None => self.engine.poll_timeout(),
            };
            let wants_speech = self.engine.wants_speech();
            tokio::select! {
                biased;
                event = self.rtvi.recv() => match event {
                    None | Some(RtviEvent::Left(_)) => return outcome(self.end.take(), &self.rtvi),
                    Some(RtviEvent::Mark { name, .. }) if name == LAST_MARK => return outcome(self.end.take(), &self.rtvi),
                    Some(event) => self.handle_caller(event),
                },
                pcm = queued(&mut self.speech) => {
                    self.speech = None;
                    buffer = pcm;
                }
                (id, event) = self.requests.recv(wants_speech) => self.handle_service(id, event),
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
                let why = "the built-in bot `cascade` takes no messages of the application";
                self.rtvi.reject(&request, why);
            }
            _ => {}
        }
    }

    fn handle_service(&mut self, id: u64, event: RequestEvent) {
        let now = now();
        match event {
            RequestEvent::Transcript { text, is_final } => self.engine.handle_transcript(id, &text, is_final, now),
            RequestEvent::ChatText(text) => self.engine.handle_chat_text(id, &text, now),
            RequestEvent::ChatDone(outcome) => self.engine.handle_chat_done(id, outcome, now),
            RequestEvent::Speech { pcm, rate_hz } => self.engine.handle_speech(id, &pcm, rate_hz, now),
            RequestEvent::SpeechDone => self.engine.handle_speech_done(id, now),
            RequestEvent::Failed(failure) => self.engine.handle_failed(id, &failure, now),
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
                CascadeOutput::StartRecognition { id } => self.requests.start_recognition(id),
                CascadeOutput::RecognizeAudio { id, pcm } => self.requests.recognize(id, &pcm),
                CascadeOutput::FinishRecognition { id } => self.requests.finish_recognition(id),
                CascadeOutput::StartChat { id, request } => self.requests.start_chat(id, request),
                CascadeOutput::Synthesize { id, text } => self.requests.synthesize(id, &text),
                CascadeOutput::Cancel { id } => self.requests.cancel(id),
                CascadeOutput::Interrupt => {
                    self.speech = None;
                    self.reports.interrupt(&mut self.rtvi);
                }
                CascadeOutput::RunFunction(call) => self.tools.call(&call),
                CascadeOutput::Report(report) => self.reports.tell(&mut self.rtvi, report),
                CascadeOutput::Count(count) => self.metrics.assistant(count),
                CascadeOutput::Log(why) => log::warn!("{why}"),
                CascadeOutput::End(reason) => self.end = Some((reason, now() + ASSISTANT_LAST_SPEECH_WITHIN)),
            }
        }
    }
}
