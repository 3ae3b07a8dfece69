//! The text of `/metrics`: the counters of `proto::metrics`, and values read at the scrape.
//!
//! In: the sessions, and the drivers with counters of their own. Out: the text. `/proc` is read at
//! a scrape only.

use tokio::runtime::Handle;

use crate::io::running::RunningModules;
use crate::io::sessions::Sessions;
use crate::proto::metrics::{MetricsSnapshot, bots};
use edge_runner_http::procfs;

/// Returns the text in Prometheus' format. Call it within the runtime.
pub fn text(sessions: &Sessions, modules: &RunningModules) -> String {
    let stalls = sessions.watchdog().stalls();
    let mut snapshot = MetricsSnapshot {
        process: procfs::process(),
        tasks: Handle::current().metrics().num_alive_tasks() as u64,
        runtime_stalls: stalls.runtime,
        task_stalls: stalls.tasks,
        ..MetricsSnapshot::default()
    };
    for module in modules.iter() {
        module.add_metrics(&mut snapshot);
    }
    let rows = sessions.bots().iter();
    let of_bots: Vec<_> = rows
        .filter_map(|bot| Some((&**bot.name()?, &**bot.metrics())))
        .collect();
    sessions.metrics().render(&snapshot, |text| {
        bots::render(text, &of_bots);
        for module in modules.iter() {
            module.render_metrics(text);
        }
    })
}
