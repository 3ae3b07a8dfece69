//! The texts of `--help` and `-h`, generated from the table of options.
//!
//! Out: lines of at most 100 columns. A change to the table changes `tests/data/help.txt`.

use std::borrow::Cow;

use super::features::missing_features;
use super::flags::{RUNNER, RunnerFlag};
use super::{ProgramIdentity, command, flags};
use crate::aliases::{self, Area};
use crate::features::Feature;
use crate::proto::modules::{self, feature_of};
use crate::proto::options::help::{ABSENT, entries, entry, mark_missing, paragraph};

/// What `-h` shows of the options.
const SUMMARY: [&str; 12] = [
    "--host",
    "--port",
    "--tls",
    "--transport",
    "--proxy",
    "--bot",
    "--tools",
    "--api-key-file",
    "--ws-auth",
    "--max-sessions",
    "--verbose",
    "--help",
];

const HEAD: &str = "\
Runs voice bots for callers that connect over WebRTC (browsers, microcontrollers), over QUIC, over a
WebSocket, by telephone, or in a room.
";

/// The forms of the command line, with their descriptions.
const USAGE: &[(&str, &str)] = &[
    ("[OPTIONS]", "serve the built-in bot"),
    (
        "[OPTIONS] BOT.py [ARGS...]",
        "run this Python bot, also one made for Pipecat",
    ),
    (
        "[OPTIONS] -- COMMAND [ARGS...]",
        "run this command as the bot of each session",
    ),
    ("new KIND NAME", "make a folder with a new bot and its test"),
    ("doctor [OPTIONS]", "check what prevents calls"),
    ("config check|show [FILE]", "check the settings, or print what is set"),
    ("call URL [OPTIONS]", "call a bot: speak, listen, and check the answer"),
    (
        "phone set-up PROVIDER [OPTIONS]",
        "point a telephone number at a runner",
    ),
    ("setup --spool DIR [OPTIONS]", "serve the setup page of a board"),
    (
        "update [--check] [OPTIONS]",
        "replace this program by the latest release",
    ),
    ("cloud COMMAND [OPTIONS]", "the cloud agent service and its client"),
    ("completions bash|zsh|fish", "print completions for a shell"),
];

/// The arguments of common uses, with their descriptions.
const EXAMPLES: &[(&str, &str)] = &[
    ("", "Talk to the built-in bot at http://localhost:7860."),
    (
        "--host 0.0.0.0 --tls auto bot.py",
        "Serve your own bot to the local network, over HTTPS.",
    ),
    (
        "--bot realtime",
        "Talk to an assistant, by the service whose key is in OPENAI_API_KEY.",
    ),
    (
        "-t twilio -x bot.example.net",
        "Accept Twilio calls; the webhook is https://bot.example.net/.",
    ),
];

/// The same for a program with a bot of its own.
const EXAMPLES_OF_OWN_BOT: &[(&str, &str)] = &[
    ("", "Talk to the bot at http://localhost:7860."),
    (
        "--host 0.0.0.0 --tls auto",
        "Serve it to the local network, over HTTPS.",
    ),
    (
        "-t twilio -x bot.example.net",
        "Accept Twilio calls; the webhook is https://bot.example.net/.",
    ),
];

/// The URL of the documentation.
const DOCS: &str = env!("CARGO_PKG_REPOSITORY");

/// How variables set options.
const OPTION_VARIABLES: &str = "Every option has a variable, such as RUNNER_MAX_SESSIONS for `--max-sessions`. Lists are separated by \
                          commas. Options without a value take true or false; -v takes a number. The command line takes \
                          precedence.";

/// Variables that belong to no module, and their help.
pub(super) const ENVIRONMENT: [(&str, &str); 2] = [
    ("RUST_LOG", "Log filter, such as `edge_runner=debug,str0m=info`."),
    ("ENV", "Set to `local` by the runner, for bots."),
];

const EXIT: &[(&str, &str)] = &[
    ("0", "Success: the runner stopped when asked to."),
    ("1", "Run-time error, such as a port that is already in use."),
    ("2", "Usage error: the message on stderr says what is expected."),
];

/// Returns all variables and their help, except those of options.
pub(super) fn variables() -> Vec<(&'static str, String)> {
    let of_modules = modules::variables().into_iter();
    let of_modules = of_modules.map(|variable| (variable.name, variable.help));
    let others = ENVIRONMENT.map(|(name, help)| (name, help.to_owned()));
    of_modules.chain(others).collect()
}

/// Returns the text of `doctor --help`.
pub(super) fn doctor(program: &ProgramIdentity) -> String {
    let name = &program.name;
    let mut text = format!("Usage: {name} doctor [OPTIONS]\n\n");
    paragraph(
        &mut text,
        "Checks what can prevent calls: the port, addresses, TLS, keys, STUN and TURN servers, credentials of providers, \
         and the limits of this machine. Prints one line per check, with advice for each problem. Starts no bot.",
    );
    text.push('\n');
    paragraph(
        &mut text,
        &format!("Takes the same options and variables as the runner; `{name} --help` lists them."),
    );
    text.push_str(&format!("\nExamples:\n  {name} doctor --host 0.0.0.0 --tls auto\n"));
    text.push_str(&format!("  {name} doctor -t twilio -x bot.example.net\n"));
    text.push_str("\nExit codes:\n");
    for (code, help) in [
        ("  0", "No check failed. There may be warnings."),
        ("  1", "At least one check failed."),
        ("  2", "Usage error: the message on stderr says what is expected."),
    ] {
        entry(&mut text, code, help);
    }
    documentation(&mut text);
    text
}

/// Appends the URL of the documentation.
fn documentation(text: &mut String) {
    text.push_str(&format!("\nDocumentation: {DOCS}\n"));
}

/// Returns the text of `-h`: a few options and what they are for.
pub(super) fn summary(program: &ProgramIdentity) -> String {
    let name = &program.name;
    let mut text = head(program);
    text.push_str("\nCommon options:\n");
    let shown = |flag: &&RunnerFlag| SUMMARY.contains(&flag.long) && applies(program, flag);
    entries(&mut text, RUNNER.flags().filter(shown), |flag| {
        let help = first_sentence(flag);
        mark_missing(flag.feature(), &help)
    });
    text.push('\n');
    paragraph(
        &mut text,
        &format!("`{name} --help` lists all options and variables; `{name} doctor` checks what prevents calls."),
    );
    documentation(&mut text);
    text
}

/// Returns the first sentence of an option's help, and its default.
fn first_sentence(flag: &RunnerFlag) -> String {
    let (sentence, rest) = match flag.help.split_once(". ") {
        Some((sentence, rest)) => (format!("{sentence}."), rest),
        None => (flag.help.to_owned(), ""),
    };
    match rest.find("[default: ") {
        Some(at) => format!("{sentence} {}", &rest[at..]),
        None => sentence,
    }
}

/// Returns whether an option has an effect in this program.
fn applies(program: &ProgramIdentity, flag: &RunnerFlag) -> bool {
    !(program.has_own_bot && ["--bot", "--tools"].contains(&flag.long))
}

/// Returns what both texts begin with: what the program is for, its usage and examples.
fn head(program: &ProgramIdentity) -> String {
    let name = &program.name;
    let mut text = String::from(HEAD);
    for (i, (arguments, help)) in USAGE.iter().enumerate() {
        let before = if i == 0 { "\nUsage:" } else { "      " };
        // The mark replaces the description; the line has no room for both.
        let help = match command::feature_of(first_word(arguments)).and_then(Feature::missing) {
            Some(_) => ABSENT,
            None if i == 0 && program.has_own_bot => "serve the bot of this program",
            None => help,
        };
        text.push_str(&format!("{before} {name} {arguments:<32} {help}\n"));
    }
    text.push_str("\nExamples:\n");
    let examples = if program.has_own_bot {
        EXAMPLES_OF_OWN_BOT
    } else {
        EXAMPLES
    };
    for (arguments, help) in examples {
        text.push_str(format!("  {name} {arguments}").trim_end());
        text.push('\n');
        entry(&mut text, "", help);
    }
    text
}

/// Returns the first word of a form: its command, or what stands for options.
fn first_word(arguments: &str) -> &str {
    arguments.split(' ').next().unwrap_or_default()
}

/// Returns the text of `--help`.
pub(super) fn text(program: &ProgramIdentity) -> String {
    let mut text = head(program);
    if let Some(lacking) = missing_features() {
        text.push('\n');
        entry(&mut text, "This build lacks:", &lacking);
        text.push_str(&format!(
            "Options marked {ABSENT} are refused; such variables are ignored.\n"
        ));
    }
    for title in flags::groups() {
        text.push_str(&format!("\n{title}:\n"));
        entries(
            &mut text,
            RUNNER
                .flags()
                .filter(|flag| flag.group == title && applies(program, flag)),
            |flag| mark_missing(flag.feature(), &description(flag)),
        );
    }
    text.push_str("\nEnvironment (also read from .env in the working directory; the process environment wins):\n");
    entry(&mut text, "  RUNNER_...", OPTION_VARIABLES);
    for flag in RUNNER.flags().filter(|flag| applies(program, flag)) {
        let variable = flags::variable(flag.long);
        let others = aliases::aliases(Area::Variable, &variable);
        if !others.is_empty() {
            let help = format!("Also: {}.", others.join(", "));
            entry(
                &mut text,
                &format!("  {variable}"),
                &mark_missing(flag.feature(), &help),
            );
        }
    }
    for (name, help) in variables() {
        if program.has_own_bot && feature_of(name) == Some(Feature::Assistants) {
            continue;
        }
        let others = aliases::aliases(Area::Variable, name);
        let mut help = mark_missing(feature_of(name), &help);
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

/// Returns the help of an option. That of `--transport` also lists the transports, each marked if
/// it is not in this build; that of `--proxy` lists the transports that require it.
fn description(flag: &RunnerFlag) -> Cow<'static, str> {
    match flag.long {
        "--transport" => {}
        "--proxy" => {
            let needed = modules::needs_proxy();
            let help = flag.help.trim_end_matches('.');
            return Cow::Owned(format!("{help}. Required with {needed}."));
        }
        "--bot" if Feature::Assistants.missing().is_some() => {
            return Cow::Owned(flag.help.replace("`realtime`", &format!("`realtime` {ABSENT}")));
        }
        _ => return Cow::Borrowed(flag.help),
    }
    let listed = flags::transports().map(|transport| {
        let (common, name) = (transport.common_name(), transport.name());
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

    /// The text is kept in a file, so that reviews show its changes. To update the file:
    /// `cargo run -- --help > tests/data/help.txt`.
    #[test]
    fn help_matches_the_golden_file() {
        assert_eq!(
            text(&ProgramIdentity::stock()),
            include_str!("../../tests/data/help.txt")
        );
    }

    #[test]
    fn every_form_without_options_first_begins_with_a_command() {
        let forms = USAGE.iter().map(|(arguments, _)| first_word(arguments));
        let commands: Vec<&str> = forms.filter(|word| !word.starts_with('[')).collect();
        for name in &commands {
            assert!(command::names().contains(name), "{name}");
        }
        assert_eq!(command::feature_of("call"), Some(Feature::Call));
        assert_eq!(command::feature_of("completions"), None);
        assert_eq!(command::feature_of("[OPTIONS]"), None);
        // `help` prints this text.
        assert_eq!(commands.len() + 1, command::names().len());
    }

    #[test]
    fn lines_fit_and_every_option_is_listed() {
        let text = text(&ProgramIdentity::stock());
        for line in text.lines() {
            assert!(line.chars().count() <= crate::proto::options::help::WIDTH, "{line}");
            assert_eq!(line, line.trim_end());
        }
        for flag in RUNNER.flags() {
            assert!(text.contains(flag.long), "{}", flag.long);
        }
        for line in summary(&ProgramIdentity::stock()).lines() {
            assert!(line.chars().count() <= crate::proto::options::help::WIDTH, "{line}");
        }
        let base = Videoroom::default().url;
        assert!(text.contains(&format!("[default: {base}]")), "{base}");
    }

    /// `-h` fits a terminal of 60 lines, and names each of its options.
    #[test]
    fn the_summary_is_short() {
        let text = summary(&ProgramIdentity::stock());
        assert!(text.lines().count() <= 60, "{text}");
        for option in SUMMARY {
            assert!(RUNNER.flags().any(|flag| flag.long == option), "{option}");
            assert!(text.contains(option), "{option}");
        }
        assert!(text.contains("OPENAI_API_KEY") && text.contains("`edge-runner --help`"));
        assert!(
            text.contains("[default: 7860]") && !text.contains("CASCADE_STT_URL"),
            "{text}"
        );
    }

    /// A program with a bot of its own is not the built-in bots, which it cannot start.
    #[test]
    fn a_program_with_its_own_bot_has_its_own_help() {
        let program = ProgramIdentity {
            name: "kitchen-bot".into(),
            has_own_bot: true,
        };
        for help in [text(&program), summary(&program)] {
            assert!(help.contains("Usage: kitchen-bot [OPTIONS]"), "{help}");
            assert!(help.contains("serve the bot of this program") && !help.contains("serve the built-in bot"));
            for absent in [
                " --bot ",
                "--tools",
                "REALTIME_",
                "CASCADE_",
                "RUNNER_BOT_GREETING",
                "  edge-runner",
            ] {
                assert!(!help.contains(absent), "{absent} in {help}");
            }
        }
        assert!(doctor(&program).starts_with("Usage: kitchen-bot doctor"));
        assert!(text(&program).contains("--bot-audio"), "for a command after `--`");
    }
}
