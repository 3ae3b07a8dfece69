//! Drives a call over Media over QUIC.
//!
//! In: a runner, which is asked by `POST /start` where its bot is reached: at a port of its own or
//! at a relay. Out: the conversation at its end, with the connection closed.

use edge_runner_http::common::random;
use tokio::sync::oneshot;

use super::dial::{Dialer, RelayTrust};
use super::session_io::{ConnectionSource, MoqIo};
use crate::bot::ShutdownTrigger;
use crate::bot::media::MediaSlot;
use crate::io::call::media::{self, CallPlace, CallerSession};
use crate::io::call::{self, CallConfig, RunCall};
use crate::io::seeding::seeding;
use crate::io::services::Services;
use crate::io::tasks::{self, BoxedTask};
use crate::proto::audio::opus::EncoderSettings;
use crate::proto::caller::target::CallTarget;
use crate::proto::moq::invite::{self, MoqInvite};
use crate::proto::moq::relay_url::RelayUrl;
use crate::proto::moq::session::{MoqSession, MoqSessionMode, MoqSessionSetup};

/// Returns how a call is made.
pub const fn row() -> Option<RunCall> {
    Some(|task, plan| {
        let opening = open(task.config);
        Box::pin(media::run(task, plan, opening))
    })
}

/// Connects to where the bot is reached.
async fn open(config: &CallConfig) -> Result<CallerSession, String> {
    let invite = invite(config).await?;
    // The path may have a token.
    let url: String = invite.url.split_inclusive('/').take(3).collect();
    let mut called = connect(invite).map_err(|why| format!("{url}: {why}"))?;
    Ok(CallerSession {
        running: called.running,
        slot: called.slot,
        stop: called.stop,
        has_keys: false,
        explain: Box::new(move |why| match called.is_ready.try_recv() {
            Ok(Err(error)) => format!("{url}: there is no connection by UDP: {error}"),
            _ => format!(
                "{url}: {}",
                why.describe("it is connected, but the bot has not announced itself")
            ),
        }),
    })
}

/// Returns where the bot is reached.
async fn invite(config: &CallConfig) -> Result<MoqInvite, String> {
    let CallTarget::Started { base, transport } = &config.target else {
        return Err("this target has no Media over QUIC".into());
    };
    let started = call::dial::start(base, *transport, config.api_key.as_ref()).await?;
    let response = started.ok_or_else(|| format!("{base} has no /start, which names a namespace: is it a runner?"))?;
    invite::started_moq(&response).map_err(|why| format!("{base}: {why}"))
}

/// A call of this program to a bot.
struct MoqCall {
    /// The session, which runs while it is polled.
    running: BoxedTask,
    /// The media of the caller.
    slot: MediaSlot,
    stop: ShutdownTrigger,
    /// Once the session is over, why there was no connection, or that there was one.
    is_ready: oneshot::Receiver<Result<(), String>>,
}

/// Calls a bot at a runner or a relay. The caller is the bot of a session in dial mode, which
/// publishes the broadcast of the caller and reads that of the bot.
fn connect(invite: MoqInvite) -> Result<MoqCall, String> {
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
    let (task, slot, stop) = CallPlace::new().begin(session, io);
    let running = tasks::boxed(async move {
        seeding(task).await;
        reader.abort();
    });
    Ok(MoqCall {
        running,
        slot,
        stop,
        is_ready,
    })
}
