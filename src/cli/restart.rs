//! The start with settings that the page changed: the process replaces itself by a new one, which
//! takes a change back if it does not start with it.
//!
//! In: what the process was started with, and the file of settings. Out: the same process id with
//! a new program, so that a supervisor, a container and a terminal notice nothing.

#![allow(
    clippy::disallowed_methods,
    reason = "the next process gets the environment and the arguments of this one"
)]

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use edge_runner_http::startup::StartupError;

/// The program, the arguments and the variables of a start.
pub(super) struct ProcessImage {
    name: Option<OsString>,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
}

impl ProcessImage {
    /// Returns those of this process, before it changes its variables.
    pub fn capture() -> ProcessImage {
        let mut arguments = std::env::args_os();
        ProcessImage {
            name: arguments.next(),
            arguments: arguments.collect(),
            variables: std::env::vars_os().collect(),
        }
    }

    /// Replaces the process. Returns only if that fails.
    pub fn start_again(&self) -> StartupError {
        let failed = |error| {
            let step = "starting again with the changed settings; restart the runner";
            StartupError::in_step(step, error)
        };
        let program = match std::env::current_exe() {
            Ok(program) => present(program),
            Err(error) => return failed(error),
        };
        let mut command = Command::new(program);
        if let Some(name) = &self.name {
            command.arg0(name);
        }
        let variables = self.variables.iter().map(|(name, value)| (name, value));
        failed(command.args(&self.arguments).env_clear().envs(variables).exec())
    }
}

/// Returns the path of a program that another file has replaced since it was started. The kernel
/// marks such a path.
fn present(program: PathBuf) -> PathBuf {
    let path = program.as_os_str().as_bytes().strip_suffix(b" (deleted)");
    match path.map(|path| PathBuf::from(OsStr::from_bytes(path))) {
        Some(path) if !program.exists() => path,
        _ => program,
    }
}

cfg_if::cfg_if! {
    if #[cfg(feature = "setup")] {
        use std::cell::Cell;

        use crate::config::Config;
        use crate::io::settings::file::{FoundSettings, SettingsStore};

        /// A start with a changed file of settings, until it has passed or failed.
        #[derive(Default)]
        pub(super) struct Trial(Cell<Option<SettingsStore>>);

        impl Trial {
            /// Begins a start with these settings; `None` if the start before failed with the file.
            /// It was taken back, so the process starts again.
            pub fn begin(config: &Config) -> Option<Trial> {
                let Some(file) = &config.settings_page else {
                    return Some(Trial::default());
                };
                let found = SettingsStore::open(file).and_then(|store| Ok((store.begin()?, store)));
                match found {
                    Ok((FoundSettings::Changed, store)) => Some(Trial(Cell::new(Some(store)))),
                    Ok((FoundSettings::TakenBack, _)) => None,
                    Ok((FoundSettings::Known, _)) => Some(Trial::default()),
                    Err(error) => {
                        log::warn!("`--settings page`: {}: {error}", file.display());
                        Some(Trial::default())
                    }
                }
            }

            /// The runner serves.
            pub fn pass(&self) {
                if let Some(store) = self.0.take()
                    && let Err(error) = store.pass()
                {
                    log::warn!("the changed settings are kept, and not marked as good: {error}");
                }
            }

            /// The runner does not start. Returns whether a changed file was taken back.
            pub fn fail(&self, reason: &str) -> bool {
                let Some(store) = self.0.take() else { return false };
                match store.reject(reason) {
                    Ok(()) => true,
                    Err(error) => {
                        log::error!("taking back the changed settings: {error}");
                        false
                    }
                }
            }
        }
    } else {
        use crate::config::Config;

        /// Nothing changes the file of settings.
        pub(super) struct Trial;

        impl Trial {
            pub fn begin(_: &Config) -> Option<Trial> {
                Some(Trial)
            }

            pub fn pass(&self) {}

            pub fn fail(&self, _: &str) -> bool {
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_program_is_started_again_by_its_path() {
        let folder = edge_runner_http::testing::TempDir::new();
        let (plain, marked) = (folder.path("runner"), folder.path("runner (deleted)"));
        assert_eq!(present(marked.clone()), plain, "an update has replaced it");
        assert_eq!(present(plain.clone()), plain);
        std::fs::write(&marked, "").expect("the folder is the test's");
        assert_eq!(present(marked.clone()), marked, "it is the name of the file");
    }
}
