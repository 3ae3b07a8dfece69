//! `edge-runner call`: a caller for tests and for a first evening, without I/O.
//!
//! In: a [`CallPlan`] (what the caller says, and what it expects), the bot's audio and messages,
//! and `now`. Out, through [`CallConversation::poll_output`]: 20 ms of the caller's voice at a
//! time, keys, texts, observations with their times, and the end of the call; at the end a
//! [`CallVerdict`]. All audio is `i16` mono PCM at [`RATE_HZ`]; the transport converts it.

pub mod checked_step;
pub mod conversation;
pub mod figures;
pub mod junit;
pub mod observation;
pub mod plan;
pub mod playout;
pub mod provider_webhook;
pub mod recording;
pub mod rtvi_messages;
pub mod scenario;
pub mod socket_frames;
pub mod socket_protocol;
pub mod sound;
pub mod sound_card;
pub mod target;
pub mod telephone;
pub mod turns;
pub mod words;

pub use checked_step::{CheckedStep, StepOutcome, StepResult};
pub use conversation::{CallConversation, CallVerdict, ConversationOutput};
pub use observation::CallObservation;
pub use plan::{CallExpectations, CallPlan, PlannedStep, StepSource};
pub use recording::StereoRecording;
pub use scenario::Scenario;
pub use sound::PlannedSound;
pub use words::WordPattern;

use std::time::Duration;

/// The rate of all audio of a conversation, in Hz.
pub const RATE_HZ: u32 = 16_000;
/// Samples of one frame.
pub const FRAME_SAMPLES: usize = RATE_HZ as usize / 50;
/// The length of one frame.
pub const FRAME: Duration = Duration::from_millis(20);

/// The longest call and the longest recording.
pub const CALL_SECONDS_MAX: u64 = 3_600;
/// Calls of one run.
pub const CALLS_MAX: u64 = 500;
/// The longest sound that a caller plays in one step.
pub const SOUND_SECONDS_MAX: u64 = 600;
/// Steps of one call.
pub const STEPS_MAX: usize = 100;
