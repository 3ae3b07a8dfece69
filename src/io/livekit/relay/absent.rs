//! Replaces `io::livekit::relay` in a build without `turn`: a room is reached without relays.

use crate::features::{Feature, MissingFeature};
use crate::io::livekit::path_link::PathLink;
use crate::proto::livekit::session::PathEvent;
use crate::proto::webrtc::gather::server::GatherServer;

/// Reports that there is no relay.
pub(super) async fn run(_server: GatherServer, link: PathLink) {
    let why = format!("asking a TURN server {}", MissingFeature(Feature::Turn));
    link.report(PathEvent::Ended(why)).await;
}
