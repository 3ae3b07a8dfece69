//! Limits of rooms: the join, and the peer connections with their voices.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{REGISTERED_UNUSED, REMOTE_CANDIDATES_MAX};

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
/// and its machine. The last attempt then takes up to [`ROOM_DIAL_WITHIN`] and `CONNECT_WITHIN`.
pub const ROOM_REJOIN_WITHIN: Duration = Duration::from_secs(60);
/// Times that a session rejoins a room after an unusable session description; the first may be
/// chance.
pub const ROOM_BAD_DESCRIPTIONS_MAX: u32 = 3;
/// Time that a connection must have lasted for its loss to start a new series of attempts.
pub const ROOM_SETTLED: Duration = Duration::from_secs(10);
/// Time after the end of a connection for the reason of the server to arrive: without it, a bot
/// that was replaced would rejoin and replace its successor.
pub const ROOM_REASON_WITHIN: Duration = Duration::from_secs(1);
/// Time from the URL of a room to an open WebSocket, including name resolution and TLS: a server
/// waits for the node of the room for up to 3, 6 and 9 s before it answers.
pub const ROOM_DIAL_WITHIN: Duration = Duration::from_secs(20);
/// Time for a caller to subscribe to the bot's track, which takes some round trips. Then the bot
/// speaks nevertheless.
pub const ROOM_SUBSCRIBED_WITHIN: Duration = Duration::from_secs(2);
/// Time that the bot stays in a room without callers, for example while a page reloads.
pub const ROOM_LEAVE_AFTER: Duration = Duration::from_secs(10);
/// Time for the callers of a lost connection to return after the bot has rejoined: stock clients
/// retry for up to 40 s.
pub const ROOM_REGATHER_WITHIN: Duration = Duration::from_secs(40);
/// Texts and keys that callers may send before the bot has joined: a greeting and some impatience.
pub const ROOM_EARLY_MAX: usize = 64;
/// Packets that wait for the announcement of their participants; together they have no more bytes
/// than [`MESSAGES_IN_BYTES_MAX`](super::MESSAGES_IN_BYTES_MAX).
pub const ROOM_UNANNOUNCED_MAX: usize = 512;
/// Packets of one such participant: those of an application that sends thirty a second for 4 s.
pub const ROOM_UNANNOUNCED_EACH: usize = 128;
/// Age of data that waits for the announcement of its participant, which servers make within 3 s.
pub const ROOM_ANNOUNCED_WITHIN: Duration = Duration::from_secs(10);
/// Time that a room waits for its first caller: as long as a started session waits for a
/// connection.
pub const ROOM_FIRST_CALLER_WITHIN: Duration = REGISTERED_UNUSED;
/// Validity of the token of one request to a LiveKit server about a room.
pub const ROOM_REQUEST_TOKEN_LIFE: Duration = Duration::from_secs(120);
/// Time to leave a room.
pub const ROOM_CLOSE_WITHIN: Duration = Duration::from_millis(400);
/// Bytes of a text to a room: servers read 64 KiB at once from a data channel, including the
/// envelope.
pub const ROOM_TEXT_BYTES_MAX: usize = 60 * 1024;
/// Bytes of a text that arrives as a stream, such as typed text.
pub const ROOM_STREAM_BYTES_MAX: usize = 64 * 1024;
/// Text streams that participants may have open at once.
pub const ROOM_STREAMS_MAX: usize = 16;
/// Time from the first to the last packet of a text stream.
pub const ROOM_STREAM_WITHIN: Duration = Duration::from_secs(30);
/// Bytes of text in one packet of a stream, as published clients send it.
pub const ROOM_STREAM_CHUNK_BYTES_MAX: usize = 15_000;
/// Silence of the bot, and time without text of it, after which its transcript is complete.
pub const ROOM_TRANSCRIPT_PAUSE: Duration = Duration::from_secs(1);
/// Bytes of the bot's transcript that wait for the end of its turn, if the bot sends no progress.
pub const ROOM_TRANSCRIPT_BYTES_MAX: usize = 16 * 1024;
/// Calls of the bot's methods that wait for its answer.
pub const ROOM_CALLS_MAX: usize = 16;
/// Bytes of the payload of a call and of its answer, as published clients allow them.
pub const ROOM_CALL_BYTES_MAX: usize = 15 * 1024;
/// Time that a caller may give the bot to answer a call.
pub const ROOM_CALL_WITHIN_RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60);
/// Changes of the bot's attributes whose outcome is awaited.
pub const ROOM_UPDATES_MAX: usize = 16;
/// Time between two changes of the bot's state that are shown to a room: each is sent to everybody.
pub const ROOM_STATE_INTERVAL: Duration = Duration::from_millis(200);
/// Time that a model may think. After it, the bot is shown as listening again.
pub const ROOM_THINKING_WITHIN: Duration = Duration::from_secs(60);
/// Time from the end of a model's answer to the bot's speech. After it, the answer has no speech.
pub const ROOM_SPEECH_WITHIN: Duration = Duration::from_secs(5);
/// Time to transfer a telephone call in a room: the server waits for the other end for 30 s.
pub const ROOM_TRANSFER_WITHIN: Duration = Duration::from_secs(40);
/// Time that a transfer waits for the queued speech to be heard: longer than the 40 s that a
/// program may queue.
pub const TRANSFER_SPEECH_WITHIN: Duration = Duration::from_secs(60);
/// Bytes queued for a LiveKit server: several offers, which are long in a full room.
pub const ROOM_SEND_BYTES_MAX: usize = 512 * 1024;
/// Bytes of the text of a rejection that are read; servers send one line.
pub const ROOM_REFUSAL_BYTES_MAX: usize = 256;

// ---- rooms: resumes and paths

/// Pauses before the attempts to resume a connection to a room; the last one repeats. The media may
/// be alive, and the server waits 20 s for a participant whose media is not.
pub const ROOM_RESUME_PAUSES: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(5),
];
/// Interval of checks of the media while there is no signalling.
pub const ROOM_PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// Silence of the media without signalling after which speech waits: three checks are unanswered.
pub const ROOM_PROBE_WITHIN: Duration = Duration::from_millis(1_500);
/// Time for the media after an ICE restart. A server that has announced TCP alone accepts UDP again
/// 5 to 12 s after an attempt.
pub const ROOM_RESTART_WITHIN: Duration = Duration::from_secs(10);
/// Requests to a LiveKit server that are held while there is no signalling.
pub const ROOM_HELD_REQUESTS_MAX: usize = 32;
/// TCP candidates of a LiveKit server to which a connection is opened; a node has one per address.
pub const ROOM_TCP_CANDIDATES_MAX: usize = 4;
/// Time that UDP has before a TCP connection to the server is opened: two checks.
pub const ROOM_TCP_AFTER: Duration = Duration::from_secs(1);
/// The same if the server has offered TCP and no UDP; a UDP candidate would follow at once.
pub const ROOM_TCP_ALONE_AFTER: Duration = Duration::from_millis(100);
/// Time for a TCP connection to a candidate of the server.
pub const ROOM_TCP_CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Time that UDP and TCP have before the first TURN server is asked for a relay.
pub const ROOM_RELAY_AFTER: Duration = Duration::from_secs(2);
/// Time that a TURN server has before the next one is asked too.
pub const ROOM_RELAY_INTERVAL: Duration = Duration::from_secs(1);
/// TURN servers of a room that are asked: over UDP, TCP and TLS.
pub const ROOM_RELAYS_MAX: usize = 3;
/// TCP connections and relays of one peer connection, including those before an ICE restart.
pub const ROOM_PATHS_MAX: usize = ROOM_TCP_CANDIDATES_MAX + ROOM_RELAYS_MAX + 1;
/// Time after which the paths that carry no media are closed: ICE may still change to a better one.
pub const ROOM_PATHS_SETTLED: Duration = Duration::from_secs(5);
/// Failed paths that an error names.
pub const ROOM_PATH_FAILURES_MAX: usize = 6;
/// Packets queued for a path of a room: half a second of audio, and data.
pub const ROOM_PATH_PACKETS_MAX: usize = 64;

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
/// Silence of the media of a room after which the connection is resumed: both ends check each other
/// at least every 3 s.
pub const ROOM_MEDIA_LOST_AFTER: Duration = Duration::from_secs(10);
/// Audio of one track that waits to be mixed with others; beyond it, the oldest is dropped.
pub const MIX_BACKLOG_MAX: Duration = Duration::from_millis(80);
/// Window over which the backlog of a track is observed before its unused part is dropped: longer
/// than usual changes of the network delay.
pub const MIX_WINDOW: Duration = Duration::from_secs(2);
