//! A call of this program to a bot, over QUIC.
//!
//! In: where the bot is reached. Out: a session in dial mode, whose bot is the caller.

use edge_runner_http::common::random;
use tokio::sync::oneshot;

use super::dial::{Dialer, RelayTrust};
use super::session_io::{ConnectionSource, MoqIo};
use crate::bot::media::MediaSlot;
use crate::io::admission::SessionPermit;
use crate::io::services::Services;
use crate::io::session::{self, SessionTask};
use crate::io::sessions::Sessions;
use crate::io::tasks::{self, BoxedTask};
use crate::io::webrtc::seeding;
use crate::limits::AUDIO_IN_FRAMES_MAX;
use crate::proto::audio::opus::EncoderSettings;
use crate::proto::caller::target::MoqInvite;
use crate::proto::moq::relay_url::RelayUrl;
use crate::proto::moq::session::{MoqSession, MoqSessionMode, MoqSessionSetup};

/// A call of this program to a bot.
pub struct MoqCall {
    /// The session, which runs while it is polled.
    pub running: BoxedTask,
    /// The media of the caller.
    pub slot: MediaSlot,
    /// Once the session is over, why there was no connection, or that there was one.
    pub is_ready: oneshot::Receiver<Result<(), String>>,
}

/// Calls a bot at a runner or a relay. The caller is the bot of a session in dial mode, which
/// publishes the broadcast of the caller and reads that of the bot.
///
/// # Errors
/// A sentence for the user.
pub fn call(sessions: Sessions, permit: SessionPermit, invite: MoqInvite) -> Result<MoqCall, String> {
    let url = RelayUrl::parse(&invite.url).map_err(|wants| format!("the address is not {wants}"))?;
    let trust = invite.certificate_hash.map_or(RelayTrust::ByUrl, RelayTrust::Hash);
    let (dialer, reader) = Dialer::start(url, None, trust, &Services::default())
        .map_err(|error| format!("no UDP port can be opened: {error}"))?;
    let setup = MoqSessionSetup {
        mode: MoqSessionMode::Dial,
        namespace: invite.namespace,
        bot_id: invite.client_id,
        client_id: invite.bot_id,
        origin: u64::from_be_bytes(random()),
        epoch: u64::from_be_bytes(random()),
        encoder_settings: EncoderSettings::default(),
    };
    let (ready, is_ready) = oneshot::channel();
    let io = MoqIo {
        port: dialer.port().clone(),
        source: ConnectionSource::Relay {
            dialer,
            dialing: None,
            attempt: 0,
            remote: None,
            ready: Some(ready),
        },
        inboxes: Vec::new(),
        last: 0,
    };
    let session = Box::new(MoqSession::new(setup, tasks::now()));
    let mut task = SessionTask::new(sessions, permit, None);
    let slot = task.send_media(AUDIO_IN_FRAMES_MAX);
    let running = tasks::boxed(async move {
        seeding(session::run(session, io, task)).await;
        reader.abort();
    });
    Ok(MoqCall {
        running,
        slot,
        is_ready,
    })
}
