//! The text of `--help`, made from the table of options.
//!
//! Nothing enters but the table; 100 columns at most leave. A change to the table changes `tests/data/help.txt`.

use std::borrow::Cow;

use super::features::{missing_features, of_option, of_variable};
use super::flags;
use super::flags::{FLAGS, GROUPS, RunnerFlag};
use crate::aliases::{self, Area};
use crate::features::Feature;
use crate::proto::options::HIDDEN;
use crate::proto::options::help::{ABSENT, entries, entry, mark_missing, paragraph};
use crate::proto::telephony::settings::{Holds, Setting};
use crate::proto::telephony::{PROVIDERS, Provider};

const HEAD: &str = "\
Runs voice bots for callers that connect over WebRTC (browsers, microcontrollers), over a WebSocket,
by telephone, or in a room.
";

/// Ways to call the runner, what each is for, and the feature that it needs.
const USAGE: &[(&str, &str, Option<Feature>)] = &[
    ("[OPTIONS]", "serve the built-in bot", None),
    (
        "[OPTIONS] -- COMMAND [ARGS...]",
        "run this command as the bot of each session",
        None,
    ),
    ("doctor [OPTIONS]", "find what keeps callers out", Some(Feature::Doctor)),
    (
        "cloud COMMAND [OPTIONS]",
        "the cloud agent service and its client",
        Some(Feature::Cloud),
    ),
    ("completions bash|zsh|fish", "print completions for a shell", None),
];

/// The uses that most people begin with.
const EXAMPLES: &[(&str, &str)] = &[
    ("edge-runner", "Talk to the built-in bot at http://localhost:7860."),
    (
        "edge-runner --host 0.0.0.0 --tls auto -- python3 bot.py",
        "Serve your own bot to the local network, over HTTPS.",
    ),
    (
        "edge-runner -t twilio -x bot.example.net",
        "Take calls of Twilio; the webhook is https://bot.example.net/.",
    ),
];

/// The address of the documentation.
const DOCS: &str = env!("CARGO_PKG_REPOSITORY");

/// How options are set by variables.
const OF_OPTIONS: &str = "Every option has a variable, such as RUNNER_MAX_SESSIONS for `--max-sessions`. Items of a list are \
                          separated by commas. Options without a value take true or false, -v takes a number. The command \
                          line wins.";

/// What variables say, other than those of options and of telephony providers.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("VIDEOROOM_API_KEY", "API key of Daily, which creates rooms and tokens."),
    (
        "VIDEOROOM_API_URL",
        "Base URL of the API of Daily. [default: https://api.daily.co/v1]",
    ),
    (
        "VIDEOROOM_ROOM_URL",
        "An existing room for every session. Dial-in calls get new rooms.",
    ),
    (
        "VIDEOROOM_SAMPLE_ROOM_URL",
        "An existing room to use in place of new rooms.",
    ),
    (
        "VIDEOROOM_DIALIN_HMAC",
        "Secret of the dial-in webhook, in base64. If set, the webhook is verified.",
    ),
    (
        "MEDIAROOM_URL",
        "URL of the LiveKit server: ws, wss, http or https. With key and secret, bots join its rooms.",
    ),
    ("MEDIAROOM_API_KEY", "API key of the LiveKit server."),
    ("MEDIAROOM_API_SECRET", "API secret of the LiveKit server."),
    (
        "MEDIAROOM_ROOM_NAME",
        "One room for every session. [default: a new room for each]",
    ),
    (
        "MESSAGING_TOKEN",
        "Access token of a WhatsApp system user, which answers calls.",
    ),
    (
        "MESSAGING_PHONE_NUMBER_ID",
        "Id of the WhatsApp business number. Calls to other numbers are ignored.",
    ),
    (
        "MESSAGING_APP_SECRET",
        "Secret of the WhatsApp app, which signs the webhooks.",
    ),
    (
        "MESSAGING_WEBHOOK_VERIFICATION_TOKEN",
        "A word of your choice; enter the same in the dashboard of the provider.",
    ),
    (
        "MESSAGING_API_URL",
        "Base URL of the API of WhatsApp. [default: https://graph.facebook.com/v23.0]",
    ),
    (
        "RUNNER_START_NAMES",
        "Names of the fields in the reply of `/start` for Daily: canonical, alias or both. [default: both]",
    ),
    ("RUST_LOG", "Log filter, such as `edge_runner=debug,str0m=info`."),
    ("ENV", "Set to `local` by the runner, for bots."),
];

const EXIT: &[(&str, &str)] = &[
    ("0", "Done: the runner was asked to stop."),
    ("1", "Run-time error, such as a port that is in use."),
    ("2", "Usage error: the message on stderr says what is expected."),
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
        let name = vendor(provider);
        let earlier = told.iter().find(|(help, _)| *help == setting.help);
        let help = match (setting.holds, earlier, setting.help.split_once(". ")) {
            (Holds::Base(base), ..) => format!("{} [default: {base}]", setting.help),
            (_, Some((_, first)), Some((sentence, _))) => format!("{sentence}, as with {}.", vendor(first)),
            _ => setting.help.to_owned(),
        };
        told.push((setting.help, provider));
        entries.push((setting.name, help.replace("{}", name)));
    }
    entries
}

/// Returns the name by which people know a provider.
fn vendor(provider: &Provider) -> &'static str {
    let name = provider.wire_name();
    aliases::aliases(Area::Transport, name).first().copied().unwrap_or(name)
}

/// Returns the values of `-t` of the providers that take markup.
fn takers_of_markup(providers: &[&Provider]) -> String {
    let takers = providers.iter().filter(|provider| provider.takes_markup);
    let words: Vec<String> = takers.map(|provider| format!("`-t {}`", vendor(provider))).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => "none".to_owned(),
    }
}

/// Makes the text of `doctor --help`.
pub(super) fn doctor() -> String {
    let mut text = String::from("Usage: edge-runner doctor [OPTIONS]\n\n");
    paragraph(
        &mut text,
        "Checks what keeps callers out: the port, addresses, TLS, keys, STUN and TURN servers, the credentials of providers, \
         and the limits of this machine. Prints one line per check, with the remedy where something is wrong. It starts no bot.",
    );
    text.push('\n');
    paragraph(
        &mut text,
        "Give it the options and variables of the runner that it is to check; `edge-runner --help` lists them.",
    );
    text.push_str("\nExamples:\n  edge-runner doctor --host 0.0.0.0 --tls auto\n");
    text.push_str("  edge-runner doctor -t twilio -x bot.example.net\n");
    text.push_str("\nExit codes:\n");
    for (code, help) in [
        ("  0", "Nothing keeps callers out. Warnings may be printed."),
        ("  1", "At least one check failed."),
        ("  2", "Usage error: the message on stderr says what is expected."),
    ] {
        entry(&mut text, code, help);
    }
    documentation(&mut text);
    text
}

/// Adds where the documentation is.
fn documentation(text: &mut String) {
    text.push_str(&format!("\nDocumentation: {DOCS}\n"));
}

/// Makes the text of `--help`.
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
    text.push_str("\nExamples:\n");
    for (command, help) in EXAMPLES {
        text.push_str(&format!("  {command}\n"));
        entry(&mut text, "", help);
    }
    if let Some(lacking) = missing_features() {
        text.push('\n');
        entry(&mut text, "This build lacks:", &lacking);
        text.push_str(&format!(
            "Options marked {ABSENT} are refused; such variables are ignored.\n"
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
    for flag in FLAGS.iter().filter(|flag| flag.group != HIDDEN) {
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
    documentation(&mut text);
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
            return Cow::Owned(format!("{help}. Required with {needed}."));
        }
        _ => return Cow::Borrowed(flag.help),
    }
    let listed = flags::transports().map(|transport| {
        let (common, name) = (flags::common_name(transport), transport.name());
        let mark = match transport.in_this_build() {
            true => String::new(),
            false => format!(" {ABSENT}"),
        };
        match common == name {
            true => format!("{name}{mark}"),
            false => format!("{common} ({name}){mark}"),
        }
    });
    let listed: Vec<String> = listed.collect();
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
            assert_eq!(text.contains(flag.long), flag.group != HIDDEN, "{}", flag.long);
        }
        let base = Videoroom::default().url;
        assert!(text.contains(&format!("[default: {base}]")), "{base}");
    }
}
