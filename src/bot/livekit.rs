//! What a bot is given of a LiveKit room, and the call of a telephone there.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::media::{MediaSlot, RoomCallData};
use crate::config::Secret;
use crate::proto::call_control::{CallControlError, TransferTarget};
use crate::proto::hang_up::HangUpApi;
use crate::proto::job::Job;
use crate::proto::livekit::room_service::{RoomHangUp, RoomService};
use crate::proto::server::rest::RestRequest;

/// What a session in a LiveKit room has.
#[non_exhaustive]
#[doc(alias = "LiveKit")]
pub struct MediaroomArguments {
    /// The room's name.
    pub room_name: String,
    /// The server's `ws` or `wss` URL.
    pub url: String,
    /// The access token with which the bot joins.
    pub token: Secret,
    /// See [`RunnerArguments::job`](super::RunnerArguments::job).
    pub job: Option<Arc<Job>>,
    /// The call of a telephone in the room.
    pub(crate) call: RoomCall,
    pub(super) media: Option<MediaSlot>,
}

impl fmt::Debug for MediaroomArguments {
    /// Omits the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MediaroomArguments")
            .field("room_name", &self.room_name)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl MediaroomArguments {
    pub(crate) fn new(
        room_name: String,
        url: String,
        token: Secret,
        service: Option<RoomService>,
        slot: MediaSlot,
    ) -> Self {
        MediaroomArguments {
            room_name,
            url,
            token,
            job: None,
            call: RoomCall {
                service,
                data: slot.call_data(),
            },
            media: Some(slot),
        }
    }

    /// Returns the arguments with a job. The call of a telephone that the job is for is known from
    /// the start.
    pub(crate) fn with_job(self, job: Option<Arc<Job>>) -> Self {
        let who = job.as_ref().and_then(|job| job.participant.as_ref());
        if let Some(call_data) = who.and_then(|who| who.as_participant().call_data()) {
            let _ = self.call.data.set(call_data);
        }
        MediaroomArguments { job, ..self }
    }
}

/// The call of the first telephone in a room, once it is there.
#[derive(Clone)]
pub(crate) struct RoomCall {
    /// The API of the server, where a credential allows its use.
    pub(crate) service: Option<RoomService>,
    data: RoomCallData,
}

impl RoomCall {
    /// Returns the API that judges the responses of the server.
    pub(crate) fn api() -> &'static dyn HangUpApi {
        &RoomHangUp
    }

    /// Returns the data of the call.
    pub(crate) fn data(&self) -> Option<&Value> {
        self.data.get()
    }

    /// Returns the identity of the telephone.
    ///
    /// # Errors
    /// [`CallControlError::NoCall`] until it is there.
    pub(crate) fn identity(&self) -> Result<&str, CallControlError> {
        let identity = self.data().and_then(|data| data["identity"].as_str());
        identity.ok_or(CallControlError::NoCall)
    }

    /// Returns the request that transfers the call.
    ///
    /// # Errors
    /// [`CallControlError`] without a telephone or credentials, or for a target that is not a
    /// number or a SIP address.
    pub(crate) fn transfer(&self, target: &TransferTarget, now_s: u64) -> Result<RestRequest, CallControlError> {
        let identity = self.identity()?;
        let service = self.service.as_ref().ok_or(CallControlError::Credentials(&[
            "MEDIAROOM_API_KEY",
            "MEDIAROOM_API_SECRET",
        ]))?;
        service.transfer(identity, target, now_s)
    }
}
