//! Resolves the arguments of `cloud keys create`, `list` and `revoke`.
//!
//! In: [`CloudArgs`]. Out: a [`KeysConfig`] or a usage error. Source: decision I-03.

use super::CloudTask;
use super::flags::CloudArgs;
use super::serve::{data_dir, org};
use crate::config::{KeysConfig, KeysTask};
use edge_runner_proto::options::{Env, UsageError, not_unicode};

pub fn create(args: CloudArgs, _: &Env<'_>, _: &mut Vec<String>) -> Result<CloudTask, UsageError> {
    let Some(kind) = args.kind else {
        return Err(UsageError::Combination(
            "`cloud keys create` needs `--type private` or `--type public`".into(),
        ));
    };
    let task = KeysTask::Create {
        kind,
        org: org(&args),
        name: args.name.clone(),
    };
    keys(args, task)
}

pub fn list(args: CloudArgs, _: &Env<'_>, _: &mut Vec<String>) -> Result<CloudTask, UsageError> {
    let task = KeysTask::List { json: args.json };
    keys(args, task)
}

pub fn revoke(mut args: CloudArgs, _: &Env<'_>, _: &mut Vec<String>) -> Result<CloudTask, UsageError> {
    let id = args.argument.take().unwrap_or_default();
    let task = KeysTask::Revoke(id.into_string().map_err(not_unicode)?);
    keys(args, task)
}

fn keys(args: CloudArgs, task: KeysTask) -> Result<CloudTask, UsageError> {
    Ok(CloudTask::Keys(KeysConfig {
        data_dir: data_dir(&args, "cloud keys")?,
        task,
        verbosity: args.verbosity,
    }))
}
