//! The TLS session type of a build with TLS.

use tokio::net::TcpStream;

/// A server-side TLS session.
pub type TlsStream = tokio_rustls::server::TlsStream<TcpStream>;
