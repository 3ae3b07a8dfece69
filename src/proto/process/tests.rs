//! Tests of the arguments and messages of programs.

use super::*;
use crate::answered_by::AnsweredBy;
use crate::event::LeaveReason;

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

fn parsed(common: &CommonArguments<'_>, kind: KindArguments) -> Value {
    let text = arguments(common, kind).expect("the arguments fit");
    serde_json::from_str(&text).expect("the arguments are JSON")
}

/// R-016 to R-024: every kind has the common members and its own.
#[test]
fn a_kind_adds_its_members_to_the_common_ones() {
    let body = json!({"user": "ann", "none": null});
    let expected = json!({
        "kind": "x", "session_id": "1b9d", "body": {"user": "ann", "none": null}, "handle_sigint": false,
        "handle_sigterm": true, "idle_timeout": 300, "token": "t", "media_url": "ws://127.0.0.1:9/t",
    });
    let kind = KindArguments {
        name: "x",
        fields: vec![("token", Some("t".into())), ("job", None)],
    };
    assert_eq!(parsed(&common(&body), kind), expected);

    let recorded = CommonArguments {
        is_recorded: true,
        ..common(&body)
    };
    assert_eq!(parsed(&recorded, KindArguments::BASE)["recorded"], true);
    let tapped = CommonArguments {
        allows_listening: true,
        ..common(&body)
    };
    assert_eq!(parsed(&tapped, KindArguments::BASE)["listen_in"], true);
    let with_uploads = CommonArguments {
        uploads: Some((Path::new("/srv/in"), 10)),
        ..common(&body)
    };
    assert_eq!(
        parsed(&with_uploads, KindArguments::BASE)["uploads"],
        json!({"folder": "/srv/in", "max_files": 10})
    );
    let alone = CommonArguments {
        media_url: None,
        ..common(&body)
    };
    assert_eq!(
        parsed(&alone, KindArguments::BASE),
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
    let empty = arguments(&common(&"".into()), KindArguments::BASE)
        .expect("short")
        .len();
    let fits: Value = "x".repeat(PROCESS_ARGUMENTS_BYTES_MAX - empty).into();
    let text = arguments(&common(&fits), KindArguments::BASE).expect("at the limit");
    assert_eq!(text.len(), PROCESS_ARGUMENTS_BYTES_MAX);
    let long: Value = "x".repeat(PROCESS_ARGUMENTS_BYTES_MAX - empty + 1).into();
    let refused = arguments(&common(&long), KindArguments::BASE).expect_err("past the limit");
    assert_eq!(refused.bytes, PROCESS_ARGUMENTS_BYTES_MAX + 1);

    let nul = arguments(&common(&"a\0b".into()), KindArguments::BASE).expect("short");
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
    let text = |event: SessionEvent| event_message(event).expect("a message");
    assert_eq!(text(SessionEvent::Dtmf('7')), r#"{"digit":"7","type":"dtmf"}"#);
    assert_eq!(text(SessionEvent::Held), r#"{"type":"held"}"#);
    assert_eq!(text(SessionEvent::Resumed), r#"{"type":"resumed"}"#);
    assert_eq!(text(SessionEvent::Message("{}x".into())), "{}x", "unchanged");
    let back: Value = serde_json::from_str(&mark("a\"\n", false)).expect("JSON");
    assert_eq!(back, json!({"type": "mark", "name": "a\"\n", "played": false}));

    let read = |event: SessionEvent| -> Value { serde_json::from_str(&text(event)).expect("JSON") };
    let ann = Participant {
        identity: "User-1\"".into(),
        name: "Ann".into(),
        ..Participant::default()
    };
    assert_eq!(
        read(SessionEvent::ParticipantJoined(ann.clone())),
        json!({"type": "participant-joined", "identity": "User-1\"", "name": "Ann", "agent": false, "telephone": false, "attributes": {}})
    );
    assert_eq!(
        read(SessionEvent::ParticipantLeft(ann.clone()))["type"],
        "participant-left"
    );
    let phone = Participant {
        is_telephone: true,
        attributes: [("sip.phoneNumber".to_owned(), "+15550001111".to_owned())].into(),
        ..ann
    };
    let changed = read(SessionEvent::ParticipantChanged(phone));
    assert_eq!(
        (&changed["type"], &changed["call_data"]["from"]),
        (&json!("participant-changed"), &json!("+15550001111"))
    );
    let by = read(SessionEvent::AnsweredBy(AnsweredBy::Machine));
    assert_eq!(by, json!({"type": "answered-by", "by": "machine"}));
    assert_eq!(read(SessionEvent::Muted(true)), json!({"type": "muted", "muted": true}));
    assert_eq!(
        read(SessionEvent::Speaking {
            identity: "User-1".into(),
            speaking: true
        }),
        json!({"type": "speaking", "identity": "User-1", "speaking": true})
    );
    assert_eq!(
        read(SessionEvent::JoinFailed("401: wrong".into())),
        json!({"type": "join-failed", "error": "401: wrong"})
    );
    for event in [SessionEvent::Lost, SessionEvent::Left(LeaveReason::Left)] {
        assert_eq!(event_message(event), None);
    }
}
