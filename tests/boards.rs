//! The default settings of each board parse as in a service manager, name existing options, and
//! start the runner.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::support::http::get;
use crate::support::runner::{TestRunner, folder};
use crate::support::skip;

/// A board's name, and its variables with their values.
type Board = (String, Vec<(String, String)>);

/// Every folder with a profile.
fn boards() -> Vec<Board> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("boards");
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).expect("the folder is readable") {
        let path = entry.expect("the entry is readable").path();
        let Ok(text) = fs::read_to_string(path.join("profile.env")) else {
            continue;
        };
        let name = path.file_name().and_then(|name| name.to_str()).expect("a plain name");
        found.push((name.to_owned(), variables(name, &text)));
    }
    assert!(found.len() >= 7, "{found:?}");
    found
}

/// Parses a profile: comments, empty lines, and names with unquoted values.
fn variables(board: &str, text: &str) -> Vec<(String, String)> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("{board}: {line}"));
            let plain = |text: &str, more: &str| {
                let known = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
                !text.is_empty() && text.chars().all(known)
            };
            assert!(plain(name, "_") && plain(value, "_-.:/"), "{board}: {line}");
            (name.to_owned(), value.to_owned())
        })
        .collect()
}

/// `RUNNER_MAX_SESSIONS` is `--max-sessions`.
fn option(variable: &str) -> String {
    let name = variable.strip_prefix("RUNNER_").expect("a variable of the runner");
    format!("--{}", name.to_ascii_lowercase().replace('_', "-"))
}

/// A password of the setup page may be short, so few of them can be tried on one connection, and
/// root logs in by none.
#[test]
fn the_image_limits_guesses_of_a_password() {
    let settings = include_str!("../boards/image.d/files/etc/ssh/sshd_config.d/board.conf");
    for line in ["MaxAuthTries 3", "PermitRootLogin no", "PasswordAuthentication no"] {
        assert_eq!(settings.lines().filter(|own| *own == line).count(), 1, "{line}");
    }
    assert!(!settings.contains("\nPerSourcePenalties"), "the default limits guesses");
}

/// On an image a sound card can be a caller: its devices and keys are there, and no other. A group
/// that the system lacks would keep the service from starting; Debian's base system has these two.
#[test]
fn the_image_shows_the_runner_its_sound_cards() {
    let unit = include_str!("../boards/common/edge-runner.service");
    assert!(
        unit.contains("\nPrivateDevices=yes\n"),
        "else the image need not lift it"
    );
    let settings = include_str!("../boards/image.d/files/etc/systemd/system/edge-runner.service.d/board.conf");
    for line in [
        "PrivateDevices=no",
        "DevicePolicy=closed",
        "DeviceAllow=char-alsa rw",
        "DeviceAllow=char-input r",
        "SupplementaryGroups=audio input",
    ] {
        assert_eq!(settings.lines().filter(|own| *own == line).count(), 1, "{line}");
    }
    assert_eq!(settings.matches("DeviceAllow=").count(), 2, "no other device");
}

/// Each value is valid for its option, and the runner starts with all of them, from the command
/// line and from the environment.
#[test]
fn the_runner_starts_with_the_defaults_of_every_board() {
    for (board, variables) in boards() {
        let options: Vec<String> = (variables.iter())
            .flat_map(|(name, value)| [option(name), value.clone()])
            .collect();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let runner = TestRunner::start(&options);
        assert_eq!(get(runner.addr, "/status").status, 200, "{board}");
        let variables: Vec<(&str, &str)> = (variables.iter())
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let runner = TestRunner::start_with(&[], &variables);
        assert_eq!(get(runner.addr, "/status").status, 200, "{board}");
    }
}

/// Each profile names its target, its processor, and the model that selects it.
#[test]
fn every_profile_has_a_description() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("boards");
    for (board, _) in boards() {
        let text = fs::read_to_string(folder.join(&board).join("profile.env")).expect("it was read before");
        for word in ["# Target: ", "# CPU: ", "# Model: \"", "# Memory: "] {
            assert!(text.contains(word), "{board} lacks `{word}`");
        }
    }
}

/// A board's key is made once, persists, is readable by root only, and yields to the owner's file.
/// An empty file, as after a power cut, is no key.
#[test]
fn the_key_of_a_board_is_made_once_and_shown_in_a_url() {
    if !rustix::process::geteuid().is_root() {
        return skip::lacks_root("the key of a board", "its script needs root");
    }
    let etc = folder();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("boards/common/api-key");
    let run = |words: &[&str]| {
        let mut command = Command::new(&script);
        let output = command
            .args(words)
            .env("EDGE_RUNNER_ETC", &etc)
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("it is text")
    };
    let file = etc.join("api-key.env");
    let key = || {
        let text = fs::read_to_string(&file).expect("it was made");
        let line = text.lines().find_map(|line| line.strip_prefix("RUNNER_API_KEY="));
        line.expect("a key").to_owned()
    };
    assert!(run(&[]).contains("need no key"));
    assert_eq!(run(&["make"]), "", "what is told to apt and systemd stands in logs");
    let first = key();
    assert_eq!(first.len(), 48);
    let mode = fs::metadata(&file).expect("it was made").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    run(&["make"]);
    assert_eq!(key(), first);
    fs::write(etc.join("edge-runner.env"), "#RUNNER_API_KEY=\nRUNNER_PORT=7861\n").expect("the folder is the test's");
    let shown = run(&[]);
    assert!(shown.starts_with("http://"), "{shown}");
    assert!(shown.contains(&format!(".local:7861/#key={first}")), "{shown}");
    // With a certificate, the key travels encrypted, and what the browser shows can be compared.
    let state = etc.join("state");
    fs::create_dir(&state).expect("the folder is the test's");
    let settings = format!("RUNNER_TLS=auto\nRUNNER_STATE_DIR={}\n", state.display());
    fs::write(etc.join("edge-runner.env"), settings).expect("the folder is the test's");
    assert!(!run(&[]).contains("fingerprint") && run(&["certificate"]).is_empty());
    // The key that stands after a certificate, and further certificates, do not count.
    for (name, text) in [("server.pem", "YWJj"), ("authority.pem", "YQ==")] {
        let pem = |kind: &str, text: &str| format!("-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n");
        let text = pem("CERTIFICATE", text) + &pem("CERTIFICATE", "eHl6") + &pem("PRIVATE KEY", "eHl6");
        fs::write(state.join(name), text).expect("the folder is the test's");
    }
    let shown = run(&[]);
    assert!(shown.starts_with("https://") && !shown.contains("http://"), "{shown}");
    // SHA-256 of `abc` and `a`.
    for begin in ["  BA:78:16:BF:", "  CA:97:81:12:"] {
        assert!(shown.contains(begin), "{shown}");
    }
    assert!(shown.ends_with(&run(&["certificate"])) && !run(&["certificate"]).contains("#key="));
    fs::write(&file, "").expect("the folder is the test's");
    run(&["make"]);
    assert_ne!(key(), first);
    fs::write(etc.join("edge-runner.env"), "RUNNER_API_KEY=\n").expect("the folder is the test's");
    assert!(!run(&[]).contains("#key="));
    fs::remove_dir_all(&etc).expect("the folder is the test's");
}
