//! Limits of WebSockets: plain clients, telephone calls, and RTVI messages.

use std::time::Duration;

// ---- sockets

/// Time from the upgrade to a recognised telephony provider.
pub const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// Time from the start of a call, without any audio of a caller who has agreed to send some, to the
/// line that says why. Providers of telephones send silence as audio, on hold too.
pub const CALL_DEAF_AFTER: Duration = Duration::from_secs(5);
/// Bytes of one message to an evaluation, of which the runner holds up to six while the bot does
/// not read: the limit of Pipecat's own server, for pictures in base64.
pub const EVAL_MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Time without a message or pong after which the session of a WebSocket is freed.
pub const SOCKET_FREED_AFTER: Duration = Duration::from_secs(60);

// ---- internal

/// Evaluations at once with messages of [`EVAL_MESSAGE_BYTES_MAX`]; further ones have the limit
/// of any other. A harness that has just ended one begins the next.
pub const EVAL_LONG_MAX: usize = 2;
/// Calls that `POST /calls` dials in a minute: a loop in a client costs little until it is seen.
pub const DIALS_PER_MINUTE_MAX: usize = 30;
/// Time for which an `Idempotency-Key` is kept: longer than clients retry.
pub const DIAL_KEY_KEPT: Duration = Duration::from_secs(3600);
/// Messages until the telephony provider must be recognised.
pub const HANDSHAKE_MESSAGES_MAX: u32 = 5;
/// Bytes of a message that is stored until the provider is recognised: far more than 20 ms of
/// audio.
pub const EARLY_MESSAGE_BYTES_MAX: usize = 8 * 1024;
/// WebSockets whose provider is not yet recognised: twice the calls of a full runner.
pub const HANDSHAKES_MAX: usize = 64;
/// Time of the closing handshake of a WebSocket.
pub const SOCKET_CLOSE_WITHIN: Duration = Duration::from_millis(500);
/// Time that a WebSocket stays open while the runner hangs up its call: when the socket closes
/// first, the provider continues the script of the call.
pub const HANG_UP_BEFORE_CLOSE: Duration = Duration::from_secs(1);
/// Speech of a caller that is stored until the bot sets its input rate.
pub const EARLY_AUDIO: Duration = Duration::from_secs(10);
/// Rate changes of the audio of a client: each creates a new filter, and clients change it at most
/// once.
pub const RATE_CHANGES_MAX: u32 = 16;
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
/// Messages of a provider in a row that are no JSON objects, until its call ends: a fault of a
/// gateway on the way costs a message or two, and who sends nothing else is no provider.
pub const TELEPHONY_UNREADABLE_MAX: u32 = 10;
/// Audio messages that wait for an earlier one: 60 ms, in which an unordered provider delivers it.
pub const TELEPHONY_REORDERED_MAX: usize = 3;
/// Characters of an error message of a provider that are logged.
pub const TELEPHONY_LOGGED_CHARS_MAX: usize = 500;
/// Bytes of the `id` of a client message, which every response repeats; those of the stock client
/// have 8.
pub const RTVI_ID_BYTES_MAX: usize = 128;
/// Characters of a type or version of the client that an error repeats.
pub const RTVI_ECHO_CHARS_MAX: usize = 64;
/// Characters of the reason for which data was rejected: it names the field and quotes the client.
pub const RTVI_REASON_CHARS_MAX: usize = 200;
/// Keys of one `dtmf` message: each becomes an event, and people dial fewer at once.
pub const RTVI_DTMF_KEYS_MAX: usize = 64;
