//! Canaries of Daily rooms: the API key, the meeting tokens, and the numbers of dial-in callers.

use serde_json::{Value, json};

use super::{ARGUMENT, DIALIN_HMAC, VIDEOROOM_KEY, WRONG_KEY, Watched};
use crate::support::program::{BotProcess, SLEEPING_COMMAND};
use crate::support::provider::{FROM, TO};
use crate::support::rest::{RecordedRequest, Rest, ScriptedAnswer};

const MEETING: &str = "canary.token.of-a-meeting-9c1d";

/// A provider that repeats requests in its errors, and creates rooms except for the rejected names.
fn provider(asked: &RecordedRequest, refuses: bool) -> ScriptedAnswer {
    let body: Value = serde_json::from_str(&asked.body).unwrap_or_default();
    if refuses {
        let echo = json!({"error": VIDEOROOM_KEY, "info": format!("{VIDEOROOM_KEY} Bearer {VIDEOROOM_KEY}, {FROM} {}", asked.body)});
        return ScriptedAnswer::Json(401, echo.to_string());
    }
    match asked.target.as_str() {
        "/rooms" => ScriptedAnswer::Json(
            200,
            json!({"url": format!("https://h/{}", body["name"].as_str().unwrap_or("x"))}).to_string(),
        ),
        "/meeting-tokens" => ScriptedAnswer::Json(200, json!({"token": MEETING}).to_string()),
        _ => ScriptedAnswer::Json(200, "{}".into()),
    }
}

/// Clients, browsers and telephones, at the highest log level.
#[test]
fn no_canary_leaks_from_daily_rooms() {
    for refuses in [false, true] {
        let api = Rest::playing(move |_, asked| provider(asked, refuses));
        let url = api.url();
        let options = ["--dialin", "-vvv", "--", "/bin/sh", "-c", SLEEPING_COMMAND, ARGUMENT];
        let mut watched = Watched::start(&options, &[("VIDEOROOM_API_URL", &url)], None);
        watched.secrets.push(MEETING.to_owned());
        let hook = "/videoroom-dialin-webhook";
        let call = json!({"From": FROM, "To": TO, "callId": "c", "callDomain": "d"}).to_string();
        let signature = format!("X-Pinless-Signature: {DIALIN_HMAC}");
        let time = "X-Pinless-Timestamp: 1795252753000";
        let key = format!("Authorization: Bearer {WRONG_KEY}");
        watched.ask("POST", hook, &[&key], &call, &[]);
        watched.ask("POST", hook, &[&signature, time], &call, &[]);
        watched.ask("POST", hook, &[], &format!("{{\"From\": \"{FROM}\", "), &[]);
        let properties = json!({"sip": FROM, "exp": VIDEOROOM_KEY, "enable_chat": VIDEOROOM_KEY});
        let start = json!({"createDailyRoom": true, "dailyRoomProperties": properties, "body": {"key": VIDEOROOM_KEY}});
        let reply = watched.ask("POST", "/start", &[], &start.to_string(), &[MEETING]);
        assert_eq!(reply.status, if refuses { 500 } else { 200 }, "{}", reply.text());
        let reply = watched.ask("GET", "/videoroom", &[], "", &[]);
        assert_eq!(reply.status, if refuses { 500 } else { 307 }, "{}", reply.text());
        if !refuses {
            let started = BotProcess::of(&watched.runner, |arguments| arguments["body"]["key"] == VIDEOROOM_KEY);
            assert_eq!(started.arguments["token"], MEETING);
        }
        let wanted = if refuses { "500 POST /start" } else { "session ended: " };
        watched.end(&[wanted, "invalid signature"]);
    }
}
