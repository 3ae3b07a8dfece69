//! Log lines on stderr: one line per record, prefixed with the session id.
//!
//! `2026-11-21T12:00:00.123Z INFO  [1b9d6bcd] message`, with the name of the bot behind the id
//! where there are several, or one JSON object (`log_line`). Times are
//! UTC. Records of the runner and of the bot's crate are shown from INFO, those of libraries from
//! WARN. `-v` shows more; `RUST_LOG`, when set, replaces both. Control characters in a message are
//! escaped, so a peer cannot forge a line, and long messages are cut. A panic is one line as well.
//! ERROR, WARN and INFO lines caused by a [`LogClient`] are rate-limited per minute; one line
//! reports how many were left out. No line waits for the reader of stderr (`log_output`).

use std::cell::OnceCell;
use std::fmt;
use std::future::Future;
use std::io::{self, IsTerminal as _, Write};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::{Duration, Instant};

use env_logger::fmt::Formatter;
use env_logger::{Target, WriteStyle};
use log::{Level, LevelFilter, Log, Metadata, Record};

use edge_runner_proto::SessionId;
use edge_runner_proto::config::LogFormat;
use edge_runner_proto::limits::{LINES_AUTHORISED_MAX, LINES_MAX, LINES_PER_CALLER_MAX};
use edge_runner_proto::server::log_limit::LogLimit;

use crate::common::lock;
use crate::log_line::{JsonLine, RecordLine};
use crate::log_output::{LogDescriptor, LogOutput};

/// Time that the end of the process waits for the reader of stderr.
const LOG_FLUSH: Duration = Duration::from_secs(1);

/// The highest number of `-v` that changes something.
const VERBOSITY_MAX: u8 = 3;

/// All that this process writes to stderr.
static STDERR: LazyLock<LogOutput<LogDescriptor<io::Stderr>>> = LazyLock::new(|| {
    LogOutput::new(LogDescriptor::new(io::stderr()), |dropped| {
        let lines = if dropped == 1 { "line was" } else { "lines were" };
        log::warn!("{dropped} log {lines} dropped because stderr was not read; check what collects the log");
    })
});

/// The logger's way to [`STDERR`]: each call is one record.
struct ToStderr;

impl Write for ToStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        STDERR.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What marks the log lines of a session.
struct LogSession {
    id: SessionId,
    /// Which of several bots it is, once that is known.
    bot: OnceCell<Arc<str>>,
}

impl LogSession {
    /// Returns the mark of a session. One that is made in code of a session has the same bot.
    fn new(id: SessionId) -> Self {
        let bot = SESSION.try_with(|outer| outer.bot.clone()).unwrap_or_default();
        LogSession { id, bot }
    }
}

tokio::task_local! {
    static SESSION: LogSession;
    static CALLER: LogClient;
}

/// The client that causes log lines, and the line counters shared by all clients.
#[derive(Clone, Debug)]
pub struct LogClient {
    limit: Arc<Mutex<LogLimit>>,
    address: IpAddr,
    is_authorised: bool,
}

impl LogClient {
    /// Makes a client; one that `is_authorised` has the API key.
    pub fn new(limit: Arc<Mutex<LogLimit>>, address: IpAddr, is_authorised: bool) -> Self {
        LogClient {
            limit,
            address,
            is_authorised,
        }
    }

    /// Attributes further lines to a client with the API key if it `is_authorised`, as by the
    /// session id of an authorised `/start`.
    pub fn or_authorised(self, is_authorised: bool) -> Self {
        LogClient {
            is_authorised: self.is_authorised || is_authorised,
            ..self
        }
    }

    /// Tells whether one more rejected body may be logged, and counts it.
    pub fn may_log_body(&self) -> bool {
        lock(&self.limit).allow_body(Instant::now())
    }

    /// Calls `with` and attributes its log lines to the client.
    pub fn attribute<T>(&self, with: impl FnOnce() -> T) -> T {
        CALLER.sync_scope(self.clone(), with)
    }

    /// Tells whether one more line may be written, like [`LogLimit::allow`], and counts it.
    fn allow(&self) -> Option<u64> {
        let (mut limit, now) = (lock(&self.limit), Instant::now());
        match self.is_authorised {
            true => limit.allow_authorised(now),
            false => limit.allow(self.address, now),
        }
    }
}

/// Logs the number of lines that were left out and not yet reported, when no further line will.
pub fn log_left_out(limit: &Mutex<LogLimit>) {
    let left_out = lock(limit).take_suppressed();
    if left_out > 0 {
        log::warn!("{}", LeftOut(left_out));
    }
}

/// The text of a number of lines that were left out.
struct LeftOut(u64);

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = if self.0 == 1 { "line was" } else { "lines were" };
        write!(
            f,
            "{} log {lines} left out: callers without the key may cause {LINES_PER_CALLER_MAX} a minute each and {LINES_MAX} \
             together, callers with it {LINES_AUTHORISED_MAX}",
            self.0
        )
    }
}

/// Runs `future` and attributes its log lines to the client.
pub async fn for_client<F: Future>(caller: LogClient, future: F) -> F::Output {
    CALLER.scope(caller, future).await
}

/// Returns whether a line may be written: `Some` with the number of lines left out before it.
fn admit_line(level: Level) -> Option<u64> {
    if !matches!(level, Level::Error | Level::Warn | Level::Info) {
        return Some(0);
    }
    let for_client = CALLER.try_with(LogClient::allow);
    for_client.unwrap_or(Some(0))
}

/// Runs `future` with its log lines marked with the session id.
///
/// A task spawned by the future is not covered: wrap it as well.
pub fn in_session<F: Future>(id: SessionId, future: F) -> impl Future<Output = F::Output> {
    SESSION.scope(LogSession::new(id), future)
}

/// Marks the further log lines of this session with the name of its bot, too.
pub fn set_bot(bot: &Arc<str>) {
    let _ = SESSION.try_with(|session| session.bot.set(bot.clone()));
}

/// Calls `log` with its log lines marked with the session id, for code outside the session's tasks.
pub fn in_session_sync(id: SessionId, log: impl FnOnce()) {
    SESSION.sync_scope(LogSession::new(id), log);
}

/// A logger for each verbosity, or one alone where `RUST_LOG` replaces it.
struct LeveledLogger {
    loggers: Vec<env_logger::Logger>,
    verbosity: AtomicUsize,
}

/// The logger of this process.
static LOGGER: OnceLock<LeveledLogger> = OnceLock::new();

impl LeveledLogger {
    fn current(&self) -> &env_logger::Logger {
        let last = self.loggers.len() - 1;
        &self.loggers[self.verbosity.load(Ordering::Relaxed).min(last)]
    }
}

impl Log for LeveledLogger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.current().enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        self.current().log(record);
    }

    fn flush(&self) {
        self.current().flush();
    }
}

/// Tells whether [`set_verbosity`] has an effect: `RUST_LOG` is not set.
pub fn can_set_verbosity() -> bool {
    LOGGER.get().is_some_and(|logger| logger.loggers.len() > 1)
}

/// Sets the level of the log, as the number of `-v`, unless `RUST_LOG` is set.
pub fn set_verbosity(verbosity: u8) {
    if let Some(logger) = LOGGER.get() {
        logger.verbosity.store(verbosity.into(), Ordering::Relaxed);
        log::set_max_level(logger.current().filter());
    }
}

/// Installs the logger and the panic hook. Call it once per process.
///
/// `verbosity` counts `-v`; `directives` is the text of `RUST_LOG`; `bot_crate` is the crate whose
/// records are shown like the runner's own.
pub fn init(verbosity: u8, directives: Option<&str>, bot_crate: &'static str, format: LogFormat) {
    let loggers = match directives {
        Some(directives) => {
            let mut builder = env_logger::Builder::new();
            builder.parse_filters(directives);
            vec![build(builder, bot_crate, format)]
        }
        None => (0..=VERBOSITY_MAX)
            .map(|verbosity| build(with_levels(verbosity, bot_crate), bot_crate, format))
            .collect(),
    };
    let verbosity = AtomicUsize::new(verbosity.into());
    let logger = LOGGER.get_or_init(|| LeveledLogger { loggers, verbosity });
    // If the host program has installed a logger, that one stays.
    if log::set_logger(logger).is_ok() {
        log::set_max_level(logger.current().filter());
        log_panics(format);
    }
}

/// Returns a builder with the levels of a number of `-v`.
fn with_levels(verbosity: u8, bot_crate: &str) -> env_logger::Builder {
    let mut builder = env_logger::Builder::new();
    let (others, ours) = levels(verbosity);
    builder.filter_level(others);
    builder.filter_module(env!("CARGO_CRATE_NAME"), ours);
    builder.filter_module(bot_crate, ours);
    if verbosity < 3 {
        // It logs every ordinary close as an error.
        builder.filter_module("sctp_proto", LevelFilter::Off);
        // They log addresses of peers, and a permission refused by a relay as a warning.
        for library in [
            "turn_client_proto",
            "turn_types",
            "stun_proto",
            "stun_types",
            "tracing::span",
        ] {
            builder.filter_module(library, LevelFilter::Off);
        }
        // It logs every message of a call.
        builder.filter_module("tungstenite", LevelFilter::Warn);
    }
    builder
}

fn build(mut builder: env_logger::Builder, bot_crate: &'static str, format: LogFormat) -> env_logger::Logger {
    builder.target(Target::Pipe(Box::new(ToStderr)));
    builder.write_style(match shows_colours(io::stderr().is_terminal()) {
        true => WriteStyle::Always,
        false => WriteStyle::Never,
    });
    builder.format(move |out, record| {
        // At this level it logs every byte of every message, and some of them contain tokens.
        if record.level() == Level::Trace && record.target().starts_with("tungstenite") {
            return Ok(());
        }
        let Some(left_out) = admit_line(record.level()) else {
            return Ok(());
        };
        if left_out > 0 {
            write_line(
                out,
                &Record::builder()
                    .args(format_args!("{}", LeftOut(left_out)))
                    .level(Level::Warn)
                    .target(module_path!())
                    .build(),
                bot_crate,
                format,
            )?;
        }
        write_line(out, record, bot_crate, format)
    });
    builder.build()
}

/// Writes a message of the process itself, such as why it ends, after all log lines.
pub fn print(message: &str) {
    STDERR.write(format!("{message}\n").as_bytes());
}

/// Tells whether stderr is a terminal that can show a status, in a row that is written again and
/// again.
pub fn can_show_status() -> bool {
    let can_erase = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
    can_erase && io::stderr().is_terminal()
}

/// Shows a text below the log, in place of an earlier one, until the next line of the log.
pub fn show_status(text: &str) {
    STDERR.show_status(text);
}

/// Erases that text.
pub fn clear_status() {
    STDERR.clear_status();
}

/// Calls `write`, which writes to stdout, while no status is shown: both may be one terminal.
pub fn without_status<T>(write: impl FnOnce() -> T) -> T {
    STDERR.without_status(write)
}

/// Waits until each line is written, for a limited time: before the process ends, or before output
/// that belongs behind the lines.
pub fn flush() {
    STDERR.flush(LOG_FLUSH);
}

/// Tells whether a stream shows colours: a terminal does, and the usual variables decide otherwise.
pub fn shows_colours(is_terminal: bool) -> bool {
    let value = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if value("NO_COLOR").is_some() {
        return false;
    }
    if value("CLICOLOR_FORCE").is_some_and(|value| value != "0") {
        return true;
    }
    let is_plain =
        value("TERM").is_none_or(|term| term == "dumb") || value("CLICOLOR").is_some_and(|value| value == "0");
    is_terminal && !is_plain
}

/// Writes a record as one line.
fn write_line(out: &mut Formatter, record: &Record<'_>, bot_crate: &str, format: LogFormat) -> std::io::Result<()> {
    // There is no id outside a session, and while a task's locals are being dropped.
    let session = SESSION.try_with(|session| (session.id.clone(), session.bot.get().cloned()));
    let (session, bot) = session.map_or((None, None), |(id, bot)| (Some(id), bot));
    let time = out.timestamp_millis();
    match format {
        LogFormat::Json => {
            let line = JsonLine {
                time,
                record,
                session,
                bot,
            };
            writeln!(out, "{line}")
        }
        // Text is the format without an option.
        _ => {
            let style = out.default_level_style(record.level());
            let line = RecordLine {
                record,
                session,
                bot,
                bot_crate,
            };
            writeln!(out, "{time} {style}{:<5}{style:#} {line}", record.level())
        }
    }
}

/// Returns the levels of libraries and of the runner for a number of `-v`.
fn levels(verbosity: u8) -> (LevelFilter, LevelFilter) {
    match verbosity {
        0 => (LevelFilter::Warn, LevelFilter::Info),
        1 => (LevelFilter::Info, LevelFilter::Debug),
        2 => (LevelFilter::Debug, LevelFilter::Trace),
        _ => (LevelFilter::Trace, LevelFilter::Trace),
    }
}

/// Logs a panic as one line. With `RUST_BACKTRACE` the frames follow; they contain no peer text.
fn log_panics(format: LogFormat) {
    std::panic::set_hook(Box::new(move |info| {
        let payload = info.payload();
        let message = (payload.downcast_ref::<&str>().copied())
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        let location = info.location().map(ToString::to_string).unwrap_or_default();
        // A panic inside a session ends that session only.
        let level = match SESSION.try_with(|_| ()) {
            Ok(()) => Level::Warn,
            Err(_) => Level::Error,
        };
        log::log!(level, "panic at {location}: {message}");
        if format == LogFormat::Json {
            return;
        }
        let frames = std::backtrace::Backtrace::capture();
        if frames.status() == std::backtrace::BacktraceStatus::Captured {
            print(&frames.to_string());
        }
    }));
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Runs a future that never waits.
    fn now<F: Future>(future: F) -> F::Output {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("the future waits"),
        }
    }

    /// ERROR, WARN and INFO lines of a client are counted; DEBUG and TRACE, and lines without a
    /// client, are not.
    #[test]
    fn lines_of_a_client_are_limited() {
        let caller = LogClient::new(Arc::default(), [192, 0, 2, 1].into(), false);
        let spend = || (0..LINES_PER_CALLER_MAX).for_each(|_| assert_eq!(admit_line(Level::Info), Some(0)));
        caller.attribute(spend);
        assert_eq!(caller.attribute(|| admit_line(Level::Warn)), None);
        assert_eq!(now(for_client(caller.clone(), async { admit_line(Level::Info) })), None);
        assert_eq!(caller.attribute(|| admit_line(Level::Error)), None);
        for level in [Level::Debug, Level::Trace] {
            assert_eq!(caller.attribute(|| admit_line(level)), Some(0));
        }
        spend();
        assert_eq!(admit_line(Level::Warn), Some(0));
    }

    #[test]
    fn each_v_shows_more() {
        for verbosity in 0..4 {
            assert!(levels(verbosity) <= levels(verbosity + 1));
        }
        assert_eq!(levels(0), (LevelFilter::Warn, LevelFilter::Info));
        assert_eq!(levels(1).1, LevelFilter::Debug);
        assert_eq!(levels(2).1, LevelFilter::Trace);
    }
}
