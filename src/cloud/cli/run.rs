//! Runs a [`CloudTask`]: sets up logger and runtime, then runs the service, the key command or the
//! client.
//!
//! Out: text on stdout, and a [`StartupError`] with the exit code: 1 for a failure, 2 for misuse, 3
//! for a wait that timed out.

use std::io::{self, Write};

use super::CloudTask;
use crate::ServeError;
use crate::config::{ClientConfig, CloudConfig, KeysConfig, SharedTask};
use crate::io::client::{self, ClientError};
use crate::io::{SCALE, guard, keys};
use edge_runner_http::logging;
use edge_runner_http::startup::{EXIT_FAILURE, EXIT_USAGE, StartupError, forbid_debuggers, runtime};
use edge_runner_proto::config::LogFormat;
use edge_runner_proto::limits::RUNTIME_END;
use edge_runner_proto::options::env::Variables;

/// Exit code of `--wait` when its timeout has passed.
const STILL_RUNNING: u8 = 3;

/// Without `/proc`, commands that outlive the service cannot be found, nor their folders removed.
const NEEDS_LINUX: &str = "the cloud service runs on Linux only, since it finds the processes of builds in /proc; this system has \
    the commands that use a service: regions, build, status, logs, keys";

impl CloudTask {
    /// Runs the task.
    ///
    /// # Errors
    /// [`StartupError`] with the exit code.
    pub fn run(self, warnings: &[String], variables: &Variables) -> Result<(), StartupError> {
        let verbosity = match &self {
            CloudTask::Serve(config) => config.verbosity,
            CloudTask::Keys(config) => config.verbosity,
            CloudTask::Shared { verbosity, .. } => *verbosity,
            CloudTask::Client(config) => config.verbosity,
            CloudTask::Guard(service, data_dir) => {
                runtime(Some(1), || {})?.block_on(async { guard::run(*service, data_dir) });
                return Ok(());
            }
        };
        logging::init(verbosity, variables.get("RUST_LOG"), "edge_runner", LogFormat::Text);
        for warning in warnings {
            log::warn!("{warning}");
        }
        match self {
            CloudTask::Serve(config) => serve(*config),
            CloudTask::Keys(config) => edit_keys(&config),
            CloudTask::Shared { task, .. } => run_shared(task),
            CloudTask::Client(config) => ask(*config),
            CloudTask::Guard(..) => Ok(()),
        }
    }
}

fn serve(config: CloudConfig) -> Result<(), StartupError> {
    if !cfg!(target_os = "linux") {
        return Err(failed(NEEDS_LINUX.to_owned()));
    }
    forbid_debuggers();
    if config.command.is_some() {
        guarded(&config);
    }
    let runtime = runtime(None, || {})?;
    let served = runtime.block_on(crate::io::run(config, |banner| {
        let mut out = io::stdout();
        // A supervisor may have closed stdout; the log has the address too.
        let _ = out.write_all(banner.as_bytes()).and_then(|()| out.flush());
    }));
    runtime.shutdown_timeout(RUNTIME_END);
    served.map_err(|error| StartupError {
        // The service itself checks some of the files that the options name.
        code: if matches!(error, ServeError::Regions(_)) {
            EXIT_USAGE
        } else {
            EXIT_FAILURE
        },
        message: error.to_string(),
    })
}

/// Starts the guard of the builder commands. The service runs without it as well; then the next
/// start kills leftover commands.
fn guarded(config: &CloudConfig) {
    if let Err(error) = guard::start(&config.data_dir) {
        log::warn!("builder commands may outlive the service: making their guard: {error}");
    }
}

fn edit_keys(config: &KeysConfig) -> Result<(), StartupError> {
    let edited = keys::edit(&config.data_dir, &config.task);
    print(&edited.map_err(|error| failed(error.to_string()))?)
}

fn run_shared(task: SharedTask) -> Result<(), StartupError> {
    let driver = SCALE.first().expect("other builds reject the command line");
    let done = runtime(Some(1), || {})?.block_on((driver.run)(task));
    print(&done.map_err(failed)?)
}

/// Prints a result.
fn print(text: &str) -> Result<(), StartupError> {
    // The text is the result here: a key that could not be printed is lost.
    let mut out = io::stdout();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| StartupError::in_step("writing to stdout", error))
}

fn ask(config: ClientConfig) -> Result<(), StartupError> {
    // Requests run one after the other; packing uses a blocking thread.
    let runtime = runtime(Some(1), || {})?;
    let asked = runtime.block_on(client::run(config));
    runtime.shutdown_timeout(RUNTIME_END);
    asked.map_err(|end| match end {
        ClientError::Failed(message) => failed(message),
        ClientError::Usage(message) => StartupError {
            code: EXIT_USAGE,
            message,
        },
        ClientError::StillRunning(message) => StartupError {
            code: STILL_RUNNING,
            message,
        },
    })
}

fn failed(message: String) -> StartupError {
    StartupError {
        code: EXIT_FAILURE,
        message,
    }
}
