//! Runs the command of `--local-hook`: lights, displays, other programs.
//!
//! In: the state of the sound card. Out: one run of the command per new state, one at a time, with
//! the name of the state as its last argument. States that come and go while it runs are left out,
//! but never the last one.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::commands::{CommandSlots, run_once};
use crate::io::tasks;

/// Time of one run, after which it is ended.
const RUN_WITHIN: Duration = Duration::from_secs(5);

/// What the sound card does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalState {
    /// It waits for a session.
    Listening,
    /// A wake word was said.
    Wake,
    /// A session runs.
    Call,
    /// The microphone is muted.
    Muted,
    /// There is no microphone, or no place for a session.
    Error,
}

impl LocalState {
    fn name(self) -> &'static str {
        match self {
            LocalState::Listening => "listening",
            LocalState::Wake => "wake",
            LocalState::Call => "call",
            LocalState::Muted => "muted",
            LocalState::Error => "error",
        }
    }
}

/// The command, or none. Dropping it and its copies ends its last run.
#[derive(Clone)]
pub struct LocalHook(Option<watch::Sender<Option<LocalState>>>);

impl LocalHook {
    /// Starts with the words of the command, without the variables that are `withheld`.
    pub fn start(words: Option<&[String]>, withheld: &[String], slots: &CommandSlots) -> LocalHook {
        let Some(words) = words.map(<[String]>::to_vec) else {
            return LocalHook(None);
        };
        let (state, mut states) = watch::channel(None::<LocalState>);
        let (withheld, slot) = (withheld.to_vec(), slots.try_acquire());
        tasks::spawn(async move {
            let _slot = slot;
            while states.changed().await.is_ok() {
                let Some(state) = *states.borrow_and_update() else {
                    continue;
                };
                let run = run_once(&words, state.name(), &withheld);
                match timeout(RUN_WITHIN, run).await {
                    Ok(Ok(status)) if status.success() => {}
                    Ok(Ok(status)) => log::warn!("`{}` of --local-hook ended ({status})", words[0]),
                    Ok(Err(error)) => log::warn!("`{}` of --local-hook cannot be started: {error}", words[0]),
                    Err(_) => log::warn!(
                        "`{}` of --local-hook took longer than {RUN_WITHIN:?}, and was ended",
                        words[0]
                    ),
                }
            }
        });
        LocalHook(Some(state))
    }

    /// Handles the state of the sound card.
    pub fn handle_state(&self, state: LocalState) {
        if let Some(states) = &self.0 {
            states.send_if_modified(|known| known.replace(state) != Some(state));
        }
    }
}
