//! The text of `/metrics`: the counters of `proto::metrics`, and values read at the scrape.
//!
//! In: the sessions, and the drivers with counters of their own. Out: the text. `/proc` is read at
//! a scrape only.

use tokio::runtime::Handle;

#[cfg(feature = "mediaroom")]
use crate::io::livekit::worker::WorkerHandle;
use crate::io::moq::Moq;
use crate::io::procfs;
use crate::io::sessions::Sessions;
use crate::io::webrtc::WebRtc;
use crate::proto::metrics::MetricsSnapshot;

/// Returns the text in Prometheus' format. Call it within the runtime.
pub fn text(
    sessions: &Sessions,
    webrtc: Option<&WebRtc>,
    moq: Option<&Moq>,
    #[cfg(feature = "mediaroom")] worker: Option<&WorkerHandle>,
) -> String {
    let stalls = sessions.watchdog().stalls();
    let mut snapshot = MetricsSnapshot {
        process: procfs::process(),
        tasks: Handle::current().metrics().num_alive_tasks() as u64,
        runtime_stalls: stalls.runtime,
        task_stalls: stalls.tasks,
        ..webrtc.map(WebRtc::metrics_snapshot).unwrap_or_default()
    };
    if let Some(moq) = moq {
        moq.add_to(&mut snapshot);
    }
    #[cfg(feature = "mediaroom")]
    {
        snapshot.worker = worker.map(WorkerHandle::report);
    }
    sessions.metrics().render(&snapshot)
}
