//! Caps and time limits of the runner, each with its unit and its reason.
//!
//! A number is here if it bounds memory, time, a queue or the log and an operator may want to know
//! it, or if several files use it. A number that one file uses is in that file. The code that uses
//! a limit has a test at the limit and one past it.

use std::ops::RangeInclusive;
use std::time::Duration;

// ---- bot: the contract

/// What upstream bots expect when they ask for no other idle time.
pub const BOT_IDLE: Duration = Duration::from_secs(300);
/// How long a bot may go on after its session ended, before it is aborted.
pub const BOT_GRACE: Duration = Duration::from_secs(10);
/// How long a bot may go on once its session is gone and the runner is stopping.
pub const BOT_GRACE_AT_SHUTDOWN: Duration = Duration::from_secs(1);
/// From the first SIGINT or SIGTERM to the end of the process; a supervisor's patience.
pub const SHUTDOWN_GRACE: Duration = Duration::from_millis(2500);
/// Longest drain that may be asked for: a long call, and within what supervisors can be told to
/// wait.
pub const DRAIN_MAX: Duration = Duration::from_secs(3600);
/// Between two lines that tell how many sessions a drain still waits for.
pub const DRAIN_REPORT: Duration = Duration::from_secs(10);
/// How long tasks may take to be dropped at the very end.
pub const RUNTIME_END: Duration = Duration::from_millis(200);
/// Rates of PCM that a bot may ask for, in Hz: the range of Opus.
pub const RATES_HZ: RangeInclusive<u32> = 8_000..=48_000;
/// Audio frames that wait for a slow bot: a second of them; older speech is worthless.
pub const AUDIO_IN_FRAMES_MAX: usize = 50;
/// The same for a caller on a socket, whose network is no reason to drop speech: 10 s, while a bot
/// loads its models.
pub const SOCKET_IN_FRAMES_MAX: usize = 500;
/// Marks of a bot that are under way: one per sentence of a long speech.
pub const MARKS_MAX: usize = 64;
/// Bytes of a mark's name: some providers cut longer ones.
pub const MARK_BYTES_MAX: usize = 256;
/// Other events that wait for a slow bot: a burst of client messages at the start of a talk fits
/// many times, beside the news of who is in a full room.
pub const EVENTS_IN_MAX: usize = 256 + ROOM_PARTICIPANTS_MAX;
/// Bytes of messages that wait for a slow bot: four of the longest.
pub const MESSAGES_IN_BYTES_MAX: usize = 4 * MESSAGE_BYTES_MAX;
/// Speech that waits to be sent: enough to ride over a bot's own pauses, little enough to stay
/// small.
pub const AUDIO_OUT_QUEUE: Duration = Duration::from_millis(500);
/// Messages that wait for the caller's channel; clients that never open one cost no more than this.
pub const MESSAGES_OUT_MAX: usize = 64;
/// Bytes of messages that wait for the caller's channel: four of the longest.
pub const MESSAGES_OUT_BYTES_MAX: usize = 4 * MESSAGE_BYTES_MAX;

// ---- sessions

/// Live sessions by default: what four slow cores carry with room to spare.
pub const SESSIONS_MAX_DEFAULT: usize = 32;
/// WebRTC sessions that were answered and have not connected: half of the default places, which
/// leaves the other half to callers; all devices of a home that come back at once after a power cut
/// fit.
pub const PENDING_OFFERS_MAX: usize = 16;
/// How long a pending session is left alone before it is evicted for a newcomer whose address holds
/// as many places: a phone that has to go through relays takes four.
pub const PENDING_OFFERS_YIELD_AFTER: Duration = Duration::from_secs(5);
/// Sessions that were evicted and whose bots still end; beyond it none is evicted.
pub const GAVE_WAY_MAX: usize = 32;

// ---- watch: stalls, supervisor

/// Interval of checks for the end of a process group, of which the system sends no notification.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time between two looks that counts: beyond it the whole process was stopped, or its
/// machine slept.
pub const WATCH_GAP_MAX: Duration = Duration::from_secs(1);
/// A runtime that gives no answer for so long has stalled: callers hear the gap, and their networks
/// give up soon.
pub const RUNTIME_STALL: Duration = Duration::from_secs(3);
/// A task that keeps its thread for so long in one turn has stalled; turns take milliseconds.
pub const TURN_STALL: Duration = Duration::from_secs(2);
/// Stalls of one task that the log tells; more of them only count.
pub const TURN_WARNINGS_MAX: u32 = 5;
/// Between two lines that tell the supervisor how many sessions live.
pub const STATUS_INTERVAL: Duration = Duration::from_secs(2);
/// How long one message may wait for a supervisor that reads nothing; the watch sees nothing
/// meanwhile.
pub const NOTIFY_SEND: Duration = Duration::from_millis(100);
/// How long the end waits for the supervisor to have been told of it.
pub const NOTIFY_WITHIN: Duration = Duration::from_millis(200);
/// From the end of the last session to unused memory going back to the system: longer than a client
/// takes to connect again.
pub const MEMORY_GIVEN_BACK_AFTER: Duration = Duration::from_secs(2);

// ---- audio: codec, jitter, pacing

/// Bytes of one encoded 20 ms packet at most: five times what 32 kb/s needs, and below every
/// datagram limit.
pub const OPUS_PACKET_BYTES_MAX: usize = 400;
/// Silent frames that are encoded before the last one's packet is sent again: a device's decoder
/// has come to rest by then.
pub const SILENT_FRAMES_ENCODED: u32 = 35;
/// How hard the Opus encoder tries by default, of 0 (cheap) to 10 (best): what one core of an older
/// board can pay for several callers; above it a voice at 28 kb/s sounds hardly better.
/// `boards/SPEED.md` has the cost of each.
pub const OPUS_COMPLEXITY_DEFAULT: u8 = 3;
/// The hardest that the codec knows (RFC 6716 section 2.1.5).
pub const OPUS_COMPLEXITY_MAX: u8 = 10;
/// Bytes of one received Opus packet at most: what a datagram on an ordinary network can hold.
pub const OPUS_RECEIVED_BYTES_MAX: usize = 1_500;

// ---- crypto: DTLS

/// First wait before a handshake flight is sent again; dimpl varies it by a quarter, so it never
/// exceeds 1 s: a microcontroller gives up after 3 s of silence.
pub const DTLS_RETRANSMIT: Duration = Duration::from_millis(800);

// ---- command line

/// Highest number of live sessions that may be asked for; above it a board has no memory for what
/// is queued.
pub const SESSIONS_MAX_HIGHEST: usize = 4_096;
/// Highest number of worker threads; far above the cores of any board this runs on.
pub const WORKERS_MAX: usize = 64;
/// ICE servers that are passed to clients; browsers already warn at five.
pub const ICE_SERVERS_MAX: usize = 16;
/// URLs of one ICE server: four schemes on two address families.
pub const ICE_URLS_MAX: usize = 8;
/// Networks of trusted proxies: a chain of some, or the ranges of a content network.
pub const TRUSTED_PROXIES_MAX: usize = 64;
/// Further addresses to offer; each is a line in every section of every answer.
pub const ICE_ADDRESSES_MAX: usize = 8;
/// Bytes of an API key: below, it can be guessed; above, it is not a key but a file given by
/// mistake.
pub const API_KEY_BYTES: RangeInclusive<usize> = 16..=512;
/// Bytes of a file with a key or a certificate: a chain with many names has 16 KiB.
pub const KEY_FILE_BYTES_MAX: u64 = 256 * 1024;
/// Bytes of a `.env` file: hundreds of variables and a few keys in PEM form.
pub const ENV_FILE_BYTES_MAX: u64 = 64 * 1024;

// ---- log

/// Characters of one log message: the 5000 of a refused body, its errors, and no more.
pub const LOG_MESSAGE_CHARS_MAX: usize = 8_000;
/// The time over which lines that callers cause are counted.
pub const LINES_WINDOW: Duration = Duration::from_secs(60);
/// Such lines of one address: those of forty sessions.
pub const LINES_PER_CALLER_MAX: u32 = 120;
/// Such lines of all addresses: 100 MB a day at the worst, which a memory card takes for years.
pub const LINES_MAX: u32 = 480;
/// Addresses that are told apart for that; more in a minute share one count.
pub const LOGGED_CALLERS_MAX: usize = 64;

// ---- metrics

/// How often a live session adds what it counted to what a scrape sees; scrapers come every few
/// seconds.
pub const METRICS_INTERVAL: Duration = Duration::from_secs(1);

// ---- doctor

/// One check: a provider that does not answer is given up before.
pub const DOCTOR_CHECK: Duration = Duration::from_secs(15);
/// A name, by a resolver that answers within a second or not at all.
pub const DOCTOR_RESOLVE: Duration = Duration::from_secs(5);
/// Processes that are looked at for who holds a port; a board has some hundreds.
pub const DOCTOR_PROCESSES_MAX: usize = 16_384;
/// Seconds since 1970 beyond which a clock is wrong: 2100.
pub const CLOCK_LATEST_S: u64 = 4_102_444_800;
/// Open files of a runner without callers, and some to spare.
pub const OPEN_FILES_BASE: u64 = 64;
/// Open files of a session: its socket, where it has one of its own.
pub const OPEN_FILES_SESSION: u64 = 1;
/// Open files of a session whose bot is a program: its pipes, its listener, and its media socket.
pub const OPEN_FILES_PROGRAM: u64 = 8;
/// Open files of a session in a media room beside its socket: two UDP ports, each in both families.
pub const OPEN_FILES_ROOM: u64 = 4;
/// Memory of a runner without callers, and as much to spare.
pub const MEMORY_BASE_BYTES: u64 = 16 * 1024 * 1024;
/// Memory of a session: 0.5 MiB while both speak, and as much to spare.
pub const MEMORY_SESSION_BYTES: u64 = 1024 * 1024;

// ---- HTTP

/// Open connections: six of each of forty browsers; the next ones wait in the system's queue.
pub const HTTP_CONNECTIONS_MAX: usize = 256;
/// Bytes of a request's head: cookies of other programs on `localhost` come along, and fill 8 KiB
/// at times.
pub const HTTP_HEAD_BYTES_MAX: usize = 32 * 1024;
/// Header lines of a request; browsers send about twenty.
pub const HTTP_HEADERS_MAX: usize = 100;
/// Bytes of a JSON body: twenty times a long offer.
pub const HTTP_BODY_BYTES_MAX: usize = 256 * 1024;
/// Bytes of a body above its cap that are read and thrown away, so that its sender gets to read the
/// refusal.
pub const HTTP_DISCARD_BYTES_MAX: usize = 1024 * 1024;
/// From the first byte of a request to the end of its head.
pub const HTTP_HEAD: Duration = Duration::from_secs(10);
/// From a new connection to the end of its first request's head, with TLS before it: three round
/// trips over the worst network.
pub const HTTP_FIRST_HEAD: Duration = Duration::from_secs(8);
/// From the end of the head to the last byte of the response.
pub const HTTP_BODY: Duration = Duration::from_secs(8);
/// From the last answer on a connection to the next request; longer than a proxy's usual 60 s.
pub const HTTP_IDLE: Duration = Duration::from_secs(75);
/// How long a client may leave an answer unread.
pub const HTTP_STALL: Duration = Duration::from_secs(10);
/// From the end of the head to the last byte of the response.
pub const HTTP_ANSWER: Duration = Duration::from_secs(30);
/// How long a client may take to close its side once the runner closed its own.
pub const HTTP_LINGER: Duration = Duration::from_secs(1);
/// How long requests in progress may go on once the runner is stopping.
pub const HTTP_GRACE: Duration = Duration::from_secs(1);
/// First pause after a failed accept; it doubles with each failure in a row.
pub const ACCEPT_PAUSE_FIRST: Duration = Duration::from_millis(10);
/// Longest pause between accepts: when the process is out of files, a second is soon enough.
pub const ACCEPT_PAUSE_MAX: Duration = Duration::from_millis(1_280);
/// Errors in a row for which a reader of datagrams does not pause: an answer of the network to
/// something sent, for each of a batch.
pub const READ_ERRORS_FREE: u32 = 10;
/// First pause after more of them; it doubles with each.
pub const READ_PAUSE_FIRST: Duration = Duration::from_millis(10);
/// Longest pause: a try a second costs nothing, and a socket that works again is soon used again.
pub const READ_PAUSE_MAX: Duration = Duration::from_secs(1);
/// What `Retry-After` says, in seconds: sessions end every few seconds on a runner that is full.
pub const RETRY_AFTER_S: u32 = 5;

// ---- bodies of requests

/// Bytes of the SDP in an offer: all codecs and candidates of a browser with many interfaces take
/// about 20 KiB.
pub const OFFER_SDP_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a `pc_id`; those that the runner makes are far shorter.
pub const PC_ID_BYTES_MAX: usize = 128;
/// Candidates in one PATCH: a batch of 200 ms with a dozen interfaces and four sections.
pub const CANDIDATES_MAX: usize = 128;
/// Bytes of one candidate line; the longest that browsers make are about 250.
pub const CANDIDATE_BYTES_MAX: usize = 512;
/// Bytes of a media section's name.
pub const MID_BYTES_MAX: usize = 64;
/// Bytes of a transport's name in `/start`; the longest name has eleven.
pub const TRANSPORT_BYTES_MAX: usize = 64;
/// Bytes of the name behind an endpoint, and of a session's id in a path: theirs are shorter.
pub const ENDPOINT_NAME_BYTES_MAX: usize = 64;
/// Characters of a `User-Agent` that the bot is told: browsers send some 150.
pub const USER_AGENT_CHARS_MAX: usize = 256;
/// Problems that one 422 tells.
pub const PROBLEMS_MAX: usize = 16;
/// Characters of a refused body that are logged.
pub const LOGGED_BODY_CHARS_MAX: usize = 5_000;
/// Refused bodies that are logged per [`LINES_WINDOW`]: a broken client repeats itself.
pub const LOGGED_BODIES_MAX: u32 = 30;

// ---- forms with parts

/// Bytes of a form's boundary: RFC 2046 allows no more.
pub const BOUNDARY_BYTES_MAX: usize = 70;
/// Bytes of names and values before the file of a form: S3's bound. A grant's fields have about two
/// thousand.
pub const FIELDS_BYTES_MAX: usize = 20_000;
/// Bytes of the header of a part of a form: the longest file name, percent-encoded twice, and some
/// lines more.
pub const PART_HEAD_BYTES_MAX: usize = 4 * 1024;
/// Bytes of a form outside its file: fields, headers of parts, and delimiters. A sender that
/// declares more than this above the largest file is rejected early.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;

// ---- registered sessions

/// Sessions that `/start` made, used or not.
pub const REGISTERED_MAX: usize = 4_096;
/// Bytes of all bodies that are kept for them.
pub const REGISTERED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Sessions of those that one source address may have: a quarter, so that one address shuts no
/// other out.
pub const REGISTERED_SHARE_MAX: usize = REGISTERED_MAX / 4;
/// Bytes of bodies that one source address may have: four of the longest.
pub const REGISTERED_SHARE_BYTES_MAX: usize = REGISTERED_BYTES_MAX / 4;
/// How long such a session is left alone before it gives way to a new one of a source that holds as
/// much: clients connect within a second, people who are asked for their microphone within some.
pub const REGISTERED_YIELDS_AFTER: Duration = Duration::from_secs(30);
/// How long a session that is never used stays valid.
pub const REGISTERED_UNUSED: Duration = Duration::from_secs(300);

// ---- tokens of WebSockets

/// How long a token is good: as long as the session that it may belong to.
pub const TOKEN_LIFE: Duration = REGISTERED_UNUSED;
/// Bytes of a token; those of sessions have about 190.
pub const TOKEN_BYTES_MAX: usize = 256;
/// Tokens, a bit each, of which it is known whether they were used; past that the oldest expire
/// early. 1 MiB, and 28,000 tokens a second for [`TOKEN_LIFE`], which is more than `/start`
/// answers.
pub const TOKENS_KEPT_MAX: usize = 8 * 1024 * 1024;
/// Telephone calls and signed webhooks whose token is remembered: some 4,000 calls, a day of three
/// a minute, in a megabyte. Only signed webhooks are remembered, so others cannot fill it.
pub const CALLS_REMEMBERED_MAX: usize = 8 * 1024;

// ---- rtvi

/// Bytes of the `id` of a client's message, which every answer repeats; the stock client's have 8.
pub const RTVI_ID_BYTES_MAX: usize = 128;
/// Characters of a peer's word, a type or a version, that an error repeats.
pub const RTVI_ECHO_CHARS_MAX: usize = 64;
/// Characters of the reason why data was refused: it names the field, and quotes the peer.
pub const RTVI_REASON_CHARS_MAX: usize = 200;
/// Keys of one `dtmf` message: each becomes an event, and this is more than one dials in one go.
pub const RTVI_DTMF_KEYS_MAX: usize = 64;
/// Sentences that wait until the bot's voice is heard: a long paragraph.
pub const RTVI_SEGMENTS_HELD_MAX: usize = 32;
/// Events that wait in a talk while its bot is sending: more than come in the half second that a
/// queue takes to drain.
pub const RTVI_EVENTS_WAITING_MAX: usize = 32;

// ---- webrtc

/// Candidates of one peer that are tried: a laptop with VPNs has about ten. A peer that names
/// foreign addresses makes the runner send them checks: at most 22 a second, of 112 bytes, and
/// about 300 until the session is given up (measured).
pub const REMOTE_CANDIDATES_MAX: usize = 32;
/// Pairs of addresses that are counted until a connection is up: two of ours with each candidate of
/// a client.
pub const TRIED_PAIRS_MAX: usize = 64;
/// First port that a candidate may have: below it are services, which the runner must not be made
/// to send to.
pub const PRIVILEGED_PORTS_END: u16 = 1024;
/// Handshake records that wait for ICE: a ClientHello with post-quantum keys takes two, and one may
/// come again.
pub const EARLY_RECORDS_MAX: usize = 4;
/// Bytes of one message, either way: what the reference announces, and what browsers keep to.
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024;
/// Bytes of messages that one session holds for a peer that acknowledges slowly.
pub const SCTP_BUFFER_BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;
/// Channels that a client may have open; it needs one.
pub const CHANNELS_MAX: usize = 8;
/// Addresses that a client may check from between two restarts of ICE: its candidates, and what
/// networks make of them.
pub const CHECKED_ADDRESSES_MAX: usize = 64;
/// Addresses that a session may be checked from, over its life and all restarts of ICE, that answer
/// no check of ours: a client's answer, so a dozen are left over at each of many restarts. Who
/// forges source addresses gets no further.
pub const CHECKED_UNPROVEN_MAX: usize = 4 * CHECKED_ADDRESSES_MAX;
/// Connectivity checks of ours that wait for their answer: 50 ms apart, those of six seconds.
pub const CHECKS_UNDER_WAY_MAX: usize = 128;
/// Sources of sound that one connection may go through; a browser keeps to one, and str0m forgets
/// none.
pub const AUDIO_SOURCES_MAX: usize = 32;
/// Bytes of one message to a device: it takes one SCTP chunk for a whole message.
pub const DEVICE_MESSAGE_BYTES_MAX: usize = 1000;
/// From a device's channel being open to the first message: what comes with the acknowledgement is
/// lost.
pub const DEVICE_CHANNEL_SETTLE: Duration = Duration::from_millis(120);
/// Between DTLS and an association of this end's making, where the device's own INIT does not come:
/// it follows the handshake at once. As long until a step that is not answered is repeated.
pub const DEVICE_SETUP_REPEAT: Duration = Duration::from_millis(500);
/// The longest time between two repeats, which a device that never answers costs one datagram each.
pub const DEVICE_SETUP_REPEAT_MAX: Duration = Duration::from_secs(4);
/// From the association to a channel that a device's lost request would have opened. The request
/// follows at once; until then two COOKIE ACKs may have been lost.
pub const DEVICE_OPEN_AFTER: Duration = Duration::from_millis(1_500);
/// COOKIE ACKs that a device gets which says nothing on its channel, as most do.
pub const DEVICE_COOKIE_ACKS_MAX: u32 = 9;
/// Between two messages to a device: five a second beside its audio.
pub const DEVICE_MESSAGE_INTERVAL: Duration = Duration::from_millis(205);
/// From the answer to a connection that carries audio; then the session is freed.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(15);
/// Silence of a peer after which the bot is told; browsers and runner check each other at least
/// every 3 s.
pub const PEER_LOST_AFTER: Duration = Duration::from_secs(6);
/// Silence of a peer after which the session is freed.
pub const PEER_FREED_AFTER: Duration = Duration::from_secs(30);
/// Silence of a peer whose end is that of an outage: fifteen packets of its sound, and longer than
/// an answer takes.
pub const OUTAGE_AFTER: Duration = Duration::from_millis(300);
/// Silence of a peer at whose end a check leaves at once: devices with a keep-alive close 10 s
/// after the last one that reached them, and the next one in its turn may be 3 s away. One that is
/// asked each second is not silent so long.
pub const CHECK_AT_ONCE_AFTER: Duration = Duration::from_secs(2);
/// Silence of a peer after which it is asked whether it is there: one that sends sound is never
/// silent so long.
pub const QUIET_AFTER: Duration = Duration::from_secs(1);
/// Between two such questions that are not answered: the end of an outage is noticed within it.
pub const QUIET_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time between two checks of a peer, heard or not. str0m checks every 3 s as long as it is
/// answered; some devices close 10 s after the last check.
pub const CHECK_INTERVAL_MAX: Duration = Duration::from_millis(3_500);
/// Questions of an inquiry that a session leaves unanswered before its place may be given to
/// another. With the time between them 1.76 s: longer than a gap of a Wi-Fi of 1.5 s that begins
/// with the inquiry, and a device that was reset still is connected within 2 s of its offer.
pub const INQUIRY_CHECKS: u32 = 8;
/// Between two of them: a device takes some ten datagrams a second beside its sound.
pub const INQUIRY_INTERVAL: Duration = Duration::from_millis(220);
/// How long an offer waits for what inquiries find: all their questions, and a turn of a busy
/// machine. Devices wait 10 s for an answer.
pub const INQUIRY_WITHIN: Duration = Duration::from_millis(2_500);
/// Offers that wait so; each holds its body. All devices of a home that lost its power fit, and one
/// source may have three quarters of them.
pub const WAITING_OFFERS_MAX: usize = 32;
/// How long the last words of a bot that has ended may take to leave.
pub const FINISH_WITHIN: Duration = Duration::from_secs(2);
/// How long `peerLeft` may take to be acknowledged before the connection closes.
pub const GOODBYE_WITHIN: Duration = Duration::from_millis(400);
/// How long the closing handshakes may take.
pub const CLOSE_WITHIN: Duration = Duration::from_millis(300);
/// Datagrams that wait for one session: 200 packets a second for a third of a second.
pub const SESSION_INBOX_DATAGRAMS: usize = 64;
/// Requests (offers, candidates) that wait for one session.
pub const SESSION_REQUESTS: usize = 8;
/// Datagrams per call of the kernel; more would not be there on a board's few calls.
pub const DATAGRAM_BATCH: usize = 8;
/// Bytes that the kernel may join into one read.
pub const DATAGRAM_BATCH_BYTES: usize = 64 * 1024;
/// Bytes of the block that datagrams are copied to for their sessions.
pub const DATAGRAM_ARENA_BYTES: usize = 32 * 1024;
/// Bytes that the kernel is asked to buffer for the shared socket. It doubles them for its own
/// bookkeeping; that holds 50,000 unsolicited packets a second for some 70 ms, and uses memory only
/// while they wait.
pub const DATAGRAM_SOCKET_BYTES: usize = 2 * 1024 * 1024;

// ---- gathering: STUN and TURN servers that the runner itself uses

/// STUN servers that are asked; browsers already warn at five, and two agree.
pub const STUN_SERVERS_MAX: usize = 8;
/// TURN servers at which the runner holds an allocation; each is a line in every answer.
pub const RELAYS_MAX: usize = 4;
/// Server-reflexive addresses in one answer: more than one only behind several networks.
pub const REFLEXIVE_OFFERED_MAX: usize = 4;
/// Relayed addresses in one answer: one per family of each relay.
pub const RELAYED_OFFERED_MAX: usize = 2 * RELAYS_MAX;
/// Looking one server's name up; a resolver tries its own servers for about 5 s each.
pub const GATHER_RESOLVE: Duration = Duration::from_secs(5);
/// Addresses of one server that are tried before it counts as failed.
pub const GATHER_ADDRESSES_MAX: usize = 4;
/// First pause after a server failed, as all do while a board waits for its network; it doubles
/// with each failure in a row.
pub const GATHER_PAUSE_FIRST: Duration = Duration::from_secs(1);
/// Longest pause between two tries of a server: soon enough for one that comes back, too rare to be
/// a burden.
pub const GATHER_PAUSE_MAX: Duration = Duration::from_secs(300);
/// How long a server must have worked for its next failure to count as the first.
pub const GATHER_SETTLED: Duration = Duration::from_secs(60);
/// First wait before a request to a STUN or TURN server is sent again (RFC 8489 section 6.2.1); it
/// doubles each time.
pub const STUN_RETRANSMIT: Duration = Duration::from_millis(500);
/// How often one request is sent: with a fifth of all datagrams lost, one request of sixty goes
/// without an answer.
pub const STUN_TRANSMISSIONS: u32 = 4;
/// How long the answer to the last of them is waited for; with the waits before, 5 s.
pub const STUN_LAST_WAIT: Duration = Duration::from_millis(1500);
/// Between two signs of life to a server: a NAT may forget a mapping after 30 s.
pub const STUN_KEEP_ALIVE: Duration = Duration::from_secs(25);
/// Requests in a row without an answer after which what a server gave is given up.
pub const STUN_UNANSWERED_MAX: u32 = 2;
/// Peers that one relay may send to: the candidates of as many sessions as there may be by default.
pub const RELAY_PEERS_MAX: usize = 1024;
/// Silence towards a peer after which its permission is let lapse; a live connection is checked
/// every few seconds.
pub const RELAY_PEER_IDLE: Duration = Duration::from_secs(60);
/// The same for a peer that was never heard, when the table is full: a reachable peer answers the
/// first checks.
pub const RELAY_PEER_UNHEARD: Duration = Duration::from_secs(5);
/// Silence towards a peer after which it is forgotten: longer than its permission and its channel
/// live.
pub const RELAY_PEER_FORGOTTEN: Duration = Duration::from_secs(20 * 60);
/// How long no permission is asked for after the relay refused one.
pub const RELAY_REFUSED: Duration = Duration::from_secs(30);
/// Requests to a relay whose answers are looked at for errors; the oldest are forgotten first.
pub const RELAY_REQUESTS_MAX: usize = 64;
/// Datagrams of all sessions that wait for one relay: a third of a second of eight calls.
pub const RELAY_QUEUE_DATAGRAMS: usize = 128;
/// Bytes that wait for a relay behind a TCP connection; older speech is worthless, so what does not
/// fit is dropped.
pub const RELAY_STREAM_BYTES_MAX: usize = 32 * 1024;
/// Bytes of one read from a relay: the longest datagram.
pub const RELAY_READ_BYTES: usize = 64 * 1024;
/// Connecting to one address of a relay, and TLS on top.
pub const RELAY_CONNECT: Duration = Duration::from_secs(5);
/// How long giving an allocation back may take when the runner ends.
pub const RELAY_END: Duration = Duration::from_millis(200);
/// Characters that the log repeats of a server's reason.
pub const GATHER_REASON_CHARS_MAX: usize = 60;
/// How long `doctor` waits for one server.
pub const GATHER_PROBE: Duration = Duration::from_secs(3);

// ---- TLS

/// How long a certificate of `--tls auto` is valid: Apple's systems refuse more than 825 days.
pub const CERTIFICATE_VALID: Duration = Duration::from_secs(800 * 86_400);
/// How far before its making that time begins: clients' clocks are behind at times, and some boards
/// keep local time.
pub const CERTIFICATE_BACKDATED: Duration = Duration::from_secs(2 * 86_400);
/// How long the authority is valid that signs it: longer than a board lives, since every device has
/// to trust it by hand.
pub const AUTHORITY_VALID: Duration = Duration::from_secs((20 * 365 + 5) * 86_400);
/// Names and addresses in one certificate: a machine with a hundred containers, in 2 KiB.
pub const CERTIFICATE_NAMES_MAX: usize = 128;
/// Interval of checks for the end of a process group, of which the system sends no notification.
pub const CERTIFICATE_LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// How long another runner may keep the folder with certificates to itself; it needs milliseconds.
pub const STATE_LOCK_WITHIN: Duration = Duration::from_secs(5);
/// Time that a certificate of files should have left; with less, the log warns.
pub const CERTIFICATE_LEFT_MIN: Duration = Duration::from_secs(7 * 86_400);
/// Bytes of each direction that TLS holds for a connection whose peer reads slowly: one record.
pub const TLS_BUFFER_BYTES_MAX: usize = 16 * 1024;

// ---- sockets

/// Messages until the telephony provider is recognised.
pub const HANDSHAKE_MESSAGES_MAX: u32 = 5;
/// Bytes of a message that is kept for a provider to be recognised: far more than 20 ms of audio.
pub const EARLY_MESSAGE_BYTES_MAX: usize = 8 * 1024;
/// Sockets whose provider is not recognised yet: twice the calls of a full runner.
pub const HANDSHAKES_MAX: usize = 64;
/// How long such a socket is left alone before it gives way to a newcomer: a provider says who it
/// is within milliseconds, so the oldest of so many is none.
pub const HANDSHAKES_YIELD_AFTER: Duration = Duration::ZERO;
/// Sockets that gave way and still close.
pub const HANDSHAKES_ENDING_MAX: usize = 64;
/// From the upgrade to a recognised telephony provider.
pub const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// Between two pings of the runner.
pub const SOCKET_PING_INTERVAL: Duration = Duration::from_secs(20);
/// Silence of a socket, with neither a message nor a pong, after which its session is freed.
pub const SOCKET_FREED_AFTER: Duration = Duration::from_secs(60);
/// How long a caller may leave unread what was sent; a phone that stalls so long has lost its call
/// anyway.
pub const SOCKET_STALL: Duration = Duration::from_secs(10);
/// How long the closing handshake of a socket may take.
pub const SOCKET_CLOSE_WITHIN: Duration = Duration::from_millis(500);
/// How long a socket stays open for its call to be hung up first: else the provider goes on with
/// the rest of its script.
pub const HANG_UP_BEFORE_CLOSE: Duration = Duration::from_secs(1);
/// Speech that a plain client holds unplayed: it cannot be told to stop, so little; a gap is worse,
/// so not nothing.
pub const CLIENT_LEAD: Duration = Duration::from_millis(40);
/// Speech that a telephony provider holds unplayed: it rides over the network's moods, and `clear`
/// empties it.
pub const CALL_LEAD: Duration = Duration::from_millis(200);
/// The delay between a provider's buffer and its caller.
pub const CALL_PLAYOUT_MARGIN: Duration = Duration::from_millis(200);
/// Speech that is kept of a caller until the bot says at which rate it listens.
pub const EARLY_AUDIO: Duration = Duration::from_secs(10);
/// Changes of the rate of a client's audio: each makes a new filter, and no client changes it
/// twice.
pub const RATE_CHANGES_MAX: u32 = 16;
/// Bytes that the system may hold of what a socket was sent: its own choice, 4 MiB, is minutes of
/// speech before a caller that stopped reading is noticed.
pub const SOCKET_SEND_BUFFER_BYTES: usize = 64 * 1024;
/// Hang-ups that wait for their provider beside the live sessions; beyond it they keep their
/// session's place.
pub const HANG_UPS_MAX: usize = 32;
/// How long the hang-up of a call may go on once its socket is gone and the runner is stopping;
/// then the log tells.
pub const HANG_UP_AT_SHUTDOWN: Duration = Duration::from_millis(500);
/// Bytes that wait in a socket's buffer for the network: four of the longest messages, and what
/// they are wrapped in.
pub const SOCKET_BUFFER_BYTES_MAX: usize = 4 * MESSAGE_BYTES_MAX + 4 * 1024;

// ---- SDP

/// Lines of an offer's SDP: four sections of a browser with every codec it has take about 600.
pub const SDP_LINES_MAX: usize = 2_000;
/// Media sections of an offer; a stock client has four, and stopped ones stay in the list for ever.
pub const SDP_SECTIONS_MAX: usize = 32;
/// Bytes of a section's name, which str0m would cut without a word.
pub const SDP_MID_BYTES_MAX: usize = 16;
/// Bytes of a peer's ICE user name fragment: with ours of 16 it makes a user name, of which str0m
/// writes at most 128.
pub const ICE_UFRAG_BYTES_MAX: usize = 100;
/// Bytes of a peer's ICE password; the range of RFC 8839.
pub const ICE_PWD_BYTES_MAX: usize = 256;
/// Candidates that are taken from one offer: those of a machine with many interfaces, once per
/// section.
pub const OFFER_CANDIDATES_MAX: usize = 64;
/// Addresses that an answer offers: each is a line in every section, and a round of checks for the
/// peer.
pub const LOCAL_ADDRESSES_MAX: usize = 16;
/// Addresses that an answer offers over TCP: the way in when UDP has none, so the first few will
/// do.
pub const TCP_ADDRESSES_MAX: usize = 4;
/// Bytes of one packet on a connection: the longest that a path of Ethernet carries as a datagram,
/// and room to spare.
pub const FRAMED_BYTES_MAX: usize = 4 * 1024 - 1;
/// Connections of callers that come over TCP: one per session, and those that a client tries beside
/// it.
pub const ICE_TCP_CONNECTIONS_MAX: usize = 128;
/// Those of one session: a client tries each address that is offered over TCP once.
pub const ICE_TCP_PER_SESSION_MAX: usize = TCP_ADDRESSES_MAX;
/// Those of one source address: an eighth of all, so that it takes eight addresses to fill them.
/// Four callers behind one router have as many as they try at once, and a dozen more as many as
/// they keep.
pub const ICE_TCP_PER_SOURCE_MAX: usize = ICE_TCP_CONNECTIONS_MAX / 8;
/// From such a connection's first packet to the answer of its session: a right check is answered
/// within milliseconds.
pub const ICE_TCP_PROVEN_WITHIN: Duration = Duration::from_secs(5);
/// Bytes that the system may hold of what such a connection was sent: half a second of speech,
/// which is worthless after that.
pub const ICE_TCP_SEND_BUFFER_BYTES: usize = 8 * 1024;
/// Bytes of one line to a microcontroller, which copies it into 256 bytes without looking.
pub const DEVICE_LINE_BYTES_MAX: usize = 200;
/// Bytes of the JSON body with an answer to a microcontroller, which reads 4096.
pub const DEVICE_BODY_BYTES_MAX: usize = 4_000;

// ---- audio: order of arrival

/// Packets held back at most while an earlier one is missing; more than this in one gap is a burst,
/// not a reordering.
pub const JITTER_HELD_MAX: usize = 16;
/// Shortest wait for a missing packet: one packet's time, so that a swap of neighbours costs
/// nothing.
pub const JITTER_WAIT_MIN: Duration = Duration::from_millis(20);
/// Longest wait for a missing packet; a talk feels every millisecond of it.
pub const JITTER_WAIT_MAX: Duration = Duration::from_millis(80);
/// Frames made up for one gap at most; after 100 ms concealment is only noise.
pub const CONCEALED_FRAMES_MAX: u32 = 5;
/// How far behind a sequence number may be before it hints at a restarted sender (RFC 3550 appendix
/// A.1).
pub const RTP_MISORDER_MAX: u64 = 100;

// ---- provider REST

/// One request to a provider: from looking its name up to the last byte of the answer.
pub const REST_TIMEOUT: Duration = Duration::from_secs(10);
/// One address of a provider: long enough for a lost SYN, short enough that a dead IPv6 path leaves
/// time for the next.
pub const REST_CONNECT: Duration = Duration::from_secs(3);
/// Addresses of one provider that are tried within a request.
pub const REST_ADDRESSES_MAX: usize = 3;
/// Bytes of an answer's head; providers send about 2 KiB.
pub const REST_HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes of an answer's body: a call or a room takes about 4 KiB.
pub const REST_BODY_BYTES_MAX: usize = 64 * 1024;
/// Pauses before the second and the third try to hang up: a provider that stumbles is back within a
/// second or two.
pub const HANG_UP_PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(1)];
/// Bytes of the id of a call that is hung up; the longest that providers make have about 100.
pub const HANG_UP_ID_BYTES_MAX: usize = 512;
/// Characters that a log line repeats of a provider's reason.
pub const REST_REASON_CHARS_MAX: usize = 120;
/// Characters of one word in that: longer ones are ids, keys and paths.
pub const REST_REASON_WORD_CHARS_MAX: usize = 20;
/// Pauses before each of the further tries for a room and for a token: the provider counts requests
/// by the second.
pub const VIDEOROOM_PAUSES: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];
/// A room and its token, with all retries: the page waits 15 s for a response, and a later room is
/// useless. With the time for a request's body before it, it is within [`HTTP_ANSWER`].
pub const VIDEOROOM_WITHIN: Duration = Duration::from_secs(14);
/// Lifetime of a video room and its token, as in Pipecat.
pub const VIDEOROOM_LIFE: Duration = Duration::from_secs(4 * 3600);
/// Bytes of a video room's URL; names have at most 128.
pub const VIDEOROOM_URL_BYTES_MAX: usize = 2_048;
/// Bytes of a meeting token; with a few properties in it, it has some hundreds.
pub const VIDEOROOM_TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Calls to video rooms that are remembered, so that none gets two bots: more than any board takes
/// within that time.
pub const DIALIN_CALLS_MAX: usize = 256;
/// Bytes of the SIP headers of such a call, as JSON: the provider passes on a few of a caller's
/// own.
pub const DIALIN_HEADERS_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a number or an id of a call to a video room; the ids have 36, an address of SIP is
/// longer than a number.
pub const DIALIN_FIELD_BYTES_MAX: usize = 256;
/// Parameters of a webhook's form or query; providers send about 30.
pub const FORM_PAIRS_MAX: usize = 256;
/// Bytes of a caller's number that is passed on as a parameter; a SIP address is longer than a
/// number.
pub const CALLER_BYTES_MAX: usize = 256;
/// Seconds that a signed webhook may be older or newer than this machine's clock; the provider's
/// own rule.
pub const SIGNATURE_AGE_MAX_S: u64 = 300;
/// Signatures that one header lists: one per token that is valid while tokens change.
pub const SIGNATURES_MAX: usize = 8;

// ---- telephony

/// Bytes of a message that may open a call: ids, numbers, and dozens of parameters of 500
/// characters.
pub const TELEPHONY_START_BYTES_MAX: usize = 32 * 1024;
/// Bytes of a stream's, a call's or an account's id; the longest known are about a hundred.
pub const TELEPHONY_ID_BYTES_MAX: usize = 256;
/// Characters of a peer's word that an answer or the log repeats: with its sentence it fits the
/// reason of a close.
pub const TELEPHONY_WORD_CHARS_MAX: usize = 20;
/// Bytes of one message's audio, in base64: a second at 24 kHz, while providers send a tenth of one
/// at most.
pub const TELEPHONY_PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// Messages with audio that wait for an earlier one: 60 ms, within which a provider that keeps no
/// order gets things right.
pub const TELEPHONY_REORDERED_MAX: usize = 3;
/// Characters that are logged of a provider's complaint.
pub const TELEPHONY_LOGGED_CHARS_MAX: usize = 500;

// ---- bots

/// One utterance that the parrot keeps: 960 kB at 16 kHz, the largest thing a session can hold.
pub const PARROT_UTTERANCE_MAX: Duration = Duration::from_secs(30);
/// What the parrot keeps from before it noticed speech, so that the first syllable is whole.
pub const PARROT_LEAD: Duration = Duration::from_millis(300);
/// Speech in a row that starts an utterance; a click is shorter.
pub const PARROT_ONSET: Duration = Duration::from_millis(60);
/// Speech in a row that interrupts the parrot; what its own voice leaves in the caller's microphone
/// is shorter.
pub const PARROT_BARGE_IN: Duration = Duration::from_millis(240);
/// Pause that ends an utterance: longer than one between words, short enough to feel like an
/// answer.
pub const PARROT_PAUSE: Duration = Duration::from_millis(700);
/// What is repeated of that pause, so that the last sound fades.
pub const PARROT_TAIL: Duration = Duration::from_millis(200);
/// Speech that is worth repeating; a cough is shorter.
pub const PARROT_SPOKEN_MIN: Duration = Duration::from_millis(120);
/// Time without any audio that ends an utterance: the caller muted, or left.
pub const PARROT_GAP: Duration = Duration::from_secs(1);
/// Between two audio levels.
pub const PARROT_LEVEL_INTERVAL: Duration = Duration::from_millis(200);

// ---- audio: pacing

/// PCM that the pacer holds: the caller keeps the rest, where an interruption or a slow bot can
/// still reach it.
pub const PACER_QUEUE: Duration = Duration::from_millis(100);
/// How long the rest of an utterance waits for what may follow before it is filled up with silence:
/// longer than the 100 ms between two frames of the provider with the longest, which a bot may send
/// back as they come.
pub const UTTERANCE_REST_WAIT: Duration = Duration::from_millis(150);
/// Pause after which the bot has stopped speaking; shorter ones are between words, or between
/// chunks of a synthesiser.
pub const SPEECH_HANGOVER: Duration = Duration::from_millis(350);

// ---- bots as processes

/// Bytes of `RUNNER_ARGUMENTS`: Linux takes 128 KiB for one variable, its name included.
pub const PROCESS_ARGUMENTS_BYTES_MAX: usize = 128 * 1024 - 32;
/// Bytes of the `body` among them in a video room: it is held against this before there is a room,
/// and room, token and ids need the rest.
pub const PROCESS_BODY_BYTES_MAX: usize = PROCESS_ARGUMENTS_BYTES_MAX - 20 * 1024;
/// Connections to one `media_url` that may be in their handshake, before the oldest gives way: the
/// program's own, and strays, which have to come faster than it asks to keep it out.
pub const PROCESS_HANDSHAKES_MAX: usize = 32;
/// How long such a handshake may take.
pub const PROCESS_HANDSHAKE: Duration = Duration::from_secs(5);
/// From a program's connection to the first frame to it: Pipecat's client connects before its
/// pipeline runs.
pub const PROCESS_SETTLE: Duration = Duration::from_millis(250);
/// Bytes of one message of a program: what a client library sends at most, and 20 s of speech.
pub const PROCESS_MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// Bytes that the system may hold per direction of a program's socket: little, so that what is
/// heard and said is recent.
pub const PROCESS_SOCKET_BUFFER_BYTES: u32 = 64 * 1024;
/// The rate of `--bot-audio pcm`, in Hz, where `--bot-rate` names no other: what speech needs.
pub const PROCESS_PCM_RATE_HZ: u32 = 16_000;
/// Bytes that the system may hold per direction of a program's standard streams in raw mode: one
/// page, 128 ms at 16 kHz, so that what is heard and said is recent.
pub const PROCESS_PIPE_BYTES: usize = 4096;
/// Speech of the caller that waits for a program, in samples at 16 kHz: 10 s, while it starts and
/// loads its models.
pub const PROCESS_HEARD_SAMPLES_MAX: usize = 160_000;
/// Speech that a program is ahead of its session, in samples: 40 s at 24 kHz, a long answer that is
/// made faster than spoken and may still be interrupted.
pub const PROCESS_AHEAD_SAMPLES_MAX: usize = 1024 * 1024;
/// Samples that small frames are joined to: 200 ms at 24 kHz.
pub const PROCESS_CHUNK_SAMPLES: usize = 4_800;
/// Marks among that speech: one per sentence.
pub const PROCESS_MARKS_AHEAD_MAX: usize = 256;
/// How long a program may take to end by itself once it closed its media.
pub const PROCESS_HANG_UP_GRACE: Duration = Duration::from_secs(2);
/// How long what a program said before it ended may take to be handed over: all that may wait, and
/// a little.
pub const PROCESS_LAST_WORDS: Duration = Duration::from_secs(60);
/// How much earlier than its task a program is ended by force, so that the task can tell.
pub const PROCESS_KILL_MARGIN: Duration = Duration::from_millis(250);
/// How long a killed program may take to be gone, and what is still in its pipes to be read.
pub const PROCESS_REST: Duration = Duration::from_millis(200);
/// How long the closing handshake with a program may take.
pub const PROCESS_CLOSE_WITHIN: Duration = Duration::from_millis(500);
/// Interval of checks for the end of a process group, of which the system sends no notification.
pub const PROCESS_GROUP_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes of one line of a program in the log.
pub const PROCESS_LINE_BYTES_MAX: usize = 2_000;
/// Bytes that a program may log in one burst: a stack trace, and a chatty start.
pub const PROCESS_LOG_BURST_BYTES: usize = 128 * 1024;
/// Bytes per second that a program may log for ever: a few dozen lines, which a memory card takes
/// for years.
pub const PROCESS_LOG_BYTES_PER_S: usize = 8 * 1024;
/// Pause after each read of a program whose lines are dropped: it may still write megabytes per
/// second.
pub const PROCESS_FLOOD_PAUSE: Duration = Duration::from_millis(1);

// ---- rooms

/// Bytes of a room's name and of a participant's identity: a stock media-room server refuses longer
/// ones.
pub const ROOM_NAME_BYTES_MAX: usize = 256;
/// How long an access token is good for joining: the default of the server's own libraries. Who is
/// in the room stays.
pub const ROOM_TOKEN_LIFE: Duration = Duration::from_secs(6 * 3600);
/// How far apart the clocks of this machine and of a media-room server may be: what the server
/// grants.
pub const ROOM_CLOCK_LEEWAY: Duration = Duration::from_secs(60);
/// Bytes of one message of a media-room server: its own maximum.
pub const ROOM_MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Participants, tracks, attributes and the like in one such message: 2 MB of memory, and a room of
/// thousands.
pub const ROOM_MESSAGE_PARTS_MAX: usize = 16_384;
/// Participants that a session tracks; larger meetings do not talk with a bot.
pub const ROOM_PARTICIPANTS_MAX: usize = 256;
/// Bytes of one participant's attributes that are kept: a telephone's have some hundreds.
pub const ROOM_ATTRIBUTES_BYTES_MAX: usize = 4 * 1024;
/// Audio tracks that a session subscribes to: as many as a connection listens to.
pub const ROOM_TRACKS_MAX: usize = ROOM_VOICES_MAX;
/// Participants that left and whose late news is told from a new one's.
pub const ROOM_DEPARTED_MAX: usize = 64;
/// Candidates of the server that wait for their connection to be made.
pub const ROOM_CANDIDATES_HELD_MAX: usize = REMOTE_CANDIDATES_MAX;
/// Bytes of a token that a media-room server renews: it has to stand in a request's head.
pub const ROOM_TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Characters that an error repeats of what a media-room server says.
pub const ROOM_REASON_CHARS_MAX: usize = 200;
/// Between two pings when the server names no time: its own default.
pub const ROOM_PING_INTERVAL: Duration = Duration::from_secs(5);
/// The same for the silence after which it is gone.
pub const ROOM_PING_TIMEOUT: Duration = Duration::from_secs(15);
/// What a server may ask for between two pings.
pub const ROOM_PING_INTERVAL_RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30);
/// What a server may ask for as its silence.
pub const ROOM_PING_TIMEOUT_RANGE: RangeInclusive<Duration> = Duration::from_secs(3)..=Duration::from_secs(60);
/// Pauses before the second and the third try to enter a room: a server that stumbles is back
/// within a second or two, and a caller waits.
pub const ROOM_JOIN_PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(1)];
/// Pauses before each try to come back into a room; the last one holds for all that follow.
pub const ROOM_BACK_PAUSES: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(5),
];
/// How long after the loss of a room a try to come back into it may begin: the restart of a server
/// and its machine. The last one has its own time beyond that, [`ROOM_DIAL_WITHIN`] and
/// [`CONNECT_WITHIN`].
pub const ROOM_BACK_WITHIN: Duration = Duration::from_secs(60);
/// How often a session comes back into a room of which it could not use a description: once may be
/// chance.
pub const ROOM_MISUNDERSTOOD_MAX: u32 = 3;
/// How long a stay must have lasted for its end to count as the first in a row.
pub const ROOM_SETTLED: Duration = Duration::from_secs(10);
/// How long after a connection's end the server may take to say why: else a bot that was replaced
/// would come back, and replace.
pub const ROOM_REASON_WITHIN: Duration = Duration::from_secs(1);
/// From a room's URL to an open WebSocket, the look-up of its name and TLS included.
pub const ROOM_DIAL_WITHIN: Duration = Duration::from_secs(10);
/// How long a room without callers is stayed in, as after a reload of a page.
pub const ROOM_EMPTY: Duration = Duration::from_secs(10);
/// How long those who were in a room before the connection was lost may take to come back as well,
/// once we are: the published clients try for up to 40 s.
pub const ROOM_REGATHER: Duration = Duration::from_secs(40);
/// Texts and keys that callers may send before the bot has joined: a hello, and what follows from
/// impatience.
pub const ROOM_EARLY_MAX: usize = 64;
/// How long a room waits for its first caller: as long as a started session waits for a connection.
pub const ROOM_NOBODY: Duration = REGISTERED_UNUSED;
/// How long saying goodbye to a room may take.
pub const ROOM_CLOSE_WITHIN: Duration = Duration::from_millis(400);
/// Bytes of a text to a room: the servers read 64 KiB at once from a data channel, and its envelope
/// needs some.
pub const ROOM_TEXT_BYTES_MAX: usize = 60 * 1024;
/// Bytes that wait to be read by a media-room server: some offers, which are long in a full room.
pub const ROOM_SEND_BYTES_MAX: usize = 512 * 1024;
/// Bytes of a refusal's text that are looked at; servers send one line.
pub const ROOM_REFUSAL_BYTES_MAX: usize = 256;

// ---- rooms: peer connections and voices

/// Tracks of a room that a connection listens to at once; a bot that has more people in front of it
/// than these needs a stage, not a talk.
pub const ROOM_VOICES_MAX: usize = 32;
/// Bytes of a track's id; a stock server's have 15.
pub const ROOM_TRACK_BYTES_MAX: usize = 128;
/// Media sections of a room's offer: one for data, one for each track that is subscribed to, which
/// are used again, and some more.
pub const ROOM_SDP_SECTIONS_MAX: usize = 288;
/// Lines of the same: a section of a stock server has about 25.
pub const ROOM_SDP_LINES_MAX: usize = 40 * ROOM_SDP_SECTIONS_MAX;
/// Bytes of the same.
pub const ROOM_SDP_BYTES_MAX: usize = 2 * 1024 * ROOM_SDP_SECTIONS_MAX;
/// Sources that one section may announce; a track has one.
pub const ROOM_SECTION_SOURCES_MAX: usize = 4;
/// Sources that one connection to a room may go through, since str0m forgets none: a day in a busy
/// room.
pub const ROOM_SOURCES_MAX: usize = 4_096;
/// Silence of a room's media after which its connection has failed: both ends check each other at
/// least every 3 s.
pub const ROOM_MEDIA_LOST_AFTER: Duration = Duration::from_secs(10);
/// How much of a voice waits at most for others to be mixed with: past it, what is oldest is
/// dropped.
pub const MIX_HELD_MAX: Duration = Duration::from_millis(80);
/// Over how long what waits of a voice is watched, before some of it counts as too much: longer
/// than a talk's turns of network.
pub const MIX_WATCHED: Duration = Duration::from_secs(2);

/// 2026-11-01: a clock before this date was never set.
pub const RELEASED_S: u64 = 1_793_491_200;
