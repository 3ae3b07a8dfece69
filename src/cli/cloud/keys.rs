//! The meaning of `cloud keys create`, `list` and `revoke`.
//!
//! What was typed enters; a [`KeysConfig`] leaves. Source: `cloud-interface.md` §1, I-03.

use super::Task;
use super::serve::{data_dir, org};
use crate::cli::flags::Typed;
use crate::cli::{Misuse, Surroundings, not_unicode};
use crate::config::cloud::{KeysConfig, KeysTask};

pub fn create(typed: Typed, _: &Surroundings<'_>, _: &mut Vec<String>) -> Result<Task, Misuse> {
    let Some(kind) = typed.cloud.kind else {
        return Err(Misuse::Combination(
            "`cloud keys create` needs `--type private` or `--type public`".into(),
        ));
    };
    let task = KeysTask::Create {
        kind,
        org: org(&typed),
        name: typed.cloud.name.clone(),
    };
    keys(typed, task)
}

pub fn list(typed: Typed, _: &Surroundings<'_>, _: &mut Vec<String>) -> Result<Task, Misuse> {
    let task = KeysTask::List { json: typed.cloud.json };
    keys(typed, task)
}

pub fn revoke(mut typed: Typed, _: &Surroundings<'_>, _: &mut Vec<String>) -> Result<Task, Misuse> {
    let id = typed.argument.take().unwrap_or_default();
    let task = KeysTask::Revoke(id.into_string().map_err(not_unicode)?);
    keys(typed, task)
}

fn keys(typed: Typed, task: KeysTask) -> Result<Task, Misuse> {
    Ok(Task::Keys(KeysConfig {
        data_dir: data_dir(&typed, "cloud keys")?,
        task,
        verbosity: typed.verbosity,
    }))
}
