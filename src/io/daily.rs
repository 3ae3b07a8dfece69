//! Requests to Daily's REST API: a room and a token, with retries, and deletion of unused rooms.
//!
//! In: the configuration and the purpose of the room. Out: [`PreparedRoom`], or a [`DailyError`]
//! within [`ROOM_WITHIN`]. `proto::daily` defines the requests, reads the answers, and decides
//! which to retry. Source: `docs/spec/daily.md` 1.

pub mod banner;
pub mod direct;
pub mod doctor;
pub mod routes;

use std::time::SystemTime;

use edge_runner_http::common::random;
use tokio::time::{sleep, timeout};

pub use self::routes::MODULE;
use crate::bot::{Kind, VideoroomArguments};
use crate::config::{Secret, Videoroom};
use crate::io::rest::{self, RestError, RestResponse};
use crate::io::tasks::{self, Slot};
use crate::limits::{ROOM_PAUSES, ROOM_WITHIN};
use crate::proto::daily::{self, ApiStep, DailyError, DailyRoom, RoomPurpose, RoomSource, error};
use crate::proto::server::rest::RestRequest;

/// A room and a token for it. A new room is deleted if this is dropped before
/// [`PreparedRoom::keep`].
pub struct PreparedRoom {
    pub room: DailyRoom,
    pub token: Secret,
    guard: RoomGuard,
}

impl PreparedRoom {
    /// Keeps the room, since a bot is about to join it.
    pub fn keep(&mut self) {
        self.guard.keep();
    }

    /// Returns the bot's arguments.
    pub fn for_bot(&self) -> Kind {
        Kind::Videoroom(VideoroomArguments {
            room_url: self.room.url.clone(),
            token: Some(self.token.clone()),
            sip_uri: self.room.sip_uri.clone(),
        })
    }
}

/// Creates or selects a room, and creates a token for it. If this fails or is cancelled, a new room
/// is deleted; `cleanup_slot` is held until then.
///
/// # Errors
/// [`DailyError`], in words for clients.
pub async fn prepare_room(
    config: &Videoroom,
    purpose: RoomPurpose<'_>,
    cleanup_slot: Option<Slot>,
) -> Result<PreparedRoom, DailyError> {
    let plan = daily::plan(config, purpose, unix_time_s(), random())?;
    for dropped in &plan.dropped {
        log::warn!("{dropped}");
    }
    // Outlives the time limit.
    let mut guard = RoomGuard::default();
    let whole = async {
        let key = config.key.as_ref().ok_or(DailyError::NoKey)?;
        let room = match &plan.room {
            RoomSource::Existing(url) => DailyRoom {
                url: url.clone(),
                // The room's privacy is unknown, and a token does no harm in a public room.
                private: true,
                sip_uri: None,
            },
            RoomSource::New { create, delete } => {
                guard = RoomGuard {
                    delete: Some(delete.clone()),
                    cleanup_slot,
                };
                let answer = send_with_retries(ApiStep::Room, create).await;
                if answer.as_ref().is_err_and(|(_, reached)| !reached) {
                    guard.keep();
                }
                let answer = answer.map_err(|(failure, _)| failure)?;
                if !may_exist(answer.status) {
                    guard.keep();
                }
                daily::parse_room(answer.status, &answer.body, key)?
            }
        };
        let request = plan.token(config, &room.url)?;
        let answer = send_with_retries(ApiStep::Token, &request)
            .await
            .map_err(|(failure, _)| failure)?;
        let token = daily::parse_token(answer.status, &answer.body, key)?;
        Ok((room, token))
    };
    let outcome = timeout(ROOM_WITHIN, whole).await.unwrap_or(Err(DailyError::TooSlow));
    outcome.map(|(room, token)| PreparedRoom { room, token, guard })
}

/// Sends a request, and repeats it after a pause if Daily asks for that or was not reached. A
/// request for a room that may have arrived is not repeated. An error comes with whether the
/// request may have arrived.
async fn send_with_retries(step: ApiStep, request: &RestRequest) -> Result<RestResponse, (DailyError, bool)> {
    let mut pauses = ROOM_PAUSES.iter();
    loop {
        let (outcome, again) = match rest::send(request).await {
            Ok(answer) => {
                let again = error::is_retryable(answer.status);
                (Ok(answer), again)
            }
            Err(error) => {
                let reached = may_have_arrived(&error);
                let again = match error {
                    RestError::Resolve { .. } | RestError::Connect { .. } | RestError::Tls { .. } => true,
                    RestError::Exchange { .. } => step == ApiStep::Token,
                    _ => false,
                };
                let why = error.to_string();
                (Err((DailyError::Unanswered { step, why }, reached)), again)
            }
        };
        match pauses.next().filter(|_| again) {
            None => return outcome,
            Some(pause) => {
                log::debug!("{step}: once more in {pause:?}");
                sleep(*pause).await;
            }
        }
    }
}

/// Tells whether a room may exist after this status. A gateway that gives up may have passed the
/// request on.
fn may_exist(status: u16) -> bool {
    matches!(status, 200..=299 | 502 | 504)
}

fn may_have_arrived(error: &RestError) -> bool {
    matches!(
        error,
        RestError::Exchange { .. } | RestError::TooLong { .. } | RestError::Timeout { .. }
    )
}

/// Deletes a room that was created, or may have been, when dropped. If that fails, the room expires
/// after some hours.
#[derive(Default)]
struct RoomGuard {
    delete: Option<RestRequest>,
    cleanup_slot: Option<Slot>,
}

impl RoomGuard {
    /// Keeps the room, which is in use or was never created, and releases the cleanup slot.
    fn keep(&mut self) {
        self.delete = None;
        self.cleanup_slot = None;
    }
}

impl Drop for RoomGuard {
    fn drop(&mut self) {
        let (Some(delete), Ok(runtime)) = (self.delete.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        let cleanup_slot = self.cleanup_slot.take();
        runtime.spawn(tasks::boxed(async move {
            match rest::send(&delete).await {
                Ok(answer) if (200..=299).contains(&answer.status) => log::debug!("the unused video room is deleted"),
                Ok(answer) if answer.status == 404 => log::debug!("the video room was not created"),
                Ok(answer) => log::debug!(
                    "the unused video room remains until it expires: status {}",
                    answer.status
                ),
                Err(error) => log::debug!("the unused video room remains until it expires: {error}"),
            }
            drop(cleanup_slot);
        }));
    }
}

fn unix_time_s() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
