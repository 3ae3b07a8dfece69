//! Streams of servers that differ from OpenAI's, as `docs/spec/chat.md` lists them: a row of its
//! table, a test here.

use super::*;
use crate::assistant::services::sse::SseReader;

/// Reads the bytes of a response, in pieces of one length, as a client does.
fn read_pieces(stream: &str, piece_bytes: usize) -> (String, Result<ChatOutcome, ServiceFailure>) {
    let (mut events, mut reader, mut text) = (SseReader::default(), ChatReader::default(), String::new());
    for piece in stream.as_bytes().chunks(piece_bytes) {
        let mut left = piece;
        while let Some(data) = events.next_event(&mut left).expect("a short line") {
            if let Err(failure) = reader.read(&data, &mut text) {
                return (text, Err(failure));
            }
        }
    }
    let outcome = reader.finish();
    if let Ok(outcome) = &outcome {
        text.push_str(&outcome.text);
    }
    (text, outcome)
}

/// Reads a stream whole and byte by byte, which must agree.
fn read_stream(stream: &str) -> (String, Result<ChatOutcome, ServiceFailure>) {
    let whole = read_pieces(stream, stream.len());
    assert_eq!(read_pieces(stream, 1), whole);
    whole
}

/// The first chunk judges the prompt and has no choice; others judge the answer.
#[test]
fn azure() {
    let (text, outcome) = read_stream(concat!(
        r#"data: {"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}}}]}"#,
        "\n\n",
        r#"data: {"choices":[{"content_filter_results":{},"delta":{"content":"","refusal":null,"role":"assistant"},"finish_reason":null,"index":0,"logprobs":null}],"object":"chat.completion.chunk"}"#,
        "\n\n",
        r#"data: {"choices":[{"content_filter_results":{"hate":{"filtered":false}},"delta":{"content":"It is late."},"finish_reason":null,"index":0}],"object":"chat.completion.chunk"}"#,
        "\n\n",
        r#"data: {"choices":[{"content_filter_results":{},"delta":{},"finish_reason":"content_filter","index":0}],"object":"chat.completion.chunk"}"#,
        "\n\ndata: [DONE]\n\n",
    ));
    let outcome = outcome.expect("an answer");
    assert_eq!((&*text, outcome.end), ("It is late.", ChatEnd::CutOff));
}

/// Calls without an index, in pieces, with a signature that goes back; the reason is `stop`.
#[test]
fn gemini() {
    let (text, outcome) = read_stream(concat!(
        r#"data: {"choices":[{"delta":{"role":"assistant","tool_calls":[{"extra_content":{"google":{"thought_signature":"c2ln"}},"function":{"arguments":"{\"city\":","name":"weather"},"id":"call_297140","type":"function"}]},"index":0}],"model":"gemini","object":"chat.completion.chunk"}"#,
        "\n\n",
        r#"data: {"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"\"Linz\"}"}}]},"index":0}],"object":"chat.completion.chunk"}"#,
        "\n\n",
        r#"data: {"choices":[{"delta":{"tool_calls":[{"id":"call_297141","function":{"arguments":"{}","name":"clock"},"type":"function"}]},"index":0}],"object":"chat.completion.chunk"}"#,
        "\n\n",
        r#"data: {"choices":[{"delta":{"tool_calls":[{"extra_content":{"google":{"thought_signature":"bGF0ZQ"}}}]},"index":0}],"object":"chat.completion.chunk"}"#,
        "\n\n",
        r#"data: {"choices":[{"delta":{},"finish_reason":"stop","index":0}],"object":"chat.completion.chunk"}"#,
        "\n\ndata: [DONE]\n\n",
    ));
    let outcome = outcome.expect("an answer");
    let signed = |signature: &str| json!({"google": {"thought_signature": signature}});
    let calls: Vec<_> = outcome
        .calls
        .iter()
        .map(|call| {
            (
                &*call.call_id,
                &*call.name,
                &*call.arguments,
                call.extra_content.clone(),
            )
        })
        .collect();
    assert_eq!(
        calls,
        [
            ("call_297140", "weather", "{\"city\":\"Linz\"}", signed("c2ln")),
            ("call_297141", "clock", "{}", signed("bGF0ZQ")),
        ]
    );
    assert_eq!((&*text, outcome.end), ("", ChatEnd::Complete));
}

/// Parts of text between parts of thinking; a whole call in one chunk; the usage comes unasked.
#[test]
fn mistral() {
    let (text, outcome) = read_stream(concat!(
        r#"data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"The user asks."}]}]},"finish_reason":null}]}"#,
        "\n\n",
        r#"data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":[{"type":"text","text":"One "}]},"finish_reason":null}]}"#,
        "\n\n",
        r#"data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"moment.","tool_calls":[{"id":"D681PevKs","index":0,"function":{"name":"weather","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}"#,
        "\n\ndata: [DONE]\n\n",
    ));
    let outcome = outcome.expect("an answer");
    assert_eq!(
        (&*text, outcome.end, outcome.usage.total),
        ("One moment.", ChatEnd::Complete, 13)
    );
    assert_eq!(outcome.calls[0].call_id, "D681PevKs");
    for host in ["api.mistral.ai", "API.Mistral.AI"] {
        assert!(sends_usage_unasked(host), "{host}");
    }
    for host in ["api.openai.com", "mistral.example.net", "127.0.0.1"] {
        assert!(!sends_usage_unasked(host), "{host}");
    }
}

/// Comments while it waits; a fault in mid-answer is an error beside the reason `error`.
#[test]
fn openrouter() {
    let (text, outcome) = read_stream(concat!(
        ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n",
        r#"data: {"id":"gen-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"It is"},"finish_reason":null}]}"#,
        "\n\n: OPENROUTER PROCESSING\n\n",
        r#"data: {"id":"gen-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" late."},"finish_reason":"stop","native_finish_reason":"stop"}]}"#,
        "\n\ndata: [DONE]\n\n",
    ));
    assert_eq!(
        (&*text, outcome.expect("an answer").end),
        ("It is late.", ChatEnd::Complete)
    );
    let (text, outcome) = read_stream(concat!(
        r#"data: {"id":"gen-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"It is"},"finish_reason":null}]}"#,
        "\n\n",
        r#"data: {"id":"gen-1","object":"chat.completion.chunk","error":{"code":"server_error","message":"Provider disconnected"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}"#,
        "\n\n",
    ));
    assert_eq!((&*text, outcome), ("It is", Err(ServiceFailure::Fault)));
}

/// Whole calls, in older versions without an index; thinking in a field of its own.
#[test]
fn ollama() {
    let (text, outcome) = read_stream(concat!(
        r#"data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"They ask for two."},"finish_reason":null}]}"#,
        "\n\n",
        r#"data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[{"id":"call_a","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Linz\"}"}},{"id":"call_b","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Graz\"}"}}]},"finish_reason":null}]}"#,
        "\n\n",
        r#"data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"stop"}]}"#,
        "\n\ndata: [DONE]\n\n",
    ));
    let outcome = outcome.expect("an answer");
    let arguments: Vec<_> = outcome.calls.iter().map(|call| &*call.arguments).collect();
    assert_eq!(arguments, [r#"{"city":"Linz"}"#, r#"{"city":"Graz"}"#]);
    assert_eq!(&*text, "");
}

/// An error in place of the next chunk names a call that the model spoiled.
#[test]
fn groq() {
    let (text, outcome) = read_stream(concat!(
        r#"data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[]},"logprobs":null,"finish_reason":null}],"x_groq":{"id":"req_1"}}"#,
        "\n\n",
        r#"data: {"error":{"message":"Failed to call a function.","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"<function=","status_code":400}}"#,
        "\n\n",
    ));
    assert_eq!((&*text, outcome), ("", Err(ServiceFailure::RefusedContent)));
}

/// Members that are null; a request that is too long is an error behind status 200.
#[test]
fn sglang() {
    let (text, outcome) = read_stream(concat!(
        r#"data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":null,"content":"It is late.","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":null}"#,
        "\n\n",
        r#"data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":null,"content":null,"reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":"stop","matched_stop":1}],"usage":null}"#,
        "\n\ndata: [DONE]\n\n",
    ));
    assert_eq!(
        (&*text, outcome.expect("an answer").end),
        ("It is late.", ChatEnd::Complete)
    );
    let (_, outcome) = read_stream(concat!(
        r#"data: {"error":{"object":"error","message":"Requested token count exceeds the model's maximum context length","type":"BadRequestError","param":null,"code":400}}"#,
        "\n\ndata: [DONE]\n\n",
    ));
    let failure = outcome.expect_err("no answer");
    assert!(failure.may_be_length(), "{failure}");
    assert_eq!(failure, ServiceFailure::Rejected(400));
}

/// A request that is too long is named, with a number that says otherwise, before or in a stream.
#[test]
fn llama_cpp() {
    let too_long = r#"{"error":{"code":500,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":1407,"n_ctx":256}}"#;
    let (_, outcome) = read_stream(&format!("data: {too_long}\n\n"));
    assert_eq!(outcome, Err(ServiceFailure::TooLong));
    for status in [400, 500] {
        assert_eq!(
            ServiceFailure::of_status(status, too_long.as_bytes()),
            ServiceFailure::TooLong
        );
    }
}

/// A request that is too long is a whole answer without a word.
#[test]
fn lm_studio() {
    let (text, outcome) = read_stream(concat!(
        r#"data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant"},"logprobs":null,"finish_reason":null}]}"#,
        "\n\n",
        r#"data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}"#,
        "\n\ndata: [DONE]\n\n",
    ));
    let outcome = outcome.expect("an answer");
    assert!(text.is_empty() && outcome.calls.is_empty());
}

/// Each piece of a call has an identifier of its own; a request that is too long is an answer
/// without a word, whose reason is `length`, or an error with a number as its code.
#[test]
fn lmdeploy() {
    let (text, outcome) = read_stream(concat!(
        r#"data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":null,"reasoning_content":null,"gen_tokens":null,"tool_calls":[{"id":"chatcmpl-tool-8nW5","type":"function","index":0,"function":{"name":"weather","arguments":null}}]},"logprobs":null,"finish_reason":null}],"usage":null}"#,
        "

",
        r#"data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"id":"chatcmpl-tool-nSqe","type":"function","index":0,"function":{"name":null,"arguments":"{\"city\":"}}]},"finish_reason":null}]}"#,
        "

",
        r#"data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"id":"chatcmpl-tool-iCZ7","type":"function","index":0,"function":{"name":null,"arguments":" \"Linz\"}"}}]},"finish_reason":null}]}"#,
        "

",
        r#"data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[]},"logprobs":null,"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,"total_tokens":13,"completion_tokens":4}}"#,
        "

data: [DONE]

",
    ));
    let outcome = outcome.expect("an answer");
    let calls: Vec<_> = outcome
        .calls
        .iter()
        .map(|call| (&*call.call_id, &*call.name, &*call.arguments))
        .collect();
    assert_eq!(calls, [("chatcmpl-tool-8nW5", "weather", r#"{"city": "Linz"}"#)]);
    assert_eq!((&*text, outcome.end), ("", ChatEnd::Complete));

    let (text, outcome) = read_stream(concat!(
        r#"data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[]},"logprobs":null,"finish_reason":"length"}]}"#,
        "

data: [DONE]

",
    ));
    let outcome = outcome.expect("an answer");
    assert!(text.is_empty() && outcome.calls.is_empty());
    let (_, outcome) = read_stream(concat!(
        r#"data: {"error":{"message":"the input is too long","type":"invalid_request_error","code":400,"param":null,"object":"error"}}"#,
        "

data: [DONE]

",
    ));
    assert_eq!(outcome, Err(ServiceFailure::Rejected(400)));
}

/// A fault of the server behind it is an error in mid-answer, with or without an end of the stream.
#[test]
fn litellm() {
    for end in ["", "data: [DONE]\n\n"] {
        let (text, outcome) = read_stream(&format!(
            "{}\n\n{}\n\n{end}",
            r#"data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"It is"},"finish_reason":null}]}"#,
            r#"data: {"error": {"message": "litellm.APIConnectionError", "type": "None", "param": "None", "code": "500"}}"#,
        ));
        assert_eq!((&*text, outcome), ("It is", Err(ServiceFailure::Fault)));
    }
}

/// A full queue is an error behind status 200, before any chunk.
#[test]
fn vllm() {
    let (_, outcome) = read_stream(concat!(
        r#"data: {"error":{"message":"the queue is full","type":"TooManyRequestsError","param":null,"code":429}}"#,
        "\n\ndata: [DONE]\n\n",
    ));
    assert_eq!(outcome, Err(ServiceFailure::Fault));
}
