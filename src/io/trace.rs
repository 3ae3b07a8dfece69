//! The trace that the bot of the current task belongs to, for its requests to services.

use crate::proto::http::traceparent::Traceparent;

tokio::task_local! {
    static TRACE: Option<Traceparent>;
}

/// Runs the bot of a session that belongs to a trace. A task that it spawns is not covered.
pub async fn of_session<F: Future>(trace: Option<Traceparent>, bot: F) -> F::Output {
    TRACE.scope(trace, bot).await
}

/// Returns the trace of the current task.
pub fn current() -> Option<Traceparent> {
    TRACE.try_with(Clone::clone).ok().flatten()
}

/// Returns the end of the last log line of a session that belongs to a trace.
pub fn log_suffix(trace: Option<&Traceparent>) -> String {
    trace.map_or_else(String::new, |trace| format!("; trace {}", trace.trace_id()))
}
