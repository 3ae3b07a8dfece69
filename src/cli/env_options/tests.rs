//! Options that variables set: each of them, under its name, below what is typed; and the service's file, which shows them all.

use std::collections::BTreeSet;

use super::*;
use crate::cli::flags::variable;
use crate::cli::flags::{FLAGS, LowArgs, RunnerFlag, WsAuth};
use crate::config::Transport;
use crate::proto::options::FlagKind;
use crate::proto::options::env_options::{apply, has_variable};

/// The service's file, as the package installs it.
const SERVICE: &str = include_str!("../../../boards/common/edge-runner.env");

fn variables(list: &[(&str, &str)]) -> Variables {
    let own = list.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    Variables::new(own, [])
}

fn filled(args: LowArgs, list: &[(&str, &str)]) -> Result<(LowArgs, Vec<String>), String> {
    let mut args = args;
    let taken = apply(&mut args, &RUNNER, &variables(list)).map_err(|error| error.to_string())?;
    Ok((args, taken.into_iter().map(|taken| taken.variable).collect()))
}

fn args(list: &[(&str, &str)]) -> LowArgs {
    filled(LowArgs::default(), list).expect("values that are taken").0
}

fn refused(name: &str, value: &str) -> String {
    filled(LowArgs::default(), &[(name, value)]).expect_err("a value that is refused")
}

fn said(options: &[&'static str]) -> LowArgs {
    LowArgs {
        given: options.to_vec(),
        ..LowArgs::default()
    }
}

/// A value that the option takes.
fn fitting(flag: &RunnerFlag) -> &'static str {
    match (&flag.kind, flag.long) {
        (FlagKind::Switch(_), _) => "true",
        (FlagKind::Count(_), _) => "2",
        (_, "--transport") => "webrtc",
        (_, "--bot") => "echo",
        (_, "--bot-audio") => "pcm",
        (_, "--bot-rate") => "8000",
        (_, "--tls") => "auto",
        (_, "--metrics") => "any",
        (_, "--ws-auth") => "token",
        (_, "--log") => "json",
        (_, "--ice-address" | "--trusted-proxies") => "192.0.2.1",
        _ => "7",
    }
}

#[test]
fn every_option_has_a_variable_and_what_is_typed_wins() {
    for flag in FLAGS.iter().filter(|flag| has_variable(flag)) {
        let name = variable(flag.long);
        let list = [(&*name, fitting(flag))];
        let (_, taken) = filled(LowArgs::default(), &list).expect(flag.long);
        assert_eq!(taken, [&*name]);
        let (_, taken) = filled(said(&[flag.long]), &list).expect(flag.long);
        assert_eq!(taken, Vec::<String>::new(), "{}", flag.long);
    }
    assert_eq!(variable("--moq-tls-cert"), "RUNNER_MOQ_TLS_CERT");
}

#[test]
fn values_arrive_in_the_forms_of_variables() {
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
    assert!(all.embedded && !all.direct);
    assert_eq!(all.ice_addresses.len(), 2);
    assert_eq!(all.allowed_hosts, ["a,b"]);
    assert_eq!(all.ws_auth, Some(WsAuth::Token));
    assert!(args(&[("RUNNER_ESP32", "1")]).embedded);
    for name in ["RUNNER_WS_AUTH", "RUNNER_WEBSOCKET_AUTH"] {
        assert_eq!(args(&[(name, "token")]).ws_auth, Some(WsAuth::Token));
    }
}

#[test]
fn a_wrong_value_is_refused_under_the_name_of_its_variable() {
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

/// What is typed against an option speaks against its variable too.
#[test]
fn a_rival_that_is_typed_silences_the_variable() {
    let key = ("RUNNER_API_KEY", "k");
    let file = ("RUNNER_API_KEY_FILE", "f");
    for (option, variable) in [
        ("--api-key", file),
        ("--api-key-file", key),
        ("--no-dialin", ("RUNNER_DIALIN", "true")),
        ("--direct", ("RUNNER_TRANSPORT", "webrtc")),
        ("--transport", ("RUNNER_DIRECT", "true")),
    ] {
        let (_, taken) = filled(said(&[option]), &[variable]).expect("no usage error");
        assert_eq!(taken, Vec::<String>::new());
    }
    let room = LowArgs {
        transport: Some(Transport::Videoroom),
        ..said(&["--transport"])
    };
    assert!(
        filled(room, &[("RUNNER_DIRECT", "true")])
            .expect("no usage error")
            .0
            .direct
    );
    let program = LowArgs {
        command: Some(vec!["bot".into()]),
        ..LowArgs::default()
    };
    assert_eq!(
        filled(program, &[("RUNNER_BOT", "echo")])
            .expect("no usage error")
            .0
            .bot,
        None
    );
}

#[test]
fn a_slip_in_a_name_is_told_and_names_of_others_are_left_alone() {
    let told = |name: &str| {
        let mut warnings = Vec::new();
        warn_typos(&variables(&[(name, "secret")]), &mut warnings);
        assert!(warnings.iter().all(|warning| !warning.contains("secret")));
        warnings.join("\n")
    };
    assert!(told("RUNNER_PORTS").contains("RUNNER_PORT?"));
    assert!(told("RUNNER_MAX_SESSION").contains("RUNNER_MAX_SESSIONS"));
    for (name, nearest) in [("PRT", "PORT"), ("TSL", "TLS"), ("HOTS", "HOST"), ("LOGS", "LOG")] {
        let warning = told(&format!("RUNNER_{name}"));
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
        assert_eq!(told(others), "", "{others}");
    }
    for known in [
        "RUNNER_START_NAMES",
        "RUNNER_ESP32",
        "RUNNER_WEBSOCKET_AUTH",
        "RUNNER_TLS",
    ] {
        assert_eq!(told(known), "", "{known}");
    }
}

/// The names of the service's file, and for each whether it is commented out, and its value.
fn shown() -> Vec<(&'static str, bool, &'static str)> {
    let settings = SERVICE.lines().filter_map(|line| {
        let (name, value) = line.trim_start_matches('#').split_once('=')?;
        let is_name = !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
        is_name.then_some((name, line.starts_with('#'), value))
    });
    settings.collect()
}

/// Somebody who has that file alone finds everything that the runner can be told.
#[test]
fn the_service_s_file_shows_every_option_and_every_variable_and_no_other() {
    let shown = shown();
    let names: BTreeSet<String> = shown.iter().map(|(name, ..)| (*name).to_owned()).collect();
    assert_eq!(names.len(), shown.len(), "a name stands twice");
    let options = FLAGS
        .iter()
        .filter(|flag| has_variable(flag) && flag.group != crate::proto::options::HIDDEN)
        .map(|flag| variable(flag.long));
    // ENV is set by the runner, and RUNNER_ARGS read by the unit.
    let others = help::environment(&PROVIDERS)
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| *name != "ENV");
    let known: BTreeSet<String> = options
        .chain(others.chain(["RUNNER_ARGS"]).map(str::to_owned))
        .collect();
    let of = |one: &BTreeSet<String>, other| one.difference(other).cloned().collect::<Vec<_>>();
    assert_eq!(of(&known, &names), Vec::<String>::new(), "the file lacks them");
    assert_eq!(
        of(&names, &known),
        Vec::<String>::new(),
        "the file has them, and they do not exist"
    );
}

/// Taking a `#` away changes nothing: what is commented out is what counts without it.
#[test]
fn the_service_s_file_states_the_defaults() {
    for (name, commented, value) in shown() {
        let flag = FLAGS.iter().find(|flag| variable(flag.long) == name);
        let environment = help::environment(&PROVIDERS);
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
            // What stands for everything cannot be written as a value.
            Some("all") | None => {}
            Some(default) => assert!(!commented || value == default, "{name}: {default}"),
        }
        if commented && !value.is_empty() && name.starts_with("RUNNER_") && flag.is_some() {
            filled(LowArgs::default(), &[(name, value)]).expect(name);
        }
    }
}

/// A board that was just flashed is reached from the network, with HTTPS, since browsers give no microphone without it.
#[test]
fn the_service_listens_on_every_interface_with_https_and_sets_nothing_else() {
    let set: Vec<_> = shown().into_iter().filter(|(_, commented, _)| !commented).collect();
    assert_eq!(set, [("RUNNER_HOST", false, "0.0.0.0"), ("RUNNER_TLS", false, "auto")]);
}
