//! Drives a call over Media over QUIC.
//!
//! In: a runner, which is asked by `POST /start` where its bot is reached: at a port of its own or
//! at a relay. Out: the conversation at its end, with the connection closed.

use super::media::{self, CallPlace, CallerSession};
use super::{CallConfig, RunCall, dial};
use crate::config::Transport;
use crate::io::moq::call::call;
use crate::proto::caller::target::{self, CallTarget, MoqInvite};

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
    let CallPlace { sessions, permit, stop } = CallPlace::new();
    let mut called = call(sessions, permit, invite).map_err(|why| format!("{url}: {why}"))?;
    Ok(CallerSession {
        running: called.running,
        slot: called.slot,
        stop,
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
    let CallTarget::StartedMoq { base } = &config.target else {
        return Err("this target has no Media over QUIC".into());
    };
    let started = dial::start(base, Transport::Moq, config.api_key.as_ref()).await?;
    let response = started.ok_or_else(|| format!("{base} has no /start, which names a namespace: is it a runner?"))?;
    target::started_moq(&response).map_err(|why| format!("{base}: {why}"))
}
