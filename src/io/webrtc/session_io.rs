//! The I/O of a WebRTC session: its inbox at the UDP port, and its HTTP requests.
//!
//! In: datagrams, further offers, candidates, requests on a WHIP resource. Out: the commands of
//! [`WebRtcSession`], answers, and announcements to other sessions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Context;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use super::progress::ProgressSender;
use super::shared::{AnswerSender, Registration, SessionRequest, SilentSession, WebRtcShared, refusal};
use crate::io::session::{CloseOutcome, SessionIo, SessionTask};
use crate::io::tasks;
use crate::io::webrtc::udp::{Datagram, SessionInbox};
use crate::limits::WAITING_OFFERS_MAX;
use crate::proto::counts::Count;
use crate::proto::refusal::SessionRefusal;
use crate::proto::session::Session as _;
use crate::proto::webrtc::connection::{NegotiationError, Transmit, ValidatedPath};
use crate::proto::webrtc::offer::AnswerBody;
use crate::proto::webrtc::packet_router::RemotePath;
use crate::proto::webrtc::session::{CompetingSession, ProbeOutcome, WebRtcCommand, WebRtcSession};
use crate::proto::webrtc::whip::resource::{ResourcePatch, WhipResource};
use crate::proto::webrtc::whip::{ResourceRequest, ResourceResponse, WhipError};

/// The I/O of one session.
pub struct WebRtcIo {
    pub inbox: SessionInbox,
    pub requests: mpsc::Receiver<Box<SessionRequest>>,
    pub shared: Arc<WebRtcShared>,
    pub registered: Registration,
    /// The WHIP resource of a session opened by one POST.
    pub resource: Option<WhipResource>,
    /// The progress of a WhatsApp call.
    pub call: Option<ProgressSender>,
    /// The path on which media is sent.
    pub used: Option<SelectedPath>,
    /// Waiting inquiries whether the caller is still there.
    pub inquirers: Vec<oneshot::Sender<SilentSession>>,
}

/// The path of media to the caller.
#[derive(Clone, Copy)]
pub struct SelectedPath {
    path: RemotePath,
    local: SocketAddr,
    peer: SocketAddr,
}

/// An input of the session.
pub enum WebRtcInput {
    Datagram(Datagram),
    Request(Box<SessionRequest>),
}

impl SessionIo for WebRtcIo {
    type Session = WebRtcSession;
    type Input = WebRtcInput;

    async fn recv(&mut self) -> WebRtcInput {
        // Unbiased: a flood of datagrams must not starve requests.
        tokio::select! {
            datagram = self.inbox.recv() => WebRtcInput::Datagram(datagram),
            Some(request) = self.requests.recv() => WebRtcInput::Request(request),
        }
    }

    fn deliver(&mut self, input: WebRtcInput, session: &mut WebRtcSession, task: &mut SessionTask) {
        match input {
            WebRtcInput::Datagram(datagram) => {
                task.counts.add(Count::PacketsIn, 1);
                task.counts.add(Count::BytesIn, datagram.contents.len() as u64);
                session.handle_packet(&datagram.packet(), datagram.arrived);
            }
            WebRtcInput::Request(request) => self.handle_request(*request, session),
        }
    }

    fn perform(
        &mut self,
        command: WebRtcCommand,
        session: &mut WebRtcSession,
        task: &mut SessionTask,
        _cx: &mut Context<'_>,
    ) {
        match command {
            WebRtcCommand::Transmit(transmit) => self.transmit(transmit, task),
            WebRtcCommand::PathValidated(proven) => self.prove(&proven),
            WebRtcCommand::ProbeOutcome(found) => {
                let silent = SilentSession {
                    last_received: session.last_received(),
                    ticket: task.permit.ticket(),
                };
                for inquirer in self.inquirers.drain(..).filter(|_| found == ProbeOutcome::Silent) {
                    // The inquirer may have timed out.
                    let _ = inquirer.send(silent);
                }
            }
            WebRtcCommand::Announce(rival) => self.shared.notify_others(self.inbox.number(), rival),
            WebRtcCommand::Progress(progress) => {
                if let Some(call) = &self.call {
                    call.handle_progress(progress, &task.sessions);
                }
            }
        }
    }

    fn close(self, _session: &WebRtcSession, _task: &SessionTask) -> CloseOutcome {
        // Dropping the registration and the channel tells waiting requests that the session is
        // gone.
        CloseOutcome::default()
    }
}

impl WebRtcIo {
    fn transmit(&mut self, mut transmit: Transmit, task: &mut SessionTask) {
        task.counts.add(Count::PacketsOut, 1);
        let (over, source, destination) = (transmit.over, transmit.source, transmit.destination);
        let path = self.inbox.port().path(over, source, destination);
        if transmit.is_check() || transmit.is_answer() {
            self.inbox.expect(path);
        } else {
            self.used = Some(SelectedPath {
                path,
                local: source,
                peer: destination,
            });
        }
        let contents = transmit.contents();
        task.counts.add(Count::BytesOut, contents.len() as u64);
        self.inbox.port().send(over, source, destination, contents);
    }

    fn prove(&self, proven: &ValidatedPath) {
        let path = self.inbox.port().path(proven.over, proven.local, proven.peer);
        for other in self.inbox.prove(path) {
            self.shared.notify(other, CompetingSession::AtAddress);
        }
    }

    fn handle_request(&mut self, request: SessionRequest, session: &mut WebRtcSession) {
        let now = tasks::now();
        match request {
            SessionRequest::Renegotiate { offer, reply } => {
                let answer = session.renegotiate(&offer);
                self.rename(session);
                self.answer(answer, reply, session);
            }
            SessionRequest::Restart {
                offer,
                pc_id,
                former,
                reached,
                reply,
            } => {
                let restarted = self
                    .shared
                    .with_setup(reached, |setup| session.restart(&offer, setup, now));
                if restarted.is_ok() {
                    log::info!("connection restarted by the client, {}", session.codec());
                    self.registered.rename(pc_id, former);
                }
                self.answer(restarted, reply, session);
            }
            SessionRequest::Candidates(candidates) => {
                for candidate in &candidates {
                    session.add_trickled_candidate(candidate);
                }
            }
            SessionRequest::Resource(resource_request, reply) => {
                let done = self.serve(resource_request, session, now);
                // A restart has changed the local ufrag.
                self.rename(session);
                // The client may have disconnected.
                let _ = reply.send(done);
            }
            SessionRequest::Open => session.open(now),
            SessionRequest::End(reason) => session.handle_end(reason, now),
            SessionRequest::Rival(rival) => session.handle_competitor(rival, now),
            SessionRequest::Inquire(inquirer) => {
                self.inquirers.retain(|other| !other.is_closed());
                if self.inquirers.len() < WAITING_OFFERS_MAX {
                    self.inquirers.push(inquirer);
                    session.handle_probe(now);
                }
            }
        }
    }

    /// Performs a request on the WHIP resource.
    fn serve(
        &mut self,
        resource_request: ResourceRequest,
        session: &mut WebRtcSession,
        now: Instant,
    ) -> Result<ResourceResponse, WhipError> {
        let Some(resource) = self.resource.as_mut().filter(|_| !session.is_ending()) else {
            return Err(WhipError::Offer(SessionRefusal::UnknownConnection));
        };
        match resource_request {
            ResourceRequest::Get => Ok(ResourceResponse::NoContent),
            ResourceRequest::Delete => {
                self.resource = None;
                session.handle_leave(now);
                Ok(ResourceResponse::NoContent)
            }
            ResourceRequest::Patch { if_match, body, source } => match resource.patch(if_match.as_deref(), &body)? {
                ResourcePatch::Trickle(candidates) => {
                    for line in &candidates {
                        session.add_remote_candidate(line);
                    }
                    Ok(ResourceResponse::NoContent)
                }
                ResourcePatch::Restart(restart) => {
                    let answer = session.renegotiate(&restart.offer).map_err(refusal)?;
                    log::info!("ICE restarted by the client");
                    let used = self.used.map(|used| (used.local, used.peer));
                    Ok(resource.handle_restart(restart, &answer, used, source))
                }
            },
        }
    }

    /// Routes the current ufrag; the caller uses the old path until it has another one.
    fn rename(&mut self, session: &mut WebRtcSession) {
        let used = self.used.map(|used| used.path);
        self.inbox.rename(session.local_ufrag(), used);
    }

    /// Routes the ufrag of the answer, then returns the answer.
    fn answer(&mut self, answer: Result<String, NegotiationError>, reply: AnswerSender, session: &mut WebRtcSession) {
        let answer = answer.map_err(refusal).map(|sdp| AnswerBody {
            sdp,
            pc_id: self.registered.pc_id().to_owned(),
        });
        self.inbox.listen(session.local_ufrag());
        // The client may have disconnected.
        let _ = reply.send(answer);
    }
}
