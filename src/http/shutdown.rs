//! The shutdown signal of the process: one trigger and any number of handles.

/// Tells a bot that the runner is stopping. Clones share one state.
#[derive(Clone, Debug)]
pub struct Shutdown(tokio::sync::watch::Receiver<bool>);

impl Shutdown {
    /// Creates a trigger and its first handle.
    pub fn channel() -> (ShutdownTrigger, Shutdown) {
        let (sender, receiver) = tokio::sync::watch::channel(false);
        (ShutdownTrigger(sender), Shutdown(receiver))
    }

    /// Tells whether the runner is stopping.
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the runner stops; for ever if it never does.
    pub async fn wait(&mut self) {
        if self.0.wait_for(|set| *set).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Default for Shutdown {
    /// Creates a handle that is never set.
    fn default() -> Self {
        Shutdown::channel().1
    }
}

/// Sets the [`Shutdown`] handles.
#[derive(Debug)]
pub struct ShutdownTrigger(tokio::sync::watch::Sender<bool>);

impl ShutdownTrigger {
    /// Tells every handle that the runner is stopping.
    pub fn set(&self) {
        self.0.send_replace(true);
    }

    /// Creates another handle.
    pub fn subscribe(&self) -> Shutdown {
        Shutdown(self.0.subscribe())
    }
}
