//! Checks of other servers: the resolver, the telephony providers, and the room providers.
//!
//! In: the configuration. Out: findings. Only configured servers are asked, and only for what is
//! free of charge.

use std::net::IpAddr;
use std::time::SystemTime;

use futures_util::future::join_all;
use tokio::net::lookup_host;
use tokio::time::timeout;

use super::Finding;
use crate::config::{Config, MoqMode, Transport};
use crate::io::rest::{self, RestError};
use crate::limits::DOCTOR_RESOLVE;
use crate::proto::doctor::rooms::{self, Question};
use crate::proto::doctor::{messaging, providers};
use crate::proto::telephony::{PROVIDERS, Provider};
use crate::proto::webrtc::gather::server::parse_servers;
use crate::proto::whatsapp::graph;

/// Looks up every name in the configuration.
pub async fn resolver(config: &Config) -> Vec<Finding> {
    const WHAT: &str = "resolver";
    let names = names(config);
    let looked_up = join_all(names.iter().map(|name| look_up(name))).await;
    let unknown: Vec<Finding> = names
        .iter()
        .zip(looked_up)
        .filter_map(|(name, outcome)| {
            let why = outcome.err()?;
            Some(Finding::error(
                WHAT,
                format!("{name} cannot be resolved: {why}; check its spelling and the servers in /etc/resolv.conf"),
            ))
        })
        .collect();
    match (names.is_empty(), unknown.is_empty()) {
        (true, _) => vec![Finding::ok(WHAT, "the configuration has no host names to resolve")],
        (false, true) => vec![Finding::ok(WHAT, format!("resolved {}", names.join(", ")))],
        (false, false) => unknown,
    }
}

/// Returns the names that the runner or its callers will look up, each once.
fn names(config: &Config) -> Vec<String> {
    let of_rooms = Question::ALL
        .iter()
        .filter_map(|question| question.request(config, now_s()));
    let requests = PROVIDERS
        .iter()
        .filter_map(|provider| providers::request(provider, &config.telephony.settings))
        .chain(of_rooms)
        .chain(config.messaging.iter().map(graph::settings));
    let of_providers = requests.filter_map(|request| {
        let uri: hyper::Uri = request.url.parse().ok()?;
        Some(uri.host()?.to_owned())
    });
    let proxy = config.proxy.iter().map(|proxy| match proxy.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host.to_owned(),
        _ => proxy.clone(),
    });
    let of_servers = parse_servers(&config.ice_servers).into_iter().map(|server| server.host);
    let relay = match &config.moq.mode {
        MoqMode::Dial { url, .. } if config.transport == Some(Transport::Moq) => Some(url.host().to_owned()),
        _ => None,
    };
    let mut names: Vec<String> = Vec::new();
    for name in of_servers.chain(of_providers).chain(proxy).chain(relay) {
        let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        if !is_address && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

async fn look_up(name: &str) -> Result<(), String> {
    match timeout(DOCTOR_RESOLVE, lookup_host((name, 443))).await {
        Ok(Ok(mut addresses)) => addresses
            .next()
            .map(|_| ())
            .ok_or_else(|| "it has no address".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", DOCTOR_RESOLVE.as_secs())),
    }
}

/// Asks every provider with configured credentials whether it accepts them.
pub async fn providers(config: &Config) -> Vec<Finding> {
    let checks = PROVIDERS.map(|provider| async move {
        let request = providers::request(provider, &config.telephony.settings)?;
        Some(match rest::send(&request).await {
            Ok(answer) => providers::answer(provider, answer.status),
            Err(error) => unanswered(provider, &error),
        })
    });
    let answers = join_all(checks).await.into_iter().flatten();
    let missing = PROVIDERS
        .iter()
        .filter_map(|provider| providers::missing(provider, config));
    let findings: Vec<Finding> = answers.chain(missing).collect();
    if findings.is_empty() {
        return vec![Finding::ok(
            "telephony",
            "no credentials: the runner does not hang up calls, and webhooks are not verified",
        )];
    }
    findings
}

fn unanswered(provider: &Provider, error: &RestError) -> Finding {
    let text = format!("the credentials could not be checked: {error}");
    Finding::error(providers::what(provider), text)
}

/// Asks the video-room provider and the media-room server, if they are configured.
pub async fn rooms(config: &Config) -> Vec<Finding> {
    let checks = Question::ALL.map(|question| async move {
        let request = question.request(config, now_s())?;
        match (rest::send(&request).await, question) {
            (Ok(answer), _) => question.answer(answer.status, &answer.body),
            // The question about the key has already reported that the server was not reached.
            (Err(_), Question::Room) => None,
            (Err(error), _) => Some(Finding::error(
                question.what(),
                format!("rooms could not be checked: {error}"),
            )),
        }
    });
    let answers = join_all(checks).await.into_iter().flatten();
    answers.chain(rooms::missing_settings(config)).collect()
}

/// Asks WhatsApp for the call settings of the number, if `--messaging` is configured.
pub async fn messaging(config: &Config) -> Vec<Finding> {
    let Some(config) = &config.messaging else {
        return Vec::new();
    };
    vec![match rest::send(&graph::settings(config)).await {
        Ok(answer) => messaging::answer(answer.status, &answer.body),
        Err(error) => Finding::error(
            messaging::WHAT,
            format!("the call settings of the number could not be checked: {error}"),
        ),
    }]
}

/// Returns the seconds since 1970, or 0 for an earlier clock, which another check reports.
fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
