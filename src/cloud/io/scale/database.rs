//! Connections to PostgreSQL.
//!
//! In: a [`DatabaseUrl`]. Out: a [`DatabaseSession`] within five seconds, or
//! [`DatabaseError::Unavailable`]. A session keeps its connection for the next one. TLS verifies
//! the certificate; there is no fall-back to plain text. A cut connection is noticed after three
//! seconds. Source: the documentation of PostgreSQL, "Frontend/Backend Protocol", "Error Codes";
//! `tcp(7)`.

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Socket};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::proto::metrics::{BackendFailure, BackendMetrics};
use crate::proto::scale::database_url::DatabaseUrl;
use edge_runner_http::client::system_trust;
use edge_runner_http::common::lock;
use edge_runner_http::tasks;

/// Connections of one process, without the one that listens.
const CONNECTIONS_MAX: usize = 8;

/// Time to wait for a connection, for a new one, and for a statement.
const WAIT: Duration = Duration::from_secs(5);
const CONNECT: Duration = Duration::from_secs(3);
const SESSION: &str = "SET statement_timeout = '5s'; SET idle_in_transaction_session_timeout = '10s'";

/// Time after which a peer that acknowledges nothing counts as gone, and that of an idle
/// connection.
const UNACKNOWLEDGED: Duration = Duration::from_secs(3);
const KEEPALIVE: Duration = Duration::from_secs(2);

/// Why the database did not do something. Contains no password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatabaseError {
    /// The same may succeed later.
    #[error("the database cannot be reached: {0}")]
    Unavailable(String),
    #[error("the database: {0}")]
    Broken(String),
}

impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> Self {
        let mut reason = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            reason = format!("{reason}: {cause}");
            source = cause.source();
        }
        match is_passing(&error) {
            true => DatabaseError::Unavailable(reason),
            false => DatabaseError::Broken(reason),
        }
    }
}

/// Tells whether an error is one of the connection, of a restart or of concurrency.
fn is_passing(error: &tokio_postgres::Error) -> bool {
    const CODES: [&SqlState; 10] = [
        &SqlState::ADMIN_SHUTDOWN,
        &SqlState::CRASH_SHUTDOWN,
        &SqlState::CANNOT_CONNECT_NOW,
        &SqlState::QUERY_CANCELED,
        &SqlState::TOO_MANY_CONNECTIONS,
        &SqlState::T_R_SERIALIZATION_FAILURE,
        &SqlState::T_R_DEADLOCK_DETECTED,
        // After the promotion of another server.
        &SqlState::READ_ONLY_SQL_TRANSACTION,
        &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        &SqlState::LOCK_NOT_AVAILABLE,
    ];
    match error.code() {
        Some(code) => CODES.contains(&code) || code.code().starts_with("08"),
        None => {
            let is_io = error.source().is_some_and(|source| source.is::<io::Error>());
            error.is_closed() || is_io || error.to_string().starts_with("timeout")
        }
    }
}

/// The connections of this process.
pub struct Database {
    config: Config,
    connector: Connector,
    idle: Mutex<Vec<Client>>,
    permits: Semaphore,
    metrics: BackendMetrics,
}

impl Database {
    /// Prepares connections; the first session makes one.
    ///
    /// # Errors
    /// [`DatabaseError::Broken`] for a URL that is not understood, or without certificates to
    /// trust.
    pub async fn open(url: &DatabaseUrl) -> Result<Database, DatabaseError> {
        let mut config: Config = url
            .url
            .expose()
            .parse()
            .map_err(|error: tokio_postgres::Error| DatabaseError::Broken(format!("its URL: {error}")))?;
        config
            .application_name("edge-runner")
            .connect_timeout(CONNECT)
            .tcp_user_timeout(UNACKNOWLEDGED)
            .keepalives_idle(KEEPALIVE)
            .keepalives_interval(Duration::from_secs(1))
            .keepalives_retries(2)
            .ssl_mode(if url.tls { SslMode::Require } else { SslMode::Disable });
        let trust = match url.tls {
            true => {
                let trust = system_trust().await;
                Some(trust.map_err(|error| DatabaseError::Broken(error.to_string()))?)
            }
            false => None,
        };
        Ok(Database {
            config,
            connector: Connector(trust),
            idle: Mutex::default(),
            permits: Semaphore::new(CONNECTIONS_MAX),
            metrics: BackendMetrics::default(),
        })
    }

    /// Returns how long sessions took, and how many failed.
    pub fn metrics(&self) -> &BackendMetrics {
        &self.metrics
    }

    /// Returns a connection that nothing else uses.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn session(&self) -> Result<DatabaseSession<'_>, DatabaseError> {
        let began = Instant::now();
        let permit = match timeout(WAIT, self.permits.acquire()).await {
            Ok(permit) => permit.expect("the semaphore is never closed"),
            Err(_) => {
                self.metrics.failed(BackendFailure::Busy);
                return Err(DatabaseError::Unavailable("all connections are in use".into()));
            }
        };
        let idle = || {
            let mut idle = lock(&self.idle);
            std::iter::from_fn(|| idle.pop()).find(|client| !client.is_closed())
        };
        let client = match idle() {
            Some(client) => client,
            None => {
                let begun = self.begin().await;
                begun.inspect_err(|_| self.metrics.failed(BackendFailure::Connect))?
            }
        };
        Ok(DatabaseSession {
            database: self,
            client: Some(client),
            began,
            _permit: permit,
        })
    }

    /// Makes a connection for statements.
    async fn begin(&self) -> Result<Client, DatabaseError> {
        let (client, connection) = self.connect().await?;
        tasks::spawn(async move {
            if let Err(error) = connection.await {
                log::debug!("a connection to the database ended: {}", DatabaseError::from(error));
            }
        });
        client.batch_execute(SESSION).await?;
        Ok(client)
    }

    async fn connect(&self) -> Result<(Client, Connection<Socket, DatabaseStream>), DatabaseError> {
        // The client has a limit for each address; this one is for all of them.
        match timeout(WAIT, self.config.connect(self.connector.clone())).await {
            Ok(connected) => Ok(connected?),
            Err(_) => Err(DatabaseError::Unavailable("connecting takes too long".into())),
        }
    }

    /// Listens on a channel with a connection for it, until that is lost. Notifies `woken` after
    /// each message, and once at the begin, since messages before it are lost.
    ///
    /// # Errors
    /// [`DatabaseError`] when the connection is lost.
    pub async fn listen(&self, channel: &str, woken: &Notify) -> Result<(), DatabaseError> {
        let (client, mut connection) = self.connect().await?;
        let messages = poll_fn(|cx| {
            loop {
                match std::task::ready!(connection.poll_message(cx)) {
                    Some(Ok(AsyncMessage::Notification(_))) => woken.notify_one(),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Poll::Ready(Err(error)),
                    None => return Poll::Ready(Ok(())),
                }
            }
        });
        let begin = async {
            client.batch_execute(&format!("LISTEN {channel}")).await?;
            woken.notify_one();
            std::future::pending().await
        };
        tokio::select! {
            ended = messages => Ok(ended?),
            begun = begin => begun,
        }
    }
}

/// A connection; back in the pool on drop.
pub struct DatabaseSession<'d> {
    database: &'d Database,
    client: Option<Client>,
    began: Instant,
    _permit: SemaphorePermit<'d>,
}

impl DatabaseSession<'_> {
    /// Closes the connection, which frees its locks. Its time is not that of an operation.
    pub fn close(mut self) {
        self.client = None;
    }
}

impl Deref for DatabaseSession<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client.as_ref().expect("it is there until the session is closed")
    }
}

impl DerefMut for DatabaseSession<'_> {
    fn deref_mut(&mut self) -> &mut Client {
        self.client.as_mut().expect("it is there until the session is closed")
    }
}

impl Drop for DatabaseSession<'_> {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else { return };
        self.database.metrics.took(self.began.elapsed());
        match client.is_closed() {
            true => self.database.metrics.failed(BackendFailure::Lost),
            false => lock(&self.database.idle).push(client),
        }
    }
}

/// Does the TLS handshake of a connection. Without a connector none is asked for.
#[derive(Clone)]
struct Connector(Option<TlsConnector>);

/// A [`Connector`] for one host.
struct HostConnector {
    connector: Option<TlsConnector>,
    host: String,
}

impl MakeTlsConnect<Socket> for Connector {
    type Stream = DatabaseStream;
    type TlsConnect = HostConnector;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<HostConnector> {
        Ok(HostConnector {
            connector: self.0.clone(),
            host: host.to_owned(),
        })
    }
}

impl TlsConnect<Socket> for HostConnector {
    type Stream = DatabaseStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<DatabaseStream>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move {
            let connector = self.connector.ok_or(io::ErrorKind::Unsupported)?;
            let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
            connector.connect(name, stream).await.map(DatabaseStream)
        })
    }
}

/// A connection with TLS.
pub struct DatabaseStream(tokio_rustls::client::TlsStream<Socket>);

impl TlsStream for DatabaseStream {
    fn channel_binding(&self) -> ChannelBinding {
        // The certificate is verified, which is what a binding would add.
        ChannelBinding::none()
    }
}

impl AsyncRead for DatabaseStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for DatabaseStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
