//! What a server process does first and last: it closes itself to others, starts the runtime, and
//! ends with an exit code.

use tokio::runtime::Runtime;

use crate::memory;

/// The exit code of what failed.
pub const EXIT_FAILURE: u8 = 1;
/// The exit code of arguments that make no sense.
pub const EXIT_USAGE: u8 = 2;

/// Why the process ends otherwise than well.
pub struct StartupError {
    pub code: u8,
    pub message: String,
}

impl StartupError {
    /// Makes that of a step that failed.
    pub fn in_step(step: &str, error: impl std::fmt::Display) -> StartupError {
        StartupError {
            code: EXIT_FAILURE,
            message: format!("{step}: {error}"),
        }
    }
}

/// Keeps programs that run as the same user, bots and builder commands, from reading the keys of
/// this process by way of `/proc` or as a debugger. They themselves are as usual: what becomes
/// another program begins anew.
pub fn forbid_debuggers() {
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}

/// Starts the runtime; without a number of workers there is one for each core. `on_thread_start` is
/// called on this thread and on each of the runtime's.
///
/// # Errors
/// [`StartupError`] where the system has no threads left.
pub fn runtime(workers: Option<usize>, on_thread_start: fn()) -> Result<Runtime, StartupError> {
    memory::use_one_heap();
    let mut builder = match workers {
        Some(1) => tokio::runtime::Builder::new_current_thread(),
        workers => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            if let Some(workers) = workers {
                builder.worker_threads(workers);
            }
            builder
        }
    };
    on_thread_start();
    builder
        .enable_all()
        .on_thread_start(on_thread_start)
        .build()
        .map_err(|error| StartupError::in_step("starting the runtime", error))
}

/// Asks the kernel how many threads there are. Where there is no `/proc`, `main` is trusted to be
/// called first.
pub fn is_single_threaded() -> bool {
    std::fs::read_dir("/proc/self/task").map_or(true, |threads| threads.count() == 1)
}
