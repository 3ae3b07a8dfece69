//! Limits of the STUN and TURN servers that the runner itself uses.

use std::time::Duration;

// ---- gathering: STUN and TURN servers that the runner itself uses

/// STUN servers that are queried; browsers warn from five on, and two are enough to agree.
pub const STUN_SERVERS_MAX: usize = 8;
/// TURN servers at which the runner holds an allocation; each is a line in every answer.
pub const RELAYS_MAX: usize = 4;
/// Server-reflexive addresses in one answer: several only behind several networks.
pub const REFLEXIVE_OFFERED_MAX: usize = 4;
/// Relayed addresses in one answer: one per family of each relay.
pub const RELAYED_OFFERED_MAX: usize = 2 * RELAYS_MAX;
/// Time to resolve the name of one server; a resolver tries each of its own servers for about 5 s.
pub const GATHER_RESOLVE: Duration = Duration::from_secs(5);
/// Addresses of one server that are tried before it counts as failed.
pub const GATHER_ADDRESSES_MAX: usize = 4;
/// First pause after a server failed, as all do while a board waits for its network; it doubles
/// with each consecutive failure.
pub const GATHER_PAUSE_FIRST: Duration = Duration::from_secs(1);
/// Longest pause between two attempts: soon enough for a server that recovers, rare enough to be no
/// burden.
pub const GATHER_PAUSE_MAX: Duration = Duration::from_secs(300);
/// Time that a server must have worked for its next failure to start again at the first pause.
pub const GATHER_SETTLED: Duration = Duration::from_secs(60);
/// First retransmission timeout of a request to a STUN or TURN server (RFC 8489 section 6.2.1); it
/// doubles each time.
pub const STUN_RETRANSMIT: Duration = Duration::from_millis(500);
/// Transmissions of one request: if a fifth of all datagrams is lost, one request of sixty remains
/// unanswered.
pub const STUN_TRANSMISSIONS: u32 = 4;
/// Time that the last transmission has to be answered; with the timeouts before, 5 s.
pub const STUN_LAST_WAIT: Duration = Duration::from_millis(1500);
/// Interval of keep-alives to a server: a NAT may drop a mapping after 30 s.
pub const STUN_KEEP_ALIVE: Duration = Duration::from_secs(25);
/// Consecutive unanswered requests after which the addresses from a server are withdrawn.
pub const STUN_UNANSWERED_MAX: u32 = 2;
/// Peers that one relay may send to: the candidates of the default number of sessions.
pub const RELAY_PEERS_MAX: usize = 1024;
/// Time without a packet to a peer after which its permission expires; a live connection is checked
/// every few seconds.
pub const RELAY_PEER_IDLE: Duration = Duration::from_secs(60);
/// The same for a peer that never sent a packet, when the table is full: a reachable peer answers
/// the first checks.
pub const RELAY_PEER_UNHEARD: Duration = Duration::from_secs(5);
/// Time without a packet to a peer after which it is removed: longer than the life of its
/// permission and channel.
pub const RELAY_PEER_FORGOTTEN: Duration = Duration::from_secs(20 * 60);
/// Time without permission requests after the relay rejected one.
pub const RELAY_REFUSED: Duration = Duration::from_secs(30);
/// Requests to a relay whose responses are checked for errors; the oldest are dropped first.
pub const RELAY_REQUESTS_MAX: usize = 64;
/// Datagrams of all sessions queued for one relay: a third of a second of eight calls.
pub const RELAY_QUEUE_DATAGRAMS: usize = 128;
/// Bytes queued for a relay over TCP; the excess is dropped, since late speech is useless.
pub const RELAY_STREAM_BYTES_MAX: usize = 32 * 1024;
/// Bytes of one read from a relay: the longest datagram.
pub const RELAY_READ_BYTES: usize = 64 * 1024;
/// Time to connect to one address of a relay, and for TLS after it.
pub const RELAY_CONNECT: Duration = Duration::from_secs(5);
/// Time to release an allocation when the runner shuts down.
pub const RELAY_END: Duration = Duration::from_millis(200);
/// Characters of the reason of a server that are logged.
pub const GATHER_REASON_CHARS_MAX: usize = 60;
/// Time that `doctor` waits for one server.
pub const GATHER_PROBE: Duration = Duration::from_secs(3);
