//! Which options and variables need which cargo feature.
//!
//! In: the arguments and the variables. Out: an error that names the missing feature, a warning
//! about credentials that this build does not use, and marks for the help.

use super::UsageError;
use super::flags;
use super::flags::LowArgs;
use crate::config::Transport;
use crate::features::Feature;
use crate::proto::modules;
use crate::proto::options::env::Variables;
use crate::proto::options::values::found;

/// Returns the paths of this build that the key guards, for a sentence.
pub(super) fn guarded() -> String {
    let is_built = |feature: Option<Feature>| feature.is_none_or(Feature::in_this_build);
    let built = modules::GUARDED.iter().filter(|(feature, _)| is_built(*feature));
    let paths: Vec<&str> = built.map(|(_, path)| *path).collect();
    paths.join(" and ")
}

/// Rejects options and transports that this build lacks.
///
/// # Errors
/// [`UsageError::MissingFeature`] for the first of them.
pub(super) fn check(args: &LowArgs, transport: Option<Transport>) -> Result<(), UsageError> {
    let by_transport = transport.map(|transport| (format!("`-t {}`", transport.common_name()), transport.feature()));
    let by_bot = args
        .bot
        .and_then(|bot| Some((format!("`--bot {}`", bot.name()), bot.feature()?)));
    let by_options = args
        .needed
        .iter()
        .filter(|needed| !needed.is_optional)
        .map(|needed| (format!("`{}`", needed.option), needed.feature));
    reject(by_transport.into_iter().chain(by_bot).chain(by_options))
}

fn reject(mut needs: impl Iterator<Item = (String, Feature)>) -> Result<(), UsageError> {
    match needs.find_map(|(what, feature)| Some((what, feature.missing()?))) {
        Some((what, feature)) => Err(UsageError::MissingFeature { what, feature }),
        None => Ok(()),
    }
}

/// Warns of variables that this build ignores.
pub(super) fn warn_unused_variables(args: &LowArgs, warnings: &mut Vec<String>) {
    let ignored = args.needed.iter().filter(|needed| needed.is_optional);
    warnings.extend(ignored.filter(|needed| !needed.feature.in_this_build()).map(|needed| {
        format!(
            "this build lacks `{}` and ignores {}",
            needed.feature.name(),
            flags::variable(needed.option)
        )
    }));
}

/// Warns once of credentials that this build does not use.
pub(super) fn warn_unused_credentials(variables: &Variables, warnings: &mut Vec<String>) {
    let unused =
        modules::credentials().filter(|(feature, name)| !feature.in_this_build() && variables.named(name).is_some());
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
/// `scale` has no option of the runner: the help of `cloud` marks its options.
pub(super) fn missing_features() -> Option<String> {
    let missing: Vec<&str> = Feature::ALL
        .iter()
        .filter(|feature| **feature != Feature::Scale && !feature.in_this_build())
        .map(|feature| feature.name())
        .collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::flags::RUNNER;
    use crate::proto::options::help::mark_missing;
    use crate::proto::options::{env_options, need, parse};
    use crate::proto::telephony::PROVIDERS;

    #[test]
    fn variables_belong_to_their_modules() {
        for (feature, name) in modules::credentials() {
            assert_eq!(modules::feature_of(name), Some(feature), "{name}");
        }
        for module in modules::VARIABLES {
            for variable in module.variables {
                assert!(module.contains(variable.name), "{}", variable.name);
            }
        }
        assert_eq!(modules::feature_of("RUST_LOG"), None);
    }

    fn needed(arguments: &[&str], variables: &[(&str, &str)]) -> Vec<(&'static str, bool)> {
        let mut args = LowArgs::default();
        let arguments = arguments.iter().map(OsString::from).collect();
        parse(&mut args, &RUNNER, arguments).expect("valid options");
        let own = variables
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()));
        env_options::apply(&mut args, &RUNNER, &Variables::new(own, [])).expect("valid variables");
        args.needed
            .iter()
            .map(|needed| (needed.option, needed.is_optional))
            .collect()
    }

    /// Giving an option requires its feature, unless it only turns off what the option is for.
    #[test]
    fn a_given_option_needs_its_feature() {
        assert_eq!(needed(&["--port", "0"], &[]), []);
        assert_eq!(needed(&["--embedded"], &[]), [("--embedded", false)]);
        assert_eq!(needed(&["--tls", "auto"], &[]), [("--tls", false)]);
        assert_eq!(needed(&["--tls", "auto", "--tls", "off"], &[]), []);
        assert_eq!(needed(&["--ws-auth", "none", "--no-dialin"], &[]), []);
        assert_eq!(
            needed(&["--ice-address", "192.0.2.1", "--ice-address", "192.0.2.2"], &[]),
            [("--ice-address", false)]
        );
        assert_eq!(needed(&[], &[("RUNNER_MOQ_SERVE", "false")]), []);
        assert_eq!(needed(&[], &[("RUNNER_MOQ_SERVE", "true")]), [("--moq-serve", false)]);
    }

    /// Every board profile sets the variable of this option, so only the typed option is rejected.
    #[test]
    fn a_variable_of_a_board_profile_needs_no_feature() {
        assert_eq!(
            needed(&[], &[("RUNNER_OPUS_COMPLEXITY", "0")]),
            [("--opus-complexity", true)]
        );
        assert_eq!(needed(&["--opus-complexity", "0"], &[]), [("--opus-complexity", false)]);
    }

    /// The default build has every feature, so it rejects, marks and warns of nothing.
    #[test]
    fn a_full_build_rejects_nothing() {
        let mut args = LowArgs::default();
        let options = ["--direct", "--embedded", "--opus-complexity", "0", "--tls", "auto"];
        parse(&mut args, &RUNNER, options.map(OsString::from).to_vec()).expect("valid options");
        args.command = Some(vec![OsString::from("true")]);
        assert_eq!(check(&args, Some(Transport::Telephony(PROVIDERS[0]))), Ok(()));
        assert_eq!(need("`edge-runner doctor`", Feature::Doctor), Ok(()));
        assert_eq!(crate::features::sockets().as_deref(), Some("/ws and /ws-client"));
        assert_eq!(guarded(), "/start and /api/offer");
        assert_eq!(mark_missing(Some(Feature::Tls), "text"), "text");
        assert_eq!(missing_features(), None);
        let mut warnings = Vec::new();
        let own = modules::credentials().map(|(_, name)| (name.to_owned(), "x".to_owned()));
        warn_unused_credentials(&Variables::new(own, []), &mut warnings);
        warn_unused_variables(&args, &mut warnings);
        assert_eq!(warnings, [""; 0]);
    }
}
