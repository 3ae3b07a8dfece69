//! Bots that are programs, in calls over QUIC: the test is the caller and the program.

use serde_json::json;

use super::{SERVE, start};
use crate::support::moq::{MoqClient, MoqInvitation};
use crate::support::program::{BOT_RATE_HZ, BotProcess, SLEEPING_COMMAND};
use crate::support::runner::TestRunner;
use crate::support::sound::{FRAME, Speech, tone_share};

fn shell(more: &[&str]) -> TestRunner {
    TestRunner::start(&[&SERVE[..], more, &["--", "/bin/sh", "-c", SLEEPING_COMMAND]].concat())
}

/// the arguments are complete, without the token of the URL.
#[test]
fn a_program_finds_the_broadcasts_in_its_arguments() {
    for (more, is_named) in [
        (&["--ws-auth", "token"][..], false),
        (
            &[
                "--moq-namespace",
                "rooms/one",
                "--moq-bot-id",
                "bot0",
                "--moq-client-id",
                "client0",
            ],
            true,
        ),
    ] {
        let runner = shell(more);
        let body = json!({"who": "ann", "n": [1, null]});
        let reply = start(&runner, &json!({"transport": "moq", "body": body})).json();
        let url = reply["moq"]["relayUrl"].as_str().expect("a URL");
        let (without_token, _) = url.split_once("/moq").expect("the path of the runner");
        let started = BotProcess::of(&runner, |_| true);
        let wanted = json!({
            "kind": "moq", "session_id": reply["sessionId"], "body": body, "handle_sigint": false,
            "handle_sigterm": true, "idle_timeout": 300, "relay_url": format!("{without_token}/moq"),
            "namespace": reply["moq"]["namespace"], "bot_id": if is_named { "bot0" } else { "response" },
            "client_id": if is_named { "client0" } else { "request" }, "serve": true,
            "media_url": started.arguments["media_url"],
        });
        assert_eq!(started.arguments, wanted);
        assert_eq!(reply["moq"]["namespace"] == "rooms/one", is_named, "{reply}");
    }
}

/// speech and messages pass both ways. An interruption drops the queued speech with
/// its marks; the speech after it follows at once.
#[test]
fn a_program_talks_sets_marks_and_interrupts() {
    let runner = shell(&[]);
    let client = MoqClient::connect(&MoqInvitation::read(&start(&runner, &json!({})).json()));
    let mut program = BotProcess::of(&runner, |_| true).connect_media();
    let ready = json!({"label": "rtvi-ai", "type": "client-ready", "id": "1", "data": {"version": "2.1.0"}});
    client.say(&ready);
    assert_eq!(
        program.hear_message("client-ready", |message| message["type"] == "client-ready"),
        ready
    );
    program.tell(&json!({"label": "rtvi-ai", "type": "bot-ready", "id": "1", "data": {"version": "2.1.0"}}));
    client.wait_for_message("bot-ready", "1");
    client.hum(440.0);
    program.hear_until("a second of the caller's tone", |program| {
        let last = program.received.len().saturating_sub(50);
        let pcm = program.received[last..].concat();
        pcm.len() >= BOT_RATE_HZ as usize && tone_share(&pcm, 440.0) > 0.8
    });

    let tone = |hz: f64, seconds: usize| -> Vec<i16> {
        let frames = (0..50 * seconds).map(|n| Speech::Tone { hz }.frame(n * FRAME));
        frames.flatten().collect()
    };
    let before = program.messages.len();
    program.say(&tone(700.0, 1), BOT_RATE_HZ);
    program.mark("heard");
    program.say(&tone(700.0, 10), BOT_RATE_HZ);
    program.mark("never heard");
    program.hear_message("the first mark", |message| message["name"] == "heard");
    client.wait_for_tone(700.0);
    program.interrupt();
    program.say(&tone(990.0, 3), BOT_RATE_HZ);
    program.mark("after");
    client.wait_for_tone(990.0);
    program.hear_message("the last mark", |message| message["name"] == "after");
    let reported = [("heard", true), ("never heard", false), ("after", true)];
    let reported = reported.map(|(name, played)| json!({"type": "mark", "name": name, "played": played}));
    let marks: Vec<_> = program.messages[before..]
        .iter()
        .filter(|message| message["type"] == "mark")
        .collect();
    assert_eq!(marks, reported.iter().collect::<Vec<_>>());

    client.leave();
    assert_eq!(program.end().map(|(code, _)| code), Some(1000));
    runner.wait_for_log("session ended: caller left");
}
