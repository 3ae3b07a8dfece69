//! Hangs up calls at their providers, with [`edge_runner_http::client`].

use std::time::Duration;

use tokio::time::sleep;

pub use edge_runner_http::client::*;

use crate::limits::HANG_UP_PAUSES;
use crate::proto::hang_up::{HangUpApi, HangUpAttempts, HangUpStep};
use crate::proto::server::rest::RestRequest;

/// Hangs up a call: up to three attempts and one log line. Takes little more than half a minute.
///
/// Called once per session, when it ended on this side; a second call would be harmless.
pub async fn hang_up(api: &'static dyn HangUpApi, request: RestRequest) {
    let name = api.name();
    match try_to_hang_up(api, &request, &HANG_UP_PAUSES).await {
        Ok(how) => log::info!("{name}: {how}"),
        Err(why) => log::warn!("{name}: the call was not hung up: {why}"),
    }
}

/// Returns the host of a request.
pub fn host(request: &RestRequest) -> Option<String> {
    let uri: hyper::Uri = request.url.parse().ok()?;
    Some(uri.host()?.to_owned())
}

async fn try_to_hang_up(
    api: &'static dyn HangUpApi,
    request: &RestRequest,
    pauses: &'static [Duration],
) -> Result<&'static str, String> {
    let mut hang_up = HangUpAttempts::new(api, pauses);
    loop {
        let next = match send(request).await {
            Ok(answer) => hang_up.handle_answer(answer.status, &answer.body),
            Err(error) => hang_up.handle_failure(error.to_string(), error.is_transient()),
        };
        match next {
            HangUpStep::Over(how) => return Ok(how),
            HangUpStep::Failed(why) => return Err(why),
            HangUpStep::Again { pause, why } => {
                log::debug!("hanging up: {why}; once more in {pause:?}");
                sleep(pause).await;
            }
        }
    }
}

#[cfg(test)]
mod tests;
