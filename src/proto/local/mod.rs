//! The sound card of this machine as a caller: `--local`.
//!
//! A pair of commands reads the microphone and plays to the loudspeaker, both as 16-bit signed
//! little-endian PCM. [`capture`] turns what the microphone's command writes into an even stream of
//! mono PCM; [`playout`] paces the bot's speech for the loudspeaker; [`session`] joins both with a
//! bot; [`speech`] finds speech. [`starting`] decides when a session begins, `wake` is the client
//! of a service for wake words, [`supervision`] decides when a command is started again, and
//! [`console`] reads the terminal and writes what was said. [`attempts`] has the pauses after
//! failures, and [`echo`] removes the sound of the loudspeaker from the microphone. [`tones`] are
//! the tones of a session, [`keys`] reads the keys of devices, [`controls`] has what the user has
//! set, [`stop_words`] end a session, [`command`] splits the text of a command into words,
//! [`listing`] lists microphones and loudspeakers, and [`sound_test`] tests them for a page.
//! [`meter`] shows the levels of both sides. [`kernel`] is for cards that no command opens, and
//! [`doctor`] looks for what is missing.

pub mod attempts;
pub mod capture;
pub mod command;
pub mod config;
pub mod console;
pub mod controls;
pub mod direction;
pub mod doctor;
pub mod echo;
pub mod kernel;
pub mod keys;
pub mod listing;
pub mod meter;
pub mod options;
pub mod playout;
pub mod session;
pub mod sound_test;
pub mod speech;
pub mod starting;
pub mod stop_words;
pub mod supervision;
pub mod tones;
pub mod wake;
