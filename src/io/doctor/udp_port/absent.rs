//! The twin of `doctor::udp_port` in a build without `webrtc`: there is no such port.

use super::Finding;
use crate::config::Config;

pub fn examine(_config: &Config) -> Option<Finding> {
    None
}
