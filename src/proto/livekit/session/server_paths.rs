//! The paths on which one peer connection may reach the server: UDP, TCP, TURN, in this order.
//!
//! In: the server's TCP candidates and TURN servers, what became of each path that was opened, and
//! `now`. Out, by [`ServerPaths::poll`]: paths to open and to close. UDP costs nothing and is tried
//! at once by ICE itself. A path of the next kind is opened when the ones before have had their
//! time; with `force_relay` only relays are. Once the connection is up nothing more is opened, and
//! soon what carries no media is closed. A TCP connection belongs to one ICE session, a relay
//! survives ICE restarts. Source: `docs/spec/livekit.md` 4.2.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::limits::{
    ROOM_PATHS_MAX, ROOM_PATHS_SETTLED, ROOM_RELAY_AFTER, ROOM_RELAYS_MAX, ROOM_TCP_AFTER, ROOM_TCP_ALONE_AFTER,
    ROOM_TCP_CANDIDATES_MAX,
};
use crate::livekit::signal::ServerOffers;
use crate::sorting;
use crate::webrtc::connection::{IceProtocol, PacketPath};
use crate::webrtc::gather::server::{GatherServer, ServerUse, TurnTransport};

/// Time that a TURN server has before the next one is asked too.
const ROOM_RELAY_INTERVAL: Duration = Duration::from_secs(1);
/// Failed paths that an error names.
const ROOM_PATH_FAILURES_MAX: usize = 6;

/// The id of a path, unique among the connections of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathId {
    /// Random bits of the connection to the room.
    pub connection: u64,
    pub number: u32,
}

/// A path to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathRequest {
    /// A TCP connection to the server, with RFC 4571 framing.
    Tcp(SocketAddr),
    /// An allocation at a TURN server.
    Relay(GatherServer),
}

/// What became of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathEvent {
    /// The TCP connection is open.
    Connected { local: SocketAddr },
    /// The allocation exists. `local` is this end's address towards the TURN server.
    Allocated {
        relayed: Vec<SocketAddr>,
        local: SocketAddr,
    },
    /// The path could not be opened, or has ended: the reason, without addresses and credentials.
    Ended(String),
}

/// An output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PathStep {
    Open(PathId, PathRequest),
    Close(PathId),
}

/// The state of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PathState {
    Opening,
    Connected {
        local: SocketAddr,
    },
    Allocated {
        relayed: Vec<SocketAddr>,
        local: SocketAddr,
    },
}

struct ServerPath {
    id: PathId,
    request: PathRequest,
    state: PathState,
    /// A TCP connection of an ICE session before a restart. It may still carry media.
    is_old: bool,
}

/// What a connection has to do after an event of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PathChange {
    None,
    AddTcp {
        local: SocketAddr,
        remote: SocketAddr,
    },
    RemoveTcp {
        local: SocketAddr,
        carried_media: bool,
    },
    AddRelayed {
        relayed: Vec<SocketAddr>,
        local: SocketAddr,
    },
    RemoveRelayed {
        relayed: Vec<SocketAddr>,
        local: SocketAddr,
        carried_media: bool,
    },
}

/// The paths of one peer connection.
pub(super) struct ServerPaths {
    /// Random bits of the connection to the room.
    connection: u64,
    next_number: u32,
    /// When the server was told how to reach this end in this ICE session; `None` before.
    began: Option<Instant>,
    /// When the connection came up in this ICE session.
    up_since: Option<Instant>,
    /// When the paths without media are closed.
    settles_at: Option<Instant>,
    force_relay: bool,
    /// TCP candidates to which no connection was opened yet.
    tcp_candidates: VecDeque<SocketAddr>,
    had_tcp_candidate: bool,
    has_udp_candidate: bool,
    /// The TURN servers of the last join or resume, in the order of the tries.
    offered: Vec<GatherServer>,
    /// Those that were not tried yet in this ICE session.
    relays: VecDeque<GatherServer>,
    next_relay: Option<Instant>,
    paths: Vec<ServerPath>,
    steps: VecDeque<PathStep>,
    failures: Vec<String>,
    /// The path on which something else than a check was sent last.
    last_path: Option<PacketPath>,
    /// The same since the connection is up in this ICE session.
    media_path: Option<PacketPath>,
}

impl ServerPaths {
    /// Creates the paths of a connection. `first` is the number of its first path.
    pub fn new(connection: u64, first: u32, offers: &ServerOffers) -> Self {
        let mut paths = ServerPaths {
            connection,
            next_number: first,
            began: None,
            up_since: None,
            settles_at: None,
            force_relay: false,
            tcp_candidates: VecDeque::new(),
            had_tcp_candidate: false,
            has_udp_candidate: false,
            offered: Vec::new(),
            relays: VecDeque::new(),
            next_relay: None,
            paths: Vec::new(),
            steps: VecDeque::new(),
            failures: Vec::new(),
            last_path: None,
            media_path: None,
        };
        paths.set_offers(offers);
        paths
    }

    /// Replaces the TURN servers: credentials change with each resume.
    pub fn set_offers(&mut self, offers: &ServerOffers) {
        self.force_relay = offers.force_relay && !offers.relays.is_empty();
        let mut relays: Vec<GatherServer> = offers.relays.clone();
        // The sort is stable, so servers of one transport keep the order of the server.
        sorting::sort_by_key(&mut relays, |server| match server.usage {
            ServerUse::Turn {
                transport: TurnTransport::Udp,
                ..
            } => 0,
            ServerUse::Turn {
                transport: TurnTransport::Tcp,
                ..
            } => 1,
            _ => 2,
        });
        relays.truncate(ROOM_RELAYS_MAX);
        self.offered = relays;
    }

    /// Returns whether only relays are used.
    pub fn is_relay_forced(&self) -> bool {
        self.force_relay
    }

    /// Begins to try. Both descriptions are known from now on.
    pub fn begin(&mut self, now: Instant) {
        if self.began.is_none() {
            self.began = Some(now);
            self.next_relay = self.first_relay();
            let held: Vec<&str> = self.paths.iter().filter_map(ServerPath::relay_url).collect();
            let untried = self.offered.iter().filter(|server| !held.contains(&&*server.url));
            self.relays = untried.cloned().collect();
        }
    }

    /// Returns when the first relay is due.
    fn first_relay(&self) -> Option<Instant> {
        let after = match self.force_relay {
            true => Duration::ZERO,
            false => ROOM_RELAY_AFTER,
        };
        self.began.map(|began| began + after)
    }

    /// Begins a new ICE session. Returns the local addresses of TCP connections, which belong to
    /// the earlier one.
    pub fn restart(&mut self, now: Instant) -> Vec<SocketAddr> {
        let mut locals = Vec::new();
        let mut closed = Vec::new();
        self.paths.retain_mut(|path| {
            let is_kept = match (&path.state, &path.request) {
                (PathState::Connected { local }, _) if !path.is_old => {
                    locals.push(*local);
                    true
                }
                (PathState::Allocated { .. }, _) | (PathState::Opening, PathRequest::Relay(_)) => return true,
                _ => false,
            };
            path.is_old = true;
            if !is_kept {
                closed.push(path.id);
            }
            is_kept
        });
        self.steps.extend(closed.into_iter().map(PathStep::Close));
        self.tcp_candidates.clear();
        (self.had_tcp_candidate, self.has_udp_candidate) = (false, false);
        (self.began, self.up_since, self.settles_at) = (None, None, None);
        self.media_path = None;
        self.failures.clear();
        self.begin(now);
        locals
    }

    /// Handles a TCP candidate of the server.
    pub fn handle_tcp_candidate(&mut self, address: SocketAddr) {
        self.had_tcp_candidate = true;
        if self.tcp_candidates.len() < ROOM_TCP_CANDIDATES_MAX {
            self.tcp_candidates.push_back(address);
        }
    }

    /// Handles a UDP candidate of the server.
    pub fn handle_udp_candidate(&mut self) {
        self.has_udp_candidate = true;
    }

    /// Records on which path media is sent. While ICE restarts, the earlier one is still used.
    pub fn handle_media_sent(&mut self, path: PacketPath, now: Instant) {
        self.last_path = Some(path);
        if self.up_since.is_some() && self.media_path.replace(path) != Some(path) {
            self.settles_at = Some(now + ROOM_PATHS_SETTLED);
        }
    }

    /// Handles a connection that is up. Nothing more is opened in this ICE session.
    pub fn handle_up(&mut self, now: Instant) {
        self.up_since.get_or_insert(now);
    }

    /// Returns how the media travels, for the log.
    pub fn media_path_name(&self) -> &'static str {
        match self.last_path {
            Some(path) if path.over == IceProtocol::Tcp => "TCP",
            Some(path) if self.paths.iter().any(|known| known.is_relayed_at(path.source)) => "TURN",
            Some(_) => "UDP",
            None => "no path",
        }
    }

    /// Handles an event of a path.
    pub fn handle_event(&mut self, id: PathId, event: PathEvent) -> PathChange {
        let Some(at) = self.paths.iter().position(|path| path.id == id) else {
            return PathChange::None;
        };
        match event {
            PathEvent::Connected { local } => {
                let path = &mut self.paths[at];
                let PathRequest::Tcp(remote) = path.request else {
                    return PathChange::None;
                };
                path.state = PathState::Connected { local };
                PathChange::AddTcp { local, remote }
            }
            PathEvent::Allocated { relayed, local } => {
                self.paths[at].state = PathState::Allocated {
                    relayed: relayed.clone(),
                    local,
                };
                PathChange::AddRelayed { relayed, local }
            }
            PathEvent::Ended(why) => self.remove(at, &why),
        }
    }

    fn remove(&mut self, at: usize, why: &str) -> PathChange {
        let path = self.paths.remove(at);
        let carried_media = self.media_path.is_some_and(|used| path.carries(used)) && !path.is_old;
        log::debug!("{}: {why}", path.name());
        if !path.is_old && self.failures.len() < ROOM_PATH_FAILURES_MAX {
            self.failures.push(format!("{}: {why}", path.name()));
        }
        if path.is_relay() {
            // The next one need not wait any longer.
            self.next_relay = self.first_relay();
        }
        match path.state {
            PathState::Opening => PathChange::None,
            PathState::Connected { .. } if path.is_old => PathChange::None,
            PathState::Connected { local } => PathChange::RemoveTcp { local, carried_media },
            PathState::Allocated { relayed, local } => PathChange::RemoveRelayed {
                relayed,
                local,
                carried_media,
            },
        }
    }

    /// Returns the next path to open or to close.
    pub fn poll(&mut self, now: Instant) -> Option<PathStep> {
        if let Some(step) = self.steps.pop_front() {
            return Some(step);
        }
        if self.settle_deadline().is_some_and(|at| now >= at) {
            self.settle();
            return self.steps.pop_front();
        }
        if self.up_since.is_some() || self.paths.len() >= ROOM_PATHS_MAX {
            return None;
        }
        let request = if self.tcp_deadline().is_some_and(|at| now >= at) {
            PathRequest::Tcp(self.tcp_candidates.pop_front()?)
        } else if self.relay_deadline().is_some_and(|at| now >= at) {
            self.next_relay = Some(now + ROOM_RELAY_INTERVAL);
            PathRequest::Relay(self.relays.pop_front()?)
        } else {
            return None;
        };
        let id = PathId {
            connection: self.connection,
            number: self.next_number,
        };
        self.next_number = self.next_number.wrapping_add(2);
        self.paths.push(ServerPath {
            id,
            request: request.clone(),
            state: PathState::Opening,
            is_old: false,
        });
        Some(PathStep::Open(id, request))
    }

    /// Returns when [`ServerPaths::poll`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let opens = self.up_since.is_none() && self.paths.len() < ROOM_PATHS_MAX;
        let open = [self.tcp_deadline(), self.relay_deadline()].into_iter().flatten().min();
        [open.filter(|_| opens), self.settle_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    fn tcp_deadline(&self) -> Option<Instant> {
        let after = match self.has_udp_candidate {
            true => ROOM_TCP_AFTER,
            false => ROOM_TCP_ALONE_AFTER,
        };
        let is_due = !self.tcp_candidates.is_empty() && !self.force_relay;
        self.began.filter(|_| is_due).map(|began| began + after)
    }

    fn relay_deadline(&self) -> Option<Instant> {
        self.next_relay
            .filter(|_| !self.relays.is_empty() && self.began.is_some())
    }

    fn settle_deadline(&self) -> Option<Instant> {
        self.settles_at.filter(|_| !self.paths.is_empty())
    }

    /// Closes the paths that carry no media.
    fn settle(&mut self) {
        self.settles_at = None;
        let used = self.media_path;
        let steps = &mut self.steps;
        self.paths.retain(|path| {
            let is_used = used.is_some_and(|used| path.carries(used));
            if !is_used {
                steps.push_back(PathStep::Close(path.id));
            }
            is_used
        });
    }

    /// Explains to the operator what was tried in vain.
    pub fn explain(&self) -> String {
        let mut words = match (self.force_relay, self.has_udp_candidate) {
            (true, _) => "the server wants a relay".to_owned(),
            (false, true) => "no answer over UDP".to_owned(),
            (false, false) => "the server offers no UDP".to_owned(),
        };
        for failure in &self.failures {
            let _ = write!(words, "; {failure}");
        }
        for path in &self.paths {
            let state = match path.state {
                PathState::Opening => "not open yet",
                _ => "open, but no answer from the server",
            };
            let _ = write!(words, "; {}: {state}", path.name());
        }
        if !self.force_relay && !self.had_tcp_candidate {
            words.push_str("; the server offers no TCP");
        }
        if !self.paths.iter().any(ServerPath::is_relay) && !self.failures.iter().any(|each| each.starts_with("turn")) {
            words.push_str("; the server names no TURN server");
        }
        words
    }
}

impl ServerPath {
    fn is_relay(&self) -> bool {
        matches!(self.request, PathRequest::Relay(_))
    }

    fn relay_url(&self) -> Option<&str> {
        match &self.request {
            PathRequest::Relay(server) => Some(&server.url),
            PathRequest::Tcp(_) => None,
        }
    }

    fn is_relayed_at(&self, address: SocketAddr) -> bool {
        matches!(&self.state, PathState::Allocated { relayed, .. } if relayed.contains(&address))
    }

    /// Returns whether a packet takes this path.
    fn carries(&self, packet: PacketPath) -> bool {
        match &self.state {
            PathState::Opening => false,
            PathState::Connected { local } => packet.over == IceProtocol::Tcp && packet.source == *local,
            PathState::Allocated { relayed, .. } => packet.over == IceProtocol::Udp && relayed.contains(&packet.source),
        }
    }

    /// Returns a name without addresses. TURN servers are named by the server's URL, which has no
    /// credential.
    fn name(&self) -> String {
        match &self.request {
            PathRequest::Tcp(address) => format!("TCP port {}", address.port()),
            PathRequest::Relay(server) => server.url.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
