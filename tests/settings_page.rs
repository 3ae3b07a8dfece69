//! `--settings page`: `/settings` as the page and programs use it, and the runner that restarts
//! with what was changed, or goes back.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::cascade::ServiceServer;
use crate::support::client::Client;
use crate::support::http::{self, Reply};
use crate::support::ports::free_port;
use crate::support::runner::{PATIENCE, TestRunner};

const NAME: &str = "edge-runner.toml";
const KEY: &str = "the-first-key-of-all";
const SECRET: &str = "sk-of-the-service";

/// A runner whose page changes a file of settings. It keeps its port when it restarts.
struct Rig {
    runner: TestRunner,
}

impl Rig {
    fn start(text: &str, variables: &[(&str, &str)]) -> Self {
        Self::start_among(&[(NAME, text)], variables)
    }

    fn start_among(files: &[(&str, &str)], variables: &[(&str, &str)]) -> Self {
        let port = free_port().to_string();
        let arguments = ["--config", NAME, "--settings", "page", "--port", &port];
        Rig {
            runner: TestRunner::start_among(files, &arguments, variables),
        }
    }

    fn send(&self, method: &str, path: &str, headers: &[&str], body: &Value) -> Reply {
        let headers = [&["Content-Type: application/json"], headers].concat();
        let body = if method == "GET" {
            String::new()
        } else {
            body.to_string()
        };
        http::request(self.runner.addr, method, path, &headers, body.as_bytes()).expect("an answer")
    }

    /// Sends a request as the page does.
    fn page(&self, method: &str, path: &str, body: &Value) -> Reply {
        let origin = format!("Origin: http://{}", self.runner.addr);
        let key = format!("Authorization: Bearer {KEY}");
        self.send(method, path, &[&origin, &key], body)
    }

    fn settings(&self) -> Value {
        let reply = self.page("GET", "/settings", &Value::Null);
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        assert!(
            !reply.text().contains(SECRET) && !reply.text().contains(KEY),
            "{}",
            reply.text()
        );
        reply.json()
    }

    fn field(&self, name: &str) -> Value {
        let settings = self.settings();
        let fields = settings["fields"].as_array().expect("a list");
        let found = fields.iter().find(|field| field["name"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {settings}")).clone()
    }

    /// Changes settings; the answer has no error.
    fn change(&self, body: &Value) -> Value {
        let reply = self.page("POST", "/settings", body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    /// The error of a change: its field and its text.
    fn refused(&self, body: &Value) -> (Value, String) {
        let reply = self.page("POST", "/settings", body);
        assert_eq!(reply.status, 400, "{}", reply.text());
        assert!(!reply.text().contains(SECRET), "{}", reply.text());
        let json = reply.json();
        (
            json["field"].clone(),
            json["detail"].as_str().expect("a text").to_owned(),
        )
    }

    fn text(&self) -> String {
        fs::read_to_string(self.runner.path(NAME)).expect("the file is there")
    }

    fn bot(&self) -> Value {
        http::get(self.runner.addr, "/status").json()["bot"].clone()
    }

    /// Waits for another start than that of `run`.
    fn restarted(&self, run: &Value) -> Value {
        let began = Instant::now();
        loop {
            let key = format!("Authorization: Bearer {KEY}");
            let reply = http::request(self.runner.addr, "GET", "/settings", &[&key], b"");
            if let Ok(reply) = reply
                && reply.status == 200
                && reply.json()["run"] != *run
            {
                return reply.json();
            }
            assert!(began.elapsed() < PATIENCE, "no restart; log:\n{}", self.runner.log());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn with_key(text: &str) -> String {
    format!("# of my kitchen\napi-key = \"{KEY}\" # mine\n{text}")
}

/// Only holders of the key, from the runner's own page or from no page.
#[test]
fn settings_are_for_holders_of_the_key() {
    let text = with_key("allowed-origins = 'https://app.example'\n");
    let rig = Rig::start(&text, &[]);
    let key = format!("Authorization: Bearer {KEY}");
    let change = json!({"values": {"bot": "echo"}});
    for (method, path) in [("GET", "/settings"), ("POST", "/settings"), ("POST", "/settings/check")] {
        let status = |headers: &[&str]| rig.send(method, path, headers, &change).status;
        let listed = "Origin: https://app.example";
        assert_eq!(status(&[listed]), 403, "{method} {path}");
        for foreign in [
            "Origin: https://app.example",
            "Origin: https://evil.example",
            "Origin: null",
        ] {
            assert_eq!(status(&[foreign, &key]), 403, "{method} {path} {foreign}");
        }
    }
    assert_eq!(rig.text(), text);
    assert!(!rig.runner.log().contains("settings page:"), "{}", rig.runner.log());

    // A program without an origin; `--settings` off, and no key.
    let rig = Rig::start(&with_key(""), &[]);
    assert_eq!(rig.send("GET", "/settings", &[&key], &Value::Null).status, 200);
    for (method, path) in [("GET", "/settings"), ("POST", "/settings"), ("POST", "/settings/check")] {
        let own = format!("Origin: http://{}", rig.runner.addr);
        let status = |key: &str| rig.send(method, path, &[&own, key], &change).status;
        assert_eq!(
            status("Authorization: Bearer another-key-of-all"),
            401,
            "{method} {path}"
        );
        assert_eq!(rig.send(method, path, &[&own], &change).status, 401, "{method} {path}");
    }
    let off = TestRunner::start_among(&[(NAME, &with_key(""))], &["--config", NAME], &[]);
    let rig = Rig { runner: off };
    let reply = rig.page("GET", "/settings", &Value::Null);
    assert!(
        reply.status == 404 && reply.text().contains("--settings page"),
        "{}",
        reply.text()
    );
    let rig = Rig::start("bot = 'parrot'\n", &[]);
    rig.runner
        .wait_for_log("`--settings page` has no effect without an API key");
    for (method, path) in [("GET", "/settings"), ("POST", "/settings"), ("POST", "/settings/check")] {
        assert_eq!(rig.page(method, path, &change).status, 404, "{method} {path}");
    }
    let ended = TestRunner::run(&["--settings", "page", "--api-key", KEY]);
    assert!(
        ended.code == Some(2) && ended.stderr.contains("`--settings page` needs the file"),
        "{ended:?}"
    );
}

/// What takes precedence over the file is shown, and is not changed here.
#[test]
fn each_field_says_where_its_value_is_from() {
    let text = with_key(&format!(
        "CASCADE_LLM_API_KEY = '{SECRET}'\nCASCADE_LLM_URL = 'http://a:{SECRET}@b/v1'\nCASCADE_LLM_MODEL = 'm'\n\
         OPENAI_API_KEY = '{SECRET}'\n"
    ));
    let rig = Rig::start(&text, &[("RUNNER_BOT", "echo"), ("CASCADE_LANGUAGE", "de")]);
    assert_eq!(
        rig.field("CASCADE_LLM_MODEL"),
        json!({"name": "CASCADE_LLM_MODEL", "is_set": true, "value": "m"})
    );
    assert_eq!(
        rig.field("CASCADE_LLM_API_KEY"),
        json!({"name": "CASCADE_LLM_API_KEY", "is_set": true})
    );
    assert_eq!(
        rig.field("CASCADE_LLM_URL"),
        json!({"name": "CASCADE_LLM_URL", "is_set": true})
    );
    assert_eq!(rig.field("api-key"), json!({"name": "api-key", "is_set": true}));
    assert_eq!(
        rig.field("bot"),
        json!({"name": "bot", "is_set": true, "value": "echo", "locked": "RUNNER_BOT"})
    );
    assert_eq!(rig.field("CASCADE_LANGUAGE")["locked"], "CASCADE_LANGUAGE");
    assert_eq!(
        rig.field("REALTIME_VOICE"),
        json!({"name": "REALTIME_VOICE", "is_set": false})
    );
    // Its alias is the same key.
    assert_eq!(
        rig.field("REALTIME_API_KEY"),
        json!({"name": "REALTIME_API_KEY", "is_set": true})
    );
    let names: Vec<Value> = rig.settings()["fields"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|field| field["name"].clone())
        .collect();
    assert!(
        !names.contains(&json!("OPENAI_API_KEY")) && !names.contains(&json!("tools")),
        "{names:?}"
    );
    let (field, detail) = rig.refused(&json!({"values": {"bot": "parrot"}}));
    assert!(
        field == "bot" && detail.contains("RUNNER_BOT takes precedence"),
        "{detail}"
    );

    // A program is the bot.
    let rig = Rig::start(&with_key("command = ['sh', '-c', 'true']\n"), &[]);
    let locked = rig.field("bot")["locked"].clone();
    assert_eq!(locked, format!("`command ({NAME}:3)`"));
}

/// The text is that of `config check`, and the field is named; nothing is written.
#[test]
fn what_a_start_would_refuse_is_refused() {
    let text = with_key(&format!(
        "CASCADE_STT_URL = 'tcp://a:1'\nCASCADE_STT_API_KEY = '{SECRET}'\n"
    ));
    let rig = Rig::start(&with_key("bot = 'parrot'\n"), &[]);
    let before = rig.text();
    for (values, field, words) in [
        (json!({"bot": "cascade"}), json!("CASCADE_STT_URL"), "CASCADE_STT_URL"),
        (json!({"bot": "robot"}), json!("bot"), "parrot"),
        (
            json!({"bot": "realtime", "REALTIME_API_KEY": "sk", "REALTIME_URL": "nonsense"}),
            json!("REALTIME_URL"),
            "REALTIME_URL",
        ),
        (json!({"tools": "sh"}), json!("tools"), "cannot be set here"),
        (json!({"port": "1"}), json!("port"), "cannot be set here"),
        (
            json!({"api-key": "a-key-that-is-mine"}),
            json!("api-key"),
            "cannot be set here",
        ),
        (json!({"REALTIME_VOICE": "a\u{7}"}), json!("REALTIME_VOICE"), "one line"),
        (json!({}), json!(null), "nothing changes"),
    ] {
        let (found, detail) = rig.refused(&json!({"values": values}));
        assert!(found == field && detail.contains(words), "{values}: {found} {detail}");
    }
    assert!(rig.refused(&json!({"other": 1})).1.contains("expected JSON"));
    assert_eq!(rig.text(), before);
    assert!(!rig.runner.path(&format!("{NAME}.last")).exists());
    // A secret of the file is in no message.
    drop(rig);
    let rig = Rig::start(&with_key("bot = 'parrot'\n"), &[]);
    fs::write(rig.runner.path(NAME), text).expect("the folder is the test's");
    rig.refused(&json!({"values": {"bot": "cascade"}}));
    assert!(!rig.runner.log().contains(SECRET), "{}", rig.runner.log());
}

/// The new key holds at once, and the file keeps its comments and its mode.
#[test]
fn a_new_key_needs_no_restart() {
    let rig = Rig::start(&with_key("verbose = 0\n"), &[]);
    fs::set_permissions(rig.runner.path(NAME), fs::Permissions::from_mode(0o640)).expect("the file is the test's");
    let run = rig.settings()["run"].clone();
    let client = Client::connect(rig.runner.addr, "/ws-client");
    let taken = rig.change(&json!({"new_key": true, "restart": true}));
    assert_eq!((&taken["waiting"], &taken["restarts"]), (&json!([]), &json!(false)));
    let key = taken["key"].as_str().expect("a key");
    assert_eq!(rig.text(), with_key("verbose = 0\n").replace(KEY, key));
    let mode = fs::metadata(rig.runner.path(NAME))
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
    assert!(!rig.runner.path(&format!("{NAME}.last")).exists());
    assert_eq!(rig.page("GET", "/settings", &Value::Null).status, 401);
    let headers = [&*format!("Authorization: Bearer {key}")];
    let reply = rig.send("GET", "/settings", &headers, &Value::Null);
    assert_eq!((reply.status, &reply.json()["run"]), (200, &run));
    rig.runner.wait_for_log("settings page: settings applied: `api-key`");
    assert!(!rig.runner.log().contains(key), "{}", rig.runner.log());
    assert_eq!(rig.runner.sessions(), 1, "calls go on");
    drop(client);
}

/// The sound card becomes a caller by the page, with devices of the list and without commands: the
/// holder of the key does not become the runner's user.
#[test]
fn the_sound_card_is_switched_on_by_the_page() {
    let rig = Rig::start(&with_key("bot = 'parrot'\n"), &[("RUNNER_LOCAL_OUT", "aplay -q -")]);
    let settings = rig.settings();
    let devices = &settings["devices"];
    assert!(
        devices["in"].is_array() && devices["out"].is_array() && devices["problems"].is_array(),
        "{settings}"
    );
    assert_eq!(settings["local"], false);
    assert_eq!(rig.field("local"), json!({"name": "local", "is_set": false}));
    assert_eq!(rig.field("local-out")["locked"], "RUNNER_LOCAL_OUT");
    let before = rig.text();
    for command in ["sh -c 'touch taken'", "/bin/sh", "tee:default,'|touch taken',raw"] {
        let (field, detail) = rig.refused(&json!({"values": {"local": "voice", "local-in": command}}));
        assert!(
            field == "local-in" && detail.contains("a device of `--local-list`"),
            "{detail}"
        );
    }
    assert_eq!(rig.text(), before);
    let on = json!({"local": "voice", "local-in": "plughw:CARD=USB,DEV=0", "local-start": "key"});
    let taken = rig.change(&json!({"values": on}));
    assert_eq!(taken["waiting"], json!(["local", "local-in", "local-start"]));
    for (name, value) in on.as_object().expect("fields") {
        assert_eq!(rig.field(name)["value"], *value);
        assert!(rig.text().contains(&format!("\n{name} = {value}\n")), "{}", rig.text());
    }
    let off = rig.change(&json!({"values": {"local": null, "local-in": null, "local-start": ""}}));
    assert_eq!((&off["waiting"], rig.text()), (&json!([]), before));
}

/// The process replaces itself, with its arguments and its variables.
#[test]
fn a_change_of_the_bot_restarts_the_runner() {
    let text = with_key("bot = 'parrot' # for now\n\n[bots.other]\nbot = 'echo'\n");
    let rig = Rig::start(&text, &[("RUNNER_METRICS", "off")]);
    let run = rig.settings()["run"].clone();
    let waiting = rig.change(&json!({"values": {"bot": "echo"}}));
    assert_eq!(
        (&waiting["waiting"], &waiting["restarts"]),
        (&json!(["bot"]), &json!(false))
    );
    assert_eq!(
        (rig.bot(), rig.settings()["run"].clone()),
        (json!("parrot"), run.clone())
    );
    let taken = rig.change(&json!({"values": {"REALTIME_VOICE": "a \"b\""}, "restart": true}));
    assert_eq!(taken["restarts"], true);
    let pid = rig.runner.pid();
    let settings = rig.restarted(&run);
    assert_eq!((rig.bot(), &settings["rejected"]), (json!("echo"), &Value::Null));
    assert_eq!(rig.runner.pid(), pid);
    let changed = text.replace(
        "bot = 'parrot' # for now\n",
        "bot = \"echo\" # for now\nREALTIME_VOICE = \"a \\\"b\\\"\"\n",
    );
    assert_eq!(rig.text(), changed);
    assert!(!rig.runner.path(&format!("{NAME}.tried")).exists());
    rig.runner.wait_for_logs("listening on", 2);
    let metrics = http::get(rig.runner.addr, "/metrics").status;
    assert_eq!(metrics, 404, "the variables of the first start");
}

/// What only the start notices: here the program of functions, which the parrot does not need.
#[test]
fn a_change_that_does_not_start_is_taken_back() {
    let text = with_key("bot = 'parrot'\ntools = '/no/such/program'\n");
    let rig = Rig::start(&text, &[]);
    let run = rig.settings()["run"].clone();
    let values = json!({"bot": "cascade", "CASCADE_STT_URL": "tcp://127.0.0.1:1", "CASCADE_TTS_URL": "tcp://127.0.0.1:1",
        "CASCADE_LLM_URL": "http://127.0.0.1:1/v1", "CASCADE_LLM_MODEL": "m", "CASCADE_LLM_API_KEY": SECRET});
    let taken = rig.change(&json!({"values": values, "restart": true}));
    assert_eq!(taken["restarts"], true);
    let settings = rig.restarted(&run);
    assert_eq!((rig.bot(), rig.text()), (json!("parrot"), text.clone()));
    let reason = settings["rejected"].as_str().expect("a reason").to_owned();
    assert!(reason.contains("/no/such/program"), "{reason}");
    rig.runner.wait_for_log("does not start with the changed settings");
    let warned = rig.runner.wait_for_log("was taken back");
    assert!(
        warned.contains(" WARN ") && warned.contains(&format!("{NAME}.rejected")),
        "{warned}"
    );
    let rejected = fs::read_to_string(rig.runner.path(&format!("{NAME}.rejected"))).expect("it is kept");
    assert!(
        rejected.starts_with("# Not taken: ") && rejected.contains("bot = \"cascade\""),
        "{rejected}"
    );
    assert!(!rig.runner.log().contains(SECRET), "{}", rig.runner.log());
    // The next change is a new beginning.
    rig.change(&json!({"values": {"REALTIME_VOICE": "a"}}));
    assert_eq!(rig.settings()["rejected"], Value::Null);
}

/// A runner that was killed while it started with a changed file starts with the last one.
#[test]
fn a_start_that_was_killed_is_taken_back_by_the_next() {
    let (old, new) = (with_key("bot = 'echo'\n"), with_key("bot = 'parrot'\n"));
    let tried = format!("{NAME}.tried");
    let rig = Rig::start_among(&[(NAME, &new), (&tried, &old)], &[]);
    assert_eq!((rig.text(), rig.bot()), (old.clone(), json!("echo")));
    let rejected = rig.settings()["rejected"].clone();
    assert!(
        rejected.as_str().is_some_and(|reason| reason.contains("ended before")),
        "{rejected}"
    );
    assert!(!rig.runner.path(&tried).exists());
    // One that has not been tried yet, as after a power cut, is.
    let rig = Rig::start_among(&[(NAME, &new), (&format!("{NAME}.last"), &old)], &[]);
    assert_eq!((rig.text(), rig.bot()), (new, json!("parrot")));
    assert!(!rig.runner.path(&tried).exists());
}

/// Calls may end first, and who stops the runner meanwhile wants it to end.
#[test]
fn a_restart_waits_for_calls_and_a_stop_ends_it() {
    let mut rig = Rig::start(&with_key("bot = 'parrot'\ndrain = 3600\n"), &[]);
    let client = Client::connect(rig.runner.addr, "/ws-client");
    rig.runner.wait_for_sessions(1);
    let taken = rig.change(&json!({"values": {"bot": "echo"}, "restart": true}));
    assert_eq!(taken["restarts"], true);
    rig.runner.wait_for_log("settings page: restarting, 1 session live");
    rig.runner.wait_for_log("waiting up to");
    rig.runner.signal("TERM");
    assert!(rig.runner.wait().success(), "{}", rig.runner.log());
    drop(client);
}

/// The key that is stored goes to the address that it was stored with, and to no other.
#[test]
fn services_are_asked_with_the_stored_key() {
    let (own, other) = (ServiceServer::start(), ServiceServer::start());
    let text = with_key(&format!(
        "CASCADE_LLM_URL = '{}'\nCASCADE_LLM_MODEL = 'm'\nCASCADE_LLM_API_KEY = '{SECRET}'\n",
        own.http_url()
    ));
    let rig = Rig::start(&text, &[]);
    for (server, key) in [(&own, Some(format!("Bearer {SECRET}"))), (&other, None)] {
        let variables = json!({"CASCADE_LLM_URL": server.http_url(), "CASCADE_LLM_MODEL": "m"});
        let asked = thread::scope(|scope| {
            let asked = scope.spawn(|| {
                rig.page(
                    "POST",
                    "/settings/check",
                    &json!({"services": ["chat"], "variables": variables}),
                )
            });
            let (request, connection) = server.accept_request();
            assert_eq!(request.header("authorization").map(str::to_owned), key);
            let list = json!({"data": [{"id": "m"}]}).to_string();
            connection.respond("200 OK", "application/json", list.as_bytes());
            asked.join().expect("it answers")
        });
        assert_eq!(asked.json()["services"][0]["state"], "ok", "{}", asked.text());
    }
    let moved = json!({"values": {"CASCADE_LLM_URL": other.http_url()}});
    let (field, detail) = rig.refused(&moved);
    assert!(
        field == "CASCADE_LLM_API_KEY" && detail.contains("enter the key again"),
        "{detail}"
    );
    let wrong = rig.page(
        "POST",
        "/settings/check",
        &json!({"services": ["chat"], "variables": {"tools": "sh"}}),
    );
    assert_eq!(wrong.status, 400);
}
