//! Replaces `io::moq` in a build without `moq`.

use std::convert::Infallible;
use std::sync::Arc;

use edge_runner_http::tls::WatchedCertificate;

use crate::config::MoqUdpPort;
use crate::proto::metrics::MetricsSnapshot;

/// Never constructed.
#[derive(Clone)]
pub struct Moq(Infallible);

impl Moq {
    pub fn udp_port(&self) -> MoqUdpPort {
        match self.0 {}
    }

    pub fn page_source(&self) -> String {
        match self.0 {}
    }

    pub fn certificate(&self) -> Option<Arc<dyn WatchedCertificate>> {
        match self.0 {}
    }

    pub fn add_to(&self, _: &mut MetricsSnapshot) {
        match self.0 {}
    }

    pub fn end(&self) {
        match self.0 {}
    }
}
