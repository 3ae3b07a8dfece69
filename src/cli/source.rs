//! Reads the settings again while the runner runs: the files anew, and the arguments and variables
//! with which the process was started.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use edge_runner_http::common::lock;

use super::surroundings::{env, make_key, read_bytes, read_file, surroundings};
use super::{CliCommand, Env, ProgramIdentity, parse_for};
use crate::config::Config;
use crate::io::reload::SettingsSource;
use crate::limits::OPTION_FILE_BYTES_MAX;

/// What the process was started with.
pub(super) struct StartSource {
    pub program: ProgramIdentity,
    pub process: BTreeMap<String, String>,
    pub arguments: Vec<OsString>,
    /// The file of settings that the page changes.
    pub file: Option<PathBuf>,
    /// Warnings that were logged.
    pub warned: Mutex<Vec<String>>,
}

impl StartSource {
    /// Returns the configuration and the warnings of a start, with a text in place of the file of
    /// settings.
    pub(super) fn start(&self, text: Option<&str>) -> Result<(Config, Vec<String>), String> {
        self.with(text, |env, skipped| {
            match parse_for(&self.program, self.arguments.clone(), env) {
                Ok(CliCommand::Serve { config, warnings }) => Ok((*config, [skipped, warnings].concat())),
                Ok(_) => Err("they start no runner".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        })
    }

    /// Calls `work` with the surroundings of a start, and the warnings about skipped lines.
    pub(super) fn with<T>(
        &self,
        text: Option<&str>,
        work: impl FnOnce(&Env<'_>, Vec<String>) -> Result<T, String>,
    ) -> Result<T, String> {
        let surroundings = surroundings(self.process.clone(), &self.arguments).map_err(|error| error.message)?;
        let read = |path: &str| match (text, &self.file) {
            (Some(text), Some(file)) if file.as_path() == Path::new(path) => {
                read_bytes(text.as_bytes(), OPTION_FILE_BYTES_MAX)
            }
            _ => read_file(path),
        };
        let env = Env {
            read: &read,
            ..env(surroundings.variables, &make_key)
        };
        work(&env, surroundings.warnings)
    }
}

impl SettingsSource for StartSource {
    fn read(&self) -> Result<(Config, Vec<String>), String> {
        let (config, all) = self.start(None)?;
        let earlier = std::mem::replace(&mut *lock(&self.warned), all.clone());
        let is_new = |warning: &String| !earlier.contains(warning);
        Ok((config, all.into_iter().filter(is_new).collect()))
    }
}
