//! Tests of `/start` requests.

use super::*;
use crate::telephony::named::{EXOTEL, PLIVO, TELNYX, TWILIO};

/// Returns the plan of a runner with one bot.
fn plan<'c>(config: &'c Config, request: &[u8]) -> Result<StartPlan<'c>, StartRequestError> {
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

fn start(text: &str) -> Result<(Value, Vec<IceServer>), StartRequestError> {
    let config = config(None);
    plan(&config, text.as_bytes()).map(|plan| match plan {
        StartPlan::Register { body, ice_servers } => (body, ice_servers.into_owned()),
        other => panic!("WebRTC was asked for, not {other:?}"),
    })
}

#[test]
fn a_trace_reaches_the_body_of_every_plan() {
    let with_trace = json!({"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"});
    let trace = Traceparent::of_body(&with_trace).expect("valid");
    let body = || json!({});
    for mut plan in [
        StartPlan::Register {
            body: body(),
            ice_servers: Cow::default(),
        },
        StartPlan::Socket {
            family: SocketKind::Client,
            body: body(),
        },
        StartPlan::Videoroom {
            room: None,
            body: body(),
        },
        StartPlan::Mediaroom { body: body() },
        StartPlan::Moq {
            namespace: None,
            body: body(),
        },
    ] {
        plan.put_trace(&trace);
        let (StartPlan::Register { body, .. }
        | StartPlan::Socket { body, .. }
        | StartPlan::Videoroom { body, .. }
        | StartPlan::Mediaroom { body }
        | StartPlan::Moq { body, .. }) = plan;
        assert_eq!(body, with_trace);
    }
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
    let plan_of = |config: &Config, text: &str| match plan(config, text.as_bytes()) {
        Ok(StartPlan::Register { body, .. } | StartPlan::Socket { body, .. } | StartPlan::Videoroom { body, .. }) => {
            Ok(body)
        }
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
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
        assert_eq!(start(text), Ok((json!({}), Vec::new())), "{text}");
    }
    let telephony = config(Some(Transport::Telephony(TWILIO)));
    assert_eq!(
        plan(&telephony, b"{}"),
        Ok(StartPlan::Socket {
            family: SocketKind::Call,
            body: json!({})
        })
    );
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
        assert_eq!(start(&text), Ok((body, Vec::new())));
    }
    assert_eq!(start(r#"{"body":null}"#), Ok((json!({}), Vec::new())));
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
    let body = || json!([1]);
    let plan_for = |transport| match transport {
        Transport::Videoroom => StartPlan::Videoroom {
            room: None,
            body: body(),
        },
        Transport::Mediaroom => StartPlan::Mediaroom { body: body() },
        Transport::WebSocket => StartPlan::Socket {
            family: SocketKind::Client,
            body: body(),
        },
        _ => StartPlan::Socket {
            family: SocketKind::Call,
            body: body(),
        },
    };
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
            let expected = Ok(plan_for(transport));
            let request = json!({"transport": name, "body": [1]}).to_string();
            assert_eq!(plan(&config(None), request.as_bytes()), expected);
            // Selected by the option, the transport has the same plan.
            assert_eq!(plan(&config(Some(transport)), br#"{"body": [1]}"#), expected);
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
    let mut config = config(Some(Transport::Moq));
    let namespace = |config: &Config, text: &str| match plan(config, text.as_bytes()) {
        Ok(StartPlan::Moq { namespace, body }) => (namespace, body),
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(namespace(&config, "{}"), (None, json!({})));
    let named = r#"{"transport":"moq","namespace":"rooms/1","body":[1]}"#;
    assert_eq!(namespace(&config, named), (Some("rooms/1".into()), json!([1])));
    config.moq.namespace = Some("fixed".into());
    assert_eq!(namespace(&config, r#"{"namespace":null}"#).0.as_deref(), Some("fixed"));
    assert_eq!(namespace(&config, named).0.as_deref(), Some("rooms/1"));
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
    let rooms = |config: &Config, text: &str| match plan(config, text.as_bytes()) {
        Ok(StartPlan::Videoroom { room, .. }) => room,
        other => panic!("{text}: {other:?}"),
    };
    let plain = config(None);
    let object = |value: Value| value.as_object().expect("an object").clone();
    let text =
        r#"{"createDailyRoom":true,"videoroomRoomProperties":{"exp":1},"dailyMeetingTokenProperties":{"a":null}}"#;
    let wanted = RoomRequest {
        room: object(json!({"exp": 1})),
        token: object(json!({"a": null})),
    };
    assert_eq!(rooms(&plain, text), Some(wanted));
    assert_eq!(
        rooms(&plain, r#"{"createVideoroomRoom":true}"#),
        Some(RoomRequest::default())
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
    let bot_body = |text: &str| match plan(&config, text.as_bytes()) {
        Ok(StartPlan::Mediaroom { body } | StartPlan::Register { body, .. }) => Ok(body),
        Ok(other) => panic!("{text}: {other:?}"),
        Err(refusal) => Err(refusal),
    };
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

/// R-064, R-065: the URL is the public one, or the one that the client used; absent values are
/// omitted.
#[test]
fn returns_the_url_of_the_websocket() {
    let mut config = config(None);
    let asked = |secure| RequestBase {
        host: "board.local:7860",
        secure,
    };
    let url = |config: &Config, secure, family| socket_url(config, asked(secure), family, None);
    assert_eq!(
        url(&config, false, SocketKind::Client),
        "ws://board.local:7860/ws-client"
    );
    assert_eq!(
        url(&config, true, SocketKind::Client),
        "wss://board.local:7860/ws-client"
    );
    assert_eq!(url(&config, false, SocketKind::Call), "ws://board.local:7860/ws");
    config.proxy = Some("bots.example.net".into());
    assert_eq!(url(&config, false, SocketKind::Call), "wss://bots.example.net/ws");
    let reply = |id, token| -> Value {
        serde_json::from_slice(&socket_reply("ws://h/ws-client", id, token)).expect("a reply is JSON")
    };
    assert_eq!(reply(None, None), json!({"wsUrl": "ws://h/ws-client"}));
    assert_eq!(
        reply(Some("S"), Some("T")),
        json!({"wsUrl": "ws://h/ws-client", "sessionId": "S", "token": "T"})
    );
}

/// R-057, R-060, R-061, R-081: configured servers take precedence over the one that a client
/// requests.
#[test]
fn ice_servers_come_from_the_configuration_first() {
    let asking = br#"{"enableDefaultIceServers":true}"#;
    let mut config = config(None);
    let reply = |config: &Config, request: &[u8]| -> Value {
        let Ok(StartPlan::Register { ice_servers, .. }) = plan(config, request) else {
            panic!("refused")
        };
        serde_json::from_slice(&webrtc_reply("S", &ice_servers)).expect("a reply is JSON")
    };
    assert_eq!(reply(&config, b"{}"), json!({"sessionId": "S"}));
    assert_eq!(
        reply(&config, asking),
        json!({"sessionId": "S", "iceConfig": {"iceServers": [{"urls": ["stun:stun.l.google.com:19302"]}]}})
    );
    config.ice_servers =
        ice::parse([r#"{"urls":"turn:t","username":"u","credential":"c"}"#, "stun:s"]).expect("a valid list");
    for request in [&b"{}"[..], asking] {
        assert_eq!(
            reply(&config, request),
            json!({"sessionId": "S", "iceConfig": {"iceServers": [
                {"urls": ["turn:t"], "username": "u", "credential": "c"},
                {"urls": ["stun:s"]},
            ]}})
        );
    }
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
