//! Limits of WebRTC: connections, SDP and DTLS.

use std::time::Duration;

// ---- WebRTC

/// Bytes of one message in either direction: the limit that Pipecat announces and browsers respect.
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024;
/// Bytes of one message to a device, which expects a message in a single SCTP chunk.
pub const DEVICE_MESSAGE_BYTES_MAX: usize = 1000;
/// Time from the answer to an established connection with audio; then the session is freed.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(15);
/// Silence of a peer after which the bot is notified; browsers and runner check each other at least
/// every 3 s.
pub const PEER_LOST_AFTER: Duration = Duration::from_secs(6);
/// Silence of a peer after which the session is freed.
pub const PEER_FREED_AFTER: Duration = Duration::from_secs(30);

// ---- SDP

/// ICE-TCP connections: one per session, and those that a client tries beside it.
pub const ICE_TCP_CONNECTIONS_MAX: usize = 128;
/// ICE-TCP connections of one source address: an eighth, so that eight addresses are needed to fill
/// the limit. Four callers behind one router fit while they connect, a dozen once connected.
pub const ICE_TCP_PER_SOURCE_MAX: usize = ICE_TCP_CONNECTIONS_MAX / 8;

// ---- internal

/// Candidates of one peer that are tried: a laptop with VPNs has about ten. A peer that names
/// foreign addresses makes the runner send them connectivity checks: at most 22 a second of 112
/// bytes, about 300 in total (measured).
pub const REMOTE_CANDIDATES_MAX: usize = 32;
/// DTLS records queued until ICE connects: a ClientHello with post-quantum keys takes two, and may
/// be retransmitted once.
pub const EARLY_RECORDS_MAX: usize = 4;
/// Data channels that a client may have open; it needs one.
pub const CHANNELS_MAX: usize = 8;
/// Addresses from which a client may check between two ICE restarts: its candidates, and their NAT
/// mappings.
pub const CHECKED_ADDRESSES_MAX: usize = 64;
/// Source addresses of checks, over all ICE restarts of a session, that answered no check of the
/// runner. Each restart leaves about a dozen; the limit stops a sender with forged addresses.
pub const CHECKED_UNPROVEN_MAX: usize = 4 * CHECKED_ADDRESSES_MAX;
/// Audio SSRCs of a client that are kept; a browser uses one, a push-to-talk client a new one for
/// each press. Older ones are forgotten.
pub const AUDIO_SOURCES_MAX: usize = 32;
/// Time after DTLS without an INIT of the device, which normally follows at once, after which the
/// runner opens the association. Each unanswered step is repeated after the same time.
pub const DEVICE_SETUP_REPEAT: Duration = Duration::from_millis(500);
/// Interval of messages to a device: five a second beside its audio.
pub const DEVICE_MESSAGE_INTERVAL: Duration = Duration::from_millis(205);
/// Silence of a peer after which its next packet ends an outage: fifteen audio packets, and longer
/// than a round trip.
pub const OUTAGE_AFTER: Duration = Duration::from_millis(300);
/// Longest time between two checks of a peer. str0m checks every 3 s while it is answered; some
/// devices close 10 s after the last check.
pub const CHECK_INTERVAL_MAX: Duration = Duration::from_millis(3_500);
/// Unanswered checks of a probe after which a session may be evicted. With their interval they
/// last 1.76 s: longer than a Wi-Fi outage of 1.5 s that begins with the probe, and short enough
/// for a device that was reset to be connected within 2 s of its offer.
pub const PROBE_CHECKS: u32 = 8;
/// Interval of the checks of a probe: a device accepts some ten datagrams a second beside its
/// audio.
pub const PROBE_INTERVAL: Duration = Duration::from_millis(220);
/// Offers that wait for inquiries; each holds its body. All devices of a home after a power cut
/// fit, and one source may have three quarters of them.
pub const WAITING_OFFERS_MAX: usize = 32;
/// Time that the queued audio of a bot that has returned has to leave.
pub const FINISH_WITHIN: Duration = Duration::from_secs(2);
/// Time that `peerLeft` has to be acknowledged before the connection closes.
pub const GOODBYE_WITHIN: Duration = Duration::from_millis(400);
/// Time of the closing handshakes.
pub const CLOSE_WITHIN: Duration = Duration::from_millis(300);
/// Requests (offers, candidates) queued for one session.
pub const SESSION_REQUESTS: usize = 8;
/// Lines of the SDP of an offer: four sections of a browser with all its codecs take about 600.
pub const SDP_LINES_MAX: usize = 2_000;
/// Media sections of an offer; a stock client has four, and stopped ones remain listed.
pub const SDP_SECTIONS_MAX: usize = 32;
/// Bytes of the name of a section: a UUID fits.
pub const SDP_MID_BYTES_MAX: usize = 64;
/// Bytes of the ICE user name fragment of a peer: with the 16 of the runner it forms a user name,
/// of which str0m writes at most 128.
pub const ICE_UFRAG_BYTES_MAX: usize = 100;
/// Bytes of the ICE password of a peer; the range of RFC 8839.
pub const ICE_PWD_BYTES_MAX: usize = 256;
/// Candidates that are read from one offer: those of a machine with many interfaces, once per
/// section.
pub const OFFER_CANDIDATES_MAX: usize = 64;
/// Addresses in an answer: each is a line in every section, and a round of checks for the peer.
pub const LOCAL_ADDRESSES_MAX: usize = 16;
/// TCP addresses in an answer: the fallback when UDP is blocked, so the first few suffice.
pub const TCP_ADDRESSES_MAX: usize = 4;
/// Bytes of one packet on an ICE-TCP connection: the largest datagram of an Ethernet path, with a
/// reserve.
pub const FRAMED_BYTES_MAX: usize = 4 * 1024 - 1;
/// ICE-TCP connections of one session: a client tries each offered TCP address once.
pub const ICE_TCP_PER_SESSION_MAX: usize = TCP_ADDRESSES_MAX;
/// Send buffer of an ICE-TCP connection in the kernel, in bytes: half a second of speech, which is
/// useless later.
pub const ICE_TCP_SEND_BUFFER_BYTES: usize = 8 * 1024;
/// Bytes of one SDP line to a microcontroller, which copies it into 256 bytes without a check.
pub const DEVICE_LINE_BYTES_MAX: usize = 200;
/// Bytes of the JSON body with an answer to a microcontroller, which reads 4096.
pub const DEVICE_BODY_BYTES_MAX: usize = 4_000;
/// First retransmission timeout of a handshake flight. dimpl varies it by a quarter, so it never
/// exceeds 1 s: a microcontroller gives up after 3 s of silence.
pub const DTLS_RETRANSMIT: Duration = Duration::from_millis(800);
