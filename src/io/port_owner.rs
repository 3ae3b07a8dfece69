//! The finding of a port that another process holds.

use edge_runner_http::port_owner::PortOwner;

use crate::proto::doctor::{Finding, FindingLevel};

/// Makes the finding of a port in use. A port held by a runner is probably the running service.
pub fn port_in_use(what: &'static str, text: &str, owner: Option<PortOwner>) -> Finding {
    let (level, text) = match owner {
        Some(owner) if owner.is_runner() => (
            FindingLevel::Warning,
            format!(
                "held by a runner, process {}: is it the one in service? End it to try the port itself",
                owner.process
            ),
        ),
        Some(PortOwner { process, name }) => (
            FindingLevel::Error,
            format!("{text}; `{name}`, process {process}, has it"),
        ),
        None => (FindingLevel::Error, text.to_owned()),
    };
    Finding { level, what, text }
}
