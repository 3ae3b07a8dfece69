//! Tests of the options of LiveKit rooms.

use super::*;

fn resolve(options: LiveKitOptions, transport: Option<Transport>) -> Result<Option<MediaroomWorker>, String> {
    worker(&options, &[], transport, false, &mut Vec::new()).map_err(|error| error.to_string())
}

fn registered() -> LiveKitOptions {
    LiveKitOptions {
        job_type: Some(JobType::Room),
        ..LiveKitOptions::default()
    }
}

#[test]
fn without_register_there_is_no_worker() {
    assert_eq!(resolve(LiveKitOptions::default(), None), Ok(None));
    // Another program's variable is no mistake; a typed option is.
    let named = || LiveKitOptions {
        agent_name: Some("x".into()),
        ..LiveKitOptions::default()
    };
    assert_eq!(resolve(named(), None), Ok(None));
    let error = worker(&named(), &["--agent-name"], None, false, &mut Vec::new())
        .expect_err("a usage error")
        .to_string();
    assert!(error.contains("`--agent-name` needs `--register`"), "{error}");
}

#[test]
fn names_and_load_have_defaults_and_bounds() {
    let expected = MediaroomWorker {
        job_type: JobType::Room,
        agent_name: "bot".into(),
        deployment: String::new(),
        target_load_percent: 70,
    };
    assert_eq!(resolve(registered(), None), Ok(Some(expected.clone())));
    assert_eq!(resolve(registered(), Some(Transport::Mediaroom)), Ok(Some(expected)));
    for (name, is_good) in [
        ("x".repeat(256), true),
        ("x".repeat(257), false),
        ("a\nb".into(), false),
    ] {
        let options = LiveKitOptions {
            agent_name: Some(name),
            ..registered()
        };
        assert_eq!(resolve(options, None).is_ok(), is_good);
    }
    for (name, is_good) in [
        ("x".repeat(64), true),
        ("x".repeat(65), false),
        ("a_b".into(), false),
        ("a b".into(), false),
    ] {
        let options = LiveKitOptions {
            deployment: Some(name),
            ..registered()
        };
        assert_eq!(resolve(options, None).is_ok(), is_good);
    }
    for (text, percent) in [("0.7", Some(70)), ("1", Some(100)), ("0.01", Some(1)), (".3", Some(30))] {
        assert_eq!(target_load(text).ok(), percent, "{text}");
    }
    for text in ["0", "1.01", "-1", "", "x", "NaN", "inf"] {
        assert!(target_load(text).is_err(), "{text}");
    }
}

#[test]
fn an_empty_name_is_a_choice_with_a_warning() {
    let options = LiveKitOptions {
        agent_name: Some(String::new()),
        ..registered()
    };
    let mut warnings = Vec::new();
    let worker = worker(&options, &[], None, false, &mut warnings)
        .expect("valid options")
        .expect("a worker");
    assert_eq!(worker.agent_name, "");
    assert!(
        matches!(&warnings[..], [one] if one.contains("every room")),
        "{warnings:?}"
    );
}

#[test]
fn jobs_are_for_livekit_rooms_alone() {
    let error = resolve(registered(), Some(Transport::WebRtc)).expect_err("a usage error");
    assert!(error.contains("`-t webrtc`"), "{error}");
    assert!(job_type("agent").is_err());
}

fn media(list: &[(&str, &str)]) -> Result<(Mediaroom, Vec<String>), String> {
    let own = list.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    let mut warnings = Vec::new();
    mediaroom(
        &LiveKitOptions::default(),
        &[],
        false,
        None,
        &Variables::new(own, []),
        &mut warnings,
    )
    .map(|mediaroom| (mediaroom, warnings))
    .map_err(|error| error.to_string())
}

#[test]
fn reads_every_variable_by_either_name() {
    assert_eq!(media(&[]), Ok((Mediaroom::default(), vec![])));
    assert_eq!(media(&[("MEDIAROOM_URL", "")]), Ok((Mediaroom::default(), vec![])));
    for [url, key, secret, room] in [
        [
            "MEDIAROOM_URL",
            "MEDIAROOM_API_KEY",
            "MEDIAROOM_API_SECRET",
            "MEDIAROOM_ROOM_NAME",
        ],
        [
            "LIVEKIT_URL",
            "LIVEKIT_API_KEY",
            "LIVEKIT_API_SECRET",
            "LIVEKIT_ROOM_NAME",
        ],
    ] {
        let read = media(&[
            (url, "WSS://Rooms.example/a//"),
            (key, "devkey"),
            (secret, "s3cret"),
            (room, " Küche 1 "),
        ]);
        let expected = Mediaroom {
            url: Some("wss://rooms.example/a".into()),
            key: Some("devkey".into()),
            secret: Some(Secret::new("s3cret")),
            room_name: Some("Küche 1".into()),
            ..Mediaroom::default()
        };
        assert_eq!(read, Ok((expected, vec![])));
    }
}

#[test]
fn the_livekit_url_has_one_of_four_schemes() {
    let whole = |url: &'static str| {
        [
            ("MEDIAROOM_URL", url),
            ("MEDIAROOM_API_KEY", "k"),
            ("MEDIAROOM_API_SECRET", "s"),
        ]
    };
    for url in [
        "ws://localhost:7880",
        "http://127.0.0.1:7880",
        "ws://[::1]:7880",
        "wss://a.example",
        "https://a.example",
    ] {
        let (config, warnings) = media(&whole(url)).expect("a URL");
        assert_eq!((config.url.as_deref(), warnings), (Some(url), vec![]));
    }
    for url in ["ws://192.0.2.1:7880", "http://a.example"] {
        let (config, warnings) = media(&whole(url)).expect("a URL");
        assert_eq!(config.url.as_deref(), Some(url));
        assert!(warnings[0].contains("MEDIAROOM_URL") && warnings[0].contains("in the clear"));
    }
    for bad in [
        "a.example",
        "ftp://a",
        "wss://",
        "wss://a?x=1",
        "wss://a/#b",
        "wss://a b",
        "wss:///a",
    ] {
        let message = media(&whole(bad)).expect_err("a usage error");
        assert!(
            message.contains("MEDIAROOM_URL") && message.contains("wss://HOST"),
            "{message}"
        );
    }
}

#[test]
fn warns_of_incomplete_livekit_settings() {
    for (list, parts) in [
        (
            &[("MEDIAROOM_URL", "wss://a")][..],
            &[
                "MEDIAROOM_API_KEY (or LIVEKIT_API_KEY) and MEDIAROOM_API_SECRET",
                "are missing",
            ][..],
        ),
        (
            &[("LIVEKIT_API_KEY", "hunter2"), ("LIVEKIT_API_SECRET", "hunter2")],
            &["MEDIAROOM_URL (or LIVEKIT_URL) is missing"],
        ),
    ] {
        let (_, warnings) = media(list).expect("no usage error");
        let [warning] = &warnings[..] else {
            panic!("{warnings:?}")
        };
        for part in parts {
            assert!(warning.contains(part), "{part} in {warning}");
        }
        assert!(!warning.contains("hunter2"));
    }
    // A room name by itself needs no other setting.
    assert_eq!(
        media(&[("MEDIAROOM_ROOM_NAME", "r")]).expect("no usage error").1,
        [""; 0]
    );
}

#[test]
fn rejects_a_room_name_above_the_cap() {
    let longest = "ü".repeat(128);
    let (config, _) = media(&[("MEDIAROOM_ROOM_NAME", &longest)]).expect("a name");
    assert_eq!(config.room_name.as_ref(), Some(&longest));
    let message = media(&[("LIVEKIT_ROOM_NAME", &(longest + "x"))]).expect_err("a usage error");
    assert!(
        message.contains("LIVEKIT_ROOM_NAME") && message.contains("256 bytes"),
        "{message}"
    );
}

/// An error names the variable without its value, which may be a secret.
#[test]
fn errors_do_not_contain_keys() {
    for (name, value) in [
        ("MEDIAROOM_API_KEY", "hunter2\tx"),
        ("LIVEKIT_API_SECRET", "hunter2 x"),
        ("MEDIAROOM_URL", "wss://u:hunter2@a"),
    ] {
        let message = media(&[(name, value)]).expect_err("a usage error");
        assert!(message.contains(name) && !message.contains("hunter2"), "{message}");
    }
}
