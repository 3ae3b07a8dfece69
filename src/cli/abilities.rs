//! What of the command line and the environment belongs to which ability, so that a build says what it lacks.
//!
//! In: what was typed, and the variables. Out: a refusal that names the cargo feature; a warning about credentials that
//! nobody will use; marks for the help. Where a build has everything, nothing here is ever said.

use super::Misuse;
use super::flags;
use super::flags::{Typed, WsAuth};
use crate::abilities::Ability;
use crate::config::{Tls, Transport};
use crate::proto::options::env::Variables;
use crate::proto::options::values::found;
use crate::proto::telephony::PROVIDERS;
use crate::proto::telephony::settings::Holds;

/// An option; the abilities of which it takes one, the first of them the one to name; and whether it was asked for. What only
/// turns an ability off asks for nothing.
type Row = (&'static str, &'static [Ability], fn(&Typed) -> bool);

/// Options that are nothing without their ability.
const OPTIONS: &[Row] = &[
    ("--rtc-port", &[Ability::WebRtc], |typed| typed.rtc_port.is_some()),
    ("--ice-servers", &[Ability::WebRtc], |typed| {
        !typed.ice_servers.is_empty()
    }),
    ("--ice-address", &[Ability::WebRtc], |typed| {
        !typed.ice_addresses.is_empty()
    }),
    ("--embedded", &[Ability::WebRtc], |typed| typed.embedded),
    (COMPLEXITY, &[Ability::WebRtc], |typed| typed.said.contains(&COMPLEXITY)),
    ("--no-verify-webhooks", &[Ability::Telephony], |typed| {
        typed.no_verify_webhooks
    }),
    ("--unverified-calls", &[Ability::Telephony], |typed| {
        typed.unverified_calls
    }),
    ("--direct", &[Ability::Videoroom], |typed| typed.direct),
    ("--dialin", &[Ability::Videoroom], |typed| typed.dialin),
    ("--no-dialin", &[Ability::Videoroom], |_| false),
    ("--messaging", &[Ability::Messaging], |typed| typed.messaging),
    ("--tls", &[Ability::Tls], |typed| {
        typed.tls.as_ref().is_some_and(|tls| *tls != Tls::Off)
    }),
    ("--state-dir", &[Ability::Tls], |typed| typed.state_dir.is_some()),
    ("--ws-auth", &[Ability::WebSocket, Ability::Telephony], |typed| {
        typed.ws_auth == Some(WsAuth::Token)
    }),
];

/// What it sets costs nothing to go without, and every board's profile sets it, for whichever build: only who types it is
/// refused.
const COMPLEXITY: &str = "--opus-complexity";

/// Paths of sockets that callers open.
const SOCKETS: &[(Ability, &str)] = &[(Ability::Telephony, "/ws"), (Ability::WebSocket, "/ws-client")];

/// Paths that the key of `--api-key` guards, whatever `-t` says.
const GUARDED: &[(Option<Ability>, &str)] = &[(None, "/start"), (Some(Ability::WebRtc), "/api/offer")];

/// Beginnings of variables that are nothing without their ability. Those of telephony are in the
/// tables of its providers.
const VARIABLES: &[(Ability, &[&str])] = &[
    (Ability::Videoroom, &["VIDEOROOM_", "RUNNER_START_NAMES"]),
    (Ability::Mediaroom, &["MEDIAROOM_"]),
    (Ability::Messaging, &["MESSAGING_"]),
];

/// Variables that hold a credential of an ability. Those of telephony are in the tables of its
/// providers.
const CREDENTIALS: &[(Ability, &str)] = &[
    (Ability::Videoroom, "VIDEOROOM_API_KEY"),
    (Ability::Videoroom, "VIDEOROOM_DIALIN_HMAC"),
    (Ability::Mediaroom, "MEDIAROOM_API_KEY"),
    (Ability::Mediaroom, "MEDIAROOM_API_SECRET"),
    (Ability::Messaging, "MESSAGING_TOKEN"),
    (Ability::Messaging, "MESSAGING_APP_SECRET"),
    (Ability::Messaging, "MESSAGING_WEBHOOK_VERIFICATION_TOKEN"),
];

/// Returns the ability and the name of every variable that holds a credential.
fn credentials() -> impl Iterator<Item = (Ability, &'static str)> {
    let settings = PROVIDERS.into_iter().flat_map(|provider| provider.settings);
    let keys = settings.filter(|setting| matches!(setting.holds, Holds::Secret | Holds::PublicKey));
    keys.map(|setting| (Ability::Telephony, setting.name))
        .chain(CREDENTIALS.iter().copied())
}

/// Returns the ability that an option needs; of several that would do, one that this build has.
pub(super) fn of_option(long: &str) -> Option<Ability> {
    let (_, abilities, _) = OPTIONS.iter().find(|(name, ..)| *name == long)?;
    let built = abilities.iter().find(|ability| ability.in_this_build());
    built.or(abilities.first()).copied()
}

/// Returns the ability that a variable needs, by its canonical name.
pub(super) fn of_variable(name: &str) -> Option<Ability> {
    let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| name.starts_with(beginning));
    let mut settings = PROVIDERS.into_iter().flat_map(|provider| provider.settings);
    if settings.any(|setting| setting.name == name) {
        return Some(Ability::Telephony);
    }
    let mut rows = VARIABLES.iter();
    rows.find(|(_, beginnings)| begins(beginnings))
        .map(|(ability, _)| *ability)
}

/// Reads what surroundings say of an ability; in a build without it they are left alone, and may say anything.
///
/// # Errors
/// Those of `read`.
pub(super) fn where_built<T: Default>(ability: Ability, read: impl FnOnce() -> Result<T, Misuse>) -> Result<T, Misuse> {
    match ability.in_this_build() {
        true => read(),
        false => Ok(T::default()),
    }
}

/// Returns the paths of this build's sockets, for a sentence; nothing where it has none.
pub(super) fn sockets() -> Option<String> {
    let built = SOCKETS.iter().filter(|(ability, _)| ability.in_this_build());
    let paths: Vec<&str> = built.map(|(_, path)| *path).collect();
    (!paths.is_empty()).then(|| paths.join(" and "))
}

/// Returns the paths of this build that the key guards, for a sentence.
pub(super) fn guarded() -> String {
    let is_built = |ability: Option<Ability>| ability.is_none_or(Ability::in_this_build);
    let built = GUARDED.iter().filter(|(ability, _)| is_built(*ability));
    let paths: Vec<&str> = built.map(|(_, path)| *path).collect();
    paths.join(" and ")
}

/// Refuses what was asked for and is not in this build. What only turns an ability off is no wish for it.
///
/// # Errors
/// [`Misuse::Absent`] with the first of them.
pub(super) fn check(typed: &Typed, transport: Option<Transport>) -> Result<(), Misuse> {
    let by_transport =
        transport.and_then(|transport| Some((format!("`-t {}`", transport.name()), transport.ability()?)));
    let asked = OPTIONS.iter().filter(|(.., asked)| asked(typed));
    let by_options = asked.filter_map(|(long, ..)| Some((format!("`{long}`"), of_option(long)?)));
    refuse(by_transport.into_iter().chain(by_options))
}

fn refuse(mut wishes: impl Iterator<Item = (String, Ability)>) -> Result<(), Misuse> {
    match wishes.find_map(|(what, ability)| Some((what, ability.absent()?))) {
        Some((what, absent)) => Err(Misuse::Absent { what, absent }),
        None => Ok(()),
    }
}

/// Warns of the variable that every board's profile sets, where nothing reads it.
pub(super) fn idle_tuning(typed: &Typed, warnings: &mut Vec<String>) {
    if typed.opus_complexity.is_some() && !Ability::WebRtc.in_this_build() {
        warnings.push(format!(
            "set, and not used by this build, which lacks `{}`: {}",
            Ability::WebRtc.feature(),
            flags::variable(COMPLEXITY)
        ));
    }
}

/// Warns, once, of credentials that this build has no use for.
pub(super) fn idle_credentials(variables: &Variables, warnings: &mut Vec<String>) {
    let idle = credentials().filter(|(ability, name)| !ability.in_this_build() && variables.named(name).is_some());
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

/// Returns what this build lacks, for the beginning of the help; nothing in a build that lacks nothing.
pub(super) fn what_is_absent() -> Option<String> {
    let lacking: Vec<&str> = Ability::ALL
        .iter()
        .filter(|ability| !ability.in_this_build())
        .map(|ability| ability.feature())
        .collect();
    (!lacking.is_empty()).then(|| lacking.join(", "))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::flags::{FLAGS, WEBRTC};
    use crate::proto::options::help::marked;
    use crate::proto::options::{Takes, need};

    #[test]
    fn every_name_is_one_that_there_is() {
        for (name, ..) in OPTIONS {
            assert!(FLAGS.iter().any(|flag| flag.long == *name), "{name}");
        }
        for (ability, name) in credentials() {
            assert_eq!(of_variable(name), Some(ability), "{name}");
        }
        assert_eq!(of_option("--embedded"), Some(Ability::WebRtc));
        assert_eq!(of_option("--port"), None);
        assert_eq!(of_variable("RUST_LOG"), None);
    }

    /// A build without WebRTC would ignore it in silence otherwise.
    #[test]
    fn every_option_of_webrtc_needs_webrtc() {
        for flag in FLAGS.iter().filter(|flag| flag.group == WEBRTC) {
            assert_eq!(of_option(flag.long), Some(Ability::WebRtc), "{}", flag.long);
        }
    }

    /// Each way in which an option is typed is a wish for its ability, but for those that turn it off.
    #[test]
    fn every_option_is_asked_for_by_being_typed() {
        for (long, _, asked) in OPTIONS {
            let flag = FLAGS.iter().find(|flag| flag.long == *long).expect("an option");
            let mut typed = Typed::default();
            assert!(!asked(&typed), "{long}");
            typed.said.push(flag.long);
            let value = match *long {
                "--bot" => "echo",
                "--tls" => "auto",
                "--metrics" => "any",
                "--ws-auth" => "token",
                "--ice-address" => "192.0.2.1",
                _ => "7",
            };
            match &flag.takes {
                Takes::Nothing(set) => set(&mut typed),
                Takes::One(_, set) | Takes::Each(_, set) | Takes::Many(_, set) => {
                    set(&mut typed, value.to_owned()).expect(long);
                }
                Takes::Count(_) | Takes::Help | Takes::Version => panic!("{long} belongs to no ability"),
            }
            assert_eq!(asked(&typed), *long != "--no-dialin", "{long}");
        }
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
        assert_eq!(check(&typed, Some(Transport::Telephony(PROVIDERS[0]))), Ok(()));
        assert_eq!(need("`edge-runner doctor`", Ability::Doctor), Ok(()));
        assert_eq!(sockets().as_deref(), Some("/ws and /ws-client"));
        assert_eq!(guarded(), "/start and /api/offer");
        assert_eq!(marked(Some(Ability::Tls), "text"), "text");
        assert_eq!(what_is_absent(), None);
        let mut warnings = Vec::new();
        let own = CREDENTIALS.iter().map(|(_, name)| ((*name).to_owned(), "x".to_owned()));
        idle_credentials(&Variables::new(own, []), &mut warnings);
        let typed = Typed {
            opus_complexity: Some(0),
            ..Typed::default()
        };
        idle_tuning(&typed, &mut warnings);
        assert_eq!(warnings, [""; 0]);
    }
}
