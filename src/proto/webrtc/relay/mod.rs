//! One allocation at one TURN server: an address there that the whole runner's sessions send and receive by.
//!
//! In: the server's messages, datagrams of sessions, `now`. Out, by [`TurnAllocation::poll_output`]: messages to the server, the
//! relayed addresses once they are there, and why they are gone. The protocol is turn-client-proto's; around it stand the
//! reasons of refusals, which it swallows, a refresh as a sign of life (`KeepAlive`), so that a server that forgot the
//! allocation is noticed within half a minute and not within half an hour, and permissions that lapse: it renews all for ever.
//! The first datagram to a peer gets it a permission and goes no further: nothing is sent to a peer that was not heard, so
//! that no candidate makes the relay send where it cannot, for which coturn ends the whole allocation. A peer that checks
//! loses nothing by it, since str0m checks back at once. A channel comes with the first datagram that is no check.
//! Refused: datagrams to more than `RELAY_PEERS_MAX` peers. Source: RFC 8656.

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

use crate::limits::{RELAY_REQUESTS_MAX, STUN_LAST_WAIT, STUN_RETRANSMIT, STUN_TRANSMISSIONS};
use crate::webrtc::gather::describe_error_code;
use keep_alive::KeepAlive;
use peers::RelayPeers;

/// How often the client library is asked in a row whether it has more to do; it has a step for each request at most.
const CLIENT_POLLS_MAX: usize = 32;
/// Shortest wait until it is asked again: its own requests are 50 ms apart, and a shorter one could be a busy loop.
const CLIENT_POLL_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum RelayOutput {
    /// Send this to the server.
    Transmit(Vec<u8>),
    /// The allocation is there: these addresses may be offered.
    Up(Vec<SocketAddr>),
    /// There is no allocation any more, or there will be none. Nothing follows.
    Ended(AllocationEnd),
    /// Nothing more; [`TurnAllocation::handle_timeout`] is due then.
    Timeout(Instant),
}

/// Why there is no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllocationEnd {
    /// The server answered with this code, and its words.
    Refused {
        code: u16,
        words: String,
    },
    NoAnswer,
    /// The server has forgotten the allocation: it was started again, or has run out of patience.
    Forgotten,
    /// The allocation has no address that could be offered.
    NoAddress,
    /// It was given back.
    Ended,
}

impl fmt::Display for AllocationEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllocationEnd::Refused { words, .. } => f.write_str(words),
            AllocationEnd::NoAnswer => f.write_str("no answer"),
            AllocationEnd::Forgotten => f.write_str("the server has forgotten the allocation; was it started again?"),
            AllocationEnd::NoAddress => f.write_str("the server gave no usable address; is its external address set?"),
            AllocationEnd::Ended => f.write_str("the allocation was given back"),
        }
    }
}

/// How the server is reached, and who asks.
pub struct AllocationSetup<'a> {
    pub local: SocketAddr,
    pub server: SocketAddr,
    /// Over TCP or TLS, and not over UDP.
    pub over_stream: bool,
    pub username: &'a str,
    pub credential: &'a str,
}

/// One allocation.
pub struct TurnAllocation {
    client: TurnClient,
    credentials: TurnCredentials,
    over_stream: bool,
    local: SocketAddr,
    server: SocketAddr,
    /// Whether both families were asked for; a server that refuses one of them is asked for IPv4 alone.
    both_families: bool,
    /// Where the client library's clock stands at 0.
    clock_epoch: Instant,
    /// Requests that are under way.
    pending_requests: VecDeque<(TransactionId, Method)>,
    /// How often an allocation was refused for want of credentials: once is the challenge.
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
    /// Begins an allocation. Over IPv6 an address of each family is asked for: the runner may have no IPv4 itself.
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

    /// Takes one message of the server; what a peer sent through it is handed to `deliver`.
    pub fn handle_message(&mut self, message: &[u8], now: Instant, mut deliver: impl FnMut(SocketAddr, &[u8])) {
        if self.has_ended {
            return;
        }
        // An answer has the higher bit of the class set, RFC 8489 section 5; the rest is data of peers.
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
                self.peers.mark_heard(data.peer.ip());
                deliver(data.peer, data.data());
            }
            TurnRecvRet::Handled => self.drive_client(now),
            TurnRecvRet::Ignored(_) | TurnRecvRet::PeerIcmp { .. } => {}
        }
    }

    /// Looks at an answer before the client library does; `true` when it is not for the library.
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

    /// Returns what to put on the wire for a datagram to a peer, or `None` while the peer has no permission or has not used
    /// it: the datagram is lost then, as on any network.
    pub fn send(&mut self, peer: SocketAddr, contents: &[u8], now: Instant) -> Option<&[u8]> {
        let reachable = self.relayed.iter().any(|relayed| relayed.is_ipv4() == peer.is_ipv4());
        if self.has_ended || self.is_closing || !reachable || !self.peers.touch(peer.ip(), now) {
            return None;
        }
        if !self.client.have_permission(TransportType::Udp, peer.ip()) {
            // One that is asked for already is refused here, which is all right.
            let clock = self.clock(now);
            let _ = self.client.create_permission(TransportType::Udp, peer.ip(), clock);
            self.drive_client(now);
            return None;
        }
        if !self.peers.was_heard(peer.ip()) {
            return None;
        }
        // Checks go to many addresses, of which one or two are kept: RFC 7983 tells them by their first byte.
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

    pub fn handle_timeout(&mut self, now: Instant) {
        if !self.has_ended {
            self.drive_client(now);
        }
    }

    /// Gives the allocation back; [`AllocationEnd::Ended`] follows when the server has agreed.
    pub fn close(&mut self, now: Instant) {
        if self.has_ended || self.is_closing {
            return;
        }
        self.is_closing = true;
        let clock = self.clock(now);
        if self.client.delete(clock).is_err() {
            self.end(AllocationEnd::Ended);
        }
        self.drive_client(now);
    }

    /// Returns the next thing to do.
    pub fn poll_output(&mut self) -> RelayOutput {
        self.outputs.pop_front().unwrap_or(RelayOutput::Timeout(self.timeout))
    }

    /// Lets the client library go on until it waits.
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
                        AllocationEnd::Ended
                    } else {
                        AllocationEnd::NoAnswer
                    });
                }
                _ => {}
            }
        }
        if !self.relayed.is_empty() && !self.is_closing {
            while let Some(message) = self.keep_alive.poll(now) {
                self.outputs.push_back(RelayOutput::Transmit(message));
            }
            if self.keep_alive.is_silent() {
                return self.end(AllocationEnd::NoAnswer);
            }
            self.peers.expire(now);
            due = due.min(self.keep_alive.next_at());
        }
        self.timeout = due.max(now + CLIENT_POLL_INTERVAL_MIN);
    }

    /// Sends a request of the client library, unless it renews what nobody uses: unanswered, that lapses there and here.
    fn transmit(&mut self, message: Vec<u8>, now: Instant) {
        if let Ok(parsed) = Message::from_bytes(&message) {
            if self.peers.is_unused(&parsed, now) {
                return;
            }
            let request = (parsed.transaction_id(), parsed.method());
            // One that is sent again is known.
            if !self.pending_requests.contains(&request) {
                if self.pending_requests.len() == RELAY_REQUESTS_MAX {
                    self.pending_requests.pop_front();
                }
                self.pending_requests.push_back(request);
            }
        }
        self.outputs.push_back(RelayOutput::Transmit(message));
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
                // The second family comes in the same answer.
                self.outputs.retain(|output| !matches!(output, RelayOutput::Up(_)));
                self.outputs.push_back(RelayOutput::Up(self.relayed.clone()));
                self.keep_alive.start(now);
            }
            TurnEvent::PermissionCreateFailed(_, address) => self.peers.handle_permission_failure(address, now),
            TurnEvent::ChannelCreateFailed(_, peer) => self.peers.handle_channel_failure(peer, now),
            // A family that was asked for and is not there; with none at all the library closes.
            TurnEvent::AllocationCreateFailed(_) => {}
            TurnEvent::PermissionCreated(..)
            | TurnEvent::ChannelCreated(..)
            | TurnEvent::TcpConnected(_)
            | TurnEvent::TcpConnectFailed(_) => {}
        }
    }

    fn end(&mut self, loss: AllocationEnd) {
        if !self.has_ended {
            self.has_ended = true;
            self.outputs.push_back(RelayOutput::Ended(loss));
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
