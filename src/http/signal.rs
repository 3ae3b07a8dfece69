//! SIGINT and SIGTERM: the first stops the runner in good order, further ones hasten the end.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A listener for the two signals.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    received: usize,
}

impl Signals {
    /// Starts to listen. From here on the signals no longer end the process.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn listen() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            received: 0,
        })
    }

    /// Waits for the next signal and returns its name.
    pub async fn next(&mut self) -> &'static str {
        let name = tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        };
        self.received += 1;
        name
    }

    /// Returns how many signals came.
    pub fn received(&self) -> usize {
        self.received
    }
}
