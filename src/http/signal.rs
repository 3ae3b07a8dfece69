//! SIGINT and SIGTERM: the first asks the runner to stop, the next ones make it do so sooner.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The two signals that end a runner.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Starts to listen; from here on the signals no longer end the process by themselves.
    ///
    /// # Errors
    /// The operating system's.
    pub fn listen() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next of them, and returns its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
