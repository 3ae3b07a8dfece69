//! `/start` for LiveKit rooms: the reply, the bot's arguments, and refusals.

use super::*;
use crate::config::{Mediaroom, Secret};
use data_encoding::BASE64URL_NOPAD;

fn mediaroom() -> Mediaroom {
    Mediaroom {
        url: Some("wss://media.example.net".into()),
        key: Some("devkey".into()),
        secret: Some(Secret::new("a secret that is never shown")),
        ..Mediaroom::default()
    }
}

async fn runner(mediaroom: Mediaroom) -> Runner {
    let config = crate::proto::config! { mediaroom: mediaroom, ..config() };
    Runner::with(config, ConnLimits::default()).await
}

fn claims(token: &Value) -> Value {
    let claims = token
        .as_str()
        .and_then(|token| token.split('.').nth(1))
        .expect("a token");
    serde_json::from_slice(&BASE64URL_NOPAD.decode(claims.as_bytes()).expect("base64url")).expect("JSON")
}

/// R-011, R-022, R-032, R-068: the reply leads the caller to the bot's room, under either name of
/// the transport.
#[tokio::test]
async fn a_media_room_is_started() {
    let runner = runner(mediaroom()).await;
    for transport in ["mediaroom", "livekit"] {
        let reply = runner
            .post("/start", json!({"transport": transport, "body": {"lang": "en"}}))
            .await;
        assert_eq!(reply.status, 200);
        let reply: Value = serde_json::from_slice(&reply.body).expect("JSON");
        let begun = runner.begun().await;
        let (session_id, body) = begun.given();
        assert_eq!((&reply["sessionId"], body), (&json!(session_id), json!({"lang": "en"})));
        assert_eq!(reply["url"], "wss://media.example.net");
        let user = claims(&reply["token"]);
        let (id, _) = session_id.split_at(8);
        assert_eq!(user["sub"], format!("User-{id}"));
        assert_eq!(user["video"]["room"], reply["roomName"]);
        assert!(user["video"].get("agent").is_none());
        let bot = claims(&json!(begun.token));
        assert_eq!(
            (&bot["sub"], &bot["video"]["agent"]),
            (&json!(format!("Agent-{id}")), &json!(true))
        );
        assert_eq!(bot["video"]["room"], reply["roomName"]);
        assert!(reply["roomName"].as_str().expect("a name").starts_with("room-"));
        assert_eq!(
            (&reply["server_url"], &reply["participant_token"]),
            (&reply["url"], &reply["token"])
        );
        assert_eq!(reply.as_object().expect("an object").len(), 6);
    }
}

/// The request of LiveKit's front-ends: the agent that it names is that of the runner, and gets the
/// metadata as its body. No bot starts for another agent.
#[tokio::test]
async fn a_media_room_is_started_for_the_agent_of_the_runner() {
    let runner = runner(mediaroom()).await;
    let ask = |agent: &str| {
        let agents = json!([{"agentName": agent, "metadata": r#"{"lang":"fr"}"#}]);
        json!({"transport": "mediaroom", "participant_identity": "x", "roomConfig": {"agents": agents}})
    };
    let reply = runner.post("/start", ask("other")).await;
    assert_eq!(reply.status, 422);
    let detail: Value = serde_json::from_slice(&reply.body).expect("JSON");
    assert_eq!(detail["detail"][0]["loc"], json!(["body", "room_config"]));
    let reply = runner.post("/start", ask("bot")).await;
    assert_eq!(reply.status, 200);
    let reply: Value = serde_json::from_slice(&reply.body).expect("JSON");
    let begun = runner.begun().await;
    let (session_id, body) = begun.given();
    assert_eq!((&reply["sessionId"], body), (&json!(session_id), json!({"lang": "fr"})));
    assert!(
        claims(&reply["participant_token"])["sub"]
            .as_str()
            .expect("a name")
            .starts_with("User-")
    );
}

/// R-032: a configured room serves all sessions, with separate identities.
#[tokio::test]
async fn one_room_may_be_everybodys() {
    let runner = runner(Mediaroom {
        room_name: Some("team-room".into()),
        ..mediaroom()
    })
    .await;
    let mut names = Vec::new();
    for _ in 0..2 {
        let reply = runner.post("/start", json!({"transport": "mediaroom"})).await;
        let reply: Value = serde_json::from_slice(&reply.body).expect("JSON");
        assert_eq!(reply["roomName"], "team-room");
        names.push(claims(&reply["token"])["sub"].clone());
    }
    assert_ne!(names[0], names[1]);
}

/// R-031: without its variables the transport is refused, the missing ones are named, and no bot
/// starts.
#[tokio::test]
async fn a_media_room_without_its_variables_is_refused() {
    let runner = runner(Mediaroom {
        key: Some("devkey".into()),
        ..Mediaroom::default()
    })
    .await;
    let reply = runner.post("/start", json!({"transport": "mediaroom"})).await;
    assert_eq!(reply.status, 500);
    let reply: Value = serde_json::from_slice(&reply.body).expect("JSON");
    let detail = reply["detail"].as_str().expect("a detail");
    assert!(
        detail.ends_with("not set: MEDIAROOM_URL (or LIVEKIT_URL), MEDIAROOM_API_SECRET (or LIVEKIT_API_SECRET)"),
        "{detail}"
    );
    assert_eq!(runner.live.count(), 0);
}

/// A runner that is full or stopping starts nothing.
#[tokio::test]
async fn a_full_runner_starts_no_media_room() {
    let runner = runner(mediaroom()).await;
    let full = runner.fill();
    let reply = runner.post("/start", json!({"transport": "mediaroom"})).await;
    assert_eq!(reply.status, 503);
    drop(full);
    runner.sessions.close();
    let reply = runner.post("/start", json!({"transport": "mediaroom"})).await;
    assert_eq!(reply.status, 503);
    assert_eq!(runner.live.count(), 0);
}
