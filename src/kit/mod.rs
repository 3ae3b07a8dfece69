//! Building blocks for bots of your own.
//!
//! | Part | In | Out |
//! |---|---|---|
//! | [`TurnDetector`] | audio of the caller | where speech begins and ends, barge-in |
//! | [`SentenceSplitter`] | streamed text | whole sentences |
//! | [`Transcript`] | texts of both sides | the last of them |
//! | [`FunctionCalls`] | calls of functions by a model, results | one output for each call |
//! | [`DigitCollector`] | keys of a telephone | collected [`Digits`] |
//! | [`RateConverter`] | samples at one rate | samples at another rate, as a stream |
//! | [`Wav`], [`write_wav`] | a file | samples, and the reverse |
//! | [`tones()`], [`dtmf_tone`] | frequencies, keys | samples |
//! | [`Recorder`] | speech of both sides | a WAV file |
//! | [`play`], [`play_tones`] | a file, tones | speech of the bot |
//! | [`PhoneCall`] | a number, keys | a transfer, keys to the caller |
//! | [`PromptVoice`] | a text | its speech, by the runner's voice |
//!
//! Those without I/O have no clock of their own: they count audio, or are told the time. PCM is
//! 16-bit mono. [`Output::hang_up`](crate::bot::Output::hang_up) ends a call with a reason.

mod player;

cfg_if::cfg_if! {
    if #[cfg(feature = "telephony")] {
        mod phone_call;

        pub use edge_runner_proto::call_control::CallControlError;
        pub(crate) use phone_call::CallAccess;
        pub use phone_call::PhoneCall;
    }
}
cfg_if::cfg_if! {
    if #[cfg(feature = "assistants")] {
        pub use crate::bots::assistant::prompts::PromptVoice;
        pub use crate::proto::assistant::prompts::PromptError;
    }
}

pub use edge_runner_proto::kit::*;
pub use player::{play, play_tones};
