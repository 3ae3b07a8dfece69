//! The file of settings: `--config`, RUNNER_CONFIG, and `edge-runner config`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::support::client::Client;
use crate::support::http;
use crate::support::runner::TestRunner;

const NAME: &str = "edge-runner.toml";

fn status(runner: &TestRunner) -> Value {
    let reply = http::get(runner.addr, "/status");
    serde_json::from_slice(&reply.body).expect("the status is JSON")
}

/// What `config show` prints about one key.
fn shown(files: &[(&str, &str)], arguments: &[&str], variables: &[(&str, &str)], key: &str) -> String {
    let arguments = [&["config", "show"], arguments].concat();
    let ended = TestRunner::run_among(files, &arguments, variables);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let start = format!("{key} = ");
    let line = ended.stdout.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("{key} is not in {ended:?}")).to_owned()
}

/// Who copies a file of the page gets no error, and calls of its provider are hung up and verified.
#[test]
fn the_files_of_the_page_have_no_mistake() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/settings.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let examples = page
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next());
    let mut checked = 0;
    for example in examples {
        let text = example.replace("/etc/edge-runner/", "");
        let secrets = ["daily.key", "twilio.token", "openai.key", "crm.key", "service.txt"];
        let secrets = secrets.map(|name| (name, "0123456789abcdef\n"));
        let files = [&[(NAME, &*text)][..], &secrets].concat();
        let variables = [("TWILIO_TOKEN", "0123456789abcdef")];
        let ended = TestRunner::run_among(&files, &["config", "check", NAME], &variables);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(!ended.stderr.contains("are not hung up"), "{ended:?}");
        checked += 1;
    }
    assert_eq!(checked, 2);
}

/// The runner starts with what the file says, and a typed option takes precedence.
#[test]
fn a_runner_starts_by_its_file() {
    let files = [(NAME, "bot = \"echo\"\nmax-sessions = 3\nmetrics = 'off'\n")];
    for (arguments, variables, bot) in [
        (&["--config", NAME][..], &[][..], "echo"),
        (&[], &[("RUNNER_CONFIG", NAME)], "echo"),
        (&["--bot", "parrot", "--config", NAME], &[], "parrot"),
        (&["--config", NAME], &[("RUNNER_BOT", "parrot")], "parrot"),
    ] {
        let runner = TestRunner::start_among(&files, arguments, variables);
        assert_eq!(status(&runner)["bot"], bot, "{arguments:?} {variables:?}");
        assert_eq!(http::get(runner.addr, "/metrics").status, 404);
    }
}

/// Each source takes precedence over those behind it.
#[test]
fn the_order_is_option_variable_env_file_default() {
    let toml = (NAME, "port = 1\nVIDEOROOM_API_URL = \"http://localhost:1\"\n");
    let dot_env = (".env", "RUNNER_PORT=2\nDAILY_API_URL=http://localhost:2\n");
    let config = ["--config", NAME];
    let typed = ["--config", NAME, "--port", "4"];
    let port = |files: &[(&str, &str)], arguments: &[&str], variables: &[(&str, &str)]| {
        shown(files, arguments, variables, "port")
    };
    let process = [("RUNNER_PORT", "3")];
    assert_eq!(port(&[toml, dot_env], &typed, &process), "4  # --port");
    assert_eq!(port(&[toml, dot_env], &config, &process), "3  # RUNNER_PORT");
    assert_eq!(port(&[toml, dot_env], &config, &[]), "2  # RUNNER_PORT in .env");
    assert_eq!(port(&[toml], &config, &[]), format!("1  # port ({NAME}:1)"));
    let url = |files: &[(&str, &str)]| shown(files, &config, &[], "VIDEOROOM_API_URL");
    assert_eq!(url(&[toml, dot_env]), "\"http://localhost:2\"  # DAILY_API_URL in .env");
    assert_eq!(
        url(&[toml]),
        format!("\"http://localhost:1\"  # VIDEOROOM_API_URL ({NAME}:2)")
    );
    let ended = TestRunner::run_with(&["config", "show"], &[]);
    assert!(ended.stdout.contains("# port: 7860 (default)\n"), "{ended:?}");
}

#[test]
fn a_check_finds_mistakes_and_starts_nothing() {
    let check = |text: &str| TestRunner::run_among(&[(NAME, text)], &["config", "check", NAME], &[]);
    let good = check("port = 80\nhost = '0.0.0.0'\napi-key-file = 'auto'\nstate-dir = 'state'\n");
    assert_eq!(good.code, Some(0), "{good:?}");
    assert!(good.stdout.ends_with(&format!("{NAME}: no mistakes\n")), "{good:?}");
    for (text, message) in [
        (
            "port = 80\nprot = 81\n",
            "edge-runner.toml:2: there is no setting `prot`; did you mean `port`?",
        ),
        (
            "port = 'x'\n",
            "`port (edge-runner.toml:1)` takes a number from 0 to 65535, not `x`",
        ),
        (
            "embedded = 1\n",
            "edge-runner.toml:1: `embedded` takes `true` or `false`, not a number",
        ),
        ("tls = 'auto\n", "edge-runner.toml:1: no valid TOML: "),
        (
            "direct = true\ntransport = 'webrtc'\n",
            "(set by direct (edge-runner.toml:1), transport (edge-runner.toml:2))",
        ),
        (
            "api-key = { file = 'gone' }\n",
            "edge-runner.toml:1: `api-key`: gone: No such file",
        ),
    ] {
        let ended = check(text);
        assert!(
            ended.code == Some(2) && ended.stderr.contains(message),
            "{message}: {ended:?}"
        );
    }
    let ended = TestRunner::run_with(&["--config", "gone.toml"], &[]);
    assert!(
        ended.code == Some(2) && ended.stderr.contains("`--config gone.toml`: No such file"),
        "{ended:?}"
    );
    let ended = TestRunner::run_with(&["config", "--help"], &[]);
    assert!(
        ended.code == Some(0) && ended.stdout.contains("Exit codes:"),
        "{ended:?}"
    );
}

/// Secrets come from files and variables, and are in no output.
#[test]
fn secrets_are_taken_from_elsewhere_and_never_shown() {
    let toml =
        "api-key = { file = \"key\" }\nDAILY_API_KEY = { variable = \"ROOMS\" }\nTWILIO_AUTH_TOKEN = \"hunter2\"\n";
    let files = [(NAME, toml), ("key", "hunter2-hunter2-hunter2\n")];
    let variables = [("ROOMS", "hunter2"), ("RUNNER_CONFIG", NAME)];
    let ended = TestRunner::run_among(&files, &["config", "show"], &variables);
    for key in ["api-key", "VIDEOROOM_API_KEY"] {
        assert!(ended.stdout.contains(&format!("{key} = \"********\"  # ")), "{ended:?}");
    }
    assert!(!format!("{ended:?}").contains("hunter2"), "{ended:?}");
    let runner = TestRunner::start_among(&files, &[], &variables);
    assert_eq!(
        http::request(
            runner.addr,
            "POST",
            "/start",
            &["Content-Type: application/json"],
            b"{}"
        )
        .expect("an answer")
        .status,
        401
    );
    assert!(!runner.log().contains("hunter2"), "{}", runner.log());
}

/// A file with a secret that every user may read is one warning; one without is none.
#[test]
fn a_secret_that_others_may_read_is_warned_of() {
    let key = "api-key = \"hunter2-hunter2-hunter2\"\n";
    let file = crate::support::runner::folder().join(NAME);
    let path = file.to_str().expect("a plain name");
    for (text, mode, is_warned) in [
        (key, 0o644, true),
        (key, 0o640, false),
        ("bot = 'echo'\n", 0o644, false),
    ] {
        fs::write(&file, text).expect("the folder is the test's");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("the file is the test's");
        let runner = TestRunner::start(&["--config", path]);
        runner.wait_for_log("listening on");
        let warned = runner.log().matches("which contains a secret").count();
        assert_eq!(warned, usize::from(is_warned), "{mode:o} {}", runner.log());
    }
}

/// A `.env` file that no one named cannot name a file of settings, which could name programs.
#[test]
fn a_file_of_the_working_directory_names_no_settings() {
    let files = [
        (".env", format!("RUNNER_CONFIG={NAME}\n")),
        (NAME, "bot = 'echo'\n".to_owned()),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let runner = TestRunner::start_among(&files, &[], &[]);
    runner.wait_for_log("RUNNER_CONFIG (line 1) determines which programs run");
    assert_eq!(status(&runner)["bot"], "parrot");
    let runner = TestRunner::start_among(&files, &["--env-file", ".env"], &[]);
    assert_eq!(status(&runner)["bot"], "echo");
}

/// The status of `/start` for a request with these headers.
fn start(runner: &TestRunner, headers: &[&str]) -> u16 {
    let headers = [&["Content-Type: application/json"], headers].concat();
    let reply = http::request(runner.addr, "POST", "/start", &headers, b"{}");
    reply.expect("an answer").status
}

/// SIGHUP applies what can change live, and says what needs a restart. A mistake changes nothing.
#[test]
fn a_reload_applies_what_can_change_live() {
    let before = "api-key = { file = 'key' }\nmetrics = 'off'\n";
    let files = [(NAME, before), ("key", "the-first-key-of-all\n")];
    let mut runner = TestRunner::start_among(&files, &["--config", NAME], &[]);
    let (first, second) = (
        "Authorization: Bearer the-first-key-of-all",
        "Authorization: Bearer the-second-key-of-all",
    );
    let page = "Origin: https://other.example";
    let client = Client::connect(runner.addr, "/ws-client");
    assert_eq!((start(&runner, &[first, page]), start(&runner, &[second])), (200, 401));
    assert!(!runner.log().contains(" DEBUG "), "{}", runner.log());
    let write = |text: &str| fs::write(runner.path(NAME), text).expect("the folder is the test's");
    write("api-key = 'short'\nverbose = 2\n");
    runner.signal("HUP");
    let line = runner.wait_for_log("SIGHUP: the settings stay as they were");
    assert!(
        line.contains("`api-key (edge-runner.toml:1)` takes a key of 16 to 512"),
        "{line}"
    );
    assert_eq!(start(&runner, &[first]), 200);
    fs::write(runner.path("key"), "the-second-key-of-all\n").expect("the folder is the test's");
    let all = "allowed-origins = ['https://app.example']\ndrain = 3600\nverbose = 1\nmax-sessions = 7\n";
    write(&format!("{before}{all}"));
    runner.signal("HUP");
    runner.wait_for_log("SIGHUP: settings changed, and applied by a restart: `max-sessions`");
    runner.wait_for_log("SIGHUP: settings applied: `allowed-origins`, `api-key`, `drain`, `verbose`");
    let app = "Origin: https://app.example";
    assert_eq!(
        (start(&runner, &[first, app]), start(&runner, &[second, app])),
        (401, 200)
    );
    assert_eq!(start(&runner, &[second, page]), 403);
    runner.wait_for_log(" DEBUG ");
    assert!(!runner.log().contains("key-of-all"), "{}", runner.log());
    // The call from before goes on, and its end is waited for.
    runner.signal("TERM");
    runner.wait_for_log("waiting up to");
    drop(client);
    assert!(runner.wait().success(), "{}", runner.log());
}

/// Variables of `.env` are read again, too; RUST_LOG replaces the level.
#[test]
fn a_reload_reads_the_variables_of_the_folder_again() {
    let files = [(".env", "RUNNER_VERBOSE=0\n")];
    let runner = TestRunner::start_among(&files, &[], &[("RUST_LOG", "info")]);
    fs::write(runner.path(".env"), "RUNNER_VERBOSE=1\nRUNNER_DRAIN=5\n").expect("the folder is the test's");
    runner.signal("HUP");
    runner.wait_for_log("SIGHUP: settings applied: `drain`");
    runner.wait_for_log("SIGHUP: settings changed, and applied by a restart: `verbose`");
}

/// A comment above the section of a bot changes no setting, and the line says so.
#[test]
fn a_reload_without_a_change_says_so() {
    let text = "[bots.desk]\nbot = 'echo'\n[bots.home]\nbot = 'parrot'\n";
    let runner = TestRunner::start_among(&[(NAME, text)], &["--config", NAME], &[]);
    fs::write(runner.path(NAME), format!("# a comment\n\n{text}")).expect("the folder is the test's");
    runner.signal("HUP");
    runner.wait_for_log("SIGHUP: no setting has changed");
    assert!(!runner.log().contains("certificate to read again"), "{}", runner.log());
}
