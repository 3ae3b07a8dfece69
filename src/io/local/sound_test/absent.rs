//! Replaces the test of the sound card in a build without the pages that ask for it.

use std::future::pending;

/// The requests for the card: there are none.
pub struct CardLoans;

/// A request for the card: there is none.
pub enum CardLoan {}

impl CardLoans {
    /// Never ends.
    pub async fn next(&mut self) -> CardLoan {
        pending().await
    }

    /// Waits for a future.
    pub async fn refuse_during<T>(&mut self, future: impl Future<Output = T>) -> T {
        future.await
    }
}

impl CardLoan {
    pub async fn lend(self) {
        match self {}
    }
}
