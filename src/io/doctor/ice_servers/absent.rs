//! Replaces `doctor::ice_servers` in a build without `turn`, where only clients use the servers.

use super::Finding;
use crate::config::Config;
use crate::features::{Feature, MissingFeature};

pub async fn examine(config: &Config) -> Vec<Finding> {
    const WHAT: &str = "ice servers";
    vec![match config.ice_servers.is_empty() {
        true => Finding::ok(WHAT, "none: callers on other networks need a forwarded UDP port"),
        false => {
            let text = format!(
                "for clients only: using them on this side {}",
                MissingFeature(Feature::Turn)
            );
            Finding::warning(WHAT, text)
        }
    }]
}
