//! Checks whether a LiveKit server admits the bot, and accepts the runner as a worker.
//!
//! In: the configuration. Out: findings. The WebSocket of a worker is opened and closed without a
//! registration, so no job is sent.

use edge_runner_http::common::unix_time_s;
use futures_util::future::join_all;

use crate::config::{Config, MediaroomWorker, Secret};
use crate::io::livekit::dial::open;
use crate::io::rest::{self, ResponseLimits, send_within};
use crate::io::websocket_client::{SocketError, SocketLimits};
use crate::limits::{DOCTOR_CHECK, ROOM_REFUSAL_BYTES_MAX, WORKER_MESSAGE_BYTES_MAX, WORKER_SEND_BYTES_MAX};
use crate::proto::doctor::Finding;
use crate::proto::doctor::worker::{WHAT, of_running};
use crate::proto::livekit::doctor::{answer, missing_settings, request, what};
use crate::proto::livekit::registrations;
use crate::proto::livekit::worker::{refusal_words, worker_request};
use crate::proto::server::rest::{RestMethod, RestRequest};

/// Bytes of the answer of a runner; more is not one.
const STATUS_BYTES_MAX: usize = 16 * 1024;

/// Returns the host of the server.
pub fn hosts(config: &Config) -> Vec<String> {
    let request = request(config, unix_time_s());
    request.and_then(|request| rest::host(&request)).into_iter().collect()
}

/// Asks the server whether it admits the bot.
pub async fn server(config: &Config) -> Vec<Finding> {
    let answered = match request(config, unix_time_s()) {
        None => None,
        Some(request) => Some(match rest::send(&request).await {
            Ok(reply) => answer(reply.status, &reply.body),
            Err(error) => Finding::error(what(), format!("rooms could not be checked: {error}")),
        }),
    };
    answered.into_iter().chain(missing_settings(config)).collect()
}

/// Opens the WebSocket of a worker at each URL, and asks the runner in service whether it is
/// registered; nothing without `--register`.
pub async fn worker(config: &Config) -> Vec<Finding> {
    let mediaroom = &config.mediaroom;
    let workers = registrations(config);
    let (false, Some(key), Some(secret)) = (workers.is_empty(), &mediaroom.key, &mediaroom.secret) else {
        return Vec::new();
    };
    let probes = join_all(mediaroom.urls().map(|url| probe(url, key, secret, &workers)));
    let (mut findings, running) = tokio::join!(probes, running(config.port));
    findings.extend(running);
    findings
}

/// Asks the runner at this port of this machine, if there is one that answers.
async fn running(port: u16) -> Option<Finding> {
    if port == 0 {
        return None;
    }
    let request = RestRequest {
        method: RestMethod::Get,
        url: format!("http://127.0.0.1:{port}/status"),
        authorization: None,
        body: None,
    };
    let limits = ResponseLimits {
        timeout: DOCTOR_CHECK / 2,
        body_bytes_max: STATUS_BYTES_MAX,
    };
    let answer = send_within(&request, limits).await.ok()?;
    of_running(&answer.body, unix_time_s())
}

async fn probe(url: &str, key: &str, secret: &Secret, workers: &[&MediaroomWorker]) -> Finding {
    let request = worker_request(url, key, secret, unix_time_s());
    let limits = SocketLimits {
        // The check has a time limit of its own, whose finding has no reason.
        within: DOCTOR_CHECK * 3 / 4,
        message_bytes_max: WORKER_MESSAGE_BYTES_MAX,
        send_bytes_max: WORKER_SEND_BYTES_MAX,
        refusal_bytes_max: ROOM_REFUSAL_BYTES_MAX,
    };
    match open(request, limits).await {
        Ok(mut socket) => {
            // The server closes an abandoned socket, too.
            let _ = socket.close(None).await;
            Finding::ok(WHAT, accepted(url, workers))
        }
        Err(SocketError::Refused { status, .. }) => Finding::error(WHAT, format!("{url}: {}", refusal_words(status))),
        Err(error) => Finding::error(WHAT, format!("{url} was not reached: {error}")),
    }
}

fn accepted(url: &str, workers: &[&MediaroomWorker]) -> String {
    let names: Vec<String> = workers
        .iter()
        .map(|worker| format!("`{}`", worker.agent_name))
        .collect();
    match workers {
        [worker] if worker.agent_name.is_empty() => {
            format!("{url} accepts a worker; it gets a job for every room that asks for no other bot (--agent-name)")
        }
        _ => format!(
            "{url} accepts a worker; rooms ask for it as {} (--agent-name)",
            names.join(" or ")
        ),
    }
}
