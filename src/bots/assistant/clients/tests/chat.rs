//! Chat models over HTTP and Wyoming.

use super::super::chat_model::{ChatEvent, ChatModel};
use super::*;
use crate::io::trace;
use crate::proto::assistant::cascade::{ChatCall, ChatEnd, ChatRequest};
use crate::proto::assistant::services::chat::{ChatOutcome, ChatSettings};
use crate::proto::http::traceparent::Traceparent;

fn model(access: ServiceAccess) -> ChatModel {
    let settings = ChatSettings {
        model: "m".to_owned(),
        ..ChatSettings::default()
    };
    ChatModel::new(access, settings, Some("de".to_owned()))
}

fn request() -> ChatRequest {
    ChatRequest {
        messages: vec![
            json!({"role": "system", "content": "Be brief."}),
            json!({"role": "user", "content": "Hello?"}),
            json!({"role": "assistant", "content": ""}),
        ],
        tools: Vec::new(),
        temperature: None,
    }
}

/// Returns all text, and how it ended.
async fn collect(mut session: ServiceSession<ChatEvent>) -> (String, Result<ChatOutcome, ServiceFailure>) {
    let mut text = String::new();
    loop {
        match session.recv().await {
            Ok(ChatEvent::Text(piece)) => text.push_str(&piece),
            Ok(ChatEvent::Done(outcome)) => {
                text.push_str(&outcome.text);
                return (text, Ok(outcome));
            }
            Err(failure) => return (text, Err(failure)),
        }
    }
}

fn sse(chunks: &[Value]) -> String {
    chunks
        .iter()
        .map(|chunk| format!(":\n\ndata: {chunk}\r\n\r\n"))
        .collect()
}

fn delta(delta: Value) -> Value {
    json!({"choices": [{"delta": delta}]})
}

fn stop() -> Value {
    json!({"choices": [{"delta": {}, "finish_reason": "stop"}]})
}

#[tokio::test]
async fn an_answer_is_read_in_pieces_of_any_length() {
    let server = Server::start().await;
    let call = json!({"tool_calls": [{"index": 0, "id": "i", "function": {"name": "f", "arguments": "{}"}}]});
    let body = sse(&[
        delta(json!({"content": "Schö"})),
        delta(json!({"content": "n."})),
        delta(call),
        stop(),
    ]);
    let body = body + "data: [DONE]\n\n";
    for piece_bytes in [1, 7, 10_000] {
        let model = model(server.access("http", Some("hunter2")));
        let serve = async {
            let mut peer = server.accept().await;
            let (head, body_of_request) = peer.request().await;
            peer.say(&chunked(body.as_bytes(), piece_bytes)).await;
            peer.end().await;
            (head, body_of_request)
        };
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let answered = trace::of_session(Traceparent::of_body(&json!({"traceparent": trace})), async {
            collect(model.start(request())).await
        });
        let ((text, outcome), (head, asked)) = tokio::join!(answered, serve);
        let outcome = outcome.expect("an answer");
        assert_eq!((&*text, outcome.end), ("Schön.", ChatEnd::Complete));
        let call = ChatCall {
            call_id: "i".to_owned(),
            name: "f".to_owned(),
            arguments: "{}".to_owned(),
            extra_content: Value::Null,
        };
        assert_eq!(outcome.calls, [call]);
        assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("\r\nauthorization: Bearer hunter2\r\n"), "{head}");
        assert!(head.contains(&format!("\r\ntraceparent: {trace}\r\n")), "{head}");
        let asked: Value = serde_json::from_slice(&asked).expect("JSON");
        assert_eq!(
            (&asked["model"], &asked["messages"][1]["content"]),
            (&json!("m"), &json!("Hello?"))
        );
    }
}

#[tokio::test]
async fn what_is_no_answer_is_a_failure_with_a_class() {
    let server = Server::start().await;
    let json_type = "application/json";
    let half = sse(&[delta(json!({"content": "Half"}))]);
    let failed = format!("{half}data: {{\"error\":{{\"message\":\"the key sk-1\"}}}}\n\n");
    for (response, text, failure) in [
        (http("401 No", json_type, "{}"), "", ServiceFailure::RefusedKey),
        (
            http("404 No", json_type, r#"{"error":"model x not found"}"#),
            "",
            ServiceFailure::UnknownModel,
        ),
        (
            http("429 No", json_type, r#"{"error":{"type":"insufficient_quota"}}"#),
            "",
            ServiceFailure::NoQuota,
        ),
        (
            http("503 No", "text/html", &"<p>".repeat(10_000)),
            "",
            ServiceFailure::Fault,
        ),
        (http("307 No", json_type, ""), "", ServiceFailure::Rejected(307)),
        (
            http("200 OK", json_type, r#"{"error":{"code":"invalid_api_key"}}"#),
            "",
            ServiceFailure::RefusedKey,
        ),
        (
            http("200 OK", json_type, "{}"),
            "",
            ServiceFailure::Malformed("an answer that is no stream of events"),
        ),
        (http("200 OK", "text/event-stream", ""), "", ServiceFailure::CutShort),
        (
            http("200 OK", "text/event-stream", &half),
            "Half",
            ServiceFailure::CutShort,
        ),
        (
            http("200 OK", "text/event-stream", &failed),
            "Half",
            ServiceFailure::Fault,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\ncontent-type: text/event-stream\r\n\r\n:".to_owned(),
            "",
            ServiceFailure::CutShort,
        ),
        (
            "SSH-2.0-x\r\n".to_owned(),
            "",
            ServiceFailure::Malformed("no valid HTTP response"),
        ),
        (String::new(), "", ServiceFailure::CutShort),
    ] {
        let model = model(server.access("http", None));
        let (answer, _) = tokio::join!(collect(model.start(request())), server.respond(&response));
        assert_eq!(answer, (text.to_owned(), Err(failure)), "{response}");
    }
}

/// Before the reason of its end, the end of a connection is a failure; behind it, it is none.
#[tokio::test]
async fn a_connection_may_end_at_any_byte() {
    let server = Server::start().await;
    let model = model(server.access("http", None));
    let body = sse(&[delta(json!({"content": "Yes."})), stop()]);
    let plain = http("200 OK", "text/event-stream", &body).into_bytes();
    for response in [plain, chunked(body.as_bytes(), 16)] {
        let mut whole = 0;
        for end in 0..response.len() {
            let serve = async {
                let mut peer = server.accept().await;
                peer.request().await;
                peer.say(&response[..end]).await;
            };
            let ((text, outcome), ()) = tokio::join!(collect(model.start(request())), serve);
            match outcome {
                Ok(_) => whole += 1,
                Err(failure) => assert_eq!(failure, ServiceFailure::CutShort, "{end}"),
            }
            assert!(text.is_empty() || text == "Yes.", "{text}");
        }
        assert!(whole < 8, "{whole}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_listen_is_no_route() {
    let server = Server::start().await;
    let model = model(server.access("http", None));
    drop(server);
    let (_, outcome) = collect(model.start(request())).await;
    assert!(
        matches!(&outcome, Err(ServiceFailure::NoRoute(why)) if why.starts_with("connecting to 127.0.0.1: ")),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_busy_model_names_the_time_to_wait() {
    let server = Server::start().await;
    let model = model(server.access("http", None));
    for (header, failure) in [
        ("retry-after: 2", ServiceFailure::Busy(Duration::from_secs(2))),
        ("retry-after-ms: 300", ServiceFailure::Busy(Duration::from_millis(300))),
        ("retry-after: soon", ServiceFailure::Fault),
    ] {
        let response = http(&format!("429 Too Many Requests\r\n{header}"), "application/json", "{}");
        let ((_, outcome), _) = tokio::join!(collect(model.start(request())), server.respond(&response));
        assert_eq!(outcome, Err(failure), "{header}");
    }
}

/// While a model loads, comments extend the time to its answer to that of the first one.
#[tokio::test(start_paused = true)]
async fn a_model_that_loads_is_not_given_up() {
    let server = Server::start().await;
    let model = model(server.access("http", None));
    let begin = http("200 OK", "text/event-stream", ":\n\n");
    let answer = sse(&[delta(json!({"content": "Yes."})), stop()]);
    let serve = async |comments: u64, rest: &str| {
        let mut peer = server.accept().await;
        peer.request().await;
        peer.say(begin.as_bytes()).await;
        for _ in 0..comments {
            tokio::time::sleep(Duration::from_secs(5)).await;
            peer.say(b": PROCESSING\n\n").await;
        }
        peer.say(rest.as_bytes()).await;
        if rest.is_empty() {
            peer.end().await;
        }
    };
    for comments in [0, 9] {
        let ((text, outcome), ()) = tokio::join!(collect(model.start(request())), serve(comments, &answer));
        assert_eq!((&*text, outcome.is_ok()), ("Yes.", true), "{comments}");
    }
    let started = Instant::now();
    let ((_, outcome), ()) = tokio::join!(collect(model.start(request())), serve(11, ""));
    assert_eq!(outcome, Err(ServiceFailure::TimedOut(ServiceStep::Begin)));
    assert_eq!(started.elapsed().as_secs(), SERVICE_FIRST_BYTE_COLD.as_secs());
}

/// A limit holds for the first byte once longer than later, and comments do not extend it.
#[tokio::test(start_paused = true)]
async fn a_silent_model_is_given_up() {
    let server = Server::start().await;
    let model = model(server.access("http", None));
    let begin = http("200 OK", "text/event-stream", ":\n\n");
    let half = begin.clone() + &sse(&[delta(json!({"content": "Half"}))]);
    let (begin_failure, continue_failure) = (
        ServiceFailure::TimedOut(ServiceStep::Begin),
        ServiceFailure::TimedOut(ServiceStep::Continue),
    );
    for (said, failure, limit) in [
        ("", begin_failure.clone(), SERVICE_FIRST_BYTE_COLD),
        (&*begin, begin_failure, SERVICE_FIRST_BYTE_WARM),
        (&half, continue_failure, SERVICE_SILENCE),
    ] {
        let started = Instant::now();
        let serve = async {
            let mut peer = server.accept().await;
            peer.request().await;
            peer.say(said.as_bytes()).await;
            peer.end().await;
        };
        let ((_, outcome), ()) = tokio::join!(collect(model.start(request())), serve);
        assert_eq!(outcome, Err(failure), "{said}");
        assert!(
            started.elapsed() >= limit && started.elapsed() < limit + Duration::from_secs(1),
            "{said}"
        );
    }
}

/// What adds nothing to an answer does not keep it alive, and what is not spoken does for a while.
#[tokio::test(start_paused = true)]
async fn an_answer_without_progress_is_given_up() {
    let server = Server::start().await;
    let model = model(server.access("http", None));
    let begin = http("200 OK", "text/event-stream", "");
    let half = begin.clone() + &sse(&[delta(json!({"content": "Half"}))]);
    let role = begin.clone() + &sse(&[delta(json!({"role": "assistant", "content": ""}))]);
    let (comment, empty) = (": PROCESSING\n\n".to_owned(), sse(&[delta(json!({"content": ""}))]));
    let reasoning = sse(&[delta(json!({"reasoning_content": "Hm."}))]);
    for (said, repeated, step, limit) in [
        (&half, &comment, ServiceStep::Continue, SERVICE_SILENCE),
        (&half, &empty, ServiceStep::Continue, SERVICE_SILENCE),
        (&half, &reasoning, ServiceStep::Continue, SERVICE_OUTPUT_WITHIN),
        (&begin, &reasoning, ServiceStep::Continue, SERVICE_OUTPUT_WITHIN),
        // It may still load.
        (&role, &empty, ServiceStep::Begin, SERVICE_FIRST_BYTE_COLD),
    ] {
        let started = Instant::now();
        let serve = async {
            let mut peer = server.accept().await;
            peer.request().await;
            peer.say(said.as_bytes()).await;
            while peer.0.write_all(repeated.as_bytes()).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(4)).await;
            }
        };
        let ((_, outcome), ()) = tokio::join!(collect(model.start(request())), serve);
        assert_eq!(outcome, Err(ServiceFailure::TimedOut(step)), "{repeated}");
        let elapsed = started.elapsed();
        assert!(
            elapsed >= limit && elapsed < limit + Duration::from_secs(9),
            "{repeated}: {elapsed:?}"
        );
    }
}

#[tokio::test]
async fn a_dropped_request_closes_its_connection() {
    let server = Server::start().await;
    let model = model(server.access("http", None));
    let mut session = model.start(request());
    let begun = async {
        let mut peer = server.accept().await;
        peer.request().await;
        peer.say(
            http(
                "200 OK",
                "text/event-stream",
                &sse(&[delta(json!({"content": "Half"}))]),
            )
            .as_bytes(),
        )
        .await;
        peer
    };
    let (event, mut peer) = tokio::join!(session.recv(), begun);
    assert_eq!(event, Ok(ChatEvent::Text("Half".to_owned())));
    drop(session);
    peer.end().await;
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    let server = Server::start().await;
    let model = model(server.access("http", None));
    let serve = async {
        let mut peer = server.accept().await;
        peer.request().await;
        peer.say(http("200 OK", "text/event-stream", "").as_bytes()).await;
        let chunk = sse(&[delta(json!({"content": "word ".repeat(100)}))]);
        while peer.0.write_all(chunk.as_bytes()).await.is_ok() {}
    };
    let ((text, outcome), ()) = tokio::join!(collect(model.start(request())), serve);
    assert_eq!(outcome.map(|outcome| outcome.end), Ok(ChatEnd::CutOff));
    assert_eq!(text.len(), crate::limits::CHAT_TEXT_BYTES_MAX);
}

#[tokio::test]
async fn a_wyoming_server_handles_the_last_text_of_the_caller() {
    let server = Server::start().await;
    let model = model(server.access("tcp", None));
    let whole = async {
        let mut peer = server.accept().await;
        let asked = peer.event().await;
        peer.say_event("handled", &json!({"text": "Done."}), &[]).await;
        peer.end().await;
        asked
    };
    let ((text, outcome), (kind, data, _)) = tokio::join!(collect(model.start(request())), whole);
    assert_eq!((&*text, outcome.map(|it| it.end)), ("Done.", Ok(ChatEnd::Complete)));
    assert_eq!(
        (&*kind, data),
        ("transcript", json!({"text": "Hello?", "language": "de"}))
    );
    let streamed = async {
        let mut peer = server.accept().await;
        peer.event().await;
        peer.say_event("handled-start", &json!({}), &[]).await;
        for piece in ["It ", "is."] {
            peer.say_event("handled-chunk", &json!({"text": piece}), &[]).await;
        }
        peer.say_event("handled", &json!({"text": "It is."}), &[]).await;
        peer.say_event("handled-stop", &json!({}), &[]).await;
        peer.end().await;
    };
    let ((text, outcome), ()) = tokio::join!(collect(model.start(request())), streamed);
    assert_eq!((&*text, outcome.map(|it| it.end)), ("It is.", Ok(ChatEnd::Complete)));
}
