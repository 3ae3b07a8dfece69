//! Limits of rooms: the join, and the peer connections with their voices.

use std::time::Duration;

use super::REGISTERED_UNUSED;

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
/// Participants that a session tracks; larger meetings are not conversations with a bot.
pub const ROOM_PARTICIPANTS_MAX: usize = 256;
/// Time after the loss of a room in which an attempt to rejoin may begin: the restart of a server
/// and its machine. The last attempt then takes up to `ROOM_DIAL_WITHIN` and `CONNECT_WITHIN`.
pub const ROOM_REJOIN_WITHIN: Duration = Duration::from_secs(60);
/// Time that the bot stays in a room without callers, for example while a page reloads.
pub const ROOM_LEAVE_AFTER: Duration = Duration::from_secs(10);
/// Time that a room waits for its first caller: as long as a started session waits for a
/// connection.
pub const ROOM_FIRST_CALLER_WITHIN: Duration = REGISTERED_UNUSED;
/// Bytes of a text to a room: servers read 64 KiB at once from a data channel, including the
/// envelope.
pub const ROOM_TEXT_BYTES_MAX: usize = 60 * 1024;
/// Bytes of a text that arrives as a stream, such as typed text.
pub const ROOM_STREAM_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the payload of a call and of its answer, as published clients allow them.
pub const ROOM_CALL_BYTES_MAX: usize = 15 * 1024;

// ---- rooms: peer connections and voices

/// Tracks of a room that a connection receives at once; a larger audience is no conversation.
pub const ROOM_VOICES_MAX: usize = 32;

// ---- internal

/// Bytes of one message of a LiveKit server: its own limit.
pub const ROOM_MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Participants, tracks and attributes in one such message: 2 MB of memory, and a room of
/// thousands.
pub const ROOM_MESSAGE_PARTS_MAX: usize = 16_384;
/// Bytes of the attributes of one participant; those of a telephone have some hundreds.
pub const ROOM_ATTRIBUTES_BYTES_MAX: usize = 4 * 1024;
/// Audio tracks to which a session subscribes: as many as a connection receives.
pub const ROOM_TRACKS_MAX: usize = ROOM_VOICES_MAX;
/// Departed participants whose delayed updates are recognised and ignored.
pub const ROOM_DEPARTED_MAX: usize = 64;
/// Bytes of a token that a LiveKit server renews: it must fit into the head of a request.
pub const ROOM_TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Silence after which the server counts as lost, if it names none: its default.
pub const ROOM_PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Pauses before the second and third attempt to join a room: a failing server usually recovers
/// within a second or two, and a caller waits.
pub const ROOM_JOIN_PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(1)];
/// Times that a session rejoins a room after an unusable session description; the first may be
/// chance.
pub const ROOM_BAD_DESCRIPTIONS_MAX: u32 = 3;
/// Time that a connection must have lasted for its loss to start a new series of attempts.
pub const ROOM_SETTLED: Duration = Duration::from_secs(10);
/// Time for a caller to subscribe to the bot's track, which takes some round trips. Then the bot
/// speaks nevertheless.
pub const ROOM_SUBSCRIBED_WITHIN: Duration = Duration::from_secs(2);
/// Time to leave a room.
pub const ROOM_CLOSE_WITHIN: Duration = Duration::from_millis(400);
/// Silence of the bot, and time without text of it, after which its transcript is complete.
pub const ROOM_TRANSCRIPT_PAUSE: Duration = Duration::from_secs(1);
/// Calls of the bot's methods that wait for its answer.
pub const ROOM_CALLS_MAX: usize = 16;
/// Time between two changes of the bot's state that are shown to a room: each is sent to everybody.
pub const ROOM_STATE_INTERVAL: Duration = Duration::from_millis(200);
/// Bytes of the text of a rejection that are read; servers send one line.
pub const ROOM_REFUSAL_BYTES_MAX: usize = 256;
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
/// Requests to a LiveKit server that are held while there is no signalling.
pub const ROOM_HELD_REQUESTS_MAX: usize = 32;
/// TCP candidates of a LiveKit server to which a connection is opened; a node has one per address.
pub const ROOM_TCP_CANDIDATES_MAX: usize = 4;
/// Time that UDP has before a TCP connection to the server is opened: two checks.
pub const ROOM_TCP_AFTER: Duration = Duration::from_secs(1);
/// The same if the server has offered TCP and no UDP; a UDP candidate would follow at once.
pub const ROOM_TCP_ALONE_AFTER: Duration = Duration::from_millis(100);
/// Time that UDP and TCP have before the first TURN server is asked for a relay.
pub const ROOM_RELAY_AFTER: Duration = Duration::from_secs(2);
/// TURN servers of a room that are asked: over UDP, TCP and TLS.
pub const ROOM_RELAYS_MAX: usize = 3;
/// TCP connections and relays of one peer connection, including those before an ICE restart.
pub const ROOM_PATHS_MAX: usize = ROOM_TCP_CANDIDATES_MAX + ROOM_RELAYS_MAX + 1;
/// Time after which the paths that carry no media are closed: ICE may still change to a better one.
pub const ROOM_PATHS_SETTLED: Duration = Duration::from_secs(5);
/// Bytes of the id of a track; those of a stock server have 15.
pub const ROOM_TRACK_BYTES_MAX: usize = 128;
/// Media sections of the offer of a room: one for data, and one for each subscribed track; sections
/// are reused.
pub const ROOM_SDP_SECTIONS_MAX: usize = 288;
/// SSRCs that one section may announce; a track has one.
pub const ROOM_SECTION_SOURCES_MAX: usize = 4;
/// SSRCs of one connection to a room over its life, since str0m keeps all: a day in a busy room.
pub const ROOM_SOURCES_MAX: usize = 4_096;
/// Silence of the media of a room after which the connection is resumed: both ends check each other
/// at least every 3 s.
pub const ROOM_MEDIA_LOST_AFTER: Duration = Duration::from_secs(10);
/// Audio of one track that waits to be mixed with others; beyond it, the oldest is dropped.
pub const MIX_BACKLOG_MAX: Duration = Duration::from_millis(80);
