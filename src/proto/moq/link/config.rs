//! Parameters of QUIC for calls: small windows, because a call has 50 packets a second and each
//! connection's worst case is memory of a small board.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig, QuicServerConfig};
use quinn_proto::rustls;
use quinn_proto::{ClientConfig, EndpointConfig, ServerConfig, TransportConfig, VarInt};
use ring::{hkdf, hmac};

/// The ALPN of HTTP/3.
const ALPN_H3: &[u8] = b"h3";

/// Silence after which a connection is lost. A phone that changes its network comes back earlier.
const IDLE_TIMEOUT_MS: u32 = 30_000;
/// Silence after which a packet is sent: two may be lost within the idle time, and NAT bindings
/// of 15 s and more are kept.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Unidirectional streams of the remote end at once: a group each, so 2.5 s of audio.
const UNI_STREAMS_MAX: u32 = 128;
/// Bidirectional streams of the remote end at once. A call has about six: CONNECT, announcements,
/// three subscriptions, a probe.
const BIDI_STREAMS_MAX: u32 = 32;
/// Bytes per stream before the remote end has to wait: a group of audio has 200, a record up to
/// some kilobytes.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Bytes of all streams before the remote end has to wait: a whole log that is replayed, beside the
/// audio.
const CONNECTION_WINDOW: u32 = 512 * 1024;
/// Bytes that were written and are not acknowledged.
pub const SEND_WINDOW: u64 = 256 * 1024;
/// As many at which a log that is replayed waits: 2 MiB take 64 round trips. The rest is for audio,
/// which has 8 kB/s, and for requests.
pub const BACKLOG_WINDOW: u64 = 32 * 1024;
/// Bytes of received datagrams that wait. MoQ sends none and they are dropped, but H3_DATAGRAM,
/// which WebTransport requires, requires that they may be sent (RFC 9297, section 2.1.1).
const DATAGRAM_BUFFER: usize = 1500;
/// Handshakes that wait for the decision to accept them; it is made in the same turn.
const INCOMING_MAX: usize = 64;
/// Bytes that arrive for such a handshake beyond its first datagram: a second one of a long
/// ClientHello.
const INCOMING_BUFFER: u64 = 4 * 1024;
/// Bytes that arrive for all such handshakes.
const INCOMING_BUFFER_TOTAL: u64 = 128 * 1024;

/// The TLS configuration has no TLS 1.3 with AES-128-GCM, which QUIC's first packets need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConfigError;

impl fmt::Display for LinkConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the TLS configuration lacks TLS 1.3 with AES-128-GCM")
    }
}

impl std::error::Error for LinkConfigError {}

impl From<NoInitialCipherSuite> for LinkConfigError {
    fn from(_: NoInitialCipherSuite) -> Self {
        Self
    }
}

/// The transport parameters of both roles.
pub fn transport_config() -> TransportConfig {
    let mut config = TransportConfig::default();
    config
        .max_idle_timeout(Some(VarInt::from_u32(IDLE_TIMEOUT_MS).into()))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_concurrent_uni_streams(VarInt::from_u32(UNI_STREAMS_MAX))
        .max_concurrent_bidi_streams(VarInt::from_u32(BIDI_STREAMS_MAX))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
        .send_window(SEND_WINDOW)
        .datagram_receive_buffer_size(Some(DATAGRAM_BUFFER))
        .datagram_send_buffer_size(0)
        // Packets of a call have up to 400 bytes; probes for larger ones are traffic for nothing.
        .mtu_discovery_config(None)
        // Of the segments that a batch would have, a call has one.
        .enable_segmentation_offload(false);
    config
}

/// The configuration of an endpoint. `seed` and `reset_key` are random; the key signs stateless
/// resets.
pub fn endpoint_config(seed: [u8; 32], reset_key: &[u8; 64]) -> EndpointConfig {
    let key = hmac::Key::new(hmac::HMAC_SHA256, reset_key);
    let mut config = EndpointConfig::new(Arc::new(key));
    config.rng_seed(Some(seed));
    config
}

/// The configuration of a server of WebTransport. `token_key` is random, and encrypts the tokens of
/// Retry packets.
pub fn server_config(mut tls: rustls::ServerConfig, token_key: &[u8; 64]) -> Result<ServerConfig, LinkConfigError> {
    tls.alpn_protocols = vec![ALPN_H3.to_vec()];
    let crypto = QuicServerConfig::try_from(tls)?;
    let token_key = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(token_key);
    let mut config = ServerConfig::new(Arc::new(crypto), Arc::new(token_key));
    config
        .transport_config(Arc::new(transport_config()))
        .max_incoming(INCOMING_MAX)
        .incoming_buffer_size(INCOMING_BUFFER)
        .incoming_buffer_size_total(INCOMING_BUFFER_TOTAL);
    Ok(config)
}

/// The configuration of a client of WebTransport.
pub fn client_config(mut tls: rustls::ClientConfig) -> Result<ClientConfig, LinkConfigError> {
    tls.alpn_protocols = vec![ALPN_H3.to_vec()];
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(Arc::new(transport_config()));
    Ok(config)
}
