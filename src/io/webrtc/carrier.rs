//! What carries a session over WebRTC: its inbox at the UDP port, and the requests of HTTP.
//!
//! In: datagrams, further offers, candidates, what is asked of a session that is a resource. Out:
//! those of [`WebRtcSession`], answers, and the news of one session for the others.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Context;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use super::progress::Hook;
use super::shared::{Registered, Reply, Request, Shared, Silent, refusal};
use crate::io::session::{Carrier, Closed, SessionTask};
use crate::io::tasks;
use crate::io::udp::{Datagram, Inbox};
use crate::limits::WAITING_OFFERS_MAX;
use crate::proto::counts::Count;
use crate::proto::session::Session as _;
use crate::proto::webrtc::connection::{NegotiationError, Transmit, ValidatedPath};
use crate::proto::webrtc::offer::{AnswerBody, OfferError};
use crate::proto::webrtc::packet_router::RemotePath;
use crate::proto::webrtc::session::{CompetingSession, ProbeOutcome, WebRtcCommand, WebRtcSession};
use crate::proto::webrtc::whip::resource::{ResourcePatch, WhipResource};
use crate::proto::webrtc::whip::{ResourceRequest, ResourceResponse, WhipError};

/// What carries one session.
pub struct WebRtcCarrier {
    pub inbox: Inbox,
    pub requests: mpsc::Receiver<Request>,
    pub shared: Arc<Shared>,
    pub registered: Registered,
    /// What is remembered of a session that came by one POST.
    pub resource: Option<WhipResource>,
    /// Whom a call's session tells how far it has come.
    pub call: Option<Hook>,
    /// Where what the bot says is sent to.
    pub used: Option<Used>,
    /// Who waits to hear whether the caller is there.
    pub inquirers: Vec<oneshot::Sender<Silent>>,
}

/// The way of media to the caller.
#[derive(Clone, Copy)]
pub struct Used {
    path: RemotePath,
    local: SocketAddr,
    peer: SocketAddr,
}

/// What has come.
pub enum Input {
    Datagram(Datagram),
    Request(Request),
}

impl Carrier for WebRtcCarrier {
    type Session = WebRtcSession;
    type Input = Input;

    async fn recv(&mut self) -> Input {
        // In no order: a peer that floods its inbox must not keep requests waiting.
        tokio::select! {
            datagram = self.inbox.recv() => Input::Datagram(datagram),
            Some(request) = self.requests.recv() => Input::Request(request),
        }
    }

    fn deliver(&mut self, input: Input, session: &mut WebRtcSession, task: &mut SessionTask) {
        match input {
            Input::Datagram(datagram) => {
                task.counts.add(Count::PacketsIn, 1);
                task.counts.add(Count::BytesIn, datagram.contents.len() as u64);
                session.handle_packet(&datagram.packet(), datagram.arrived);
            }
            Input::Request(request) => self.handle_request(request, session),
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
            WebRtcCommand::Proven(proven) => self.prove(&proven),
            WebRtcCommand::Found(found) => {
                let silent = Silent {
                    heard: session.last_heard(),
                    ticket: task.permit.ticket(),
                };
                for inquirer in self.inquirers.drain(..).filter(|_| found == ProbeOutcome::Silent) {
                    // It may have given up.
                    let _ = inquirer.send(silent);
                }
            }
            WebRtcCommand::Announce(rival) => self.shared.tell_others(self.inbox.number(), rival),
            WebRtcCommand::Progress(progress) => {
                if let Some(call) = &self.call {
                    call.handle_progress(progress, &task.sessions);
                }
            }
        }
    }

    fn close(self, _session: &WebRtcSession, _host: &SessionTask) -> Closed {
        // Nobody can reach the session any more, and who just tried is told so.
        Closed::default()
    }
}

impl WebRtcCarrier {
    fn transmit(&mut self, mut transmit: Transmit, task: &mut SessionTask) {
        task.counts.add(Count::PacketsOut, 1);
        let (over, source, destination) = (transmit.over, transmit.source, transmit.destination);
        let path = self.inbox.port().path(over, source, destination);
        if transmit.is_check() || transmit.is_answer() {
            self.inbox.expect(path);
        } else {
            self.used = Some(Used {
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
            self.shared.tell(other, CompetingSession::AtAddress);
        }
    }

    fn handle_request(&mut self, request: Request, session: &mut WebRtcSession) {
        let now = tasks::now();
        match request {
            Request::Renegotiate { offer, reply } => {
                let answer = session.renegotiate(&offer);
                self.rename(session);
                self.answer(answer, reply, session);
            }
            Request::Restart {
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
            Request::Candidates(lines) => {
                for line in &lines {
                    session.add_remote_candidate(line);
                }
            }
            Request::Resource(asked, reply) => {
                let done = self.serve(asked, session, now);
                // A restart has given this end another name.
                self.rename(session);
                // The client may have gone away meanwhile.
                let _ = reply.send(done);
            }
            Request::Open => session.open(now),
            Request::End(reason) => session.handle_end(reason, now),
            Request::Rival(rival) => session.handle_rival(rival, now),
            Request::Inquire(inquirer) => {
                self.inquirers.retain(|other| !other.is_closed());
                if self.inquirers.len() < WAITING_OFFERS_MAX {
                    self.inquirers.push(inquirer);
                    session.handle_inquiry(now);
                }
            }
        }
    }

    /// Does what is asked of the session as a resource.
    fn serve(
        &mut self,
        asked: ResourceRequest,
        session: &mut WebRtcSession,
        now: Instant,
    ) -> Result<ResourceResponse, WhipError> {
        let Some(resource) = self.resource.as_mut().filter(|_| !session.is_ending()) else {
            return Err(WhipError::Offer(OfferError::UnknownConnection));
        };
        match asked {
            ResourceRequest::Look => Ok(ResourceResponse::Nothing),
            ResourceRequest::Leave => {
                self.resource = None;
                session.handle_leave(now);
                Ok(ResourceResponse::Nothing)
            }
            ResourceRequest::Patch { if_match, body } => match resource.patch(if_match.as_deref(), &body)? {
                ResourcePatch::Trickle(candidates) => {
                    for line in &candidates {
                        session.add_remote_candidate(line);
                    }
                    Ok(ResourceResponse::Nothing)
                }
                ResourcePatch::Restart(restart) => {
                    let answer = session.renegotiate(&restart.offer).map_err(refusal)?;
                    log::info!("ICE restarted by the client");
                    let used = self.used.map(|used| (used.local, used.peer));
                    Ok(resource.handle_restart(restart, &answer, used))
                }
            },
        }
    }

    /// Listens under the name that this end has now; the caller sends on the old path until it has
    /// another.
    fn rename(&mut self, session: &mut WebRtcSession) {
        let used = self.used.map(|used| used.path);
        self.inbox.rename(session.local_ufrag(), used);
    }

    /// Listens for what the answer announces, then lets the answer go.
    fn answer(&mut self, answer: Result<String, NegotiationError>, reply: Reply, session: &mut WebRtcSession) {
        let answer = answer.map_err(refusal).map(|sdp| AnswerBody {
            sdp,
            pc_id: self.registered.pc_id().to_owned(),
        });
        self.inbox.listen(session.local_ufrag());
        // The client may have gone away meanwhile.
        let _ = reply.send(answer);
    }
}
