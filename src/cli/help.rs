//! The texts of `--help` and `-h`, generated from the table of options.
//!
//! Out: lines of at most 100 columns. A change to the table changes `tests/data/help.txt`.

use std::borrow::Cow;

use super::features::{missing_features, of_option, of_variable};
use super::flags::{FLAGS, GROUPS, RunnerFlag};
use super::{ProgramIdentity, flags};
use crate::aliases::{self, Area};
use crate::features::Feature;
use crate::proto::options::help::{ABSENT, entries, entry, mark_missing, paragraph};
use crate::proto::telephony::settings::{Holds, Setting};
use crate::proto::telephony::{PROVIDERS, Provider};

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

/// The variables that the built-in bots read, by the beginnings of their names.
const OF_BUILT_IN_BOTS: [&str; 4] = ["REALTIME_", "CASCADE_", "TOOLS_", "RUNNER_BOT_"];

const HEAD: &str = "\
Runs voice bots for callers that connect over WebRTC (browsers, microcontrollers), over QUIC, over a
WebSocket, by telephone, or in a room.
";

/// The forms of the command line, with their descriptions and the feature that each needs.
const USAGE: &[(&str, &str, Option<Feature>)] = &[
    ("[OPTIONS]", "serve the built-in bot", None),
    (
        "[OPTIONS] -- COMMAND [ARGS...]",
        "run this command as the bot of each session",
        None,
    ),
    ("doctor [OPTIONS]", "check what prevents calls", Some(Feature::Doctor)),
    (
        "setup --spool DIR [OPTIONS]",
        "serve the setup page of a board",
        Some(Feature::Setup),
    ),
    (
        "cloud COMMAND [OPTIONS]",
        "the cloud agent service and its client",
        Some(Feature::Cloud),
    ),
    ("completions bash|zsh|fish", "print completions for a shell", None),
];

/// The arguments of common uses, with their descriptions.
const EXAMPLES: &[(&str, &str)] = &[
    ("", "Talk to the built-in bot at http://localhost:7860."),
    (
        "--host 0.0.0.0 --tls auto -- python3 bot.py",
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

/// Variables and their help, except those of options and of telephony providers.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("VIDEOROOM_API_KEY", "API key of Daily, to create rooms and tokens."),
    (
        "VIDEOROOM_API_URL",
        "Base URL of the Daily API. [default: https://api.daily.co/v1]",
    ),
    (
        "VIDEOROOM_ROOM_URL",
        "An existing room for every session. Dial-in calls get new rooms.",
    ),
    (
        "VIDEOROOM_SAMPLE_ROOM_URL",
        "An existing room to use instead of new rooms.",
    ),
    (
        "VIDEOROOM_DIALIN_HMAC",
        "Secret of the dial-in webhook, in base64. If set, the webhook is verified.",
    ),
    (
        "MEDIAROOM_URL",
        "URL of the LiveKit server: ws, wss, http or https. Several, separated by commas, are tried in this order. Needs the key and the secret below.",
    ),
    ("MEDIAROOM_API_KEY", "API key of the LiveKit server."),
    ("MEDIAROOM_API_SECRET", "API secret of the LiveKit server."),
    (
        "MEDIAROOM_ROOM_NAME",
        "One room for every session. [default: a new room for each]",
    ),
    (
        "MESSAGING_TOKEN",
        "Access token of a WhatsApp system user, to answer calls.",
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
        "A word of your choice; enter the same word in the WhatsApp dashboard.",
    ),
    (
        "MESSAGING_API_URL",
        "Base URL of the WhatsApp API. [default: https://graph.facebook.com/v23.0]",
    ),
    (
        "REALTIME_URL",
        "URL of the service of `--bot realtime`: ws, wss, http or https. [default: https://api.openai.com/v1]",
    ),
    (
        "REALTIME_API_KEY",
        "Its key. OPENAI_API_KEY is used for its own host and that of OPENAI_BASE_URL only.",
    ),
    ("REALTIME_API_KEY_FILE", "File whose first line is the key."),
    (
        "REALTIME_MODEL",
        "Speech-to-speech model. Required with other services than the default. [default: gpt-realtime-2.1]",
    ),
    (
        "REALTIME_VOICE",
        "Voice of the model. [default: marin, or that of the service]",
    ),
    (
        "REALTIME_DIALECT",
        "Form of the protocol: ga, beta, azure or xai. [default: by the host]",
    ),
    (
        "REALTIME_INSTRUCTIONS",
        "What the bot is and does. `{name}` stands for a variable in the `body` of `/start`.",
    ),
    ("REALTIME_INSTRUCTIONS_FILE", "File with these instructions."),
    (
        "REALTIME_TRANSCRIPTION_MODEL",
        "Model that writes down what callers say, or off. [default: gpt-4o-mini-transcribe with the default URL, else off]",
    ),
    (
        "REALTIME_TURN_DETECTION",
        "How the end of a caller's turn is found: server_vad or semantic_vad. [default: server_vad]",
    ),
    (
        "REALTIME_NOISE_REDUCTION",
        "Noise reduction of the service: near_field, far_field or off. [default: off]",
    ),
    (
        "REALTIME_G711",
        "Whether telephone calls are sent as G.711: on or off. [default: on with OpenAI, Azure and xAI]",
    ),
    (
        "REALTIME_SESSION_FILE",
        "File with a JSON object that is merged into the `session` of the service.",
    ),
    (
        "TOOLS_API_KEY",
        "Key that is sent to the URL of `--tools`, as `Authorization: Bearer`.",
    ),
    ("TOOLS_API_KEY_FILE", "File whose first line is that key."),
    (
        "CASCADE_STT_URL",
        "Recogniser of `--bot cascade`: tcp://HOST:PORT for Wyoming, or an http or https base such as http://HOST:8000/v1.",
    ),
    ("CASCADE_STT_MODEL", "Its model. Required with http and https."),
    (
        "CASCADE_STT_API_KEY",
        "Its key. OPENAI_API_KEY is used for its own host only.",
    ),
    ("CASCADE_STT_API_KEY_FILE", "File whose first line is the key."),
    (
        "CASCADE_LLM_URL",
        "Chat model of `--bot cascade`: an http or https base such as http://HOST:11434/v1, or tcp://HOST:PORT for a \
         Wyoming server that handles texts.",
    ),
    ("CASCADE_LLM_MODEL", "Its model. Required with http and https."),
    (
        "CASCADE_LLM_API_KEY",
        "Its key. OPENAI_API_KEY is used for its own host only.",
    ),
    ("CASCADE_LLM_API_KEY_FILE", "File whose first line is the key."),
    (
        "CASCADE_LLM_TOKENS",
        "Longest answer in tokens, 16 to 32768. [default: that of the service]",
    ),
    (
        "CASCADE_TTS_URL",
        "Voice of `--bot cascade`: tcp://HOST:PORT for Wyoming, or an http or https base such as http://HOST:8880/v1.",
    ),
    ("CASCADE_TTS_MODEL", "Its model. Required with http and https."),
    (
        "CASCADE_TTS_API_KEY",
        "Its key. OPENAI_API_KEY is used for its own host only.",
    ),
    ("CASCADE_TTS_API_KEY_FILE", "File whose first line is the key."),
    ("CASCADE_TTS_VOICE", "Name of its voice. [default: that of the service]"),
    (
        "CASCADE_TTS_RATE",
        "Sample rate in Hz of raw PCM to ask an http or https service for. [default: WAV is asked for]",
    ),
    (
        "CASCADE_LANGUAGE",
        "Language of callers, such as en, for services that want to know it.",
    ),
    (
        "CASCADE_INSTRUCTIONS",
        "What the bot is and does. `{name}` stands for a variable in the `body` of `/start`.",
    ),
    ("CASCADE_INSTRUCTIONS_FILE", "File with these instructions."),
    (
        "CASCADE_END_OF_TURN",
        "Silence in milliseconds after which a caller gets an answer, 300 to 2000. [default: 700]",
    ),
    (
        "CASCADE_VAD",
        "How speech is found: energy, or neural, near a television or much noise. [default: energy]",
    ),
    (
        "CASCADE_FUNCTIONS_FILE",
        "File with a JSON object such as {\"functions\": [{\"name\": \"weather\"}]}: functions that callers' pages run.",
    ),
    (
        "RUNNER_BOT_GREETING",
        "What `--bot realtime` and `--bot cascade` say first; empty for nothing. [default: a greeting in the model's words]",
    ),
    (
        "RUNNER_BOT_MINUTES",
        "Length of their sessions in minutes, 1 to 55. [default: 15]",
    ),
    (
        "RUNNER_BOT_SESSIONS",
        "Their sessions at once, unless `--max-sessions` is typed. RUNNER_MAX_SESSIONS can only lower it. [default: 4]",
    ),
    (
        "RUNNER_BOT_IDLE",
        "Silence that ends one of their sessions, in seconds. [default: 300, telephone 30]",
    ),
    (
        "RUNNER_BOT_PATIENCE",
        "Seconds that a caller waits for a service that fails, before the session ends, 1 to 300. [default: 30]",
    ),
    (
        "RUNNER_BOT_INTERRUPT",
        "Whether callers can interrupt them: on or off. [default: on]",
    ),
    (
        "RUNNER_BOT_TRANSCRIPTS",
        "Whether clients get what both sides say as text: on or off. [default: on]",
    ),
    (
        "RUNNER_BOT_FAILURE_WAV",
        "WAV file that callers hear, after two notes, when a service fails and the call ends.",
    ),
    (
        "RUNNER_BOT_BODY_MAY",
        "What the `body` of `/start` may set: a list of instructions, voice, tools, language, temperature.",
    ),
    (
        "RUNNER_BOT_LANGUAGES",
        "Languages that the `body` of `/start` may name, such as en,de.",
    ),
    (
        "RUNNER_START_NAMES",
        "Names of the fields in the reply of `/start` for Daily: canonical, alias or both. [default: both]",
    ),
    ("RUST_LOG", "Log filter, such as `edge_runner=debug,str0m=info`."),
    ("ENV", "Set to `local` by the runner, for bots."),
];

const EXIT: &[(&str, &str)] = &[
    ("0", "Success: the runner stopped when asked to."),
    ("1", "Run-time error, such as a port that is already in use."),
    ("2", "Usage error: the message on stderr says what is expected."),
];

/// Returns variables and their help, except those of options: telephony providers first.
pub(super) fn environment(providers: &[&Provider]) -> Vec<(&'static str, String)> {
    let others = ENVIRONMENT.iter().map(|&(name, help)| (name, help.to_owned()));
    telephony_variables(providers).into_iter().chain(others).collect()
}

/// Returns the variables of providers and their help: credentials first, then base URLs. If two
/// providers share a help text, the second gets its first sentence and a reference to the first.
fn telephony_variables(providers: &[&Provider]) -> Vec<(&'static str, String)> {
    let all = || {
        let settings = providers
            .iter()
            .map(|provider| provider.settings.iter().map(|setting| (*provider, setting)));
        settings.flatten()
    };
    let is_base = |(_, setting): &(&Provider, &Setting)| matches!(setting.holds, Holds::Base(_));
    let sorted = all().filter(|entry| !is_base(entry)).chain(all().filter(is_base));
    let mut seen: Vec<(&str, &Provider)> = Vec::new();
    let mut entries = Vec::new();
    for (provider, setting) in sorted {
        let name = vendor_name(provider);
        let earlier = seen.iter().find(|(help, _)| *help == setting.help);
        let help = match (setting.holds, earlier, setting.help.split_once(". ")) {
            (Holds::Base(base), ..) => format!("{} [default: {base}]", setting.help),
            (_, Some((_, first)), Some((sentence, _))) => format!("{sentence}, as with {}.", vendor_name(first)),
            _ => setting.help.to_owned(),
        };
        seen.push((setting.help, provider));
        entries.push((setting.name, help.replace("{}", &name)));
    }
    entries
}

/// Returns the value of `-t` that selects a provider: its alias, or its wire name without one.
fn vendor(provider: &Provider) -> &'static str {
    let name = provider.wire_name();
    aliases::aliases(Area::Transport, name).first().copied().unwrap_or(name)
}

/// Returns the name of a provider for a sentence, such as Twilio.
pub(super) fn vendor_name(provider: &Provider) -> String {
    let mut name = vendor(provider).to_owned();
    if let Some(initial) = name.get_mut(..1) {
        initial.make_ascii_uppercase();
    }
    name
}

/// Returns the `-t` options of the providers that need markup with a public host.
fn markup_providers(providers: &[&Provider]) -> String {
    let with_markup = providers.iter().filter(|provider| provider.takes_markup);
    let words: Vec<String> = with_markup
        .map(|provider| format!("`-t {}`", vendor(provider)))
        .collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => "none".to_owned(),
    }
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
    entries(&mut text, FLAGS.iter().filter(shown), |flag| {
        let help = first_sentence(flag);
        mark_missing(of_option(flag.long), &help)
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
    for (i, (arguments, help, feature)) in USAGE.iter().enumerate() {
        let before = if i == 0 { "\nUsage:" } else { "      " };
        // The mark replaces the description; the line has no room for both.
        let help = match feature.and_then(Feature::missing) {
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
    for title in GROUPS {
        text.push_str(&format!("\n{title}:\n"));
        entries(
            &mut text,
            FLAGS
                .iter()
                .filter(|flag| flag.group == title && applies(program, flag)),
            |flag| mark_missing(of_option(flag.long), &description(flag)),
        );
    }
    text.push_str("\nEnvironment (also read from .env in the working directory; the process environment wins):\n");
    entry(&mut text, "  RUNNER_...", OPTION_VARIABLES);
    for flag in FLAGS.iter().filter(|flag| applies(program, flag)) {
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
    let of_built_in = |name: &str| OF_BUILT_IN_BOTS.iter().any(|beginning| name.starts_with(beginning));
    for (name, help) in environment(&PROVIDERS) {
        if program.has_own_bot && of_built_in(name) {
            continue;
        }
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

/// Returns the help of an option. That of `--transport` also lists the transports, each marked if
/// it is not in this build; that of `--proxy` lists the transports that require it.
fn description(flag: &RunnerFlag) -> Cow<'static, str> {
    match flag.long {
        "--transport" => {}
        "--proxy" => {
            let needed = markup_providers(&PROVIDERS);
            let help = flag.help.trim_end_matches('.');
            return Cow::Owned(format!("{help}. Required with {needed}."));
        }
        "--bot" if Feature::Assistants.missing().is_some() => {
            return Cow::Owned(flag.help.replace("`realtime`", &format!("`realtime` {ABSENT}")));
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
    fn lines_fit_and_every_option_is_listed() {
        let text = text(&ProgramIdentity::stock());
        for line in text.lines() {
            assert!(line.chars().count() <= crate::proto::options::help::WIDTH, "{line}");
            assert_eq!(line, line.trim_end());
        }
        for flag in FLAGS {
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
            assert!(FLAGS.iter().any(|flag| flag.long == option), "{option}");
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
