//! Tests of `/start` requests.

use serde_json::json;

use super::*;
use crate::telephony::named::{EXOTEL, PLIVO, TELNYX, TWILIO};
use crate::{daily, livekit};

/// Returns the plan of a runner with one bot.
fn plan(config: &Config, request: &[u8]) -> Result<StartPlan, StartRequestError> {
    super::plan(config, request).map(|(plan, bot)| {
        assert_eq!(bot, None);
        plan
    })
}

fn config(transport: Option<Transport>) -> Config {
    Config {
        transport,
        ..Config::default()
    }
}

/// Returns the body for the bot of a session of this transport.
fn body_of(config: &Config, transport: Transport, text: &str) -> Result<Value, StartRequestError> {
    plan(config, text.as_bytes()).map(|plan| {
        assert_eq!(plan.transport, transport, "{text}");
        plan.body
    })
}

fn start(text: &str) -> Result<Value, StartRequestError> {
    body_of(&config(None), Transport::WebRtc, text)
}

/// A caller asks for its session alone, by names that Pipecat's runner knows.
#[test]
fn the_request_of_a_caller_wishes_for_nothing_else() {
    for (transport, name) in [
        (Transport::WebRtc, "webrtc"),
        (Transport::Videoroom, "daily"),
        (Transport::Mediaroom, "livekit"),
        (Transport::WebSocket, "websocket"),
    ] {
        let body = start_body(transport);
        assert_eq!(
            body,
            json!({"transport": name, "createDailyRoom": false, "enableDefaultIceServers": false})
        );
        let plan = plan(&config(None), body.to_string().as_bytes()).expect("a plan");
        assert_eq!((plan.transport, plan.fields), (transport, StartFields::default()));
    }
}

#[test]
fn a_trace_reaches_the_body() {
    let with_trace = json!({"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"});
    let trace = Traceparent::of_body(&with_trace).expect("valid");
    let mut plan = plan(&config(None), b"{}").expect("a plan");
    plan.put_trace(&trace);
    assert_eq!(plan.body, with_trace);
}

/// A wish reaches the session in its body, or is refused; never ignored.
#[test]
fn the_wish_to_be_recorded_is_followed_or_refused() {
    let off = Config::default();
    let mut on = Config::default();
    on.calls.record = Some("folder".into());
    on.bot_enters_rooms = true;
    let mut listening = Config::default();
    listening.calls.listen_in = true;
    let plan_of = |config: &Config, text: &str| {
        let planned = plan(config, text.as_bytes());
        planned.map(|plan| plan.body).map_err(|error| error.to_string())
    };
    assert_eq!(plan_of(&on, r#"{"record":false}"#), Ok(json!({"record": false})));
    assert_eq!(
        plan_of(&on, r#"{"record":true,"body":{"a":1,"record":false}}"#),
        Ok(json!({"a": 1, "record": true}))
    );
    assert_eq!(plan_of(&off, r#"{"record":false,"body":[1]}"#), Ok(json!([1])));
    // It declines listening in, too.
    assert_eq!(plan_of(&listening, r#"{"record":false}"#), Ok(json!({"record": false})));
    assert_eq!(
        plan_of(&on, r#"{"record":false,"transport":"videoroom"}"#),
        Ok(json!({"record": false}))
    );
    for (config, text, why) in [
        (&off, r#"{"record":true}"#, "--record DIR"),
        (&listening, r#"{"record":true}"#, "--record DIR"),
        (&listening, r#"{"record":false,"body":[1]}"#, "no object"),
        (&on, r#"{"record":false,"body":[1]}"#, "no object"),
        (
            &on,
            r#"{"record":false,"transport":"telephony_a"}"#,
            "telephony provider",
        ),
        (
            &on,
            r#"{"record":true,"transport":"telephony_a"}"#,
            "telephony provider",
        ),
        (&on, r#"{"record":true,"transport":"videoroom"}"#, "Daily room"),
        (&on, r#"{"record":"no"}"#, "valid boolean"),
    ] {
        let error = plan_of(config, text).expect_err(text);
        assert!(error.contains(why), "{error}");
    }
}

/// R-053, R-071: an absent transport is `webrtc`, or that of `-t`; an empty body is `{}`.
#[test]
fn webrtc_is_the_default() {
    for text in [
        "",
        " \r\n",
        "{}",
        r#"{"transport":null}"#,
        r#"{"transport":"webrtc","unknown":[1]}"#,
    ] {
        assert_eq!(start(text), Ok(json!({})), "{text}");
    }
    let telephony = config(Some(Transport::Telephony(TWILIO)));
    assert_eq!(body_of(&telephony, Transport::Telephony(TWILIO), "{}"), Ok(json!({})));
    let call = plan(&telephony, b"{}").expect("a plan");
    assert_eq!(call.call_transport(&telephony), None, "its provider connects later");
    let webrtc = config(Some(Transport::WebRtc));
    assert!(plan(&webrtc, b"").is_ok());
}

/// R-058: the bot receives the body unchanged, of any type; absent and `null` mean `{}`.
#[test]
fn passes_the_body_on_unchanged() {
    for body in [
        json!({"a": [1, {"b": null}]}),
        json!([1]),
        json!("text"),
        json!(0),
        json!(false),
    ] {
        let text = json!({"transport": "webrtc", "body": body}).to_string();
        assert_eq!(start(&text), Ok(body));
    }
    assert_eq!(start(r#"{"body":null}"#), Ok(json!({})));
}

/// R-096: fields of a wrong type are listed by name, all at once.
#[test]
fn rejects_fields_of_wrong_types() {
    let text = r#"{"transport":1,"createDailyRoom":"yes","enableDefaultIceServers":1,
        "videoroomRoomProperties":[],"dailyMeetingTokenProperties":"x"}"#;
    let Err(StartRequestError::Invalid(invalid)) = start(text) else {
        panic!("taken")
    };
    let detail = invalid.detail();
    let found: Vec<(&str, &str)> = detail
        .as_array()
        .expect("a list")
        .iter()
        .map(|problem| {
            (
                problem["loc"][1].as_str().expect("a name"),
                problem["type"].as_str().expect("a type"),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("transport", "string_type"),
            ("createDailyRoom", "bool_type"),
            ("enableDefaultIceServers", "bool_type"),
            ("videoroomRoomProperties", "dict_type"),
            ("dailyMeetingTokenProperties", "dict_type"),
        ]
    );
    for text in ["[]", "null", "{", "transport=webrtc", "\u{feff}{}", "{} {}"] {
        assert!(matches!(start(text), Err(StartRequestError::Invalid(_))), "{text}");
    }
    let longest = "x".repeat(TRANSPORT_BYTES_MAX);
    let one = |name: &str| start(&json!({"transport": name}).to_string());
    assert!(matches!(one(&longest), Err(StartRequestError::Unknown { .. })));
    assert!(matches!(one(&(longest + "x")), Err(StartRequestError::Invalid(_))));
}

/// R-068: an unknown name is rejected with the allowed names.
#[test]
fn rejects_unknown_transports_with_the_allowed_ones() {
    for name in ["", "WebRTC", "carrier-pigeon", " webrtc"] {
        let refusal = start(&json!({"transport": name}).to_string()).expect_err("refused");
        assert_eq!(
            refusal,
            StartRequestError::Unknown {
                asked: name.into(),
                allowed: startable_transports(&config(None))
            }
        );
        assert_eq!(
            refusal.to_string(),
            format!(
                "transport `{name}` is unknown; allowed: webrtc, daily, livekit, twilio, telnyx, plivo, exotel, websocket"
            )
        );
    }
}

/// R-067: `-t` rejects every other transport, by name and alias, and the flag that requests a
/// room.
#[test]
fn rejects_transports_that_the_option_excludes() {
    let only = config(Some(Transport::WebRtc));
    for (text, asked) in [
        (r#"{"transport":"telephony_b"}"#, Transport::Telephony(TELNYX)),
        (r#"{"transport":"telnyx"}"#, Transport::Telephony(TELNYX)),
        (r#"{"transport":"moq"}"#, Transport::Moq),
        (r#"{"createVideoroomRoom":true}"#, Transport::Videoroom),
    ] {
        let refusal = plan(&only, text.as_bytes()).expect_err("refused");
        assert_eq!(
            refusal,
            StartRequestError::Excluded {
                asked,
                only: Transport::WebRtc
            }
        );
        assert!(refusal.to_string().contains("`webrtc` only (-t webrtc)"));
    }
}

/// R-043, R-064, R-065: one endpoint plans all transports, by canonical name and by alias.
#[test]
fn every_transport_has_a_plan_or_an_error() {
    for (names, transport) in [
        (&["videoroom", "daily"][..], Transport::Videoroom),
        (&["mediaroom", "livekit"], Transport::Mediaroom),
        (&["telephony_a", "twilio"], Transport::Telephony(TWILIO)),
        (&["telephony_b", "telnyx"], Transport::Telephony(TELNYX)),
        (&["telephony_c", "plivo"], Transport::Telephony(PLIVO)),
        (&["telephony_d", "exotel"], Transport::Telephony(EXOTEL)),
        (&["websocket"], Transport::WebSocket),
    ] {
        for name in names {
            let body = Ok(json!([1]));
            let request = json!({"transport": name, "body": [1]}).to_string();
            assert_eq!(body_of(&config(None), transport, &request), body);
            // Selected by the option, the transport has the same plan.
            let only = config(Some(transport));
            assert_eq!(body_of(&only, transport, r#"{"body": [1]}"#), body);
        }
    }
    assert_eq!(
        StartRequestError::NotInThisBuild(Transport::Moq).to_string(),
        "transport `moq` is not in this build: it needs the cargo feature `moq`"
    );
    assert!(start(r#"{"createDailyRoom":true,"transport":"webrtc"}"#).is_ok());
}

/// R-014, R-015: only `-t moq` serves it. The namespace of the request wins over the option's.
#[test]
fn the_option_selects_media_over_quic() {
    let by_option = start(r#"{"transport":"moq"}"#).expect_err("refused");
    assert_eq!(by_option, StartRequestError::ByOptionOnly(Transport::Moq));
    assert_eq!(
        by_option.to_string(),
        "transport `moq` is served only by a runner started with -t moq"
    );
    let config = config(Some(Transport::Moq));
    let namespace = |config: &Config, text: &str| {
        let plan = plan(config, text.as_bytes()).expect(text);
        assert_eq!(plan.transport, Transport::Moq, "{text}");
        (plan.fields.namespace, plan.body)
    };
    assert_eq!(namespace(&config, "{}"), (None, json!({})));
    let named = r#"{"transport":"moq","namespace":"rooms/1","body":[1]}"#;
    assert_eq!(namespace(&config, named), (Some("rooms/1".into()), json!([1])));
    assert_eq!(namespace(&config, r#"{"namespace":null}"#).0, None);
    for (namespace, kind) in [
        (json!(1), "string_type"),
        (json!(""), "string_pattern_mismatch"),
        (json!("a//b"), "string_pattern_mismatch"),
        (json!("a b"), "string_pattern_mismatch"),
        (json!("a".repeat(129)), "string_too_long"),
    ] {
        let text = json!({"namespace": namespace}).to_string();
        let Err(StartRequestError::Invalid(invalid)) = plan(&config, text.as_bytes()) else {
            panic!("{text}")
        };
        assert_eq!(invalid.detail()[0]["type"], json!(kind), "{text}");
        assert_eq!(invalid.detail()[0]["loc"], json!(["body", "namespace"]));
    }
}

/// R-030, R-054 to R-056: the flag or a configured room requests a room, with its properties.
#[test]
fn a_flag_or_the_configuration_requests_a_video_room() {
    let rooms = |config: &Config, text: &str| {
        let plan = plan(config, text.as_bytes()).expect(text);
        assert_eq!(plan.transport, Transport::Videoroom, "{text}");
        let room = plan.fields.rooms.room(&config.videoroom).cloned();
        assert_eq!(plan.call_transport(config).is_some(), room.is_some(), "{text}");
        room
    };
    let plain = config(None);
    let object = |value: Value| value.as_object().expect("an object").clone();
    let text =
        r#"{"createDailyRoom":true,"videoroomRoomProperties":{"exp":1},"dailyMeetingTokenProperties":{"a":null}}"#;
    let wanted = daily::RoomRequest {
        room: object(json!({"exp": 1})),
        token: object(json!({"a": null})),
    };
    assert_eq!(rooms(&plain, text), Some(wanted));
    assert_eq!(
        rooms(&plain, r#"{"createVideoroomRoom":true}"#),
        Some(daily::RoomRequest::default())
    );
    let unasked = r#"{"transport":"videoroom","createVideoroomRoom":false,"videoroomRoomProperties":{"exp":1}}"#;
    assert_eq!(rooms(&plain, unasked), None);
    let mut sample = config(None);
    sample.videoroom.sample_room_url = Some("https://h/s".into());
    assert_eq!(rooms(&sample, unasked), None, "a sample asks for nothing");
    let mut configured = config(None);
    configured.videoroom.room_url = Some("https://h/r".into());
    assert!(rooms(&configured, r#"{"transport":"videoroom"}"#).is_some());
    assert!(rooms(&configured, unasked).is_some());
}

/// LiveKit's front-ends name the agent; for any other transport the field means nothing.
#[test]
fn only_a_media_room_has_a_room_config() {
    let config = config(None);
    let bot_body = |text: &str| plan(&config, text.as_bytes()).map(|plan| plan.body);
    let agent = livekit::agent_name(&config.mediaroom);
    let own = json!({"agents": [{"agent_name": agent, "metadata": r#"{"lang":"en"}"#}]});
    let asked =
        |transport: &str, room_config: &Value| json!({"transport": transport, "room_config": room_config}).to_string();
    assert_eq!(bot_body(&asked("mediaroom", &own)), Ok(json!({"lang": "en"})));
    assert_eq!(bot_body(&asked("webrtc", &own)), Ok(json!({})));
    let foreign = json!({"agents": [{"agent_name": "another"}]});
    assert!(matches!(
        bot_body(&asked("mediaroom", &foreign)),
        Err(StartRequestError::Invalid(_))
    ));
    assert_eq!(bot_body(&asked("webrtc", &foreign)), Ok(json!({})));
}

/// The built-in bots cannot enter a video room.
#[test]
fn rejects_rooms_that_the_bot_cannot_join() {
    let config = Config {
        bot_enters_rooms: false,
        ..Config::default()
    };
    for body in [r#"{"transport":"daily"}"#, r#"{"createDailyRoom":true}"#] {
        let refused = plan(&config, body.as_bytes());
        assert_eq!(
            refused,
            Err(StartRequestError::BotCannotJoin(Transport::Videoroom)),
            "{body}"
        );
    }
}
