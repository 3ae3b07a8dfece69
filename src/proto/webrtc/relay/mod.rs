//! One allocation at a TURN server, shared by all sessions of the runner.
//!
//! In: messages of the server, datagrams of sessions, `now`. Out, through
//! [`TurnAllocation::poll_output`]: messages to the server, the relayed addresses, and why the
//! allocation ended. turn-client-proto implements the protocol; this module adds the reasons of
//! errors, a frequent refresh (`KeepAlive`) that detects a lost allocation within half a minute,
//! and permissions that expire. The first datagram to a peer only requests a permission, and
//! datagrams follow once the peer was heard. So no candidate makes the relay send to a forbidden
//! address, for which coturn ends the allocation; a peer that the operator named is exempt. A peer
//! that sends checks loses nothing, since str0m checks back at once. The first datagram that is not
//! a check requests a channel. At most `RELAY_PEERS_MAX` peers are served. Source: RFC 8656.

mod keep_alive;
mod peers;
pub mod stream;

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sans_io_time::Instant as RelayInstant;
use turn_client_proto::api::{TurnClientApi, TurnConfig, TurnEvent, TurnPollRet, TurnRecvRet};
use turn_client_proto::client::TurnClient;
use turn_client_proto::stun::agent::Transmit;
use turn_client_proto::stun::types::attribute::ErrorCode;
use turn_client_proto::tcp::TurnClientTcp;
use turn_client_proto::types::message::{ALLOCATE, CHANNEL_BIND, CREATE_PERMISSION, REFRESH};
use turn_client_proto::types::prelude::DelayedTransmitBuild;
use turn_client_proto::types::stun::message::{Message, MessageClass, Method, TransactionId};
use turn_client_proto::types::{AddressFamily, TransportType, TurnCredentials};
use turn_client_proto::udp::TurnClientUdp;

use crate::limits::{STUN_LAST_WAIT, STUN_RETRANSMIT, STUN_TRANSMISSIONS};
use crate::webrtc::gather::describe_error_code;
use keep_alive::KeepAlive;
use peers::RelayPeers;

/// Requests to a relay whose responses are checked for errors; the oldest are dropped first.
const RELAY_REQUESTS_MAX: usize = 64;

/// The most polls of the client library in a row; it has at most one step per request.
const CLIENT_POLLS_MAX: usize = 32;
/// The shortest wait between polls. The library spaces its requests by 50 ms, and shorter waits
/// could become a busy loop.
const CLIENT_POLL_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// An output of the allocation.
#[derive(Debug, PartialEq, Eq)]
pub enum RelayOutput {
    /// Send this to the server.
    Transmit(Vec<u8>),
    /// The allocation exists, and these addresses may be offered.
    Up(Vec<SocketAddr>),
    /// The allocation ended or failed. No output follows.
    Ended(AllocationEnd),
    /// Nothing to do until [`TurnAllocation::handle_timeout`] at this time.
    Timeout(Instant),
}

/// Why an allocation ended or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllocationEnd {
    /// The server answered with this error.
    Refused {
        code: u16,
        words: String,
    },
    NoAnswer,
    /// The server no longer knows the allocation, for example after a restart.
    Forgotten,
    /// The allocation has no usable address.
    NoAddress,
    /// The allocation was released.
    Released,
}

impl fmt::Display for AllocationEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllocationEnd::Refused { words, .. } => f.write_str(words),
            AllocationEnd::NoAnswer => f.write_str("no answer"),
            AllocationEnd::Forgotten => f.write_str("the server has forgotten the allocation; was it started again?"),
            AllocationEnd::NoAddress => f.write_str("the server gave no usable address; is its external address set?"),
            AllocationEnd::Released => f.write_str("the allocation was given back"),
        }
    }
}

/// How the server is reached, and with which credentials.
pub struct AllocationSetup<'a> {
    pub local: SocketAddr,
    pub server: SocketAddr,
    /// Over TCP or TLS instead of UDP.
    pub over_stream: bool,
    pub username: &'a str,
    pub credential: &'a str,
    /// Datagrams go to peers that were never heard. Otherwise, no candidate makes the relay send to
    /// a forbidden address.
    pub sends_first: bool,
}

/// One allocation.
pub struct TurnAllocation {
    client: TurnClient,
    credentials: TurnCredentials,
    over_stream: bool,
    sends_first: bool,
    local: SocketAddr,
    server: SocketAddr,
    /// Both address families were requested. A server that rejects this is asked for IPv4 alone.
    both_families: bool,
    /// The zero of the client library's clock.
    clock_epoch: Instant,
    /// The requests that await a response.
    pending_requests: VecDeque<(TransactionId, Method)>,
    /// How often an Allocate request was unauthorized. The first time is the challenge.
    unauthorized_count: u32,
    relayed: Vec<SocketAddr>,
    keep_alive: KeepAlive,
    peers: RelayPeers,
    outputs: VecDeque<RelayOutput>,
    timeout: Instant,
    send_buffer: Vec<u8>,
    is_closing: bool,
    has_ended: bool,
}

impl TurnAllocation {
    /// Starts an allocation. Over IPv6 it requests both families, since the runner may have no
    /// IPv4.
    pub fn new(setup: &AllocationSetup<'_>, now: Instant) -> Self {
        let credentials = TurnCredentials::new(setup.username, setup.credential);
        let both_families = setup.server.is_ipv6();
        let mut relay = TurnAllocation {
            client: new_client(
                setup.local,
                setup.server,
                setup.over_stream,
                &credentials,
                both_families,
            ),
            keep_alive: KeepAlive::new(&credentials, setup.over_stream),
            credentials,
            over_stream: setup.over_stream,
            sends_first: setup.sends_first,
            local: setup.local,
            server: setup.server,
            both_families,
            clock_epoch: now,
            pending_requests: VecDeque::new(),
            unauthorized_count: 0,
            relayed: Vec::new(),
            peers: RelayPeers::default(),
            outputs: VecDeque::new(),
            timeout: now,
            send_buffer: Vec::new(),
            is_closing: false,
            has_ended: false,
        };
        relay.drive_client(now);
        relay
    }

    /// Handles a message of the server. Data of peers is passed to `deliver`.
    pub fn handle_message(&mut self, message: &[u8], now: Instant, mut deliver: impl FnMut(SocketAddr, &[u8])) {
        if self.has_ended {
            return;
        }
        // The upper class bit marks a response, RFC 8489 section 5; other messages carry peers'
        // data.
        let is_response = message.first().is_some_and(|first| *first < 4 && first & 1 == 1);
        if is_response
            && let Ok(parsed) = Message::from_bytes(message)
            && self.handle_response(&parsed, now)
        {
            self.drive_client(now);
            return;
        }
        let transmit = Transmit::new(message, self.client.transport(), self.server, self.local);
        match self.client.recv(transmit, self.clock(now)) {
            TurnRecvRet::PeerData(data) => {
                self.peers.mark_sent(data.peer.ip());
                deliver(data.peer, data.data());
            }
            TurnRecvRet::Handled => self.drive_client(now),
            TurnRecvRet::Ignored(_) | TurnRecvRet::PeerIcmp { .. } => {}
        }
    }

    /// Handles a response before the client library does. Returns whether the library must not see
    /// it.
    fn handle_response(&mut self, message: &Message<'_>, now: Instant) -> bool {
        if self.keep_alive.handle_response(message, now) {
            if self.keep_alive.is_refused() {
                self.end(AllocationEnd::Forgotten);
            }
            return true;
        }
        let id = message.transaction_id();
        let Some(at) = self.pending_requests.iter().position(|(asked, _)| *asked == id) else {
            return false;
        };
        let (_, method) = self.pending_requests[at];
        if !message.has_class(MessageClass::Error) {
            self.pending_requests.remove(at);
            return false;
        }
        let Ok(error) = message.attribute::<ErrorCode>() else {
            return false;
        };
        let code = error.code();
        let stale = code == ErrorCode::STALE_NONCE;
        if method == ALLOCATE && code == ErrorCode::UNAUTHORIZED {
            self.unauthorized_count += 1;
        }
        let loss = match method {
            _ if stale => None,
            ALLOCATE if code == ErrorCode::UNAUTHORIZED && self.unauthorized_count == 1 => None,
            ALLOCATE if code == ErrorCode::ADDRESS_FAMILY_NOT_SUPPORTED && self.both_families => {
                self.retry_with_ipv4(now);
                return true;
            }
            ALLOCATE => Some(AllocationEnd::Refused {
                code,
                words: describe_error_code(code, error.reason()),
            }),
            REFRESH => Some(AllocationEnd::Forgotten),
            CREATE_PERMISSION | CHANNEL_BIND
                if matches!(code, ErrorCode::UNAUTHORIZED | ErrorCode::ALLOCATION_MISMATCH) =>
            {
                Some(AllocationEnd::Forgotten)
            }
            _ => None,
        };
        match loss {
            None => false,
            Some(_) if self.is_closing => false,
            Some(loss) => {
                self.end(loss);
                true
            }
        }
    }

    fn retry_with_ipv4(&mut self, now: Instant) {
        self.both_families = false;
        self.unauthorized_count = 0;
        self.pending_requests.clear();
        self.client = new_client(self.local, self.server, self.over_stream, &self.credentials, false);
        self.drive_client(now);
    }

    /// Returns the bytes that carry a datagram to a peer, or `None` until the peer has a permission
    /// and was heard. The datagram is lost then, as on any network.
    pub fn send(&mut self, peer: SocketAddr, contents: &[u8], now: Instant) -> Option<&[u8]> {
        let reachable = self.relayed.iter().any(|relayed| relayed.is_ipv4() == peer.is_ipv4());
        if self.has_ended || self.is_closing || !reachable || !self.peers.touch(peer.ip(), now) {
            return None;
        }
        if !self.client.have_permission(TransportType::Udp, peer.ip()) {
            // A pending request makes this fail, which is harmless.
            let clock = self.clock(now);
            let _ = self.client.create_permission(TransportType::Udp, peer.ip(), clock);
            self.drive_client(now);
            return None;
        }
        if !self.sends_first && !self.peers.has_sent(peer.ip()) {
            return None;
        }
        // Checks go to many addresses of which few are used. RFC 7983: STUN starts with 0 to 3.
        let is_check = contents.first().is_none_or(|first| *first < 4);
        if !is_check && self.peers.needs_channel(peer, now) {
            let clock = self.clock(now);
            let _ = self.client.bind_channel(TransportType::Udp, peer, clock);
            self.drive_client(now);
        }
        let clock = self.clock(now);
        let Ok(Some(built)) = self.client.send_to(TransportType::Udp, peer, contents, clock) else {
            return None;
        };
        self.send_buffer.clear();
        self.send_buffer.resize(built.data.len(), 0);
        built.data.write_into(&mut self.send_buffer);
        if self.over_stream {
            stream::pad(&mut self.send_buffer);
        }
        Some(&self.send_buffer)
    }

    /// Returns the relayed addresses.
    pub fn relayed(&self) -> &[SocketAddr] {
        &self.relayed
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        if !self.has_ended {
            self.drive_client(now);
        }
    }

    /// Releases the allocation; [`AllocationEnd::Released`] follows after the server's response.
    pub fn close(&mut self, now: Instant) {
        if self.has_ended || self.is_closing {
            return;
        }
        self.is_closing = true;
        let clock = self.clock(now);
        if self.client.delete(clock).is_err() {
            self.end(AllocationEnd::Released);
        }
        self.drive_client(now);
    }

    /// Returns the next output.
    pub fn poll_output(&mut self) -> RelayOutput {
        self.outputs.pop_front().unwrap_or(RelayOutput::Timeout(self.timeout))
    }

    /// Polls the client library until it waits.
    fn drive_client(&mut self, now: Instant) {
        let clock = self.clock(now);
        let mut due = now;
        for _ in 0..CLIENT_POLLS_MAX {
            while let Some(event) = self.client.poll_event() {
                self.handle_event(event, now);
            }
            while let Some(transmit) = self.client.poll_transmit(clock) {
                self.transmit(transmit.data.to_vec(), now);
            }
            if self.has_ended {
                return;
            }
            match self.client.poll(clock) {
                TurnPollRet::WaitUntil(at) if at > clock => {
                    due = self.clock_epoch + Duration::from_nanos(at.as_nanos().unsigned_abs());
                    break;
                }
                TurnPollRet::Closed => {
                    return self.end(if self.is_closing {
                        AllocationEnd::Released
                    } else {
                        AllocationEnd::NoAnswer
                    });
                }
                _ => {}
            }
        }
        if !self.relayed.is_empty() && !self.is_closing {
            while let Some(message) = self.keep_alive.poll(now) {
                self.push_output(RelayOutput::Transmit(message));
            }
            if self.keep_alive.is_silent() {
                return self.end(AllocationEnd::NoAnswer);
            }
            self.peers.expire(now);
            due = due.min(self.keep_alive.next_at());
        }
        self.timeout = due.max(now + CLIENT_POLL_INTERVAL_MIN);
    }

    /// Sends a request of the client library, unless it renews an unused permission or channel,
    /// which then expires.
    fn transmit(&mut self, message: Vec<u8>, now: Instant) {
        if let Ok(parsed) = Message::from_bytes(&message) {
            if self.peers.is_unused(&parsed, now) {
                return;
            }
            let request = (parsed.transaction_id(), parsed.method());
            // Retransmissions are known already.
            if !self.pending_requests.contains(&request) {
                if self.pending_requests.len() == RELAY_REQUESTS_MAX {
                    self.pending_requests.pop_front();
                }
                self.pending_requests.push_back(request);
            }
        }
        self.push_output(RelayOutput::Transmit(message));
    }

    fn handle_event(&mut self, event: TurnEvent, now: Instant) {
        match event {
            TurnEvent::AllocationCreated(_, address) => {
                if !address.ip().is_unspecified() && address.port() != 0 {
                    self.relayed.push(address);
                }
                if self.relayed.is_empty() {
                    return self.end(AllocationEnd::NoAddress);
                }
                // The address of the second family is in the same response.
                self.outputs.retain(|output| !matches!(output, RelayOutput::Up(_)));
                self.push_output(RelayOutput::Up(self.relayed.clone()));
                self.keep_alive.start(now);
            }
            TurnEvent::PermissionCreateFailed(_, address) => self.peers.handle_permission_failure(address, now),
            TurnEvent::ChannelCreateFailed(_, peer) => self.peers.handle_channel_failure(peer, now),
            // One of two families is unavailable; without any, the library closes.
            TurnEvent::AllocationCreateFailed(_) => {}
            TurnEvent::PermissionCreated(..)
            | TurnEvent::ChannelCreated(..)
            | TurnEvent::TcpConnected(_)
            | TurnEvent::TcpConnectFailed(_) => {}
        }
    }

    fn end(&mut self, loss: AllocationEnd) {
        self.push_output(RelayOutput::Ended(loss));
        self.has_ended = true;
    }

    /// Adds an output, unless the allocation has ended: one event of the client library can end it
    /// while others, and messages, are still to come.
    fn push_output(&mut self, output: RelayOutput) {
        if !self.has_ended {
            self.outputs.push_back(output);
        }
    }

    fn clock(&self, now: Instant) -> RelayInstant {
        let nanos = now.saturating_duration_since(self.clock_epoch).as_nanos();
        RelayInstant::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX))
    }
}

fn new_client(
    local: SocketAddr,
    server: SocketAddr,
    over_stream: bool,
    credentials: &TurnCredentials,
    both_families: bool,
) -> TurnClient {
    let mut config = TurnConfig::new(credentials.clone());
    if both_families {
        config.add_address_family(AddressFamily::IPV6);
    }
    config.set_request_retransmits(STUN_RETRANSMIT, Duration::MAX, STUN_TRANSMISSIONS, STUN_LAST_WAIT);
    if over_stream {
        TurnClientTcp::allocate(local, server, config).into()
    } else {
        TurnClientUdp::allocate(local, server, config).into()
    }
}

#[cfg(test)]
mod tests;
