//! Calls of the bot's methods by participants, in version 1 of LiveKit's RPC.
//!
//! In: requests of participants, the bot's answers, and `now`. Out: for each request a message of
//! the application for the bot, in RTVI, and one answer to the participant: that of the bot, or an
//! error. Rejected: other versions, payloads and answers above [`ROOM_CALL_BYTES_MAX`], and more
//! than [`ROOM_CALLS_MAX`] calls at once. Source: `docs/spec/livekit.md` 5.5.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::wire::{DataPacket, DataValue, RpcAck, RpcError, RpcRequest, RpcResponse, RpcResult};
use crate::limits::{ROOM_CALL_BYTES_MAX, ROOM_CALLS_MAX, ROOM_NAME_BYTES_MAX};
use crate::rtvi::LABEL;
use std::ops::RangeInclusive;

/// Time that a caller may give the bot to answer a call.
const ROOM_CALL_WITHIN_RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60);

/// The version of requests that are served.
const VERSION: u32 = 1;
/// The begin of the id of a call in RTVI.
const ID_PREFIX: &str = "rpc-";

/// Why a call fails, with LiveKit's codes and texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallFailure {
    UnknownMethod,
    RequestTooLong,
    ResponseTooLong,
    Version,
    /// The bot rejected the call, or too many are pending.
    Rejected,
}

impl CallFailure {
    fn code(self) -> u32 {
        match self {
            CallFailure::UnknownMethod => 1400,
            CallFailure::RequestTooLong => 1402,
            CallFailure::Version => 1404,
            CallFailure::Rejected => 1500,
            CallFailure::ResponseTooLong => 1504,
        }
    }

    fn text(self) -> &'static str {
        match self {
            CallFailure::UnknownMethod => "Method not supported at destination",
            CallFailure::RequestTooLong => "Request payload too large",
            CallFailure::Version => "Unsupported RPC version",
            CallFailure::Rejected => "Application error in method handler",
            CallFailure::ResponseTooLong => "Response payload too large",
        }
    }
}

/// The calls that wait for the bot.
#[derive(Default)]
pub struct RemoteCalls {
    pending: BTreeMap<u64, RemoteCall>,
    count: u64,
}

struct RemoteCall {
    caller: String,
    request_id: String,
    until: Instant,
}

/// What a request leads to.
#[derive(Debug, Default, PartialEq)]
pub struct CallStart {
    /// Packets for the caller.
    pub packets: Vec<DataPacket>,
    /// The message for the bot.
    pub message: Option<String>,
}

impl RemoteCalls {
    /// Handles a request. It is acknowledged at once.
    pub fn handle_request(&mut self, caller: &str, request: RpcRequest, now: Instant) -> CallStart {
        let is_pending = |call: &RemoteCall| call.caller == caller && call.request_id == request.id;
        if request.id.len() > ROOM_NAME_BYTES_MAX || self.pending.values().any(is_pending) {
            log::debug!("a call is ignored: it is repeated, or its id is too long");
            return CallStart::default();
        }
        let ack = RpcAck {
            request_id: request.id.clone(),
        };
        let mut packets = vec![packet(caller, DataValue::RpcAck(ack))];
        let failure = if request.version != VERSION {
            Some(CallFailure::Version)
        } else if request.payload.len() > ROOM_CALL_BYTES_MAX {
            Some(CallFailure::RequestTooLong)
        } else if request.method.is_empty() || request.method.len() > ROOM_NAME_BYTES_MAX {
            Some(CallFailure::UnknownMethod)
        } else if self.pending.len() >= ROOM_CALLS_MAX {
            Some(CallFailure::Rejected)
        } else {
            None
        };
        if let Some(failure) = failure {
            log::debug!("a call is rejected: {}", failure.text());
            packets.push(response(caller, request.id, error(failure, String::new())));
            return CallStart { packets, message: None };
        }
        let within = Duration::from_millis(request.response_timeout_ms.into())
            .clamp(*ROOM_CALL_WITHIN_RANGE.start(), *ROOM_CALL_WITHIN_RANGE.end());
        self.count += 1;
        let call = RemoteCall {
            caller: caller.to_owned(),
            request_id: request.id,
            until: now + within,
        };
        self.pending.insert(self.count, call);
        // A payload that is no JSON is a text.
        let d = serde_json::from_str(&request.payload).unwrap_or(Value::String(request.payload));
        let message = json!({
            "label": LABEL,
            "type": "client-message",
            "id": format!("{ID_PREFIX}{}", self.count),
            "data": {"t": request.method, "d": d, "identity": caller},
        });
        CallStart {
            packets,
            message: Some(message.to_string()),
        }
    }

    /// Handles a response of the bot. Returns the answer to the caller; `None` if the id is that of
    /// no call.
    pub fn handle_response(&mut self, id: &str, data: &Value) -> Option<DataPacket> {
        let call = self.take(id)?;
        let payload = match data {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let result = match payload.len() <= ROOM_CALL_BYTES_MAX {
            true => RpcResult::Payload(payload),
            false => error(CallFailure::ResponseTooLong, String::new()),
        };
        Some(response(&call.caller, call.request_id, result))
    }

    /// Handles a rejection by the bot, as [`RemoteCalls::handle_response`] does.
    pub fn handle_rejection(&mut self, id: &str, words: &str) -> Option<DataPacket> {
        let call = self.take(id)?;
        let words = match words.len() <= ROOM_CALL_BYTES_MAX {
            true => words.to_owned(),
            false => String::new(),
        };
        Some(response(
            &call.caller,
            call.request_id,
            error(CallFailure::Rejected, words),
        ))
    }

    /// Returns the answers to calls that the bot has not answered in time: it does not know the
    /// method.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<DataPacket> {
        let is_late = |(number, call): (&u64, &RemoteCall)| (now >= call.until).then_some(*number);
        let late: Vec<u64> = self.pending.iter().filter_map(is_late).collect();
        let late = late.into_iter().filter_map(|number| self.pending.remove_entry(&number));
        late.map(|(_, call)| {
            response(
                &call.caller,
                call.request_id,
                error(CallFailure::UnknownMethod, String::new()),
            )
        })
        .collect()
    }

    /// Returns when [`RemoteCalls::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.pending.values().map(|call| call.until).min()
    }

    /// Drops the calls of a participant that has left.
    pub fn handle_left(&mut self, identity: &str) {
        self.pending.retain(|_, call| call.caller != identity);
    }

    /// Drops all calls with the connection.
    pub fn handle_close(&mut self) {
        self.pending.clear();
    }

    fn take(&mut self, id: &str) -> Option<RemoteCall> {
        self.pending.remove(&id.strip_prefix(ID_PREFIX)?.parse().ok()?)
    }
}

fn error(failure: CallFailure, data: String) -> RpcResult {
    RpcResult::Error(RpcError {
        code: failure.code(),
        message: failure.text().to_owned(),
        data,
    })
}

fn response(caller: &str, request_id: String, result: RpcResult) -> DataPacket {
    let response = RpcResponse {
        request_id,
        result: Some(result),
    };
    packet(caller, DataValue::RpcResponse(response))
}

fn packet(recipient: &str, value: DataValue) -> DataPacket {
    DataPacket {
        destination_identities: vec![recipient.to_owned()],
        value: Some(value),
        ..DataPacket::default()
    }
}

#[cfg(test)]
mod tests {
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
}
