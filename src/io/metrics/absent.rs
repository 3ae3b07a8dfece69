//! The twin of `io::metrics` in a build without `metrics`: `/metrics` is refused before anything is asked of it.

use crate::io::sessions::Sessions;
use crate::io::webrtc::WebRtc;

pub fn text(_sessions: &Sessions, _webrtc: Option<&WebRtc>) -> String {
    String::new()
}
