//! The name of this machine, as the kernel knows it. Source: `uname(2)`.

/// Returns the host name, which may have a domain.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
