//! `--direct`: one bot in one video room, without a web server.
//!
//! In: the configuration and the bot. Out: the room's URL, then the result of the bot. The first
//! signal asks the bot to end, a second one aborts it.

use std::net::Ipv4Addr;
use std::sync::Arc;

use edge_runner_http::common::random;
use serde_json::json;
use tokio::time::timeout;

use super::{PreparedRoom, prepare_room};
use crate::bot::{Bot, Kind, Shutdown, VideoroomArguments};
use crate::config::Config;
use crate::io::room;
use crate::io::services::Services;
use crate::io::sessions::{BotOutcome, SessionStart, Sessions};
use crate::io::signal::Signals;
use crate::io::tasks::SlotPool;
use crate::io::{RunError, bot_of, check_sandbox};
use crate::limits::{RUNTIME_END, SHUTDOWN_GRACE};
use crate::logging::{self, LogClient};
use crate::proto::daily::{RoomPurpose, RoomRequest};
use crate::proto::http::registry;

/// Makes or chooses a room, and runs the bot in it once. `announce` gets the room's URL before the
/// bot starts.
///
/// # Errors
/// Returns a [`RunError`] that names the failed step: the provider's or the bot's.
pub async fn run(config: Arc<Config>, bot: Bot, announce: fn(&str)) -> Result<(), RunError> {
    check_sandbox(&config)?;
    let (bot, _) = bot_of(&config, bot, None)?;
    let mut signals = Signals::listen().map_err(RunError::Signals)?;
    let (stop, shutdown) = Shutdown::channel();
    let live = SlotPool::new(1);
    let sessions = Sessions::new(config.clone(), bot, live.clone(), shutdown);
    let services = Services::default();
    let watch = sessions.watchdog().start(Some(live.clone()), &services);
    watch.map_err(RunError::Watch)?;
    let wanted = RoomRequest::default();
    let prepared = tokio::select! {
        prepared = prepare_room(&config.videoroom, RoomPurpose::Client(&wanted), sessions.hang_ups().try_acquire()) => {
            match prepared {
                Ok(mut prepared) => {
                    prepared.keep();
                    prepared
                }
                Err(failure) => {
                    // Waits for the deletion of the room, which the end of the process would
                    // prevent.
                    let _ = timeout(SHUTDOWN_GRACE, sessions.wait_empty()).await;
                    return Err(RunError::NoRoom(failure.to_string()));
                }
            }
        }
        name = signals.next() => {
            log::info!("{name}: stopping before there is a room");
            // A room that was created meanwhile is deleted.
            let _ = timeout(SHUTDOWN_GRACE, sessions.wait_empty()).await;
            return Ok(());
        }
    };
    let PreparedRoom { room, token, .. } = prepared;
    announce(&room.url);
    sessions.watchdog().ready();
    let start = SessionStart {
        session_id: registry::session_id(random()),
        body: json!({}),
        bot: sessions.bots().default(),
        // There is no client; the lines are the runner's own.
        log_client: LogClient::new(Arc::default(), Ipv4Addr::LOCALHOST.into(), true),
        lease: None,
    };
    let kind = Kind::Videoroom(VideoroomArguments {
        room_url: room.url,
        token: Some(token),
        sip_uri: None,
    });
    let slot = live.try_acquire();
    let id = start.session_id.clone();
    let talk = logging::in_session(id, room::run_bot(&sessions, start, kind, None));
    let mut talk = std::pin::pin!(talk);
    let in_time = tokio::select! {
        outcome = &mut talk => return bot_result(outcome),
        name = signals.next() => {
            log::info!("{name}: stopping");
            let notified = sessions.watchdog().stopping(SHUTDOWN_GRACE + RUNTIME_END);
            stop.set();
            let ended = async { tokio::join!(&mut talk, notified) };
            tokio::select! {
                ended = timeout(SHUTDOWN_GRACE, ended) => ended.is_ok(),
                _ = signals.next() => return Err(RunError::Forced),
            }
        }
    };
    if !in_time {
        log::warn!("the bot did not end in time");
    }
    drop(slot);
    Ok(())
}

/// Returns the result of a bot that ended by itself.
fn bot_result(outcome: BotOutcome) -> Result<(), RunError> {
    match outcome {
        BotOutcome::Returned => Ok(()),
        BotOutcome::Failed(why) => Err(RunError::Bot(why)),
        BotOutcome::Aborted => Err(RunError::Bot("it was aborted".to_owned())),
    }
}
