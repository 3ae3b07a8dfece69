//! The built-in bots of the stock binary.
//!
//! In: a session's arguments; `--bot` chooses. [`parrot`] repeats what you said once you pause, [`echo`] plays every frame
//! straight back. Both are ordinary bots: they use nothing that a developer's bot cannot use.

mod built_in;
pub mod echo;
pub mod parrot;

pub use built_in::built_in_bot;

/// Why the built-in bots are not in video rooms, and what to do.
pub(crate) const NO_VIDEO_ROOMS: &str = "a video room is entered with its provider's own library, whose protocol is closed; give the \
                                    runner a bot that has it, a program after `--` or one of your own";
