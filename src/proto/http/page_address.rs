//! The addresses at which browsers open the page.
//!
//! In: the configuration and the bound addresses. Out: URLs for this machine, for others, and for
//! phones.

use std::net::{IpAddr, SocketAddr};

use crate::address_scope::AddressScope;
use crate::config::{Config, ListenAddresses};
use crate::features::Feature;
use crate::options::host::Host;
use crate::server::tls_config::Tls;
use crate::transport::Transport;

/// Returns the URL to open: HTTPS if TLS is on, with the public name, or the address that other
/// machines can reach. The port of HTTPS at a public name leads to the runner.
pub fn page_url(config: &Config, listening: &ListenAddresses) -> String {
    let scheme = if config.tls == Tls::Off { "http" } else { "https" };
    let end = if Feature::Page.in_this_build() { "/" } else { "" };
    let authority = match config.acme.names.first() {
        Some(name) => name.clone(),
        None => page_authority(config, listening),
    };
    format!("{scheme}://{authority}{end}")
}

/// Returns the URL that phones can open, by the public name or in the local network. `None` without
/// one, and in a build or for a transport without the page.
pub fn phone_url(config: &Config, listening: &ListenAddresses) -> Option<String> {
    let is_local = |address| {
        matches!(
            AddressScope::of(address),
            AddressScope::Private | AddressScope::LinkLocal
        )
    };
    let serves_pages = config.transport.is_none_or(Transport::is_for_pages);
    let has_name = !config.acme.names.is_empty();
    let is_reached = has_name || lan_address(config, listening).is_some_and(is_local);
    (Feature::Page.in_this_build() && serves_pages && is_reached).then(|| page_url(config, listening))
}

/// Returns the address that other machines can reach, with the port.
pub fn page_authority(config: &Config, listening: &ListenAddresses) -> String {
    match lan_address(config, listening) {
        Some(address) => SocketAddr::new(address, listening.port).to_string(),
        None => {
            let url = local_url(config.host, listening.port);
            url.trim_start_matches("http://").to_owned()
        }
    }
}

/// Returns the URL for a browser on this machine. Browsers do not open the unspecified address.
pub fn local_url(host: Host, port: u16) -> String {
    match host {
        Host::Address(address) if address.is_unspecified() => Host::Localhost.url(port),
        other => other.url(port),
    }
}

/// Returns the address at which other machines can reach this one.
pub fn lan_address(config: &Config, listening: &ListenAddresses) -> Option<IpAddr> {
    match config.host {
        Host::Localhost => None,
        Host::Address(address) if address.is_loopback() => None,
        Host::Address(address) if !address.is_unspecified() => Some(address),
        Host::Address(_) => preferred(&listening.addresses),
    }
}

fn preferred(addresses: &[IpAddr]) -> Option<IpAddr> {
    let is_external = |address: &&IpAddr| !address.is_loopback() && !address.is_unspecified();
    let mut usable = addresses.iter().filter(is_external);
    usable
        .clone()
        .find(|address| address.is_ipv4())
        .or_else(|| usable.next())
        .copied()
}
