//! Which options and variables need which cargo feature.
//!
//! In: the arguments and the variables. Out: an error that names the missing feature, a warning
//! about credentials that this build does not use, and marks for the help.

use super::UsageError;
use super::flags;
use super::flags::{LowArgs, WsAuth};
use crate::config::{Tls, Transport};
use crate::features::Feature;
use crate::proto::options::env::Variables;
use crate::proto::options::values::found;
use crate::proto::telephony::PROVIDERS;
use crate::proto::telephony::settings::Holds;

/// An option, the features of which it needs any one (errors name the first), and whether it was
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
    ("--register", &[Feature::Mediaroom], |args| {
        args.worker.job_type.is_some()
    }),
    ("--agent-name", &[Feature::Mediaroom], |args| {
        args.worker.agent_name.is_some()
    }),
    ("--deployment", &[Feature::Mediaroom], |args| {
        args.worker.deployment.is_some()
    }),
    ("--target-load", &[Feature::Mediaroom], |args| {
        args.worker.target_load_percent.is_some()
    }),
    ("--moq-serve", &[Feature::Moq], |args| args.moq.serve),
    ("--moq-connect", &[Feature::Moq], |args| args.moq.connect.is_some()),
    ("--moq-bind", &[Feature::Moq], |args| args.moq.bind.is_some()),
    ("--moq-namespace", &[Feature::Moq], |args| args.moq.namespace.is_some()),
    ("--moq-bot-id", &[Feature::Moq], |args| args.moq.bot_id.is_some()),
    ("--moq-client-id", &[Feature::Moq], |args| args.moq.client_id.is_some()),
    ("--moq-tls-cert", &[Feature::Moq], |args| args.moq.tls_cert.is_some()),
    ("--moq-tls-key", &[Feature::Moq], |args| args.moq.tls_key.is_some()),
    ("--moq-tls-generate", &[Feature::Moq], |args| {
        args.moq.tls_generate.is_some()
    }),
    ("--moq-tls-insecure", &[Feature::Moq], |args| args.moq.tls_insecure),
    ("--tls", &[Feature::Tls], |args| {
        args.tls.as_ref().is_some_and(|tls| *tls != Tls::Off)
    }),
    ("--acme-name", &[Feature::Acme], |args| !args.acme.names.is_empty()),
    ("--acme-email", &[Feature::Acme], |args| args.acme.email.is_some()),
    ("--acme-staging", &[Feature::Acme], |args| args.acme.staging),
    ("--acme-directory", &[Feature::Acme], |args| {
        args.acme.directory.is_some()
    }),
    ("--acme-root", &[Feature::Acme], |args| args.acme.root.is_some()),
    ("--page", &[Feature::Page], |args| args.page.is_some()),
    ("--downloads-folder", &[Feature::Page], |args| {
        args.downloads_folder.is_some()
    }),
    ("--state-dir", &[Feature::Tls], |args| args.state_dir.is_some()),
    ("--tools", &[Feature::Assistants], |args| args.tools.is_some()),
    ("--ws-auth", &[Feature::WebSocket, Feature::Telephony], |args| {
        args.ws_auth == Some(WsAuth::Token)
    }),
];

/// Every board profile sets the variable of this option, so only the typed option is rejected.
const COMPLEXITY: &str = "--opus-complexity";

/// Paths that the key of `--api-key` guards, whatever `-t` says.
const GUARDED: &[(Option<Feature>, &str)] = &[(None, "/start"), (Some(Feature::WebRtc), "/api/offer")];

/// Prefixes of variables that need a feature. Telephony providers list theirs in their own tables.
const VARIABLES: &[(Feature, &[&str])] = &[
    (Feature::Videoroom, &["VIDEOROOM_", "RUNNER_START_NAMES"]),
    (Feature::Mediaroom, &["MEDIAROOM_"]),
    (Feature::Messaging, &["MESSAGING_"]),
    (Feature::Assistants, &["CASCADE_", "REALTIME_", "RUNNER_BOT_", "TOOLS_"]),
];

/// Variables with a credential. Telephony providers list theirs in their own tables.
const CREDENTIALS: &[(Feature, &str)] = &[
    (Feature::Videoroom, "VIDEOROOM_API_KEY"),
    (Feature::Videoroom, "VIDEOROOM_DIALIN_HMAC"),
    (Feature::Mediaroom, "MEDIAROOM_API_KEY"),
    (Feature::Mediaroom, "MEDIAROOM_API_SECRET"),
    (Feature::Messaging, "MESSAGING_TOKEN"),
    (Feature::Messaging, "MESSAGING_APP_SECRET"),
    (Feature::Messaging, "MESSAGING_WEBHOOK_VERIFICATION_TOKEN"),
];

/// Returns every variable with a credential, after the feature that reads it.
fn credentials() -> impl Iterator<Item = (Feature, &'static str)> {
    let settings = PROVIDERS.into_iter().flat_map(|provider| provider.settings);
    let keys = settings.filter(|setting| matches!(setting.holds, Holds::Secret | Holds::PublicKey));
    keys.map(|setting| (Feature::Telephony, setting.name))
        .chain(CREDENTIALS.iter().copied())
}

/// Returns the feature that an option needs; of alternatives, the first that this build has.
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

/// Calls `read` if this build has the feature. Otherwise the variables are not validated.
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
/// [`UsageError::MissingFeature`] for the first of them.
pub(super) fn check(args: &LowArgs, transport: Option<Transport>) -> Result<(), UsageError> {
    let by_transport = transport.map(|transport| (format!("`-t {}`", transport.name()), transport.feature()));
    let given = OPTIONS.iter().filter(|(.., is_given)| is_given(args));
    let by_bot = args
        .bot
        .and_then(|bot| Some((format!("`--bot {}`", bot.name()), bot.feature()?)));
    let by_options = given.filter_map(|(long, ..)| Some((format!("`{long}`"), of_option(long)?)));
    reject(by_transport.into_iter().chain(by_bot).chain(by_options))
}

fn reject(mut needs: impl Iterator<Item = (String, Feature)>) -> Result<(), UsageError> {
    match needs.find_map(|(what, feature)| Some((what, feature.missing()?))) {
        Some((what, feature)) => Err(UsageError::MissingFeature { what, feature }),
        None => Ok(()),
    }
}

/// Warns if the Opus complexity is set in a build without WebRTC.
pub(super) fn warn_unused_tuning(args: &LowArgs, warnings: &mut Vec<String>) {
    if args.opus_complexity.is_some() && !Feature::WebRtc.in_this_build() {
        warnings.push(format!(
            "this build lacks `{}` and ignores {}",
            Feature::WebRtc.name(),
            flags::variable(COMPLEXITY)
        ));
    }
}

/// Warns once of credentials that this build does not use.
pub(super) fn warn_unused_credentials(variables: &Variables, warnings: &mut Vec<String>) {
    let unused = credentials().filter(|(feature, name)| !feature.in_this_build() && variables.named(name).is_some());
    let (mut names, mut features) = (Vec::new(), Vec::new());
    for (feature, name) in unused {
        names.push(found(variables, name));
        let feature = format!("`{}`", feature.name());
        if !features.contains(&feature) {
            features.push(feature);
        }
    }
    if !names.is_empty() {
        warnings.push(format!(
            "this build lacks {} and ignores {}",
            features.join(" and "),
            names.join(", ")
        ));
    }
}

/// Returns the features that this build lacks, for the start of the help; `None` if it has all.
pub(super) fn missing_features() -> Option<String> {
    let missing: Vec<&str> = Feature::ALL
        .iter()
        .filter(|feature| !feature.in_this_build())
        .map(|feature| feature.name())
        .collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::flags::{FLAGS, MOQ, WEBRTC};
    use crate::proto::options::help::mark_missing;
    use crate::proto::options::{FlagKind, need};

    #[test]
    fn tables_have_existing_names() {
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

    /// Otherwise a build without the feature would ignore the option silently.
    #[test]
    fn every_option_of_a_transport_needs_its_feature() {
        for flag in FLAGS.iter().filter(|flag| flag.group == WEBRTC) {
            assert_eq!(of_option(flag.long), Some(Feature::WebRtc), "{}", flag.long);
        }
        for flag in FLAGS.iter().filter(|flag| flag.group == MOQ) {
            assert_eq!(of_option(flag.long), Some(Feature::Moq), "{}", flag.long);
        }
    }

    /// Giving an option requires its feature, unless the option only turns the feature off.
    #[test]
    fn a_given_option_needs_its_feature() {
        for (long, _, is_given) in OPTIONS {
            let flag = FLAGS.iter().find(|flag| flag.long == *long).expect("an option");
            let mut args = LowArgs::default();
            assert!(!is_given(&args), "{long}");
            args.given.push(flag.long);
            let value = match *long {
                "--bot" => "echo",
                "--tls" => "auto",
                "--metrics" => "any",
                "--ws-auth" => "token",
                "--register" => "room",
                "--target-load" => "0.5",
                "--ice-address" => "192.0.2.1",
                _ => "7",
            };
            match &flag.kind {
                FlagKind::Switch(set) => set(&mut args),
                FlagKind::Value(_, set)
                | FlagKind::Optional(_, set)
                | FlagKind::Repeatable(_, set)
                | FlagKind::List(_, set) => {
                    set(&mut args, value.to_owned()).expect(long);
                }
                FlagKind::Count(_) | FlagKind::Help | FlagKind::Version => panic!("{long} needs no feature"),
            }
            assert_eq!(is_given(&args), *long != "--no-dialin", "{long}");
        }
    }

    /// The default build has every feature, so it rejects, marks and warns of nothing.
    #[test]
    fn a_full_build_rejects_nothing() {
        let args = LowArgs {
            direct: true,
            embedded: true,
            command: Some(vec![OsString::from("true")]),
            ..LowArgs::default()
        };
        assert_eq!(check(&args, Some(Transport::Telephony(PROVIDERS[0]))), Ok(()));
        assert_eq!(need("`edge-runner doctor`", Feature::Doctor), Ok(()));
        assert_eq!(crate::features::sockets().as_deref(), Some("/ws and /ws-client"));
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
