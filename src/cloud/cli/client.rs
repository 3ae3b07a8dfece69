//! Resolves the arguments of `cloud regions`, `build`, `status` and `logs`.
//!
//! In: [`CloudArgs`]. Out: a [`ClientConfig`], or a usage error for a missing URL, a missing key,
//! or a build file outside the folder. Source: decisions I-26 to I-28.

use std::ffi::OsString;
use std::time::Duration;

use super::CloudTask;
use super::flags::CloudArgs;
use crate::config::{BuildTask, ClientConfig, ClientTask, WaitOptions};
use crate::proto::build::build_file_problem;
use edge_runner_proto::config::Secret;
use edge_runner_proto::limits::API_KEY_BYTES;
use edge_runner_proto::options::{Env, UsageError, not_unicode, values};

/// Default build file.
const FILE: &str = "Dockerfile";
const POLL: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(1800);

pub fn regions(args: CloudArgs, _: &Env<'_>, warnings: &mut Vec<String>) -> Result<CloudTask, UsageError> {
    client(args, warnings, |_| Ok(ClientTask::Regions))
}

pub fn status(args: CloudArgs, _: &Env<'_>, warnings: &mut Vec<String>) -> Result<CloudTask, UsageError> {
    client(args, warnings, |args| Ok(ClientTask::Status(id(args)?)))
}

pub fn logs(args: CloudArgs, _: &Env<'_>, warnings: &mut Vec<String>) -> Result<CloudTask, UsageError> {
    client(args, warnings, |args| {
        let limit = args.limit;
        Ok(ClientTask::Logs { id: id(args)?, limit })
    })
}

pub fn build(args: CloudArgs, _: &Env<'_>, warnings: &mut Vec<String>) -> Result<CloudTask, UsageError> {
    client(args, warnings, |args| {
        let wait = wait(args)?;
        let argument = args.argument.take().unwrap_or_default();
        if argument.is_empty() {
            return Err(UsageError::Combination(
                "`cloud build` needs its DIR: an empty one is none".into(),
            ));
        }
        Ok(ClientTask::Build(Box::new(BuildTask {
            dir: argument.into(),
            region: args.region.take(),
            file: file(args.buildfile.as_deref().unwrap_or(FILE))?,
            exclude: std::mem::take(&mut args.exclude),
            follow_links: args.follow_links,
            wait,
        })))
    })
}

/// Resolves the options that all client commands share.
fn client(
    mut args: CloudArgs,
    warnings: &mut Vec<String>,
    task: impl FnOnce(&mut CloudArgs) -> Result<ClientTask, UsageError>,
) -> Result<CloudTask, UsageError> {
    let task = task(&mut args)?;
    let needs = |option: &str, variable: &'static str| {
        UsageError::Combination(format!(
            "`{option}` is missing, and so is {}",
            values::all_names(variable)
        ))
    };
    let base = args.api_url.ok_or_else(|| needs("--api-url", "CLOUD_API_URL"))?;
    let key = args.api_key.ok_or_else(|| needs("--api-key", "CLOUD_API_KEY"))?;
    if !API_KEY_BYTES.contains(&key.len()) || !key.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(UsageError::redacted(
            "--api-key",
            format!(
                "a key of {} to {} visible ASCII characters",
                API_KEY_BYTES.start(),
                API_KEY_BYTES.end()
            ),
        ));
    }
    if let Some(url) = values::parse_url("`--api-url`", &base, &["http", "https"]) {
        url.warn_if_unencrypted(warnings, "the key and the files travel");
    }
    Ok(CloudTask::Client(Box::new(ClientConfig {
        base,
        key: Secret::new(key),
        json: args.json,
        task,
        verbosity: args.verbosity,
    })))
}

fn wait(args: &CloudArgs) -> Result<Option<WaitOptions>, UsageError> {
    if !args.wait {
        let idle = ["--poll", "--timeout"]
            .into_iter()
            .find(|long| args.given.contains(long));
        return match idle {
            Some(long) => Err(UsageError::Combination(format!(
                "`{long}` has no effect without `--wait`"
            ))),
            None => Ok(None),
        };
    }
    Ok(Some(WaitOptions {
        poll: args.poll.unwrap_or(POLL),
        timeout: args.timeout.unwrap_or(TIMEOUT),
    }))
}

/// Returns the id of a build. The service validates its form.
fn id(args: &mut CloudArgs) -> Result<String, UsageError> {
    let id = OsString::into_string(args.argument.take().unwrap_or_default()).map_err(not_unicode)?;
    // In a URL these would name another path.
    match id.is_empty() || id == "." || id == ".." {
        true => Err(UsageError::Combination(format!("`{id}` is not a build id"))),
        false => Ok(id),
    }
}

/// Normalizes the path of the build file: relative and without `.` components.
fn file(text: &str) -> Result<String, UsageError> {
    let parts: Vec<&str> = text
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    let path = parts.join("/");
    let is_usable = !text.starts_with('/') && !text.ends_with('/') && build_file_problem(&path).is_none();
    match is_usable {
        true => Ok(path),
        false => Err(UsageError::value(
            "--buildfile",
            text,
            "a path inside the folder, relative to it, of at most 255 bytes, without control characters and not beginning \
             with `-`",
        )),
    }
}
