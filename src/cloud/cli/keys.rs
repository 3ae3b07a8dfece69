//! The meaning of `cloud keys create`, `list` and `revoke`.
//!
//! What was typed enters; a [`KeysConfig`] leaves. Source: `cloud-interface.md` §1, I-03.

use super::Task;
use super::flags::Typed;
use super::serve::{data_dir, org};
use crate::config::{KeysConfig, KeysTask};
use edge_runner_proto::options::{Env, UsageError, not_unicode};

pub fn create(typed: Typed, _: &Env<'_>, _: &mut Vec<String>) -> Result<Task, UsageError> {
    let Some(kind) = typed.kind else {
        return Err(UsageError::Combination(
            "`cloud keys create` needs `--type private` or `--type public`".into(),
        ));
    };
    let task = KeysTask::Create {
        kind,
        org: org(&typed),
        name: typed.name.clone(),
    };
    keys(typed, task)
}

pub fn list(typed: Typed, _: &Env<'_>, _: &mut Vec<String>) -> Result<Task, UsageError> {
    let task = KeysTask::List { json: typed.json };
    keys(typed, task)
}

pub fn revoke(mut typed: Typed, _: &Env<'_>, _: &mut Vec<String>) -> Result<Task, UsageError> {
    let id = typed.argument.take().unwrap_or_default();
    let task = KeysTask::Revoke(id.into_string().map_err(not_unicode)?);
    keys(typed, task)
}

fn keys(typed: Typed, task: KeysTask) -> Result<Task, UsageError> {
    Ok(Task::Keys(KeysConfig {
        data_dir: data_dir(&typed, "cloud keys")?,
        task,
        verbosity: typed.verbosity,
    }))
}
