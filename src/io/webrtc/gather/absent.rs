//! Replaces `io::webrtc::gather` in a build without `turn`: only clients use the servers.

use std::sync::Arc;

use crate::config::Config;
use crate::features::{Feature, MissingFeature};
use crate::io::services::Services;
use crate::io::webrtc::udp::UdpPort;
use crate::proto::webrtc::gather::{GatheredAddresses, ServerStatus};

/// Gathers nothing.
#[derive(Clone)]
pub struct Gatherer;

impl Gatherer {
    /// Warns if servers are configured.
    pub fn start(config: &Config, _port: &Arc<UdpPort>, _services: &Services) -> Gatherer {
        if !config.ice_servers.is_empty() && config.embedded.is_none() {
            log::warn!(
                "the ICE servers are for clients alone: asking them for this side {}",
                MissingFeature(Feature::Turn)
            );
        }
        Gatherer
    }

    pub fn gathered(&self) -> GatheredAddresses {
        GatheredAddresses::default()
    }

    pub fn status(&self) -> Vec<ServerStatus> {
        Vec::new()
    }

    pub async fn end(&self) {}
}

pub mod doctor {
    //! The check of the servers, which are for clients only.

    use crate::config::Config;
    use crate::features::{Feature, MissingFeature};
    use crate::proto::doctor::Finding;

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
}
