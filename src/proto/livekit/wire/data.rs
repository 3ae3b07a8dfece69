//! The protobuf messages of LiveKit's data channels: one [`DataPacket`] is one message.
//!
//! In and out: the bytes of a message of a data channel. Decoding skips unknown fields; a packet of
//! an unknown type has no value. Source: `docs/spec/livekit.md` 5.3 to 5.5.

use std::collections::BTreeMap;

use bytes::Bytes;

/// One message of a data channel.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DataPacket {
    /// The sender. The server sets it, except in text streams of agents.
    #[prost(string, tag = "4")]
    pub participant_identity: String,
    /// The recipients. Empty means everybody.
    #[prost(string, repeated, tag = "5")]
    pub destination_identities: Vec<String>,
    /// The number of a reliable packet, from 1 in each stay. 0 is none.
    #[prost(uint32, tag = "16")]
    pub sequence: u32,
    #[prost(string, tag = "17")]
    pub participant_sid: String,
    #[prost(oneof = "DataValue", tags = "2, 6, 10, 11, 12, 13, 14, 15, 18")]
    pub value: Option<DataValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum DataValue {
    #[prost(message, tag = "2")]
    User(UserPacket),
    #[prost(message, tag = "6")]
    Dtmf(SipDtmf),
    #[prost(message, tag = "10")]
    RpcRequest(RpcRequest),
    #[prost(message, tag = "11")]
    RpcAck(RpcAck),
    #[prost(message, tag = "12")]
    RpcResponse(RpcResponse),
    #[prost(message, tag = "13")]
    StreamHeader(StreamHeader),
    #[prost(message, tag = "14")]
    StreamChunk(StreamChunk),
    #[prost(message, tag = "15")]
    StreamTrailer(StreamTrailer),
    #[prost(message, tag = "18")]
    Encrypted(EncryptedPacket),
}

/// A call of a method of another participant.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RpcRequest {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, tag = "2")]
    pub method: String,
    #[prost(string, tag = "3")]
    pub payload: String,
    #[prost(uint32, tag = "4")]
    pub response_timeout_ms: u32,
    #[prost(uint32, tag = "5")]
    pub version: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RpcAck {
    #[prost(string, tag = "1")]
    pub request_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RpcResponse {
    #[prost(string, tag = "1")]
    pub request_id: String,
    #[prost(oneof = "RpcResult", tags = "2, 3")]
    pub result: Option<RpcResult>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum RpcResult {
    #[prost(string, tag = "2")]
    Payload(String),
    #[prost(message, tag = "3")]
    Error(RpcError),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RpcError {
    #[prost(uint32, tag = "1")]
    pub code: u32,
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(string, tag = "3")]
    pub data: String,
}

/// The first packet of a stream of text or bytes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StreamHeader {
    #[prost(string, tag = "1")]
    pub stream_id: String,
    /// Unix time in milliseconds.
    #[prost(int64, tag = "2")]
    pub timestamp: i64,
    #[prost(string, tag = "3")]
    pub topic: String,
    #[prost(string, tag = "4")]
    pub mime_type: String,
    /// Bytes, if they are known.
    #[prost(uint64, optional, tag = "5")]
    pub total_length: Option<u64>,
    #[prost(btree_map = "string, string", tag = "8")]
    pub attributes: BTreeMap<String, String>,
    #[prost(oneof = "StreamContent", tags = "9, 10")]
    pub content: Option<StreamContent>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum StreamContent {
    #[prost(message, tag = "9")]
    Text(TextStreamHeader),
    #[prost(message, tag = "10")]
    Bytes(ByteStreamHeader),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct TextStreamHeader {
    /// 0 create, 1 update, 2 delete, 3 reaction.
    #[prost(int32, tag = "1")]
    pub operation: i32,
    #[prost(int32, tag = "2")]
    pub version: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ByteStreamHeader {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct StreamChunk {
    #[prost(string, tag = "1")]
    pub stream_id: String,
    /// From 0.
    #[prost(uint64, tag = "2")]
    pub chunk_index: u64,
    #[prost(bytes = "bytes", tag = "3")]
    pub content: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct StreamTrailer {
    #[prost(string, tag = "1")]
    pub stream_id: String,
    /// Empty if the stream is complete.
    #[prost(string, tag = "2")]
    pub reason: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub attributes: BTreeMap<String, String>,
}

/// A packet that only participants with the key of the room can read.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EncryptedPacket {
    /// 0 none, 1 GCM, 2 custom.
    #[prost(int32, tag = "1")]
    pub encryption: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct UserPacket {
    #[prost(bytes = "bytes", tag = "2")]
    pub payload: Bytes,
    #[prost(string, optional, tag = "4")]
    pub topic: Option<String>,
    #[prost(string, optional, tag = "8")]
    pub id: Option<String>,
}

/// A key that a SIP caller pressed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SipDtmf {
    #[prost(uint32, tag = "3")]
    pub code: u32,
    #[prost(string, tag = "4")]
    pub digit: String,
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;
    use prost::Message as _;

    use super::*;
    use crate::livekit::wire::{SignalRequest, SignalRequestKind, UpdateParticipantMetadata};

    fn packet(value: DataValue) -> String {
        let packet = DataPacket {
            value: Some(value),
            ..DataPacket::default()
        };
        HEXLOWER.encode(&packet.encode_to_vec())
    }

    /// Vectors of the published protocol's generated code.
    #[test]
    fn encodes_as_the_published_protocol_does() {
        let header = StreamHeader {
            stream_id: "s".into(),
            timestamp: 1,
            topic: "lk.chat".into(),
            mime_type: "text/plain".into(),
            content: Some(StreamContent::Text(TextStreamHeader::default())),
            ..StreamHeader::default()
        };
        assert_eq!(
            packet(DataValue::StreamHeader(header)),
            "6a1c0a017310011a076c6b2e63686174220a746578742f706c61696e4a00"
        );
        let request = RpcRequest {
            id: "a".into(),
            method: "weather".into(),
            payload: r#"{"a":1}"#.into(),
            response_timeout_ms: 8_000,
            version: 1,
        };
        assert_eq!(
            packet(DataValue::RpcRequest(request)),
            "521a0a01611207776561746865721a077b2261223a317d20c03e2801"
        );
        let update = UpdateParticipantMetadata {
            attributes: BTreeMap::from([("lk.agent.state".into(), "listening".into())]),
            request_id: 1,
            ..UpdateParticipantMetadata::default()
        };
        let update = SignalRequest {
            message: Some(SignalRequestKind::UpdateMetadata(update)),
        };
        assert_eq!(
            HEXLOWER.encode(&update.encode_to_vec()),
            "7a1f1a1b0a0e6c6b2e6167656e742e737461746512096c697374656e696e672001"
        );
    }
}
