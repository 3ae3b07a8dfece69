//! `/start` for LiveKit rooms.
//!
//! Out: the reply with the caller's token. Rejects a runner without a configured server, then one
//! without a free session. Tokens are created only for a session that has its permit.

use serde_json::Value;

use super::refusal_log::log_client;
use super::{HttpError, RunnerApp, new_session_id};
use crate::io::livekit;
use crate::io::sessions::SessionStart;
use crate::proto::livekit::connection_details::LiveKitCredentials;
use crate::proto::server::admission::PendingKind;
use edge_runner_http::common::{PeerInfo, random, unix_time_s};

/// Creates the tokens of a room and starts the bot. Returns the JSON of the reply.
pub(super) fn start(app: &RunnerApp, body: Value, peer: PeerInfo) -> Result<Vec<u8>, HttpError> {
    let credentials = LiveKitCredentials::new(&app.config.mediaroom).map_err(HttpError::Mediaroom)?;
    let common = app.webrtc()?.common().clone();
    let permit = app.permit(peer.requester(), PendingKind::Silent)?;
    let session_id = new_session_id();
    let details = credentials.connection_details(&session_id, random(), unix_time_s());
    let reply = details.reply(&session_id);
    let start = SessionStart {
        session_id,
        body,
        log_client: log_client(app, peer),
        lease: None,
    };
    livekit::begin(app.sessions.clone(), permit, common, start, details);
    Ok(reply)
}
