//! A runner that is registered at a LiveKit server: the real binary, the scripted server of
//! `support::agents`, and the rooms of `support::livekit`.
//!
//! `tests/peers/room` runs the published server and the published worker.

use std::net::SocketAddr;
use std::time::Instant;

use edge_runner_proto::limits::WATCHES_MAX;
use edge_runner_proto::livekit::worker::wire::{JobInfo, WorkerResponseKind};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::livekit::start_session;
use crate::support::agents::{AgentServer, Worker, bot_token, caller_token, job, participant_job, webhook_token};
use crate::support::http;
use crate::support::livekit::{Options, Order, Server};
use crate::support::participant::TestParticipant;
use crate::support::program::{BotProcess, SLEEPING_COMMAND, wait_for_end, wait_until};
use crate::support::runner::{PATIENCE, TestRunner};

/// The states of a job.
const RUNNING: i32 = 1;
const SUCCESS: i32 = 2;
const FAILED: i32 = 3;

const PROGRAM: [&str; 4] = ["--", "/bin/sh", "-c", SLEEPING_COMMAND];

/// A server of rooms and its runtime.
pub struct Rooms {
    runtime: Runtime,
    server: Option<Server>,
}

impl Rooms {
    pub fn new() -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().expect("a thread");
        let options = Options {
            ice_lite: false,
            udp_port: None,
            ..Options::default()
        };
        let server = runtime.block_on(Server::start(options)).expect("free ports");
        Rooms {
            runtime,
            server: Some(server),
        }
    }

    pub fn url(&self) -> String {
        self.server.as_ref().expect("it is there but in a restart").url()
    }

    fn order(&self, order: Order) {
        self.server.as_ref().expect("it is there but in a restart").order(order);
    }

    pub fn join(&self, room: &str, identity: &str) -> TestParticipant {
        TestParticipant::join(self.runtime.handle(), &self.url(), &caller_token(identity, room))
    }

    /// Assigns a job in these rooms, after an offer that is accepted.
    fn assign(&self, worker: &mut Worker, id: &str, room: &str) {
        assert!(worker.offer(job(id, room)).available);
        self.send_assignment(worker, id, room);
    }

    fn send_assignment(&self, worker: &Worker, id: &str, room: &str) {
        worker.assign(job(id, room), &self.url(), &bot_token(&format!("agent-{id}"), room));
    }
}

fn status(runner: &TestRunner) -> Value {
    http::get(runner.addr, "/status").json()
}

/// The bot gets the job: metadata as its body, attributes, the session id of the dispatch. Status,
/// `/worker` and metrics tell of it. The server hears of each step.
#[test]
fn a_program_gets_the_job_of_its_room() {
    let (server, rooms) = (AgentServer::start(), Rooms::new());
    let runner = server.runner(&PROGRAM);
    let mut worker = server.accept();
    assert_eq!(status(&runner)["status"], "connecting");
    let register = worker.register();
    assert_eq!(
        (register.job_type, &*register.agent_name, &*register.deployment),
        (0, "bot", "")
    );
    runner.wait_for_log("registered as `bot`, AW_test, server 1.13.5");
    let reported = status(&runner);
    assert_eq!(
        (&reported["status"], &reported["worker"]["id"]),
        (&json!("ready"), &json!("AW_test"))
    );
    let id = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed";
    let mut offered = job("AJ_1", "talk");
    offered.dispatch_id = "AD_1".into();
    offered.metadata = r#"{"lang":"en"}"#.into();
    offered.attributes = [("edge.session_id", id), ("tier", "gold")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let answer = worker.offer(offered.clone());
    assert_eq!((answer.available, &*answer.participant_identity), (true, "agent-AJ_1"));
    worker.assign(offered, &rooms.url(), &bot_token("agent-AJ_1", "talk"));
    worker.job_report("AJ_1", RUNNING);
    let started = BotProcess::of(&runner, |_| true);
    let arguments = &started.arguments;
    assert_eq!(
        (&arguments["kind"], &arguments["room_name"], &arguments["session_id"]),
        (&json!("mediaroom"), &json!("talk"), &json!(id))
    );
    assert_eq!(arguments["body"], json!({"lang": "en"}));
    assert_eq!(
        arguments["job"],
        json!({
            "id": "AJ_1", "dispatch_id": "AD_1", "type": "room", "agent_name": "bot", "metadata": r#"{"lang":"en"}"#,
            "attributes": {"edge.session_id": id, "tier": "gold"}, "room_sid": "", "room_metadata": "",
            "worker_id": "AW_test",
        })
    );
    let page = http::get(runner.addr, "/worker");
    assert_eq!((page.status, &page.json()["active_jobs"]), (200, &json!(1)));
    let mut program = started.connect_media();
    let caller = rooms.join("talk", "ann");
    caller.wait_for("the bot", |seen| seen.others.contains("agent-AJ_1"));
    program.hear_message("who is there", |message| message["type"] == "participant-joined");
    for line in [
        "edge_runner_worker_registered 1",
        r#"edge_runner_worker_offers_total{answer="yes"} 1"#,
        r#"edge_runner_worker_assignments_total{outcome="in_time"} 1"#,
        "edge_runner_worker_offer_to_joined_seconds_count 1",
    ] {
        let start = Instant::now();
        while !http::get(runner.addr, "/metrics").text().contains(line) {
            assert!(start.elapsed() < PATIENCE, "{line}");
        }
    }
    // The server takes the job back.
    worker.terminate("AJ_1");
    worker.job_report("AJ_1", SUCCESS);
    caller.wait_for("the bot's leave", |seen| seen.others.is_empty());
    runner.wait_for_sessions(0);
    let log = runner.log();
    assert!(!log.contains("gold") && !log.contains("talk"), "{log}");
}

/// A bot whose program dies while a caller is there is started once more; then the job has failed.
#[test]
fn a_program_that_dies_is_started_once_more() {
    let (server, rooms) = (AgentServer::start(), Rooms::new());
    let runner = server.runner(&PROGRAM);
    let mut worker = server.register();
    rooms.assign(&mut worker, "AJ_1", "talk");
    let caller = rooms.join("talk", "ann");
    let mut known = Vec::new();
    for _ in 0..2 {
        let started = BotProcess::of(&runner, |_| BotProcess::all(&runner).len() > known.len());
        let new = BotProcess::all(&runner)
            .into_iter()
            .find(|process| !known.contains(&process.process));
        drop(started);
        let process = new.expect("a new process");
        let pid = process.process;
        known.push(pid);
        let mut program = process.connect_media();
        caller.wait_for("the bot", |seen| seen.others.contains("agent-AJ_1"));
        program.hear_message("who is there", |message| message["type"] == "participant-joined");
        kill(pid);
    }
    runner.wait_for_log("it is started once more");
    assert_eq!(worker.job_report("AJ_1", FAILED).error, "bot failed");
    caller.wait_for("the bot's leave", |seen| seen.others.is_empty());
    runner.wait_for_sessions(0);
    assert_eq!(BotProcess::all(&runner).len(), 2);
}

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.expect("a process id"), rustix::process::Signal::KILL).expect("it runs");
}

/// A thousand offers at once: as many yes as places, the rest no, at once and without `terminate`.
/// Sessions of other transports count.
#[test]
fn a_thousand_offers_fill_the_places() {
    let server = AgentServer::start();
    let runner = server.runner(&["--bot", "echo", "--max-sessions", "8"]);
    let mut worker = server.register();
    for at in 0..1_000 {
        let offer = edge_runner_proto::livekit::worker::wire::JobOffer {
            job: Some(job(&format!("AJ_{at}"), &format!("r{at}"))),
        };
        worker.send(WorkerResponseKind::Availability(Box::new(offer)));
    }
    let answers: Vec<_> = (0..1_000).map(|at| worker.answer(&format!("AJ_{at}"))).collect();
    assert_eq!(answers.iter().filter(|answer| answer.available).count(), 8);
    assert!(answers.iter().all(|answer| !answer.terminate));
    worker.status(|update| update.status == Some(1));
    assert_eq!(runner.sessions(), 8, "places count as sessions");
    assert!(runner.wait_for_log("declined").contains("full (8 of 8)"));
    // No assignment follows, so the places are free again.
    runner.wait_for_log("was promised and not assigned within 5 s");
    runner.wait_for_sessions(0);
    assert!(worker.offer(job("AJ_1001", "s")).available);
    let log = runner.log();
    assert!(log.matches("declined").count() < 100, "the log is bounded");
}

/// Assignments that are late, doubled, for another room, or without a promise: one session for
/// what was promised, none for the rest.
#[test]
fn a_server_that_lies_makes_no_session() {
    let (server, rooms) = (AgentServer::start(), Rooms::new());
    let runner = server.runner(&["--bot", "echo"]);
    let mut worker = server.register();
    rooms.send_assignment(&worker, "AJ_9", "talk");
    runner.wait_for_log("the assignment of job AJ_9, which was not promised, is ignored");
    // Late: it gets a place, since there is one.
    assert!(worker.offer(job("AJ_1", "talk")).available);
    runner.wait_for_log("job AJ_1 was promised and not assigned within 5 s");
    rooms.send_assignment(&worker, "AJ_1", "talk");
    worker.job_report("AJ_1", RUNNING);
    // Doubled: the second offer of a served room is declined for everybody.
    rooms.send_assignment(&worker, "AJ_1", "talk");
    let second = worker.offer(job("AJ_2", "talk"));
    assert_eq!((second.available, second.terminate), (false, true));
    // Another room than the promised one, another type, another name.
    assert!(worker.offer(job("AJ_3", "other")).available);
    rooms.send_assignment(&worker, "AJ_3", "elsewhere");
    assert_eq!(
        worker.job_report("AJ_3", FAILED).error,
        "the assignment does not fit the offer"
    );
    assert!(!worker.offer(participant_job("AJ_4", "talk", "ann")).available);
    let mut foreign = job("AJ_5", "talk");
    foreign.agent_name = "other".into();
    assert!(!worker.offer(foreign).available);
    // Rubbish, and members of servers to come.
    for bytes in [
        &b"\xff\xff"[..],
        b"\x7a\x02\x08\x01",
        b"\x12\x00",
        b"\x1a\x00",
        b"\x2a\x00",
        b"\x32\x00",
    ] {
        worker.raw(bytes.to_vec());
    }
    worker.terminate("AJ_404");
    let mut long = job("AJ_6", "long");
    long.metadata = "x".repeat(1024 * 1024);
    let answer = worker.offer(long);
    assert_eq!((answer.available, answer.terminate), (false, true));
    assert!(!worker.has_unread_answer());
    assert_eq!(runner.sessions(), 1);
    assert_eq!(runner.wait_for_logs("session started", 1).len(), 1);
    // A message above the limit ends the connection, and the worker comes back. Its session does
    // not notice.
    let mut huge = job("AJ_7", "huge");
    huge.metadata = "x".repeat(2 * 1024 * 1024 + 1);
    let offer = edge_runner_proto::livekit::worker::wire::JobOffer { job: Some(huge) };
    worker.send(WorkerResponseKind::Availability(Box::new(offer)));
    let mut again = server.register();
    assert!(again.offer(job("AJ_8", "talk")).terminate, "the room is still served");
    assert_eq!(runner.sessions(), 1);
}

/// The server closes in every state of the connection. The worker comes back each time, and its
/// session lives on.
#[test]
fn a_worker_comes_back_from_every_state() {
    let (server, rooms) = (AgentServer::start(), Rooms::new());
    let runner = server.runner(&["--bot", "echo"]);
    drop(server.accept());
    drop(server.register());
    let mut worker = server.register();
    assert!(worker.offer(job("AJ_1", "talk")).available);
    drop(worker);
    // The promise is void, and the place free.
    let mut worker = server.register();
    runner.wait_for_sessions(0);
    rooms.assign(&mut worker, "AJ_2", "talk");
    worker.job_report("AJ_2", RUNNING);
    let caller = rooms.join("talk", "ann");
    caller.wait_for("the bot", |seen| seen.others.contains("agent-AJ_2"));
    drop(worker);
    let mut worker = server.register();
    worker.status(|update| update.job_count == 1);
    caller.leave();
    worker.terminate("AJ_2");
    worker.job_report("AJ_2", SUCCESS);
    runner.wait_for_sessions(0);
}

/// The server forgets a bot that is away, and takes its job back. The bot returns nevertheless.
#[test]
fn a_termination_of_a_bot_that_is_away_is_ignored() {
    let (server, mut rooms) = (AgentServer::start(), Rooms::new());
    let runner = server.runner(&["--bot", "echo", "-v"]);
    let mut worker = server.register();
    rooms.assign(&mut worker, "AJ_1", "talk");
    let caller = rooms.join("talk", "ann");
    caller.wait_for("the bot", |seen| seen.others.contains("agent-AJ_1"));
    runner.wait_for_log("connected after");
    let stopped = rooms.server.take().expect("it is there");
    rooms.order_restart(stopped, |_| {
        runner.wait_for_log("the room is lost");
        worker.terminate("AJ_1");
        runner.wait_for_log("on its way into the room, which is ignored");
    });
    let caller = rooms.join("talk", "ann");
    caller.wait_for("the bot is back", |seen| seen.others.contains("agent-AJ_1"));
    assert_eq!(runner.sessions(), 1);
    rooms.order(Order::Evict {
        identity: "agent-AJ_1".into(),
        reason: 5,
    });
    worker.job_report("AJ_1", SUCCESS);
    runner.wait_for_sessions(0);
}

impl Rooms {
    /// Kills the server, does something, and starts it again on its ports.
    fn order_restart(&mut self, server: Server, meanwhile: impl FnOnce(&Runtime)) {
        let options = server.options().clone();
        self.runtime.block_on(server.stop(false));
        meanwhile(&self.runtime);
        self.server = Some(self.runtime.block_on(Server::start(options)).expect("the same ports"));
    }
}

/// Refusals have their words, and no log contains a token, even if the server repeats it.
#[test]
fn a_refused_worker_says_why_and_tries_again() {
    for (status_code, words) in [
        (401, "the server refused the worker (401)"),
        (404, "no `/agent` there (404)"),
    ] {
        let server = AgentServer::start();
        server.api.lock().expect("no holder panics").refuses = Some(status_code);
        let runner = server.runner(&["--bot", "echo", "-vvv"]);
        runner.wait_for_log(words);
        // The log line comes first.
        let start = Instant::now();
        while status(&runner)["status"] != "refused" {
            assert!(start.elapsed() < PATIENCE, "{}", status(&runner));
        }
        assert_eq!(http::get(runner.addr, "/worker").status, 503);
        server.api.lock().expect("no holder panics").refuses = None;
        let _worker = server.register();
        runner.wait_for_log("registered as `bot`");
        assert!(!runner.log().contains("eyJhbGci"), "a token is in the log");
        let doctor = doctor(&server);
        assert!(doctor.contains("rooms ask for it as `bot`"), "{doctor}");
        server.api.lock().expect("no holder panics").refuses = Some(status_code);
        let findings = self::doctor(&server);
        assert!(findings.contains(words), "{findings}");
    }
}

/// Each URL that fails is named once, however often it is tried.
#[test]
fn a_url_that_fails_is_named_once() {
    let variables = [
        ("MEDIAROOM_URL", "ws://127.0.0.1:1,ws://127.0.0.1:2"),
        ("MEDIAROOM_API_KEY", "devkey"),
        ("MEDIAROOM_API_SECRET", "secret"),
    ];
    let runner = TestRunner::start_with(&["--register", "--bot", "echo", "-v"], &variables);
    let reported = runner.wait_for_logs("the server was not reached", 6);
    let reported = &reported[..6];
    for url in ["ws://127.0.0.1:1: ", "ws://127.0.0.1:2: "] {
        let lines: Vec<&String> = reported.iter().filter(|line| line.contains(url)).collect();
        let warnings = lines.iter().filter(|line| line.contains("WARN"));
        assert_eq!((lines.len(), warnings.count()), (3, 1), "{reported:#?}");
    }
}

fn doctor(server: &AgentServer) -> String {
    let options = Options::default();
    let url = format!("ws://{}", server.addr);
    let variables = [
        ("MEDIAROOM_URL", &*url),
        ("MEDIAROOM_API_KEY", &options.key),
        ("MEDIAROOM_API_SECRET", &options.secret),
    ];
    let output = TestRunner::run_with(&["doctor", "--register", "--port", "0"], &variables);
    output.stdout
}

/// SIGTERM with `--drain`: full at once, the job ends by itself, the connection closes with 1000.
#[test]
fn a_draining_runner_finishes_its_jobs() {
    let (server, rooms) = (AgentServer::start(), Rooms::new());
    let mut runner = server.runner(&["--bot", "echo", "--drain", "60"]);
    let mut worker = server.register();
    rooms.assign(&mut worker, "AJ_1", "talk");
    let caller = rooms.join("talk", "ann");
    caller.wait_for("the bot", |seen| seen.others.contains("agent-AJ_1"));
    runner.signal("TERM");
    worker.status(|update| update.status == Some(1));
    let declined = worker.offer(job("AJ_2", "other"));
    assert_eq!((declined.available, declined.terminate), (false, false));
    rooms.order(Order::Evict {
        identity: "agent-AJ_1".into(),
        reason: 10,
    });
    worker.job_report("AJ_1", SUCCESS);
    assert_eq!(worker.closed(), Some(1000));
    assert!(runner.wait().success());
}

/// SIGTERM without `--drain`: the outcome is reported before the bot leaves.
#[test]
fn a_stopping_runner_reports_its_jobs() {
    let (server, rooms) = (AgentServer::start(), Rooms::new());
    let mut runner = server.runner(&["--bot", "echo"]);
    let mut worker = server.register();
    rooms.assign(&mut worker, "AJ_1", "talk");
    let caller = rooms.join("talk", "ann");
    caller.wait_for("the bot", |seen| seen.others.contains("agent-AJ_1"));
    runner.signal("TERM");
    assert_eq!(worker.job_report("AJ_1", FAILED).error, "runner stopped");
    caller.wait_for("the bot's leave", |seen| seen.others.is_empty());
    assert_eq!(worker.closed(), Some(1000));
    assert!(runner.wait().success());
}

/// Each agent name is a registration of its own, whose jobs start its bot, also in one room. The
/// places, the state and the drain are those of the runner.
#[test]
fn agent_names_lead_to_their_bots() {
    let (server, rooms) = (AgentServer::start(), Rooms::new());
    let command = r#"command = ["/bin/sh", "-c", "echo \"this is $WHO\" >&2; exec sleep 60"]"#;
    let settings = format!(
        "[bots.sales]\n{command}\nagent-name = 'seller'\nenv = {{ WHO = 'sales' }}\n\n\
         [bots.desk]\n{command}\nenv = {{ WHO = 'the desk' }}\n\n\
         [bots.back]\n{command}\nenv = {{ WHO = 'the back office' }}\n"
    );
    let args = ["--config", "a.toml", "--max-sessions", "3", "--drain", "60"];
    let mut runner = server.runner_among(&[("a.toml", &settings)], &args);
    let mut connected = [server.accept(), server.accept()];
    let names = connected.each_mut().map(|worker| worker.register().agent_name);
    runner.wait_for_logs("registered as `", 2);
    let [mut seller, mut bot] = match names.each_ref().map(|name| &**name) {
        ["seller", "bot"] => connected,
        ["bot", "seller"] => {
            let [bot, seller] = connected;
            [seller, bot]
        }
        other => panic!("{other:?}"),
    };
    let reported = status(&runner);
    assert_eq!(
        (&reported["status"], &reported["worker"]["agents"][1]["agent_name"]),
        (&json!("ready"), &json!("bot"))
    );
    let metrics = http::get(runner.addr, "/metrics").text();
    assert!(
        metrics.contains(r#"edge_runner_worker_registered{agent="seller"} 1"#),
        "{metrics}"
    );

    let of_seller = |id: &str, room: &str| JobInfo {
        agent_name: "seller".into(),
        ..job(id, room)
    };
    assert!(!bot.offer(of_seller("AJ_0", "talk")).available, "it is the other's");
    assert!(seller.offer(of_seller("AJ_1", "talk")).available);
    seller.assign(
        of_seller("AJ_1", "talk"),
        &rooms.url(),
        &bot_token("agent-AJ_1", "talk"),
    );
    runner.wait_for_log(" sales] bot stderr: this is sales");
    rooms.assign(&mut bot, "AJ_2", "talk");
    runner.wait_for_log(" desk] bot stderr: this is the desk");
    let mut named = job("AJ_3", "other");
    named.attributes = [("edge.bot".to_owned(), "back".to_owned())].into();
    assert!(bot.offer(named.clone()).available);
    bot.assign(named, &rooms.url(), &bot_token("agent-AJ_3", "other"));
    runner.wait_for_log(" back] bot stderr: this is the back office");
    assert_eq!(http::get(runner.addr, "/worker").json()["active_jobs"], 3);
    assert!(
        !seller.offer(of_seller("AJ_4", "third")).available,
        "all places are taken"
    );
    assert!(!bot.offer(job("AJ_5", "third")).available, "all places are taken");

    runner.signal("TERM");
    for worker in [&mut seller, &mut bot] {
        worker.status(|update| update.status == Some(1));
    }
    seller.terminate("AJ_1");
    bot.terminate("AJ_2");
    bot.terminate("AJ_3");
    for worker in [&mut seller, &mut bot] {
        assert_eq!(worker.closed(), Some(1000));
    }
    assert!(runner.wait().success());
}

/// A telephone that the bot does not take gets no session in its room, and a record.
#[test]
fn a_refused_telephone_is_recorded() {
    let (server, rooms) = (AgentServer::start(), Rooms::new());
    let settings = "[bots.vip]\nbot = 'echo'\ncallers = ['+43*']\n";
    let args = ["--register=participant", "--config", "a.toml"];
    let runner = server.runner_among(&[("a.toml", settings)], &args);
    let mut worker = server.register();
    let telephone = |id: &str, from: &str| {
        let mut job = participant_job(id, "line", id);
        let participant = job.participant.as_mut().expect("it has one");
        participant.kind = 3;
        participant.attributes = [("sip.phoneNumber", from), ("sip.trunkPhoneNumber", "+4312345")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        job
    };
    let mut assign = |id: &str, from: &str, status: i32| {
        assert!(worker.offer(telephone(id, from)).available);
        worker.assign(
            telephone(id, from),
            &rooms.url(),
            &bot_token(&format!("agent-{id}"), "line"),
        );
        worker.job_report(id, status)
    };
    let report = assign("AJ_1", "+15550001111", FAILED);
    assert!(report.error.contains("none of `callers`"), "{report:?}");
    let calls = http::refused_calls(runner.addr);
    assert_eq!(calls.len(), 1, "{calls:?}");
    let facts = ["transport", "bot", "caller", "callee", "endedBy"].map(|name| &calls[0][name]);
    let wanted = ["mediaroom", "vip", "+15550001111", "+4312345", "runner"];
    assert_eq!(facts, wanted.map(|text| json!(text)).each_ref());
    let start = Instant::now();
    while http::get(runner.addr, "/worker").json()["active_jobs"] != 0 {
        assert!(start.elapsed() < PATIENCE, "the job is over");
    }
    assign("AJ_2", "+4366012345", RUNNING);
    assert_eq!(http::refused_calls(runner.addr).len(), 1);
}

/// A runner is ready once all of its names are registered. A bot that is asked for at `/start`, by
/// its name or by that of its agent, is dispatched under its agent name.
#[test]
fn a_bot_is_dispatched_under_its_agent_name() {
    let server = AgentServer::start();
    let settings = "[bots.desk]\nbot = 'echo'\n[bots.sales]\nbot = 'echo'\nagent-name = 'seller'\n";
    let runner = server.runner_among(&[("a.toml", settings)], &["--config", "a.toml"]);
    let (mut first, mut second) = (server.accept(), server.accept());
    first.register();
    runner.wait_for_log("registered as `");
    assert_eq!(
        (&status(&runner)["status"], http::get(runner.addr, "/readyz").status),
        (&json!("connecting"), 503)
    );
    second.register();
    runner.wait_for_logs("registered as `", 2);
    assert_eq!(
        (&status(&runner)["status"], http::get(runner.addr, "/readyz").status),
        (&json!("ready"), 200)
    );
    server.api.lock().expect("no holder panics").taken_after = Some(0);
    for (request, agent_name, bot) in [
        (json!({"transport": "mediaroom"}), "bot", "desk"),
        (json!({"transport": "mediaroom", "bot": "sales"}), "seller", "sales"),
        (
            json!({"transport": "mediaroom", "room_config": {"agents": [{"agent_name": "seller"}]}}),
            "seller",
            "sales",
        ),
    ] {
        server.api.lock().expect("no holder panics").requests.clear();
        let headers = ["Content-Type: application/json"];
        let reply = http::request(runner.addr, "POST", "/start", &headers, request.to_string().as_bytes());
        let reply = reply.expect("an answer");
        assert_eq!(reply.status, 200, "{request}: {}", reply.text());
        let created = server.requests().swap_remove(0).1;
        let agent = &created["agents"][0];
        assert_eq!(
            (&agent["agentName"], &agent["attributes"]["edge.bot"]),
            (&json!(agent_name), &json!(bot))
        );
    }
    let both = json!({"transport": "mediaroom", "bot": "desk", "room_config": {"agents": [{"agent_name": "seller"}]}});
    let headers = ["Content-Type: application/json"];
    let reply = http::request(runner.addr, "POST", "/start", &headers, both.to_string().as_bytes());
    assert_eq!(reply.expect("an answer").status, 422);
}

fn ask(runner: SocketAddr) -> http::Reply {
    let request = json!({"transport": "mediaroom", "body": {"lang": "en"}}).to_string();
    let headers = ["Content-Type: application/json"];
    http::request(runner, "POST", "/start", &headers, request.as_bytes()).expect("an answer")
}

/// `/start` lets the server choose a runner. Without one, the room is deleted and the caller told.
#[test]
fn start_asks_the_server_for_a_runner() {
    let server = AgentServer::start();
    let runner = server.runner(&["--bot", "echo"]);
    let _worker = server.register();
    server.api.lock().expect("no holder panics").taken_after = Some(2);
    let reply = ask(runner.addr);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let reply = reply.json();
    let requests = server.requests();
    let methods: Vec<&str> = requests.iter().map(|(method, _)| &**method).collect();
    let lists = ["ListDispatch", "ListParticipants"].repeat(2);
    assert_eq!(methods, [&["CreateRoom"], &lists[..], &["ListDispatch"]].concat());
    let created = &requests[0].1;
    assert_eq!(created["name"], reply["roomName"]);
    assert_eq!(created["agents"][0]["metadata"], r#"{"lang":"en"}"#);
    assert_eq!(
        created["agents"][0]["attributes"]["edge.session_id"],
        reply["sessionId"]
    );
    assert_eq!(runner.sessions(), 0, "the server may choose another runner");

    server.api.lock().expect("no holder panics").taken_after = None;
    let refused = ask(runner.addr);
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.header("retry-after"), Some("5"));
    assert!(refused.text().contains("no runner took the call"), "{}", refused.text());
    let (method, deleted) = server.requests().pop().expect("requests");
    assert_eq!(method, "DeleteRoom");
    assert!(deleted["room"].as_str().is_some_and(|room| room.starts_with("room-")));
    let calls = http::calls_of(runner.addr, "not_taken");
    let facts: Vec<_> = calls
        .iter()
        .map(|call| (&call["transport"], &call["endedBy"]))
        .collect();
    assert_eq!(facts, [(&json!("mediaroom"), &json!("runner"))], "{calls:?}");
    let metrics = http::get(runner.addr, "/metrics").text();
    let counted = "edge_runner_calls_refused_total{outcome=\"not_taken\"} 1\n";
    assert!(metrics.contains(counted), "{metrics}");

    // A server that makes no room has failed the call.
    server.api.lock().expect("no holder panics").is_broken = true;
    assert_eq!(ask(runner.addr).status, 502);
    let call = http::last_call(runner.addr, &[]);
    let facts = ["transport", "outcome", "endedBy", "provider_error"].map(|name| &call[name]);
    let wanted = [
        "mediaroom",
        "provider_failed",
        "transport",
        "the LiveKit server answered CreateRoom with status 500",
    ];
    assert_eq!(facts, wanted.map(|text| json!(text)).each_ref());
}

/// The runner is in no room before its program is, and still ends the session of callers who left.
#[test]
fn callers_who_leave_before_the_program_joins_end_its_session() {
    let server = AgentServer::start();
    let options = Options::default();
    let url = format!("ws://{}", server.addr);
    let variables = [
        ("MEDIAROOM_URL", &*url),
        ("MEDIAROOM_API_KEY", &options.key),
        ("MEDIAROOM_API_SECRET", &options.secret),
    ];
    let runner = TestRunner::start_with(&PROGRAM, &variables);
    let set = |participants| server.api.lock().expect("no holder panics").participants = participants;
    let asked = |count: usize| {
        let looks = || {
            server
                .requests()
                .iter()
                .filter(|(method, _)| method == "ListParticipants")
                .count()
        };
        wait_until(|| looks() >= count, || format!("{} requests, {count} wanted", looks()));
    };
    set(vec![json!({"identity": "ann", "kind": "STANDARD"})]);
    start_session(&runner, &json!({}));
    let process = BotProcess::of(&runner, |_| true).process;
    asked(1);
    set(Vec::new());
    wait_for_end(process);
    let line = runner.wait_for_log("session ended");
    assert!(line.contains("caller left") && !line.contains("aborted"), "{line}");
}

fn lost_bot(room: &str) -> String {
    json!({
        "event": "participant_left", "room": {"name": room},
        "participant": {"kind": "AGENT", "attributes": {"lk.agent.name": "bot"}, "disconnectReason": "CONNECTION_TIMEOUT"},
    })
    .to_string()
}

/// Posts a webhook of the server with this token.
fn post_event(runner: &TestRunner, event: &str, token: &str) -> http::Reply {
    let authorization = format!("Authorization: {token}");
    let headers = ["Content-Type: application/webhook+json", &*authorization];
    let reply = http::request(runner.addr, "POST", "/livekit-webhook", &headers, event.as_bytes());
    reply.expect("an answer")
}

/// A draining runner answers the requests that wait for a runner, however long the server takes.
#[test]
fn a_draining_runner_finishes_its_dispatches() {
    let server = AgentServer::start();
    let mut runner = server.runner(&["--bot", "echo", "--drain", "60"]);
    let _worker = server.register();
    server.api.lock().expect("no holder panics").taken_after = Some(18);
    let reply = std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(runner.addr));
        let start = Instant::now();
        while server.requests().is_empty() {
            assert!(start.elapsed() < PATIENCE);
        }
        runner.signal("TERM");
        asking.join().expect("it does not panic")
    });
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(runner.wait().success());
}

/// A genuine webhook about a lost bot gets the room a new one, if callers remain and no bot is
/// there. A forged one has no effect, and without `--register` there is no such path.
#[test]
fn a_lost_bot_is_replaced() {
    let server = AgentServer::start();
    let runner = server.runner(&["--bot", "echo"]);
    let _worker = server.register();
    let lost = lost_bot("talk");
    let post = |runner, token: &str| post_event(runner, &lost, token).status;
    assert_eq!(post(&runner, &webhook_token("another body")), 401);
    assert_eq!(post(&runner, "eyJhbGciOiJub25lIn0.e30."), 401);
    assert_eq!(post(&runner, &webhook_token(&lost)), 200);
    runner.wait_for_log("no caller is left in its room");
    server.api.lock().expect("no holder panics").participants = vec![json!({"identity": "ann", "kind": "SIP"})];
    assert_eq!(post(&runner, &webhook_token(&lost)), 200);
    runner.wait_for_log("the server is asked for a new one");
    let (method, dispatch) = server.requests().pop().expect("requests");
    assert_eq!(
        (&*method, &dispatch["agentName"], &dispatch["room"]),
        ("CreateDispatch", &json!("bot"), &json!("talk"))
    );
    let alone = TestRunner::start(&["--bot", "echo"]);
    assert_eq!(post(&alone, &webhook_token(&lost)), 404);
    assert_eq!(http::get(alone.addr, "/worker").status, 404);
}

/// More lost bots than the runner looks for at once: those beyond are refused, which makes the
/// server repeat them, and taken later.
#[test]
fn no_lost_bot_is_dropped() {
    let server = AgentServer::start();
    let runner = server.runner(&["--bot", "echo"]);
    let _worker = server.register();
    server.api.lock().expect("no holder panics").holds = true;
    let post = |at: usize| {
        let lost = lost_bot(&format!("talk-{at}"));
        post_event(&runner, &lost, &webhook_token(&lost))
    };
    for at in 0..WATCHES_MAX {
        assert_eq!(post(at).status, 200, "{at}");
    }
    let refused = post(WATCHES_MAX);
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")));
    runner.wait_for_log("64 lost bots are looked for already");
    server.api.lock().expect("no holder panics").holds = false;
    let start = Instant::now();
    while post(WATCHES_MAX).status != 200 {
        assert!(start.elapsed() < PATIENCE);
    }
}

/// Lost bots need not wait for those that the server was asked for: one more than the runner looks
/// for is taken before any of these is asked for again.
#[test]
fn bots_that_are_asked_for_make_room() {
    let server = AgentServer::start();
    let runner = server.runner(&["--bot", "echo"]);
    let _worker = server.register();
    server.api.lock().expect("no holder panics").participants = vec![json!({"identity": "ann"})];
    let start = Instant::now();
    for at in 0..=WATCHES_MAX {
        let lost = lost_bot(&format!("talk-{at}"));
        while post_event(&runner, &lost, &webhook_token(&lost)).status != 200 {
            assert!(start.elapsed() < PATIENCE);
        }
    }
    let asked = server
        .requests()
        .into_iter()
        .filter(|(method, _)| method == "CreateDispatch");
    assert!((1..2 * WATCHES_MAX).contains(&asked.count()));
}

/// Misuse ends with code 2 and words of its own.
#[test]
fn misuse_is_reported_at_the_start() {
    let keys = [
        ("MEDIAROOM_URL", "ws://127.0.0.1:9"),
        ("MEDIAROOM_API_KEY", "devkey"),
        ("MEDIAROOM_API_SECRET", "secret"),
    ];
    for (args, variables, words) in [
        (&["--register"][..], &keys[..2], "MEDIAROOM_API_SECRET"),
        (&["--register", "agent"], &keys[..], "agent"),
        (&["--register=agent"], &keys[..], "`room`, `participant` or `publisher`"),
        (&["--register", "-t", "webrtc"], &keys[..], "`-t webrtc`"),
        (&["--agent-name", "x"], &keys[..], "`--agent-name` needs `--register`"),
        (&["--register", "--deployment", "a_b"], &keys[..], "without `_`"),
        (&["--register", "--target-load", "7"], &keys[..], "from 0.01 to 1"),
        (
            &["--register"],
            &[("MEDIAROOM_URL", "ws://a,ftp://b")],
            "LiveKit server",
        ),
    ] {
        let output = TestRunner::run_with(args, variables);
        assert_eq!(output.code, Some(2), "{args:?}: {}", output.stderr);
        assert!(output.stderr.contains(words), "{args:?}: {}", output.stderr);
    }
}
