//! Resolves the arguments of `cloud keys create`, `list` and `revoke`.
//!
//! In: [`CloudArgs`]. Out: a [`KeysConfig`] or a usage error. Source: decision I-03.

use super::CloudTask;
use super::flags::CloudArgs;
use super::scale;
use crate::config::{KeysConfig, KeysPlace, KeysTask};
use edge_runner_proto::options::{Env, UsageError, not_unicode};

pub fn create(args: CloudArgs, env: &Env<'_>, _: &mut Vec<String>) -> Result<CloudTask, UsageError> {
    let Some(kind) = args.kind else {
        return Err(UsageError::Combination(
            "`cloud keys create` needs `--type private` or `--type public`".into(),
        ));
    };
    let task = KeysTask::Create {
        kind,
        org: args.org(),
        name: args.name.clone(),
    };
    keys(args, env, task)
}

pub fn list(args: CloudArgs, env: &Env<'_>, _: &mut Vec<String>) -> Result<CloudTask, UsageError> {
    let task = KeysTask::List { json: args.json };
    keys(args, env, task)
}

pub fn revoke(mut args: CloudArgs, env: &Env<'_>, _: &mut Vec<String>) -> Result<CloudTask, UsageError> {
    let id = args.argument.take().unwrap_or_default();
    let task = KeysTask::Revoke(id.into_string().map_err(not_unicode)?);
    keys(args, env, task)
}

fn keys(args: CloudArgs, env: &Env<'_>, task: KeysTask) -> Result<CloudTask, UsageError> {
    let place = match scale::keys_place(&args, env)? {
        Some(place) => place,
        None => KeysPlace::DataDir(args.data_dir("cloud keys")?),
    };
    Ok(CloudTask::Keys(KeysConfig {
        place,
        task,
        verbosity: args.verbosity,
    }))
}
