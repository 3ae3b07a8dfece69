//! What both HTTP services share: the peer of a request, connection limits, protocol upgrades, body
//! collection within limits, and JSON replies.
//!
//! In: hyper's heads and bodies, and the limits of the service that reads them. Out: values, and
//! [`Reply`]s of known length. Rejects, by [`BodyError`], bodies that are compressed, too large,
//! too slow or badly framed; each service words the rejection itself.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode, Version};

pub use crate::lock::lock;
pub use crate::payload::{ResponseBody, whole};
use crate::stream::MaybeTlsStream;
use edge_runner_proto::http::start::RequestBase;
use edge_runner_proto::limits;
use edge_runner_proto::server::admission::Requester;

/// Time from the first byte of a request to the end of its head.
const HTTP_HEAD: Duration = Duration::from_secs(10);
/// Time from a new connection to the end of the head of its first request, including TLS: three
/// round trips over the worst network.
const HTTP_FIRST_HEAD: Duration = Duration::from_secs(8);
/// Time that a client may leave a response unread.
const HTTP_STALL: Duration = Duration::from_secs(10);
/// Time that a client has to close its side after the runner closed its own.
const HTTP_LINGER: Duration = Duration::from_secs(1);
/// Time that requests in progress have to complete when the runner shuts down.
const HTTP_GRACE: Duration = Duration::from_secs(1);

/// An HTTP response.
pub type Reply = Response<ResponseBody>;

/// Takes over a connection that changes protocols: the stream, and the bytes already read from it.
pub type Upgrade = Box<dyn FnOnce(MaybeTlsStream, Bytes) + Send>;

/// The upgrade to perform once the response has been written, if there is one.
pub type UpgradeSlot = Mutex<Option<Upgrade>>;

/// The sender of a request, and how the request arrived.
#[derive(Clone, Copy, Debug)]
pub struct PeerInfo {
    pub address: SocketAddr,
    /// The local address of the connection, if the system reports it.
    pub local: Option<SocketAddr>,
    /// Whether the connection uses TLS.
    pub secure: bool,
    /// Whether a header says that a proxy forwarded the request.
    pub is_forwarded: bool,
    /// The address for quotas and the log: the peer's, or that of the client behind a trusted
    /// proxy.
    pub source: IpAddr,
    /// Whether the request carries the API key, where one is configured.
    pub is_authorised: bool,
}

impl PeerInfo {
    /// Creates the peer of a connection whose first request has not been read.
    pub fn new(address: SocketAddr, local: Option<SocketAddr>, secure: bool) -> Self {
        PeerInfo {
            address,
            local,
            secure,
            is_forwarded: false,
            source: address.ip(),
            is_authorised: false,
        }
    }

    pub fn ip(self) -> IpAddr {
        self.address.ip()
    }

    /// Returns the address of the client; `None` if a proxy that is not trusted hides it.
    pub fn client_address(self) -> Option<IpAddr> {
        (!self.is_forwarded || self.source != self.address.ip()).then_some(self.source)
    }

    /// Returns the requester for admission control.
    pub fn requester(self) -> Requester {
        Requester {
            source: self.source.into(),
            is_authorised: self.is_authorised,
            local_address: self
                .local
                .filter(|_| !self.is_forwarded)
                .map(|local| local.ip().to_canonical()),
        }
    }
}

impl fmt::Display for PeerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// The limits of a service's connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnLimits {
    pub first_head: Duration,
    pub idle: Duration,
    pub head: Duration,
    pub body: Duration,
    pub answer: Duration,
    /// The longest time without a byte during an upload.
    pub stall_body: Duration,
    pub stall: Duration,
    pub linger: Duration,
    /// Bytes of a rejected body that are read and discarded within `linger`.
    pub linger_bytes: usize,
    /// How long requests in progress may continue once the service stops.
    pub grace: Duration,
}

impl Default for ConnLimits {
    /// The runner's limits.
    fn default() -> Self {
        ConnLimits {
            first_head: HTTP_FIRST_HEAD,
            idle: limits::HTTP_IDLE,
            head: HTTP_HEAD,
            body: limits::HTTP_BODY,
            answer: limits::HTTP_ANSWER,
            stall_body: limits::HTTP_BODY,
            stall: HTTP_STALL,
            linger: HTTP_LINGER,
            linger_bytes: limits::HTTP_DISCARD_BYTES_MAX,
            grace: HTTP_GRACE,
        }
    }
}

/// Returns random bytes from the operating system.
pub fn random<const BYTES: usize>() -> [u8; BYTES] {
    let mut random = [0; BYTES];
    getrandom::fill(&mut random).expect("the system has random numbers once it is up");
    random
}

/// Returns the seconds since 1970 by the system clock.
pub fn unix_time_s() -> u64 {
    unix_time().as_secs()
}

/// Returns the milliseconds since 1970 by the system clock.
pub fn unix_time_ms() -> u64 {
    u64::try_from(unix_time().as_millis()).unwrap_or(u64::MAX)
}

fn unix_time() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
}

/// Returns the host and the scheme under which the client reached the server. `X-Forwarded-Proto`
/// counts only from a trusted proxy: one on this machine, or one that the configuration names.
pub fn request_base(headers: &HeaderMap, peer: PeerInfo, names_proxy: bool) -> RequestBase<'_> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let proxied = peer.ip().to_canonical().is_loopback() || names_proxy;
    RequestBase {
        host: text(header::HOST).unwrap_or("localhost"),
        secure: peer.secure
            || proxied
                && text(HeaderName::from_static("x-forwarded-proto"))
                    .is_some_and(|proto| proto.eq_ignore_ascii_case("https")),
    }
}

/// Tells whether a request has exactly one `Host` header, as HTTP/1.1 requires.
pub fn has_host(head: &Parts) -> bool {
    let hosts = head.headers.get_all(header::HOST).iter().take(2).count();
    hosts == 1 || hosts == 0 && head.version < Version::HTTP_11
}

/// Makes a JSON response.
pub fn json_reply(status: StatusCode, json: impl Into<Bytes>) -> Reply {
    let mut reply = Reply::new(whole(json));
    *reply.status_mut() = status;
    reply
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

/// The limits of a body that is collected.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    pub bytes_max: usize,
    /// For the whole body.
    pub within: Duration,
}

/// Why a body was not collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    #[error("compressed bodies are not taken here")]
    Compressed,
    #[error("the body is larger than {bytes_max} bytes")]
    TooLarge { bytes_max: usize },
    #[error("the body took longer than {} s", .within.as_secs())]
    TooSlow { within: Duration },
    #[error("the body ended early or is badly framed")]
    Broken,
}

/// Collects a body within its limits of size and time. A body above the limit is read for a while
/// and discarded, so that its sender can read the response.
///
/// # Errors
/// Returns a [`BodyError`] for a body that breaks a limit or is badly framed.
pub async fn collect(caps: BodyLimits, headers: &HeaderMap, body: Incoming) -> Result<Bytes, BodyError> {
    if headers
        .get(header::CONTENT_ENCODING)
        .is_some_and(|coding| coding != "identity")
    {
        return Err(BodyError::Compressed);
    }
    let too_large = BodyError::TooLarge {
        bytes_max: caps.bytes_max,
    };
    let declared = body.size_hint().exact().unwrap_or(0);
    if declared > limits::HTTP_DISCARD_BYTES_MAX as u64 {
        return Err(too_large);
    }
    // A client that sent `Expect: 100-continue` is rejected before it sends the body.
    if declared > caps.bytes_max as u64 && headers.contains_key(header::EXPECT) {
        return Err(too_large);
    }
    match tokio::time::timeout(caps.within, collect_frames(caps.bytes_max, body, declared as usize)).await {
        Ok(result) => result,
        Err(_) => Err(BodyError::TooSlow { within: caps.within }),
    }
}

/// Joins the frames of a body. Bytes above the limit are read for a while and discarded.
async fn collect_frames(bytes_max: usize, mut body: Incoming, declared: usize) -> Result<Bytes, BodyError> {
    let mut whole = BytesMut::new();
    let mut read_bytes = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() else {
            continue;
        };
        read_bytes += data.len();
        if read_bytes > limits::HTTP_DISCARD_BYTES_MAX {
            break;
        }
        if read_bytes <= bytes_max {
            if body.is_end_stream() && whole.is_empty() {
                return Ok(data);
            }
            if whole.is_empty() {
                whole.reserve(declared.min(bytes_max));
            }
            whole.extend_from_slice(&data);
        }
    }
    if read_bytes > bytes_max {
        Err(BodyError::TooLarge { bytes_max })
    } else {
        Ok(whole.freeze())
    }
}
