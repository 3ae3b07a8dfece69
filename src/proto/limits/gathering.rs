//! Limits of the STUN and TURN servers that the runner itself uses.

use std::time::Duration;

// ---- gathering: STUN and TURN servers that the runner itself uses

/// STUN servers that are queried; browsers warn from five on, and two are enough to agree.
pub const STUN_SERVERS_MAX: usize = 8;
/// TURN servers at which the runner holds an allocation; each is a line in every answer.
pub const RELAYS_MAX: usize = 4;

// ---- internal

/// First pause after a server failed, as all do while a board waits for its network; it doubles
/// with each consecutive failure.
pub const GATHER_PAUSE_FIRST: Duration = Duration::from_secs(1);
/// Longest pause between two attempts: soon enough for a server that recovers, rare enough to be no
/// burden.
pub const GATHER_PAUSE_MAX: Duration = Duration::from_secs(300);
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
/// Time without a packet to a peer after which it is removed: longer than the life of its
/// permission and channel.
pub const RELAY_PEER_FORGOTTEN: Duration = Duration::from_secs(20 * 60);
/// Datagrams of all sessions queued for one relay: a third of a second of eight calls.
pub const RELAY_QUEUE_DATAGRAMS: usize = 128;
/// Bytes queued for a relay over TCP; the excess is dropped, since late speech is useless.
pub const RELAY_STREAM_BYTES_MAX: usize = 32 * 1024;
/// Time to release an allocation when the runner shuts down.
pub const RELAY_END: Duration = Duration::from_millis(200);
/// Characters of the reason of a server that are logged.
pub const GATHER_REASON_CHARS_MAX: usize = 60;
