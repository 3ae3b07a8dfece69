//! Tests outbound messages as JSON, and the handling of all inbound messages.

use serde_json::{Value, json};

use super::*;
use crate::limits::{RTVI_DTMF_KEYS_MAX, RTVI_ECHO_CHARS_MAX, RTVI_ID_BYTES_MAX, RTVI_REASON_CHARS_MAX};

fn envelope(kind: &str, data: Value) -> String {
    json!({"label": "rtvi-ai", "type": kind, "id": "1a", "data": data}).to_string()
}

fn request(kind: &str, data: Value) -> Request {
    let message = parse(&envelope(kind, data)).expect("a good message");
    assert_eq!(message.id, "1a");
    message.request
}

/// Returns the reply to a rejected message.
fn refused(text: &str) -> Value {
    let reply = parse(text).expect_err("a bad message").reply().expect("a reply");
    serde_json::from_str(&reply).expect("JSON")
}

fn sent(message: &ToClient<'_>) -> Value {
    let text = message.text();
    let mut value: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(value["label"].take(), "rtvi-ai");
    assert_eq!(value.get("id"), None, "only answers have an id");
    value.as_object_mut().map(|fields| fields.remove("label"));
    value
}

#[test]
fn parses_the_first_message_of_the_stock_client() {
    let text = r#"{"label":"rtvi-ai","type":"client-ready","id":"d2d923ea",
        "data":{"version":"2.1.0","about":{"library":"@pipecat-ai/client-js","library_version":"1.13.1"}}}"#;
    let message = parse(text).expect("a good message");
    assert_eq!(message.id, "d2d923ea");
    let Request::ClientReady { version, about } = message.request else {
        panic!("not client-ready");
    };
    assert_eq!(version.as_deref(), Some("2.1.0"));
    assert_eq!(about["library"], "@pipecat-ai/client-js");
}

/// Firmware of microcontrollers sends neither data nor version; others send unusual ones.
#[test]
fn accepts_client_ready_with_any_data() {
    for (data, version) in [
        (r#""data":null"#, None),
        (r#""data":{}"#, None),
        (r#""data":{"version":2}"#, None),
        (r#""data":{"version":"2.1.0","about":"me"}"#, Some("2.1.0")),
        (r#""extra":[]"#, None),
    ] {
        let text = format!(r#"{{"label":"rtvi-ai","type":"client-ready","id":"0",{data}}}"#);
        match parse(&text).expect("a good message").request {
            Request::ClientReady { version: read, .. } => assert_eq!(read.as_deref(), version, "{data}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn answers_versions_as_pipecat_does() {
    let compatible = |version: &str| Handshake {
        version: version.to_owned(),
        complaint: None,
        legacy: version.starts_with('1'),
    };
    let complaint = |text: &str| Handshake {
        version: "2.1.0".to_owned(),
        complaint: Some(format!("{text} Compatibility issues may occur.")),
        legacy: false,
    };
    for (version, handshake) in [
        (Some("2.1.0"), compatible("2.1.0")),
        (Some("2.0.0"), compatible("2.1.0")),
        (Some("2.99.7"), compatible("2.1.0")),
        (Some("1.2.0"), compatible("1.2.0")),
        (Some("1.0.0"), compatible("1.0.0")),
        (
            Some("3.0.0"),
            complaint("RTVI version 3.0.0 is not compatible with server protocol 2.1.0."),
        ),
        (
            Some("0.3.4"),
            complaint("RTVI version 0.3.4 is not compatible with server protocol 2.1.0."),
        ),
        (Some("2.1"), complaint("Invalid client version format (2.1).")),
        (Some("2.1.0.0"), complaint("Invalid client version format (2.1.0.0).")),
        (Some("2.1.x"), complaint("Invalid client version format (2.1.x).")),
        (Some("+2.1.0"), complaint("Invalid client version format (+2.1.0).")),
        (Some(""), complaint("Invalid client version format ().")),
        (
            Some("2.1.4294967296"),
            complaint("Invalid client version format (2.1.4294967296)."),
        ),
        (None, complaint("Client version unknown.")),
    ] {
        assert_eq!(Handshake::new(version), handshake, "{version:?}");
    }
    let long = Handshake::new(Some(&"9".repeat(10_000)))
        .complaint
        .expect("a complaint");
    assert!(long.len() < RTVI_ECHO_CHARS_MAX + 100, "{long}");
}

#[test]
fn parses_requests_into_their_types() {
    let TextOptions {
        run_immediately,
        audio_response,
    } = TextOptions::default();
    assert!(run_immediately && audio_response);
    assert_eq!(request("disconnect-bot", json!({})), Request::DisconnectBot);
    assert_eq!(
        request("client-message", json!({"t": "echo", "d": {"n": null}})),
        Request::ClientMessage(ClientMessage {
            id: "1a".to_owned(),
            t: "echo".to_owned(),
            d: json!({"n": null}),
        })
    );
    assert_eq!(
        request("client-message", json!({"t": "ping"})),
        Request::ClientMessage(ClientMessage {
            id: "1a".to_owned(),
            t: "ping".to_owned(),
            d: Value::Null,
        })
    );
    for (options, expected) in [
        (json!(null), (true, true)),
        (json!({}), (true, true)),
        (json!({"audio_response": false}), (true, false)),
        (json!({"run_immediately": false, "more": 1}), (false, true)),
    ] {
        let Request::SendText { content, options } =
            request("send-text", json!({"content": "hello", "options": options}))
        else {
            panic!("not send-text");
        };
        assert_eq!(content, "hello");
        assert_eq!((options.run_immediately, options.audio_response), expected);
    }
    assert_eq!(
        request("dtmf", json!({"buttons": ["1", "#", "*", "0"]})),
        Request::Dtmf(vec!['1', '#', '*', '0'])
    );
    for result in [json!("sunny"), json!({"sky": "blue"})] {
        let Request::FunctionResult(read) = request(
            "llm-function-call-result",
            json!({"function_name": "weather", "tool_call_id": "7", "arguments": {"in": "Bonn"}, "result": result}),
        ) else {
            panic!("not a result");
        };
        assert_eq!(
            (read.function_name.as_str(), read.tool_call_id.as_str()),
            ("weather", "7")
        );
        assert_eq!((&read.arguments["in"], &read.result), (&json!("Bonn"), &result));
    }
    assert_eq!(
        request("ui-event", json!({"event": "click", "payload": [1]})),
        Request::UiEvent {
            event: "click".to_owned(),
            payload: json!([1]),
        }
    );
    assert!(
        matches!(request("ui-snapshot", json!({"tree": {"role": "main"}})), Request::UiSnapshot { tree } if tree["role"] == "main")
    );
    assert_eq!(
        request("ui-cancel-job-group", json!({"job_id": "j"})),
        Request::UiCancelJobGroup {
            job_id: "j".to_owned(),
            reason: None,
        }
    );
}

/// 16-bit little-endian samples are mixed to one channel, with pieces in order.
#[test]
fn raw_audio_becomes_mono_pcm() {
    let read = |data| match request("raw-audio", data) {
        Request::RawAudio(audio) => (audio.samples, audio.rate_hz),
        other => panic!("{other:?}"),
    };
    // 01 00 ff ff 00 80 = 1, -1, -32768
    assert_eq!(
        read(json!({"base64Audio": "AQD//wCA", "sampleRate": 16_000, "numChannels": 1})),
        (vec![1, -1, -32_768], 16_000)
    );
    // 64 00 c8 00 | 00 80 00 80 = (100, 200), (-32768, -32768)
    assert_eq!(
        read(json!({"base64Audio": "ZADIAACAAIA=", "sampleRate": 48_000, "numChannels": 2})),
        (vec![150, -32_768], 48_000)
    );
    let batch = json!({"base64AudioBatch": ["AQA=", "AgA="], "sampleRate": 8_000, "numChannels": 1});
    assert!(matches!(request("raw-audio-batch", batch), Request::RawAudio(audio) if audio.samples == [1, 2]));
    assert_eq!(
        format!(
            "{:?}",
            RawAudio {
                samples: vec![77, 88],
                rate_hz: 8_000
            }
        ),
        "RawAudio(2 samples at 8000 Hz)"
    );
}

#[test]
fn parses_files_as_bytes_or_url() {
    let file = |source: Value| {
        let data = json!({"content": "look", "file": {"format": "image/png", "source": source}, "options": {}});
        match request("send-file", data) {
            Request::SendFile { content, file, .. } => {
                assert_eq!((content.as_str(), file.format.as_str()), ("look", "image/png"));
                file.source
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        file(json!({"type": "bytes", "bytes": "Zm9v", "width": 3})),
        FileSource::Bytes { bytes: b"foo".to_vec() }
    );
    assert_eq!(
        file(json!({"type": "url", "url": "https://example.org/a.png"})),
        FileSource::Url {
            url: "https://example.org/a.png".to_owned()
        }
    );
}

#[test]
fn does_not_answer_text_that_is_not_rtvi() {
    for text in [
        "",
        "ping: 12345",
        "null",
        "[]",
        "\"rtvi-ai\"",
        "{}",
        r#"{"type":"client-ready","id":"1"}"#,
        r#"{"label":"RTVI-AI","type":"client-ready","id":"1"}"#,
        r#"{"label":["rtvi-ai"],"type":"client-ready","id":"1"}"#,
        r#"{"type":"signalling","message":{"type":"peerLeft"}}"#,
        r#"{"label":"rtvi-ai","type":"client-ready","id":"1"} trailing"#,
    ] {
        let refusal = parse(text).expect_err(text);
        assert_eq!(refusal, RtviError::NotRtvi, "{text}");
        assert_eq!(refusal.reply(), None, "{text}");
    }
    let deep = format!(
        r#"{{"label":"rtvi-ai","id":"1","type":"x","data":{}"#,
        "[".repeat(100_000)
    );
    assert_eq!(parse(&deep), Err(RtviError::NotRtvi));
}

#[test]
fn answers_an_invalid_envelope_with_a_non_fatal_error() {
    let long = format!(r#""id":"{}","type":"dtmf""#, "x".repeat(RTVI_ID_BYTES_MAX + 1));
    for (rest, reason) in [
        (r#""type":"client-ready""#, "`id` must be a string"),
        (r#""id":7,"type":"client-ready""#, "`id` must be a string"),
        (r#""id":null,"type":"client-ready""#, "`id` must be a string"),
        (r#""id":"1""#, "`type` must be a string"),
        (r#""id":"1","type":5"#, "`type` must be a string"),
        (r#""id":"1","type":"dtmf","data":[]"#, "`data` must be an object"),
        (r#""id":"1","type":"nonsense","data":"x""#, "`data` must be an object"),
        (&long, "`id` is too long"),
    ] {
        assert_eq!(
            refused(&format!(r#"{{"label":"rtvi-ai",{rest}}}"#)),
            json!({"label": "rtvi-ai", "type": "error",
                "data": {"error": format!("Invalid RTVI transport message: {reason}"), "fatal": false}}),
        );
    }
    let longest = "x".repeat(RTVI_ID_BYTES_MAX);
    let text = json!({"label": "rtvi-ai", "id": longest, "type": "disconnect-bot"}).to_string();
    assert_eq!(parse(&text).map(|message| message.id), Ok(longest));
}

#[test]
fn answers_an_unknown_type_with_its_name() {
    for kind in ["append-to-context", "describe-config", "CLIENT-READY", "", "h\u{e4}?"] {
        assert_eq!(
            refused(&envelope(kind, json!({}))),
            json!({"label": "rtvi-ai", "type": "error-response", "id": "1a",
                "data": {"error": format!("Unsupported type {kind}")}}),
        );
    }
    let long = refused(&envelope(&"\u{e4}".repeat(5_000), json!({})));
    let error = long["data"]["error"].as_str().expect("an error");
    let expected = format!("Unsupported type {}...", "\u{e4}".repeat(RTVI_ECHO_CHARS_MAX));
    assert_eq!(error, expected);
}

#[test]
fn answers_invalid_data_with_the_reason() {
    let audio = |base64: &str, rate: Value, channels: u32| json!({"base64Audio": base64, "sampleRate": rate, "numChannels": channels});
    let file = |source: Value| json!({"content": "", "file": {"format": "text/plain", "source": source}});
    let result = |result: Value| json!({"function_name": "f", "tool_call_id": "1", "arguments": {}, "result": result});
    for (kind, data, names) in [
        ("client-message", json!({}), "`t`"),
        ("client-message", json!({"t": 5}), "integer `5`"),
        ("send-text", json!({"text": "hello"}), "`content`"),
        ("send-text", json!({"content": null}), "null"),
        (
            "send-text",
            json!({"content": "", "options": {"audio_response": "no"}}),
            "\"no\"",
        ),
        ("dtmf", json!({}), "`buttons`"),
        ("dtmf", json!({"button": "1"}), "`buttons`"),
        ("dtmf", json!({"buttons": []}), "1 to 64"),
        ("dtmf", json!({"buttons": vec!["1"; RTVI_DTMF_KEYS_MAX + 1]}), "1 to 64"),
        ("dtmf", json!({"buttons": ["12"]}), "0-9 * #"),
        ("dtmf", json!({"buttons": ["A"]}), "0-9 * #"),
        ("dtmf", json!({"buttons": [1]}), "integer `1`"),
        (
            "llm-function-call-result",
            json!({"function_name": "f"}),
            "`tool_call_id`",
        ),
        ("llm-function-call-result", result(json!(5)), "`result`"),
        ("llm-function-call-result", result(json!(null)), "`result`"),
        ("raw-audio", json!({"base64Audio": "AAA="}), "`sampleRate`"),
        ("raw-audio", audio("AAA=", json!(0), 1), "`sampleRate`"),
        ("raw-audio", audio("AAA=", json!(-1), 1), "-1"),
        ("raw-audio", audio("AAA=", json!(96_000), 1), "`sampleRate`"),
        ("raw-audio", audio("AAA=", json!(16_000), 0), "`numChannels`"),
        ("raw-audio", audio("AAA=", json!(16_000), 3), "`numChannels`"),
        ("raw-audio", audio("AA==", json!(16_000), 1), "whole 16-bit"),
        ("raw-audio", audio("AAA=", json!(16_000), 2), "whole 16-bit"),
        ("raw-audio", audio("!!!!", json!(16_000), 1), "base64"),
        ("raw-audio", audio("", json!(16_000), 1), "must hold audio"),
        ("ui-event", json!({"payload": 1}), "`event`"),
        ("ui-snapshot", json!({"tree": []}), "sequence"),
        ("ui-cancel-job-group", json!({"reason": "x"}), "`job_id`"),
        ("send-file", json!({"content": "x"}), "`file`"),
        ("send-file", file(json!({"type": "ftp"})), "`ftp`"),
        ("send-file", file(json!({"type": "bytes", "bytes": "*"})), "`bytes`"),
        ("send-file", file(json!({"type": "url"})), "`url`"),
    ] {
        let reply = refused(&envelope(kind, data.clone()));
        assert_eq!((&reply["type"], &reply["id"]), (&json!("error-response"), &json!("1a")));
        let error = reply["data"]["error"].as_str().expect("an error");
        assert!(
            error.starts_with("Invalid message: ") && error.contains(names),
            "{kind} {data}: {error}"
        );
    }
    let long = refused(&envelope(
        "send-text",
        json!({"content": [0], "options": "x".repeat(9_000)}),
    ));
    assert!(
        long["data"]["error"]
            .as_str()
            .is_some_and(|error| error.len() < RTVI_REASON_CHARS_MAX + 50)
    );
    let keys = vec!["1"; RTVI_DTMF_KEYS_MAX];
    assert!(
        matches!(request("dtmf", json!({"buttons": keys})), Request::Dtmf(keys) if keys.len() == RTVI_DTMF_KEYS_MAX)
    );
}

fn assert_sent(rows: &[(ToClient<'_>, &str, Value)]) {
    for (message, kind, data) in rows {
        assert_eq!(sent(message), json!({"type": kind, "data": data}));
    }
}

#[test]
fn errors_and_messages_of_the_bot_match_the_stock_client() {
    let null = Value::Null;
    let nested = json!({"keep": null});
    let seconds = [Measure {
        processor: "parrot",
        model: None,
        value: 0.25,
    }];
    let metrics = Metrics {
        ttfb: &seconds,
        ..Metrics::default()
    };
    let tokens = [Tokens {
        prompt_tokens: 10,
        completion_tokens: 5,
        total_tokens: 15,
    }];
    let usage = Metrics {
        tokens: &tokens,
        characters: &[Measure {
            processor: "voice",
            model: Some("m"),
            value: 42,
        }],
        ..Metrics::default()
    };
    assert_sent(&[
        (
            ToClient::Error {
                error: "oh",
                fatal: true,
            },
            "error",
            json!({"error": "oh", "fatal": true}),
        ),
        (ToClient::ServerMessage(&null), "server-message", json!(null)),
        (
            ToClient::ServerMessage(&nested),
            "server-message",
            json!({"keep": null}),
        ),
        (
            ToClient::Metrics(&metrics),
            "metrics",
            json!({"ttfb": [{"processor": "parrot", "value": 0.25}]}),
        ),
        (ToClient::Metrics(&Metrics::default()), "metrics", json!({})),
        (
            ToClient::Metrics(&usage),
            "metrics",
            json!({"characters": [{"processor": "voice", "model": "m", "value": 42}],
                "tokens": [{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}]}),
        ),
        (
            ToClient::UiCommand {
                command: "toast",
                payload: &nested,
            },
            "ui-command",
            json!({"command": "toast", "payload": {"keep": null}}),
        ),
        (ToClient::UiJobGroup(&nested), "ui-job-group", json!({"keep": null})),
        (ToClient::SystemLog { text: "l" }, "system-log", json!({"text": "l"})),
    ]);
}

#[test]
fn texts_and_levels_match_the_stock_client() {
    assert_sent(&[
        (
            ToClient::UserTranscription {
                text: "hi",
                user_id: "",
                timestamp: "t",
                r#final: false,
            },
            "user-transcription",
            json!({"text": "hi", "user_id": "", "timestamp": "t", "final": false}),
        ),
        (
            ToClient::UserLlmText { text: "hi" },
            "user-llm-text",
            json!({"text": "hi"}),
        ),
        (
            ToClient::UserAudioLevel { value: 0.3 },
            "user-audio-level",
            json!({"value": 0.3}),
        ),
        (
            ToClient::BotAudioLevel { value: 1.0 },
            "bot-audio-level",
            json!({"value": 1.0}),
        ),
        (
            ToClient::BotLlmText { text: " a" },
            "bot-llm-text",
            json!({"text": " a"}),
        ),
        (
            ToClient::BotTtsText { text: "\"q\"" },
            "bot-tts-text",
            json!({"text": "\"q\""}),
        ),
        (
            ToClient::BotTranscription { text: "a." },
            "bot-transcription",
            json!({"text": "a."}),
        ),
    ]);
}

#[test]
fn functions_and_searches_match_the_stock_client() {
    let null = Value::Null;
    let nested = json!({"keep": null});
    let arguments = nested.as_object().expect("an object");
    assert_sent(&[
        (
            ToClient::LlmFunctionCallStarted { function_name: None },
            "llm-function-call-started",
            json!({}),
        ),
        (
            ToClient::LlmFunctionCallInProgress {
                tool_call_id: "1",
                function_name: Some("f"),
                arguments: Some(arguments),
            },
            "llm-function-call-in-progress",
            json!({"tool_call_id": "1", "function_name": "f", "arguments": {"keep": null}}),
        ),
        (
            ToClient::LlmFunctionCallStopped {
                tool_call_id: "1",
                cancelled: false,
                function_name: None,
                result: Some(&null),
            },
            "llm-function-call-stopped",
            json!({"tool_call_id": "1", "cancelled": false, "result": null}),
        ),
        (
            ToClient::BotLlmSearchResponse {
                search_result: None,
                rendered_content: Some("x"),
                origins: &[],
            },
            "bot-llm-search-response",
            json!({"rendered_content": "x", "origins": []}),
        ),
    ]);
}

#[test]
fn events_without_data_have_no_data_member() {
    for (message, kind) in [
        (ToClient::UserStartedSpeaking, "user-started-speaking"),
        (ToClient::UserStoppedSpeaking, "user-stopped-speaking"),
        (ToClient::UserMuteStarted, "user-mute-started"),
        (ToClient::UserMuteStopped, "user-mute-stopped"),
        (ToClient::BotStartedSpeaking, "bot-started-speaking"),
        (ToClient::BotStoppedSpeaking, "bot-stopped-speaking"),
        (ToClient::BotInterrupted, "bot-interrupted"),
        (ToClient::BotLlmStarted, "bot-llm-started"),
        (ToClient::BotLlmStopped, "bot-llm-stopped"),
        (ToClient::BotTtsStarted, "bot-tts-started"),
        (ToClient::BotTtsStopped, "bot-tts-stopped"),
    ] {
        assert_eq!(sent(&message), json!({"type": kind}));
    }
}

#[test]
fn responses_have_the_id_of_their_request() {
    let answer = |message: &ToClient<'_>| serde_json::from_str::<Value>(&message.answer("3ea8")).expect("JSON");
    assert_eq!(
        answer(&ToClient::BotReady {
            version: "2.1.0",
            about: About::SELF
        }),
        json!({"label": "rtvi-ai", "type": "bot-ready", "id": "3ea8", "data": {"version": "2.1.0",
            "about": {"library": "edge-runner", "library_version": env!("CARGO_PKG_VERSION")}}})
    );
    assert_eq!(
        answer(&ToClient::ServerResponse {
            t: "echo",
            d: &json!({"n": 7})
        }),
        json!({"label": "rtvi-ai", "type": "server-response", "id": "3ea8", "data": {"t": "echo", "d": {"n": 7}}})
    );
    assert_eq!(
        answer(&ToClient::ErrorResponse { error: "asked to fail" }),
        json!({"label": "rtvi-ai", "type": "error-response", "id": "3ea8", "data": {"error": "asked to fail"}})
    );
}

#[test]
fn a_segment_goes_from_new_to_completed() {
    let segment = Segment::new(12, "Gr\u{fc}\u{df} dich.");
    let at = |bytes: usize| {
        let output = segment
            .spoken_to(bytes, false)
            .expect("clients of protocol 2 hear of every step");
        sent(&ToClient::BotOutput(output))["data"].take()
    };
    let expected = |status: &str, accumulated: &str, remaining: &str| {
        json!({"text": "Gr\u{fc}\u{df} dich.", "aggregated_by": "sentence", "segment_id": 12, "will_be_spoken": true,
            "spoken_status": status, "spoken_progress": {"accumulated_text": accumulated, "remaining_text": remaining}})
    };
    assert_eq!(at(0), expected("new", "", "Gr\u{fc}\u{df} dich."));
    assert_eq!(at(3), at(0), "a place inside a word counts as the one before it");
    assert_eq!(at(6), expected("in-progress", "Gr\u{fc}\u{df}", " dich."));
    assert_eq!(at(9), at(6));
    assert_eq!(at(12), expected("completed", "Gr\u{fc}\u{df} dich.", ""));
    assert_eq!(at(usize::MAX), at(12));

    let shown = ToClient::BotOutput(segment.shown(false));
    assert_eq!(
        sent(&shown)["data"],
        json!({"text": "Gr\u{fc}\u{df} dich.", "aggregated_by": "sentence", "segment_id": 12, "will_be_spoken": false})
    );
}

#[test]
fn clients_of_protocol_1_get_whole_sentences() {
    let segment = Segment::new(3, "Hello there.");
    for bytes in [0, 5, 11] {
        assert!(segment.spoken_to(bytes, true).is_none());
    }
    let data = |output| sent(&ToClient::BotOutput(output))["data"].take();
    assert_eq!(
        data(segment.spoken_to(12, true).expect("the whole sentence")),
        json!({"text": "Hello there.", "aggregated_by": "sentence", "spoken": true})
    );
    assert_eq!(
        data(segment.shown(true)),
        json!({"text": "Hello there.", "aggregated_by": "sentence", "spoken": false})
    );
}

#[test]
fn splits_long_text_between_words() {
    let cut = |text: &'static str, bytes_max| pieces(text, bytes_max).collect::<Vec<_>>();
    assert_eq!(cut("", 10), Vec::<&str>::new());
    assert_eq!(cut("one two three", 13), ["one two three"]);
    assert_eq!(cut("one two three", 12), ["one two ", "three"]);
    assert_eq!(cut("one two three", 4), ["one ", "two ", "thre", "e"]);
    assert_eq!(cut("\u{1}\"\u{1f600}", 6), ["\u{1}", "\"\u{1f600}"]);
    assert_eq!(
        cut("\u{1f600}\u{1f600}", 1),
        ["\u{1f600}", "\u{1f600}"],
        "a piece is never empty"
    );

    let text = "W\u{f6}rter \"in\" Anf\u{fc}hrung,\nZeilen\u{7}\t und \\ \u{1f600} mehr ".repeat(40);
    for bytes_max in [12, 50, 800] {
        let cut: Vec<&str> = pieces(&text, bytes_max).collect();
        assert_eq!(cut.concat(), text);
        for piece in cut {
            let in_json = json!(piece).to_string().len() - 2;
            assert!(in_json <= bytes_max, "{in_json} > {bytes_max}: {piece:?}");
        }
    }
}

/// Mutates valid messages a few thousand times. None may panic, and every reply must be one short
/// RTVI message.
#[test]
fn mutated_messages_get_a_short_reply_or_none() {
    let good = [
        envelope("client-ready", json!({"version": "2.1.0", "about": {"library": "x"}})),
        envelope("client-message", json!({"t": "echo", "d": [1, {"a": "\u{e4}"}]})),
        envelope(
            "send-text",
            json!({"content": "hi", "options": {"run_immediately": false}}),
        ),
        envelope("dtmf", json!({"buttons": ["1", "#"]})),
        envelope(
            "raw-audio",
            json!({"base64Audio": "AQD//wCA", "sampleRate": 16_000, "numChannels": 1}),
        ),
        envelope(
            "send-file",
            json!({"content": "", "file": {"format": "a", "source": {"type": "bytes", "bytes": "Zg=="}}}),
        ),
    ];
    let spices = [
        "null",
        "[",
        "{",
        "\"",
        "\\u0000",
        "\\ud800",
        "1e999",
        "-0",
        "\u{0}",
        "rtvi-ai",
        ",",
        ":",
        "}",
        "]",
        "\u{1f600}",
    ];
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below.max(1)
    };
    let (mut read, mut replied) = (0, 0);
    for _ in 0..20_000 {
        let mut text: Vec<char> = good[random(good.len())].chars().collect();
        for _ in 0..random(4) {
            let at = random(text.len());
            match random(4) {
                0 => drop(text.remove(at)),
                1 => text.truncate(at),
                2 => text[at] = char::from(random(128) as u8),
                _ => drop(text.splice(at..at, spices[random(spices.len())].chars())),
            }
            if text.is_empty() {
                break;
            }
        }
        let text: String = text.into_iter().collect();
        match parse(&text) {
            Ok(_) => read += 1,
            Err(refusal) => {
                if let Some(reply) = refusal.reply() {
                    replied += 1;
                    assert!(reply.len() < 2_500, "{reply}");
                    let reply: Value = serde_json::from_str(&reply).expect("JSON");
                    assert_eq!(reply["label"], "rtvi-ai");
                    assert!(reply["data"]["error"].is_string());
                }
            }
        }
    }
    assert!(
        read > 1_000 && replied > 1_000,
        "the mutations reach no code: {read} read, {replied} replied"
    );
}
