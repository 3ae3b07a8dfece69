//! Replaces `doctor::udp_port` in a build without `webrtc`, which has no UDP port.

use super::Finding;
use crate::config::Config;

pub fn examine(_config: &Config) -> Option<Finding> {
    None
}
