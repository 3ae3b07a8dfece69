//! A job: why a LiveKit server has sent the bot into a room, as bots and programs see it.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

use crate::participant::Participant;

/// What a job of a LiveKit server is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobType {
    /// A room, from its creation on.
    #[default]
    Room,
    /// One participant that publishes a track.
    Publisher,
    /// One participant.
    Participant,
}

impl JobType {
    /// All types, in the order of the help.
    pub const ALL: [JobType; 3] = [JobType::Room, JobType::Participant, JobType::Publisher];

    /// Returns the name of the type.
    pub fn name(self) -> &'static str {
        match self {
            JobType::Room => "room",
            JobType::Publisher => "publisher",
            JobType::Participant => "participant",
        }
    }

    /// Returns the type with this name.
    pub fn from_name(name: &str) -> Option<JobType> {
        JobType::ALL.into_iter().find(|of| of.name() == name)
    }
}

/// A job that a LiveKit server has assigned to this runner.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Job {
    /// The id of the job, `AJ_` and letters.
    pub id: String,
    /// The id of the dispatch that made it, `AD_` and letters.
    pub dispatch_id: String,
    /// What the job is for.
    pub job_type: JobType,
    /// The name by which the bot was asked for; empty for a job that every room makes.
    pub agent_name: String,
    /// The metadata of the dispatch, any text.
    pub metadata: String,
    /// The attributes of the dispatch.
    pub attributes: BTreeMap<String, String>,
    /// The id of the room, `RM_` and letters.
    pub room_sid: String,
    /// The metadata of the room when the job was offered.
    pub room_metadata: String,
    /// The participant that the job is for, as of then; `None` for a job of a room.
    pub participant: Option<JobParticipant>,
    /// The id under which the runner was registered, `AW_` and letters.
    pub worker_id: String,
}

/// The participant that a job is for.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobParticipant {
    /// The identity in the access token.
    pub identity: String,
    /// The displayed name; may be empty.
    pub name: String,
    /// Its attributes, such as those of a telephone call.
    pub attributes: BTreeMap<String, String>,
    /// `standard`, `ingress`, `egress`, `sip`, `agent`, `connector`, `bridge` or `other`.
    pub kind: &'static str,
}

impl fmt::Debug for Job {
    /// Omits metadata and attributes, which may contain personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("id", &self.id)
            .field("job_type", &self.job_type)
            .field("agent_name", &self.agent_name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for JobParticipant {
    /// Omits names and attributes, which contain telephone numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobParticipant")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl JobParticipant {
    /// Returns the participant in the form in which it is in the room.
    pub fn as_participant(&self) -> Participant {
        Participant {
            identity: self.identity.as_str().into(),
            name: self.name.clone(),
            is_agent: self.kind == "agent",
            is_telephone: matches!(self.kind, "sip" | "connector"),
            attributes: self.attributes.clone(),
        }
    }
}

impl Job {
    /// Returns the job as JSON, for a program.
    pub fn to_json(&self) -> Value {
        let mut job = json!({
            "id": self.id,
            "dispatch_id": self.dispatch_id,
            "type": self.job_type.name(),
            "agent_name": self.agent_name,
            "metadata": self.metadata,
            "attributes": self.attributes,
            "room_sid": self.room_sid,
            "room_metadata": self.room_metadata,
            "worker_id": self.worker_id,
        });
        if let Some(participant) = &self.participant {
            job["participant"] = json!({
                "identity": participant.identity,
                "name": participant.name,
                "attributes": participant.attributes,
                "kind": participant.kind,
            });
        }
        job
    }

    /// Returns the body of the session: the metadata if that is a JSON object, else an empty
    /// object.
    pub fn body(&self) -> Value {
        match serde_json::from_str(&self.metadata) {
            Ok(body @ Value::Object(_)) => body,
            _ => json!({}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_is_metadata_that_is_a_json_object() {
        for (metadata, body) in [
            (r#"{"lang":"en"}"#, json!({"lang": "en"})),
            ("", json!({})),
            ("[1]", json!({})),
            ("plain text", json!({})),
            ("{", json!({})),
        ] {
            let job = Job {
                metadata: metadata.into(),
                ..Job::default()
            };
            assert_eq!(job.body(), body, "{metadata}");
            assert_eq!(job.to_json()["metadata"], metadata);
        }
    }

    /// The participant is absent from a job of a room, and present in one of a participant. The
    /// debug form has no personal data.
    #[test]
    fn json_has_the_participant_of_its_job_only() {
        let room = Job::default();
        assert_eq!(room.to_json().get("participant"), None);
        let of_caller = Job {
            job_type: JobType::Participant,
            metadata: "secret".into(),
            participant: Some(JobParticipant {
                identity: "sip_+15550001".into(),
                kind: "sip",
                ..JobParticipant::default()
            }),
            ..room
        };
        let json = of_caller.to_json();
        assert_eq!(
            (&json["type"], &json["participant"]["kind"]),
            (&json!("participant"), &json!("sip"))
        );
        let debug = format!("{of_caller:?} {:?}", of_caller.participant);
        assert!(!debug.contains("secret") && !debug.contains("5550001"), "{debug}");
    }
}
