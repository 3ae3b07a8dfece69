//! The host of `--host`.

use std::net::{IpAddr, SocketAddr};

/// The host on which the HTTP server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// `127.0.0.1` and `::1`, as far as the machine has them.
    Localhost,
    /// One address; an unspecified one means all interfaces of its family.
    Address(IpAddr),
}

impl Host {
    /// Returns the URL of the server, without a trailing slash.
    pub fn url(self, port: u16) -> String {
        match self {
            Host::Localhost => format!("http://localhost:{port}"),
            Host::Address(address) => format!("http://{}", SocketAddr::new(address, port)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_urls_of_hosts() {
        let v6 = Host::Address("2001:db8::1".parse().expect("an address"));
        assert_eq!(v6.url(7860), "http://[2001:db8::1]:7860");
        let v4 = Host::Address("192.0.2.7".parse().expect("an address"));
        assert_eq!(v4.url(80), "http://192.0.2.7:80");
        assert_eq!(Host::Localhost.url(1), "http://localhost:1");
    }
}
