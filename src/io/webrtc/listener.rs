//! The connections of those that listen to a call (`--listen-in`): WebRTC without a bot.
//!
//! In: an offer that asks for sound. Out: the answer, and where the sound to send goes. A listener
//! shares the port of the sessions. Offers and candidates of clients cannot reach it, and no list
//! of sessions and no metric has it.

use tokio::sync::mpsc;

use super::WebRtc;
use super::session_io::WebRtcIo;
use super::shared::{Registration, RequestSender, SessionRequest, refusal};
use crate::bot::SessionId;
use crate::bot::media::MediaSlot;
use crate::io::admission::SessionPermit;
use crate::io::seeding::{seed_thread, seeding};
use crate::io::session::{self, SessionTask};
use crate::io::tasks;
use crate::limits::{AUDIO_IN_FRAMES_MAX, SESSION_REQUESTS};
use crate::logging::LogClient;
use crate::proto::event::LeaveReason;
use crate::proto::refusal::SessionRefusal;
use crate::proto::server::admission::Requester;
use crate::proto::webrtc::session::WebRtcSession;

/// A listener whose offer is answered.
pub struct AnsweredListener {
    /// The SDP answer.
    pub answer: String,
    /// Takes the sound for it.
    pub slot: MediaSlot,
    pub link: ListenerLink,
}

/// Ends the connection of a listener. Clones end the same one.
#[derive(Clone)]
pub struct ListenerLink(RequestSender);

impl ListenerLink {
    /// Ends the connection.
    pub fn end(&self) {
        // A connection with a full channel is stalled and will end.
        let _ = self.0.try_send(Box::new(SessionRequest::End(LeaveReason::Left)));
    }
}

impl WebRtc {
    /// Answers the offer of a listener, whose log lines begin with `id`.
    ///
    /// # Errors
    /// Returns an [`SessionRefusal`] that says what was wrong.
    pub fn listen(
        &self,
        offer: &str,
        requester: Requester,
        permit: SessionPermit,
        id: SessionId,
        client: LogClient,
    ) -> Result<AnsweredListener, SessionRefusal> {
        let inner = &self.shared;
        if inner.sessions.shutdown().is_set() {
            return Err(SessionRefusal::Stopping);
        }
        let now = tasks::now();
        seed_thread();
        let (mut session, answer) = inner
            .with_setup(requester.local_address, |setup| {
                WebRtcSession::accept(offer, setup, now)
            })
            .map_err(refusal)?;
        let mut inbox = inner.sockets.port.open();
        inbox.listen(session.local_ufrag());
        let (requests, requests_rx) = mpsc::channel(SESSION_REQUESTS);
        let mut task = SessionTask::new(inner.sessions.clone(), permit, None);
        let slot = task.send_media(AUDIO_IN_FRAMES_MAX);
        let io = WebRtcIo {
            inbox,
            used: None,
            requests: requests_rx,
            inquirers: Vec::new(),
            shared: inner.clone(),
            registered: Registration::unreachable(inner.new_pc_id()),
            resource: None,
            call: None,
        };
        let run = seeding(session::run(Box::new(session), io, task));
        session::spawn(&inner.sessions, id, client, run);
        Ok(AnsweredListener {
            answer,
            slot,
            link: ListenerLink(requests),
        })
    }
}
