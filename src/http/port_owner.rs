//! Finds the process that holds a port.
//!
//! In: the kernel's socket tables in `/proc`, and a port. Out: the id and the name of the process,
//! if this user may see it; nothing on other systems.

use std::fs;

use edge_runner_proto::doctor::network::holders;

/// Processes that are inspected to find the owner of a port; a board has some hundreds.
const PROCESSES_MAX: usize = 16_384;

/// The tables of TCP and of UDP sockets.
pub const TCP_TABLES: &[&str] = &["/proc/net/tcp", "/proc/net/tcp6"];
pub const UDP_TABLES: &[&str] = &["/proc/net/udp", "/proc/net/udp6"];

/// The process that holds a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortOwner {
    pub process: u32,
    /// The name of its program, without control characters.
    pub name: String,
}

impl PortOwner {
    /// Finds the process that holds a port, among those visible to this user. With `listening`,
    /// only a socket that listens counts.
    pub fn find(tables: &[&str], port: u16, listening: bool) -> Option<PortOwner> {
        let wanted: Vec<String> = tables
            .iter()
            .flat_map(|table| holders(&fs::read_to_string(table).unwrap_or_default(), port, listening))
            .map(|inode| format!("socket:[{inode}]"))
            .collect();
        if wanted.is_empty() {
            return None;
        }
        let processes = fs::read_dir("/proc").ok()?.flatten().take(PROCESSES_MAX);
        let mut ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let process = ids.find(|id| holds(*id, &wanted))?;
        let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        // A program chooses its own name.
        let name = name.trim().chars().filter(|letter| !letter.is_control()).collect();
        Some(PortOwner { process, name })
    }

    /// Returns whether it is another runner, and probably the service of this machine.
    pub fn is_runner(&self) -> bool {
        self.name == "edge-runner"
    }
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
