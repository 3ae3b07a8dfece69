//! The setup page of a board: `edge-runner setup` as a browser meets it, and `finish`, which
//! applies what it took, with stand-ins for the programs that change a system.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use serde_json::{Value, json};

use crate::support::cascade::ServiceServer;
use crate::support::http::{Reply, exchange, get, request};
use crate::support::realtime::RealtimeServer;
use crate::support::runner::{TestRunner, folder};
use crate::support::skip;

const SECRET: &str = "sk-of-the-service";
const PASSWORD: &str = "\"correct:horse \"1$";

/// A setup page on a free port, and its spool folder.
struct SetupProcess {
    process: TestRunner,
    spool: PathBuf,
}

impl SetupProcess {
    fn start() -> Self {
        let spool = folder();
        let name = spool.to_str().expect("a plain path");
        let options = ["setup", "--host", "127.0.0.1", "--port", "0", "--spool", name, "-vvv"];
        SetupProcess {
            process: TestRunner::start_bare(&options, &[]),
            spool,
        }
    }

    /// Sends JSON as the page does.
    fn post(&self, path: &str, body: &Value) -> Reply {
        post(self.process.addr, path, body)
    }

    fn settings(&self) -> Option<String> {
        fs::read_to_string(self.spool.join("settings")).ok()
    }
}

fn post(addr: SocketAddr, path: &str, body: &Value) -> Reply {
    let origin = format!("Origin: http://{addr}");
    let headers = [&*origin, "Content-Type: application/json"];
    request(addr, "POST", path, &headers, body.to_string().as_bytes()).expect("it answers")
}

/// State, field and text of each report, in the order of the services.
fn reports(reply: &Reply) -> Vec<(String, String, String)> {
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert!(!reply.text().contains(SECRET), "{}", reply.text());
    let answer = reply.json();
    let services = answer["services"].as_array().expect("a list").iter();
    let text = |report: &Value, name: &str| report[name].as_str().expect("a text").to_owned();
    services
        .map(|report| (text(report, "state"), text(report, "variable"), text(report, "text")))
        .collect()
}

fn form() -> Value {
    json!({"name": "kitchen", "access": "key", "ssh": "password", "ssh_value": PASSWORD, "bot": "realtime", "local": true,
        "variables": {"OPENAI_API_KEY": SECRET}})
}

#[test]
fn settings_are_taken_once_and_the_process_ends() {
    let mut setup = SetupProcess::start();
    let page = get(setup.process.addr, "/");
    assert_eq!(page.status, 200);
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.contains("default-src 'none'") && policy.contains("connect-src 'self' http://*:7860"));
    for file in [
        "/setup.js",
        "/setup.css",
        "/form.css",
        "/form-bot.js",
        "/form-checks.js",
        "/rich.js",
        "/style.css",
        "/dom.js",
        "/icon.svg",
    ] {
        assert_eq!(get(setup.process.addr, file).status, 200, "{file}");
    }
    for file in ["/app.js", "/index.html", "/settings", "/../Cargo.toml", "/status"] {
        assert_eq!(get(setup.process.addr, file).status, 404, "{file}");
    }
    let state = get(setup.process.addr, "/state").json();
    assert!(state["runnerPort"] == 7860 && state["assistants"] == true, "{state}");

    let first = setup.post("/settings", &form());
    assert_eq!(first.header("cache-control"), Some("no-store"));
    let first = first.json();
    let second = setup.post("/settings", &form()).json();
    assert_ne!(first["key"], second["key"]);
    assert_eq!(setup.settings(), None, "nothing is written before the confirmation");
    let stale = setup.post("/finish", &json!({"token": first["token"]}));
    assert_eq!(stale.status, 409);
    let done = setup.post("/finish", &json!({"token": second["token"]}));
    assert_eq!(done.status, 200, "{}", done.text());
    assert!(setup.process.wait().success());
    assert_eq!(
        setup.settings().expect("written"),
        format!(
            "hostname = kitchen\nssh_password = \"{PASSWORD}\"\nRUNNER_API_KEY = {}\nRUNNER_BOT = realtime\n\
             RUNNER_LOCAL = voice\nOPENAI_API_KEY = {SECRET}\n",
            second["key"].as_str().expect("a key")
        )
    );
    let mode = fs::metadata(setup.spool.join("settings"))
        .expect("written")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let log = setup.process.log();
    for secret in [SECRET, PASSWORD, second["key"].as_str().expect("a key"), "correct"] {
        assert!(!log.contains(secret), "{log}");
    }
}

/// Another site in a visitor's browser, by a name of its own, a foreign origin, or a form.
#[test]
fn other_pages_cannot_send_settings() {
    let setup = SetupProcess::start();
    let addr = setup.process.addr;
    let rebound = exchange(
        addr,
        b"GET /state HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(rebound.expect("an answer").status, 421);
    let named = exchange(
        addr,
        b"GET /state HTTP/1.1\r\nHost: edge-runner.local\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(named.expect("an answer").status, 200);
    let own = format!("Origin: http://{addr}");
    let json = "Content-Type: application/json";
    let check = br#"{"services":["chat"],"variables":{"CASCADE_LLM_URL":"tcp://127.0.0.1:1"}}"#;
    for (headers, status) in [
        (&["Origin: http://evil.example", json][..], 403),
        (&["Origin: null", json], 403),
        (&[json], 403),
        (&[&own, "Content-Type: text/plain"], 415),
        (&[&own], 415),
    ] {
        let reply = request(addr, "POST", "/settings", headers, form().to_string().as_bytes()).expect("an answer");
        assert_eq!(reply.status, status, "{headers:?}");
        assert!(!reply.text().contains(SECRET));
        let reply = request(addr, "POST", "/check", headers, check).expect("an answer");
        assert_eq!(reply.status, status, "{headers:?}");
    }
    let preflight = [
        "Origin: http://evil.example",
        "Access-Control-Request-Method: POST",
        "Access-Control-Request-Headers: content-type",
    ];
    let reply = request(addr, "OPTIONS", "/settings", &preflight, b"").expect("an answer");
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (405, None));
    let long = vec![b' '; 20_000];
    let reply = request(addr, "POST", "/settings", &[&own, json], &long).expect("an answer");
    assert_eq!(reply.status, 413);
    assert_eq!(setup.settings(), None);
}

/// What the runner would say at its start is said here, without the values.
#[test]
fn wrong_forms_are_explained() {
    let setup = SetupProcess::start();
    let answer = |change: &dyn Fn(&mut Value)| {
        let mut form = form();
        change(&mut form);
        let reply = setup.post("/settings", &form);
        assert_eq!(reply.status, 400, "{}", reply.text());
        assert!(!reply.text().contains(SECRET) && !reply.text().contains("hunter2"));
        reply.text()
    };
    assert!(answer(&|form| form["ssh_value"] = "hunter2".into()).contains("password takes 10 to 72"));
    assert!(answer(&|form| form["variables"] = json!({})).contains("OPENAI_API_KEY"));
    assert!(answer(&|form| form["variables"]["RUNNER_ARGS"] = "-- sh".into()).contains("not one of the chosen bot"));
    assert!(answer(&|form| form["name"] = "a\nRUNNER_ARGS = -- sh".into()).contains("letters, digits"));
    assert!(answer(&|form| *form = json!([])).contains("not the form"));
}

/// Each service is asked as the doctor does; its report names the field, and has no text of it.
/// What does not answer can be saved all the same.
#[test]
fn services_are_asked_before_settings_are_taken() {
    let mut setup = SetupProcess::start();
    let addr = setup.process.addr;
    let (recognizer, model) = (ServiceServer::start(), ServiceServer::start());
    let variables = json!({
        "CASCADE_STT_URL": recognizer.wyoming_url(), "CASCADE_LLM_URL": model.http_url(), "CASCADE_LLM_MODEL": "m",
        "CASCADE_LLM_API_KEY": SECRET, "CASCADE_TTS_URL": "tcp://127.0.0.1:1"});
    let form = json!({"services": ["recognizer", "chat", "voice"], "variables": variables});
    let asked = thread::spawn(move || reports(&post(addr, "/check", &form)));
    let mut connection = recognizer.accept();
    connection.expect("describe");
    connection.send("info", &json!({"asr": [{"name": "w", "models": []}]}), &[]);
    let (request, connection) = model.accept_request();
    assert_eq!((&*request.method, &*request.target), ("GET", "/v1/models"));
    assert_eq!(request.header("authorization"), Some(&*format!("Bearer {SECRET}")));
    let refusal = json!({"error": {"message": format!("{SECRET}, said the service")}}).to_string();
    connection.respond("401 Unauthorized", "application/json", refusal.as_bytes());
    let reports_of = |asked: thread::JoinHandle<Vec<(String, String, String)>>| asked.join().expect("it answers");
    let wanted = [
        ("ok", "CASCADE_STT_URL", "offers a recogniser"),
        ("failed", "CASCADE_LLM_API_KEY", "does not accept this key"),
        ("failed", "CASCADE_TTS_URL", "127.0.0.1:1 does not answer"),
    ];
    let all = reports_of(asked);
    assert_eq!(all.len(), wanted.len(), "{all:?}");
    for ((state, field, words), (given, variable, text)) in wanted.into_iter().zip(all) {
        assert_eq!((state, field), (&*given, &*variable), "{text}");
        assert!(text.contains(words) && !text.contains("said the service"), "{text}");
    }

    for (id, state, field) in [("other", "failed", "CASCADE_LLM_MODEL"), ("m", "ok", "CASCADE_LLM_URL")] {
        let form = json!({"services": ["chat"], "variables": variables});
        let asked = thread::spawn(move || reports(&post(addr, "/check", &form)));
        let (_, connection) = model.accept_request();
        let list = json!({"data": [{"id": id}]}).to_string();
        connection.respond("200 OK", "application/json", list.as_bytes());
        let report = reports_of(asked).remove(0);
        assert_eq!((&*report.0, &*report.1), (state, field), "{}", report.2);
    }

    let mut form = form_of_cascade(&variables);
    let draft = setup.post("/settings", &form);
    assert_eq!(draft.status, 200, "{}", draft.text());
    form["variables"]["CASCADE_TTS_URL"] = "nonsense".into();
    assert_eq!(setup.post("/settings", &form).status, 400);
    setup.post("/finish", &json!({"token": draft.json()["token"]}));
    assert!(setup.process.wait().success());
    let log = setup.process.log();
    assert!(!log.contains(SECRET) && !log.contains("said the service"), "{log}");
}

fn form_of_cascade(variables: &Value) -> Value {
    json!({"name": "kitchen", "access": "key", "ssh": "none", "bot": "cascade", "variables": variables})
}

#[test]
fn a_session_of_a_speech_to_speech_service_is_opened() {
    let setup = SetupProcess::start();
    let addr = setup.process.addr;
    let check = |url: String| {
        let variables = json!({"REALTIME_URL": url, "REALTIME_MODEL": "m", "REALTIME_API_KEY": SECRET});
        let form = json!({"services": ["realtime"], "variables": variables});
        thread::spawn(move || reports(&post(addr, "/check", &form)).remove(0))
    };
    let server = RealtimeServer::start();
    let asked = check(server.url());
    let session = server.accept();
    let bearer = format!("Bearer {SECRET}");
    assert_eq!(session.request.header("authorization"), Some(&*bearer));
    session.send(&json!({"type": "session.created", "event_id": "s1", "session": {"type": "realtime"}}));
    assert_eq!(asked.join().expect("it answers").0, "ok");
    let refusing = RealtimeServer::refusing(401, &json!({"error": {"code": "invalid_api_key"}}));
    let (state, variable, text) = check(refusing.url()).join().expect("it answers");
    assert_eq!((&*state, &*variable), ("failed", "REALTIME_API_KEY"), "{text}");
}

/// A neighbour cannot make the board ask without end: six services at once. Those that are done
/// make room.
#[test]
fn few_services_are_asked_at_once() {
    let setup = SetupProcess::start();
    let addr = setup.process.addr;
    let silent = ServiceServer::start();
    let url = silent.wyoming_url();
    let form = json!({"services": ["recognizer", "chat", "voice"], "variables":
        {"CASCADE_STT_URL": url, "CASCADE_LLM_URL": url, "CASCADE_TTS_URL": url}});
    let waiting = [form.clone(), form.clone()].map(|form| thread::spawn(move || post(addr, "/check", &form)));
    let connections: Vec<_> = (0..6).map(|_| silent.accept()).collect();
    let refused = setup.post("/check", &form);
    assert_eq!(refused.status, 429);
    assert!(refused.text().contains("try again"), "{}", refused.text());
    // What needs no request is answered all the same.
    let wrong = reports(&setup.post("/check", &json!({"services": ["voice"], "variables": {}})));
    assert_eq!((&*wrong[0].0, &*wrong[0].1), ("wrong", "CASCADE_TTS_URL"));
    assert!(silent.waiting().is_none());
    drop(connections);
    for answer in waiting {
        let all = reports(&answer.join().expect("it answers"));
        assert!(all.iter().all(|(state, ..)| state == "failed"), "{all:?}");
    }
    drop(silent);
    assert_eq!(reports(&setup.post("/check", &form)).len(), 3);
    let other = json!({"services": ["chat"], "variables": {"RUNNER_ARGS": "-- sh"}});
    assert_eq!(setup.post("/check", &other).status, 400);
}

/// `finish` with stand-ins that write what they were told.
struct Board {
    folder: PathBuf,
}

impl Board {
    fn new() -> Self {
        let folder = folder();
        for name in ["spool", "etc/ssh/sshd_config.d", "runner", "run", "bin", "state"] {
            fs::create_dir_all(folder.join(name)).expect("the folder is the test's");
        }
        for (name, body) in [
            ("chpasswd", "cat >>"),
            ("usermod", "echo \"$@\" >>"),
            ("systemctl", "echo \"$@\" >>"),
        ] {
            let path = folder.join("bin").join(name);
            let script = format!("#!/bin/sh\n{body} {}/{name}.log\n", folder.display());
            fs::write(&path, script).expect("the folder is the test's");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the file is the test's");
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("the folder is the test's");
        let spool = folder.join("spool");
        fs::set_permissions(spool, fs::Permissions::from_mode(0o755)).expect("the folder is the test's");
        let state = folder.join("state");
        fs::set_permissions(state, fs::Permissions::from_mode(0o777)).expect("the folder is the test's");
        fs::write(
            folder.join("run/setup-open"),
            "SETUP_RUNNER_PORT=7860\nSETUP_WORD=again\n",
        )
        .expect("the folder is the test's");
        Board { folder }
    }

    /// Runs `finish` on these settings.
    fn finish(&self, settings: &str) -> Output {
        let spool = self.folder.join("spool/settings");
        fs::write(&spool, settings).expect("the folder is the test's");
        fs::set_permissions(&spool, fs::Permissions::from_mode(0o644)).expect("the file is the test's");
        self.run()
    }

    fn run(&self) -> Output {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.folder.join("bin").display());
        Command::new(root.join("boards/image.d/files/usr/local/lib/edge-board/finish"))
            .env("PATH", path)
            .env("EDGE_BOARD_SPOOL", self.folder.join("spool"))
            .env("EDGE_BOARD_ETC", self.folder.join("etc"))
            .env("EDGE_BOARD_RUN", self.folder.join("run"))
            .env("EDGE_BOARD_LIB", root.join("boards/common"))
            .env("EDGE_BOARD_USER", "daemon")
            .env("EDGE_BOARD_STATE", self.folder.join("state"))
            .env("EDGE_BOARD_RUNNER", "daemon")
            .env("EDGE_RUNNER_ETC", self.folder.join("runner"))
            .output()
            .expect("it runs")
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }
}

/// What the page writes is what `finish` takes: name, password, key and bot reach their places.
#[test]
fn the_board_applies_what_the_page_took() {
    if !rustix::process::geteuid().is_root() {
        return skip::lacks_root("settings that a board applies", "its script needs root");
    }
    let mut setup = SetupProcess::start();
    let draft = setup.post("/settings", &form()).json();
    setup.post("/finish", &json!({"token": draft["token"]}));
    setup.process.wait();
    let board = Board::new();
    let done = board.finish(&setup.settings().expect("written"));
    assert!(done.status.success(), "{done:?}");
    let taken = board.read("etc/edge-board/setup.txt");
    assert!(taken.ends_with("setup = again\nhostname = kitchen\n"), "{taken}");
    let of_bot = board.read("state/edge-runner.toml");
    assert!(
        of_bot.ends_with(&format!(
            "\nbot = \"realtime\"\nlocal = \"voice\"\nOPENAI_API_KEY = \"{SECRET}\"\n"
        )),
        "{of_bot}"
    );
    let file = board.folder.join("state/edge-runner.toml");
    assert_eq!(fs::metadata(file).expect("written").permissions().mode() & 0o777, 0o600);
    let file = board.folder.join("etc/edge-board/setup.txt");
    assert_eq!(fs::metadata(file).expect("written").permissions().mode() & 0o777, 0o600);
    assert_eq!(board.read("chpasswd.log"), format!("edge:{PASSWORD}\n"));
    assert!(
        board
            .read("etc/ssh/sshd_config.d/00-setup.conf")
            .contains("PasswordAuthentication yes")
    );
    let key = draft["key"].as_str().expect("a key");
    assert!(
        board
            .read("runner/api-key.env")
            .contains(&format!("\nRUNNER_API_KEY={key}\nRUNNER_WS_AUTH=token\n"))
    );
    // The page says that all is done when the runner answers again.
    let services = board.read("systemctl.log");
    assert!(services.starts_with("stop edge-runner.service\n"), "{services}");
    assert!(services.ends_with("\nstart edge-runner.service\n"), "{services}");
    assert!(!board.folder.join("spool/settings").exists());

    // The next setup takes the password back, and admits all callers.
    // What a change of the settings page left beside the file is of the settings before.
    fs::write(board.folder.join("state/edge-runner.toml.tried"), "").expect("the folder is the test's");
    let text = "CASCADE_INSTRUCTIONS = \"\"Hi\" \\ \u{e4}\"\n";
    let done = board.finish(&format!(
        "hostname = den\nRUNNER_API_KEY =\nRUNNER_WS_AUTH = none\nRUNNER_BOT = parrot\n{text}"
    ));
    assert!(done.status.success(), "{done:?}");
    let of_bot = board.read("state/edge-runner.toml");
    let instructions = "CASCADE_INSTRUCTIONS = \"\\\"Hi\\\" \\\\ \u{e4}\"\n";
    assert!(
        of_bot.ends_with(&format!("\nbot = \"parrot\"\n{instructions}")),
        "{of_bot}"
    );
    assert!(!board.folder.join("state/edge-runner.toml.tried").exists());
    // In the file both keys are one, and OpenAI's goes to no other service.
    for (others, is_kept) in [
        ("", true),
        ("REALTIME_URL = http://nas:1/v1\n", false),
        ("REALTIME_API_KEY = k\n", false),
    ] {
        let text = format!("hostname = den\nRUNNER_BOT = realtime\nOPENAI_API_KEY = sk\n{others}");
        assert!(board.finish(&text).status.success());
        assert_eq!(
            board.read("state/edge-runner.toml").contains("OPENAI"),
            is_kept,
            "{others}"
        );
    }
    let done = board.finish("hostname = den\nRUNNER_API_KEY =\nRUNNER_WS_AUTH = none\nRUNNER_BOT = parrot\n");
    assert!(done.status.success(), "{done:?}");
    assert!(board.read("usermod.log").contains("--password * edge"));
    assert!(!board.folder.join("etc/ssh/sshd_config.d/00-setup.conf").exists());
    assert!(
        board
            .read("etc/edge-board/setup.txt")
            .ends_with("RUNNER_API_KEY =\nRUNNER_WS_AUTH = none\n")
    );
    fs::remove_dir_all(&board.folder).expect("the folder is the test's");
}

/// A process that was taken over can write any file: `finish` takes all of it or nothing.
#[test]
fn the_board_rejects_what_the_page_would_not_write() {
    if !rustix::process::geteuid().is_root() {
        return skip::lacks_root("settings that a board rejects", "its script needs root");
    }
    let board = Board::new();
    for wrong in [
        "hostname = den\nRUNNER_ARGS = -- sh -c reboot\n",
        "hostname = den\nRUNNER_BOT = /bin/sh\n",
        "hostname = den\nRUNNER_LOCAL = text\n",
        "hostname = den\nRUNNER_LOCAL_IN = sh -c reboot\n",
        "hostname = den\nCASCADE_FUNCTIONS_FILE = /etc/shadow\n",
        "hostname = den\nRUNNER_API_KEY = $(reboot)\n",
        "hostname = den\nssh_password = short\n",
        "hostname = den\nssh_password = 0123456789\u{7}0123456789\n",
        "hostname = den\nssh_key = ssh-ed25519 AAAA\n",
        "hostname = DEN;reboot\n",
        "RUNNER_BOT = parrot\n",
        "hostname\n",
        "",
    ] {
        let done = board.finish(wrong);
        assert!(!done.status.success(), "{wrong}");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(
            said.contains("were rejected") && !said.contains("reboot") && !said.contains("short"),
            "{said}"
        );
        assert!(!board.folder.join("spool/settings").exists(), "{wrong}");
    }
    // A link to a file that only root can read.
    let secret = board.folder.join("secret");
    fs::write(&secret, "hostname = den\n").expect("the folder is the test's");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("the file is the test's");
    std::os::unix::fs::symlink(&secret, board.folder.join("spool/settings")).expect("the folder is the test's");
    assert!(!board.run().status.success());
    assert!(!board.folder.join("etc/edge-board/setup.txt").exists());
    for log in ["chpasswd.log", "usermod.log"] {
        assert_eq!(board.read(log), "", "{log}");
    }
    let undisturbed = "stop edge-runner.service\nstart edge-runner.service\n";
    assert_eq!(board.read("systemctl.log").replace(undisturbed, ""), "");
    assert!(board.run().status.success(), "without settings there is nothing to do");
    fs::remove_dir_all(&board.folder).expect("the folder is the test's");
}
