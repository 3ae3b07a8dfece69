//! Tests of the arguments and messages of programs.

use super::*;

fn common(body: &Value) -> CommonArguments<'_> {
    CommonArguments {
        session_id: "1b9d",
        body,
        handle_sigint: false,
        handle_sigterm: true,
        idle_timeout_s: 300,
        is_recorded: false,
        allows_listening: false,
        media_url: Some("ws://127.0.0.1:9/t"),
        uploads: None,
    }
}

fn parsed(common: &CommonArguments<'_>, kind: &KindArguments<'_>) -> Value {
    let text = arguments(common, kind).expect("the arguments fit");
    serde_json::from_str(&text).expect("the arguments are JSON")
}

/// R-016 to R-024: every kind has the common members and its own, and none of other kinds.
#[test]
fn each_kind_has_its_own_members_only() {
    let body = json!({"user": "ann", "none": null});
    let mut expected = json!({
        "kind": "webrtc", "session_id": "1b9d", "body": {"user": "ann", "none": null}, "handle_sigint": false,
        "handle_sigterm": true, "idle_timeout": 300, "webrtc_connection": {"pc_id": "p1"},
        "media_url": "ws://127.0.0.1:9/t",
    });
    let webrtc = |call_data| KindArguments::WebRtc { pc_id: "p1", call_data };
    assert_eq!(parsed(&common(&body), &webrtc(None)), expected);
    let via = json!({"via": "messaging"});
    assert_eq!(parsed(&common(&body), &webrtc(Some(&via)))["call_data"], via);

    let call_data = json!({"call_id": "c", "from": null});
    let call = KindArguments::WebSocket {
        path: "/ws",
        transport_type: "telephony_a",
        call_data: Some(&call_data),
        eval: None,
    };
    let fields = expected.as_object_mut().expect("an object");
    fields.remove("webrtc_connection");
    fields.insert("kind".into(), "websocket".into());
    fields.insert("websocket".into(), json!({"path": "/ws"}));
    fields.insert("transport_type".into(), "telephony_a".into());
    fields.insert("call_data".into(), call_data.clone());
    assert_eq!(parsed(&common(&body), &call), expected);

    let plain = KindArguments::WebSocket {
        path: "/ws-client",
        transport_type: "websocket",
        call_data: None,
        eval: None,
    };
    assert!(parsed(&common(&body), &plain).get("call_data").is_none());
    let flags = json!({"skip_tts": true});
    let eval = KindArguments::WebSocket {
        path: "/ws",
        transport_type: "websocket",
        call_data: None,
        eval: Some(&flags),
    };
    let eval = parsed(&common(&body), &eval);
    assert_eq!(
        (&eval["transport_type"], &eval["call_data"]["body"]),
        (&json!("eval"), &flags)
    );

    let moq = KindArguments::Moq {
        relay_url: "https://localhost:4080/moq",
        namespace: "pipecat-0123456789abcdef",
        bot_id: "response",
        client_id: "request",
        serve: true,
    };
    assert_eq!(
        parsed(&common(&body), &moq),
        json!({
            "kind": "moq", "session_id": "1b9d", "body": {"user": "ann", "none": null}, "handle_sigint": false,
            "handle_sigterm": true, "idle_timeout": 300, "relay_url": "https://localhost:4080/moq",
            "namespace": "pipecat-0123456789abcdef", "bot_id": "response", "client_id": "request", "serve": true,
            "media_url": "ws://127.0.0.1:9/t",
        })
    );

    let recorded = CommonArguments {
        is_recorded: true,
        ..common(&body)
    };
    assert_eq!(parsed(&recorded, &KindArguments::Base)["recorded"], true);
    let tapped = CommonArguments {
        allows_listening: true,
        ..common(&body)
    };
    assert_eq!(parsed(&tapped, &KindArguments::Base)["listen_in"], true);
    let with_uploads = CommonArguments {
        uploads: Some((Path::new("/srv/in"), 10)),
        ..common(&body)
    };
    assert_eq!(
        parsed(&with_uploads, &KindArguments::Base)["uploads"],
        json!({"folder": "/srv/in", "max_files": 10})
    );
    let alone = CommonArguments {
        media_url: None,
        ..common(&body)
    };
    assert_eq!(
        parsed(&alone, &KindArguments::Base),
        json!({
            "kind": "base", "session_id": "1b9d", "body": {"user": "ann", "none": null}, "handle_sigint": false,
            "handle_sigterm": true, "idle_timeout": 300,
        })
    );
}

#[test]
fn only_a_first_argument_that_names_a_script_is_one() {
    let of = |arguments: &[&str]| {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        script(&arguments).map(|found| found.to_string_lossy().into_owned())
    };
    assert_eq!(of(&["bots/hello.py", "--key", "k"]).as_deref(), Some("bots/hello.py"));
    for other in [
        &[][..],
        &["-m", "bot.py"],
        &["run", "bot.py"],
        &["-x.py"],
        &["secret"],
        &["py"],
    ] {
        assert_eq!(of(other), None, "{other:?}");
    }
}

/// Arguments at the limit are accepted, one byte more is rejected. A variable cannot contain a
/// NUL.
#[test]
fn arguments_fit_into_an_environment_variable() {
    let empty = arguments(&common(&"".into()), &KindArguments::Base)
        .expect("short")
        .len();
    let fits: Value = "x".repeat(PROCESS_ARGUMENTS_BYTES_MAX - empty).into();
    let text = arguments(&common(&fits), &KindArguments::Base).expect("at the limit");
    assert_eq!(text.len(), PROCESS_ARGUMENTS_BYTES_MAX);
    let long: Value = "x".repeat(PROCESS_ARGUMENTS_BYTES_MAX - empty + 1).into();
    let refused = arguments(&common(&long), &KindArguments::Base).expect_err("past the limit");
    assert_eq!(refused.bytes, PROCESS_ARGUMENTS_BYTES_MAX + 1);

    let nul = arguments(&common(&"a\0b".into()), &KindArguments::Base).expect("short");
    assert!(!nul.contains('\0') && nul.contains("a\\u0000b"));
}

#[test]
fn a_request_is_a_message_without_a_label() {
    let call = |request| Some(ProgramRequest::Call(request));
    let transfer = |after_speech| {
        call(CallRequest::Transfer {
            to: "+15550001111".to_owned(),
            after_speech,
        })
    };
    for (text, request) in [
        (
            r#"{"type":"mark","name":"a \"b\""}"#,
            Some(ProgramRequest::Mark("a \"b\"".to_owned())),
        ),
        (
            r#"{"name":"m","more":[1],"type":"mark"}"#,
            Some(ProgramRequest::Mark("m".to_owned())),
        ),
        (
            r#"{"type":"hang-up","reason":"done"}"#,
            Some(ProgramRequest::HangUp("done".to_owned())),
        ),
        (r#"{"type":"hang-up"}"#, Some(ProgramRequest::HangUp(String::new()))),
        (r#"{"type":"transfer","to":"+15550001111"}"#, transfer(true)),
        (
            r#"{"type":"transfer","to":"+15550001111","after_speech":true}"#,
            transfer(true),
        ),
        (
            r#"{"type":"transfer","to":"+15550001111","after_speech":false}"#,
            transfer(false),
        ),
        (
            r#"{"type":"speak","text":"Press 1."}"#,
            Some(ProgramRequest::Speak("Press 1.".to_owned())),
        ),
        (
            r#"{"type":"keys","keys":"12#"}"#,
            call(CallRequest::Keys("12#".to_owned())),
        ),
    ] {
        assert!(parse_request(text) == request, "{text}");
    }
    for other in [
        r#"{"label":"rtvi-ai","type":"mark","name":"m"}"#,
        r#"{"label":"rtvi-ai","type":"hang-up"}"#,
        r#"{"type":"mark"}"#,
        r#"{"type":"mark","name":7}"#,
        r#"{"type":"remark","name":"m"}"#,
        r#"{"type":"transfer"}"#,
        r#"{"type":"transfer","to":"+15550001111","after_speech":"no"}"#,
        r#"{"type":"keys","keys":[1]}"#,
        r#"{"type":"speak"}"#,
        r#"["mark"]"#,
        "mark",
        "",
    ] {
        assert!(parse_request(other).is_none(), "{other}");
    }
    let keys = CallRequest::Keys("1".to_owned());
    assert!(!keys.cuts_speech());
    for (to, after_speech, cuts) in [
        ("+15550001111", false, true),
        ("+15550001111", true, false),
        ("the desk", false, false),
    ] {
        let to = to.to_owned();
        assert_eq!(CallRequest::Transfer { to, after_speech }.cuts_speech(), cuts);
    }
    assert_eq!(call_answer(&keys, &Ok(())), r#"{"done":true,"type":"keys"}"#);
}

#[test]
fn messages_for_the_bot_are_json() {
    assert_eq!(dtmf('7'), r#"{"digit":"7","type":"dtmf"}"#);
    let back: Value = serde_json::from_str(&mark("a\"\n", false)).expect("JSON");
    assert_eq!(back, json!({"type": "mark", "name": "a\"\n", "played": false}));

    let read = |text: String| -> Value { serde_json::from_str(&text).expect("JSON") };
    let ann = Participant {
        identity: "User-1\"".into(),
        name: "Ann".into(),
        ..Participant::default()
    };
    assert_eq!(
        read(participant(&ann, true)),
        json!({"type": "participant-joined", "identity": "User-1\"", "name": "Ann", "agent": false, "telephone": false, "attributes": {}})
    );
    assert_eq!(read(participant(&ann, false))["type"], "participant-left");
    let phone = Participant {
        is_telephone: true,
        attributes: [("sip.phoneNumber".to_owned(), "+15550001111".to_owned())].into(),
        ..ann
    };
    let changed = read(participant_changed(&phone));
    assert_eq!(
        (&changed["type"], &changed["call_data"]["from"]),
        (&json!("participant-changed"), &json!("+15550001111"))
    );
    let by = read(answered_by(AnsweredBy::Machine));
    assert_eq!(by, json!({"type": "answered-by", "by": "machine"}));
    assert_eq!(read(muted(true)), json!({"type": "muted", "muted": true}));
    assert_eq!(
        read(speaking("User-1", true)),
        json!({"type": "speaking", "identity": "User-1", "speaking": true})
    );
    assert_eq!(
        read(join_failed("401: wrong")),
        json!({"type": "join-failed", "error": "401: wrong"})
    );
}
