//! The exact requests, every kind of answer, and the resulting error texts.

use super::reply::{join_url, roomless_reply, start_reply};
use super::*;
use crate::aliases::StartNames;

const NOW_S: u64 = 1_795_252_753;
const RANDOM: [u8; 4] = [0x1a, 0x2b, 0x3c, 0x4d];
const KEY: &str = "canary-key";

fn config() -> Videoroom {
    Videoroom {
        key: Some(Secret::new(KEY)),
        url: "https://api.example.net/v1".into(),
        ..Videoroom::default()
    }
}

fn key() -> Secret {
    Secret::new(KEY)
}

/// Method, URL, credential and body of a request.
fn parts(request: &RestRequest) -> (&'static str, &str, &str, Value) {
    let body = request.body.as_ref().map_or(Value::Null, |body| {
        assert_eq!(body.content_type, "application/json");
        serde_json::from_slice(&body.bytes).expect("JSON")
    });
    let credential = request.authorization.as_ref().expect("a credential").expose();
    (request.method.name(), &request.url, credential, body)
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().expect("an object").clone()
}

fn plan_of(config: &Videoroom, room: Value, token: Value) -> RoomPlan {
    let wanted = RoomRequest {
        room: object(room),
        token: object(token),
    };
    plan(config, RoomPurpose::Client(&wanted), NOW_S, RANDOM).expect("a plan")
}

fn properties(plan: &RoomPlan) -> (Value, Value) {
    let RoomSource::New { create, .. } = &plan.room else {
        panic!("a new room, not {:?}", plan.room)
    };
    let body = parts(create).3;
    (body["name"].clone(), body["properties"].clone())
}

/// R-002, R-054: a room for four hours that admits people at once.
#[test]
fn a_room_is_asked_for_with_the_defaults() {
    let plan = plan_of(&config(), json!({}), json!({}));
    let RoomSource::New { create, delete } = &plan.room else {
        panic!("{:?}", plan.room)
    };
    assert_eq!(
        parts(create),
        (
            "POST",
            "https://api.example.net/v1/rooms",
            "Bearer canary-key",
            json!({"name": "bot-1a2b3c4d", "privacy": "public", "properties": {
                "exp": NOW_S + 14_400, "eject_at_room_exp": true, "enable_chat": false, "enable_prejoin_ui": false,
                "enable_emoji_reactions": false, "start_video_off": false}}),
        )
    );
    assert_eq!(
        parts(delete),
        (
            "DELETE",
            "https://api.example.net/v1/rooms/bot-1a2b3c4d",
            "Bearer canary-key",
            Value::Null
        )
    );
    let token = plan
        .token(&config(), "https://example.net/bot-1a2b3c4d")
        .expect("a name");
    assert_eq!(
        parts(&token),
        (
            "POST",
            "https://api.example.net/v1/meeting-tokens",
            "Bearer canary-key",
            json!({"properties": {"room_name": "bot-1a2b3c4d", "exp": NOW_S + 14_400, "is_owner": true,
                "eject_at_token_exp": false}}),
        )
    );
}

/// R-055: requested properties win over the defaults. Unknown ones and `null` are passed on.
#[test]
fn properties_of_a_room_are_applied() {
    let asked = json!({"start_audio_off": false, "enable_chat": true, "max_participants": 2, "new_thing": [1], "geo": null,
        "enable_recording": "cloud", "exp": 1.5, "eject_at_room_exp": false, "name": "mine", "privacy": "private"});
    let plan = plan_of(&config(), asked.clone(), json!({}));
    assert_eq!(plan.dropped, []);
    let (name, properties) = properties(&plan);
    assert_eq!(name, "bot-1a2b3c4d");
    let mut wanted = asked;
    for off in ["enable_prejoin_ui", "enable_emoji_reactions", "start_video_off"] {
        wanted[off] = json!(false);
    }
    assert_eq!(properties, wanted);
    let RoomSource::New { create, .. } = &plan.room else {
        unreachable!()
    };
    assert_eq!(parts(create).3["privacy"], "public");
}

/// A room without an expiry would cost money indefinitely.
#[test]
fn an_end_that_is_null_is_filled_in() {
    let plan = plan_of(
        &config(),
        json!({"exp": null, "eject_at_room_exp": null}),
        json!({"exp": null, "is_owner": null}),
    );
    let properties = properties(&plan).1;
    assert_eq!(properties["exp"], NOW_S + 14_400);
    assert_eq!(properties["eject_at_room_exp"], true);
    let token = plan.token(&config(), "https://h/r").expect("a name");
    let token = &parts(&token).3["properties"];
    assert_eq!(
        (&token["exp"], &token["is_owner"]),
        (&json!(NOW_S + 14_400), &json!(true))
    );
}

/// The name of a room shows whether telephones join it.
#[test]
fn a_room_with_telephones_has_a_name_of_its_own() {
    for (asked, name) in [
        (json!({"enable_dialout": true}), "bot-telephony-1a2b3c4d"),
        (json!({"enable_dialout": false}), "bot-1a2b3c4d"),
        (json!({"sip": {"sip_mode": "dial-in"}}), "bot-telephony-1a2b3c4d"),
        (json!({"sip": null}), "bot-1a2b3c4d"),
    ] {
        assert_eq!(properties(&plan_of(&config(), asked, json!({}))).0, name);
    }
}

/// R-056: every token property but the room name may be chosen. A token without a room name would
/// open every room of the account.
#[test]
fn properties_of_a_token_are_applied_but_for_the_room() {
    let asked = json!({"user_name": "Caller", "is_owner": false, "exp": 9, "room_name": "another", "x": {"y": null},
        "eject_at_token_exp": true, "nbf": null});
    let plan = plan_of(&config(), json!({}), asked.clone());
    let token = plan.token(&config(), "https://h/r/").expect("a name");
    let mut wanted = asked;
    wanted["room_name"] = json!("r");
    assert_eq!(parts(&token).3, json!({"properties": wanted}));
}

/// A wrong property does not fail the session, and its value is not repeated.
#[test]
fn properties_of_the_wrong_kind_are_dropped_and_named() {
    let plan = plan_of(
        &config(),
        json!({"exp": "soon-4711", "enable_chat": 1, "geo": 4, "enable_recording": "tape", "sip": [], "max_participants": true,
            "recordings_bucket": "b"}),
        json!({"user_name": 4711, "is_owner": "yes", "permissions": true, "enable_recording": 1}),
    );
    let words: Vec<String> = plan.dropped.iter().map(ToString::to_string).collect();
    assert_eq!(words.len(), 11, "{words:#?}");
    assert!(words.contains(&"`videoroomRoomProperties.exp` is left out: it has to be a number".to_owned()));
    assert!(
        words.contains(&"`videoroomMeetingTokenProperties.user_name` is left out: it has to be a string".to_owned())
    );
    assert!(!words.concat().contains("4711"));
    assert_eq!(properties(&plan).1["exp"], NOW_S + 14_400);
    let token = plan.token(&config(), "https://h/r").expect("a name");
    assert_eq!(parts(&token).3["properties"]["is_owner"], true);
}

/// R-028, R-030: an existing room is used unchanged; `VIDEOROOM_ROOM_URL` wins over the sample.
#[test]
fn an_existing_room_gets_a_token_only() {
    let mut config = Videoroom {
        sample_room_url: Some("https://example.net/sample".into()),
        ..config()
    };
    let existing = |config: &Videoroom| match plan_of(config, json!({}), json!({})).room {
        RoomSource::Existing(url) => url,
        new => panic!("{new:?}"),
    };
    assert_eq!(existing(&config), "https://example.net/sample");
    config.room_url = Some("https://example.net/mine".into());
    assert_eq!(existing(&config), "https://example.net/mine");
    // A call never joins a room that others use.
    let call = plan(&config, RoomPurpose::Call { from: "+1" }, NOW_S, RANDOM).expect("a plan");
    assert!(matches!(call.room, RoomSource::New { .. }));
    for wrong in [
        "",
        "example.net/mine",
        "https://example.net",
        "https://example.net/",
        "https://h/a b",
        "ftp://h/r",
    ] {
        config.room_url = Some(wrong.into());
        let refused = plan(&config, RoomPurpose::Client(&RoomRequest::default()), NOW_S, RANDOM).map(|_| ());
        assert_eq!(refused, Err(DailyError::RoomUrl), "{wrong}");
    }
}

/// R-091: the room of a call has one SIP endpoint, named after the caller's number.
#[test]
fn a_call_gets_a_room_with_an_address_of_sip() {
    let plan = plan(&config(), RoomPurpose::Call { from: "+15550001111" }, NOW_S, RANDOM).expect("a plan");
    let (name, properties) = properties(&plan);
    assert_eq!(name, "bot-telephony-1a2b3c4d");
    assert_eq!(
        properties,
        json!({"exp": NOW_S + 14_400, "eject_at_room_exp": true, "enable_chat": false, "enable_prejoin_ui": false,
            "enable_emoji_reactions": false, "start_video_off": true,
            "sip": {"display_name": "+15550001111", "video": false, "sip_mode": "dial-in", "num_endpoints": 1}})
    );
}

/// R-027: without a key there is no plan, and the error names the variable and its alias.
#[test]
fn without_a_key_there_is_no_room() {
    let refused = plan(
        &Videoroom::default(),
        RoomPurpose::Client(&RoomRequest::default()),
        NOW_S,
        RANDOM,
    );
    let words = refused.map(|_| ()).expect_err("no key").to_string();
    assert!(
        words.starts_with("VIDEOROOM_API_KEY (or DAILY_API_KEY) is not set"),
        "{words}"
    );
}

#[test]
fn the_name_of_a_room_is_the_path_of_its_url() {
    for (url, name) in [
        ("https://example.net/bot-1a2b3c4d", Some("bot-1a2b3c4d")),
        ("https://example.net/a/?t=x", Some("a")),
        ("http://127.0.0.1:9/a#b", Some("a")),
        ("https://example.net/", None),
        ("https://example.net", None),
        ("example.net/a", None),
    ] {
        assert_eq!(room_name(url), name, "{url}");
    }
}

#[test]
fn the_answer_for_a_room_is_read() {
    let body =
        br#"{"id":"5e3c","name":"bot-1a2b3c4d","api_created":true,"privacy":"public","url":"https://h/bot-1a2b3c4d",
        "config":{}}"#;
    let room = DailyRoom {
        url: "https://h/bot-1a2b3c4d".into(),
        private: false,
        sip_uri: None,
    };
    assert_eq!(parse_room(200, body, &key()), Ok(room.clone()));
    for (endpoint, uri) in [
        ("1@sip.example.net", "sip:1@sip.example.net"),
        ("sip:1@sip.example.net", "sip:1@sip.example.net"),
        ("SIP:1@sip.example.net", "SIP:1@sip.example.net"),
        ("sip.example.net", "sip:sip.example.net"),
        ("\u{e9}", "sip:\u{e9}"),
    ] {
        let body = json!({"url": "https://h/r", "privacy": "private", "config": {"sip_uri": {"endpoint": endpoint}}});
        let room = parse_room(201, body.to_string().as_bytes(), &key()).expect("a room");
        assert_eq!((room.sip_uri.as_deref(), room.private), (Some(uri), true));
    }
}

/// Values from answers reach a header and bots, so they are validated.
#[test]
fn answers_that_cannot_be_used_are_named() {
    let long = format!(r#"{{"url":"https://h/{}"}}"#, "x".repeat(VIDEOROOM_URL_BYTES_MAX));
    for (body, what) in [
        ("", "it is no JSON"),
        ("<html>", "it is no JSON"),
        ("[]", "it is no JSON object"),
        ("null", "it is no JSON object"),
        ("{}", "its `url` is missing"),
        (r#"{"url":null}"#, "its `url` is missing"),
        (r#"{"url":7}"#, "its `url` is missing"),
        (r#"{"url":"javascript:x"}"#, "its `url` is none"),
        (r#"{"url":"https://h/r\r\nSet-Cookie: a=b"}"#, "its `url` is none"),
        (&long, "its `url` is none"),
    ] {
        let refused = parse_room(200, body.as_bytes(), &key()).expect_err("unusable");
        assert_eq!(
            refused,
            DailyError::Unreadable {
                step: ApiStep::Room,
                what
            },
            "{body}"
        );
        assert!(refused.to_string().contains("VIDEOROOM_API_URL"));
    }
    let at_most = format!(r#"{{"token":"{}"}}"#, "x".repeat(VIDEOROOM_TOKEN_BYTES_MAX));
    assert!(parse_token(200, at_most.as_bytes(), &key()).is_ok());
    let past = format!(r#"{{"token":"{}"}}"#, "x".repeat(VIDEOROOM_TOKEN_BYTES_MAX + 1));
    for body in [
        "{}",
        r#"{"token":""}"#,
        r#"{"token":"a b"}"#,
        r#"{"token":null}"#,
        &past,
    ] {
        let refused = parse_token(200, body.as_bytes(), &key()).expect_err("unusable");
        assert!(
            matches!(
                refused,
                DailyError::Unreadable {
                    step: ApiStep::Token,
                    ..
                }
            ),
            "{refused}"
        );
    }
}

/// Every status has Daily's words and advice.
#[test]
fn errors_say_what_to_do() {
    for (status, body, words) in [
        (
            400,
            r#"{"error":"authorization-header-error","info":"missing or malformed"}"#,
            "making a video room: the provider answered 400 (authorization-header-error: missing or malformed); \
             VIDEOROOM_API_KEY is not one that it can read; is it whole?",
        ),
        (
            400,
            r#"{"error":"invalid-request-error","info":"unknown property 'x'"}"#,
            "making a video room: the provider answered 400 (invalid-request-error: unknown property 'x'); it does not take what \
             was asked of the room or the token",
        ),
        (
            401,
            r#"{"error":"authentication-error"}"#,
            "making a video room: the provider answered 401 (authentication-error); it does not take VIDEOROOM_API_KEY",
        ),
        (
            403,
            r#"{"error":"forbidden-error"}"#,
            "making a video room: the provider answered 403 (forbidden-error); VIDEOROOM_API_KEY does not allow it",
        ),
        (
            404,
            "gone",
            "making a video room: the provider answered 404; is VIDEOROOM_API_URL right?",
        ),
        (
            429,
            r#"{"error":"rate-limit-error","info":"slow down"}"#,
            "making a video room: the provider answered 429 (rate-limit-error: slow down); there are too many requests of this \
             account; try again later",
        ),
        (
            500,
            r#"{"error":"server-error"}"#,
            "making a video room: the provider answered 500 (server-error); it has trouble of its own; try again later",
        ),
        (
            302,
            "",
            "making a video room: the provider answered 302; a redirect, which is not followed; is VIDEOROOM_API_URL right?",
        ),
        (418, "[]", "making a video room: the provider answered 418"),
    ] {
        let refused = parse_room(status, body.as_bytes(), &key()).expect_err("refused");
        assert_eq!(refused.to_string(), words);
    }
    let token = parse_token(404, b"{}", &key()).expect_err("refused").to_string();
    assert!(
        token.starts_with("making a token for the video room: the provider answered 404; "),
        "{token}"
    );
}

/// Keys, numbers and line breaks of an answer are not repeated.
#[test]
fn words_of_the_provider_lose_what_is_not_for_people() {
    for body in [
        json!({"error": "canary-key", "info": "the key 'canary-key' of +15550001111"}),
        json!({"error": "Not A Word", "info": "canary-key"}),
        json!({"error": "x".repeat(41), "info": format!("{} \r\n\u{1b}[2J {KEY}", "y".repeat(64))}),
        json!({"error": {}, "info": ["canary-key"]}),
    ] {
        let words = parse_room(401, body.to_string().as_bytes(), &key())
            .expect_err("refused")
            .to_string();
        assert!(
            !words.contains(": canary-key") && !words.contains("'canary-key'"),
            "{words}"
        );
        assert!(
            !words.contains("5550001111") && !words.contains(char::is_control),
            "{words}"
        );
        assert!(!words.contains(&"x".repeat(41)), "{words}");
    }
}

/// R-063: room and token under the configured names, without further members.
#[test]
fn replies_have_the_names_of_the_configuration() {
    let room = DailyRoom {
        url: "https://h/r".into(),
        private: false,
        sip_uri: Some("sip:x".into()),
    };
    let reported = |names| -> Value {
        serde_json::from_slice(&start_reply(names, &room, &Secret::new("t.t"), "id")).expect("JSON")
    };
    let canonical = json!({"videoroomRoom": "https://h/r", "videoroomToken": "t.t", "sessionId": "id"});
    let alias = json!({"dailyRoom": "https://h/r", "dailyToken": "t.t", "sessionId": "id"});
    assert_eq!(reported(StartNames::Canonical), canonical);
    assert_eq!(reported(StartNames::Alias), alias);
    let mut both = object(canonical);
    both.extend(object(alias));
    assert_eq!(reported(StartNames::Both), Value::Object(both));
    assert_eq!(roomless_reply("id"), br#"{"sessionId":"id"}"#);
}

/// R-042: the URL contains the token only if joining requires it.
#[test]
fn a_browser_is_sent_into_a_private_room_with_its_token() {
    let room = |url: &str, private| DailyRoom {
        url: url.into(),
        private,
        sip_uri: None,
    };
    let token = Secret::new("a.b+c");
    assert_eq!(join_url(&room("https://h/r", false), &token), "https://h/r");
    assert_eq!(join_url(&room("https://h/r", true), &token), "https://h/r?t=a.b%2Bc");
    assert_eq!(
        join_url(&room("https://h/r?x=1", true), &token),
        "https://h/r?x=1&t=a.b%2Bc"
    );
}

/// A room must be ready before the client's timeout.
#[test]
fn a_room_comes_about_within_the_time_of_an_answer() {
    use crate::limits::{HTTP_ANSWER, HTTP_BODY, ROOM_PAUSES, ROOM_WITHIN};
    assert!(HTTP_BODY + ROOM_WITHIN < HTTP_ANSWER);
    assert!(ROOM_PAUSES.iter().sum::<std::time::Duration>() * 2 < ROOM_WITHIN);
}
