//! Calls by a client of the project's own cores.

use std::time::Duration;

use edge_runner_proto::moq::link::LinkClosed;
use serde_json::json;

use super::{invite, serve};
use crate::support::moq::MoqClient;

/// The code of a subscription to what the runner does not publish.
const NOT_FOUND: u32 = 13;

/// `-t moq` serves a call on its own socket. The caller hears itself through the echo
/// bot, and its end ends the session.
#[test]
fn a_caller_hears_the_bot() {
    let runner = serve(&["--bot", "echo"]);
    let client = MoqClient::connect(&invite(&runner, &json!({"transport": "moq"})));
    client.hum(440.0);
    client.wait_for_tone(440.0);
    let audio = client.observed().catalogs[0]["audio"]["renditions"]["bot-audio"].take();
    assert_eq!(
        audio,
        json!({"codec": "opus", "sampleRate": 48000, "numberOfChannels": 1, "container": {"kind": "legacy"}})
    );
    client.hum(990.0);
    client.wait_for_tone(990.0);
    // The times of the packets ascend with their groups, whatever the order of arrival.
    let mut places: Vec<(u64, u64)> = (client.observed().received.iter())
        .map(|packet| (packet.group, packet.timestamp_us))
        .collect();
    places.sort_unstable();
    for pair in places.windows(2) {
        let ((one, early), (two, late)) = (pair[0], pair[1]);
        assert!(two >= one && late > early, "{pair:?}");
    }
    client.leave();
    runner.wait_for_sessions(0);
    let ended = runner.wait_for_log("session ended: ");
    assert!(ended.contains("session ended: caller left"), "{ended}");
}

/// messages go both ways in the records, in their order; the body of `/start` is the
/// bot's.
#[test]
fn messages_go_both_ways() {
    let runner = serve(&["--bot", "echo"]);
    let client = MoqClient::connect(&invite(&runner, &json!({"body": {"n": 1}})));
    let tell = |kind: &str, id: &str, data| {
        client.say(&json!({"label": "rtvi-ai", "type": kind, "id": id, "data": data}));
    };
    tell("client-ready", "ready", json!({"version": "1.2.0"}));
    client.wait_for_message("bot-ready", "ready");
    for n in 0..20 {
        tell(
            "client-message",
            &n.to_string(),
            json!({"t": "echo", "d": {"n": n, "text": "äöü"}}),
        );
    }
    client.wait_for_message("server-response", "19");
    let observed = client.observed();
    let answers = observed
        .messages
        .iter()
        .filter(|message| message["type"] == "server-response");
    let numbers: Vec<_> = answers.map(|answer| answer["data"]["d"]["n"].as_u64()).collect();
    assert_eq!(numbers, (0..20).map(Some).collect::<Vec<_>>());
}

/// two callers hear themselves alone. Neither is told of the other's broadcasts or receives
/// them, though it knows their names.
#[test]
fn sessions_are_separate() {
    let runner = serve(&["--bot", "echo"]);
    let [one, two] = [440.0, 990.0].map(|hz| {
        let client = MoqClient::connect(&invite(&runner, &json!({})));
        client.hum(hz);
        (client, hz)
    });
    for ((client, hz), (other, _)) in [(&one, &two), (&two, &one)] {
        client.wait_for_tone(*hz);
        let theirs = [other.invitation.bot_path(), other.invitation.caller_path()];
        for path in &theirs {
            client.subscribe(path, "bot-audio");
            let track = format!("{path}/bot-audio");
            client.wait_for("refusal", |observed| {
                observed
                    .ended
                    .iter()
                    .any(|(ended, code)| *ended == track && *code == Some(NOT_FOUND))
            });
        }
        let announced: Vec<String> = client.observed().announced.iter().cloned().collect();
        assert_eq!(announced, [client.invitation.bot_path()]);
    }
    // The refusals and the end of one leave the other alone.
    let ((one, _), (two, hz)) = (one, two);
    one.leave();
    runner.wait_for_sessions(1);
    two.wait_for_tone(hz);
}

/// a peer that vanishes ends its session when its idle time is over. The shorter idle time
/// of both ends counts, so that of the caller.
#[test]
fn a_caller_that_vanishes_is_noticed() {
    let runner = serve(&["--bot", "echo"]);
    let mut invitation = invite(&runner, &json!({}));
    invitation.idle = Some(Duration::from_secs(5));
    let client = MoqClient::connect(&invitation);
    client.wait_for("subscription of the bot", |observed| observed.is_received);
    client.vanish();
    runner.wait_for_sessions(0);
    let ended = runner.wait_for_log("session ended: ");
    assert!(ended.contains("session ended: caller vanished"), "{ended}");
}

/// SIGTERM during a call. The caller reads the record of the end, then the broadcast is
/// retracted and the connection closed without an error; the exit code is 0.
#[test]
fn a_signal_says_goodbye() {
    let mut runner = serve(&["--bot", "echo"]);
    let client = MoqClient::connect(&invite(&runner, &json!({})));
    client.hum(440.0);
    client.wait_for_tone(440.0);
    runner.signal("TERM");
    client.wait_for("record of the end", |observed| observed.controls == ["session-ending"]);
    client.wait_for("retraction", |observed| observed.announced.is_empty());
    let closed = client.wait_for_end();
    assert!(matches!(closed, LinkClosed::ByPeer { code: 0, .. }), "{closed:?}");
    assert_eq!(runner.wait().code(), Some(0), "{}", runner.log());
    runner.wait_for_log("session ended: runner stopped");
}
