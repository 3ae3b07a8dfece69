//! The twin of `io::webrtc` in a build without `webrtc`: the sessions of the runner, and no way to them over UDP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;

use crate::abilities::{Ability, Absent};
use crate::config::Config;
use crate::io::RunError;
use crate::io::services::Services;
use crate::io::sessions::{Sessions, Start};
use crate::proto::admission::Requester;
use crate::proto::metrics::Seen;
use crate::proto::offer::{Answer, Candidates, Offer, OfferRefusal};
use crate::proto::whip::{Asked, Done, Opening, Refusal};

const ABSENT: Absent = Absent(Ability::WebRtc);

/// What connections would share.
#[derive(Default)]
pub struct Common;

/// What answers offers, if one came here; they are refused before.
#[derive(Clone)]
pub struct WebRtc(Sessions);

impl WebRtc {
    pub fn sessions(&self) -> &Sessions {
        &self.0
    }

    pub fn common(&self) -> Arc<Common> {
        Arc::default()
    }

    pub fn seen(&self) -> Seen {
        Seen::default()
    }

    /// # Errors
    /// Always.
    pub async fn framed(&self, _stream: TcpStream, _peer: SocketAddr) -> io::Result<()> {
        Err(io::Error::other(format!("WebRTC {ABSENT}")))
    }

    /// # Errors
    /// Always.
    pub async fn offer(
        &self,
        _offer: Offer,
        _requester: Requester,
        _start: impl FnOnce() -> Start + Send,
    ) -> Result<Answer, OfferRefusal> {
        Err(OfferRefusal::UnknownConnection)
    }

    /// # Errors
    /// Always.
    pub async fn open(
        &self,
        _opening: Opening,
        _requester: Requester,
        _start: impl FnOnce() -> Start + Send,
    ) -> Result<Answer, OfferRefusal> {
        Err(OfferRefusal::UnknownConnection)
    }

    /// # Errors
    /// Always.
    pub async fn resource(&self, _id: &str, _asked: Asked) -> Result<Done, Refusal> {
        Err(Refusal::Offer(OfferRefusal::UnknownConnection))
    }

    /// # Errors
    /// Always.
    pub async fn candidates(&self, _candidates: Candidates) -> Result<(), OfferRefusal> {
        Err(OfferRefusal::UnknownConnection)
    }
}

/// # Errors
/// None: nobody is shown a certificate.
pub fn prepare() -> Result<(), RunError> {
    Ok(())
}

/// Nothing is drawn from a generator that would have to be seeded.
pub fn seed_thread() {}

/// An engine without a port.
pub struct Opened {
    pub engine: WebRtc,
}

impl Opened {
    /// # Errors
    /// None.
    pub fn open(
        _config: &Config,
        sessions: Sessions,
        _http: &[SocketAddr],
        _http_port: u16,
        _services: &Services,
    ) -> Result<Self, RunError> {
        let engine = WebRtc(sessions);
        Ok(Opened { engine })
    }

    /// There is none.
    pub fn port(&self) -> u16 {
        0
    }

    pub fn warm_up(&self) {}

    pub async fn end(self) {}
}
