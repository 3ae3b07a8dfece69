//! Replaces `doctor::moq` in a build without `moq`: no findings.

use super::Finding;
use crate::config::Config;

pub fn examine(_config: &Config) -> Vec<Finding> {
    Vec::new()
}

pub async fn relay(_config: &Config) -> Vec<Finding> {
    Vec::new()
}
