//! One run of the builder command.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::proto::cloud::build::{Build, Image};

/// What a run needs to know.
pub struct Job {
    pub build: Build,
    pub archive: Box<dyn io::Read + Send>,
    /// `scratch/{id}-{attempt}`, which the run makes and removes.
    pub scratch: PathBuf,
    /// `images/{id}`, which the run makes if it keeps an image.
    pub images: PathBuf,
    pub command: Arc<[OsString]>,
    pub limits: Limits,
    /// `PATH`, `LANG` and what `--builder-env` names.
    pub env: Vec<(OsString, OsString)>,
    /// Called when the command has ended, before what it left is put away: from then on, whoever asks for the build waits for what
    /// became of it.
    pub over: Box<dyn FnOnce() + Send>,
}

/// Bounds of a run.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub timeout: Duration,
    pub grace: Duration,
    /// Bytes.
    pub unpacked_max: u64,
    pub entries_max: u64,
}

/// How a run ended. Its scratch folder and its process group are gone by then.
#[derive(Debug)]
pub enum Ran {
    Success(Image),
    Failed(String),
    TimedOut(String),
    /// The service stops.
    Interrupted,
}

/// Runs.
pub async fn run(job: Job, log: super::log::Log, stop: crate::bot::Shutdown) -> Ran {
    let _ = (job, log, stop);
    Ran::Interrupted
}
