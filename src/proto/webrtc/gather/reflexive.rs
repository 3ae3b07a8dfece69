//! How NATs show the runner's UDP port to the world: STUN binding requests from that very port.
//!
//! In: the servers, their resolved addresses, datagrams of those addresses, and `now`. Out, by [`ReflexiveGatherer::poll_output`]:
//! names to look up, requests to send, addresses that answers are no longer expected from, and changes. Each server has one
//! line per address family. A mapping is kept alive, replaced when the server sees another, and dropped when two requests in
//! a row go without an answer. A server that fails is looked up and asked again after a pause that grows.
//! A datagram counts only if it answers a request that is under way, by its 96 random bits. Source: RFC 8489, RFC 8445
//! section 5.1.1.2.

use std::net::SocketAddr;
use std::time::Instant;

use turn_client_proto::stun::types::attribute::{ErrorCode, XorMappedAddress};
use turn_client_proto::types::stun::message::{BINDING, Message, MessageClass, MessageWriteVec};
use turn_client_proto::types::stun::prelude::{MessageWrite, MessageWriteExt};

use crate::limits::{STUN_KEEP_ALIVE, STUN_UNANSWERED_MAX};
use crate::webrtc::gather::stun_request::{StunRequest, StunRequestStep};
use crate::webrtc::gather::{RetryDelays, ServerState, refusal_words};

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum ReflexiveOutput {
    /// Look the addresses of this server up, and hand them to [`ReflexiveGatherer::handle_resolved`].
    Resolve(usize),
    /// Let answers from the address in, and send it a request from the runner's port.
    Send(SocketAddr, Vec<u8>),
    /// Nothing is expected from the address any more.
    Forget(SocketAddr),
    /// The server stands differently, or sees another address.
    Changed(usize),
    /// Nothing more; the next thing is due then.
    Timeout(Instant),
}

/// All STUN servers.
#[derive(Debug)]
pub struct ReflexiveGatherer {
    servers: Vec<StunServer>,
    outputs: Vec<ReflexiveOutput>,
}

/// One server.
#[derive(Debug)]
struct StunServer {
    /// Host and port for words.
    authority: String,
    resolving: bool,
    /// When its name is to be looked up.
    resolve_at: Option<Instant>,
    lines: Vec<StunBinding>,
    pauses: RetryDelays,
    standing: ServerState,
}

/// One address of a server.
#[derive(Debug)]
struct StunBinding {
    server: SocketAddr,
    round: Option<StunRequest>,
    /// When the next request begins.
    next: Instant,
    unanswered: u32,
    pauses: RetryDelays,
    /// The runner as the server sees it, and the local address that the answer came to.
    mapped: Option<(SocketAddr, SocketAddr)>,
    /// Why there is no mapping; `None` while the first request is under way.
    failed: Option<String>,
}

impl ReflexiveGatherer {
    /// `authorities` are host and port of each server, for words only.
    pub fn new(authorities: impl IntoIterator<Item = String>, now: Instant) -> Self {
        let asked = |authority| StunServer {
            authority,
            resolving: false,
            resolve_at: Some(now),
            lines: Vec::new(),
            pauses: RetryDelays::new(),
            standing: ServerState::Trying,
        };
        ReflexiveGatherer {
            servers: authorities.into_iter().map(asked).collect(),
            outputs: Vec::new(),
        }
    }

    /// Returns how a server stands.
    pub fn standing(&self, server: usize) -> &ServerState {
        &self.servers[server].standing
    }

    /// Returns the addresses that a server sees, each with its local one.
    pub fn mapped(&self, server: usize) -> impl Iterator<Item = (SocketAddr, SocketAddr)> + '_ {
        self.servers[server].lines.iter().filter_map(|line| line.mapped)
    }

    /// Takes the addresses of a server, of families that the runner has, or the reason why there are none.
    pub fn handle_resolved(&mut self, server: usize, found: Result<Vec<SocketAddr>, String>, now: Instant) {
        let asked = &mut self.servers[server];
        asked.resolving = false;
        let found = match found {
            Ok(found) => found,
            Err(why) => return self.fail(server, why, now),
        };
        let first = |v4: bool| found.iter().copied().find(|address| address.is_ipv4() == v4);
        asked.lines = [first(true), first(false)]
            .into_iter()
            .flatten()
            .map(|server| StunBinding {
                server,
                round: None,
                next: now,
                unanswered: 0,
                pauses: RetryDelays::new(),
                mapped: None,
                failed: None,
            })
            .collect();
        if asked.lines.is_empty() {
            let why = format!("{} has no address of a family that this runner has", asked.authority);
            self.fail(server, why, now);
        }
    }

    /// Takes a datagram that came to the local address `destination`.
    pub fn handle_datagram(&mut self, source: SocketAddr, destination: SocketAddr, contents: &[u8], now: Instant) {
        let Ok(message) = Message::from_bytes(contents) else {
            return;
        };
        let id = message.transaction_id();
        for (server, asked) in self.servers.iter_mut().enumerate() {
            let line = asked
                .lines
                .iter_mut()
                .find(|line| line.server == source && line.round.as_ref().is_some_and(|round| round.id() == id));
            let Some(line) = line else { continue };
            let answer = read(&message);
            let Some(answer) = answer else { return };
            line.round = None;
            match answer {
                Ok(public) => {
                    line.next = now + STUN_KEEP_ALIVE;
                    line.unanswered = 0;
                    line.failed = None;
                    line.pauses.reset();
                    asked.pauses.reset();
                    let mapped = Some((public, destination));
                    if line.mapped != mapped || asked.standing != ServerState::Works {
                        line.mapped = mapped;
                        asked.standing = ServerState::Works;
                        self.outputs.push(ReflexiveOutput::Changed(server));
                    }
                }
                Err(why) => {
                    line.fail(format!("{} refuses: {why}", asked.authority), now);
                    self.settle(server, now);
                }
            }
            return;
        }
    }

    /// Returns the next thing to do; [`ReflexiveOutput::Timeout`] comes last.
    pub fn poll_output(&mut self, now: Instant) -> ReflexiveOutput {
        if let Some(output) = self.outputs.pop() {
            return output;
        }
        let mut next = now + STUN_KEEP_ALIVE;
        for server in 0..self.servers.len() {
            let asked = &mut self.servers[server];
            match asked.resolve_at {
                Some(at) if at <= now && !asked.resolving => {
                    asked.resolve_at = None;
                    asked.resolving = true;
                    return ReflexiveOutput::Resolve(server);
                }
                Some(at) => next = next.min(at),
                None => {}
            }
            let mut lost = false;
            for line in &mut asked.lines {
                if line.round.is_none() && line.next <= now {
                    line.round = Some(request(now));
                }
                let Some(round) = &mut line.round else {
                    next = next.min(line.next);
                    continue;
                };
                match round.poll(now) {
                    StunRequestStep::Send => return ReflexiveOutput::Send(line.server, round.message().to_vec()),
                    StunRequestStep::Wait(at) => next = next.min(at),
                    StunRequestStep::Lost => {
                        line.lose(&asked.authority, now);
                        lost = true;
                    }
                }
            }
            if lost {
                self.settle(server, now);
                return self.poll_output(now);
            }
        }
        ReflexiveOutput::Timeout(next)
    }

    /// A line of the server has failed: if none is left, so has the server.
    fn settle(&mut self, server: usize, now: Instant) {
        let asked = &mut self.servers[server];
        if asked.lines.iter().any(|line| line.mapped.is_some()) {
            self.outputs.push(ReflexiveOutput::Changed(server));
            return;
        }
        if asked.lines.iter().any(|line| line.failed.is_none()) {
            return;
        }
        let why = asked
            .lines
            .first()
            .and_then(|line| line.failed.clone())
            .unwrap_or_default();
        self.fail(server, why, now);
    }

    fn fail(&mut self, server: usize, why: String, now: Instant) {
        let asked = &mut self.servers[server];
        for line in asked.lines.drain(..) {
            self.outputs.push(ReflexiveOutput::Forget(line.server));
        }
        asked.resolve_at = Some(now + asked.pauses.lengthen());
        asked.standing = ServerState::Failed(why);
        self.outputs.push(ReflexiveOutput::Changed(server));
    }
}

impl StunBinding {
    /// A request went without an answer.
    fn lose(&mut self, authority: &str, now: Instant) {
        self.unanswered += 1;
        self.round = None;
        if self.mapped.is_some() && self.unanswered < STUN_UNANSWERED_MAX {
            self.next = now;
            return;
        }
        self.fail(format!("no answer from {authority} over UDP"), now);
    }

    fn fail(&mut self, why: String, now: Instant) {
        self.mapped = None;
        self.failed = Some(why);
        self.next = now + self.pauses.lengthen();
    }
}

fn request(now: Instant) -> StunRequest {
    let message = Message::builder_request(BINDING, MessageWriteVec::new());
    StunRequest::new(message.transaction_id(), message.finish(), false, now)
}

/// Reads an answer: the address, or why there is none. `None` is no answer at all.
fn read(message: &Message<'_>) -> Option<Result<SocketAddr, String>> {
    match message.class() {
        MessageClass::Success => {
            let mapped = message.attribute::<XorMappedAddress>().ok()?;
            let mapped = mapped.addr(message.transaction_id());
            let usable = !mapped.ip().is_unspecified() && mapped.port() != 0;
            usable.then_some(Ok(mapped))
        }
        MessageClass::Error => {
            let error = message.attribute::<ErrorCode>().ok()?;
            Some(Err(refusal_words(error.code(), error.reason())))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
