//! Checks the credentials of the telephony providers.
//!
//! In: the configuration. Out: findings. Only configured providers are asked, and only for what is
//! free of charge.

use futures_util::future::join_all;

use crate::config::Config;
use crate::io::rest::{self, RestError};
use crate::proto::doctor::Finding;
use crate::proto::telephony::{PROVIDERS, Provider, doctor};

/// Returns the hosts of the providers' APIs.
pub fn hosts(config: &Config) -> Vec<String> {
    let requests = PROVIDERS
        .iter()
        .filter_map(|provider| doctor::request(provider, &config.telephony.settings));
    requests.filter_map(|request| rest::host(&request)).collect()
}

/// Asks every provider with configured credentials whether it accepts them.
pub async fn examine(config: &Config) -> Vec<Finding> {
    let checks = PROVIDERS.map(|provider| async move {
        let request = doctor::request(provider, &config.telephony.settings)?;
        Some(match rest::send(&request).await {
            Ok(answer) => doctor::answer(provider, answer.status),
            Err(error) => unanswered(provider, &error),
        })
    });
    let answers = join_all(checks).await.into_iter().flatten();
    let missing = PROVIDERS
        .iter()
        .filter_map(|provider| doctor::missing(provider, config));
    let findings: Vec<Finding> = answers.chain(missing).collect();
    if findings.is_empty() {
        return vec![Finding::ok(
            "telephony",
            "no credentials: the runner does not hang up calls, and webhooks are not verified",
        )];
    }
    findings
}

fn unanswered(provider: &'static Provider, error: &RestError) -> Finding {
    let text = format!("the credentials could not be checked: {error}");
    Finding::error(doctor::what(provider), text)
}
