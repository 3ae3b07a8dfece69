//! Hangs calls up at their providers; the requests are those of [`edge_runner_http::client`].

use std::time::Duration;

use tokio::time::sleep;

pub use edge_runner_http::client::*;

use crate::limits::HANG_UP_PAUSES;
use crate::proto::server::rest::Request;
use crate::proto::telephony::Provider;
use crate::proto::telephony::hangup::{Verdict, verdict};

/// Hangs a call up: up to three tries, one line in the log, never an error. Takes a little over half a minute at most.
///
/// The caller calls this once per session, when it ended on this side; a second call would do no harm but waste.
pub async fn hang_up(provider: &Provider, request: Request) {
    let name = provider.wire_name();
    match try_to_hang_up(provider, &request, &HANG_UP_PAUSES).await {
        Ok(how) => log::info!("{name}: {how}"),
        Err(why) => log::warn!("{name}: the call was not hung up: {why}"),
    }
}

const HUNG_UP: &str = "the call was hung up";
const OVER_ALREADY: &str = "the provider knows of no such call, so it is over";

async fn try_to_hang_up(provider: &Provider, request: &Request, pauses: &[Duration]) -> Result<&'static str, String> {
    let mut tries = 0;
    loop {
        tries += 1;
        let why = match send(request).await {
            Ok(answer) => match verdict(provider, answer.status, &answer.body) {
                Verdict::Done => return Ok(HUNG_UP),
                Verdict::AlreadyOver => return Ok(OVER_ALREADY),
                Verdict::Refused(why) => return Err(why),
                Verdict::Retry(why) => why,
            },
            Err(error) if error.is_passing() => error.to_string(),
            Err(error) => return Err(error.to_string()),
        };
        let Some(pause) = pauses.get(tries - 1) else {
            return Err(format!("{why}, {tries} times"));
        };
        log::debug!("hanging up: {why}; once more in {pause:?}");
        sleep(*pause).await;
    }
}

#[cfg(test)]
mod tests;
