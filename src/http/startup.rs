//! The first and last steps of a server process: it forbids debuggers, starts the runtime, and ends
//! with an exit code.

use tokio::runtime::Runtime;

use crate::memory;

/// The exit code of a failure.
pub const EXIT_FAILURE: u8 = 1;
/// The exit code of invalid arguments.
pub const EXIT_USAGE: u8 = 2;

/// Why the process ends with an exit code other than 0.
pub struct StartupError {
    pub code: u8,
    pub message: String,
}

impl StartupError {
    /// Creates the error of a failed step.
    pub fn in_step(step: &str, error: impl std::fmt::Display) -> StartupError {
        StartupError {
            code: EXIT_FAILURE,
            message: format!("{step}: {error}"),
        }
    }
}

/// Stops processes of the same user (bots, builder commands) from reading this process's secrets
/// through `/proc` or as debuggers. Programs that it starts are not affected: `exec` resets the
/// flag. Linux alone has it.
pub fn forbid_debuggers() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}

/// Starts the runtime. Without a number of workers there is one per core. `on_thread_start` runs on
/// this thread and on each thread of the runtime.
///
/// # Errors
/// Returns a [`StartupError`] when the system cannot start a thread.
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

/// Tells whether the process has one thread. Without `/proc` it returns true.
#[cfg(not(target_os = "macos"))]
pub fn is_single_threaded() -> bool {
    std::fs::read_dir("/proc/self/task").map_or(true, |threads| threads.count() == 1)
}

/// Tells whether the process has never had a second thread. macOS has no `/proc`.
#[cfg(target_os = "macos")]
pub fn is_single_threaded() -> bool {
    // SAFETY: the declaration matches `pthread.h`. The function takes nothing and reads a flag.
    unsafe extern "C" {
        safe fn pthread_is_threaded_np() -> std::ffi::c_int;
    }
    pthread_is_threaded_np() == 0
}
