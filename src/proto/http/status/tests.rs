//! Tests of `/status`.

use super::*;
use crate::assistant::service_url::ServiceUrl;
use crate::http::cluster::ClusterKey;
use crate::moq::config::MoqUdpPort;
use crate::options::host::Host;
use crate::server::tls_config::Tls;

fn config(transport: Option<Transport>) -> Config {
    Config {
        transport,
        ..Config::default()
    }
}

/// Pages on this machine learn where phones find the runner, but not from behind a proxy.
#[test]
fn status_names_the_page_for_phones() {
    let listening = ListenAddresses {
        port: 7860,
        rtc_port: 7860,
        moq_port: MoqUdpPort::default(),
        addresses: vec![[192, 168, 1, 2].into()],
    };
    let page = |config: Config| -> Value {
        let mut status = StatusReplies::new(&config, None);
        status.set_addresses(&config, &listening);
        let reply: Value = serde_json::from_slice(&status.reply(3, false, None, None, &[], None)).expect("JSON");
        reply["page"].clone()
    };
    let everywhere = || Config {
        host: Host::Address([0, 0, 0, 0].into()),
        tls: Tls::Auto,
        ..Config::default()
    };
    assert_eq!(page(everywhere()), "https://192.168.1.2:7860/");
    assert_eq!(page(Config::default()), Value::Null, "localhost alone");
    let proxied = Config {
        proxy: Some("bots.example.net".into()),
        ..everywhere()
    };
    assert_eq!(page(proxied), Value::Null);
}

/// The page leads to the settings where it may change them.
#[test]
fn status_says_whether_the_page_changes_settings() {
    let settings = |config: &Config| -> Value {
        let reply = StatusReplies::new(config, None).reply(0, false, None, None, &[], None);
        let status: Value = serde_json::from_slice(&reply).expect("a reply is JSON");
        status["settings"].clone()
    };
    let changed = Config {
        settings_page: Some("edge-runner.toml".into()),
        ..Config::default()
    };
    assert_eq!(
        (settings(&Config::default()), settings(&changed)),
        (Value::Null, json!(true))
    );
}

/// A version that is out has a member of its own.
#[test]
fn status_has_the_version_that_can_be_installed() {
    let reply = StatusReplies::new(&Config::default(), None).reply(0, false, None, None, &[], Some("9.0.0"));
    let status: Value = serde_json::from_slice(&reply).expect("a reply is JSON");
    assert_eq!(status["new_version"], "9.0.0");
}

/// Several bots have their names, each with the state of its process.
#[test]
fn status_names_the_bots() {
    let member = |name: &str, process| BotMember {
        name: name.to_owned(),
        process,
    };
    let starting = BotProcessMember {
        state: BotProcessState::Starting,
        error: None,
    };
    let bots = [member("sales", None), member("home", Some(starting))];
    let reply = StatusReplies::new(&Config::default(), None).reply(0, false, None, None, &bots, None);
    let status: Value = serde_json::from_slice(&reply).expect("a reply is JSON");
    let expected = json!([{"name": "sales"}, {"name": "home", "process": {"state": "starting"}}]);
    assert_eq!(status["bots"], expected);
}

/// A bot that is loaded before its calls has a state; its error is for those who may see it.
#[test]
fn status_has_the_state_of_the_process_of_the_bot() {
    let member = |state, error: Option<&str>| -> Value {
        let bot = BotProcessMember {
            state,
            error: error.map(str::to_owned),
        };
        let reply = StatusReplies::new(&Config::default(), None).reply(0, false, None, Some(&bot), &[], None);
        let status: Value = serde_json::from_slice(&reply).expect("a reply is JSON");
        status["bot_process"].clone()
    };
    assert_eq!(member(BotProcessState::Starting, None), json!({"state": "starting"}));
    assert_eq!(member(BotProcessState::Ready, None), json!({"state": "ready"}));
    let error = "ModuleNotFoundError: No module named \"x\" (bot.py, line 3)";
    assert_eq!(
        member(BotProcessState::Failed, Some(error)),
        json!({"state": "failed", "error": error})
    );
}

/// A video room needs a key that creates one, or the URL of one that exists.
#[test]
fn status_names_transports_without_credentials() {
    let lacking = |config: &Config| -> Value {
        let reply = StatusReplies::new(config, None).reply(0, false, None, None, &[], None);
        let status: Value = serde_json::from_slice(&reply).expect("a reply is JSON");
        status["without_credentials"].clone()
    };
    let mut keyed = config(None);
    keyed.videoroom.key = Some(crate::secret::Secret::new("key"));
    let mut given = config(None);
    given.videoroom.room_url = Some("https://h/r".into());
    assert_eq!(lacking(&config(None)), json!(["videoroom", "mediaroom"]));
    assert_eq!(lacking(&keyed), json!(["mediaroom"]));
    assert_eq!(lacking(&given), json!(["mediaroom"]));
    assert_eq!(lacking(&config(Some(Transport::WebRtc))), json!([]));
}

/// R-044, R-070: the transports of this build, those it lacks, and the load.
#[test]
fn status_describes_this_build() {
    let status = |transport, sessions| -> Value {
        let status = StatusReplies::new(&config(transport), None);
        let reply = |draining| -> Value {
            serde_json::from_slice(&status.reply(sessions, draining, None, None, &[], None)).expect("a reply is JSON")
        };
        let (ready, mut draining) = (reply(false), reply(true));
        assert_eq!(draining["status"].take(), json!("draining"));
        draining["status"] = json!("ready");
        assert_eq!(draining, ready, "nothing else changes");
        ready
    };
    assert_eq!(
        status(None, 3),
        json!({
            "status": "ready",
            "transports": [
                "webrtc", "videoroom", "mediaroom", "telephony_a", "telephony_b", "telephony_c", "telephony_d",
                "websocket"
            ],
            "unavailable": [],
            "without_bot": [],
            "without_credentials": ["videoroom", "mediaroom"],
            "bot": "parrot",
            "version": env!("CARGO_PKG_VERSION"),
            "sessions": 3,
        })
    );
    let stock = Config {
        bot_enters_rooms: false,
        ..Config::default()
    };
    // A worker without a registration takes no rooms.
    let worker = |is_ready, word| WorkerMember {
        is_ready,
        word,
        json: json!({"state": word}),
    };
    for (member, draining, expected) in [
        (worker(true, "registered"), false, "ready"),
        (worker(false, "refused"), false, "refused"),
        (worker(true, "registered"), true, "draining"),
    ] {
        let reply = StatusReplies::new(&stock, None).reply(0, draining, Some(&member), None, &[], None);
        let status: Value = serde_json::from_slice(&reply).expect("JSON");
        assert_eq!((&status["status"], &status["worker"]), (&json!(expected), &member.json));
    }
    let stock: Value =
        serde_json::from_slice(&StatusReplies::new(&stock, None).reply(0, false, None, None, &[], None)).expect("JSON");
    assert_eq!(stock["without_bot"], json!(["videoroom"]), "its bot cannot enter one");
    assert_eq!(
        stock["transports"].as_array().map(Vec::len),
        Some(8),
        "and all are served"
    );
    let calls = Config {
        messaging: Some(crate::whatsapp::config::Messaging::for_tests("http://127.0.0.1:9")),
        ..Config::default()
    };
    let mut calls: Value =
        serde_json::from_slice(&StatusReplies::new(&calls, None).reply(3, false, None, None, &[], None)).expect("JSON");
    let one_key_more = calls.as_object_mut().expect("an object").remove("messaging");
    assert_eq!((one_key_more, calls), (Some(json!(true)), status(None, 3)));
    let mut far = Config {
        bot: crate::built_in_bot::BuiltInBot::Realtime,
        ..Config::default()
    };
    far.assistant.realtime.url = ServiceUrl::parse("wss://api.openai.com/v1?key=k").expect("a URL");
    let of_bot = |config: &Config| -> Vec<Value> {
        let status: Value =
            serde_json::from_slice(&StatusReplies::new(config, None).reply(0, false, None, None, &[], None))
                .expect("JSON");
        ["bot", "speech_to"].map(|name| status[name].clone()).into()
    };
    assert_eq!(of_bot(&far), [json!("realtime"), json!(["api.openai.com"])]);
    let own = Config {
        bot_name: Some("kitchen".into()),
        ..far.clone()
    };
    assert_eq!(of_bot(&own), [json!("kitchen"), Value::Null]);
    let program = Config {
        command: Some(vec!["bot".into()]),
        ..far
    };
    assert_eq!(of_bot(&program), [Value::Null, Value::Null]);
    // D-26: a replica has a name, and while it drains, a code that balancers understand.
    let key = ClusterKey::new(crate::secret::Secret::new("key"));
    let replica = Replica::new(&key, Some("a"), [1; 8]);
    let replica = StatusReplies::new(&Config::default(), Some(&replica));
    assert_eq!((replica.code(false), replica.code(true)), (200, 503));
    let mut named: Value = serde_json::from_slice(&replica.reply(3, false, None, None, &[], None)).expect("JSON");
    let name = named.as_object_mut().expect("an object").remove("replica");
    assert_eq!((name, named), (Some(json!("a")), status(None, 3)));
    let alone = StatusReplies::new(&Config::default(), None);
    assert_eq!((alone.code(false), alone.code(true)), (200, 200));
    let one = status(Some(Transport::WebRtc), usize::MAX);
    assert_eq!(
        (&one["transports"], &one["unavailable"]),
        (&json!(["webrtc"]), &json!([]))
    );
    assert_eq!(one["sessions"], json!(usize::MAX));
}

#[test]
fn a_runner_is_ready_while_it_takes_new_sessions() {
    let worker = |is_ready, word| WorkerMember {
        is_ready,
        word,
        json: Value::Null,
    };
    let (lost, registered) = (worker(false, "connecting"), worker(true, "registered"));
    for (has_room, draining, worker, reason) in [
        (true, false, None, None),
        (true, false, Some(&registered), None),
        (false, false, None, Some("full")),
        (true, true, None, Some("draining")),
        (true, false, Some(&lost), Some("connecting")),
        (false, true, Some(&lost), Some("draining")),
    ] {
        let (code, body) = readiness(has_room, draining, worker);
        let body: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(code, if reason.is_none() { 200 } else { 503 });
        assert_eq!(
            (body["ready"] == true, body["reason"].as_str()),
            (reason.is_none(), reason)
        );
    }
}
