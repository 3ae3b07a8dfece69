//! What `/metrics` answers: the counts of `proto::metrics`, with what only this floor can see at
//! the moment of the scrape.
//!
//! In: the sessions, and what carries WebRTC. Out: the text. `procfs` is asked when somebody asks
//! and never otherwise.

use tokio::runtime::Handle;

use crate::io::procfs;
use crate::io::sessions::Sessions;
use crate::io::webrtc::WebRtc;
use crate::proto::metrics::MetricsSnapshot;

/// Returns the text that Prometheus reads. To be called in a task.
pub fn text(sessions: &Sessions, webrtc: Option<&WebRtc>) -> String {
    let stalls = sessions.watchdog().stalls();
    sessions.metrics().render(&MetricsSnapshot {
        process: procfs::process(),
        tasks: Handle::current().metrics().num_alive_tasks() as u64,
        runtime_stalls: stalls.runtime,
        task_stalls: stalls.tasks,
        ..webrtc.map(WebRtc::seen).unwrap_or_default()
    })
}
