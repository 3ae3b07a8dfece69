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
mod tests;
