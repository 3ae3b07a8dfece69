//! The twin of `doctor::certificate` in a build without `tls`: there is no certificate to look at.

use super::Finding;
use crate::config::Config;

pub fn examine(_config: &Config) -> Vec<Finding> {
    Vec::new()
}
