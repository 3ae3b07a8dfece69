//! SIGINT and SIGTERM: the first stops the runner in good order, further ones hasten the end. A
//! command that may not end halfway takes SIGHUP as well.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A listener for these signals.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` where a SIGHUP ends the process, or has another meaning.
    hangup: Option<Signal>,
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
            hangup: None,
            received: 0,
        })
    }

    /// Starts to listen to SIGHUP as well, for a command whose terminal may go away.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn listen_with_hangup() -> io::Result<Signals> {
        let hangup = Some(signal(SignalKind::hangup())?);
        Ok(Signals {
            hangup,
            ..Signals::listen()?
        })
    }

    /// Waits for the next signal and returns its name.
    pub async fn next(&mut self) -> &'static str {
        let name = tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            () = received(self.hangup.as_mut()) => "SIGHUP",
        };
        self.received += 1;
        name
    }

    /// Returns how many signals came.
    pub fn received(&self) -> usize {
        self.received
    }
}

/// Waits for a signal; for ever for none.
async fn received(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}
