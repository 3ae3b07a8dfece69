//! The reader of chat completions against the streams of several servers.

use super::*;

mod dialects;

/// Reads chunks, and returns the text with the outcome.
fn read(chunks: &[Value]) -> (String, Result<ChatOutcome, ServiceFailure>) {
    let (mut reader, mut text) = (ChatReader::default(), String::new());
    for chunk in chunks {
        let data = chunk.as_str().map_or_else(|| chunk.to_string(), str::to_owned);
        if let Err(failure) = reader.read(&data, &mut text) {
            return (text, Err(failure));
        }
    }
    let outcome = reader.finish();
    if let Ok(outcome) = &outcome {
        text.push_str(&outcome.text);
    }
    (text, outcome)
}

fn delta(delta: Value) -> Value {
    json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn end(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

#[test]
fn a_request_has_the_settings_and_no_more() {
    let messages = vec![json!({"role": "user", "content": "Hello"})];
    let mut request = ChatRequest {
        messages: messages.clone(),
        tools: Vec::new(),
        temperature: None,
    };
    let mut settings = ChatSettings {
        model: "m".to_owned(),
        ..ChatSettings::default()
    };
    assert_eq!(
        request_body(&settings, request.clone()),
        json!({"model": "m", "messages": messages, "stream": true, "stream_options": {"include_usage": true}})
    );
    settings.tokens_max = Some(300);
    let extra = json!({"stream": false, "model": "x", "keep_alive": "1h"});
    settings.extra = extra.as_object().expect("an object").clone();
    request.temperature = Some(0.5);
    request.tools = vec![json!({"type": "function", "function": {"name": "f"}})];
    let body = request_body(&settings, request.clone());
    assert_eq!(
        (&body["model"], &body["stream"], &body["keep_alive"]),
        (&json!("m"), &json!(true), &json!("1h"))
    );
    assert_eq!((&body["max_tokens"], &body["temperature"]), (&json!(300), &json!(0.5)));
    assert_eq!(body["tools"], json!(request.tools));
    settings.uses_completion_tokens = true;
    settings.sends_usage_unasked = true;
    let body = request_body(&settings, request);
    assert_eq!(body.get("stream_options"), None);
    assert_eq!(
        (body.get("max_tokens"), &body["max_completion_tokens"]),
        (None, &json!(300))
    );
}

#[test]
fn content_may_be_absent_null_or_empty_and_reasoning_is_not_text() {
    let (text, outcome) = read(&[
        delta(json!({"role": "assistant", "content": null})),
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"reasoning": "one"})),
        delta(json!({"reasoning_content": "two", "content": null})),
        delta(json!({"content": "<thi"})),
        delta(json!({"content": "nk>three</think>It "})),
        delta(json!({"content": "is."})),
        end("stop"),
        json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 2}}}),
        json!("[DONE]"),
        json!("no JSON behind the end"),
    ]);
    let outcome = outcome.expect("a whole answer");
    assert_eq!((&*text, outcome.end), ("It is.", ChatEnd::Complete));
    let usage = TokenUsage {
        input: 5,
        output: 3,
        cached: 2,
        total: 8,
    };
    assert_eq!((outcome.usage, outcome.calls), (usage, vec![]));
}

#[test]
fn calls_are_joined_by_index() {
    let call = |piece: Value| delta(json!({"tool_calls": [piece]}));
    let (text, outcome) = read(&[
        call(json!({"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}})),
        call(json!({"index": 1, "id": "b", "function": {"name": "g", "arguments": "{\"y\""}})),
        call(json!({"index": 0, "function": {"arguments": "{\"x\":"}})),
        call(json!({"index": 0, "function": {"arguments": "1}"}})),
        call(json!({"index": 1, "id": null, "function": {"name": null, "arguments": ":2}"}})),
        end("tool_calls"),
    ]);
    let made = |call_id: &str, name: &str, arguments: &str| ChatCall {
        call_id: call_id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        extra_content: Value::Null,
    };
    let outcome = outcome.expect("a whole answer");
    assert_eq!(
        outcome.calls,
        [made("a", "f", "{\"x\":1}"), made("b", "g", "{\"y\":2}")]
    );
    assert_eq!((&*text, outcome.end), ("", ChatEnd::Complete));
    // Some servers send no identifiers.
    let (_, outcome) = read(&[
        call(json!({"index": 0, "function": {"name": "f", "arguments": "{}"}})),
        call(json!({"index": 1, "function": {"name": "g", "arguments": "{}"}})),
        end("tool_calls"),
    ]);
    assert_eq!(
        outcome.expect("a whole answer").calls,
        [made("", "f", "{}"), made("", "g", "{}")]
    );
    // Whole calls: with the same index, without one, and with an object.
    let (_, outcome) = read(&[
        call(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}})),
        call(json!({"index": 0, "id": "b", "function": {"name": "f", "arguments": "{}"}})),
        call(json!({"id": "c", "function": {"name": "g", "arguments": {"z": 3}}})),
        end("tool_calls"),
    ]);
    let calls = outcome.expect("a whole answer").calls;
    assert_eq!(
        calls,
        [made("a", "f", "{}"), made("b", "f", "{}"), made("c", "g", "{\"z\":3}")]
    );
}

#[test]
fn an_answer_that_does_not_end_is_a_failure() {
    assert_eq!(read(&[]).1, Err(ServiceFailure::CutShort));
    let (text, outcome) = read(&[
        delta(json!({"content": "Half"})),
        json!({"choices": [{"delta": {}, "index": 0}]}),
    ]);
    assert_eq!((&*text, outcome), ("Half", Err(ServiceFailure::CutShort)));
    assert_eq!(
        read(&[delta(json!({"content": "Half"})), json!("[DONE]")]).1,
        Err(ServiceFailure::CutShort)
    );
    for (reason, how) in [
        ("stop", ChatEnd::Complete),
        ("tool_calls", ChatEnd::Complete),
        ("eos", ChatEnd::Complete),
        ("length", ChatEnd::CutOff),
        ("content_filter", ChatEnd::CutOff),
    ] {
        assert_eq!(read(&[end(reason)]).1.map(|outcome| outcome.end), Ok(how), "{reason}");
    }
}

#[test]
fn errors_within_the_stream_are_failures() {
    for (chunk, failure) in [
        (json!({"error": {"message": "x", "code": 500}}), ServiceFailure::Fault),
        (json!({"error": "x"}), ServiceFailure::Fault),
        (
            json!({"error": {"type": "insufficient_quota"}}),
            ServiceFailure::NoQuota,
        ),
        (
            json!({"object": "error", "message": "x", "code": 404}),
            ServiceFailure::UnknownModel,
        ),
        (json!("{\"choices\""), ServiceFailure::Malformed("a chunk is no JSON")),
    ] {
        let (text, outcome) = read(&[delta(json!({"content": "Half"})), chunk.clone()]);
        assert_eq!((&*text, outcome), ("Half", Err(failure)), "{chunk}");
    }
    assert!(read(&[json!({"error": null, "choices": []}), end("stop")]).1.is_ok());
    // Other shapes are ignored.
    assert!(
        read(&[json!(null), json!([1]), json!({"choices": [{"delta": 1}]}), end("stop")])
            .1
            .is_ok()
    );
}

#[test]
fn texts_and_calls_have_a_cap() {
    let piece = "é".repeat(CHAT_TEXT_BYTES_MAX / 2);
    let (text, outcome) = read(&[delta(json!({"content": piece})), end("stop")]);
    assert_eq!(
        (text.len(), outcome.map(|it| it.end)),
        (CHAT_TEXT_BYTES_MAX, Ok(ChatEnd::Complete))
    );
    let (text, outcome) = read(&[
        delta(json!({"content": "x"})),
        delta(json!({"content": piece})),
        delta(json!({"content": "y"})),
    ]);
    assert_eq!(
        (text.len(), outcome.map(|it| it.end)),
        (CHAT_TEXT_BYTES_MAX - 1, Ok(ChatEnd::CutOff))
    );
    let call = |index: usize, arguments: &str| {
        delta(json!({"tool_calls": [{"index": index, "id": "i", "function": {"name": "f", "arguments": arguments}}]}))
    };
    let calls = |count: usize| {
        (0..count)
            .map(|index| call(index, ""))
            .chain([end("stop")])
            .collect::<Vec<_>>()
    };
    assert_eq!(
        read(&calls(CHAT_CALLS_MAX)).1.map(|it| it.calls.len()),
        Ok(CHAT_CALLS_MAX)
    );
    assert!(matches!(
        read(&calls(CHAT_CALLS_MAX + 1)).1,
        Err(ServiceFailure::Malformed(_))
    ));
    let long = |bytes: usize| read(&[call(0, &"x".repeat(bytes)), end("stop")]).1;
    assert!(long(CHAT_CALLS_BYTES_MAX - 2).is_ok());
    assert!(matches!(
        long(CHAT_CALLS_BYTES_MAX - 1),
        Err(ServiceFailure::Malformed(_))
    ));
}

#[test]
fn words_come_in_several_forms() {
    let (text, outcome) = read(&[
        delta(json!({"content": [{"type": "thinking", "thinking": "secret"}, {"type": "text", "text": "One "}]})),
        delta(json!({"content": [{"type": "text", "text": "two."}, {"type": "reference"}, 5]})),
        end("stop"),
    ]);
    assert_eq!((&*text, outcome.is_ok()), ("One two.", true));
    let (text, outcome) = read(&[
        delta(json!({"refusal": "I cannot ", "content": null})),
        delta(json!({"refusal": "help with that."})),
        end("stop"),
    ]);
    assert_eq!((&*text, outcome.is_ok()), ("I cannot help with that.", true));
}

#[test]
fn an_error_may_be_in_the_reason_or_in_the_choice() {
    let (_, outcome) = read(&[delta(json!({"content": "Half"})), end("error")]);
    assert_eq!(outcome, Err(ServiceFailure::Fault));
    let mut choice = end("error");
    choice["choices"][0]["error"] = json!({"code": "insufficient_quota"});
    assert_eq!(read(&[choice]).1, Err(ServiceFailure::NoQuota));
}

/// The first answer tells how the model marks its reasoning; then answers are read as they arrive.
#[test]
fn a_closing_tag_alone_is_learnt_from_the_first_answer() {
    let marks = SharedMarks::default();
    let answer = |pieces: &[&str], reason| {
        let (mut reader, mut text) = (ChatReader::new(Some(marks.clone())), String::new());
        for piece in pieces {
            let chunk = delta(json!({"content": piece})).to_string();
            reader.read(&chunk, &mut text).expect("a chunk");
        }
        reader.read(&end(reason).to_string(), &mut text).expect("the end");
        (text, reader.finish().expect("a whole answer").text)
    };
    let pair = |early: &str, late: &str| (early.to_owned(), late.to_owned());
    assert_eq!(
        answer(&["I greet.\n</think>\n\n", "Hello."], "stop"),
        pair("Hello.", "")
    );
    assert_eq!(marks.get(), ReasoningMarks::Unopened);
    assert_eq!(answer(&["I am thinking"], "length"), pair("", ""));
    assert_eq!(answer(&["Hello", "."], "stop"), pair("", "Hello."));
    assert_eq!(answer(&["Hello", "."], "stop"), pair("Hello.", ""));
}
