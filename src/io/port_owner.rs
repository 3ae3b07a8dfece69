//! Finds the process that holds a port.
//!
//! In: the kernel's socket tables in `/proc`. Out: a finding, or the process.

use std::fs;

use crate::proto::doctor::network::holders;
use crate::proto::doctor::{Finding, FindingLevel};

/// Processes that are inspected to find the owner of a port; a board has some hundreds.
const DOCTOR_PROCESSES_MAX: usize = 16_384;

/// Makes the finding of a port in use. A port held by a runner is probably the running service.
pub fn port_in_use(what: &'static str, text: &str, holder: Option<(u32, String)>) -> Finding {
    let (verdict, text) = match holder {
        Some((id, name)) if name == "edge-runner" => (
            FindingLevel::Warning,
            format!("held by a runner, process {id}: is it the one in service? End it to try the port itself"),
        ),
        Some((id, name)) => (FindingLevel::Error, format!("{text}; `{name}`, process {id}, has it")),
        None => (FindingLevel::Error, text.to_owned()),
    };
    Finding {
        level: verdict,
        what,
        text,
    }
}

/// Finds the process that holds a port, among those visible to this user.
pub fn holder(tables: &[&str], port: u16, listening: bool) -> Option<(u32, String)> {
    let inodes: Vec<u64> = tables
        .iter()
        .flat_map(|table| holders(&fs::read_to_string(table).unwrap_or_default(), port, listening))
        .collect();
    let wanted: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let processes = fs::read_dir("/proc").ok()?.flatten().take(DOCTOR_PROCESSES_MAX);
    let mut ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let id = ids.find(|id| holds(*id, &wanted))?;
    let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
    // A program chooses its own name, so control characters are removed.
    let name: String = name.trim().chars().filter(|letter| !letter.is_control()).collect();
    Some((id, name))
}

fn holds(id: u32, sockets: &[String]) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{id}/fd")) else {
        return false;
    };
    open.flatten().any(|entry| {
        fs::read_link(entry.path())
            .is_ok_and(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
    })
}
