//! Variables of options, and the `edge-runner.env` file of the package, which lists them all.

use std::collections::BTreeSet;

use super::*;
use crate::cli::flags::variable;
use crate::cli::flags::{LowArgs, RunnerFlag};
use crate::config::Transport;
use crate::proto::aliases::{self, Area};
use crate::proto::options::FlagKind;
use crate::proto::options::env_options::{apply, has_variable};
use crate::proto::sockets::options::WsAuth;

/// The environment file of the systemd unit, as the package installs it.
const SERVICE: &str = include_str!("../../../boards/common/edge-runner.env");
/// The settings on the card of an image.
const CARD: &str = include_str!("../../../boards/image.d/edge-runner.txt");

fn variables(list: &[(&str, &str)]) -> Variables {
    let own = list.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    Variables::new(own, [])
}

fn apply_to(args: LowArgs, list: &[(&str, &str)]) -> Result<(LowArgs, Vec<String>), String> {
    let mut args = args;
    let set = apply(&mut args, &RUNNER, &variables(list)).map_err(|error| error.to_string())?;
    Ok((args, set.into_iter().map(|option| option.variable).collect()))
}

fn args(list: &[(&str, &str)]) -> LowArgs {
    apply_to(LowArgs::default(), list).expect("valid values").0
}

fn refused(name: &str, value: &str) -> String {
    apply_to(LowArgs::default(), &[(name, value)]).expect_err("an invalid value")
}

fn typed(options: &[&'static str]) -> LowArgs {
    LowArgs {
        given: options.to_vec(),
        ..LowArgs::default()
    }
}

/// Returns a valid value of the option.
fn valid_value(flag: &RunnerFlag) -> &'static str {
    match (&flag.kind, flag.long) {
        (FlagKind::Switch(_), _) => "true",
        (FlagKind::Count(_), _) => "2",
        (_, "--transport") => "webrtc",
        (_, "--bot") => "echo",
        (_, "--bot-audio") => "pcm",
        (_, "--bot-rate") => "8000",
        (_, "--bot-memory") => "200",
        (_, "--dial-out") => "+15550002222",
        (_, "--tls") => "auto",
        (_, "--metrics") => "any",
        (_, "--calls-texts") => "off",
        (_, "--local") => "text",
        (_, "--local-keys") => "/dev/input/event0",
        (_, "--local-rate") => "16000:48000",
        (_, "--local-start") => "speech",
        (_, "--local-wake") => "tcp://nas:10400",
        (_, "--local-echo" | "--local-tones") => "off",
        (_, "--events") => "https://example.com",
        (_, "--ws-auth") => "token",
        (_, "--log") => "json",
        (_, "--settings") => "page",
        (_, "--update-check") => "on",
        (_, "--register") => "room",
        (_, "--target-load") => "0.5",
        (_, "--ice-address" | "--trusted-proxies") => "192.0.2.1",
        _ => "7",
    }
}

#[test]
fn every_option_has_a_variable_that_a_typed_option_overrides() {
    for flag in RUNNER.flags().filter(|flag| has_variable(flag)) {
        let name = variable(flag.long);
        let list = [(&*name, valid_value(flag))];
        let (_, set) = apply_to(LowArgs::default(), &list).expect(flag.long);
        assert_eq!(set, [&*name]);
        let (_, set) = apply_to(typed(&[flag.long]), &list).expect(flag.long);
        assert_eq!(set, Vec::<String>::new(), "{}", flag.long);
    }
    assert_eq!(variable("--moq-tls-cert"), "RUNNER_MOQ_TLS_CERT");
}

#[test]
fn reads_the_values_of_variables() {
    let all = args(&[
        ("RUNNER_PORT", " 80 "),
        ("RUNNER_HOST", ""),
        ("RUNNER_EMBEDDED", "Yes"),
        ("RUNNER_DIRECT", "off"),
        ("RUNNER_VERBOSE", "2"),
        ("RUNNER_ICE_ADDRESS", "192.0.2.1, 192.0.2.2,"),
        ("RUNNER_ALLOWED_HOSTS", "a,b"),
        ("PIPECAT_WEBSOCKET_AUTH", "token"),
    ]);
    assert_eq!((all.port, all.host, all.verbosity), (Some(80), None, 2));
    assert!(all.modules.webrtc.embedded && !all.modules.daily.direct);
    assert_eq!(all.modules.webrtc.ice_addresses.len(), 2);
    assert_eq!(all.allowed_hosts, ["a,b"]);
    assert_eq!(all.modules.sockets.auth, Some(WsAuth::Token));
    assert!(args(&[("RUNNER_ESP32", "1")]).modules.webrtc.embedded);
    // A word, or a switch.
    let local = |value| args(&[("RUNNER_LOCAL", value)]).modules.local;
    assert!(local("1").is_on && !local("true").types && local("text").types && !local("off").is_on);
    for name in ["RUNNER_WS_AUTH", "RUNNER_WEBSOCKET_AUTH"] {
        assert_eq!(args(&[(name, "token")]).modules.sockets.auth, Some(WsAuth::Token));
    }
}

#[test]
fn errors_name_the_variable() {
    for (name, value, wants) in [
        ("RUNNER_PORT", "x", "0 to 65535"),
        ("RUNNER_EMBEDDED", "maybe", "`true` or `false`"),
        ("RUNNER_VERBOSE", "4", "0 to 3"),
        ("RUNNER_ICE_ADDRESS", "192.0.2.1,here", "the IP address"),
        ("PIPECAT_WEBSOCKET_AUTH", "yes", "`none` or `token`"),
    ] {
        let message = refused(name, value);
        assert!(message.contains(name) && message.contains(wants), "{message}");
    }
}

/// A typed option overrides the variable of an option that conflicts with it.
#[test]
fn a_typed_option_overrides_conflicting_variables() {
    let key = ("RUNNER_API_KEY", "k");
    let file = ("RUNNER_API_KEY_FILE", "f");
    for (option, variable) in [
        ("--api-key", file),
        ("--api-key-file", key),
        ("--no-dialin", ("RUNNER_DIALIN", "true")),
        ("--direct", ("RUNNER_TRANSPORT", "webrtc")),
        ("--transport", ("RUNNER_DIRECT", "true")),
    ] {
        let (_, set) = apply_to(typed(&[option]), &[variable]).expect("no usage error");
        assert_eq!(set, Vec::<String>::new());
    }
    let room = LowArgs {
        transport: Some(Transport::Videoroom),
        ..typed(&["--transport"])
    };
    assert!(
        apply_to(room, &[("RUNNER_DIRECT", "true")])
            .expect("no usage error")
            .0
            .modules
            .daily
            .direct
    );
    let program = LowArgs {
        command: Some(vec!["bot".into()]),
        ..LowArgs::default()
    };
    assert_eq!(
        apply_to(program, &[("RUNNER_BOT", "echo")])
            .expect("no usage error")
            .0
            .bot,
        None
    );
}

#[test]
fn warns_of_mistyped_names_only() {
    let warnings = |name: &str| {
        let mut warnings = Vec::new();
        warn_typos(&variables(&[(name, "secret")]), &mut warnings);
        assert!(warnings.iter().all(|warning| !warning.contains("secret")));
        warnings.join("\n")
    };
    assert!(warnings("RUNNER_PORTS").contains("RUNNER_PORT?"));
    assert!(warnings("RUNNER_MAX_SESSION").contains("RUNNER_MAX_SESSIONS"));
    for (name, nearest) in [("PRT", "PORT"), ("TSL", "TLS"), ("HOTS", "HOST"), ("LOGS", "LOG")] {
        let warning = warnings(&format!("RUNNER_{name}"));
        assert!(
            warning.ends_with(&format!("did you mean RUNNER_{nearest}?")),
            "{warning}"
        );
    }
    for others in [
        "RUNNER_OS",
        "RUNNER_ARCH",
        "RUNNER_DEBUG",
        "RUNNER_TEMP",
        "RUNNER_NAME",
        "RUNNER_ARGS",
        "RUNNER_ARGUMENTS",
        "RUNNERPORT",
    ] {
        assert_eq!(warnings(others), "", "{others}");
    }
    for known in [
        "RUNNER_START_NAMES",
        "RUNNER_ESP32",
        "RUNNER_WEBSOCKET_AUTH",
        "RUNNER_TLS",
    ] {
        assert_eq!(warnings(known), "", "{known}");
    }
}

/// Returns the names in the file; for each, whether it is commented out, and its value.
fn settings() -> Vec<(&'static str, bool, &'static str)> {
    settings_of(SERVICE)
}

fn settings_of(file: &'static str) -> Vec<(&'static str, bool, &'static str)> {
    let lines = file.lines().filter_map(|line| {
        let (name, value) = line.trim_start_matches(['#', ' ']).split_once('=')?;
        let (name, value) = (name.trim_end(), value.trim_start());
        let is_name = !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
        is_name.then_some((name, line.starts_with('#'), value))
    });
    lines.collect()
}

/// The file documents all settings of the runner.
#[test]
fn the_file_lists_exactly_the_known_variables() {
    let listed = settings();
    // The file has the names that providers give their credentials.
    let canonical = |name: &'static str| aliases::canonical(Area::Variable, name);
    let names: BTreeSet<String> = listed.iter().map(|(name, ..)| canonical(name).to_owned()).collect();
    assert_eq!(names.len(), listed.len(), "a name is listed twice");
    let of_providers = ["TWILIO_ACCOUNT_SID", "TELNYX_API_KEY", "PLIVO_AUTH_ID"];
    for name in of_providers {
        assert!(listed.iter().any(|(listed, ..)| *listed == name), "{name}");
    }
    let options = RUNNER
        .flags()
        .filter(|flag| has_variable(flag))
        .map(|flag| variable(flag.long));
    // The runner sets ENV; the systemd unit reads RUNNER_ARGS.
    let others = help::variables()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| *name != "ENV");
    let known: BTreeSet<String> = options
        .chain(others.chain(["RUNNER_ARGS"]).map(str::to_owned))
        .collect();
    let of = |one: &BTreeSet<String>, other| one.difference(other).cloned().collect::<Vec<_>>();
    assert_eq!(of(&known, &names), Vec::<String>::new(), "missing in the file");
    assert_eq!(of(&names, &known), Vec::<String>::new(), "unknown names in the file");
}

/// The card has every setting of assistants, with the values of the package's file, all commented
/// out: it is where somebody who only has the card makes one.
#[test]
fn the_card_lists_every_setting_of_assistants() {
    let is_of_assistants = |name: &str| {
        let prefixes = ["RUNNER_BOT_", "REALTIME_", "CASCADE_", "TOOLS_"];
        let of_programs = ["RUNNER_BOT_AUDIO", "RUNNER_BOT_MEMORY", "RUNNER_BOT_RATE"];
        (prefixes.iter().any(|prefix| name.starts_with(prefix)) || name == "RUNNER_TOOLS")
            && !of_programs.contains(&name)
    };
    let of = |file| {
        let lines = settings_of(file).into_iter();
        lines
            .filter(|(name, ..)| is_of_assistants(name))
            .collect::<BTreeSet<_>>()
    };
    let (card, package) = (of(CARD), of(SERVICE));
    let lacks = |one: &BTreeSet<_>, other: &BTreeSet<_>| one.difference(other).copied().collect::<Vec<_>>();
    assert_eq!(lacks(&package, &card), [], "missing on the card");
    assert_eq!(lacks(&card, &package), [], "unknown or with another value on the card");
    let all = settings_of(CARD);
    assert!(
        all.iter().all(|(_, commented, _)| *commented),
        "as shipped, nothing is set"
    );
    let names: BTreeSet<_> = all.iter().map(|(name, ..)| name).collect();
    // The first two lines of an assistant come before the rest.
    assert_eq!(all.len(), names.len(), "a name is listed twice");
    assert!(names.contains(&"RUNNER_BOT") && names.contains(&"OPENAI_API_KEY"));
}

/// Lines that are commented out have the default values.
#[test]
fn the_file_states_the_defaults() {
    let (mut compared, mut read) = (0, 0);
    for (name, commented, value) in settings() {
        let name = aliases::canonical(Area::Variable, name);
        let flag = RUNNER.flags().find(|flag| variable(flag.long) == name);
        let environment = help::variables();
        let help = environment
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, help)| help.as_str());
        let Some(help) = flag.map(|flag| flag.help).or(help) else {
            continue;
        };
        let default = help
            .split_once("[default: ")
            .map(|(_, rest)| rest.trim_end_matches(']'));
        match default.filter(|default| !default.contains(' ')) {
            // `all` in the help is not a value that a variable takes.
            Some("all") | None => {}
            Some(default) => {
                assert!(!commented || value == default, "{name}: {default}");
                compared += usize::from(commented);
            }
        }
        if commented && !value.is_empty() && name.starts_with("RUNNER_") && flag.is_some() {
            apply_to(LowArgs::default(), &[(name, value)]).expect(name);
            read += 1;
        }
    }
    assert!(compared > 20 && read > 20, "{compared} compared, {read} read");
}

/// A new board is reachable from the network, over HTTPS, because browsers require it for the
/// microphone.
#[test]
fn the_file_sets_only_the_host_and_tls() {
    let set: Vec<_> = settings().into_iter().filter(|(_, commented, _)| !commented).collect();
    assert_eq!(set, [("RUNNER_HOST", false, "0.0.0.0"), ("RUNNER_TLS", false, "auto")]);
}
