//! Several bots in one runner: which of them answers, under which limits, and where each is named.
//!
//! The bots are programs that say their name on stderr, which the log has with that of the bot.

use edge_runner_proto::livekit::worker::wire::JobInfo;
use serde_json::{Value, json};
use str0m::media::Direction;

use crate::livekit_worker::Rooms;
use crate::support::agents::{AgentServer, bot_token, job};
use crate::support::http::{self, Reply};
use crate::support::provider::{ALL, Caller, FROM, Provider, TO};
use crate::support::runner::TestRunner;
use crate::support::socket::{ConnectOptions, Socket};
use crate::support::sound::{Speech, tone_share};
use crate::support::whip::{Offers, Poster};

const NAME: &str = "edge-runner.toml";

/// Two bots on two numbers, and one with a place and a device.
fn settings() -> String {
    let command = r#"command = ["/bin/sh", "-c", "echo \"this is $WHO\" >&2; exec sleep 60"]"#;
    format!(
        "[bots.desk]\n{command}\nenv = {{ WHO = 'the desk' }}\n\n\
         [bots.sales]\n{command}\nnumbers = ['{TO}']\nby-body = true\nenv = {{ WHO = 'sales' }}\n\n\
         [bots.kitchen]\n{command}\nmax-sessions = 1\ndevices = ['radio']\nenv = {{ WHO = 'the kitchen' }}\n\n\
         [bots.vip]\n{command}\nnumbers = ['+4312345']\ncallers = ['+43*']\nenv = {{ WHO = 'the VIP bot' }}\n"
    )
}

fn start(arguments: &[&str]) -> TestRunner {
    let arguments = [&["--config", NAME], arguments].concat();
    TestRunner::start_among(&[(NAME, &settings())], &arguments, &[])
}

fn post(runner: &TestRunner, target: &str, headers: &[&str], body: &Value) -> Reply {
    let headers = [&["Content-Type: application/json"], headers].concat();
    http::request(runner.addr, "POST", target, &headers, body.to_string().as_bytes()).expect("the runner answers")
}

/// Connects a plain client to the bot that `/start` was asked for.
fn started(runner: &TestRunner, request: &Value) -> Socket {
    let reply = post(runner, "/start", &[], request);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let id = reply.json()["sessionId"].as_str().expect("an id").to_owned();
    Socket::connect(runner.addr, &format!("/ws-client?sessionId={id}"))
}

fn refused(runner: &TestRunner, target: &str) -> u16 {
    match Socket::try_connect(runner.addr, target, ConnectOptions::default()) {
        Err(refused) => refused.status,
        Ok(_) => panic!("{target} is accepted"),
    }
}

#[test]
fn callers_choose_a_bot_by_its_name() {
    let runner = start(&[]);
    let _default = Socket::connect(runner.addr, "/ws-client");
    runner.wait_for_log(" desk] bot stderr: this is the desk");
    let _named = Socket::connect(runner.addr, "/ws-client?bot=kitchen");
    runner.wait_for_log(" kitchen] bot stderr: this is the kitchen");
    let _started = started(&runner, &json!({"transport": "websocket", "bot": "sales"}));
    runner.wait_for_log(" sales] bot stderr: this is sales");
    let _in_body = started(&runner, &json!({"transport": "websocket", "body": {"bot": "sales"}}));
    runner.wait_for_logs(" sales] bot stderr: this is sales", 2);
    // A bot that does not allow it is not chosen by the body, which is data for the default.
    let _in_body = started(&runner, &json!({"transport": "websocket", "body": {"bot": "kitchen"}}));
    runner.wait_for_logs(" desk] bot stderr: this is the desk", 2);
    let poster = Poster::new(Offers::audio(Direction::SendRecv));
    let reply = poster.post(&runner, "/whip/radio", &[]);
    // The only place is taken.
    assert_eq!(reply.status, 503, "{}", reply.text());
    let turned_away = http::calls_of(runner.addr, "bot_full");
    assert_eq!(turned_away.len(), 1);
    assert_eq!(
        (&turned_away[0]["bot"], &turned_away[0]["transport"]),
        (&json!("kitchen"), &json!("webrtc"))
    );
    let reply = poster.post(&runner, "/whip/sales", &[]);
    assert_eq!(reply.status, 201, "{}", reply.text());
    runner.wait_for_logs(" sales] bot stderr: this is sales", 3);
}

/// The names of the bots are for those with the key.
#[test]
fn an_unknown_name_is_no_bot() {
    let runner = start(&["--api-key", "0123456789abcdef0123456789abcdef"]);
    let key = "Authorization: Bearer 0123456789abcdef0123456789abcdef";
    let reply = post(&runner, "/start", &[key], &json!({"bot": "no-such-bot"}));
    assert_eq!(reply.status, 404);
    let detail = reply.json()["detail"].as_str().map(str::to_owned);
    assert_eq!(
        detail.as_deref(),
        Some("no bot has this name; there are: desk, sales, kitchen, vip")
    );
    assert_eq!(refused(&runner, "/ws-client?bot=no-such-bot"), 404);
    assert_eq!(refused(&runner, "/ws?bot=no-such-bot"), 404);
    for path in ["/whip/garage", "/whep/garage"] {
        let reply = Poster::new(Offers::audio(Direction::SendRecv)).post(&runner, path, &[key]);
        assert_eq!(reply.status, 404, "{path}");
    }
    let names = |headers: &[&str]| {
        let reply = http::request(runner.addr, "GET", "/status", headers, &[]).expect("the runner answers");
        reply.json()["bots"].clone()
    };
    assert_eq!(names(&[]), Value::Null);
    let bots = json!([{"name": "desk"}, {"name": "sales"}, {"name": "kitchen"}, {"name": "vip"}]);
    assert_eq!(names(&[key]), bots);
    // Without a key, who may call may also choose.
    let open = start(&[]);
    assert_eq!(
        post(&open, "/start", &[], &json!({"bot": "no-such-bot"})).json()["detail"],
        "no bot has this name"
    );
    assert_eq!(http::get(open.addr, "/status").json()["bots"], bots);
}

/// The number that was dialled leads to its bot, as far as the stream of the provider has it.
#[test]
fn a_call_reaches_the_bot_of_its_number() {
    let runner = start(&[]);
    for (nth, provider) in ALL.into_iter().enumerate() {
        let mut caller = Caller::dial(runner.addr, provider);
        runner.wait_for_logs(" sales] bot stderr: this is sales", nth + 1);
        caller.stop();
        runner.wait_for_sessions(0);
    }
    // The URL of a call names its bot, whatever was dialled.
    let _caller = Caller::dial_at(runner.addr, "/ws?bot=kitchen", Provider::Telnyx);
    runner.wait_for_log(" kitchen] bot stderr: this is the kitchen");
    let mut second = Caller::dial_at(runner.addr, "/ws?bot=kitchen", Provider::Telnyx);
    assert_eq!(
        second.end(),
        Some((1013, "all places of the bot are taken; try again later".to_owned()))
    );
    let mut stranger = Caller::dial_at(runner.addr, "/ws?bot=vip", Provider::Telnyx);
    assert_eq!(
        stranger.end(),
        Some((1008, "this number may not call the bot".to_owned()))
    );
    let call = http::last_call(runner.addr, &[]);
    assert_eq!(
        (&call["outcome"], &call["endedBy"], &call["bot"]),
        (&json!("refused"), &json!("runner"), &json!("vip"))
    );
    assert_eq!(call["caller"], FROM);
}

/// The stream of Plivo lacks what is no number, so the markup of its webhook names the bot.
#[test]
fn a_webhook_names_the_bot_where_the_stream_does_not() {
    let key = "0123456789abcdef0123456789abcdef";
    let runner = start(&["-t", "plivo", "-x", "bots.example.net", "--api-key", key]);
    let called = |form: &str| {
        let headers = ["Content-Type: application/x-www-form-urlencoded"];
        http::request(runner.addr, "POST", "/", &headers, form.as_bytes()).expect("the runner answers")
    };
    let to = TO.replace('+', "%2B");
    let reply = called(&format!("CallUUID=1&From=%2B15550001111&To={to}"));
    assert!(
        reply.text().contains(">wss://bots.example.net/ws?bot=sales</Stream>"),
        "{}",
        reply.text()
    );
    let reply = called("CallUUID=1&From=15550001111&To=4312345");
    assert_eq!(reply.status, 403, "{}", reply.text());
    // A provider that asks again means the same call.
    assert_eq!(called("CallUUID=1&From=15550001111&To=4312345").status, 403);
    let authorization = format!("Authorization: Bearer {key}");
    let listed = http::request(runner.addr, "GET", "/calls", &[&authorization], b"").expect("the runner answers");
    let calls = listed.json()["calls"].clone();
    assert_eq!(calls.as_array().map(Vec::len), Some(1), "{calls}");
    assert_eq!(
        (&calls[0]["outcome"], &calls[0]["caller"], &calls[0]["callee"]),
        (&json!("refused"), &json!("15550001111"), &json!("4312345"))
    );
    let reply = called("CallUUID=1&From=43660123&To=4312345");
    assert!(reply.text().contains("?bot=vip<"), "{}", reply.text());
}

/// A client that is turned away because its bot is full comes again with the same token.
#[test]
fn a_full_bot_leaves_the_token_of_a_client_as_it_is() {
    let runner = start(&["--ws-auth", "token"]);
    let target = || {
        let request = json!({"transport": "websocket", "bot": "kitchen"});
        let reply = post(&runner, "/start", &[], &request).json();
        format!("/ws-client/{}", reply["token"].as_str().expect("a token"))
    };
    let (first, second) = (target(), target());
    let socket = Socket::connect(runner.addr, &first);
    runner.wait_for_log("this is the kitchen");
    assert_eq!(refused(&runner, &second), 503);
    socket.close(1000);
    runner.wait_for_sessions(0);
    let _second = Socket::connect(runner.addr, &second);
    runner.wait_for_logs("this is the kitchen", 2);
}

/// Plivo reports the end of a call that came in to the URL that answered it, where the number has
/// no other one.
#[test]
fn the_report_of_an_end_is_no_new_call() {
    let key = "0123456789abcdef0123456789abcdef";
    let runner = start(&["-t", "plivo", "-x", "bots.example.net", "--api-key", key]);
    let headers = ["Content-Type: application/x-www-form-urlencoded"];
    let form = b"CallUUID=1&From=43660123&To=4312345&CallStatus=completed&Duration=12";
    let reply = http::request(runner.addr, "POST", "/", &headers, form).expect("the runner answers");
    assert_eq!((reply.status, reply.text().as_str()), (200, ""));
    let authorization = format!("Authorization: Bearer {key}");
    let listed = http::request(runner.addr, "GET", "/calls", &[&authorization], b"").expect("the runner answers");
    assert_eq!(listed.json()["calls"], json!([]));
}

#[test]
fn each_bot_has_its_calls_sessions_and_figures() {
    let runner = start(&[]);
    let client = Socket::connect(runner.addr, "/ws-client?bot=sales");
    runner.wait_for_log("this is sales");
    let metrics = || http::get(runner.addr, "/metrics").text();
    assert!(metrics().contains("edge_runner_bot_sessions{bot=\"sales\"} 1\n"));
    assert_eq!(
        http::get(runner.addr, "/sessions").json()["sessions"][0]["bot"],
        "sales"
    );
    client.close(1000);
    runner.wait_for_sessions(0);
    let _other = Socket::connect(runner.addr, "/ws-client");
    runner.wait_for_log("this is the desk");
    let calls = |query: &str| http::get(runner.addr, &format!("/calls{query}")).json()["calls"].clone();
    assert_eq!(calls("").as_array().map(Vec::len), Some(2));
    let of_sales = calls("?bot=sales");
    assert_eq!(
        (of_sales[0]["bot"].as_str(), of_sales[1].as_object()),
        (Some("sales"), None)
    );
    let text = metrics();
    for line in [
        "edge_runner_bot_sessions{bot=\"sales\"} 0\n",
        "edge_runner_bot_sessions{bot=\"desk\"} 1\n",
        "edge_runner_bot_sessions_started_total{bot=\"sales\"} 1\n",
        "edge_runner_bot_sessions_ended_total{bot=\"sales\",outcome=\"left\"} 1\n",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}

/// Two bots with a number and an agent name each, and four calls at a time: each number and each
/// room has its own bot, sound, log lines, figures and record.
#[test]
fn two_numbers_and_two_rooms_are_served_side_by_side() {
    const OTHER_NUMBER: &str = "+15550003333";
    let (server, rooms) = (AgentServer::start(), Rooms::new());
    let settings = format!(
        "[bots.desk]\nbot = 'echo'\nnumbers = ['{TO}']\nagent-name = 'front'\n\n\
         [bots.sales]\nbot = 'echo'\nnumbers = ['{OTHER_NUMBER}']\nagent-name = 'seller'\n"
    );
    let runner = server.runner_among(&[(NAME, &settings)], &["--config", NAME]);
    let mut workers = [server.accept(), server.accept()].map(|mut worker| (worker.register().agent_name, worker));
    let mut enter = |bot: &str, agent_name: &str, room: &str| {
        let (_, worker) = workers
            .iter_mut()
            .find(|(name, _)| name == agent_name)
            .expect("a worker");
        let id = format!("AJ_{bot}");
        let job = JobInfo {
            agent_name: agent_name.into(),
            ..job(&id, room)
        };
        assert!(worker.offer(job.clone()).available);
        worker.assign(job, &rooms.url(), &bot_token(&format!("agent-{id}"), room));
        let participant = rooms.join(room, "ann");
        participant.wait_for("the bot", |seen| seen.others.contains(&format!("agent-{id}")));
        participant
    };
    let in_rooms = [enter("desk", "front", "hall"), enter("sales", "seller", "shop")];
    let mut telephones = [TO, OTHER_NUMBER].map(|number| {
        let provider = Provider::Twilio;
        let mut caller = Caller::connect(runner.addr, "/ws", provider, provider.lines()[0]);
        caller.to = number;
        caller.greet();
        caller.start();
        caller
    });
    runner.wait_for_sessions(4);

    // All of them talk, and each hears its own tone.
    for (participant, hz) in in_rooms.iter().zip([440.0, 1_000.0]) {
        participant.talk(Some(Speech::Tone { hz }));
    }
    for (caller, hz) in telephones.iter_mut().zip([600.0, 1_400.0]) {
        // The same samples at 8 kHz are half as high.
        let tone = Speech::Tone { hz };
        caller.say(&(0..16_000).map(|at| tone.sample(at)).collect::<Vec<_>>());
        caller.hear_until("its tone", |caller| caller.received.len() > 12_000);
        assert!(tone_share(&caller.received, hz) > 0.8, "{hz}");
    }
    for (participant, hz) in in_rooms.iter().zip([440.0, 1_000.0]) {
        participant.clear_audio();
        let hears = |pcm: &[i16]| pcm.len() > 16_000 && tone_share(&pcm[pcm.len() - 16_000..], hz) > 0.8;
        participant.wait_for("its tone", |seen| hears(&seen.received));
    }
    assert_eq!(runner.sessions(), 4);
    let served = [
        ("desk", json!(TO), "telephony_a"),
        ("desk", Value::Null, "mediaroom"),
        ("sales", json!(OTHER_NUMBER), "telephony_a"),
        ("sales", Value::Null, "mediaroom"),
    ];
    let calls = |state: &str| {
        let calls = http::get(runner.addr, "/calls").json()["calls"].clone();
        let calls = calls.as_array().expect("a list").clone();
        assert_eq!(calls.len(), served.len(), "{calls:?}");
        for (bot, to, transport) in &served {
            let is_it = |call: &&Value| call["bot"] == *bot && call["callee"] == *to && call["transport"] == *transport;
            let call = calls
                .iter()
                .find(is_it)
                .unwrap_or_else(|| panic!("{bot} {to}: {calls:?}"));
            assert_eq!(call["state"], state, "{call}");
        }
        calls
    };
    let live = calls("live");
    let log = runner.log();
    for call in &live {
        let (id, bot) = (
            call["id"].as_str().expect("an id"),
            call["bot"].as_str().expect("a bot"),
        );
        let begun = log.lines().filter(|line| line.contains("session started"));
        let marked = format!("[{} {bot}]", &id[..8]);
        assert_eq!(
            begun.filter(|line| line.contains(&marked)).count(),
            1,
            "{marked} in {log}"
        );
    }
    let metrics = http::get(runner.addr, "/metrics").text();
    for bot in ["desk", "sales"] {
        let line = format!("edge_runner_bot_sessions{{bot=\"{bot}\"}} 2\n");
        assert!(metrics.contains(&line), "{metrics}");
    }

    for caller in &mut telephones {
        caller.stop();
    }
    for (_, worker) in &workers {
        for id in ["AJ_desk", "AJ_sales"] {
            worker.terminate(id);
        }
    }
    runner.wait_for_sessions(0);
    for call in calls("ended") {
        assert_eq!(
            (&call["outcome"], &call["endedBy"]),
            (&json!("left"), &json!("caller")),
            "{call}"
        );
    }
    let metrics = http::get(runner.addr, "/metrics").text();
    for bot in ["desk", "sales"] {
        let line = format!("edge_runner_bot_sessions_ended_total{{bot=\"{bot}\",outcome=\"left\"}} 2\n");
        assert!(metrics.contains(&line), "{metrics}");
    }
}

/// A key for one call has the bot that it was made for; the sound card has that of its option.
#[test]
fn keys_of_calls_and_the_sound_card_choose_a_bot() {
    let card = ["--local", "--local-start", "always", "--local-bot", "kitchen"];
    let sound = [
        "--local-in",
        "cat /dev/zero",
        "--local-out",
        "sh -c 'exec cat > /dev/null'",
    ];
    let key = "Authorization: Bearer 0123456789abcdef0123456789abcdef";
    let runner = start(&[&card[..], &sound, &["--api-key", "0123456789abcdef0123456789abcdef"]].concat());
    runner.wait_for_log(" kitchen] bot stderr: this is the kitchen");
    let secret = |bot: &str| post(&runner, "/v1/realtime/client_secrets", &[key], &json!({"bot": bot}));
    assert_eq!(secret("no-such-bot").status, 404);
    let reply = secret("sales").json();
    let once = format!("Authorization: Bearer {}", reply["value"].as_str().expect("a key"));
    let call = Poster::new(Offers::audio(Direction::SendRecv)).post(&runner, "/v1/realtime/calls", &[&once]);
    assert_eq!(call.status, 201, "{}", call.text());
    runner.wait_for_log(" sales] bot stderr: this is sales");
}

/// A bot talks as long as its limit says. The caller hears why it ended, and the record says who
/// ended it.
#[test]
fn a_call_ends_at_the_limit_of_its_bot() {
    let settings = "[bots.brief]\nbot = 'echo'\nmax-seconds = 10\n";
    let runner = TestRunner::start_among(&[(NAME, settings)], &["--config", NAME], &[]);
    let mut client = Socket::connect(runner.addr, "/ws-client");
    assert_eq!(
        client.end(),
        Some((1000, "the call has lasted as long as the bot may talk".to_owned()))
    );
    runner.wait_for_log(" brief] the session ends: it has lasted 10 s");
    runner.wait_for_sessions(0);
    let call = http::get(runner.addr, "/calls").json()["calls"][0].clone();
    assert_eq!(
        (&call["outcome"], &call["endedBy"]),
        (&json!("limit"), &json!("runner")),
        "{call}"
    );
    let text = http::get(runner.addr, "/metrics").text();
    let line = "edge_runner_bot_sessions_ended_total{bot=\"brief\",outcome=\"limit\"} 1\n";
    assert!(text.contains(line), "{text}");
}

/// A runner with one bot says and knows nothing of others.
#[test]
fn a_runner_with_one_bot_ignores_names() {
    let runner = TestRunner::start(&["--bot", "echo"]);
    let reply = post(
        &runner,
        "/start",
        &[],
        &json!({"transport": "websocket", "bot": "no-such-bot"}),
    );
    assert_eq!(reply.status, 200);
    let _client = Socket::connect(runner.addr, "/ws-client?bot=no-such-bot");
    runner.wait_for_sessions(1);
    assert_eq!(http::get(runner.addr, "/status").json()["bots"], Value::Null);
    assert!(
        !http::get(runner.addr, "/metrics")
            .text()
            .contains("edge_runner_bot_sessions")
    );
    assert_eq!(
        http::get(runner.addr, "/sessions").json()["sessions"][0]["bot"],
        Value::Null
    );
    let ended = TestRunner::run_among(
        &[(NAME, "[bots.a]\nbot = 'echo'\nport = 1\n")],
        &["config", "check", NAME],
        &[],
    );
    assert!(
        ended.code == Some(2)
            && ended
                .stderr
                .contains("edge-runner.toml:3: `port` is a setting of the runner: put it above the first section"),
        "{ended:?}"
    );
}
