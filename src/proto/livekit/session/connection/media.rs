//! One of the two peer connections of a room, its ICE restarts, and its paths to the server.
//!
//! A connection is *silent* while nothing arrives on it. It then takes no speech, but an ICE
//! restart or a packet revives it. Source: `docs/spec/livekit.md` 4.1 and 4.2.

use std::time::{Duration, Instant};

use super::{RoomConnection, RoomOutput};
use crate::limits::{CONNECT_WITHIN, ROOM_MEDIA_LOST_AFTER, ROOM_PROBE_INTERVAL, ROOM_PROBE_WITHIN};
use crate::livekit::session::disconnect::DisconnectCause;
use crate::livekit::session::server_paths::{PathChange, PathEvent, PathId, PathStep, ServerPaths};
use crate::livekit::signal::ServerOffers;
use crate::livekit::wire::SignalTarget;
use crate::webrtc::connection::{PacketTrust, PeerConnection, ReceivedPacket};

/// Time for the media after an ICE restart. A server that has announced TCP alone accepts UDP again
/// 5 to 12 s after an attempt.
const ROOM_RESTART_WITHIN: Duration = Duration::from_secs(10);

const TARGETS: [SignalTarget; 2] = [SignalTarget::Publisher, SignalTarget::Subscriber];

/// The progress of an ICE restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RestartProgress {
    None,
    /// The server has not sent its description.
    Awaited,
    /// The server has not answered a check.
    Checking,
}

/// One of the two peer connections.
pub(super) struct PeerTransport {
    pub peer: PeerConnection,
    /// When it has to be up, at first and after each ICE restart; `None` while it is.
    pub until: Option<Instant>,
    pub restart: RestartProgress,
    /// The server has closed it, or it has failed for good.
    pub is_closed: bool,
    /// Nothing arrives.
    is_silent: bool,
    pub paths: ServerPaths,
}

impl PeerTransport {
    pub fn new(peer: PeerConnection, paths: ServerPaths, now: Instant) -> Self {
        PeerTransport {
            peer,
            until: Some(now + CONNECT_WITHIN),
            restart: RestartProgress::None,
            is_closed: false,
            is_silent: false,
            paths,
        }
    }

    /// Handles a description of the server with new ICE credentials.
    pub fn handle_restarted(&mut self, now: Instant) {
        self.restart = RestartProgress::Checking;
        self.until = Some(now + ROOM_RESTART_WITHIN);
        for local in self.paths.restart(now) {
            self.peer.remove_tcp_path(local);
        }
    }

    /// Handles the end of the handshake.
    pub fn handle_connected(&mut self, now: Instant) {
        self.paths.handle_up(now);
        if self.restart == RestartProgress::None {
            self.until = None;
        }
    }

    /// Handles an answer of the server to a check. Returns whether an ICE restart has succeeded.
    pub fn handle_validated(&mut self, now: Instant) -> bool {
        let is_restarted = self.restart == RestartProgress::Checking;
        if is_restarted {
            self.restart = RestartProgress::None;
            self.until = None;
            self.paths.handle_up(now);
        }
        is_restarted
    }

    /// Returns whether media arrives.
    pub fn is_receiving(&self, now: Instant) -> bool {
        !self.is_silent && now < self.peer.last_received_at() + ROOM_MEDIA_LOST_AFTER
    }

    /// Returns what was tried, for the operator.
    pub fn explain(&self) -> String {
        self.paths.explain()
    }
}

impl RoomConnection {
    pub fn handle_packet(&mut self, target: SignalTarget, packet: &ReceivedPacket<'_>, now: Instant) {
        let Some(transport) = self.transport(target) else {
            return;
        };
        let is_accepted = transport.peer.handle_packet(packet, now) != PacketTrust::Rejected;
        if is_accepted && std::mem::replace(&mut transport.is_silent, false) && !self.is_silent() {
            self.queue.push_back(RoomOutput::MediaBack);
        }
    }

    /// Handles an event of a path that this connection opened.
    pub fn handle_path(&mut self, id: PathId, event: PathEvent, now: Instant) {
        let target = TARGETS[(id.number & 1) as usize];
        if id.connection != self.seed {
            return;
        }
        self.needs_timeout = true;
        let Some(transport) = self.transport(target) else {
            return;
        };
        let carried_media = match transport.paths.handle_event(id, event) {
            PathChange::None => return,
            PathChange::AddTcp { local, remote } => {
                transport.peer.add_tcp_path(local, remote);
                return;
            }
            PathChange::AddRelayed { relayed, local } => {
                let lines = relayed
                    .iter()
                    .filter_map(|address| transport.peer.add_relayed(*address, local));
                for line in lines.collect::<Vec<_>>() {
                    self.signal.trickle(target, &line);
                }
                return;
            }
            PathChange::RemoveTcp { local, carried_media } => {
                transport.peer.remove_tcp_path(local);
                carried_media
            }
            PathChange::RemoveRelayed {
                relayed,
                local,
                carried_media,
            } => {
                relayed
                    .iter()
                    .for_each(|address| transport.peer.remove_relayed(*address, local));
                carried_media
            }
        };
        if carried_media && transport.restart == RestartProgress::None {
            self.handle_silent(target, now);
        }
    }

    /// Handles a connection on which nothing arrives.
    pub(super) fn handle_silent(&mut self, target: SignalTarget, now: Instant) {
        let was_silent = self.is_silent();
        let Some(transport) = self.transport(target) else {
            return;
        };
        transport.is_silent = true;
        let tried = transport.explain();
        let is_restarting = transport.restart != RestartProgress::None;
        if !was_silent {
            self.queue.push_back(RoomOutput::MediaLost);
        }
        if self.suspended_at.is_none() && !is_restarting {
            log::debug!("{target:?} connection: nothing arrives, after {:?}", now - self.began);
            self.end(DisconnectCause::NoMedia { target, tried });
        }
    }

    /// Returns whether nothing arrives on one of the connections.
    pub(super) fn is_silent(&self) -> bool {
        [&self.publisher, &self.subscriber]
            .into_iter()
            .flatten()
            .any(|transport| transport.is_silent)
    }

    /// Returns whether media arrives, as far as is known.
    pub fn has_media(&self) -> bool {
        self.is_up && !self.is_silent()
    }

    /// Returns whether the connection can be resumed on a new WebSocket.
    pub fn can_resume(&self) -> bool {
        let is_usable = |transport: &PeerTransport| !transport.is_closed && transport.peer.is_alive();
        self.is_up
            && self.signal.can_resume()
            && self.publisher.as_ref().is_some_and(is_usable)
            && self.subscriber.as_ref().is_none_or(is_usable)
    }

    /// Returns the participant's sid, which a resume names.
    pub fn sid(&self) -> &str {
        &self.sid
    }

    /// Continues without signalling, after the connection has ended. Media goes on.
    pub fn suspend(&mut self, now: Instant) {
        self.signal.suspend();
        self.is_over = false;
        self.is_socket_closed = true;
        self.is_restoring = false;
        self.pending_offer = None;
        if self.suspended_at.is_none() {
            self.suspended_at = Some(now);
            self.next_probe = now;
        }
        self.queue.retain(|output| !matches!(output, RoomOutput::Send(_)));
        for target in TARGETS {
            if let Some(transport) = self.transport(target) {
                (transport.until, transport.restart) = (None, RestartProgress::None);
            }
        }
    }

    /// Continues on a new WebSocket.
    pub fn resume(&mut self, now: Instant) {
        self.is_socket_closed = false;
        self.signal.resume(now);
    }

    /// Handles the server's consent to a resume: restarts ICE on both connections.
    pub(super) fn handle_resumed(&mut self, offers: &ServerOffers, now: Instant) {
        self.suspended_at = None;
        self.is_restoring = true;
        self.offers = offers.clone();
        for target in TARGETS {
            let local = self.host_addresses(target);
            if let Some(transport) = self.transport(target) {
                transport.paths.set_offers(offers);
                if transport.paths.is_relay_forced() {
                    transport.peer.remove_host_candidates(&local);
                }
                transport.restart = RestartProgress::Awaited;
                transport.until = Some(now + ROOM_RESTART_WITHIN);
            }
        }
        let Some(publisher) = &mut self.publisher else { return };
        match publisher.peer.restart_ice() {
            Ok((offer, ufrag)) => {
                let used = publisher.peer.validated_address();
                self.queue
                    .push_back(RoomOutput::Listen(SignalTarget::Publisher, ufrag, used));
                self.signal.offer(offer);
            }
            Err(error) => {
                log::debug!("no ICE restart: {error}");
                self.end(DisconnectCause::NotResumed);
            }
        }
    }

    /// Reports the end of a resume once both connections are up again.
    pub(super) fn check_restored(&mut self) {
        let is_done = [&self.publisher, &self.subscriber]
            .into_iter()
            .flatten()
            .all(|transport| transport.restart == RestartProgress::None);
        if is_done && std::mem::replace(&mut self.is_restoring, false) {
            self.queue.push_back(RoomOutput::Restored);
        }
    }

    /// Checks the media while there is no signalling, which may mean that the server is gone.
    pub(super) fn probe_media(&mut self, now: Instant) {
        let Some(since) = self.suspended_at else { return };
        if now >= self.next_probe {
            self.next_probe = now + ROOM_PROBE_INTERVAL;
            for target in TARGETS {
                if let Some(transport) = self.transport(target) {
                    transport.peer.send_check();
                }
            }
        }
        for target in TARGETS {
            let is_silent = self.transport(target).is_some_and(|transport| {
                !transport.is_silent && now >= transport.peer.last_received_at().max(since) + ROOM_PROBE_WITHIN
            });
            if is_silent {
                self.handle_silent(target, now);
            }
        }
    }

    /// Returns when [`RoomConnection::probe_media`] is due.
    pub(super) fn probe_deadline(&self) -> Option<Instant> {
        self.suspended_at.map(|_| self.next_probe)
    }

    /// Queues what the paths of a connection need.
    pub(super) fn poll_paths(&mut self, target: SignalTarget, now: Instant) -> Option<Instant> {
        let mut steps = Vec::new();
        let transport = self.transport(target)?;
        if transport.peer.has_udp_candidate() {
            transport.paths.handle_udp_candidate();
        }
        while let Some(step) = transport.paths.poll(now) {
            steps.push(step);
        }
        let next = transport.paths.poll_timeout();
        for step in steps {
            self.queue.push_back(match step {
                PathStep::Open(id, request) => RoomOutput::OpenPath(target, id, request),
                PathStep::Close(id) => RoomOutput::ClosePath(id),
            });
        }
        next
    }
}
