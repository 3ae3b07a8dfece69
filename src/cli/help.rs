//! The text of `--help`, made from the table of options.
//!
//! Nothing enters but the table; 100 columns at most leave. A change to the table changes `tests/data/help.txt`.

use std::borrow::Cow;

use super::features::{missing_features, of_option, of_variable};
use super::flags;
use super::flags::{FLAGS, GROUPS, RunnerFlag};
use crate::aliases::{self, Area};
use crate::config::Transport;
use crate::features::Feature;
use crate::proto::options::help::{ABSENT, entries, entry, mark_missing};
use crate::proto::telephony::settings::{Holds, Setting};
use crate::proto::telephony::{PROVIDERS, Provider};

const HEAD: &str = "\
Runs voice bots for callers that come over WebRTC (browsers, microcontrollers), over a WebSocket, by
telephone, or in a room.
";

/// Ways to call the runner, what each is for, and the ability that it needs.
const USAGE: &[(&str, &str, Option<Feature>)] = &[
    ("[OPTIONS]", "serve the built-in bot", None),
    (
        "[OPTIONS] -- COMMAND [ARGS...]",
        "run this program as the bot of each session",
        None,
    ),
    (
        "doctor [OPTIONS]",
        "say what would keep callers out, and what to do",
        Some(Feature::Doctor),
    ),
    (
        "cloud <serve|regions|build|...>",
        "the cloud agent service and its client",
        Some(Feature::Cloud),
    ),
];

const LATER: &str = "\nOptions marked [later] are understood and refused: they are not in this build yet.\n";

/// How options are set by variables.
const OF_OPTIONS: &str = "Every option has one: RUNNER_MAX_SESSIONS for `--max-sessions`. Lists have commas, options without \
                          a value take true or false, -v a number. What is typed wins.";

/// What variables say, other than those of options and of telephony providers.
const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "VIDEOROOM_API_KEY",
        "Key of the video-room provider, with which rooms and tokens are made.",
    ),
    (
        "VIDEOROOM_API_URL",
        "Base of its API. [default: https://api.daily.co/v1]",
    ),
    (
        "VIDEOROOM_ROOM_URL",
        "One existing room for every session but calls, which get new ones.",
    ),
    (
        "VIDEOROOM_SAMPLE_ROOM_URL",
        "An existing room, used wherever a new one is asked for.",
    ),
    (
        "VIDEOROOM_DIALIN_HMAC",
        "Secret of the dial-in webhook in base64; with it, the webhook is verified.",
    ),
    (
        "MEDIAROOM_URL",
        "Server of media rooms: ws, wss, http or https. With its key and its secret, bots join its rooms.",
    ),
    ("MEDIAROOM_API_KEY", "Key at that server."),
    ("MEDIAROOM_API_SECRET", "Secret of that key."),
    (
        "MEDIAROOM_ROOM_NAME",
        "One room for every session. [default: a new one for each]",
    ),
    (
        "MESSAGING_TOKEN",
        "Access token of a system user of the messaging app's provider, with which calls are answered.",
    ),
    (
        "MESSAGING_PHONE_NUMBER_ID",
        "Id of the business number; calls of other numbers are left alone.",
    ),
    ("MESSAGING_APP_SECRET", "Secret of the app, which signs the webhooks."),
    (
        "MESSAGING_WEBHOOK_VERIFICATION_TOKEN",
        "A word of your own, typed into the provider's dashboard too.",
    ),
    (
        "MESSAGING_API_URL",
        "Base of the provider's API. [default: https://graph.facebook.com/v23.0]",
    ),
    (
        "RUNNER_START_NAMES",
        "Names in the answer of `/start` about a video room: canonical, alias or both. [default: both]",
    ),
    ("RUST_LOG", "What is logged, such as `edge_runner=debug,str0m=info`."),
    ("ENV", "Set to `local` by the runner, for bots to read."),
];

const EXIT: &[(&str, &str)] = &[
    ("0", "Done: the runner was asked to stop."),
    ("1", "Failed at run time, such as a port in use."),
    ("2", "Misused: the message on stderr says what would be right."),
];

/// Returns what variables say, other than those of options: of telephony providers, then of others.
pub(super) fn environment(providers: &[&Provider]) -> Vec<(&'static str, String)> {
    let others = ENVIRONMENT.iter().map(|&(name, help)| (name, help.to_owned()));
    telephony(providers).into_iter().chain(others).collect()
}

/// Returns what the variables of providers say: credentials first, then the bases of their APIs.
/// What follows the first sentence at one provider is not repeated at the next.
fn telephony(providers: &[&Provider]) -> Vec<(&'static str, String)> {
    let all = || {
        let settings = providers
            .iter()
            .map(|provider| provider.settings.iter().map(|setting| (*provider, setting)));
        settings.flatten()
    };
    let is_base = |(_, setting): &(&Provider, &Setting)| matches!(setting.holds, Holds::Base(_));
    let sorted = all().filter(|entry| !is_base(entry)).chain(all().filter(is_base));
    let mut told: Vec<(&str, &Provider)> = Vec::new();
    let mut entries = Vec::new();
    for (provider, setting) in sorted {
        let name = provider.wire_name();
        let earlier = told.iter().find(|(help, _)| *help == setting.help);
        let help = match (setting.holds, earlier, setting.help.split_once(". ")) {
            (Holds::Base(base), ..) => format!("{} [default: {base}]", setting.help),
            (_, Some((_, first)), Some((sentence, _))) => format!("{sentence}, as with {}.", first.wire_name()),
            _ => setting.help.to_owned(),
        };
        told.push((setting.help, provider));
        entries.push((setting.name, help.replace("{}", name)));
    }
    entries
}

/// Returns the names of the providers that take markup, as those of `-t`: in full, and then by
/// what differs.
fn takers_of_markup(providers: &[&Provider]) -> String {
    let names = providers
        .iter()
        .filter(|provider| provider.takes_markup)
        .map(|provider| provider.wire_name());
    let mut words: Vec<String> = Vec::new();
    let mut before = "";
    for name in names {
        let stem = name.rfind('_').map_or(name, |at| &name[..at]);
        words.push(match name.strip_prefix(before) {
            Some(rest) if !before.is_empty() => format!("`{rest}`"),
            _ => format!("`-t {name}`"),
        });
        before = stem;
    }
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => "none".to_owned(),
    }
}

/// Makes the text.
pub(super) fn text() -> String {
    let mut text = String::from(HEAD);
    for (i, (arguments, help, feature)) in USAGE.iter().enumerate() {
        let before = if i == 0 { "\nUsage:" } else { "      " };
        // The mark alone: the line has no room for both.
        let help = match feature.and_then(Feature::missing) {
            Some(_) => ABSENT,
            None => help,
        };
        text.push_str(&format!("{before} edge-runner {arguments:<32} {help}\n"));
    }
    text.push_str(LATER);
    if let Some(lacking) = missing_features() {
        entry(&mut text, "This build lacks:", &lacking);
        text.push_str(&format!(
            "Options marked {ABSENT} are understood and refused; such variables are left alone.\n"
        ));
    }
    for title in GROUPS {
        text.push_str(&format!("\n{title}:\n"));
        entries(&mut text, FLAGS.iter().filter(|flag| flag.group == title), |flag| {
            mark_missing(of_option(flag.long), &described(flag))
        });
    }
    text.push_str("\nEnvironment (also read from .env in the working directory; real variables win):\n");
    entry(&mut text, "  RUNNER_...", OF_OPTIONS);
    for flag in FLAGS {
        let variable = flags::variable(flag.long);
        let others = aliases::aliases(Area::Variable, &variable);
        if !others.is_empty() {
            let help = format!("Also: {}.", others.join(", "));
            entry(
                &mut text,
                &format!("  {variable}"),
                &mark_missing(of_option(flag.long), &help),
            );
        }
    }
    for (name, help) in environment(&PROVIDERS) {
        let others = aliases::aliases(Area::Variable, name);
        let mut help = mark_missing(of_variable(name), &help);
        if !others.is_empty() {
            help.push_str(&format!(" Also: {}.", others.join(", ")));
        }
        entry(&mut text, &format!("  {name}"), &help);
    }
    text.push_str("\nExit codes:\n");
    for (code, help) in EXIT {
        entry(&mut text, &format!("  {code}"), help);
    }
    text
}

/// What an option does. The one that chooses between transports lists them, each with its own mark;
/// the one of the public host lists those that need it.
fn described(flag: &RunnerFlag) -> Cow<'static, str> {
    match flag.long {
        "--transport" => {}
        "--proxy" => {
            let needed = takers_of_markup(&PROVIDERS);
            let help = flag.help.trim_end_matches('.');
            return Cow::Owned(format!("{help}; needed with {needed}."));
        }
        _ => return Cow::Borrowed(flag.help),
    }
    let listed = Transport::ALL.map(|transport| match transport.feature() {
        None => format!("{} [later]", transport.name()),
        Some(feature) if !feature.in_this_build() => format!("{} {ABSENT}", transport.name()),
        Some(_) => transport.name().to_owned(),
    });
    Cow::Owned(format!("{} One of {}.", flag.help, listed.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Videoroom;

    /// The text that people see is kept as a file, so that a change to it is seen in review. To renew it:
    /// `cargo run -- --help > tests/data/help.txt`.
    #[test]
    fn the_help_is_the_golden_file() {
        assert_eq!(text(), include_str!("../../tests/data/help.txt"));
    }

    #[test]
    fn no_line_is_wider_than_a_terminal_and_every_option_is_named() {
        let text = text();
        for line in text.lines() {
            assert!(line.chars().count() <= crate::proto::options::help::WIDTH, "{line}");
            assert_eq!(line, line.trim_end());
        }
        for flag in FLAGS {
            assert!(text.contains(flag.long));
        }
        let base = Videoroom::default().url;
        assert!(text.contains(&format!("[default: {base}]")), "{base}");
    }
}
