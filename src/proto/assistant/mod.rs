//! Assistants: the built-in bots that talk by the services of others.
//!
//! - [`config`]: their settings; [`service_url`]: the URL of a service; [`body`]: what `/start` may
//!   change
//! - [`realtime`]: the engine of a session with a speech-to-speech service; [`cascade`]: that of a
//!   session with a recogniser, a chat model and a voice; [`report`]: what they tell
//! - [`services`]: recognisers, chat models and voices
//! - [`prompts`]: texts that other bots let the voice say
//! - [`reasoning_marks`]: how a chat model marks what it thinks
//! - [`functions`]: what models call; [`tools`]: functions of a program or of an HTTP endpoint
//! - [`answer_stopwatch`]: how long an answer took
//! - `keypad`, `lifetime`, `outage`, `playback`, `press_keys`, `sound`: what engines share

pub mod answer_stopwatch;
pub mod body;
pub mod cascade;
pub mod config;
pub mod functions;
mod keypad;
mod lifetime;
pub mod options;
mod outage;
mod playback;
mod press_keys;
pub mod prompts;
pub mod realtime;
pub mod reasoning_marks;
pub mod report;
pub mod service_url;
pub mod services;
mod sound;
pub mod tools;
