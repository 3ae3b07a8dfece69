//! The driver of Media over QUIC.
//!
//! In: the options, and the sessions of `/start`. Out: the UDP port, bound at start-up; sessions
//! whose bots start at once; metrics. `port` moves datagrams, `certificate` serves TLS, `arrivals`
//! attends connections until they name their session, `dial` opens connections to a relay, and
//! `session_io` joins a session with its connections.

pub mod arrivals;
pub mod banner;
#[cfg(feature = "call")]
pub mod call;
pub mod certificate;
pub mod dial;
pub mod doctor;
pub mod port;
pub mod routes;
mod session_io;

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use edge_runner_http::common::random;
use edge_runner_http::tls::WatchedCertificate;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use self::arrivals::{Arrivals, ConnectionRules, WaitingRegistry, WaitingSession};
use self::certificate::{ServedCertificate, hash_of_file, warn_of_relay_file};
use self::dial::{Dialer, RelayTrust};
use self::port::MoqPort;
pub use self::routes::MODULE;
use self::session_io::{ConnectionSource, MoqIo};
use crate::bot::{self, MoqAddress, MoqArguments};
use crate::config::{MoqMode, MoqUdpPort, Transport};
use crate::io::addresses::local_address_towards;
use crate::io::admission::SessionPermit;
use crate::io::seeding::seeding;
use crate::io::services::Services;
use crate::io::session::{self, SessionTask};
use crate::io::sessions::{SessionStart, Sessions};
use crate::io::{RunError, tasks};
use crate::limits::AUDIO_IN_FRAMES_MAX;
use crate::proto::audio::opus::EncoderSettings;
use crate::proto::metrics::text::MetricsText;
use crate::proto::moq::limits::MOQ_READY;
use crate::proto::moq::link::server_config;
use crate::proto::moq::metrics::MoqMetrics;
use crate::proto::moq::session::{MoqSession, MoqSessionMode, MoqSessionSetup};
use crate::proto::moq::start::MoqStartError;

/// The protocol in errors.
const PROTOCOL: &str = "Media over QUIC";

/// Media over QUIC of one runner. Clones share it.
#[derive(Clone)]
pub struct Moq(Arc<MoqShared>);

struct MoqShared {
    sessions: Sessions,
    port: Arc<MoqPort>,
    reader: AbortHandle,
    role: MoqRole,
    metrics: Arc<MoqMetrics>,
}

enum MoqRole {
    Serve {
        certificate: Arc<ServedCertificate>,
        waiting: WaitingRegistry,
    },
    Dial {
        dialer: Arc<Dialer>,
        /// The certificate of the relay, whose hash callers receive.
        certificate: Option<PathBuf>,
    },
}

/// A session to begin.
pub struct MoqBeginning {
    pub start: SessionStart,
    pub permit: SessionPermit,
    pub namespace: String,
    /// The URL of the runner or the relay, for the bot.
    pub relay_url: String,
}

/// A session that is ready for its caller.
#[derive(Debug)]
pub struct MoqStarted {
    /// The hash of the certificate, in Base64; `None` if callers verify it.
    pub cert_hash: Option<String>,
}

impl Moq {
    /// Binds the port; `None` if `-t` excludes the transport.
    ///
    /// # Errors
    /// Returns [`RunError::ModuleCertificate`] or [`RunError::BindUdp`].
    pub fn start(sessions: &Sessions, rules: ConnectionRules, services: &Services) -> Result<Option<Moq>, RunError> {
        let config = sessions.config();
        if config.transport != Some(Transport::Moq) {
            return Ok(None);
        }
        let bound = |address: SocketAddr| {
            move |source| RunError::BindUdp {
                address: address.to_string(),
                protocol: PROTOCOL,
                advice: "`--moq-bind` takes another address",
                source,
            }
        };
        let metrics = Arc::new(MoqMetrics::default());
        let (port, reader, role) = match &config.moq.mode {
            MoqMode::Serve { bind, certificate } => {
                let waiting = WaitingRegistry::default();
                let unusable = |error: &dyn std::fmt::Display| RunError::ModuleCertificate {
                    protocol: PROTOCOL,
                    why: error.to_string(),
                };
                let certificate = ServedCertificate::open(certificate, &config.host_names, waiting.clone())
                    .map_err(|error| unusable(&error))?;
                let tls = certificate.tls_config().map_err(|error| unusable(&error))?;
                let server = server_config(tls, &random()).map_err(|error| unusable(&error))?;
                let port = MoqPort::bind(*bind, Some(Arc::new(server))).map_err(bound(*bind))?;
                let arrivals = Arrivals::new(sessions.clone(), waiting.clone(), rules, metrics.clone());
                let reading = port.clone().run(arrivals);
                let reader = services.spawn("the reader of the UDP port of Media over QUIC", reading);
                (port, reader.abort_handle(), MoqRole::Serve { certificate, waiting })
            }
            MoqMode::Dial {
                url,
                bind,
                certificate,
                is_insecure,
            } => {
                let any = SocketAddr::from(([0, 0, 0, 0], 0));
                let trust = RelayTrust::of(*is_insecure);
                let (dialer, reader) =
                    Dialer::start(url.clone(), *bind, trust, services).map_err(bound(bind.unwrap_or(any)))?;
                let certificate = certificate.clone();
                if let Some(path) = &certificate {
                    warn_of_relay_file(path);
                }
                (dialer.port().clone(), reader, MoqRole::Dial { dialer, certificate })
            }
        };
        Ok(Some(Moq(Arc::new(MoqShared {
            sessions: sessions.clone(),
            port,
            reader,
            role,
            metrics,
        }))))
    }

    /// Returns the UDP port.
    pub fn udp_port(&self) -> MoqUdpPort {
        let number = self.0.port.number();
        let loopback = SocketAddr::from((Ipv6Addr::LOCALHOST, number));
        MoqUdpPort {
            number,
            // Where IPv6 is disabled, its sockets can still be bound.
            has_ipv6: self.0.port.serves(loopback.ip()) && local_address_towards(loopback).is_some(),
        }
    }

    /// Returns the source to which the page connects, for its content security policy.
    pub fn source_expression(&self) -> String {
        match &self.0.sessions.config().moq.mode {
            // The policy has no syntax for IPv6 addresses.
            MoqMode::Dial { url, .. } if !url.host().contains(':') => format!("https://{}", url.authority()),
            MoqMode::Dial { url, .. } => format!("https://*:{}", url.port()),
            // The page reaches the runner under the name that the browser used, or that of the
            // certificate.
            MoqMode::Serve { .. } => format!("https://*:{}", self.0.port.number()),
        }
    }

    /// Returns the certificate in serve mode, to be reloaded and renewed.
    pub fn served_certificate(&self) -> Option<Arc<dyn WatchedCertificate>> {
        match &self.0.role {
            MoqRole::Serve { certificate, .. } => Some(certificate.clone()),
            MoqRole::Dial { .. } => None,
        }
    }

    /// Writes the families of metrics.
    pub fn render_metrics_to(&self, text: &mut MetricsText) {
        let port = &self.0.port;
        self.0
            .metrics
            .render(text, port.connections() as u64, port.inbox_full());
    }

    /// Begins a session with its bot. In serve mode it is ready at once; in dial mode when the
    /// relay has taken the bot's broadcast.
    ///
    /// # Errors
    /// Returns a [`MoqStartError`]; the session is then over or ends.
    pub async fn begin(&self, beginning: MoqBeginning) -> Result<MoqStarted, MoqStartError> {
        let shared = &self.0;
        let config = &shared.sessions.config().moq;
        let MoqBeginning {
            start,
            permit,
            namespace,
            relay_url,
        } = beginning;
        let (mode, serve) = match shared.role {
            MoqRole::Serve { .. } => (MoqSessionMode::Serve, true),
            MoqRole::Dial { .. } => (MoqSessionMode::Dial, false),
        };
        let setup = MoqSessionSetup {
            mode,
            namespace: namespace.clone(),
            bot_id: config.bot_id.clone(),
            client_id: config.client_id.clone(),
            origin: u64::from_be_bytes(random()),
            epoch: u64::from_be_bytes(random()),
            encoder_settings: EncoderSettings {
                complexity: shared.sessions.config().opus_complexity,
                ..EncoderSettings::default()
            },
        };
        let address = MoqAddress {
            relay_url,
            namespace,
            bot_id: setup.bot_id.clone(),
            client_id: setup.client_id.clone(),
            serve,
        };
        match &shared.role {
            MoqRole::Serve { certificate, waiting } => {
                let (arrived, arriving) = oneshot::channel();
                let session_id = start.session_id.clone();
                let waiting_session = WaitingSession { session_id, arrived };
                let entry = waiting.register(&setup.caller_path(), waiting_session);
                // After the registration, so that no renewal comes in between.
                let cert_hash = certificate.hash();
                let source = ConnectionSource::Caller {
                    arriving,
                    failures: waiting.failures(),
                    _entry: entry,
                };
                self.spawn(start, permit, setup, address, source);
                Ok(MoqStarted { cert_hash })
            }
            MoqRole::Dial { dialer, certificate } => {
                let cert_hash = match certificate.clone() {
                    Some(path) => hash_in(path).await?,
                    None => None,
                };
                let (ready, is_ready) = oneshot::channel();
                let source = ConnectionSource::Relay {
                    dialer: dialer.clone(),
                    dialing: None,
                    attempt: 0,
                    remote: None,
                    ready: Some(ready),
                };
                self.spawn(start, permit, setup, address, source);
                match timeout(MOQ_READY, is_ready).await {
                    Ok(Ok(Ok(()))) => Ok(MoqStarted {
                        cert_hash: cert_hash.or_else(|| dialer.published_hash()),
                    }),
                    Ok(Ok(Err(why))) => Err(MoqStartError::Ended(why)),
                    Ok(Err(_)) => Err(MoqStartError::Ended("its task ended".to_owned())),
                    Err(_) => Err(MoqStartError::NotReady),
                }
            }
        }
    }

    fn spawn(
        &self,
        start: SessionStart,
        permit: SessionPermit,
        setup: MoqSessionSetup,
        address: MoqAddress,
        source: ConnectionSource,
    ) {
        let sessions = &self.0.sessions;
        let id = start.session_id;
        let session = Box::new(MoqSession::new(setup, tasks::now()));
        let mut task = SessionTask::new(sessions.clone(), permit, start.lease);
        task.start_bot(
            start.bot,
            id.clone(),
            start.body,
            Transport::Moq,
            AUDIO_IN_FRAMES_MAX,
            |slot| bot::Kind::Moq(MoqArguments::new(address, slot)),
        );
        let io = MoqIo {
            port: self.0.port.clone(),
            source,
            inboxes: Vec::new(),
            last: 0,
        };
        let task = seeding(session::run(session, io, task));
        session::spawn(sessions, id, start.log_client, task);
    }

    /// Closes the port, after the sessions' goodbyes.
    pub fn close(&self) {
        self.0.reader.abort();
    }
}

/// Reads the certificate of the relay and returns its hash.
async fn hash_in(path: PathBuf) -> Result<Option<String>, MoqStartError> {
    let read = tasks::blocking(move || hash_of_file(&path)).await;
    match read {
        Ok(Ok(hash)) => Ok(hash),
        Ok(Err(error)) => Err(MoqStartError::Certificate(format!("--moq-tls-cert: {error}"))),
        Err(panic) => Err(MoqStartError::Certificate(format!("--moq-tls-cert: {panic}"))),
    }
}
