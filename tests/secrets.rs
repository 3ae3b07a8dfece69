//! Which secrets bot programs can see, and where credentials of a `.env` file are sent.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::support::client::Client;
use crate::support::http::{self, request};
use crate::support::program::wait_until;
use crate::support::rest::Rest;
use crate::support::runner::{TestRunner, folder, wait_for_file};
use crate::support::skip;

/// Writes its environment, and what it can read of its parent's, the runner's.
const TELLS: &str = r#"env > env.new; cat "/proc/$PPID/environ" > parent 2> /dev/null; mv env.new env; exec sleep 60"#;

/// Returns the environment of the bot of a runner with this `.env`, these options and variables,
/// and the runner.
fn environment(file: &str, options: &[&str], variables: &[(&str, &str)]) -> (BTreeMap<String, String>, TestRunner) {
    let arguments = [options, &["--", "/bin/sh", "-c", TELLS]].concat();
    let runner = TestRunner::start_among(&[(".env", file)], &arguments, variables);
    let _client = Client::connect(runner.addr, "/ws-client");
    let text = wait_for_file(&runner.path("env"));
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let own = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    (own, runner)
}

/// The container image makes a key at its first start, as the package does, keeps it, and tells
/// where it is, but not what it is.
#[test]
fn the_container_image_makes_a_key_and_keeps_it() {
    let image = include_str!("../boards/release.d/oci.py");
    assert!(image.contains(r#""RUNNER_API_KEY_FILE=auto", "RUNNER_WS_AUTH=token""#));
    let state = folder();
    let file = state.join("api-key");
    let variables = [
        ("STATE_DIRECTORY", state.to_str().expect("a plain path")),
        ("RUNNER_API_KEY_FILE", "auto"),
        ("RUNNER_WS_AUTH", "token"),
    ];
    let mut made = None;
    for _ in 0..2 {
        let runner = TestRunner::start_with(&[], &variables);
        let key = fs::read_to_string(&file).expect("a key").trim().to_owned();
        assert_eq!(key.len(), 48, "{key}");
        let mode = fs::metadata(&file).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let start = |headers: &[&str]| {
            let json = [&["Content-Type: application/json"], headers].concat();
            request(runner.addr, "POST", "/start", &json, b"{}")
                .expect("an answer")
                .status
        };
        assert_eq!(start(&[]), 401);
        assert_eq!(start(&[&format!("Authorization: Bearer {key}")]), 200);
        runner.wait_for_logs(&format!("the key of callers is in {}", file.display()), 1);
        assert!(!runner.log().contains(&key), "{}", runner.log());
        assert_eq!(*made.get_or_insert(key.clone()), key, "it is kept");
    }
}

/// A bot gets the keys of its own services, and of the runner's only those that are passed by name.
/// The log names the withheld ones once, without values.
#[test]
fn a_bot_does_not_get_the_runner_s_secrets() {
    let secret = "hunter2-hunter2-hunter2";
    let variables = [
        ("RUNNER_API_KEY", secret),
        ("RUNNER_ARGS", secret),
        ("PIPECAT_ICE_SERVERS", "stun:127.0.0.1:9"),
        ("TWILIO_ACCOUNT_SID", "AC1"),
        ("TWILIO_AUTH_TOKEN", secret),
        ("LIVEKIT_API_KEY", "devkey"),
        ("LIVEKIT_API_SECRET", secret),
        ("OPENAI_API_KEY", "of the bot"),
    ];
    let file =
        "DAILY_API_KEY=hunter2-hunter2-hunter2\nTELCO_B_API_KEY=hunter2-hunter2-hunter2\nDEEPGRAM_API_KEY=of the bot\n";
    let (bot, runner) = environment(file, &["--pass-env", "DAILY_API_KEY"], &variables);
    let holders: Vec<_> = bot.iter().filter(|(_, value)| value.contains("hunter2")).collect();
    assert_eq!(holders.len(), 1, "{holders:?}");
    assert_eq!(bot.get("DAILY_API_KEY").map(String::as_str), Some(secret));
    assert!(!bot.contains_key("PIPECAT_ICE_SERVERS"));
    for (name, value) in [
        ("OPENAI_API_KEY", "of the bot"),
        ("DEEPGRAM_API_KEY", "of the bot"),
        ("TWILIO_ACCOUNT_SID", "AC1"),
        ("LIVEKIT_API_KEY", "devkey"),
        ("ENV", "local"),
    ] {
        assert_eq!(bot.get(name).map(String::as_str), Some(value), "{name}");
    }
    let reported = runner.wait_for_logs("withheld from the bot's environment", 1);
    assert_eq!(reported.len(), 1, "{reported:?}");
    for name in [
        "RUNNER_API_KEY",
        "TWILIO_AUTH_TOKEN",
        "LIVEKIT_API_SECRET",
        "TELCO_B_API_KEY",
    ] {
        assert!(reported[0].contains(name), "{name} in {}", reported[0]);
    }
    assert!(
        !reported[0].contains("DAILY_API_KEY") && !runner.log().contains("hunter2"),
        "{}",
        runner.log()
    );
}

/// A bot, which runs as the same user, cannot read them in `/proc` either.
#[test]
fn a_bot_cannot_read_the_environment_of_the_runner() {
    // Root may read everything; without capabilities it is like any other user.
    let plain = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"];
    let wrapper = if is_root() { &plain[..] } else { &[] };
    let variables = [("TWILIO_AUTH_TOKEN", "hunter2")];
    let arguments = ["--", "/bin/sh", "-c", TELLS];
    let runner = TestRunner::start_through(wrapper, &arguments, &variables);
    let _client = Client::connect(runner.addr, "/ws-client");
    let own = wait_for_file(&runner.path("env"));
    assert!(own.contains("RUNNER_ARGUMENTS=") && !own.contains("hunter2"), "{own}");
    assert_eq!(wait_for_file(&runner.path("parent")), "");
}

/// Tells what it sees and where it can write, then waits for its end.
const LOOKS: &str = r#"
trap 'echo bye > bye.new; mv bye.new bye; exit 0' TERM
{
    for file in .env keys/key cluster service state/authority.pem state/acme/account.pem state/api-key calls/old /proc/*/environ
    do
        grep -l hunter2 "$file"
    done
    ls state
    ls calls
    ls -d /proc/[0-9]* | wc -l
    mv keys moved && mkdir keys && echo put another key there
    touch /usr/written && echo written in /usr
    touch /tmp/written && echo written in /tmp
    unshare --user true && echo made a namespace
    id -u
} > seen.new 2> /dev/null
mv seen.new seen
while :; do sleep 0.1; done"#;

/// Returns whether programs can run in the sandbox here.
fn has_sandbox() -> bool {
    if !skip::has_program("bwrap", "the sandbox of programs", "bubblewrap") {
        return false;
    }
    let probe = Command::new("bwrap")
        .args([
            "--unshare-user",
            "--disable-userns",
            "--ro-bind",
            "/",
            "/",
            "--proc",
            "/proc",
            "true",
        ])
        .status();
    let works = probe.is_ok_and(|status| status.success());
    if !works {
        let why = "this machine forbids user namespaces, or bubblewrap is older than 0.8";
        skip::lacks_ability("the sandbox of programs", why);
    }
    works
}

/// A program in a sandbox sees neither the files with keys nor other processes, puts no others in
/// their place, makes no namespace and writes to its own folders alone. It gets the signal at the
/// end of its session as without.
#[test]
fn a_program_in_a_sandbox_sees_and_writes_less() {
    if !has_sandbox() {
        return;
    }
    let arguments = [&["--sandbox"], SECRET_FILES, &["--", "/bin/sh", "-c", LOOKS]].concat();
    let runner = with_secret_files(&arguments);
    let client = Client::connect(runner.addr, "/ws-client");
    let user = rustix::process::geteuid().as_raw();
    // Those of the program and of bubblewrap.
    let seen = wait_for_file(&runner.path("seen"));
    let lines: Vec<&str> = seen.lines().collect();
    let [processes, rest @ ..] = &lines[..] else {
        panic!("it saw nothing")
    };
    assert!(processes.parse::<usize>().is_ok_and(|count| count < 8), "{seen}");
    assert_eq!(rest, ["written in /tmp", &user.to_string()], "{seen}");
    assert!(runner.path("state/authority.pem").exists());
    drop(client);
    assert_eq!(wait_for_file(&runner.path("bye")), "bye\n");
    runner.wait_for_sessions(0);
}

/// A file that is replaced takes along the mount that hides it, and a process that waits for its
/// call would see the other one.
#[test]
fn a_waiting_bot_does_not_see_a_key_that_is_replaced() {
    if !has_sandbox() {
        return;
    }
    let bot = "import asyncio
async def bot(args):
    try:
        text = open('key').read()
    except OSError:
        text = ''
    print('it sees', 'hunter2' in text)
    await asyncio.sleep(600)
";
    let key = "hunter2-hunter2-hunter2-hunter2-hunter2-hunter2\n";
    let options = ["--sandbox", "--api-key-file", "key", "--python", "python3", "bot.py"];
    let runner = TestRunner::start_among(&[("bot.py", bot), ("key", key)], &options, &[]);
    let status = || http::get(runner.addr, "/status").json();
    wait_until(
        || status()["bot_process"]["state"] == "ready",
        || "the bot was to be loaded".to_owned(),
    );
    fs::write(runner.path("new"), format!("other-{key}")).expect("the folder is the test's");
    fs::rename(runner.path("new"), runner.path("key")).expect("the folder is the test's");
    let client = Client::connect(runner.addr, "/ws-client");
    let line = runner.wait_for_log("it sees ");
    drop(client);
    runner.wait_for_sessions(0);
    assert!(line.contains("it sees False"), "{line}");
}

/// The doctor runs the imports of a bot, whose files the bot may have written, where its sessions
/// run.
#[test]
fn the_doctor_loads_a_bot_in_its_sandbox() {
    if !has_sandbox() {
        return;
    }
    let bot = "try:\n    text = open('.env').read()\nexcept OSError:\n    text = ''\nif 'hunter2' in text:\n    raise ValueError('seen')\n";
    let files = [("bot.py", bot), (".env", "TWILIO_AUTH_TOKEN=hunter2\n")];
    let found = |options: &[&str]| {
        let arguments = [&["doctor", "--rtc-port", "0"], options, &["bot.py"]].concat();
        TestRunner::run_among(&files, &arguments, &[]).stdout
    };
    let (inside, outside) = (found(&["--sandbox"]), found(&[]));
    assert!(inside.contains("its imports take"), "{inside}");
    assert!(outside.contains("ValueError: seen"), "{outside}");
}

/// What `SECURITY.md` says that a program without a sandbox can do: it reads each of these files as
/// the runner's user. The runner's environment is closed to it nevertheless.
#[test]
fn a_program_without_a_sandbox_reads_the_files_of_the_runner_s_user() {
    let arguments = [SECRET_FILES, &["--", "/bin/sh", "-c", LOOKS]].concat();
    let runner = with_secret_files(&arguments);
    let _client = Client::connect(runner.addr, "/ws-client");
    let seen = wait_for_file(&runner.path("seen"));
    for file in [
        ".env",
        "keys/key",
        "cluster",
        "state/acme/account.pem",
        "state/api-key",
        "calls/old",
    ] {
        assert!(seen.lines().any(|line| line == file), "{file}: {seen}");
    }
    assert!(seen.contains("authority.pem"), "{seen}");
    if !is_root() {
        // Programs of other tests may have the secret, too.
        assert!(!seen.contains(&format!("/proc/{}/environ", runner.pid())), "{seen}");
    }
}

/// Options that name files with secrets.
const SECRET_FILES: &[&str] = &[
    "--api-key-file",
    "keys/key",
    "--cluster-key-file",
    "cluster",
    "--tls",
    "auto",
    "--state-dir",
    "state",
    "--calls-dir",
    "calls",
];

/// Starts a runner in a folder with secrets in all files that may have some.
fn with_secret_files(arguments: &[&str]) -> TestRunner {
    let secret = "hunter2-hunter2-hunter2-hunter2-hunter2-hunter2\n";
    let files = [
        (".env", "TWILIO_AUTH_TOKEN=hunter2\nTOOLS_API_KEY_FILE=service\n"),
        ("keys/key", secret),
        ("cluster", secret),
        ("service", secret),
        ("state/acme/account.pem", secret),
        ("state/api-key", secret),
        ("calls/old", secret),
    ];
    TestRunner::start_among(&files, arguments, &[("VIDEOROOM_API_KEY", "hunter2")])
}

/// A sandbox that cannot be made stops the start, and one without a program is a warning.
#[test]
fn a_sandbox_that_does_not_work_is_refused() {
    let folder = folder();
    let empty = [("PATH", folder.to_str().expect("a path in UTF-8"))];
    let arguments = ["--port", "0", "--rtc-port", "0", "--sandbox", "--", "/bin/sh"];
    let ended = TestRunner::run_with(&arguments, &empty);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("apt-get install bubblewrap"), "{ended:?}");
    let runner = TestRunner::start(&["--sandbox"]);
    runner.wait_for_log("`--sandbox` has no effect");
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A `.env` file cannot run code in bots, and its harmless lines arrive.
#[test]
fn a_file_of_the_working_directory_loads_nothing_into_bots() {
    let file = "PYTHONUNBUFFERED=1\nLD_PRELOAD=/tmp/evil.so\nNODE_OPTIONS=--require /tmp/evil.js\nPYTHONSTARTUP=/tmp/evil.py\n\
                BASH_ENV=/tmp/evil.sh\nGREETING=hello\n";
    let (bot, runner) = environment(file, &[], &[]);
    for name in ["LD_PRELOAD", "NODE_OPTIONS", "PYTHONSTARTUP", "BASH_ENV"] {
        assert!(!bot.contains_key(name), "{name}");
    }
    assert_eq!(bot.get("GREETING").map(String::as_str), Some("hello"));
    let log = runner.log();
    for reported in ["LD_PRELOAD (line 2) ", "BASH_ENV (line 5) "] {
        assert!(log.contains(reported), "{reported} in {log}");
    }
    assert!(!log.contains("evil"), "{log}");
}

/// The same for authorities, proxies and hosts, while the environment has a key. A file that the
/// operator names is taken whole, and the environment takes precedence over it.
#[test]
fn a_file_of_the_working_directory_sends_no_key_elsewhere() {
    let file = "TEST_CA_BUNDLE=evil.pem\nOPENAI_BASE_URL=https://evil.example\nTEST_PROXY=http://evil.example\n\
                DEEPGRAM_API_KEY=of the file\nGREETING=of the file\n";
    let variables = [("OPENAI_API_KEY", "hunter2"), ("GREETING", "hello")];
    let refused = ["TEST_CA_BUNDLE", "OPENAI_BASE_URL", "TEST_PROXY"];
    let (bot, runner) = environment(file, &[], &variables);
    let reported = runner.wait_for_logs(".env was not named", 1);
    for name in refused {
        assert!(
            !bot.contains_key(name) && reported[0].contains(name),
            "{name}: {reported:?}"
        );
    }
    assert!(!runner.log().contains("evil"), "{}", runner.log());
    let (named, runner) = environment(file, &["--env-file", ".env"], &variables);
    for name in refused {
        assert!(named.contains_key(name), "{name}");
    }
    assert!(!runner.log().contains(".env was not named"), "{}", runner.log());
    for bot in [bot, named] {
        assert_eq!(bot.get("DEEPGRAM_API_KEY").map(String::as_str), Some("of the file"));
        assert_eq!(bot.get("GREETING").map(String::as_str), Some("hello"));
    }
}

/// A named file replaces `.env`, sets options, and has to be there.
#[test]
fn a_named_file_is_read_or_the_start_fails() {
    let files = [
        (".env", "GREETING=of the folder\n"),
        ("keys", "GREETING=of the keys\nRUNNER_API_KEY=hunter2-hunter2-hunter2\n"),
    ];
    for (options, variables) in [
        (&["--env-file=keys"][..], &[][..]),
        (&[], &[("RUNNER_ENV_FILE", "keys")]),
    ] {
        let arguments = [options, &["--", "/bin/sh", "-c", TELLS]].concat();
        let runner = TestRunner::start_among(&files, &arguments, variables);
        let _client = Client::connect(runner.addr, "/ws-client");
        let text = wait_for_file(&runner.path("env"));
        assert!(
            text.contains("GREETING=of the keys") && !text.contains("hunter2"),
            "{text}"
        );
    }
    let ended = TestRunner::run_among(&files, &["--env-file", "gone"], &[]);
    assert!(
        ended.code == Some(2) && ended.stderr.contains("`--env-file gone`"),
        "{ended:?}"
    );
}

/// As a service, the runner starts in a folder that others cannot write, and its bots start in the
/// state folder, to which relative paths of their programs refer.
#[test]
fn a_bot_of_a_service_starts_in_the_folder_of_its_state() {
    let state = folder();
    fs::write(state.join("bot.sh"), TELLS).expect("the folder is the test's");
    fs::write(state.join(".env"), "GREETING=of a bot\n").expect("the folder is the test's");
    let name = state.to_str().expect("a plain name");
    let runner = TestRunner::start_with(&["--", "/bin/sh", "./bot.sh"], &[("STATE_DIRECTORY", name)]);
    let _client = Client::connect(runner.addr, "/ws-client");
    let own = wait_for_file(&state.join("env"));
    assert!(own.contains("RUNNER_ARGUMENTS=") && !own.contains("GREETING"), "{own}");
    drop(runner);
    let ended = TestRunner::run_with(&["--port", "0", "--", "./gone.sh"], &[("STATE_DIRECTORY", name)]);
    assert!(ended.code == Some(1) && ended.stderr.contains("./gone.sh"), "{ended:?}");
    fs::remove_dir_all(&state).expect("the folder is the test's");
}

/// A credential of the environment is not sent to an address from a `.env` file; one of that file
/// is.
#[test]
fn a_credential_is_sent_to_its_configured_address_alone() {
    let api = Rest::start(&[(200, "{}")]);
    let file = format!(
        "TELCO_A_API_URL={}\nDAILY_API_URL={}\nVIDEOROOM_ROOM_URL=https://a.example/r\n",
        api.url(),
        api.url()
    );
    let variables = [
        ("TELCO_A_ACCOUNT_SID", "AC1"),
        ("TELCO_A_AUTH_TOKEN", "hunter2"),
        ("VIDEOROOM_API_KEY", "hunter2"),
    ];
    let (bot, runner) = environment(&file, &[], &variables);
    for name in ["TELCO_A_API_URL", "DAILY_API_URL"] {
        assert!(!bot.contains_key(name), "{name}");
        let reported = runner.wait_for_log(name);
        assert!(
            reported.contains("WARN") && reported.contains("both in .env"),
            "{reported}"
        );
    }
    assert!(bot.contains_key("VIDEOROOM_ROOM_URL"));
    let both = format!("{file}TELCO_A_AUTH_TOKEN=x\n");
    let (bot, runner) = environment(&both, &[], &[("TELCO_A_ACCOUNT_SID", "AC1")]);
    assert!(bot.contains_key("TELCO_A_API_URL") && !runner.log().contains("both in .env"));
}

/// The same for the client of the cloud service, in a folder that another user has written.
#[test]
fn a_key_of_the_cloud_service_stays_with_its_own_service() {
    let service = Rest::start(&[(200, r#"{"regions": []}"#)]);
    let file = format!("CLOUD_API_URL={}\n", service.url());
    let files = [(".env", file.as_str())];
    let key = "hunter2-hunter2-hunter2";
    let of_variable = TestRunner::run_among(&files, &["cloud", "regions"], &[("CLOUD_API_KEY", key)]);
    let typed = TestRunner::run_among(&files, &["cloud", "regions", "--api-key", key], &[]);
    for ended in [&of_variable, &typed] {
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(
            ended.stderr.contains("CLOUD_API_URL") && ended.stderr.contains(".env"),
            "{ended:?}"
        );
        assert!(!ended.stderr.contains("hunter2"), "{ended:?}");
    }
    assert_eq!(service.asked().len(), 0);
}
