//! Checks the service of `--bot realtime`: connects, waits for its session, and closes.
//!
//! In: the configuration. Out: findings, none with another bot. A session that says nothing costs
//! nothing.

use tokio::time::timeout;

use super::Finding;
use crate::bots::assistant::realtime::failure;
use crate::bots::assistant::service_socket::{ServiceEvent, ServiceSocket};
use crate::config::{BuiltInBot, Config};
use crate::limits::DOCTOR_RESOLVE;
use crate::proto::assistant::realtime::{ServerEvent, connect_request, parse_event};
use crate::proto::doctor::assistant::{ServiceAnswer, judge};

/// Opens a session of the service.
pub async fn examine(config: &Config) -> Vec<Finding> {
    if config.bot != BuiltInBot::Realtime || config.command.is_some() {
        return Vec::new();
    }
    let realtime = &config.assistant.realtime;
    let request = connect_request(realtime);
    let mut socket = ServiceSocket::default();
    socket.connect(request.url, request.headers);
    let answer = timeout(2 * DOCTOR_RESOLVE, ask(&mut socket)).await;
    let answer = answer.unwrap_or(ServiceAnswer::Silent);
    socket.finish().await;
    vec![judge(realtime, &answer)]
}

async fn ask(socket: &mut ServiceSocket) -> ServiceAnswer {
    loop {
        match socket.recv().await {
            ServiceEvent::Connected(Ok(())) => {}
            ServiceEvent::Connected(Err(error)) => return ServiceAnswer::NotConnected(failure(error)),
            ServiceEvent::Closed(code) => return ServiceAnswer::Closed(code),
            ServiceEvent::Text(text) => match parse_event(&text) {
                Some(ServerEvent::SessionCreated) => return ServiceAnswer::Session,
                Some(ServerEvent::Failed(names)) => return ServiceAnswer::Failed(names),
                _ => {}
            },
        }
    }
}
