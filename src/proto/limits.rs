//! Caps and time limits of the runner, each with its unit and its reason.
//!
//! A number is here if it bounds memory, time, a queue or the log and an operator may want to know
//! it, or if several files use it. A number that one file uses is in that file. The code that uses
//! a limit has a test at the limit and one past it.

use std::ops::RangeInclusive;
use std::time::Duration;

// ---- bot: the contract

/// Idle time that bots written for Pipecat expect when the configuration names none.
pub const BOT_IDLE: Duration = Duration::from_secs(300);
/// Time that a bot has to return after its session ended, before the runner aborts it.
pub const BOT_GRACE: Duration = Duration::from_secs(10);
/// Time that a bot has to return after its session ended while the runner shuts down.
pub const BOT_GRACE_AT_SHUTDOWN: Duration = Duration::from_secs(1);
/// Time that sessions have to end once the runner stops, after the drain if there is one;
/// supervisors kill slow processes.
pub const SHUTDOWN_GRACE: Duration = Duration::from_millis(2500);
/// Longest drain that `--drain` accepts: a long call, and within the stop timeouts that supervisors
/// accept.
pub const DRAIN_MAX: Duration = Duration::from_secs(3600);
/// Interval of the log lines that count the sessions a drain still waits for.
pub const DRAIN_REPORT: Duration = Duration::from_secs(10);
/// Time that tasks have to be dropped when the runtime shuts down.
pub const RUNTIME_END: Duration = Duration::from_millis(200);
/// PCM rates that a bot may request, in Hz: the range of Opus.
pub const RATES_HZ: RangeInclusive<u32> = 8_000..=48_000;
/// Audio frames queued for a slow bot: one second; older speech is useless.
pub const AUDIO_IN_FRAMES_MAX: usize = 50;
/// Audio frames of a WebSocket caller queued for a slow bot: 10 s, while the bot loads its models.
/// The transport is reliable, so no frame is stale because of the network.
pub const SOCKET_IN_FRAMES_MAX: usize = 500;
/// Marks that a bot may have pending: one per sentence of a long speech.
pub const MARKS_MAX: usize = 64;
/// Bytes of the name of a mark: some providers truncate longer ones.
pub const MARK_BYTES_MAX: usize = 256;
/// Events other than audio queued for a slow bot: bursts of client messages, and one event for each
/// participant of a full room.
pub const EVENTS_IN_MAX: usize = 256 + ROOM_PARTICIPANTS_MAX;
/// Bytes of messages queued for a slow bot: four of the longest.
pub const MESSAGES_IN_BYTES_MAX: usize = 4 * MESSAGE_BYTES_MAX;
/// Speech queued for sending: enough to cover pauses of the bot, little enough to bound memory and
/// latency.
pub const AUDIO_OUT_QUEUE: Duration = Duration::from_millis(500);
/// Messages queued until the caller's data channel opens; it bounds the cost of a client that never
/// opens one.
pub const MESSAGES_OUT_MAX: usize = 64;
/// Bytes of messages queued for the caller's data channel: four of the longest.
pub const MESSAGES_OUT_BYTES_MAX: usize = 4 * MESSAGE_BYTES_MAX;

// ---- sessions

/// Live sessions by default: a load that four slow cores carry easily.
pub const SESSIONS_MAX_DEFAULT: usize = 32;
/// WebRTC sessions that were answered and are not yet connected: half of the default session limit.
/// All devices of a home that reconnect after a power cut fit.
pub const PENDING_OFFERS_MAX: usize = 16;
/// Age at which a pending session may be evicted for an offer whose address holds as many permits:
/// a phone that connects through relays takes 4 s.
pub const PENDING_OFFERS_YIELD_AFTER: Duration = Duration::from_secs(5);
/// Evicted sessions whose bots have not returned; at this number the runner evicts no further
/// session.
pub const EVICTED_SESSIONS_MAX: usize = 32;

/// Time in which a session of Media over QUIC binds its port or connects to its relay, before
/// `/start` answers 504: that of Pipecat's runner.
pub const MOQ_READY: Duration = Duration::from_secs(15);

// ---- watch: stalls, supervisor

/// Interval at which the watchdog thread checks the runtime; a supervisor with a short watchdog
/// timeout shortens it.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// Longest interval between two checks that counts as observed: after a longer one, the process was
/// stopped or the machine was suspended.
pub const WATCH_GAP_MAX: Duration = Duration::from_secs(1);
/// Time without an answer after which the runtime counts as stalled: callers hear the gap, and
/// their connections time out soon.
pub const RUNTIME_STALL: Duration = Duration::from_secs(3);
/// Time in one poll after which a task counts as stalled; polls take milliseconds.
pub const TURN_STALL: Duration = Duration::from_secs(2);
/// Stalls of one task that are logged; further stalls are only counted.
pub const TURN_WARNINGS_MAX: u32 = 5;
/// Interval of the status messages to the supervisor, which contain the number of live sessions.
pub const STATUS_INTERVAL: Duration = Duration::from_secs(2);
/// Time that one message to a supervisor that does not read may block; the watchdog does not check
/// meanwhile.
pub const NOTIFY_SEND: Duration = Duration::from_millis(100);
/// Time that the shutdown waits until the supervisor is notified of it.
pub const NOTIFY_WITHIN: Duration = Duration::from_millis(200);
/// Time from the end of the last session until unused memory is returned to the system: longer than
/// a client takes to reconnect.
pub const MEMORY_TRIM_AFTER: Duration = Duration::from_secs(2);

// ---- audio: codec, jitter, pacing

/// Bytes of one encoded 20 ms packet: five times the size at 32 kb/s, and below every datagram
/// limit.
pub const OPUS_PACKET_BYTES_MAX: usize = 400;
/// Silent frames that are encoded before the last packet is repeated: by then, the decoder of a
/// device has settled.
pub const SILENT_FRAMES_ENCODED: u32 = 35;
/// Default complexity of the Opus encoder, 0 (cheap) to 10 (best): one core of an older board
/// carries several callers with it. Above it, speech at 28 kb/s sounds hardly better.
/// `boards/SPEED.md` has the cost of each.
pub const OPUS_COMPLEXITY_DEFAULT: u8 = 3;
/// Highest complexity of the Opus encoder (RFC 6716 section 2.1.5).
pub const OPUS_COMPLEXITY_MAX: u8 = 10;
/// Bytes of one received Opus packet: the capacity of a datagram on an ordinary network.
pub const OPUS_RECEIVED_BYTES_MAX: usize = 1_500;

// ---- crypto: DTLS

/// First retransmission timeout of a handshake flight. dimpl varies it by a quarter, so it never
/// exceeds 1 s: a microcontroller gives up after 3 s of silence.
pub const DTLS_RETRANSMIT: Duration = Duration::from_millis(800);

// ---- command line

/// Highest limit of live sessions that an option accepts; a board has no memory for the queues of
/// more.
pub const SESSIONS_MAX_HIGHEST: usize = 4_096;
/// Worker threads: far above the cores of any supported board.
pub const WORKERS_MAX: usize = 64;
/// ICE servers that are passed to clients; browsers warn from five on.
pub const ICE_SERVERS_MAX: usize = 16;
/// URLs of one ICE server: four schemes on two address families.
pub const ICE_URLS_MAX: usize = 8;
/// Networks of trusted proxies: a chain of several, or the ranges of a content delivery network.
pub const TRUSTED_PROXIES_MAX: usize = 64;
/// Additional addresses to offer; each is a line in every section of every answer.
pub const ICE_ADDRESSES_MAX: usize = 8;
/// Bytes of an API key: a shorter one can be guessed, a longer one is a file that was named by
/// mistake.
pub const API_KEY_BYTES: RangeInclusive<usize> = 16..=512;
/// Bytes of a key or certificate file: a chain with many names has 16 KiB.
pub const KEY_FILE_BYTES_MAX: u64 = 256 * 1024;
/// Bytes of a `.env` file: hundreds of variables and a few keys in PEM form.
pub const ENV_FILE_BYTES_MAX: u64 = 64 * 1024;

// ---- log

/// Characters of one log message: the 5000 of a rejected body and its errors.
pub const LOG_MESSAGE_CHARS_MAX: usize = 8_000;
/// Window in which log lines that callers cause are counted.
pub const LINES_WINDOW: Duration = Duration::from_secs(60);
/// Log lines that one address may cause per window: those of forty sessions.
pub const LINES_PER_CALLER_MAX: u32 = 120;
/// Log lines that all addresses may cause per window: at most 100 MB a day, which a memory card
/// endures for years.
pub const LINES_MAX: u32 = 480;
/// Log lines that callers with the API key may cause per window, apart from all others: those of
/// 160 sessions.
pub const LINES_AUTHORISED_MAX: u32 = 480;
/// Addresses that have log counters of their own; further addresses in a window share one counter.
pub const LOGGED_CALLERS_MAX: usize = 64;

// ---- metrics

/// Interval at which a live session publishes its counters; scrapers come every few seconds.
pub const METRICS_INTERVAL: Duration = Duration::from_secs(1);

// ---- doctor

/// Time of one check; a provider that has not answered by then fails it.
pub const DOCTOR_CHECK: Duration = Duration::from_secs(15);
/// Time of one name resolution; a resolver answers within a second or not at all.
pub const DOCTOR_RESOLVE: Duration = Duration::from_secs(5);
/// Processes that are inspected to find the owner of a port; a board has some hundreds.
pub const DOCTOR_PROCESSES_MAX: usize = 16_384;
/// Latest plausible time of the clock, in seconds since 1970: the year 2100.
pub const CLOCK_LATEST_S: u64 = 4_102_444_800;
/// Open files of a runner without callers, with a reserve.
pub const OPEN_FILES_BASE: u64 = 64;
/// Open files of a session: its socket, if it does not share one.
pub const OPEN_FILES_SESSION: u64 = 1;
/// Open files of a session whose bot is a program: pipes, listener and media socket.
pub const OPEN_FILES_PROGRAM: u64 = 8;
/// Open files of a session in a media room beside its WebSocket: two UDP ports in both address
/// families.
pub const OPEN_FILES_ROOM: u64 = 4;
/// Memory of a runner without callers, with a reserve of the same size.
pub const MEMORY_BASE_BYTES: u64 = 16 * 1024 * 1024;
/// Memory of a session: 0.5 MiB while both sides speak, with a reserve of the same size.
pub const MEMORY_SESSION_BYTES: u64 = 1024 * 1024;

// ---- HTTP

/// Open connections: six of each of forty browsers; further ones wait in the accept queue of the
/// system.
pub const HTTP_CONNECTIONS_MAX: usize = 256;
/// Bytes of the head of a request: browsers add the cookies of other programs on `localhost`, which
/// sometimes fill 8 KiB.
pub const HTTP_HEAD_BYTES_MAX: usize = 32 * 1024;
/// Header lines of a request; browsers send about twenty.
pub const HTTP_HEADERS_MAX: usize = 100;
/// Bytes of a JSON body: twenty times a long offer.
pub const HTTP_BODY_BYTES_MAX: usize = 256 * 1024;
/// Bytes of an oversized body that are read and discarded, so that the client receives the
/// rejection.
pub const HTTP_DISCARD_BYTES_MAX: usize = 1024 * 1024;
/// Time from the first byte of a request to the end of its head.
pub const HTTP_HEAD: Duration = Duration::from_secs(10);
/// Time from a new connection to the end of the head of its first request, including TLS: three
/// round trips over the worst network.
pub const HTTP_FIRST_HEAD: Duration = Duration::from_secs(8);
/// Time from the end of the head to the end of the body: 256 KiB on a bad mobile network. It is
/// also the longest pause within a body.
pub const HTTP_BODY: Duration = Duration::from_secs(8);
/// Time between two requests of a connection; longer than the usual 60 s of a proxy.
pub const HTTP_IDLE: Duration = Duration::from_secs(75);
/// Time that a client may leave a response unread.
pub const HTTP_STALL: Duration = Duration::from_secs(10);
/// Time from the end of the head of a request to the last byte of the response.
pub const HTTP_ANSWER: Duration = Duration::from_secs(30);
/// Time that a client has to close its side after the runner closed its own.
pub const HTTP_LINGER: Duration = Duration::from_secs(1);
/// Time that requests in progress have to complete when the runner shuts down.
pub const HTTP_GRACE: Duration = Duration::from_secs(1);
/// First pause after a failed accept; it doubles with each consecutive failure.
pub const ACCEPT_PAUSE_FIRST: Duration = Duration::from_millis(10);
/// Longest pause between accepts: a process without file descriptors has to wait for one anyway.
pub const ACCEPT_PAUSE_MAX: Duration = Duration::from_millis(1_280);
/// Consecutive errors of a datagram socket that cause no pause: ICMP errors for each datagram of a
/// batch.
pub const READ_ERRORS_FREE: u32 = 10;
/// First pause after further errors; it doubles with each.
pub const READ_PAUSE_FIRST: Duration = Duration::from_millis(10);
/// Longest pause between reads of a failing socket: one attempt per second is cheap, and a socket
/// that recovers is soon in use again.
pub const READ_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Value of `Retry-After`, in seconds: on a full runner, sessions end every few seconds.
pub const RETRY_AFTER_S: u32 = 5;

// ---- bodies of requests

/// Bytes of the SDP in an offer: all codecs and candidates of a browser with many interfaces take
/// about 20 KiB.
pub const OFFER_SDP_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a `pc_id`; those that the runner issues are far shorter.
pub const PC_ID_BYTES_MAX: usize = 128;
/// Candidates in one PATCH: those that a dozen interfaces and four sections yield in 200 ms.
pub const CANDIDATES_MAX: usize = 128;
/// Bytes of one candidate line; the longest that browsers make are about 250.
pub const CANDIDATE_BYTES_MAX: usize = 512;
/// Bytes of a media section's name.
pub const MID_BYTES_MAX: usize = 64;
/// Bytes of the name of a transport in `/start`; the longest name has eleven.
pub const TRANSPORT_BYTES_MAX: usize = 64;
/// Bytes of a namespace of Media over QUIC, in `/start` and options; random ones have 24.
pub const MOQ_NAMESPACE_BYTES_MAX: usize = 128;
/// Bytes of the id of a participant of Media over QUIC.
pub const MOQ_PARTICIPANT_BYTES_MAX: usize = 64;
/// Bytes of the URL of a relay, which may hold a token.
pub const MOQ_URL_BYTES_MAX: usize = 2_048;
/// Bytes of an endpoint name, and of a session id in a path; valid ones are shorter.
pub const ENDPOINT_NAME_BYTES_MAX: usize = 64;
/// Characters of a `User-Agent` that are passed to the bot: browsers send some 150.
pub const USER_AGENT_CHARS_MAX: usize = 256;
/// Problems that one 422 response lists.
pub const PROBLEMS_MAX: usize = 16;
/// Characters of a rejected body that are logged.
pub const LOGGED_BODY_CHARS_MAX: usize = 5_000;
/// Rejected bodies that are logged per [`LINES_WINDOW`]: a broken client repeats itself.
pub const LOGGED_BODIES_MAX: u32 = 30;

// ---- forms with parts

/// Bytes of the boundary of a form: the limit of RFC 2046.
pub const BOUNDARY_BYTES_MAX: usize = 70;
/// Bytes of names and values before the file of a form: the limit of S3. The fields of an upload
/// grant have about two thousand.
pub const FIELDS_BYTES_MAX: usize = 20_000;
/// Bytes of the header of a part of a form: the longest file name, percent-encoded twice, and a few
/// more lines.
pub const PART_HEAD_BYTES_MAX: usize = 4 * 1024;
/// Bytes of a form outside its file: fields, headers of parts, and delimiters. A sender that
/// declares more than this above the largest file is rejected early.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;

// ---- registered sessions

/// Sessions that `/start` created, used or not.
pub const REGISTERED_MAX: usize = 4_096;
/// Bytes of all bodies that are stored for them.
pub const REGISTERED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Registered sessions of one source address: a quarter, so that one address cannot lock out the
/// others.
pub const REGISTERED_SHARE_MAX: usize = REGISTERED_MAX / 4;
/// Bytes of stored bodies of one source address: a quarter as well.
pub const REGISTERED_SHARE_BYTES_MAX: usize = REGISTERED_BYTES_MAX / 4;
/// Age at which an unused registered session may be evicted for a source that holds no more:
/// clients connect within a second, or within several if the browser first asks for the microphone.
pub const REGISTERED_YIELDS_AFTER: Duration = Duration::from_secs(30);
/// Lifetime of a registered session that is never used.
pub const REGISTERED_UNUSED: Duration = Duration::from_secs(300);

// ---- tokens of WebSockets

/// Lifetime of a token: that of the session to which it may belong.
pub const TOKEN_LIFE: Duration = REGISTERED_UNUSED;
/// Bytes of a token; those of sessions have about 190.
pub const TOKEN_BYTES_MAX: usize = 256;
/// Tokens whose use is recorded, one bit each; past it, the oldest expire early. It takes 1 MiB and
/// lasts for 28,000 tokens a second over [`TOKEN_LIFE`], more than `/start` answers.
pub const RECORDED_TOKENS_MAX: usize = 8 * 1024 * 1024;
/// Calls and signed webhooks whose token is remembered: some 4,000 calls, a day of three a minute,
/// in 1 MB. Only signed webhooks are remembered, so that others cannot fill it.
pub const REMEMBERED_CALLS_MAX: usize = 8 * 1024;

// ---- rtvi

/// Bytes of the `id` of a client message, which every response repeats; those of the stock client
/// have 8.
pub const RTVI_ID_BYTES_MAX: usize = 128;
/// Characters of a type or version of the client that an error repeats.
pub const RTVI_ECHO_CHARS_MAX: usize = 64;
/// Characters of the reason for which data was rejected: it names the field and quotes the client.
pub const RTVI_REASON_CHARS_MAX: usize = 200;
/// Keys of one `dtmf` message: each becomes an event, and people dial fewer at once.
pub const RTVI_DTMF_KEYS_MAX: usize = 64;
/// Sentences queued until their audio plays: a long paragraph.
pub const RTVI_SEGMENTS_MAX: usize = 32;
/// Events queued while the bot waits to send: more than arrive in the half second in which its
/// queue drains.
pub const RTVI_EVENTS_WAITING_MAX: usize = 32;

// ---- webrtc

/// Candidates of one peer that are tried: a laptop with VPNs has about ten. A peer that names
/// foreign addresses makes the runner send them connectivity checks: at most 22 a second of 112
/// bytes, about 300 in total (measured).
pub const REMOTE_CANDIDATES_MAX: usize = 32;
/// Candidate pairs that are counted until a connection is established: two local candidates with
/// each candidate of a client.
pub const TRIED_PAIRS_MAX: usize = 64;
/// Lowest port of a candidate: services use the ports below, and must not receive checks of the
/// runner.
pub const PRIVILEGED_PORTS_END: u16 = 1024;
/// DTLS records queued until ICE connects: a ClientHello with post-quantum keys takes two, and may
/// be retransmitted once.
pub const EARLY_RECORDS_MAX: usize = 4;
/// Bytes of one message in either direction: the limit that Pipecat announces and browsers respect.
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024;
/// Bytes of messages that one session buffers for a peer that acknowledges slowly.
pub const SCTP_BUFFER_BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;
/// Data channels that a client may have open; it needs one.
pub const CHANNELS_MAX: usize = 8;
/// Addresses from which a client may check between two ICE restarts: its candidates, and their NAT
/// mappings.
pub const CHECKED_ADDRESSES_MAX: usize = 64;
/// Source addresses of checks, over all ICE restarts of a session, that answered no check of the
/// runner. Each restart leaves about a dozen; the limit stops a sender with forged addresses.
pub const CHECKED_UNPROVEN_MAX: usize = 4 * CHECKED_ADDRESSES_MAX;
/// Connectivity checks that await a response: at 50 ms intervals, those of six seconds.
pub const CHECKS_UNDER_WAY_MAX: usize = 128;
/// Audio SSRCs of one connection over its life; a browser uses one, and str0m keeps all.
pub const AUDIO_SOURCES_MAX: usize = 32;
/// Bytes of one message to a device, which expects a message in a single SCTP chunk.
pub const DEVICE_MESSAGE_BYTES_MAX: usize = 1000;
/// Time from the open channel of a device to the first message: the device loses data that arrives
/// with the acknowledgement.
pub const DEVICE_CHANNEL_SETTLE: Duration = Duration::from_millis(120);
/// Time after DTLS without an INIT of the device, which normally follows at once, after which the
/// runner opens the association. Each unanswered step is repeated after the same time.
pub const DEVICE_SETUP_REPEAT: Duration = Duration::from_millis(500);
/// Longest time between two repeats; each costs one datagram to a device that never answers.
pub const DEVICE_SETUP_REPEAT_MAX: Duration = Duration::from_secs(4);
/// Time from the association until a channel is opened without the request of the device, which is
/// then taken as lost. By then, two COOKIE ACKs may have been lost.
pub const DEVICE_OPEN_AFTER: Duration = Duration::from_millis(1_500);
/// COOKIE ACKs sent to a device that never sends on its channel, as most do.
pub const DEVICE_COOKIE_ACKS_MAX: u32 = 9;
/// Interval of messages to a device: five a second beside its audio.
pub const DEVICE_MESSAGE_INTERVAL: Duration = Duration::from_millis(205);
/// Time from the answer to an established connection with audio; then the session is freed.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(15);
/// Silence of a peer after which the bot is notified; browsers and runner check each other at least
/// every 3 s.
pub const PEER_LOST_AFTER: Duration = Duration::from_secs(6);
/// Silence of a peer after which the session is freed.
pub const PEER_FREED_AFTER: Duration = Duration::from_secs(30);
/// Silence of a peer after which its next packet ends an outage: fifteen audio packets, and longer
/// than a round trip.
pub const OUTAGE_AFTER: Duration = Duration::from_millis(300);
/// Silence of a peer at whose end a check is sent immediately: devices with a keep-alive close 10 s
/// after the last check, and the next scheduled one may be 3 s away. A peer that is checked each
/// second is never silent for so long.
pub const CHECK_AT_ONCE_AFTER: Duration = Duration::from_secs(2);
/// Silence of a peer after which it is checked; a peer that sends audio is never silent for so
/// long.
pub const QUIET_AFTER: Duration = Duration::from_secs(1);
/// Interval of such checks while they are unanswered: the end of an outage is noticed within it.
pub const QUIET_INTERVAL: Duration = Duration::from_millis(500);
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
/// Time that an offer waits for the result of probes: all their checks, and the scheduling delay
/// of a busy machine. Devices wait 10 s for an answer.
pub const PROBE_WITHIN: Duration = Duration::from_millis(2_500);
/// Offers that wait for inquiries; each holds its body. All devices of a home after a power cut
/// fit, and one source may have three quarters of them.
pub const WAITING_OFFERS_MAX: usize = 32;
/// Time that the queued audio of a bot that has returned has to leave.
pub const FINISH_WITHIN: Duration = Duration::from_secs(2);
/// Time that `peerLeft` has to be acknowledged before the connection closes.
pub const GOODBYE_WITHIN: Duration = Duration::from_millis(400);
/// Time of the closing handshakes.
pub const CLOSE_WITHIN: Duration = Duration::from_millis(300);
/// Datagrams queued for one session: 200 packets a second for a third of a second.
pub const SESSION_INBOX_DATAGRAMS: usize = 64;
/// Requests (offers, candidates) queued for one session.
pub const SESSION_REQUESTS: usize = 8;
/// Datagrams per system call; with the few calls of a board, more are never available.
pub const DATAGRAM_BATCH: usize = 8;
/// Bytes that the kernel may coalesce into one read.
pub const DATAGRAM_BATCH_BYTES: usize = 64 * 1024;
/// Bytes of the block into which datagrams are copied for their sessions.
pub const DATAGRAM_ARENA_BYTES: usize = 32 * 1024;
/// Requested receive buffer of the shared socket, in bytes. The kernel doubles it for its
/// bookkeeping; it then holds 70 ms of 50,000 unsolicited packets a second, and takes memory only
/// while packets wait.
pub const DATAGRAM_SOCKET_BYTES: usize = 2 * 1024 * 1024;

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

// ---- TLS

/// Validity of a certificate of `--tls auto`: systems of Apple reject more than 825 days.
pub const CERTIFICATE_VALID: Duration = Duration::from_secs(800 * 86_400);
/// Time before its creation at which a certificate becomes valid: clocks of clients may be slow,
/// and some boards keep local time.
pub const CERTIFICATE_BACKDATED: Duration = Duration::from_secs(2 * 86_400);
/// Validity of the certificate authority: longer than the life of a board, since people install it
/// on every device by hand.
pub const AUTHORITY_VALID: Duration = Duration::from_secs((20 * 365 + 5) * 86_400);
/// Names and addresses in one certificate: those of a machine with a hundred containers, in 2 KiB.
pub const CERTIFICATE_NAMES_MAX: usize = 128;
/// Interval of checks for new addresses of the machine and for the end of the certificate.
pub const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Time that another runner may lock the state folder; it needs milliseconds.
pub const STATE_LOCK_WITHIN: Duration = Duration::from_secs(5);
/// Remaining validity of a certificate from files below which a warning is logged.
pub const CERTIFICATE_LEFT_MIN: Duration = Duration::from_secs(7 * 86_400);
/// Bytes per direction that TLS buffers for a peer that reads slowly: one record.
pub const TLS_BUFFER_BYTES_MAX: usize = 16 * 1024;

// ---- sockets

/// Messages until the telephony provider must be recognised.
pub const HANDSHAKE_MESSAGES_MAX: u32 = 5;
/// Bytes of a message that is stored until the provider is recognised: far more than 20 ms of
/// audio.
pub const EARLY_MESSAGE_BYTES_MAX: usize = 8 * 1024;
/// WebSockets whose provider is not yet recognised: twice the calls of a full runner.
pub const HANDSHAKES_MAX: usize = 64;
/// Age at which such a WebSocket may be evicted: a provider identifies itself within milliseconds,
/// so the oldest of 64 is none.
pub const HANDSHAKES_YIELD_AFTER: Duration = Duration::ZERO;
/// Connections of Media over QUIC that have not named their session: twice the calls of a full
/// runner.
pub const MOQ_UNBOUND_MAX: usize = 64;
/// Those of one source: the callers of an office behind one address.
pub const MOQ_UNBOUND_PER_SOURCE: usize = 16;
/// Age at which such a connection may be evicted: a caller names its session within a second on
/// most networks.
pub const MOQ_UNBOUND_YIELD_AFTER: Duration = Duration::from_secs(3);
/// Evicted connections that are still closing.
pub const MOQ_UNBOUND_ENDING_MAX: usize = 64;
/// Such connections at which new ones have to prove their address first: a flood with forged
/// addresses then costs one datagram each, and callers of an idle runner save a round trip.
pub const MOQ_RETRY_FROM: usize = 8;
/// Evicted WebSockets that are still closing.
pub const HANDSHAKES_ENDING_MAX: usize = 64;
/// Time from the upgrade to a recognised telephony provider.
pub const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// Interval of pings from the runner.
pub const SOCKET_PING_INTERVAL: Duration = Duration::from_secs(20);
/// Time without a message or pong after which the session of a WebSocket is freed.
pub const SOCKET_FREED_AFTER: Duration = Duration::from_secs(60);
/// Time that a caller may leave sent data unread; a phone that stalls for so long has lost its
/// call.
pub const SOCKET_STALL: Duration = Duration::from_secs(10);
/// Time of the closing handshake of a WebSocket.
pub const SOCKET_CLOSE_WITHIN: Duration = Duration::from_millis(500);
/// Time that a WebSocket stays open while the runner hangs up its call: when the socket closes
/// first, the provider continues the script of the call.
pub const HANG_UP_BEFORE_CLOSE: Duration = Duration::from_secs(1);
/// Speech that a plain WebSocket client buffers: it cannot discard any, so the lead is short;
/// without it, playback has gaps.
pub const CLIENT_LEAD: Duration = Duration::from_millis(40);
/// Speech that a telephony provider buffers: it covers network jitter, and `clear` discards it.
pub const CALL_LEAD: Duration = Duration::from_millis(200);
/// Delay from the buffer of a provider to the caller.
pub const CALL_PLAYOUT_MARGIN: Duration = Duration::from_millis(200);
/// Speech of a caller that is stored until the bot sets its input rate.
pub const EARLY_AUDIO: Duration = Duration::from_secs(10);
/// Rate changes of the audio of a client: each creates a new filter, and clients change it at most
/// once.
pub const RATE_CHANGES_MAX: u32 = 16;
/// Send buffer of a WebSocket in the kernel, in bytes. The default of 4 MiB holds minutes of
/// speech, so that a caller that stopped reading would be noticed too late.
pub const SOCKET_SEND_BUFFER_BYTES: usize = 64 * 1024;
/// Hang-up requests in progress beside the live sessions; further ones keep the permit of their
/// session.
pub const HANG_UPS_MAX: usize = 32;
/// Time that a hang-up request has after its socket closed while the runner shuts down; then a
/// warning is logged.
pub const HANG_UP_AT_SHUTDOWN: Duration = Duration::from_millis(500);
/// Bytes that a WebSocket buffers for the network: four of the longest messages, and their framing.
pub const SOCKET_BUFFER_BYTES_MAX: usize = 4 * MESSAGE_BYTES_MAX + 4 * 1024;

// ---- SDP

/// Lines of the SDP of an offer: four sections of a browser with all its codecs take about 600.
pub const SDP_LINES_MAX: usize = 2_000;
/// Media sections of an offer; a stock client has four, and stopped ones remain listed.
pub const SDP_SECTIONS_MAX: usize = 32;
/// Bytes of the name of a section; str0m truncates longer ones silently.
pub const SDP_MID_BYTES_MAX: usize = 16;
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
/// ICE-TCP connections: one per session, and those that a client tries beside it.
pub const ICE_TCP_CONNECTIONS_MAX: usize = 128;
/// ICE-TCP connections of one session: a client tries each offered TCP address once.
pub const ICE_TCP_PER_SESSION_MAX: usize = TCP_ADDRESSES_MAX;
/// ICE-TCP connections of one source address: an eighth, so that eight addresses are needed to fill
/// the limit. Four callers behind one router fit while they connect, a dozen once connected.
pub const ICE_TCP_PER_SOURCE_MAX: usize = ICE_TCP_CONNECTIONS_MAX / 8;
/// Time from the first packet of an ICE-TCP connection to the answer of its session, which follows
/// a valid check within milliseconds.
pub const ICE_TCP_PROVEN_WITHIN: Duration = Duration::from_secs(5);
/// Send buffer of an ICE-TCP connection in the kernel, in bytes: half a second of speech, which is
/// useless later.
pub const ICE_TCP_SEND_BUFFER_BYTES: usize = 8 * 1024;
/// Bytes of one SDP line to a microcontroller, which copies it into 256 bytes without a check.
pub const DEVICE_LINE_BYTES_MAX: usize = 200;
/// Bytes of the JSON body with an answer to a microcontroller, which reads 4096.
pub const DEVICE_BODY_BYTES_MAX: usize = 4_000;

// ---- audio: order of arrival

/// Packets held while an earlier one is missing; more in one gap are a burst, not a reordering.
pub const JITTER_HELD_MAX: usize = 16;
/// Shortest wait for a missing packet: the duration of one packet, so that swapped neighbours are
/// put in order.
pub const JITTER_WAIT_MIN: Duration = Duration::from_millis(20);
/// Longest wait for a missing packet; it adds to the latency of a conversation.
pub const JITTER_WAIT_MAX: Duration = Duration::from_millis(80);
/// Consecutive concealed frames; after 100 ms, concealment is noise.
pub const CONCEALED_FRAMES_MAX: u32 = 5;
/// Distance by which a sequence number may lag before it indicates a restarted sender (RFC 3550
/// appendix A.1).
pub const RTP_MISORDER_MAX: u64 = 100;

// ---- provider REST

/// Time of one request to a provider, from the name resolution to the last byte of the response.
pub const REST_TIMEOUT: Duration = Duration::from_secs(10);
/// Time to connect to one address of a provider: enough for one lost SYN, short enough to leave
/// time for the next address when an IPv6 path is dead.
pub const REST_CONNECT: Duration = Duration::from_secs(3);
/// Addresses of one provider that are tried per request.
pub const REST_ADDRESSES_MAX: usize = 3;
/// Bytes of the head of a response; providers send about 2 KiB.
pub const REST_HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the body of a response: a call or a room takes about 4 KiB.
pub const REST_BODY_BYTES_MAX: usize = 64 * 1024;
/// Pauses before the second and third attempt to hang up: a failing provider usually recovers
/// within a second or two.
pub const HANG_UP_PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(1)];
/// Bytes of the id of a call to hang up; the longest of the providers have about 100.
pub const HANG_UP_ID_BYTES_MAX: usize = 512;
/// Characters of the reason of a provider that are logged.
pub const REST_REASON_CHARS_MAX: usize = 120;
/// Characters of one word of that reason: longer words are ids, keys and paths.
pub const REST_REASON_WORD_CHARS_MAX: usize = 20;
/// Pauses before the further attempts to create a room or a token: the provider limits requests per
/// second.
pub const VIDEOROOM_PAUSES: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];
/// Time to create a room and its token, with all retries: the page waits 15 s for a response.
/// Together with [`HTTP_BODY`] it is within [`HTTP_ANSWER`].
pub const VIDEOROOM_WITHIN: Duration = Duration::from_secs(14);
/// Lifetime of a video room and its token, as in Pipecat.
pub const VIDEOROOM_LIFE: Duration = Duration::from_secs(4 * 3600);
/// Bytes of a video room's URL; names have at most 128.
pub const VIDEOROOM_URL_BYTES_MAX: usize = 2_048;
/// Bytes of a meeting token; with a few properties in it, it has some hundreds.
pub const VIDEOROOM_TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Dial-in calls that are remembered, so that a repeated webhook starts no second bot: more than a
/// board answers in that time.
pub const DIALIN_CALLS_MAX: usize = 256;
/// Bytes of the SIP headers of a dial-in call, as JSON: the provider passes on a few headers of the
/// caller.
pub const DIALIN_HEADERS_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a number or an id of a dial-in call: ids have 36, and a SIP address is longer than a
/// number.
pub const DIALIN_FIELD_BYTES_MAX: usize = 256;
/// Parameters of a webhook's form or query; providers send about 30.
pub const FORM_PAIRS_MAX: usize = 256;
/// Bytes of the number of a caller that is passed on as a parameter; a SIP address is longer than a
/// number.
pub const CALLER_BYTES_MAX: usize = 256;
/// Difference between the timestamp of a signed webhook and the clock, in seconds; the rule of the
/// provider.
pub const SIGNATURE_AGE_MAX_S: u64 = 300;
/// Signatures in one header: one per valid token while tokens are rotated.
pub const SIGNATURES_MAX: usize = 8;

// ---- telephony

/// Bytes of a message that starts a call: ids, numbers, and dozens of parameters of 500 characters.
pub const TELEPHONY_START_BYTES_MAX: usize = 32 * 1024;
/// Bytes of the id of a stream, a call or an account; the longest known have about a hundred.
pub const TELEPHONY_ID_BYTES_MAX: usize = 256;
/// Characters of a word of the peer that an error or the log repeats: its sentence then fits the
/// reason of a close frame.
pub const TELEPHONY_WORD_CHARS_MAX: usize = 20;
/// Bytes of the audio of one message, in base64: a second at 24 kHz; providers send at most a tenth
/// of a second.
pub const TELEPHONY_PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// Audio messages that wait for an earlier one: 60 ms, in which an unordered provider delivers it.
pub const TELEPHONY_REORDERED_MAX: usize = 3;
/// Characters of an error message of a provider that are logged.
pub const TELEPHONY_LOGGED_CHARS_MAX: usize = 500;

// ---- bots

/// One utterance of the parrot: 960 kB at 16 kHz, the largest buffer of a session.
pub const PARROT_UTTERANCE_MAX: Duration = Duration::from_secs(30);
/// Audio before the onset that the parrot includes, so that the first syllable is complete.
pub const PARROT_LEAD: Duration = Duration::from_millis(300);
/// Consecutive speech that starts an utterance; a click is shorter.
pub const PARROT_ONSET: Duration = Duration::from_millis(60);
/// Consecutive speech that interrupts the parrot; the echo of its own speech is shorter.
pub const PARROT_BARGE_IN: Duration = Duration::from_millis(240);
/// Pause that ends an utterance: longer than a pause between words, short enough for a
/// conversation.
pub const PARROT_PAUSE: Duration = Duration::from_millis(700);
/// Part of that pause that is repeated, so that the last sound fades out.
pub const PARROT_TAIL: Duration = Duration::from_millis(200);
/// Shortest speech that is repeated; a cough is shorter.
pub const PARROT_SPOKEN_MIN: Duration = Duration::from_millis(120);
/// Time without audio that ends an utterance: the caller muted or left.
pub const PARROT_GAP: Duration = Duration::from_secs(1);
/// Interval of audio levels.
pub const PARROT_LEVEL_INTERVAL: Duration = Duration::from_millis(200);

// ---- audio: pacing

/// Audio in the pacer; the rest stays in the bot's queue, where an interruption can drop it.
pub const PACER_QUEUE: Duration = Duration::from_millis(100);
/// Time that an incomplete last frame waits for more speech before it is padded with silence:
/// longer than the 100 ms of the longest provider frame, which a bot may echo as it arrives.
pub const UTTERANCE_REST_WAIT: Duration = Duration::from_millis(150);
/// Pause after which the bot counts as silent; shorter ones are between words, or between chunks of
/// a synthesiser.
pub const SPEECH_HANGOVER: Duration = Duration::from_millis(350);

// ---- bots as processes

/// Bytes of `RUNNER_ARGUMENTS`: Linux limits one variable, including its name, to 128 KiB.
pub const PROCESS_ARGUMENTS_BYTES_MAX: usize = 128 * 1024 - 32;
/// Bytes of the `body` among them in a video room: it is checked before the room exists, and room,
/// token and ids need the rest.
pub const PROCESS_BODY_BYTES_MAX: usize = PROCESS_ARGUMENTS_BYTES_MAX - 20 * 1024;
/// Connections to one `media_url` in their handshake before the oldest is evicted: to keep the
/// program out, other connections have to arrive faster than it sends its request.
pub const PROCESS_HANDSHAKES_MAX: usize = 32;
/// Time of such a handshake.
pub const PROCESS_HANDSHAKE: Duration = Duration::from_secs(5);
/// Time from the connection of a program to the first frame to it: the client of Pipecat connects
/// before its pipeline runs.
pub const PROCESS_SETTLE: Duration = Duration::from_millis(250);
/// Bytes of one message of a program: the limit of client libraries, and 20 s of speech.
pub const PROCESS_MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// Bytes per direction that the kernel buffers for the socket of a program: little, to keep the
/// audio recent.
pub const PROCESS_SOCKET_BUFFER_BYTES: u32 = 64 * 1024;
/// Rate of `--bot-audio pcm`, in Hz, without `--bot-rate`: enough for speech.
pub const PROCESS_PCM_RATE_HZ: u32 = 16_000;
/// Bytes that the pipe of a program holds per direction with `--bot-audio pcm`: one page, 128 ms at
/// 16 kHz, to keep the audio recent.
pub const PROCESS_PIPE_BYTES: usize = 4096;
/// Speech of the caller queued for a program, in samples: 10 s at 16 kHz, while the program loads
/// its models.
pub const PROCESS_IN_SAMPLES_MAX: usize = 160_000;
/// Speech of a program queued for its session, in samples: 40 s at 24 kHz, a long answer that is
/// synthesised faster than it plays and can still be interrupted.
pub const PROCESS_OUT_SAMPLES_MAX: usize = 1024 * 1024;
/// Samples into which small frames are merged: 200 ms at 24 kHz.
pub const PROCESS_CHUNK_SAMPLES: usize = 4_800;
/// Marks in that queue: one per sentence.
pub const PROCESS_MARKS_OUT_MAX: usize = 256;
/// Time that a program has to exit after it closed its media.
pub const PROCESS_HANG_UP_GRACE: Duration = Duration::from_secs(2);
/// Time to hand over the queued speech of a program that has exited: the full queue, with a
/// reserve.
pub const PROCESS_DRAIN_WITHIN: Duration = Duration::from_secs(60);
/// Time by which the kill of a program precedes the end of its task, so that the task can report
/// it.
pub const PROCESS_KILL_MARGIN: Duration = Duration::from_millis(250);
/// Time for a killed program to be reaped and its pipes to be read to their end.
pub const PROCESS_REST: Duration = Duration::from_millis(200);
/// Time of the closing handshake with a program.
pub const PROCESS_CLOSE_WITHIN: Duration = Duration::from_millis(500);
/// Interval of checks for the end of a process group, of which the system sends no notification.
pub const PROCESS_GROUP_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes of one log line of a program.
pub const PROCESS_LINE_BYTES_MAX: usize = 2_000;
/// Bytes that a program may log in one burst: a stack trace, and a verbose start.
pub const PROCESS_LOG_BURST_BYTES: usize = 128 * 1024;
/// Bytes per second that a program may log permanently: a few dozen lines, which a memory card
/// endures for years.
pub const PROCESS_LOG_BYTES_PER_S: usize = 8 * 1024;
/// Pause after each read from a program whose lines are dropped, which may still write megabytes
/// per second.
pub const PROCESS_FLOOD_PAUSE: Duration = Duration::from_millis(1);

// ---- rooms

/// Bytes of the name of a room and of the identity of a participant: a stock LiveKit server rejects
/// longer ones.
pub const ROOM_NAME_BYTES_MAX: usize = 256;
/// Time in which an access token admits to a room: the default of the server's libraries. It does
/// not limit the session.
pub const ROOM_TOKEN_LIFE: Duration = Duration::from_secs(6 * 3600);
/// Difference between the clocks of this machine and of a LiveKit server: the tolerance of the
/// server.
pub const ROOM_CLOCK_LEEWAY: Duration = Duration::from_secs(60);
/// Bytes of one message of a LiveKit server: its own limit.
pub const ROOM_MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Participants, tracks and attributes in one such message: 2 MB of memory, and a room of
/// thousands.
pub const ROOM_MESSAGE_PARTS_MAX: usize = 16_384;
/// Participants that a session tracks; larger meetings are not conversations with a bot.
pub const ROOM_PARTICIPANTS_MAX: usize = 256;
/// Bytes of the attributes of one participant; those of a telephone have some hundreds.
pub const ROOM_ATTRIBUTES_BYTES_MAX: usize = 4 * 1024;
/// Audio tracks to which a session subscribes: as many as a connection receives.
pub const ROOM_TRACKS_MAX: usize = ROOM_VOICES_MAX;
/// Departed participants whose delayed updates are recognised and ignored.
pub const ROOM_DEPARTED_MAX: usize = 64;
/// Candidates of the server queued until their connection exists.
pub const ROOM_CANDIDATES_HELD_MAX: usize = REMOTE_CANDIDATES_MAX;
/// Bytes of a token that a LiveKit server renews: it must fit into the head of a request.
pub const ROOM_TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Characters of the text of a LiveKit server that an error repeats.
pub const ROOM_REASON_CHARS_MAX: usize = 200;
/// Interval of pings if the server names none: its default.
pub const ROOM_PING_INTERVAL: Duration = Duration::from_secs(5);
/// Silence after which the server counts as lost, if it names none: its default.
pub const ROOM_PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Ping intervals that a server may set.
pub const ROOM_PING_INTERVAL_RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30);
/// Ping timeouts that a server may set.
pub const ROOM_PING_TIMEOUT_RANGE: RangeInclusive<Duration> = Duration::from_secs(3)..=Duration::from_secs(60);
/// Pauses before the second and third attempt to join a room: a failing server usually recovers
/// within a second or two, and a caller waits.
pub const ROOM_JOIN_PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(1)];
/// Pauses before the attempts to rejoin a room; the last one repeats.
pub const ROOM_REJOIN_PAUSES: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(5),
];
/// Time after the loss of a room in which an attempt to rejoin may begin: the restart of a server
/// and its machine. The last attempt then takes up to [`ROOM_DIAL_WITHIN`] and [`CONNECT_WITHIN`].
pub const ROOM_REJOIN_WITHIN: Duration = Duration::from_secs(60);
/// Times that a session rejoins a room after an unusable session description; the first may be
/// chance.
pub const ROOM_BAD_DESCRIPTIONS_MAX: u32 = 3;
/// Time that a connection must have lasted for its loss to start a new series of attempts.
pub const ROOM_SETTLED: Duration = Duration::from_secs(10);
/// Time after the end of a connection for the reason of the server to arrive: without it, a bot
/// that was replaced would rejoin and replace its successor.
pub const ROOM_REASON_WITHIN: Duration = Duration::from_secs(1);
/// Time from the URL of a room to an open WebSocket, including name resolution and TLS.
pub const ROOM_DIAL_WITHIN: Duration = Duration::from_secs(10);
/// Time that the bot stays in a room without callers, for example while a page reloads.
pub const ROOM_LEAVE_AFTER: Duration = Duration::from_secs(10);
/// Time for the callers of a lost connection to return after the bot has rejoined: stock clients
/// retry for up to 40 s.
pub const ROOM_REGATHER_WITHIN: Duration = Duration::from_secs(40);
/// Texts and keys that callers may send before the bot has joined: a greeting and some impatience.
pub const ROOM_EARLY_MAX: usize = 64;
/// Time that a room waits for its first caller: as long as a started session waits for a
/// connection.
pub const ROOM_FIRST_CALLER_WITHIN: Duration = REGISTERED_UNUSED;
/// Time to leave a room.
pub const ROOM_CLOSE_WITHIN: Duration = Duration::from_millis(400);
/// Bytes of a text to a room: servers read 64 KiB at once from a data channel, including the
/// envelope.
pub const ROOM_TEXT_BYTES_MAX: usize = 60 * 1024;
/// Bytes queued for a LiveKit server: several offers, which are long in a full room.
pub const ROOM_SEND_BYTES_MAX: usize = 512 * 1024;
/// Bytes of the text of a rejection that are read; servers send one line.
pub const ROOM_REFUSAL_BYTES_MAX: usize = 256;

// ---- rooms: peer connections and voices

/// Tracks of a room that a connection receives at once; a larger audience is no conversation.
pub const ROOM_VOICES_MAX: usize = 32;
/// Bytes of the id of a track; those of a stock server have 15.
pub const ROOM_TRACK_BYTES_MAX: usize = 128;
/// Media sections of the offer of a room: one for data, and one for each subscribed track; sections
/// are reused.
pub const ROOM_SDP_SECTIONS_MAX: usize = 288;
/// Lines of such an offer: a section of a stock server has about 25.
pub const ROOM_SDP_LINES_MAX: usize = 40 * ROOM_SDP_SECTIONS_MAX;
/// Bytes of such an offer.
pub const ROOM_SDP_BYTES_MAX: usize = 2 * 1024 * ROOM_SDP_SECTIONS_MAX;
/// SSRCs that one section may announce; a track has one.
pub const ROOM_SECTION_SOURCES_MAX: usize = 4;
/// SSRCs of one connection to a room over its life, since str0m keeps all: a day in a busy room.
pub const ROOM_SOURCES_MAX: usize = 4_096;
/// Silence of the media of a room after which its connection has failed: both ends check each other
/// at least every 3 s.
pub const ROOM_MEDIA_LOST_AFTER: Duration = Duration::from_secs(10);
/// Audio of one track that waits to be mixed with others; beyond it, the oldest is dropped.
pub const MIX_BACKLOG_MAX: Duration = Duration::from_millis(80);
/// Window over which the backlog of a track is observed before its unused part is dropped: longer
/// than usual changes of the network delay.
pub const MIX_WINDOW: Duration = Duration::from_secs(2);

/// 2026-11-01, in seconds since 1970: a clock before this date was never set.
pub const RELEASED_S: u64 = 1_793_491_200;
