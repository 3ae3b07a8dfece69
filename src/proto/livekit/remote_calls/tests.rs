//! Answers, error codes, time limits and the number of remote calls.

use super::*;

fn request(id: &str, payload: &str) -> RpcRequest {
    RpcRequest {
        id: id.into(),
        method: "weather".into(),
        payload: payload.into(),
        response_timeout_ms: 8_000,
        version: 1,
    }
}

/// Returns the code of an error, or the payload.
fn result(packet: &DataPacket) -> (String, Result<String, (u32, String)>) {
    assert_eq!(packet.destination_identities, ["ann"]);
    let Some(DataValue::RpcResponse(response)) = packet.value.clone() else {
        panic!("{packet:?}")
    };
    let result = match response.result.expect("a result") {
        RpcResult::Payload(payload) => Ok(payload),
        RpcResult::Error(error) => Err((error.code, error.data)),
    };
    (response.request_id, result)
}

fn acknowledged(start: &CallStart, id: &str) {
    let ack = RpcAck { request_id: id.into() };
    assert_eq!(start.packets[0], packet("ann", DataValue::RpcAck(ack)));
}

#[test]
fn the_bot_answers_a_call() {
    let now = Instant::now();
    let mut calls = RemoteCalls::default();
    for (payload, d) in [
        (r#"{"city":"Bonn"}"#, json!({"city": "Bonn"})),
        ("Bonn, now", json!("Bonn, now")),
    ] {
        let start = calls.handle_request("ann", request("r", payload), now);
        acknowledged(&start, "r");
        assert_eq!(start.packets.len(), 1);
        let message: Value = serde_json::from_str(&start.message.expect("a message")).expect("JSON");
        assert_eq!(
            (&message["label"], &message["type"], &message["data"]),
            (
                &json!("rtvi-ai"),
                &json!("client-message"),
                &json!({"t": "weather", "d": d, "identity": "ann"})
            )
        );
        let id = message["id"].as_str().expect("an id");
        assert_eq!(
            calls.handle_request("ann", request("r", "again"), now),
            CallStart::default()
        );
        let answer = calls.handle_response(id, &json!({"c": 7})).expect("an answer");
        assert_eq!(result(&answer), ("r".into(), Ok(r#"{"c":7}"#.into())));
        assert_eq!(calls.handle_response(id, &json!(1)), None, "only one answer");
    }
    let start = calls.handle_request("ann", request("s", ""), now);
    let message: Value = serde_json::from_str(&start.message.expect("a message")).expect("JSON");
    assert_eq!(message["data"]["d"], "");
    let id = message["id"].as_str().expect("an id");
    assert_eq!(
        calls.handle_response("s", &json!("sun")),
        None,
        "ids of others are not calls"
    );
    assert_eq!(
        result(&calls.handle_response(id, &json!("sun")).expect("an answer")),
        ("s".into(), Ok("sun".into()))
    );
    assert_eq!(calls.poll_timeout(), None);
}

#[test]
fn calls_fail_with_the_codes_of_the_protocol() {
    let now = Instant::now();
    let mut calls = RemoteCalls::default();
    let longest = "x".repeat(ROOM_CALL_BYTES_MAX);
    for (request, code) in [
        (
            RpcRequest {
                version: 2,
                ..request("v", "")
            },
            1404,
        ),
        (request("l", &format!("{longest}x")), 1402),
        (
            RpcRequest {
                method: String::new(),
                ..request("m", "")
            },
            1400,
        ),
    ] {
        let id = request.id.clone();
        let start = calls.handle_request("ann", request, now);
        acknowledged(&start, &id);
        assert_eq!(
            (result(&start.packets[1]), start.message),
            ((id, Err((code, String::new()))), None)
        );
    }
    assert!(
        calls
            .handle_request("ann", request("a", &longest), now)
            .message
            .is_some()
    );
    assert_eq!(
        result(&calls.handle_response("rpc-1", &json!(longest)).expect("an answer")).1,
        Ok(longest.clone())
    );
    calls.handle_request("ann", request("b", ""), now);
    let too_long = calls
        .handle_response("rpc-2", &json!(format!("{longest}x")))
        .expect("an answer");
    assert_eq!(result(&too_long).1, Err((1504, String::new())));
    calls.handle_request("ann", request("c", ""), now);
    let rejected = calls.handle_rejection("rpc-3", "not today").expect("an answer");
    assert_eq!(result(&rejected).1, Err((1500, "not today".into())));
    assert_eq!(calls.handle_rejection("rpc-3", ""), None);
}

/// A method without an answer is unknown, once the caller's time is over.
#[test]
fn a_call_without_an_answer_ends_in_time() {
    let now = Instant::now();
    let mut calls = RemoteCalls::default();
    for (id, ms, within_ms) in [("a", 8_000, 8_000), ("b", 0, 1_000), ("c", u32::MAX, 60_000)] {
        let request = RpcRequest {
            response_timeout_ms: ms,
            ..request(id, "")
        };
        calls.handle_request("ann", request, now);
        let until = now + Duration::from_millis(within_ms);
        assert_eq!(calls.poll_timeout(), Some(until));
        assert!(calls.handle_timeout(until - Duration::from_millis(1)).is_empty());
        let late = calls.handle_timeout(until);
        assert_eq!(late.len(), 1);
        assert_eq!(result(&late[0]), (id.into(), Err((1400, String::new()))));
    }
}

#[test]
fn bounds_the_number_of_calls() {
    let now = Instant::now();
    let mut calls = RemoteCalls::default();
    for number in 0..ROOM_CALLS_MAX {
        assert!(
            calls
                .handle_request("ann", request(&number.to_string(), ""), now)
                .message
                .is_some()
        );
    }
    let refused = calls.handle_request("ann", request("more", ""), now);
    assert_eq!(result(&refused.packets[1]).1, Err((1500, String::new())));
    calls.handle_left("bob");
    assert!(calls.poll_timeout().is_some());
    calls.handle_left("ann");
    assert_eq!(calls.poll_timeout(), None);
    calls.handle_request("ann", request("0", ""), now);
    calls.handle_close();
    assert_eq!(calls.handle_response("rpc-17", &json!(1)), None);
}
