//! What of the command line and the environment belongs to which ability, so that a build says what it lacks.
//!
//! In: what was typed, and the variables. Out: a refusal that names the cargo feature; a warning about credentials that
//! nobody will use; marks for the help. Where a build has everything, nothing here is ever said.

use super::Misuse;
use super::env::Variables;
use super::flags::{Typed, WsAuth};
use super::values::found;
use crate::abilities::Ability;
use crate::config::{MetricsAccess, Tls, Transport};

/// Options that are nothing without their ability.
const OPTIONS: &[(Ability, &[&str])] = &[
    (
        Ability::WebRtc,
        &["--rtc-port", "--ice-servers", "--ice-address", "--embedded"],
    ),
    (Ability::Telephony, &["--no-verify-webhooks"]),
    (Ability::Videoroom, &["--direct", "--dialin", "--no-dialin"]),
    (Ability::Tls, &["--tls", "--state-dir"]),
    (Ability::Bots, &["--bot"]),
    (Ability::Metrics, &["--metrics"]),
];

/// Beginnings of variables that are nothing without their ability.
const VARIABLES: &[(Ability, &[&str])] = &[
    (Ability::WebRtc, &["RUNNER_ICE_SERVERS"]),
    (Ability::Telephony, &["TELCO_"]),
    (Ability::Videoroom, &["VIDEOROOM_", "RUNNER_START_NAMES"]),
    (Ability::Mediaroom, &["MEDIAROOM_"]),
];

/// Variables that hold a credential of an ability.
const CREDENTIALS: &[(Ability, &str)] = &[
    (Ability::Telephony, "TELCO_A_AUTH_TOKEN"),
    (Ability::Telephony, "TELCO_B_API_KEY"),
    (Ability::Telephony, "TELCO_B_PUBLIC_KEY"),
    (Ability::Telephony, "TELCO_C_AUTH_TOKEN"),
    (Ability::Videoroom, "VIDEOROOM_API_KEY"),
    (Ability::Videoroom, "VIDEOROOM_DIALIN_HMAC"),
    (Ability::Mediaroom, "MEDIAROOM_API_KEY"),
    (Ability::Mediaroom, "MEDIAROOM_API_SECRET"),
];

/// Returns the ability that an option needs.
pub(super) fn of_option(long: &str) -> Option<Ability> {
    let mut rows = OPTIONS.iter();
    rows.find(|(_, names)| names.contains(&long))
        .map(|(ability, _)| *ability)
}

/// Returns the ability that a variable needs, by its canonical name.
pub(super) fn of_variable(name: &str) -> Option<Ability> {
    let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| name.starts_with(beginning));
    let mut rows = VARIABLES.iter();
    rows.find(|(_, beginnings)| begins(beginnings))
        .map(|(ability, _)| *ability)
}

/// Refuses what was asked for and is not in this build. What only turns an ability off is no wish for it.
///
/// # Errors
/// [`Misuse::Absent`] with the first of them.
pub(super) fn check(typed: &Typed, transport: Option<Transport>) -> Result<(), Misuse> {
    let asked = |is: bool, what: &str, ability: Ability| is.then(|| (what.to_owned(), ability));
    let by_transport =
        transport.and_then(|transport| Some((format!("`-t {}`", transport.name()), transport.ability()?)));
    let tokens = typed.ws_auth == Some(WsAuth::Token) && !Ability::Telephony.in_this_build();
    let wishes = [
        by_transport,
        asked(typed.direct, "`--direct`", Ability::Videoroom),
        asked(typed.dialin, "`--dialin`", Ability::Videoroom),
        asked(typed.rtc_port.is_some(), "`--rtc-port`", Ability::WebRtc),
        asked(!typed.ice_servers.is_empty(), "`--ice-servers`", Ability::WebRtc),
        asked(!typed.ice_addresses.is_empty(), "`--ice-address`", Ability::WebRtc),
        asked(typed.embedded, "`--embedded`", Ability::WebRtc),
        asked(typed.no_verify_webhooks, "`--no-verify-webhooks`", Ability::Telephony),
        asked(
            typed.tls.as_ref().is_some_and(|tls| *tls != Tls::Off),
            "`--tls`",
            Ability::Tls,
        ),
        asked(typed.state_dir.is_some(), "`--state-dir`", Ability::Tls),
        asked(
            typed.metrics.is_some_and(|metrics| metrics != MetricsAccess::Off),
            "`--metrics`",
            Ability::Metrics,
        ),
        asked(tokens, "`--ws-auth token`", Ability::WebSocket),
        asked(typed.bot.is_some(), "`--bot`", Ability::Bots),
        asked(typed.command.is_some(), "a program after `--`", Ability::Process),
    ];
    refuse(wishes.into_iter().flatten())
}

/// Refuses `edge-runner doctor` where it is not.
///
/// # Errors
/// [`Misuse::Absent`].
pub(super) fn check_doctor() -> Result<(), Misuse> {
    refuse([("`edge-runner doctor`".to_owned(), Ability::Doctor)].into_iter())
}

fn refuse(mut wishes: impl Iterator<Item = (String, Ability)>) -> Result<(), Misuse> {
    match wishes.find_map(|(what, ability)| Some((what, ability.absent()?))) {
        Some((what, absent)) => Err(Misuse::Absent { what, absent }),
        None => Ok(()),
    }
}

/// Warns, once, of credentials that this build has no use for.
pub(super) fn idle_credentials(variables: &Variables, warnings: &mut Vec<String>) {
    let idle = CREDENTIALS
        .iter()
        .filter(|(ability, name)| !ability.in_this_build() && variables.named(name).is_some());
    let (mut names, mut features) = (Vec::new(), Vec::new());
    for (ability, name) in idle {
        names.push(found(variables, name));
        let feature = format!("`{}`", ability.feature());
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

/// Returns the sentence with which the help begins in a build that lacks something; nothing in a build that lacks nothing.
pub(super) fn what_is_absent() -> String {
    let lacking: Vec<&str> = Ability::ALL
        .iter()
        .filter(|ability| !ability.in_this_build())
        .map(|ability| ability.feature())
        .collect();
    match lacking.is_empty() {
        true => String::new(),
        false => format!(
            "This build lacks: {}.\nOptions marked [not in this build] are understood and refused.\n",
            lacking.join(", ")
        ),
    }
}

/// Returns a text of the help with the mark of what is not in this build.
pub(super) fn marked(ability: Option<Ability>, text: &str) -> String {
    match ability.and_then(Ability::absent) {
        Some(_) => format!("[not in this build] {text}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::flags::FLAGS;

    #[test]
    fn every_name_is_one_that_there_is() {
        for (_, names) in OPTIONS {
            for name in *names {
                assert!(FLAGS.iter().any(|flag| flag.long == *name), "{name}");
            }
        }
        for (ability, name) in CREDENTIALS {
            assert_eq!(of_variable(name), Some(*ability), "{name}");
        }
        assert_eq!(of_option("--embedded"), Some(Ability::WebRtc));
        assert_eq!(of_option("--port"), None);
        assert_eq!(of_variable("RUST_LOG"), None);
    }

    /// The default build lacks nothing, so nothing is refused, marked, or warned of.
    #[test]
    fn a_build_with_everything_says_nothing() {
        let typed = Typed {
            direct: true,
            embedded: true,
            command: Some(vec![OsString::from("true")]),
            ..Typed::default()
        };
        assert_eq!(check(&typed, Some(Transport::TelephonyA)), Ok(()));
        assert_eq!(check_doctor(), Ok(()));
        assert_eq!(marked(Some(Ability::Tls), "text"), "text");
        assert_eq!(what_is_absent(), "");
        let mut warnings = Vec::new();
        let own = CREDENTIALS.iter().map(|(_, name)| ((*name).to_owned(), "x".to_owned()));
        idle_credentials(&Variables::new(own, []), &mut warnings);
        assert_eq!(warnings, [""; 0]);
    }
}
