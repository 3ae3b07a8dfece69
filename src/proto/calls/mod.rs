//! Records of calls: who called, what was said, how long answers took, why the call ended and who
//! ended it.
//!
//! `CallRecorder` reads what passes between the session and its bot and makes one record.
//! `CallUpdate` is what a reader of `/calls/events` is sent, and `EventQueue` decides when events
//! are posted to the receiver of `--events`. `CallLog` keeps the records of live calls and of the
//! last ones, within a limit of bytes, and makes the JSON of `GET /calls` and `GET /calls/ID`.
//! `CallBacklog` has what waits for the disk of `--calls-dir`, whose files `files` names.
//! [`CallOutcome`] says how a call ended, and [`CallerVoice`] when the caller last spoke. `sound`
//! mixes both sides: for the files of `--record`, which `recordings` names, and by
//! [`ListenerSound`] for those that listen in.

mod backlog;
mod caller_voice;
pub mod config;
pub mod files;
mod listener_sound;
pub mod listening;
mod log;
pub mod metrics;
mod network_series;
pub mod options;
mod outcome;
mod post;
mod recorder;
pub mod recordings;
pub mod sound;
mod update;

pub use backlog::{CallBacklog, RecordBatch, WaitingRecord, WaitingWrites};
pub use caller_voice::CallerVoice;
pub use listener_sound::ListenerSound;
pub use log::{CallLog, CallQuery, CallQueryError};
pub use outcome::CallOutcome;
pub use post::{EventKind, EventQueue, PostOutcome, PostResult, PostStep, PostedEvent};
pub use recorder::{CallBeginning, CallEnding, CallRecorder};
pub use update::CallUpdate;
