//! The process that runs the functions of one session.
//!
//! In: calls, one JSON object per line of its stdin. Out: its declaration, the first object on its
//! stdout, and one answer per line, in any order. Lines of text are dropped; an answer that cannot
//! be read is a failure of its call. A task of its own moves the lines, so that neither side waits
//! for the call; when the task is dropped, the process group is killed.

use std::io;
use std::pin::pin;
use std::process::ExitStatus;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{ToolsError, ToolsEvent};
use crate::bot::SessionId;
use crate::io::process::ProgramSpec;
use crate::io::process::program::Program;
use crate::io::tasks;
use crate::limits::{
    FUNCTION_CALLS_MAX, FUNCTION_OUTPUT_BYTES_MAX, PROCESS_HANG_UP_GRACE, PROCESS_REST, TOOLS_FUNCTIONS_BYTES_MAX,
};
use crate::logging;
use crate::proto::assistant::report::FunctionCall;
use crate::proto::assistant::tools::{answer, call_json, call_of_invalid, declaration, failed};
use crate::proto::process::output_lines::LineSplitter;

/// Outputs of one session that cannot be used and are logged.
const WARNINGS_MAX: u32 = 16;

/// The program of one session.
pub struct ProgramTools {
    calls: mpsc::Sender<String>,
    events: mpsc::Receiver<Result<ToolsEvent, ToolsError>>,
    /// Calls that could not be passed on.
    rejected: Vec<String>,
    _task: JoinSet<()>,
}

impl ProgramTools {
    /// Starts the program.
    ///
    /// # Errors
    /// The system's error.
    pub fn start(spec: &ProgramSpec, arguments: &str, session_id: SessionId) -> io::Result<Self> {
        let (program, stdin, stdout) = Program::start_with_lines(spec, arguments, session_id.clone())?;
        let (calls, calls_out) = mpsc::channel(FUNCTION_CALLS_MAX);
        let (events_in, events) = mpsc::channel(FUNCTION_CALLS_MAX);
        let mut task = JoinSet::new();
        let lines = run(program, stdin, stdout, calls_out, events_in);
        task.spawn(tasks::boxed(logging::in_session(session_id, lines)));
        Ok(ProgramTools {
            calls,
            events,
            rejected: Vec::new(),
            _task: task,
        })
    }

    pub fn call(&mut self, call: &FunctionCall) {
        let line = format!("{}\n", call_json(call, None));
        // It is full when the program reads no more, and closed when it has ended.
        if self.calls.try_send(line).is_err() {
            self.rejected.push(call.call_id.clone());
        }
    }

    /// Cancel safe.
    pub async fn recv(&mut self) -> Result<ToolsEvent, ToolsError> {
        if let Some(call_id) = self.rejected.pop() {
            let output = failed("the function cannot be run now");
            return Ok(ToolsEvent::Output { call_id, output });
        }
        match self.events.recv().await {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }
}

/// Moves lines until the program closes its stdout or exits, and reports its end.
async fn run(
    mut program: Program,
    mut stdin: ChildStdin,
    stdout: ChildStdout,
    mut calls: mpsc::Receiver<String>,
    events: mpsc::Sender<Result<ToolsEvent, ToolsError>>,
) {
    let write = async {
        while let Some(line) = calls.recv().await {
            if let Err(error) = stdin.write_all(line.as_bytes()).await {
                log::debug!("the program of functions reads no more: {error}");
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let mut read = pin!(read(stdout, &events));
    let exited = tokio::select! {
        () = &mut read => timeout(PROCESS_REST, program.exited()).await.ok(),
        () = write => None,
        status = program.exited() => {
            // What it wrote last. A process that it left behind may hold its stdout open.
            let _ = timeout(PROCESS_HANG_UP_GRACE, read).await;
            Some(status)
        }
    };
    let ended = exited.map_or_else(|| "it closed its stdout".to_owned(), words);
    program.kill();
    program.flush_output().await;
    let _ = events.send(Err(ToolsError::Ended(ended))).await;
}

fn words(status: io::Result<ExitStatus>) -> String {
    status.map_or_else(|error| error.to_string(), |status| status.to_string())
}

/// Reads lines until the end of the stream, or the end of the session.
async fn read(mut stdout: ChildStdout, events: &mpsc::Sender<Result<ToolsEvent, ToolsError>>) {
    let mut lines = LineSplitter::new(TOOLS_FUNCTIONS_BYTES_MAX, " (cut)", false);
    let (mut has_declared, mut warnings) = (false, 0);
    let mut buffer = Box::new([0; 4096]);
    loop {
        let count = stdout.read(&mut *buffer).await.unwrap_or(0);
        let mut found = Vec::new();
        match count {
            0 => lines.finish(|line| found.push(line.to_owned())),
            count => lines.push(&buffer[..count], |line| found.push(line.to_owned())),
        }
        for line in found {
            let event = match has_declared {
                // What a library prints while it is loaded.
                false if !line.trim_start().starts_with('{') => continue,
                false => {
                    has_declared = true;
                    let declared = declaration(line.as_bytes());
                    declared.map(ToolsEvent::Declared).map_err(ToolsError::Declaration)
                }
                true => match output(&line, &mut warnings) {
                    Some((call_id, output)) => Ok(ToolsEvent::Output { call_id, output }),
                    None => continue,
                },
            };
            let _ = events.send(event).await;
        }
        if count == 0 {
            return;
        }
    }
}

/// Reads the output of a call. Logs at most [`WARNINGS_MAX`] that cannot be used.
fn output(line: &str, warnings: &mut u32) -> Option<(String, Value)> {
    let (call_id, output, why) = match answer(line.as_bytes()) {
        Some((Some(call_id), output)) => {
            let is_long =
                line.len() > FUNCTION_OUTPUT_BYTES_MAX && output.to_string().len() > FUNCTION_OUTPUT_BYTES_MAX;
            (call_id, output, is_long.then_some("the result is too long"))
        }
        _ => match call_of_invalid(line) {
            Some(call_id) => {
                let why = match line.len() > TOOLS_FUNCTIONS_BYTES_MAX {
                    true => "the result is too long",
                    false => "the result is no JSON object with an `output`; NaN and Infinity are no JSON",
                };
                (call_id.to_owned(), failed(why), Some(why))
            }
            None => {
                log::debug!("the program of functions wrote {} bytes that are no answer", line.len());
                return None;
            }
        },
    };
    if let Some(why) = why {
        *warnings += 1;
        if *warnings <= WARNINGS_MAX {
            log::warn!("an output of {} bytes of a function cannot be used: {why}", line.len());
        }
    }
    Some((call_id, output))
}
