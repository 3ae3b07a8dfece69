//! What carries WebRTC: connections by the name that clients know them under, and the way of an
//! offer to its session.
//!
//! In: parsed offers and candidates. Out: answers, or the refusal that says why. A new connection
//! becomes a session: a task that owns the connection (`carrier`) and one that runs the bot. A
//! known one is reached through its inbox; nothing else touches it. The answer is written when the
//! socket listens for the session's ufrag, never later.

mod call;
mod progress;
mod session_io;
mod shared;
mod startup;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use crate::bot::{self, WebRtcArguments, WebRtcConnection};
use crate::config::Transport;
use crate::io::admission::SessionPermit;
use crate::io::ice_tcp::{IceTcpConnection, TcpSlots};
use crate::io::session::{self, SessionTask};
use crate::io::sessions::{SessionStart, Sessions};
use crate::io::tasks;
use crate::limits::{AUDIO_IN_FRAMES_MAX, INQUIRY_WITHIN, SESSION_REQUESTS};
use crate::proto::metrics::MetricsSnapshot;
use crate::proto::server::admission::{PendingKind, Requester};
pub use crate::proto::webrtc::connection::ConnectionContext;
use crate::proto::webrtc::connection::DeviceOffer;
use crate::proto::webrtc::offer::{AnswerBody, CandidatesBody, OfferBody, OfferError, OfferPurpose};
use crate::proto::webrtc::session::{OfferOrigin, WebRtcSession};
use crate::proto::webrtc::whip::resource::WhipResource;
use crate::proto::webrtc::whip::{ResourceRequest, ResourceResponse, WhipError, WhipOffer};

pub use call::{AnsweredCall, RunningCall};
pub use progress::CallEvent;
use session_io::WebRtcIo;
pub use shared::Sockets;
use shared::{SessionRequest, WebRtcShared, new_pc_id, refusal};
pub use startup::{seed_thread, seeding};

/// What carries WebRTC: the connections of one runner. Clones share it.
#[derive(Clone)]
pub struct WebRtc {
    shared: Arc<WebRtcShared>,
    /// The places of callers' connections over TCP.
    framed: TcpSlots,
}

impl WebRtc {
    pub fn new(sessions: Sessions, common: Arc<ConnectionContext>, sockets: Sockets) -> Self {
        WebRtc {
            shared: Arc::new(WebRtcShared::new(sessions, common, sockets)),
            framed: TcpSlots::default(),
        }
    }

    /// Returns the sessions of this runner, on any transport.
    pub fn sessions(&self) -> &Sessions {
        &self.shared.sessions
    }

    /// Returns what every connection shares.
    pub fn common(&self) -> &Arc<ConnectionContext> {
        &self.shared.common
    }

    /// Returns what of this floor is counted elsewhere: packets for nobody, and how the servers
    /// stand.
    pub fn seen(&self) -> MetricsSnapshot {
        let dropped = self.shared.sockets.port.dropped();
        let status = self.shared.sockets.gatherer.status();
        MetricsSnapshot {
            unmatched_datagrams: dropped.unrouted.load(Relaxed),
            inbox_full: dropped.inbox_full.load(Relaxed),
            ice_servers: status.into_iter().map(|server| server.state).collect(),
            ..MetricsSnapshot::default()
        }
    }

    /// Takes a connection that brings packets of a session, once its first packet has come.
    ///
    /// # Errors
    /// The connection's, that of a packet for no session, and that of one connection too many.
    pub async fn framed(&self, stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
        let connected = IceTcpConnection::open(&self.shared.sockets.port, &self.framed, stream, peer).await?;
        tasks::spawn(connected.carry());
        Ok(())
    }

    /// Answers an offer. `start` is called only when the offer makes a new session.
    ///
    /// # Errors
    /// [`OfferError`] says what was wrong.
    pub async fn offer(
        &self,
        offer: OfferBody,
        requester: Requester,
        start: impl FnOnce() -> SessionStart + Send,
    ) -> Result<AnswerBody, OfferError> {
        if self.shared.sessions.shutdown().is_set() {
            return Err(OfferError::Stopping);
        }
        let known = offer
            .pc_id
            .as_ref()
            .and_then(|pc_id| Some((pc_id.clone(), self.shared.connection(pc_id)?)));
        let purpose = offer.purpose(known.is_some())?;
        let Some((former, session)) = known else {
            let beginning = NewSession {
                offer: offer.sdp,
                data: offer.request_data,
                call_data: None,
                has_resource: false,
            };
            return self.begin(beginning, requester, start).await;
        };
        let (reply, answer) = oneshot::channel();
        let request = match purpose {
            OfferPurpose::Restart => SessionRequest::Restart {
                offer: offer.sdp,
                pc_id: new_pc_id(),
                former,
                reached: requester.local_address,
                reply,
            },
            OfferPurpose::Begin | OfferPurpose::Renegotiate => SessionRequest::Renegotiate {
                offer: offer.sdp,
                reply,
            },
        };
        session.send(request).await.map_err(|_| OfferError::UnknownConnection)?;
        answer.await.unwrap_or(Err(OfferError::UnknownConnection))
    }

    /// Answers an offer whose session is a resource of HTTP. `start` is called only when the offer
    /// makes a session.
    ///
    /// # Errors
    /// [`OfferError`] says what was wrong.
    pub async fn open(
        &self,
        opening: WhipOffer,
        requester: Requester,
        start: impl FnOnce() -> SessionStart + Send,
    ) -> Result<AnswerBody, OfferError> {
        let beginning = NewSession {
            offer: opening.sdp,
            data: None,
            call_data: Some(opening.call_data),
            has_resource: true,
        };
        self.begin(beginning, requester, start).await
    }

    /// Does what is asked of a session that is a resource.
    ///
    /// # Errors
    /// [`WhipError`]; a session that ended, and one that is no resource, is unknown.
    pub async fn resource(&self, id: &str, asked: ResourceRequest) -> Result<ResourceResponse, WhipError> {
        let unknown = || WhipError::Offer(OfferError::UnknownConnection);
        let session = self.shared.connection(id).ok_or_else(unknown)?;
        let (reply, done) = oneshot::channel();
        let request = SessionRequest::Resource(asked, reply);
        session.send(request).await.map_err(|_| unknown())?;
        done.await.unwrap_or_else(|_| Err(unknown()))
    }

    /// Hands the client's candidates to its connection.
    ///
    /// # Errors
    /// [`OfferError::UnknownConnection`].
    pub async fn candidates(&self, candidates: CandidatesBody) -> Result<(), OfferError> {
        let session = self
            .shared
            .connection(&candidates.pc_id)
            .ok_or(OfferError::UnknownConnection)?;
        let lines = candidates.candidates.into_iter().map(|each| each.candidate).collect();
        session
            .send(SessionRequest::Candidates(lines))
            .await
            .map_err(|_| OfferError::UnknownConnection)
    }

    /// Takes a place for an offer. Where there is none, a device may have one of its own that
    /// nobody holds any more: it was reset, and its session is not given up yet.
    ///
    /// Every session that may be its own is asked whether its caller is there, and the one that was
    /// silent for longest gives its place, if it answers no question. That is decided within 2 s,
    /// since a device that was reset is to be back by then: the only case in which a network that
    /// is away for longer costs a place. As long as there are places, nobody is asked.
    async fn place(&self, offer: &str, requester: Requester) -> Result<SessionPermit, OfferError> {
        let sessions = &self.shared.sessions;
        let refused = match sessions.admission().session(requester, PendingKind::Offer) {
            Ok(permit) => return Ok(permit),
            Err(refused) => refused,
        };
        let device = DeviceOffer::parse(offer).ok_or(refused)?;
        let _waits = sessions.admission().wait(requester)?;
        let inquiries = self.shared.inquire(OfferOrigin {
            source: requester.source,
            host: device.host,
        });
        let mut silent = Vec::new();
        // All are asked at the same time, so the slowest sets the pace.
        let finding = async {
            for inquiry in inquiries {
                silent.extend(inquiry.await.ok());
            }
        };
        let _ = tokio::time::timeout(INQUIRY_WITHIN, finding).await;
        silent.sort_by_key(|silent| silent.heard);
        let places = silent.iter();
        let mut places = places.map(|silent| sessions.admission().replace(silent.ticket, requester));
        match places.find_map(Result::ok) {
            Some(permit) => {
                log::info!("the runner is full; the place of a device that does not answer is free for this one");
                Ok(permit)
            }
            None => Ok(sessions.admission().session(requester, PendingKind::Offer)?),
        }
    }

    async fn begin(
        &self,
        beginning: NewSession,
        requester: Requester,
        start: impl FnOnce() -> SessionStart + Send,
    ) -> Result<AnswerBody, OfferError> {
        let NewSession {
            offer,
            data,
            call_data,
            has_resource,
        } = beginning;
        let inner = &self.shared;
        if inner.sessions.is_closed() {
            return Err(OfferError::Stopping);
        }
        let permit = self.place(&offer, requester).await?;
        if inner.sessions.is_closed() {
            return Err(OfferError::Stopping);
        }
        let now = tasks::now();
        seed_thread();
        let (mut session, sdp) = inner
            .with_setup(requester.local_address, |setup| {
                WebRtcSession::accept(&offer, setup, now)
            })
            .map_err(refusal)?;
        let start = start();
        let pc_id = new_pc_id();
        let mut inbox = inner.sockets.port.open();
        inbox.listen(session.local_ufrag());
        let (requests, requests_rx) = mpsc::channel(SESSION_REQUESTS);
        let number = inbox.number();
        let device = session.is_device().then(|| OfferOrigin {
            source: requester.source,
            host: session.host_address(),
        });
        let registered = inner.register(pc_id.clone(), number, requests, device);
        let connection = WebRtcConnection::new(pc_id.clone(), session.is_device(), session.offers_channel());
        let (id, body) = (start.session_id, data.unwrap_or(start.body));
        let mut task = SessionTask::new(inner.sessions.clone(), permit, start.lease);
        task.start_bot(id.clone(), body, Transport::WebRtc, AUDIO_IN_FRAMES_MAX, |slot| {
            bot::Kind::WebRtc(WebRtcArguments::new(connection, slot).with_call_data(call_data))
        });
        let carrier = WebRtcIo {
            resource: has_resource.then(|| WhipResource::new(offer, &sdp)),
            inbox,
            used: None,
            requests: requests_rx,
            inquirers: Vec::new(),
            shared: inner.clone(),
            registered,
            call: None,
        };
        let task = seeding(session::run(Box::new(session), carrier, task));
        session::spawn(&inner.sessions, id, start.log_client, task);
        Ok(AnswerBody { sdp, pc_id })
    }
}

/// What a new session comes of.
struct NewSession {
    offer: String,
    /// For the bot, in place of what `/start` was given.
    data: Option<Value>,
    call_data: Option<Value>,
    has_resource: bool,
}

#[cfg(test)]
mod tests;
