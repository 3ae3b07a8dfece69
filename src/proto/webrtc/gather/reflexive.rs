//! Server-reflexive addresses: STUN binding requests from the runner's UDP port.
//!
//! In: the servers, their resolved addresses, received datagrams, and `now`. Out, through
//! [`ReflexiveGatherer::poll_output`]: names to resolve, requests to send, addresses to ignore
//! again, and changes. Each server has one binding per address family. A binding is kept alive,
//! replaced when the server reports another address, and dropped after two unanswered requests in a
//! row. A failing server is resolved and queried again after a growing delay. A datagram counts
//! only if its 96-bit transaction id matches a pending request. Sources: RFC 8489, RFC 8445 section
//! 5.1.1.2.

use std::net::SocketAddr;
use std::time::Instant;

use turn_client_proto::stun::types::attribute::{ErrorCode, XorMappedAddress};
use turn_client_proto::types::stun::message::{BINDING, Message, MessageClass, MessageWriteVec};
use turn_client_proto::types::stun::prelude::{MessageWrite, MessageWriteExt};

use crate::limits::{STUN_KEEP_ALIVE, STUN_UNANSWERED_MAX};
use crate::webrtc::gather::stun_request::{StunRequest, StunRequestStep};
use crate::webrtc::gather::{RetryDelays, ServerState, describe_error_code};

/// An output of the gatherer.
#[derive(Debug, PartialEq, Eq)]
pub enum ReflexiveOutput {
    /// Resolve this server, and pass the result to [`ReflexiveGatherer::handle_resolved`].
    Resolve(usize),
    /// Send this request from the runner's port, and accept answers from the address.
    Send(SocketAddr, Vec<u8>),
    /// No more answers are expected from the address.
    Forget(SocketAddr),
    /// The server's state or address changed.
    Changed(usize),
    /// Nothing more to do until this time.
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
    /// Host and port, for messages.
    authority: String,
    resolving: bool,
    /// When to resolve the name.
    resolve_at: Option<Instant>,
    bindings: Vec<StunBinding>,
    retry_delays: RetryDelays,
    state: ServerState,
}

/// The binding at one address of a server.
#[derive(Debug)]
struct StunBinding {
    server: SocketAddr,
    request: Option<StunRequest>,
    /// When to send the next request.
    next_at: Instant,
    unanswered: u32,
    pauses: RetryDelays,
    /// The reflexive address, and the local address that received the answer.
    mapping: Option<(SocketAddr, SocketAddr)>,
    /// Why there is no mapping; `None` while the first request is pending.
    failure: Option<String>,
}

impl ReflexiveGatherer {
    /// Creates the gatherer. `authorities` are the host and port of each server, for messages.
    pub fn new(authorities: impl IntoIterator<Item = String>, now: Instant) -> Self {
        let asked = |authority| StunServer {
            authority,
            resolving: false,
            resolve_at: Some(now),
            bindings: Vec::new(),
            retry_delays: RetryDelays::new(),
            state: ServerState::Trying,
        };
        ReflexiveGatherer {
            servers: authorities.into_iter().map(asked).collect(),
            outputs: Vec::new(),
        }
    }

    /// Returns the state of a server.
    pub fn state(&self, server: usize) -> &ServerState {
        &self.servers[server].state
    }

    /// Returns the reflexive addresses from a server, each with its local address.
    pub fn mappings(&self, server: usize) -> impl Iterator<Item = (SocketAddr, SocketAddr)> + '_ {
        self.servers[server].bindings.iter().filter_map(|line| line.mapping)
    }

    /// Handles the addresses of a server, in the families that the runner has, or the reason why
    /// there are none.
    pub fn handle_resolved(&mut self, server: usize, found: Result<Vec<SocketAddr>, String>, now: Instant) {
        let asked = &mut self.servers[server];
        asked.resolving = false;
        let found = match found {
            Ok(found) => found,
            Err(why) => return self.fail(server, why, now),
        };
        let first = |v4: bool| found.iter().copied().find(|address| address.is_ipv4() == v4);
        asked.bindings = [first(true), first(false)]
            .into_iter()
            .flatten()
            .map(|server| StunBinding {
                server,
                request: None,
                next_at: now,
                unanswered: 0,
                pauses: RetryDelays::new(),
                mapping: None,
                failure: None,
            })
            .collect();
        if asked.bindings.is_empty() {
            let why = format!("{} has no address of a family that this runner has", asked.authority);
            self.fail(server, why, now);
        }
    }

    /// Handles a datagram received at the local address `destination`.
    pub fn handle_datagram(&mut self, source: SocketAddr, destination: SocketAddr, contents: &[u8], now: Instant) {
        let Ok(message) = Message::from_bytes(contents) else {
            return;
        };
        let id = message.transaction_id();
        for (server, asked) in self.servers.iter_mut().enumerate() {
            let line = asked
                .bindings
                .iter_mut()
                .find(|line| line.server == source && line.request.as_ref().is_some_and(|round| round.id() == id));
            let Some(line) = line else { continue };
            let answer = parse_response(&message);
            let Some(answer) = answer else { return };
            line.request = None;
            match answer {
                Ok(public) => {
                    line.next_at = now + STUN_KEEP_ALIVE;
                    line.unanswered = 0;
                    line.failure = None;
                    line.pauses.reset();
                    asked.retry_delays.reset();
                    let mapped = Some((public, destination));
                    if line.mapping != mapped || asked.state != ServerState::Working {
                        line.mapping = mapped;
                        asked.state = ServerState::Working;
                        self.outputs.push(ReflexiveOutput::Changed(server));
                    }
                }
                Err(why) => {
                    line.fail(format!("{} refuses: {why}", asked.authority), now);
                    self.update_server(server, now);
                }
            }
            return;
        }
    }

    /// Returns the next output; [`ReflexiveOutput::Timeout`] comes last.
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
            for line in &mut asked.bindings {
                if line.request.is_none() && line.next_at <= now {
                    line.request = Some(binding_request(now));
                }
                let Some(round) = &mut line.request else {
                    next = next.min(line.next_at);
                    continue;
                };
                match round.poll(now) {
                    StunRequestStep::Send => return ReflexiveOutput::Send(line.server, round.message().to_vec()),
                    StunRequestStep::Wait(at) => next = next.min(at),
                    StunRequestStep::GivenUp => {
                        line.handle_timeout(&asked.authority, now);
                        lost = true;
                    }
                }
            }
            if lost {
                self.update_server(server, now);
                return self.poll_output(now);
            }
        }
        ReflexiveOutput::Timeout(next)
    }

    /// Updates a server after one of its bindings failed. It fails when none is left.
    fn update_server(&mut self, server: usize, now: Instant) {
        let asked = &mut self.servers[server];
        if asked.bindings.iter().any(|line| line.mapping.is_some()) {
            self.outputs.push(ReflexiveOutput::Changed(server));
            return;
        }
        if asked.bindings.iter().any(|line| line.failure.is_none()) {
            return;
        }
        let why = asked
            .bindings
            .first()
            .and_then(|line| line.failure.clone())
            .unwrap_or_default();
        self.fail(server, why, now);
    }

    fn fail(&mut self, server: usize, why: String, now: Instant) {
        let asked = &mut self.servers[server];
        for line in asked.bindings.drain(..) {
            self.outputs.push(ReflexiveOutput::Forget(line.server));
        }
        asked.resolve_at = Some(now + asked.retry_delays.next_delay());
        asked.state = ServerState::Failed(why);
        self.outputs.push(ReflexiveOutput::Changed(server));
    }
}

impl StunBinding {
    /// Handles an unanswered request.
    fn handle_timeout(&mut self, authority: &str, now: Instant) {
        self.unanswered += 1;
        self.request = None;
        if self.mapping.is_some() && self.unanswered < STUN_UNANSWERED_MAX {
            self.next_at = now;
            return;
        }
        self.fail(format!("no answer from {authority} over UDP"), now);
    }

    fn fail(&mut self, why: String, now: Instant) {
        self.mapping = None;
        self.failure = Some(why);
        self.next_at = now + self.pauses.next_delay();
    }
}

fn binding_request(now: Instant) -> StunRequest {
    let message = Message::builder_request(BINDING, MessageWriteVec::new());
    StunRequest::new(message.transaction_id(), message.finish(), false, now)
}

/// Parses a response: the address or an error. `None` if the message is not a response.
fn parse_response(message: &Message<'_>) -> Option<Result<SocketAddr, String>> {
    match message.class() {
        MessageClass::Success => {
            let mapped = message.attribute::<XorMappedAddress>().ok()?;
            let mapped = mapped.addr(message.transaction_id());
            let usable = !mapped.ip().is_unspecified() && mapped.port() != 0;
            usable.then_some(Ok(mapped))
        }
        MessageClass::Error => {
            let error = message.attribute::<ErrorCode>().ok()?;
            Some(Err(describe_error_code(error.code(), error.reason())))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
