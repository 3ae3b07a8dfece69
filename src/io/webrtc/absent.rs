//! Replaces `io::webrtc` in a build without `webrtc`.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;

use crate::io::RunError;
use crate::io::services::Services;
use crate::io::sessions::Sessions;
use crate::proto::metrics::MetricsSnapshot;

/// Never constructed.
pub struct WebRtc(Infallible);

impl WebRtc {
    /// Returns `None`.
    ///
    /// # Errors
    /// None.
    pub fn start(_: &Sessions, _: &[SocketAddr], _: u16, _: &Services) -> Result<Option<Self>, RunError> {
        Ok(None)
    }

    pub fn port_number(&self) -> u16 {
        match self.0 {}
    }

    pub fn metrics_snapshot(&self) -> MetricsSnapshot {
        match self.0 {}
    }

    /// # Errors
    /// None.
    pub async fn serve_ice_tcp(&self, _: TcpStream, _: SocketAddr) -> io::Result<()> {
        match self.0 {}
    }

    pub fn warm_up(&self) {
        match self.0 {}
    }

    pub async fn end(&self) {
        match self.0 {}
    }
}

impl Clone for WebRtc {
    fn clone(&self) -> Self {
        match self.0 {}
    }
}

/// Does nothing: no random numbers are drawn.
pub fn seed_thread() {}
