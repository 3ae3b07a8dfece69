//! Reads the options of the registration at a LiveKit server.
//!
//! In: the options. Out: a [`MediaroomWorker`], and a warning about an empty name. Rejects names
//! that the server does not take, the other options without `--register`, and transports that have
//! no jobs. Source: `docs/spec/livekit.md` 6.1.

use super::UsageError;
use crate::config::{JobType, MediaroomWorker, Transport};
use crate::limits::{DEPLOYMENT_BYTES_MAX, ROOM_NAME_BYTES_MAX};
use crate::proto::options::Expected;

/// The typed options.
#[derive(Debug, Default)]
pub(super) struct WorkerOptions {
    pub job_type: Option<JobType>,
    pub agent_name: Option<String>,
    pub deployment: Option<String>,
    pub target_load_percent: Option<u8>,
}

/// Parses the value of `--register`.
pub(super) fn job_type(text: &str) -> Result<JobType, Expected> {
    JobType::from_name(text).ok_or_else(|| Expected::one_of(text, &JobType::ALL.map(JobType::name), &[]))
}

/// Parses the value of `--target-load` into hundredths.
pub(super) fn target_load(text: &str) -> Result<u8, Expected> {
    let hundredths = text.parse::<f32>().ok().map(|load| (load * 100.0).round());
    match hundredths {
        // In this range, the number is exact.
        Some(percent @ 1.0..=100.0) => Ok(percent as u8),
        _ => Err("a number from 0.01 to 1, such as 0.7".into()),
    }
}

/// Resolves the options; `None` without `--register`. `typed` has the long names of all options
/// that were typed.
///
/// # Errors
/// [`UsageError`] for an invalid name or combination.
pub(super) fn worker(
    options: &WorkerOptions,
    typed: &[&str],
    transport: Option<Transport>,
    is_direct: bool,
    warnings: &mut Vec<String>,
) -> Result<Option<MediaroomWorker>, UsageError> {
    let Some(job_type) = options.job_type else {
        // Variables of these names may belong to other software.
        let alone = ["--agent-name", "--deployment", "--target-load"]
            .into_iter()
            .find(|option| typed.contains(option));
        return match alone {
            Some(option) => Err(UsageError::Combination(format!("`{option}` needs `--register`"))),
            None => Ok(None),
        };
    };
    match transport {
        _ if is_direct => {
            return Err(UsageError::Combination(
                "`--direct` runs one bot in a Daily room and cannot be used with `--register`".into(),
            ));
        }
        Some(other) if other != Transport::Mediaroom => {
            return Err(UsageError::Combination(format!(
                "`--register` is for LiveKit rooms and cannot be used with `-t {}`; leave out `-t`, or give `-t livekit`",
                other.name()
            )));
        }
        _ => {}
    }
    let agent_name = options.agent_name.as_deref().unwrap_or(MediaroomWorker::AGENT_NAME);
    if agent_name.len() > ROOM_NAME_BYTES_MAX || agent_name.contains(char::is_control) {
        let wants = format!("a name of at most {ROOM_NAME_BYTES_MAX} bytes without control characters");
        return Err(UsageError::value("--agent-name", agent_name, wants));
    }
    if agent_name.is_empty() {
        warnings.push(
            "`--agent-name` is empty: the bot is sent into every room of the LiveKit server that asks for no other one"
                .to_owned(),
        );
    }
    let deployment = options.deployment.as_deref().unwrap_or_default();
    if deployment.len() > DEPLOYMENT_BYTES_MAX
        || deployment.contains(|letter: char| letter == '_' || letter.is_whitespace() || letter.is_control())
    {
        let wants = format!("a name of at most {DEPLOYMENT_BYTES_MAX} bytes without `_` and blanks");
        return Err(UsageError::value("--deployment", deployment, wants));
    }
    Ok(Some(MediaroomWorker {
        job_type,
        agent_name: agent_name.to_owned(),
        deployment: deployment.to_owned(),
        target_load_percent: options
            .target_load_percent
            .unwrap_or(MediaroomWorker::TARGET_LOAD_PERCENT),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(options: WorkerOptions, transport: Option<Transport>) -> Result<Option<MediaroomWorker>, String> {
        worker(&options, &[], transport, false, &mut Vec::new()).map_err(|error| error.to_string())
    }

    fn registered() -> WorkerOptions {
        WorkerOptions {
            job_type: Some(JobType::Room),
            ..WorkerOptions::default()
        }
    }

    #[test]
    fn without_register_there_is_no_worker() {
        assert_eq!(resolve(WorkerOptions::default(), None), Ok(None));
        // Another program's variable is no mistake; a typed option is.
        let named = || WorkerOptions {
            agent_name: Some("x".into()),
            ..WorkerOptions::default()
        };
        assert_eq!(resolve(named(), None), Ok(None));
        let error = worker(&named(), &["--agent-name"], None, false, &mut Vec::new())
            .expect_err("a usage error")
            .to_string();
        assert!(error.contains("`--agent-name` needs `--register`"), "{error}");
    }

    #[test]
    fn names_and_load_have_defaults_and_bounds() {
        let expected = MediaroomWorker {
            job_type: JobType::Room,
            agent_name: "bot".into(),
            deployment: String::new(),
            target_load_percent: 70,
        };
        assert_eq!(resolve(registered(), None), Ok(Some(expected.clone())));
        assert_eq!(resolve(registered(), Some(Transport::Mediaroom)), Ok(Some(expected)));
        for (name, is_good) in [
            ("x".repeat(256), true),
            ("x".repeat(257), false),
            ("a\nb".into(), false),
        ] {
            let options = WorkerOptions {
                agent_name: Some(name),
                ..registered()
            };
            assert_eq!(resolve(options, None).is_ok(), is_good);
        }
        for (name, is_good) in [
            ("x".repeat(64), true),
            ("x".repeat(65), false),
            ("a_b".into(), false),
            ("a b".into(), false),
        ] {
            let options = WorkerOptions {
                deployment: Some(name),
                ..registered()
            };
            assert_eq!(resolve(options, None).is_ok(), is_good);
        }
        for (text, percent) in [("0.7", Some(70)), ("1", Some(100)), ("0.01", Some(1)), (".3", Some(30))] {
            assert_eq!(target_load(text).ok(), percent, "{text}");
        }
        for text in ["0", "1.01", "-1", "", "x", "NaN", "inf"] {
            assert!(target_load(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_empty_name_is_a_choice_with_a_warning() {
        let options = WorkerOptions {
            agent_name: Some(String::new()),
            ..registered()
        };
        let mut warnings = Vec::new();
        let worker = worker(&options, &[], None, false, &mut warnings)
            .expect("valid options")
            .expect("a worker");
        assert_eq!(worker.agent_name, "");
        assert!(
            matches!(&warnings[..], [one] if one.contains("every room")),
            "{warnings:?}"
        );
    }

    #[test]
    fn jobs_are_for_livekit_rooms_alone() {
        let error = resolve(registered(), Some(Transport::WebRtc)).expect_err("a usage error");
        assert!(error.contains("`-t webrtc`"), "{error}");
        assert!(job_type("agent").is_err());
    }
}
