//! Limits of the built-in bots that use services.

use std::ops::RangeInclusive;
use std::time::Duration;

// ---- bots that use services

/// Length of a session in minutes: services end theirs after 60.
pub const ASSISTANT_MINUTES: RangeInclusive<u64> = 1..=55;
/// Silence that ends a session, in seconds.
pub const ASSISTANT_IDLE_S: RangeInclusive<u64> = 10..=3_600;
/// Time that a caller waits for a service that fails, in seconds.
pub const ASSISTANT_PATIENCE_S: RangeInclusive<u64> = 1..=300;
/// Pause in milliseconds that ends a turn of the caller.
pub const CASCADE_END_OF_TURN_MS: RangeInclusive<u64> = 300..=2_000;
/// Tokens of one answer of a chat model.
pub const CHAT_TOKENS: RangeInclusive<u32> = 16..=32_768;
/// Bytes of the instructions of a bot: some thousand words.
pub const ASSISTANT_INSTRUCTIONS_BYTES_MAX: usize = 16 * 1024;
/// Length of the sound that a caller hears when an assistant fails, beside its two notes.
pub const ASSISTANT_FAILURE_SOUND_MAX: Duration = Duration::from_secs(20);
/// Functions that `--tools` may declare: more confuse a model, and each costs tokens in every turn.
pub const TOOLS_FUNCTIONS_MAX: usize = 32;
/// Bytes of their declaration, and of a line of the program: some pages of descriptions.
pub const TOOLS_FUNCTIONS_BYTES_MAX: usize = 64 * 1024;
/// Time from the start of the program, or of the request, to the declaration: a program in Python
/// imports its libraries for 20 s on a small board.
pub const TOOLS_DECLARE_WITHIN: Duration = Duration::from_secs(30);
/// Time that a function may take, wherever it runs: a caller does not wait longer.
pub const FUNCTION_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of the output of a function: what a model can use in a conversation.
pub const FUNCTION_OUTPUT_BYTES_MAX: usize = 16 * 1024;

// ---- internal

/// Bytes of one message of a service: a minute of speech at 24 kHz in base64. Published services
/// send parts of a second.
pub const ASSISTANT_MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes queued for a service: 16 s of speech, more than a connection that is alive ever holds up.
pub const ASSISTANT_SEND_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of the answer of a service that refuses a connection: an error in JSON.
pub const ASSISTANT_REFUSAL_BYTES_MAX: usize = 16 * 1024;
/// Time for the rest of the last answer to be heard before the call ends: a long answer.
pub const ASSISTANT_LAST_SPEECH_WITHIN: Duration = Duration::from_secs(70);
/// Calls of functions that wait at once in a session.
pub const FUNCTION_CALLS_MAX: usize = 16;
