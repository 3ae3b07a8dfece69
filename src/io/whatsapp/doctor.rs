//! Checks the call settings of the WhatsApp number.
//!
//! In: the configuration. Out: findings, none without `--messaging`.

use crate::config::Config;
use crate::io::rest;
use crate::proto::doctor::Finding;
use crate::proto::whatsapp::{doctor, graph};

/// Returns the host of the API.
pub fn hosts(config: &Config) -> Vec<String> {
    let requests = config.messaging.iter().map(graph::settings);
    requests.filter_map(|request| rest::host(&request)).collect()
}

/// Asks for the call settings of the number.
pub async fn examine(config: &Config) -> Vec<Finding> {
    let Some(config) = &config.messaging else {
        return Vec::new();
    };
    vec![match rest::send(&graph::settings(config)).await {
        Ok(answer) => doctor::answer(answer.status, &answer.body),
        Err(error) => Finding::error(
            doctor::WHAT,
            format!("the call settings of the number could not be checked: {error}"),
        ),
    }]
}
