//! The options of the records of calls.

use std::path::PathBuf;

use super::config::CallsConfig;
use crate::features::Feature;
use crate::options::{Expected, Flag, FlagKind, SERVER, flag, number, put};

/// Most calls that `--calls-kept` takes. The limit of their bytes holds in any case.
const KEPT_MAX: usize = 10_000;

/// The typed options.
#[derive(Debug, Default)]
pub struct CallsOptions {
    kept: Option<usize>,
    has_texts: Option<bool>,
    dir: Option<String>,
}

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
            "Whether records of calls have the texts of both sides. [default: on]",
        ),
        calls(
            "--calls-dir",
            FlagKind::Value("DIR", |args: &mut T, text| put(&mut args.as_mut().dir, text)),
            "Folder to which the records of ended calls are written, one line of JSON each; the oldest files are deleted. \
             Without it, they are kept in memory alone.",
        ),
    ];
}

impl CallsOptions {
    /// Returns the settings.
    pub fn resolve(self) -> CallsConfig {
        let default = CallsConfig::default();
        CallsConfig {
            kept: self.kept.unwrap_or(default.kept),
            has_texts: self.has_texts.unwrap_or(default.has_texts),
            dir: self.dir.map(PathBuf::from),
        }
    }
}
