//! The protobuf messages between an agent worker and a LiveKit server, with the fields that are
//! used.
//!
//! In and out: the bytes of one binary WebSocket message. Decoding skips unknown fields and
//! messages. [`parse`] rejects messages that would take far more memory than their size. Source:
//! `docs/spec/livekit.md` 6.2; the numbers are those of the published protocol.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message as _;

use crate::limits::{ROOM_MESSAGE_PARTS_MAX, WORKER_MESSAGE_BYTES_MAX};
use crate::livekit::wire::{MessageShape, ParticipantInfo, ParticipantPermission, RoomInfo, WireError, count_parts};

/// A message of the worker.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WorkerRequest {
    #[prost(oneof = "WorkerRequestKind", tags = "1, 2, 3, 4, 5, 7")]
    pub message: Option<WorkerRequestKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum WorkerRequestKind {
    #[prost(message, tag = "1")]
    Register(RegisterWorker),
    /// The answer to an offer.
    #[prost(message, tag = "2")]
    Availability(AvailabilityAnswer),
    #[prost(message, tag = "3")]
    UpdateWorker(UpdateWorker),
    #[prost(message, tag = "4")]
    UpdateJob(UpdateJob),
    #[prost(message, tag = "5")]
    Ping(WorkerPing),
    /// The jobs that live on after a reconnect.
    #[prost(message, tag = "7")]
    Migrate(MigrateJobs),
}

impl From<WorkerRequestKind> for Vec<u8> {
    fn from(kind: WorkerRequestKind) -> Self {
        WorkerRequest { message: Some(kind) }.encode_to_vec()
    }
}

/// A message of the server.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WorkerResponse {
    #[prost(oneof = "WorkerResponseKind", tags = "1, 2, 3, 4, 5, 6")]
    pub message: Option<WorkerResponseKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum WorkerResponseKind {
    #[prost(message, tag = "1")]
    Register(WorkerRegistered),
    /// The offer of a job.
    #[prost(message, tag = "2")]
    Availability(Box<JobOffer>),
    #[prost(message, tag = "3")]
    Assignment(Box<JobAssignment>),
    #[prost(message, tag = "4")]
    Pong(WorkerPong),
    #[prost(message, tag = "5")]
    Termination(JobTermination),
    /// Servers after 1.13.5 announce with it that they end.
    #[prost(message, tag = "6")]
    GoAway(GoAway),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RegisterWorker {
    /// 0 room, 1 publisher, 2 participant.
    #[prost(int32, tag = "1")]
    pub job_type: i32,
    #[prost(string, tag = "3")]
    pub version: String,
    /// Absent means that everything is allowed.
    #[prost(message, optional, tag = "7")]
    pub allowed_permissions: Option<ParticipantPermission>,
    #[prost(string, tag = "8")]
    pub agent_name: String,
    #[prost(string, tag = "9")]
    pub deployment: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct WorkerRegistered {
    #[prost(string, tag = "1")]
    pub worker_id: String,
    #[prost(message, optional, tag = "3")]
    pub server_info: Option<WorkerServerInfo>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct WorkerServerInfo {
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(string, tag = "4")]
    pub region: String,
    #[prost(string, tag = "5")]
    pub node_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct JobOffer {
    #[prost(message, optional, tag = "1")]
    pub job: Option<JobInfo>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AvailabilityAnswer {
    #[prost(string, tag = "1")]
    pub job_id: String,
    #[prost(bool, tag = "2")]
    pub available: bool,
    #[prost(string, tag = "4")]
    pub participant_name: String,
    #[prost(string, tag = "5")]
    pub participant_identity: String,
    #[prost(btree_map = "string, string", tag = "7")]
    pub participant_attributes: BTreeMap<String, String>,
    /// The job counts as done, and no other worker is asked.
    #[prost(bool, tag = "8")]
    pub terminate: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct JobAssignment {
    #[prost(message, optional, tag = "1")]
    pub job: Option<JobInfo>,
    /// The server of the room, if it is another one.
    #[prost(string, optional, tag = "2")]
    pub url: Option<String>,
    #[prost(string, tag = "3")]
    pub token: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct JobTermination {
    #[prost(string, tag = "1")]
    pub job_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GoAway {
    #[prost(string, tag = "1")]
    pub reason: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct JobInfo {
    #[prost(string, tag = "1")]
    pub id: String,
    /// 0 room, 1 publisher, 2 participant.
    #[prost(int32, tag = "2")]
    pub job_type: i32,
    #[prost(message, optional, tag = "3")]
    pub room: Option<RoomInfo>,
    #[prost(message, optional, tag = "4")]
    pub participant: Option<ParticipantInfo>,
    #[prost(string, tag = "6")]
    pub metadata: String,
    #[prost(string, tag = "7")]
    pub agent_name: String,
    #[prost(string, tag = "9")]
    pub dispatch_id: String,
    #[prost(string, tag = "11")]
    pub deployment: String,
    #[prost(btree_map = "string, string", tag = "12")]
    pub attributes: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct UpdateJob {
    #[prost(string, tag = "1")]
    pub job_id: String,
    /// 1 running, 2 success, 3 failed.
    #[prost(int32, tag = "2")]
    pub status: i32,
    #[prost(string, tag = "3")]
    pub error: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct UpdateWorker {
    /// 0 available, 1 full. The server requires the field.
    #[prost(int32, optional, tag = "1")]
    pub status: Option<i32>,
    #[prost(float, tag = "3")]
    pub load: f32,
    #[prost(uint32, tag = "4")]
    pub job_count: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct WorkerPing {
    /// Unix time in milliseconds.
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct WorkerPong {
    #[prost(int64, tag = "1")]
    pub last_timestamp: i64,
    #[prost(int64, tag = "2")]
    pub timestamp: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct MigrateJobs {
    #[prost(string, repeated, tag = "2")]
    pub job_ids: Vec<String>,
}

/// Parses one message of the server.
///
/// # Errors
/// [`WireError`] if the message is too long, has too many parts or is malformed.
pub fn parse(bytes: Bytes) -> Result<WorkerResponse, WireError> {
    if bytes.len() > WORKER_MESSAGE_BYTES_MAX {
        return Err(WireError::TooLong { bytes: bytes.len() });
    }
    let mut left = ROOM_MESSAGE_PARTS_MAX;
    count_parts(&bytes, MessageShape::Worker, &mut left)?;
    WorkerResponse::decode(bytes).map_err(|_| WireError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use data_encoding::HEXLOWER;

    /// Encodes a message of the worker, and decodes it again.
    fn hex(kind: WorkerRequestKind) -> String {
        let bytes = Vec::from(kind.clone());
        let back = WorkerRequest::decode(&*bytes).expect("its own message");
        assert_eq!(back.message, Some(kind));
        HEXLOWER.encode(&bytes)
    }

    /// Parses a vector of the server, and encodes it again.
    fn message(hex: &str) -> WorkerResponseKind {
        let bytes = HEXLOWER.decode(hex.as_bytes()).expect("hex");
        let message = parse(bytes.clone().into()).expect("a message");
        assert_eq!(message.encode_to_vec(), bytes);
        message.message.expect("a known kind")
    }

    /// The vectors come from the published protocol's generated code: `docs/spec/livekit.md` 6.2.
    #[test]
    fn the_worker_s_messages_match_the_vectors() {
        let register = RegisterWorker {
            version: "0.1.0".into(),
            allowed_permissions: Some(ParticipantPermission {
                can_subscribe: true,
                can_publish: true,
                can_publish_data: true,
                can_update_metadata: true,
                ..ParticipantPermission::default()
            }),
            agent_name: "bot".into(),
            ..RegisterWorker::default()
        };
        assert_eq!(
            hex(WorkerRequestKind::Register(register)),
            "0a161a05302e312e303a0808011001180150014203626f74"
        );
        let status = |status, load, job_count| {
            hex(WorkerRequestKind::UpdateWorker(UpdateWorker {
                status: Some(status),
                load,
                job_count,
            }))
        };
        assert_eq!(status(0, 0.25, 2), "1a0908001d0000803e2002");
        assert_eq!(status(1, 1.0, 2), "1a0908011d0000803f2002");
        let yes = AvailabilityAnswer {
            job_id: "AJ_1".into(),
            available: true,
            participant_name: "bot".into(),
            participant_identity: "agent-AJ_1".into(),
            ..AvailabilityAnswer::default()
        };
        assert_eq!(
            hex(WorkerRequestKind::Availability(yes)),
            "12190a04414a5f3110012203626f742a0a6167656e742d414a5f31"
        );
        let no = AvailabilityAnswer {
            job_id: "AJ_1".into(),
            ..AvailabilityAnswer::default()
        };
        assert_eq!(hex(WorkerRequestKind::Availability(no)), "12060a04414a5f31");
        let failed = UpdateJob {
            job_id: "AJ_1".into(),
            status: 3,
            error: "bot failed".into(),
        };
        assert_eq!(
            hex(WorkerRequestKind::UpdateJob(failed)),
            "22140a04414a5f3110031a0a626f74206661696c6564"
        );
    }

    #[test]
    fn the_server_s_messages_match_the_vectors() {
        let WorkerResponseKind::Availability(offer) = message("12160a140a04414a5f311a0312017232027b7d3a03626f74")
        else {
            panic!("an offer")
        };
        let job = offer.job.expect("a job");
        assert_eq!((&*job.id, &*job.metadata, &*job.agent_name), ("AJ_1", "{}", "bot"));
        assert_eq!(job.room.expect("a room").name, "r");
        let WorkerResponseKind::Assignment(assignment) = message("1a100a0b0a04414a5f311a031201721a0174") else {
            panic!("an assignment")
        };
        assert_eq!((&*assignment.token, assignment.url), ("t", None));
        let WorkerResponseKind::Termination(ended) = message("2a060a04414a5f31") else {
            panic!("a termination")
        };
        assert_eq!(ended.job_id, "AJ_1");
    }

    /// A message at the limit is parsed, one past it is not; nor is one with more parts than any
    /// job has. A message of a newer server is no error.
    #[test]
    fn bounds_messages() {
        let offer = |metadata: usize| {
            let job = JobInfo {
                metadata: "x".repeat(metadata),
                ..JobInfo::default()
            };
            let offer = Box::new(JobOffer { job: Some(job) });
            let message = Some(WorkerResponseKind::Availability(offer));
            Bytes::from(WorkerResponse { message }.encode_to_vec())
        };
        let sizes = WORKER_MESSAGE_BYTES_MAX - 32..;
        let fits = |metadata: &usize| offer(*metadata).len() <= WORKER_MESSAGE_BYTES_MAX;
        let longest = sizes.take_while(fits).last().expect("some fit");
        assert!(parse(offer(longest)).is_ok());
        assert!(matches!(parse(offer(longest + 1)), Err(WireError::TooLong { .. })));
        let attributes = |count: usize| {
            let attributes = (0..count).map(|at| (at.to_string(), String::new())).collect();
            let job = Some(JobInfo {
                attributes,
                ..JobInfo::default()
            });
            let message = Some(WorkerResponseKind::Availability(Box::new(JobOffer { job })));
            Bytes::from(WorkerResponse { message }.encode_to_vec())
        };
        assert!(parse(attributes(ROOM_MESSAGE_PARTS_MAX - 2)).is_ok());
        assert_eq!(parse(attributes(ROOM_MESSAGE_PARTS_MAX)), Err(WireError::TooManyParts));
        let newer = Bytes::from_static(&[0x7a, 0x02, 0x08, 0x01]);
        assert_eq!(parse(newer).expect("a message").message, None);
        assert_eq!(parse(Bytes::from_static(&[0x0a])), Err(WireError::Malformed));
    }
}
