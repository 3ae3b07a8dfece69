//! Drives a call into a room of a LiveKit server.
//!
//! In: a runner, which is asked for a room by `POST /start`, or the URL of a server with a token or
//! the keys that make one. Out: the conversation at its end, with the room left. The caller is the
//! bot of a session in the room.

use std::sync::Arc;

use data_encoding::HEXLOWER;
use edge_runner_http::common::{random, unix_time_s};

use super::{RoomTransport, unix_time};
use crate::io::call::media::{self, CallPlace, CallerSession};
use crate::io::call::{CallConfig, RunCall, dial};
use crate::io::seeding::seeding;
use crate::io::tasks;
use crate::proto::caller::target::{CallTarget, RoomAccess};
use crate::proto::livekit::invite::{self, RoomInvite};
use crate::proto::livekit::roster::RoomRole;
use crate::proto::livekit::session::{RoomSession, RoomSetup};
use crate::proto::livekit::socket_base;
use crate::proto::livekit::token::{self, TokenParams};

/// Returns how a call is made.
pub const fn row() -> Option<RunCall> {
    Some(|task, plan| {
        let opening = open(task.config);
        Box::pin(media::run(task, plan, opening))
    })
}

/// Joins the room as a caller.
async fn open(config: &CallConfig) -> Result<CallerSession, String> {
    let invite = invite(config).await?;
    let setup = RoomSetup {
        role: RoomRole::Caller,
        common: Arc::default(),
        url: socket_base(&invite.url),
        other_urls: Vec::new(),
        token: invite.token,
        agent_name: String::new(),
        service: None,
        unix: unix_time(),
        job: None,
    };
    let session = Box::new(RoomSession::new(setup, tasks::now()));
    let io = RoomTransport::new(Arc::default(), None);
    let (task, slot, stop) = CallPlace::new().begin(session, io);
    let target = config.target.clone();
    Ok(CallerSession {
        running: tasks::boxed(seeding(task)),
        slot,
        stop,
        has_keys: true,
        explain: Box::new(move |why| {
            let why = why.describe("no bot has joined the room");
            match &target {
                CallTarget::Room { url, .. } => format!("{}: {}", dial::shown(url), by_options(&why)),
                _ => format!("the room at {}: {why}", dial::shown(&invite.url)),
            }
        }),
    })
}

/// Names the options of a call in place of the variables of a runner.
fn by_options(why: &str) -> String {
    why.replace("MEDIAROOM_URL", "the URL")
        .replace("MEDIAROOM_ROOM_NAME", "`--room`")
}

/// Returns the room and the token.
async fn invite(config: &CallConfig) -> Result<RoomInvite, String> {
    match (&config.target, &config.room) {
        (CallTarget::Started { base, transport }, _) => {
            let started = dial::start(base, *transport, config.api_key.as_ref()).await?;
            let response =
                started.ok_or_else(|| format!("{base} has no /start, which names a room: is it a runner?"))?;
            invite::started_room(&response).map_err(|why| format!("{base}: {why}"))
        }
        (CallTarget::Room { url, .. }, Some(access)) => Ok(RoomInvite {
            url: url.clone(),
            token: match access {
                RoomAccess::Token(token) => token.clone(),
                RoomAccess::Key { key, secret, room } => {
                    let params = TokenParams {
                        key,
                        secret,
                        identity: &token::user_identity(&HEXLOWER.encode(&random::<4>())),
                        room,
                        agent: None,
                    };
                    token::mint(&params, unix_time_s())
                }
            },
        }),
        _ => Err("this target is no room".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_room_name_the_options_of_a_call() {
        let why = by_options("the server at MEDIAROOM_URL is not a LiveKit server");
        assert_eq!(why, "the server at the URL is not a LiveKit server");
        assert_eq!(by_options("is MEDIAROOM_ROOM_NAME too long?"), "is `--room` too long?");
    }
}
