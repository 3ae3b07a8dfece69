//! Replaces `doctor::certificate` in a build without `tls`: no findings.

use super::Finding;
use crate::config::Config;

pub fn examine(_config: &Config) -> Vec<Finding> {
    Vec::new()
}
