//! Checks access to Daily.
//!
//! In: the configuration. Out: findings. Daily is asked only with a key, and only for what is free
//! of charge.

use futures_util::future::join_all;

use crate::config::Config;
use crate::io::rest;
use crate::proto::daily::doctor::{Question, missing_settings};
use crate::proto::doctor::Finding;

/// Returns the host of the API.
pub fn hosts(config: &Config) -> Vec<String> {
    let requests = Question::ALL.iter().filter_map(|question| question.request(config));
    requests.filter_map(|request| rest::host(&request)).collect()
}

/// Asks whether Daily accepts the key, and has the configured room.
pub async fn examine(config: &Config) -> Vec<Finding> {
    let checks = Question::ALL.map(|question| async move {
        let request = question.request(config)?;
        match (rest::send(&request).await, question) {
            (Ok(answer), _) => question.answer(answer.status, &answer.body),
            // The question about the key has already reported that the server was not reached.
            (Err(_), Question::Room) => None,
            (Err(error), Question::Key) => Some(Finding::error(
                question.what(),
                format!("rooms could not be checked: {error}"),
            )),
        }
    });
    let answers = join_all(checks).await.into_iter().flatten();
    answers.chain(missing_settings(config)).collect()
}
