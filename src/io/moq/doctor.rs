//! Checks Media over QUIC: the UDP port and its certificate, or the relay.
//!
//! In: the configuration. Out: findings, none without `-t moq`. The port is tested by binding it,
//! the relay by connecting to it as a session does.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;

use tokio::time::sleep_until;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use edge_runner_http::common::unix_time_s;

use crate::config::{Config, MoqCertificate, MoqMode, Transport};
use crate::io::moq::certificate::{is_trusted, native_roots};
use crate::io::moq::dial::{Dialer, RelayTrust};
use crate::io::port_owner::port_in_use;
use crate::io::services::Services;
use crate::io::store::read_bounded;
use crate::io::tasks;
use crate::io::tls::pair::{CertificatePair, TlsFileError};
use crate::limits::DOCTOR_RESOLVE;
use crate::proto::doctor::Finding;
use crate::proto::moq::doctor::{WHAT, made, of_files, of_relay, relay as judge_relay};
use crate::proto::moq::link::{LinkClosed, LinkEvent};
use crate::proto::server::tls::parsed::Certificate;
use edge_runner_http::port_owner::{PortOwner, UDP_TABLES};

/// Checks everything that is read or bound on this machine.
pub fn examine(config: &Config) -> Vec<Finding> {
    if config.transport != Some(Transport::Moq) {
        return Vec::new();
    }
    match &config.moq.mode {
        MoqMode::Serve { bind, certificate } => vec![port(*bind), served(certificate)],
        MoqMode::Dial { certificate, .. } => certificate.iter().map(|path| relay_file(path)).collect(),
    }
}

/// Returns the host of the relay.
pub fn hosts(config: &Config) -> Vec<String> {
    match &config.moq.mode {
        MoqMode::Dial { url, .. } if config.transport == Some(Transport::Moq) => vec![url.host().to_owned()],
        _ => Vec::new(),
    }
}

/// Connects to the relay.
pub async fn relay(config: &Config) -> Vec<Finding> {
    let MoqMode::Dial { url, is_insecure, .. } = &config.moq.mode else {
        return Vec::new();
    };
    if config.transport != Some(Transport::Moq) {
        return Vec::new();
    }
    let dialer = Dialer::start(url.clone(), None, RelayTrust::of(*is_insecure), &Services::default());
    let (dialer, reader) = match dialer {
        Ok(started) => started,
        Err(error) => return vec![Finding::error("relay", format!("{url}: {error}"))],
    };
    let mut outcome = dial(&dialer, 0).await;
    // The next address of the name may be of the other family.
    if outcome != Ok(None) {
        outcome = dial(&dialer, 1).await;
    }
    reader.abort();
    vec![match outcome {
        Ok(closed) => judge_relay(url, closed.as_ref(), *is_insecure),
        Err(why) => Finding::error("relay", format!("{url}: {why}")),
    }]
}

/// Dials once. Returns why the connection was not established, `None` if it was.
async fn dial(dialer: &Arc<Dialer>, attempt: usize) -> Result<Option<LinkClosed>, String> {
    let (mut link, mut inbox) = dialer.clone().dial(attempt).await?;
    let deadline = tasks::now() + DOCTOR_RESOLVE;
    let mut datagram = Vec::new();
    loop {
        let now = tasks::now();
        while let Some(transmit) = link.poll_transmit(now, &mut datagram) {
            inbox.port().send(&transmit, &datagram);
        }
        while let Some(event) = link.poll_endpoint_event() {
            if let Some(event) = inbox.handle_endpoint_event(event) {
                link.handle_connection_event(event, now);
            }
        }
        match link.poll_event() {
            Some(LinkEvent::Connected) => {
                link.close(0, "", now);
                while let Some(transmit) = link.poll_transmit(now, &mut datagram) {
                    inbox.port().send(&transmit, &datagram);
                }
                return Ok(None);
            }
            Some(LinkEvent::Closed(why)) => return Ok(Some(why)),
            Some(_) => continue,
            None if now >= deadline => return Ok(Some(LinkClosed::TimedOut)),
            None => {}
        }
        let due = link.poll_timeout().map_or(deadline, |due| due.min(deadline));
        tokio::select! {
            received = inbox.recv() => link.handle_connection_event(received.event, received.arrived),
            () = sleep_until(due.into()) => link.handle_timeout(tasks::now()),
        }
    }
}

fn port(address: SocketAddr) -> Finding {
    const WHAT: &str = "quic port";
    let number = address.port();
    match bind(address) {
        Ok(_) => {
            let free = match number {
                0 => "any free port".to_owned(),
                number => format!("{number} is free"),
            };
            let text = match address.ip().is_loopback() {
                true => format!("{free}; only callers on this machine reach {}", address.ip()),
                false => format!("{free}; for callers on other machines, the firewall must allow UDP"),
            };
            Finding::ok(WHAT, text)
        }
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => port_in_use(
            WHAT,
            &format!("UDP port {number} is in use; choose another with --moq-bind; port 0 picks a free one"),
            PortOwner::find(UDP_TABLES, number, false),
        ),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Finding::error(
            WHAT,
            format!("the system reserves UDP port {number}; choose one above 1023 with --moq-bind"),
        ),
        Err(error) => Finding::error(WHAT, format!("UDP {address}: {error}")),
    }
}

/// Binds an address. A machine without IPv6 has only the other family of `[::]`.
fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    match UdpSocket::bind(address) {
        Err(error)
            if address.is_ipv6() && address.ip().is_unspecified() && error.kind() != io::ErrorKind::AddrInUse =>
        {
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, address.port()))
        }
        bound => bound,
    }
}

fn served(certificate: &MoqCertificate) -> Finding {
    let (certificate, key, is_shared) = match certificate {
        MoqCertificate::SelfSigned { .. } => return made(),
        MoqCertificate::Files { certificate, key } => (certificate, key, false),
        MoqCertificate::FilesOfTls { certificate, key } => (certificate, key, true),
    };
    let texts = read(certificate).and_then(|certificate| Ok((certificate, read(key)?)));
    let (of_certificate, of_key) = match texts {
        Ok(texts) => texts,
        Err(finding) => return finding,
    };
    match CertificatePair::read(&of_certificate, &of_key, &ring::default_provider()) {
        Ok(pair) => {
            let is_trusted = is_trusted(&pair.key.cert, &native_roots());
            of_files(&pair.certificate, is_shared, is_trusted, unix_time_s())
        }
        Err(wrong) => unusable(if wrong.is_of_key() { key } else { certificate }, &wrong),
    }
}

fn relay_file(path: &Path) -> Finding {
    let text = match read(path) {
        Ok(text) => text,
        Err(finding) => return finding,
    };
    let first = CertificateDer::pem_slice_iter(&text).next().and_then(Result::ok);
    let Some(first) = first else {
        return unusable(path, &TlsFileError::NoCertificate);
    };
    match Certificate::read(&first) {
        Ok(certificate) => of_relay(&certificate, unix_time_s()),
        Err(_) => unusable(path, &TlsFileError::BadCertificate),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Finding> {
    read_bounded(path).map_err(|error| Finding::error(WHAT, format!("reading {}: {error}", path.display())))
}

fn unusable(path: &Path, wrong: &TlsFileError) -> Finding {
    Finding::error(WHAT, format!("{}: {wrong}", path.display()))
}
