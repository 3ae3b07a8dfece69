//! Which options and variables need which cargo feature.
//!
//! In: the arguments and the variables. Out: an error that names the missing feature, a warning about
//! credentials that this build does not use, and marks for the help.

use super::UsageError;
use super::flags;
use super::flags::{LowArgs, WsAuth};
use crate::config::{Tls, Transport};
use crate::features::Feature;
use crate::proto::options::env::Variables;
use crate::proto::options::values::found;
use crate::proto::telephony::PROVIDERS;
use crate::proto::telephony::settings::Holds;

/// An option, the features of which it needs one (the first is the one to name), and whether it was
/// given. An option that only turns a feature off needs none.
type OptionFeatures = (&'static str, &'static [Feature], fn(&LowArgs) -> bool);

/// Options that need a feature.
const OPTIONS: &[OptionFeatures] = &[
    ("--rtc-port", &[Feature::WebRtc], |args| args.rtc_port.is_some()),
    ("--ice-servers", &[Feature::WebRtc], |args| !args.ice_servers.is_empty()),
    ("--ice-address", &[Feature::WebRtc], |args| {
        !args.ice_addresses.is_empty()
    }),
    ("--embedded", &[Feature::WebRtc], |args| args.embedded),
    (COMPLEXITY, &[Feature::WebRtc], |args| args.given.contains(&COMPLEXITY)),
    ("--no-verify-webhooks", &[Feature::Telephony], |args| {
        args.no_verify_webhooks
    }),
    ("--unverified-calls", &[Feature::Telephony], |args| {
        args.unverified_calls
    }),
    ("--direct", &[Feature::Videoroom], |args| args.direct),
    ("--dialin", &[Feature::Videoroom], |args| args.dialin),
    ("--no-dialin", &[Feature::Videoroom], |_| false),
    ("--messaging", &[Feature::Messaging], |args| args.messaging),
    ("--tls", &[Feature::Tls], |args| {
        args.tls.as_ref().is_some_and(|tls| *tls != Tls::Off)
    }),
    ("--state-dir", &[Feature::Tls], |args| args.state_dir.is_some()),
    ("--ws-auth", &[Feature::WebSocket, Feature::Telephony], |args| {
        args.ws_auth == Some(WsAuth::Token)
    }),
];

/// Every board's profile sets the variable of this option, so only the option itself is refused.
const COMPLEXITY: &str = "--opus-complexity";

/// Paths of sockets that callers open.
const SOCKETS: &[(Feature, &str)] = &[(Feature::Telephony, "/ws"), (Feature::WebSocket, "/ws-client")];

/// Paths that the key of `--api-key` guards, whatever `-t` says.
const GUARDED: &[(Option<Feature>, &str)] = &[(None, "/start"), (Some(Feature::WebRtc), "/api/offer")];

/// Prefixes of variables that need a feature. Those of telephony are in the tables of its providers.
const VARIABLES: &[(Feature, &[&str])] = &[
    (Feature::Videoroom, &["VIDEOROOM_", "RUNNER_START_NAMES"]),
    (Feature::Mediaroom, &["MEDIAROOM_"]),
    (Feature::Messaging, &["MESSAGING_"]),
];

/// Variables that hold a credential. Those of telephony are in the tables of its providers.
const CREDENTIALS: &[(Feature, &str)] = &[
    (Feature::Videoroom, "VIDEOROOM_API_KEY"),
    (Feature::Videoroom, "VIDEOROOM_DIALIN_HMAC"),
    (Feature::Mediaroom, "MEDIAROOM_API_KEY"),
    (Feature::Mediaroom, "MEDIAROOM_API_SECRET"),
    (Feature::Messaging, "MESSAGING_TOKEN"),
    (Feature::Messaging, "MESSAGING_APP_SECRET"),
    (Feature::Messaging, "MESSAGING_WEBHOOK_VERIFICATION_TOKEN"),
];

/// Returns the feature and the name of every variable that holds a credential.
fn credentials() -> impl Iterator<Item = (Feature, &'static str)> {
    let settings = PROVIDERS.into_iter().flat_map(|provider| provider.settings);
    let keys = settings.filter(|setting| matches!(setting.holds, Holds::Secret | Holds::PublicKey));
    keys.map(|setting| (Feature::Telephony, setting.name))
        .chain(CREDENTIALS.iter().copied())
}

/// Returns the feature that an option needs; of alternatives, one that this build has.
pub(super) fn of_option(long: &str) -> Option<Feature> {
    let (_, features, _) = OPTIONS.iter().find(|(name, ..)| *name == long)?;
    let built = features.iter().find(|feature| feature.in_this_build());
    built.or(features.first()).copied()
}

/// Returns the feature that a variable needs, by its canonical name.
pub(super) fn of_variable(name: &str) -> Option<Feature> {
    let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| name.starts_with(beginning));
    let mut settings = PROVIDERS.into_iter().flat_map(|provider| provider.settings);
    if settings.any(|setting| setting.name == name) {
        return Some(Feature::Telephony);
    }
    let mut rows = VARIABLES.iter();
    rows.find(|(_, beginnings)| begins(beginnings))
        .map(|(feature, _)| *feature)
}

/// Calls `read` if this build has the feature. Without it, its variables are not validated.
///
/// # Errors
/// Those of `read`.
pub(super) fn where_built<T: Default>(
    feature: Feature,
    read: impl FnOnce() -> Result<T, UsageError>,
) -> Result<T, UsageError> {
    match feature.in_this_build() {
        true => read(),
        false => Ok(T::default()),
    }
}

/// Returns the WebSocket paths of this build, for a sentence; `None` if it has none.
pub(super) fn sockets() -> Option<String> {
    let built = SOCKETS.iter().filter(|(feature, _)| feature.in_this_build());
    let paths: Vec<&str> = built.map(|(_, path)| *path).collect();
    (!paths.is_empty()).then(|| paths.join(" and "))
}

/// Returns the paths of this build that the key guards, for a sentence.
pub(super) fn guarded() -> String {
    let is_built = |feature: Option<Feature>| feature.is_none_or(Feature::in_this_build);
    let built = GUARDED.iter().filter(|(feature, _)| is_built(*feature));
    let paths: Vec<&str> = built.map(|(_, path)| *path).collect();
    paths.join(" and ")
}

/// Rejects options and transports that this build lacks.
///
/// # Errors
/// [`UsageError::MissingFeature`] with the first of them.
pub(super) fn check(args: &LowArgs, transport: Option<Transport>) -> Result<(), UsageError> {
    let by_transport =
        transport.and_then(|transport| Some((format!("`-t {}`", transport.name()), transport.feature()?)));
    let asked = OPTIONS.iter().filter(|(.., asked)| asked(args));
    let by_options = asked.filter_map(|(long, ..)| Some((format!("`{long}`"), of_option(long)?)));
    refuse(by_transport.into_iter().chain(by_options))
}

fn refuse(mut wishes: impl Iterator<Item = (String, Feature)>) -> Result<(), UsageError> {
    match wishes.find_map(|(what, feature)| Some((what, feature.missing()?))) {
        Some((what, feature)) => Err(UsageError::MissingFeature { what, feature }),
        None => Ok(()),
    }
}

/// Warns of the tuning variable of board profiles in a build that does not read it.
pub(super) fn warn_unused_tuning(args: &LowArgs, warnings: &mut Vec<String>) {
    if args.opus_complexity.is_some() && !Feature::WebRtc.in_this_build() {
        warnings.push(format!(
            "set, and not used by this build, which lacks `{}`: {}",
            Feature::WebRtc.name(),
            flags::variable(COMPLEXITY)
        ));
    }
}

/// Warns once of credentials that this build does not use.
pub(super) fn warn_unused_credentials(variables: &Variables, warnings: &mut Vec<String>) {
    let idle = credentials().filter(|(feature, name)| !feature.in_this_build() && variables.named(name).is_some());
    let (mut names, mut features) = (Vec::new(), Vec::new());
    for (feature, name) in idle {
        names.push(found(variables, name));
        let feature = format!("`{}`", feature.name());
        if !features.contains(&feature) {
            features.push(feature);
        }
    }
    if !names.is_empty() {
        warnings.push(format!(
            "set, and not used by this build, which lacks {}: {}",
            features.join(" and "),
            names.join(", ")
        ));
    }
}

/// Returns what this build lacks, for the beginning of the help; nothing in a build that lacks nothing.
pub(super) fn missing_features() -> Option<String> {
    let lacking: Vec<&str> = Feature::ALL
        .iter()
        .filter(|feature| !feature.in_this_build())
        .map(|feature| feature.name())
        .collect();
    (!lacking.is_empty()).then(|| lacking.join(", "))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::flags::{FLAGS, WEBRTC};
    use crate::proto::options::help::mark_missing;
    use crate::proto::options::{FlagKind, need};

    #[test]
    fn every_name_is_one_that_there_is() {
        for (name, ..) in OPTIONS {
            assert!(FLAGS.iter().any(|flag| flag.long == *name), "{name}");
        }
        for (feature, name) in credentials() {
            assert_eq!(of_variable(name), Some(feature), "{name}");
        }
        assert_eq!(of_option("--embedded"), Some(Feature::WebRtc));
        assert_eq!(of_option("--port"), None);
        assert_eq!(of_variable("RUST_LOG"), None);
    }

    /// A build without WebRTC would ignore it in silence otherwise.
    #[test]
    fn every_option_of_webrtc_needs_webrtc() {
        for flag in FLAGS.iter().filter(|flag| flag.group == WEBRTC) {
            assert_eq!(of_option(flag.long), Some(Feature::WebRtc), "{}", flag.long);
        }
    }

    /// Giving an option requires its feature, unless the option only turns the feature off.
    #[test]
    fn every_option_is_asked_for_by_being_typed() {
        for (long, _, asked) in OPTIONS {
            let flag = FLAGS.iter().find(|flag| flag.long == *long).expect("an option");
            let mut args = LowArgs::default();
            assert!(!asked(&args), "{long}");
            args.given.push(flag.long);
            let value = match *long {
                "--bot" => "echo",
                "--tls" => "auto",
                "--metrics" => "any",
                "--ws-auth" => "token",
                "--ice-address" => "192.0.2.1",
                _ => "7",
            };
            match &flag.kind {
                FlagKind::Switch(set) => set(&mut args),
                FlagKind::Value(_, set) | FlagKind::Repeatable(_, set) | FlagKind::List(_, set) => {
                    set(&mut args, value.to_owned()).expect(long);
                }
                FlagKind::Count(_) | FlagKind::Help | FlagKind::Version => panic!("{long} needs no feature"),
            }
            assert_eq!(asked(&args), *long != "--no-dialin", "{long}");
        }
    }

    /// The default build lacks nothing, so nothing is refused, marked, or warned of.
    #[test]
    fn a_build_with_everything_says_nothing() {
        let args = LowArgs {
            direct: true,
            embedded: true,
            command: Some(vec![OsString::from("true")]),
            ..LowArgs::default()
        };
        assert_eq!(check(&args, Some(Transport::Telephony(PROVIDERS[0]))), Ok(()));
        assert_eq!(need("`edge-runner doctor`", Feature::Doctor), Ok(()));
        assert_eq!(sockets().as_deref(), Some("/ws and /ws-client"));
        assert_eq!(guarded(), "/start and /api/offer");
        assert_eq!(mark_missing(Some(Feature::Tls), "text"), "text");
        assert_eq!(missing_features(), None);
        let mut warnings = Vec::new();
        let own = CREDENTIALS.iter().map(|(_, name)| ((*name).to_owned(), "x".to_owned()));
        warn_unused_credentials(&Variables::new(own, []), &mut warnings);
        let args = LowArgs {
            opus_complexity: Some(0),
            ..LowArgs::default()
        };
        warn_unused_tuning(&args, &mut warnings);
        assert_eq!(warnings, [""; 0]);
    }
}
