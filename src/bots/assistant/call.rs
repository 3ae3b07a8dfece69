//! What the drivers of assistants share: the caller's profile, the time, and the queue of speech.

use std::pin::Pin;
use std::time::Instant;

use crate::bot::{BotError, Output, RunnerArguments};
use crate::config::Transport;
use crate::proto::assistant::report::{CallProfile, EndReason, Line};
use crate::rtvi::Rtvi;

/// The mark behind the last speech.
pub const LAST_MARK: &str = "end";

/// Returns what the engine has to know about the caller. `line_codec` tells whether telephone audio
/// stays at its rate.
pub fn profile(args: &RunnerArguments, line_codec: bool) -> CallProfile {
    let is_telephone = args
        .transport_type()
        .is_ok_and(|name| name != Transport::WebSocket.name());
    let laws = args.line_laws().filter(|_| args.line_rate_hz() == Some(8_000));
    let has_page = args.message_channel().unwrap_or(!is_telephone) && !args.is_embedded();
    CallProfile {
        line: match laws.filter(|_| line_codec) {
            Some(laws) => Line::G711(laws),
            None => Line::Pcm24k,
        },
        has_page,
        is_telephone,
        can_hang_up: is_telephone || !has_page || args.room_name().is_ok(),
        // Plain clients connect before they can play audio.
        greet_on_ready: args.transport_type() == Ok(Transport::WebSocket.name()),
    }
}

/// Returns the result of a bot whose session has ended for this reason; `None` if the caller left.
pub fn outcome(end: Option<(EndReason, Instant)>, rtvi: &Rtvi) -> Result<(), BotError> {
    match end {
        Some((EndReason::Failed(why), _)) => {
            rtvi.error("The assistant is not available.", true);
            Err(why.into())
        }
        Some((EndReason::Done(why), _)) => {
            rtvi.output().hang_up(why);
            Ok(())
        }
        None => Ok(()),
    }
}

/// Returns the time of tokio's clock, which tests can advance.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// A future that queues a piece of speech and the mark behind it.
pub type QueueFuture = Pin<Box<dyn Future<Output = Vec<i16>> + Send>>;

/// Queues a piece of speech and its mark, and returns the memory of the piece.
pub async fn queue(output: Output, pcm: Vec<i16>, mark: String) -> Vec<i16> {
    // After the end of the session, `recv` returns `Left`.
    let _ = output.send_audio(&pcm).await;
    let _ = output.mark(mark);
    pcm
}

/// Waits until the piece is queued, forever without one.
pub async fn queued(speech: &mut Option<QueueFuture>) -> Vec<i16> {
    match speech {
        Some(speech) => speech.await,
        None => std::future::pending().await,
    }
}
