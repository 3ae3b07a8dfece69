//! Replaces `doctor::assistant` in a build without `assistants`: no findings.

use super::Finding;
use crate::config::Config;

pub async fn examine(_config: &Config) -> Vec<Finding> {
    Vec::new()
}

pub async fn tools(_config: &Config) -> Vec<Finding> {
    Vec::new()
}
