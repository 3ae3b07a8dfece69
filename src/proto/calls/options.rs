//! The options and variables of the records of calls.
//!
//! In: the options and the variables. Out: a [`CallsConfig`] and warnings. Rejects a receiver of
//! events that is no URL, and one without a secret. No error contains the secret.

use std::path::PathBuf;

use data_encoding::BASE64;

use super::config::{CallsConfig, EventsConfig};
use crate::features::Feature;
use crate::options::values::{key_of, parse_url};
use crate::options::variables::{ModuleVariables, secret, setting};
use crate::options::{Env, Expected, Flag, FlagKind, SERVER, UsageError, flag, number, put};
use crate::secret::SecretBytes;

const EVENTS: &str = "--events";
pub(super) const LISTEN_IN: &str = "--listen-in";
const EVENTS_SECRET: &str = "RUNNER_EVENTS_SECRET";
const EVENTS_SECRET_FILE: &str = "RUNNER_EVENTS_SECRET_FILE";
/// The beginning of a secret of Standard Webhooks.
const SECRET_PREFIX: &str = "whsec_";
/// Bytes of such a secret.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Most calls that `--calls-kept` takes. The limit of their bytes holds in any case.
const KEPT_MAX: usize = 10_000;

/// The typed options.
#[derive(Debug, Default)]
pub struct CallsOptions {
    kept: Option<usize>,
    has_texts: Option<bool>,
    dir: Option<String>,
    record: Option<String>,
    events: Option<String>,
    listen_in: bool,
}

/// The variables of the records of calls.
pub static VARIABLES: ModuleVariables = ModuleVariables {
    feature: Feature::Calls,
    prefixes: &[EVENTS_SECRET],
    variables: &[
        secret(
            EVENTS_SECRET,
            "Key of the signatures of `--events`: `whsec_` and 24 to 64 bytes in base64.",
        )
        .sent_to("RUNNER_EVENTS"),
        setting(EVENTS_SECRET_FILE, "File whose first line is that key."),
    ],
};

const fn calls<T>(long: &'static str, kind: FlagKind<T>, help: &'static str) -> Flag<T> {
    flag(long, kind, SERVER, help).needs(&[Feature::Calls])
}

impl<T: AsMut<CallsOptions>> Flag<T> {
    /// The options of the records of calls.
    pub const CALLS: &'static [Flag<T>] = &[
        calls(
            "--calls-kept",
            FlagKind::Value("N", |args: &mut T, text| {
                let kept = number(&text, 0, KEPT_MAX)?;
                put(&mut args.as_mut().kept, kept)
            }),
            "Calls whose records are kept in memory after their end, for /calls and the page; 0 keeps none. \
             [default: 200]",
        ),
        calls(
            "--calls-texts",
            FlagKind::Value("on|off", |args: &mut T, text| {
                let has_texts = match &*text {
                    "on" => true,
                    "off" => false,
                    _ => return Err(Expected::one_of(&text, &["on", "off"], &[])),
                };
                put(&mut args.as_mut().has_texts, has_texts)
            }),
            "Whether records of calls have the texts of both sides and the addresses of callers. [default: on]",
        ),
        calls(
            "--calls-dir",
            FlagKind::Value("DIR", |args: &mut T, text| put(&mut args.as_mut().dir, text)),
            "Folder to which the records of ended calls are written, one line of JSON each; the oldest files are deleted. \
             Without it, they are kept in memory alone.",
        ),
        calls(
            "--record",
            FlagKind::Value("DIR", |args: &mut T, text| put(&mut args.as_mut().record, text)),
            "Folder to which the sound of calls is written, the caller on the left and the bot on the right; the oldest \
             files are deleted. `\"record\": false` in `/start` declines it.",
        ),
        calls(
            EVENTS,
            FlagKind::Value("URL", |args: &mut T, text| put(&mut args.as_mut().events, text)),
            "URL to which the starts and ends of calls are posted as JSON, with the records of ended calls, signed with \
             RUNNER_EVENTS_SECRET. With `--calls-dir`, those that wait are kept over a restart.",
        ),
        calls(
            LISTEN_IN,
            FlagKind::Switch(|args: &mut T| args.as_mut().listen_in = true),
            "Let clients with the API key listen to live calls: the page, and POST /calls/ID/listen. Needs an API key. \
             `\"record\": false` in `/start` declines it.",
        ),
    ];
}

impl CallsOptions {
    /// Returns the settings.
    ///
    /// # Errors
    /// [`UsageError`] that names the option or the variable.
    pub fn resolve(&self, env: &Env<'_>, warnings: &mut Vec<String>) -> Result<CallsConfig, UsageError> {
        let default = CallsConfig::default();
        let events = match &self.events {
            Some(url) => Some(events(url, env, warnings)?),
            None => None,
        };
        Ok(CallsConfig {
            kept: self.kept.unwrap_or(default.kept),
            has_texts: self.has_texts.unwrap_or(default.has_texts),
            dir: self.dir.as_ref().map(PathBuf::from),
            record: self.record.as_ref().map(PathBuf::from),
            events,
            listen_in: self.listen_in,
        })
    }
}

/// Reads the receiver of events, and the key of their signatures.
fn events(url: &str, env: &Env<'_>, warnings: &mut Vec<String>) -> Result<EventsConfig, UsageError> {
    let wants = "the URL of the receiver: https://HOST, optionally with :PORT and /PATH";
    let url = parse_url(EVENTS, url, &["http", "https"]).ok_or_else(|| UsageError::redacted(EVENTS, wants))?;
    url.warn_if_unencrypted(warnings, "records of calls travel");
    let secret = key_of(env, EVENTS_SECRET, EVENTS_SECRET_FILE, |_| true)?.ok_or_else(|| {
        UsageError::Combination(format!(
            "`{EVENTS}` needs {EVENTS_SECRET} or {EVENTS_SECRET_FILE} in the environment or in .env, for the signatures; \
             `echo whsec_$(openssl rand -base64 32)` makes one"
        ))
    })?;
    let key = secret
        .expose()
        .strip_prefix(SECRET_PREFIX)
        .and_then(|text| BASE64.decode(text.as_bytes()).ok())
        .filter(|key| SECRET_BYTES.contains(&key.len()))
        .ok_or_else(|| UsageError::redacted(EVENTS_SECRET, "`whsec_` and 24 to 64 bytes in base64"))?;
    Ok(EventsConfig {
        url: url.text,
        secret: SecretBytes::new(key),
    })
}
