//! Drives a call over Media over QUIC.
//!
//! In: a runner, which is asked by `POST /start` where its bot is reached: at a port of its own or
//! at a relay. Out: the conversation at its end, with the connection closed.

use std::time::Instant;

use super::media::{self, CallPlace, CallerSession, NoAnswer};
use super::{CallConfig, CallRun, STOPPED, dial};
use crate::config::Transport;
use crate::io::moq;
use crate::proto::caller::target::{self, CallTarget, MoqInvite};
use crate::proto::caller::{CallConversation, CallPlan};

/// Connects and runs the call to its end.
///
/// # Errors
/// A sentence for the user.
pub async fn run(
    config: &CallConfig,
    plan: CallPlan,
    dialled: Instant,
    task: &mut CallRun<'_>,
) -> Result<CallConversation, String> {
    let invite = tokio::select! {
        invite = invite(config) => invite?,
        () = task.stopped() => return Err(STOPPED.into()),
    };
    // The path may have a token.
    let url: String = invite.url.split_inclusive('/').take(3).collect();
    let CallPlace { sessions, permit, stop } = CallPlace::new();
    let called = moq::call(sessions, permit, invite).map_err(|why| format!("{url}: {why}"))?;
    let session = CallerSession {
        running: called.running,
        slot: called.slot,
        stop,
        has_keys: false,
    };
    let ended = media::run(session, plan, dialled, task).await;
    let why = match ended {
        Ok(conversation) => return Ok(conversation),
        Err(NoAnswer::Stopped) => return Err(STOPPED.into()),
        Err(why) => why,
    };
    Err(match called.is_ready.await {
        Ok(Err(error)) => format!("{url}: there is no connection by UDP: {error}"),
        _ => format!(
            "{url}: {}",
            why.describe("it is connected, but the bot has not announced itself")
        ),
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
