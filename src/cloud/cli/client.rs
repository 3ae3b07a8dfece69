//! The meaning of `cloud regions`, `build`, `status` and `logs`.
//!
//! What was typed enters; a [`ClientConfig`] leaves. Refuses what no service could take: no URL, no key, a build file outside the
//! folder. Source: `cloud-interface.md` §7.

use std::ffi::OsString;
use std::time::Duration;

use super::Task;
use super::flags::Typed;
use crate::config::{BuildTask, ClientConfig, ClientTask, Wait};
use crate::proto::build::build_file_problem;
use edge_runner_proto::config::Secret;
use edge_runner_proto::limits::API_KEY_BYTES;
use edge_runner_proto::options::{Env, UsageError, not_unicode, values};

/// The build file where none is named.
const FILE: &str = "Dockerfile";
const POLL: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(1800);

pub fn regions(typed: Typed, _: &Env<'_>, warnings: &mut Vec<String>) -> Result<Task, UsageError> {
    client(typed, warnings, |_| Ok(ClientTask::Regions))
}

pub fn status(typed: Typed, _: &Env<'_>, warnings: &mut Vec<String>) -> Result<Task, UsageError> {
    client(typed, warnings, |typed| Ok(ClientTask::Status(id(typed)?)))
}

pub fn logs(typed: Typed, _: &Env<'_>, warnings: &mut Vec<String>) -> Result<Task, UsageError> {
    client(typed, warnings, |typed| {
        let limit = typed.limit;
        Ok(ClientTask::Logs { id: id(typed)?, limit })
    })
}

pub fn build(typed: Typed, _: &Env<'_>, warnings: &mut Vec<String>) -> Result<Task, UsageError> {
    client(typed, warnings, |typed| {
        let wait = wait(typed)?;
        let argument = typed.argument.take().unwrap_or_default();
        if argument.is_empty() {
            return Err(UsageError::Combination(
                "`cloud build` needs its DIR: an empty one is none".into(),
            ));
        }
        Ok(ClientTask::Build(Box::new(BuildTask {
            dir: argument.into(),
            region: typed.region.take(),
            file: file(typed.buildfile.as_deref().unwrap_or(FILE))?,
            exclude: std::mem::take(&mut typed.exclude),
            follow_links: typed.follow_links,
            wait,
        })))
    })
}

/// What all of them need, env what one of them does.
fn client(
    mut typed: Typed,
    warnings: &mut Vec<String>,
    task: impl FnOnce(&mut Typed) -> Result<ClientTask, UsageError>,
) -> Result<Task, UsageError> {
    let task = task(&mut typed)?;
    let needs = |option: &str, variable: &'static str| {
        UsageError::Combination(format!(
            "`{option}` is missing, and so is {}",
            values::all_names(variable)
        ))
    };
    let base = typed.api_url.ok_or_else(|| needs("--api-url", "CLOUD_API_URL"))?;
    let key = typed.api_key.ok_or_else(|| needs("--api-key", "CLOUD_API_KEY"))?;
    if !API_KEY_BYTES.contains(&key.len()) || !key.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(UsageError::Value {
            source: "--api-key".into(),
            given: None,
            wants: format!(
                "a key of {} to {} visible ASCII characters",
                API_KEY_BYTES.start(),
                API_KEY_BYTES.end()
            ),
        });
    }
    if let Some(url) = values::parse_url("`--api-url`", &base, &["http", "https"]) {
        url.warn_if_unencrypted(warnings, "the key and what is packed travel");
    }
    Ok(Task::Client(Box::new(ClientConfig {
        base,
        key: Secret::new(key),
        json: typed.json,
        task,
        verbosity: typed.verbosity,
    })))
}

fn wait(typed: &Typed) -> Result<Option<Wait>, UsageError> {
    if !typed.wait {
        let idle = ["--poll", "--timeout"]
            .into_iter()
            .find(|long| typed.given.contains(long));
        return match idle {
            Some(long) => Err(UsageError::Combination(format!(
                "`{long}` means nothing without `--wait`"
            ))),
            None => Ok(None),
        };
    }
    Ok(Some(Wait {
        poll: typed.poll.unwrap_or(POLL),
        timeout: typed.timeout.unwrap_or(TIMEOUT),
    }))
}

/// The id of a build, whatever it looks like: the service says what it takes.
fn id(typed: &mut Typed) -> Result<String, UsageError> {
    let id = OsString::into_string(typed.argument.take().unwrap_or_default()).map_err(not_unicode)?;
    // They would mean other paths than that of a build.
    match id.is_empty() || id == "." || id == ".." {
        true => Err(UsageError::Combination(format!("`{id}` is no id of a build"))),
        false => Ok(id),
    }
}

/// The build file as the service knows it: relative, without `.` in its path.
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
