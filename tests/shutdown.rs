//! Shutdown, and what precedes it: signals, the drain, the supervisor, and stalls.
//!
//! Callers of every transport stay connected to the end. The supervisor is a socket of the test;
//! the runner with a blocking bot is this test binary.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use edge_runner::config::{Config, Host};
use edge_runner::{Audio, BotError, Event, RunnerArguments};
use edge_runner_http::services::Services;
use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::device::{Device, Options, post_offer};
use crate::support::http::{self, Reply};
use crate::support::program::{BotProcess, SLEEPING_COMMAND, wait_for_end};
use crate::support::provider::{Caller, Provider};
use crate::support::rest::Rest;
use crate::support::runner::{PATIENCE, TestRunner, wait_for_file};
use crate::support::socket::{ConnectOptions, Socket};
use crate::support::sound::Speech;

const EMBEDDED: [&str; 3] = ["--embedded", "--host", "127.0.0.1"];
const STOPPING: &str = "the runner is stopping";

/// Eight callers: two devices over WebRTC, three plain clients, and three calls whose providers
/// have hang-up APIs.
struct Callers {
    devices: Vec<Device>,
    clients: Vec<Client>,
    calls: Vec<Caller>,
}

impl Callers {
    fn come(runner: &TestRunner) -> Self {
        let devices: Vec<Device> = (0..2)
            .map(|_| Device::join(runner.addr, Options::new(Speech::Silence)))
            .collect();
        for device in &devices {
            device.wait("a channel", |report| report.channel_open);
        }
        let callers = Self {
            devices,
            clients: (0..3).map(|_| Client::connect(runner.addr, "/ws-client")).collect(),
            calls: [Provider::Twilio, Provider::Telnyx, Provider::Plivo]
                .map(|provider| Caller::dial(runner.addr, provider))
                .into(),
        };
        runner.wait_for_sessions(8);
        runner.wait_for_logs("session started: ", 8);
        callers
    }

    /// Asserts that each caller was told of the end.
    fn assert_reported(&mut self) {
        for device in &self.devices {
            device.wait("a goodbye", |report| report.goodbye);
        }
        for client in &mut self.clients {
            assert_eq!(client.end(), Some((1001, STOPPING.into())));
        }
        for call in &mut self.calls {
            assert_eq!(call.end(), Some((1001, STOPPING.into())), "{:?}", call.provider);
        }
    }
}

/// The REST APIs of the three providers, and the variables that point a runner to them.
fn providers() -> ([Rest; 3], Vec<(&'static str, String)>) {
    let apis = [(); 3].map(|()| Rest::start(&[(200, "{}")]));
    let [a, b, c] = &apis;
    let variables = vec![
        ("TELCO_A_API_URL", a.url()),
        ("TELCO_B_API_URL", b.url()),
        ("TELCO_C_API_URL", c.url()),
        ("TELCO_A_ACCOUNT_SID", "AC0000000000000000000000000000cafe".into()),
        ("TELCO_A_AUTH_TOKEN", "a".into()),
        ("TELCO_B_API_KEY", "b".into()),
        ("TELCO_C_AUTH_ID", "c".into()),
        ("TELCO_C_AUTH_TOKEN", "c".into()),
    ];
    (apis, variables)
}

/// Stops a runner with eight callers, and asserts that each was told. The log shows that it took 3
/// s at most: no session was cut off, which happens after 2.5 s.
fn assert_graceful_shutdown(signal: &str, options: &[&str]) {
    let (apis, variables) = providers();
    let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut runner = TestRunner::start_with(&[&EMBEDDED[..], &["--unverified-calls"], options].concat(), &variables);
    let mut callers = Callers::come(&runner);
    let programs = BotProcess::all(&runner);
    let began = Instant::now();
    runner.signal(signal);
    let status = runner.wait();
    println!("SIG{signal} {options:?}: {:.2} s", began.elapsed().as_secs_f64());
    assert_eq!(status.code(), Some(0), "{}", runner.log());
    callers.assert_reported();
    for api in &apis {
        assert_eq!(
            api.asked().len(),
            1,
            "a call that was not hung up once: {}",
            runner.log()
        );
    }
    let ends = runner.wait_for_logs("session ended: ", 8);
    assert!(
        ends.iter()
            .all(|line| line.contains("INFO") && line.contains("session ended: runner stopped")),
        "{ends:#?}"
    );
    assert!(!runner.log().contains("did not end in time"), "{}", runner.log());
    for program in programs {
        wait_for_end(program.process);
    }
}

/// SIGTERM and Ctrl-C end eight live sessions on all transports, with library bots and programs.
#[test]
fn a_signal_ends_eight_sessions_of_every_kind() {
    thread::scope(|scope| {
        for signal in ["TERM", "INT"] {
            scope.spawn(move || assert_graceful_shutdown(signal, &["--bot", "echo"]));
            scope.spawn(move || assert_graceful_shutdown(signal, &["--", "/bin/sh", "-c", SLEEPING_COMMAND]));
        }
    });
}

fn start(runner: &TestRunner, transport: &str) -> Reply {
    let body = json!({"transport": transport}).to_string();
    let json = ["Content-Type: application/json"];
    http::request(runner.addr, "POST", "/start", &json, body.as_bytes()).expect("an answer")
}

/// Speaks, and waits until the bot has echoed it.
fn assert_audio_flows(client: &mut Client) {
    let before = client.received.len();
    client.say(&[3_000; 3_200], 16_000);
    client.hear_until("the echo", |client| client.received.len() - before >= 2_400);
}

/// With `--drain` the signal stops new sessions at once, live ones continue until they end, and the
/// runner ends with the last of them.
#[test]
fn a_drain_lasts_until_its_sessions_end() {
    let options = [&EMBEDDED[..], &["--bot", "echo", "--drain", "3600"]].concat();
    let mut runner = TestRunner::start(&options);
    let (mut first, mut second) = (
        Client::connect(runner.addr, "/ws-client"),
        Client::connect(runner.addr, "/ws-client"),
    );
    assert_audio_flows(&mut first);
    let mut device = Device::join(runner.addr, Options::new(Speech::Silence));
    device.wait("audio", |report| report.audio.len() >= 10);
    assert_eq!(http::get(runner.addr, "/status").json()["status"], "ready");

    runner.signal("TERM");
    runner.wait_for_log("waiting up to 3600 s for 3 sessions");
    let offer = post_offer(
        runner.addr,
        &Options::new(Speech::Silence),
        ([127, 0, 0, 1], 49_152).into(),
    );
    for reply in [start(&runner, "webrtc"), start(&runner, "websocket"), offer] {
        assert_eq!(
            (reply.status, reply.header("retry-after")),
            (503, Some("5")),
            "{}",
            reply.text()
        );
        assert_eq!(reply.json()["detail"], "this runner is stopping");
    }
    for path in ["/ws", "/ws-client"] {
        let refused = Socket::try_connect(runner.addr, path, ConnectOptions::default())
            .err()
            .expect("a refusal");
        assert_eq!(refused.status, 503, "{refused:?}");
        assert!(
            refused.headers.contains(&("retry-after".into(), "5".into())),
            "{refused:?}"
        );
    }
    let status = http::get(runner.addr, "/status").json();
    assert_eq!(
        (&status["status"], &status["sessions"]),
        (&json!("draining"), &json!(3))
    );
    assert_eq!(http::get(runner.addr, "/readyz").json()["reason"], "draining");
    assert_eq!(http::get(runner.addr, "/livez").status, 200);

    assert_audio_flows(&mut first);
    let received = device.wait("audio", |report| !report.audio.is_empty()).audio.len();
    device.wait("more audio", |report| report.audio.len() >= received + 10);
    for client in [&mut first, &mut second] {
        assert_audio_flows(client);
        client.socket.close(1000);
        assert_eq!(client.end(), Some((1000, String::new())));
    }
    runner.wait_for_sessions(1);
    // The session is freed half a minute later, and the runner ends with it.
    device.vanish();
    assert_eq!(runner.wait().code(), Some(0), "{}", runner.log());
    runner.wait_for_log("all sessions have ended");
    assert_eq!(runner.wait_for_logs("session ended: ", 3).len(), 3);
}

/// A call whose socket was accepted just before the signal is served, though it names itself only
/// afterwards. The drain waits for it, though there is no session yet.
#[test]
fn a_drain_serves_a_call_that_has_a_socket_already() {
    let mut runner = TestRunner::start(&["--bot", "echo", "--drain", "3600"]);
    let mut call = Caller::connect(runner.addr, "/ws", Provider::Twilio, Provider::Twilio.lines()[0]);
    runner.signal("TERM");
    runner.wait_for_log("waiting up to 3600 s for 0 sessions");
    call.start();
    runner.wait_for_log("session started: twilio");
    drop(call);
    assert_eq!(runner.wait().code(), Some(0), "{}", runner.log());
    runner.wait_for_log("all sessions have ended");
}

/// A second signal, and the end of the drain time, end a drain.
#[test]
fn a_drain_ends_at_its_deadline_or_a_further_signal() {
    for (drain, words) in [("3600", "SIGTERM again"), ("1", "the drain time is over")] {
        let mut runner = TestRunner::start(&["--bot", "echo", "--drain", drain]);
        let mut client = Client::connect(runner.addr, "/ws-client");
        assert_audio_flows(&mut client);
        runner.signal("INT");
        runner.wait_for_log("waiting up to");
        if drain == "3600" {
            assert_audio_flows(&mut client);
            runner.signal("TERM");
        }
        assert_eq!(client.end(), Some((1001, STOPPING.into())));
        assert_eq!(runner.wait().code(), Some(0), "{}", runner.log());
        runner.wait_for_log(words);
    }
}

/// The receiving end of `NOTIFY_SOCKET`.
struct Supervisor {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Supervisor {
    fn new(name: &str) -> Self {
        // A socket path is limited to about a hundred bytes, which the build folder may exceed.
        let path = std::env::temp_dir().join(format!("edge-runner-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).expect("the folder for such things is writable");
        socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
        Self { socket, path }
    }

    fn path(&self) -> &str {
        self.path.to_str().expect("text")
    }

    fn next(&self) -> Vec<String> {
        let mut buffer = [0; 4096];
        let bytes = self.socket.recv(&mut buffer).expect("the runner tells something");
        let text = std::str::from_utf8(&buffer[..bytes]).expect("UTF-8");
        text.lines().map(str::to_owned).collect()
    }

    /// Waits for a message with this line; returns it and the earlier ones.
    fn until(&self, line: &str) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            let next = self.next();
            let found = next.iter().any(|said| said == line);
            seen.extend(next);
            if found {
                return seen;
            }
        }
    }

    /// Reads the messages that have arrived.
    fn drain(&self) -> Vec<String> {
        self.socket.set_nonblocking(true).expect("a socket of this test");
        let mut seen = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(bytes) = self.socket.recv(&mut buffer) {
            seen.extend(String::from_utf8_lossy(&buffer[..bytes]).lines().map(str::to_owned));
        }
        self.socket.set_nonblocking(false).expect("a socket of this test");
        seen
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The supervisor is told when the runner is ready, alive and stopping, how many sessions are live,
/// and how long the stop may take. Bot programs cannot notify in its place.
#[test]
fn a_supervisor_is_notified_of_each_state() {
    let supervisor = Supervisor::new("told");
    let variables = [("NOTIFY_SOCKET", supervisor.path()), ("WATCHDOG_USEC", "1000000")];
    let script = r#"env > environment.new && mv environment.new environment && exec sleep 60"#;
    let mut runner = TestRunner::start_with(&["--drain", "60", "--", "/bin/sh", "-c", script], &variables);
    let before = supervisor.until("READY=1");
    assert!(!before.contains(&"STOPPING=1".to_owned()), "{before:?}");
    supervisor.until("WATCHDOG=1");
    supervisor.until("STATUS=0 sessions live");
    let mut client = Client::connect(runner.addr, "/ws-client");
    supervisor.until("STATUS=1 session live");
    let environment = wait_for_file(&runner.path("environment"));
    assert!(environment.contains("RUNNER_ARGUMENTS="), "{environment}");
    for name in ["NOTIFY_SOCKET", "WATCHDOG_"] {
        assert!(!environment.contains(name), "{environment}");
    }
    runner.signal("HUP");
    let reload = supervisor.until("RELOADING=1");
    assert!(!reload.contains(&"READY=1".to_owned()), "{reload:?}");
    supervisor.until("READY=1");
    runner.signal("TERM");
    let seen = supervisor.until("STOPPING=1");
    assert!(seen.contains(&"EXTEND_TIMEOUT_USEC=62900000".to_owned()), "{seen:?}");
    supervisor.until("STATUS=stopping, 1 session left");
    client.socket.close(1000);
    client.end();
    assert_eq!(runner.wait().code(), Some(0), "{}", runner.log());
}

/// Notification variables for another process, or without a receiver, are harmless.
#[test]
fn a_missing_supervisor_is_ignored() {
    let elsewhere = [("NOTIFY_SOCKET", "/nonexistent/notify"), ("WATCHDOG_USEC", "1000000")];
    let mut runner = TestRunner::start_with(&[], &elsewhere);
    runner.wait_for_log("the supervisor at NOTIFY_SOCKET cannot be notified");
    runner.signal("TERM");
    assert_eq!(runner.wait().code(), Some(0), "{}", runner.log());
    assert_eq!(runner.wait_for_logs("the supervisor at NOTIFY_SOCKET", 1).len(), 1);
    let supervisor = Supervisor::new("other");
    let others = [
        ("NOTIFY_SOCKET", supervisor.path()),
        ("WATCHDOG_USEC", "1000000"),
        ("WATCHDOG_PID", "1"),
    ];
    let mut runner = TestRunner::start_with(&[], &others);
    supervisor.until("STATUS=0 sessions live");
    runner.signal("TERM");
    let seen = supervisor.until("STOPPING=1");
    assert!(!seen.contains(&"WATCHDOG=1".to_owned()), "{seen:?}");
    assert_eq!(runner.wait().code(), Some(0), "{}", runner.log());
}

/// A bot that blocks the only thread stalls the runtime: one log line with advice, no keep-alive
/// message meanwhile, and everything continues afterwards.
#[test]
fn a_bot_that_blocks_the_runtime_is_reported() {
    let supervisor = Supervisor::new("stall");
    let variables = [
        ("NOTIFY_SOCKET", supervisor.path()),
        ("WATCHDOG_USEC", "200000"),
        ("WORKERS_OF_TEST", "1"),
    ];
    let runner = TestRunner::start_own("shutdown::the_runner_whose_bot_blocks", &variables);
    supervisor.until("READY=1");
    supervisor.until("WATCHDOG=1");
    let mut client = Client::connect(runner.addr, "/ws-client");
    client.tell("client-message", "1", &json!({"t": "block"}));
    let stalled = runner.wait_for_log("the runtime has been stalled for");
    assert!(
        stalled.contains("ERROR") && stalled.contains("a bot blocks its thread"),
        "{stalled}"
    );
    // Messages from before the detection are skipped; then there are none for ten intervals.
    supervisor.drain();
    thread::sleep(Duration::from_secs(1));
    assert_eq!(supervisor.drain(), Vec::<String>::new());
    let turn = runner.wait_for_log("the session's bot has kept its thread");
    assert!(turn.contains("WARN") && turn.contains('['), "{turn}");
    fs::write(runner.path("go-on"), "").expect("the folder is the test's");
    let over = runner.wait_for_log("the runtime goes on after a stall of");
    assert!(over.contains("INFO"), "{over}");
    supervisor.until("WATCHDOG=1");
    client.hear_message("the bot, awake again", |message| message["data"] == "awake");
    for words in [
        "the runtime has been stalled for",
        "the session's bot has kept its thread",
    ] {
        assert_eq!(runner.wait_for_logs(words, 1).len(), 1, "{}", runner.log());
    }
}

/// With a second thread, a blocking bot is reported under its session, and other sessions go on.
#[test]
fn a_bot_that_blocks_one_thread_of_two_stalls_only_itself() {
    let runner = TestRunner::start_own("shutdown::the_runner_whose_bot_blocks", &[("WORKERS_OF_TEST", "2")]);
    let (mut client, mut other) = (
        Client::connect(runner.addr, "/ws-client"),
        Client::connect(runner.addr, "/ws-client"),
    );
    client.tell("client-message", "1", &json!({"t": "block"}));
    let turn = runner.wait_for_log("the session's bot has kept its thread");
    assert!(turn.contains("WARN") && turn.contains('['), "{turn}");
    other.tell("client-message", "2", &json!({"t": "hello"}));
    other.hear_message("the other bot", |message| message["data"] == "awake");
    assert_eq!(runner.sessions(), 2);
    fs::write(runner.path("go-on"), "").expect("the folder is the test's");
    client.hear_message("the bot, awake again", |message| message["data"] == "awake");
    assert!(
        !runner.log().contains("the runtime has been stalled"),
        "{}",
        runner.log()
    );
}

/// When an essential task panics or ends, one ERROR line names it, sessions are told, and the
/// process exits with 1 for its supervisor to restart it.
#[test]
fn a_lost_service_ends_the_process() {
    for (how, words) in [
        ("panic", "the reader of the tests panicked"),
        ("end", "the reader of the tests ended"),
    ] {
        let mut runner = TestRunner::start_own("shutdown::the_runner_that_loses_a_service", &[("LOSES", how)]);
        let (mut client, mut other) = (
            Client::connect(runner.addr, "/ws-client"),
            Client::connect(runner.addr, "/ws-client"),
        );
        runner.wait_for_sessions(2);
        client.tell("client-message", "1", &json!({"t": "lose"}));
        for client in [&mut client, &mut other] {
            assert_eq!(client.end(), Some((1001, STOPPING.into())), "{how}");
        }
        assert_eq!(runner.wait().code(), Some(1), "{how}: {}", runner.log());
        let log = runner.log();
        let reported: Vec<_> = log
            .lines()
            .filter(|line| line.contains("nothing can be served"))
            .collect();
        assert!(
            reported.len() == 1 && reported[0].contains("ERROR") && reported[0].contains(words),
            "{log}"
        );
    }
}

/// Not a test: the runner of the test above, whose bot ends one of its services.
#[test]
#[ignore = "it is the runner of another test"]
fn the_runner_that_loses_a_service() {
    let Ok(how) = std::env::var("LOSES") else {
        return;
    };
    edge_runner_http::logging::init(0, None, "main", edge_runner_proto::config::LogFormat::Text);
    let services = Services::default();
    let (given, panics) = (services.clone(), how == "panic");
    let bot = move |mut args: RunnerArguments| {
        let services = given.clone();
        async move {
            let mut media = args.media(Audio::default())?;
            while let Some(event) = media.recv().await {
                if matches!(event, Event::Message(_)) {
                    let _lost = services.spawn("the reader of the tests", async move {
                        assert!(!panics, "a bug");
                    });
                }
            }
            Ok(())
        }
    };
    let config = edge_runner_proto::config! {
        host: Host::Address([127, 0, 0, 1].into()),
        port: 0,
        rtc_port: Some(0),
        // The loss of a service skips the drain.
        drain: Duration::from_secs(300),
        ..Config::default()
    };
    let announce = |listening: &edge_runner::config::ListenAddresses| {
        println!("listening on http://127.0.0.1:{}", listening.port);
    };
    let runtime = tokio::runtime::Runtime::new().expect("threads and timers can be had");
    let bot = edge_runner::bot::erase(bot);
    let ran = runtime.block_on(edge_runner::inside::run_with(Arc::new(config), bot, announce, services));
    std::process::exit(i32::from(ran.is_err()));
}

/// While a full log is not read, calls begin and go on, and a signal ends the runner in order.
#[test]
fn an_unread_log_stops_nothing() {
    // The runner holds both ends of its log, and 64 KiB fill it.
    let unread = "mkfifo unread; exec 2<>unread; head -c 65536 /dev/zero >&2; exec \"$0\" \"$@\"";
    let mut runner = TestRunner::start_through(&["sh", "-c", unread], &[&EMBEDDED[..], &["-v"]].concat(), &[]);
    let mut clients = [(); 2].map(|()| Client::connect(runner.addr, "/ws-client"));
    runner.wait_for_sessions(2);
    runner.signal("TERM");
    assert_eq!(runner.wait().code(), Some(0));
    for client in &mut clients {
        assert_eq!(client.end(), Some((1001, STOPPING.into())));
    }
}

/// Blocks its thread on request until a file appears, and otherwise reports that it is awake.
async fn blocks(mut args: RunnerArguments) -> Result<(), BotError> {
    let mut media = args.media(Audio::default())?;
    while let Some(event) = media.recv().await {
        let Event::Message(text) = event else { continue };
        let message: Value = serde_json::from_str(&text)?;
        if message["data"]["t"] == "block" {
            while !PathBuf::from("go-on").exists() {
                thread::sleep(Duration::from_millis(10));
            }
        }
        media.send_message(json!({"label": "rtvi-ai", "type": "server-message", "data": "awake"}).to_string())?;
    }
    Ok(())
}

/// Not a test: the runner of those above, as an embedding program.
#[test]
#[ignore = "it is the runner of other tests"]
fn the_runner_whose_bot_blocks() {
    let Ok(workers) = std::env::var("WORKERS_OF_TEST") else {
        return;
    };
    edge_runner_http::logging::init(0, None, "main", edge_runner_proto::config::LogFormat::Text);
    let mut builder = match workers.as_str() {
        "1" => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    if workers != "1" {
        builder.worker_threads(workers.parse().expect("a number"));
    }
    let config = edge_runner_proto::config! {
        host: Host::Address([127, 0, 0, 1].into()),
        port: 0,
        rtc_port: Some(0),
        ..Config::default()
    };
    let runtime = builder.enable_all().build().expect("threads and timers can be had");
    let announce = |listening: &edge_runner::config::ListenAddresses| {
        println!("listening on http://127.0.0.1:{}", listening.port);
    };
    let served = runtime.block_on(edge_runner::inside::run(
        Arc::new(config),
        edge_runner::bot::erase(blocks),
        announce,
    ));
    assert!(served.is_ok(), "{served:?}");
}
