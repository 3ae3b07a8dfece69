//! Connections to PostgreSQL.
//!
//! In: a [`DatabaseUrl`]. Out: a [`DatabaseSession`] within five seconds, or
//! [`DatabaseError::Unavailable`]. A session keeps its connection for the next one, unless an
//! answer is outstanding. TLS verifies the certificate; there is no fall-back to plain text. A cut
//! connection is noticed after three seconds, by the server after eleven, and one that is
//! acknowledged but not answered after [`ANSWER`]. Source: the documentation of PostgreSQL,
//! "Frontend/Backend Protocol", "Error Codes", "Connections and Authentication"; `tcp(7)`.

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, GenericClient, Row, Socket, Transaction};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::secret_file::SecretFile;
use crate::proto::metrics::{BackendFailure, BackendMetrics};
use crate::proto::scale::database_url::DatabaseUrl;
use crate::proto::scale::secret_files;
use edge_runner_http::client::system_trust;
use edge_runner_http::common::lock;
use edge_runner_http::tasks;
use edge_runner_proto::config::Secret;

/// Connections of one process, without the one that listens.
const CONNECTIONS_MAX: usize = 8;

/// Time to wait for a connection, and for a new one.
const WAIT: Duration = Duration::from_secs(5);
const CONNECT: Duration = Duration::from_secs(3);

/// Time after which the server ends a transaction in which nothing happens, and the connection with
/// it: that of a process that stands still, whose system still acknowledges.
pub const TRANSACTION_IDLE: Duration = Duration::from_secs(10);

/// Limits of the server: time for a statement, [`TRANSACTION_IDLE`], and when a client that is gone
/// without a word loses its locks.
const SESSION: &str = "SET statement_timeout = '5s'; SET idle_in_transaction_session_timeout = '10s'; \
                       SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3";

/// Time for the answer to a statement. The server ends it sooner, unless it stands still or is
/// behind a proxy that lost it: then the system acknowledges what nothing answers.
const ANSWER: Duration = Duration::from_secs(7);

/// Time between two checks whether the connection that listens is still answered.
const LISTEN_CHECK: Duration = Duration::from_secs(30);

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
    const CODES: [&SqlState; 11] = [
        // While it is being changed there and in the file with it.
        &SqlState::INVALID_PASSWORD,
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
    /// The password, if it is that of a file.
    password: Option<SecretFile<Secret>>,
    connector: Connector,
    idle: Mutex<Vec<PooledClient>>,
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
        let password = url.password.clone().map(|(at_start, file)| {
            SecretFile::new(
                at_start,
                Some(file),
                secret_files::password,
                secret_files::PASSWORD_WANTS,
            )
        });
        Ok(Database {
            config,
            password,
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
            std::iter::from_fn(|| idle.pop()).find(|pooled| !pooled.client.is_closed())
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
            answers: AnswerWait::new(),
            began,
            _permit: permit,
        })
    }

    /// Makes a connection for statements.
    async fn begin(&self) -> Result<PooledClient, DatabaseError> {
        let (client, connection) = self.connect().await?;
        let task = tasks::spawn(async move {
            if let Err(error) = connection.await {
                log::debug!("a connection to the database ended: {}", DatabaseError::from(error));
            }
        });
        let pooled = PooledClient {
            client,
            task: task.abort_handle(),
        };
        let set = AnswerWait::new().of(pooled.client.batch_execute(SESSION)).await;
        set.inspect_err(|_| pooled.task.abort())?;
        Ok(pooled)
    }

    async fn connect(&self) -> Result<(Client, Connection<Socket, DatabaseStream>), DatabaseError> {
        let with_password = self.password.as_ref().map(|password| {
            let mut config = self.config.clone();
            config.password(password.current().expose());
            config
        });
        let config = with_password.as_ref().unwrap_or(&self.config);
        // The client has a limit for each address; this one is for all of them.
        match timeout(WAIT, config.connect(self.connector.clone())).await {
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
        let answers = AnswerWait::new();
        let begin = async {
            answers.of(client.batch_execute(&format!("LISTEN {channel}"))).await?;
            woken.notify_one();
            loop {
                sleep(LISTEN_CHECK).await;
                answers.of(client.batch_execute("SELECT 1")).await?;
            }
        };
        tokio::select! {
            ended = messages => Ok(ended?),
            begun = begin => begun,
        }
    }
}

/// A connection, and the task that drives it.
struct PooledClient {
    client: Client,
    task: AbortHandle,
}

/// The answers of a connection: how long they may take, and whether one is outstanding.
pub struct AnswerWait {
    limit: Duration,
    is_outstanding: AtomicBool,
}

impl AnswerWait {
    fn new() -> AnswerWait {
        AnswerWait {
            limit: ANSWER,
            is_outstanding: AtomicBool::new(false),
        }
    }

    /// Waits for the answer to a statement.
    async fn of<T>(
        &self,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, DatabaseError> {
        // It stays so if the caller is dropped meanwhile.
        self.is_outstanding.store(true, Ordering::Relaxed);
        let answer = timeout(self.limit, statement).await;
        let answer = answer.map_err(|_| DatabaseError::Unavailable("it does not answer".into()))?;
        self.is_outstanding.store(false, Ordering::Relaxed);
        Ok(answer?)
    }
}

/// What takes statements: a session, or a transaction of it.
pub trait Statements: Sync {
    type Client: GenericClient + Sync;

    fn client(&self) -> &Self::Client;

    fn answers(&self) -> &AnswerWait;

    /// Runs a statement, and returns the number of its rows.
    fn execute(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> impl Future<Output = Result<u64, DatabaseError>> + Send {
        async move { self.answers().of(self.client().execute(sql, values)).await }
    }

    /// Returns the rows of a statement.
    fn query(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> impl Future<Output = Result<Vec<Row>, DatabaseError>> + Send {
        async move { self.answers().of(self.client().query(sql, values)).await }
    }

    /// Returns the only row of a statement.
    fn query_one(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> impl Future<Output = Result<Row, DatabaseError>> + Send {
        async move { self.answers().of(self.client().query_one(sql, values)).await }
    }

    /// Returns the row of a statement, if there is one.
    fn query_opt(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> impl Future<Output = Result<Option<Row>, DatabaseError>> + Send {
        async move { self.answers().of(self.client().query_opt(sql, values)).await }
    }

    /// Runs statements without values.
    fn batch_execute(&self, sql: &str) -> impl Future<Output = Result<(), DatabaseError>> + Send {
        async move { self.answers().of(self.client().batch_execute(sql)).await }
    }
}

/// A connection; back in the pool on drop.
pub struct DatabaseSession<'d> {
    database: &'d Database,
    client: Option<PooledClient>,
    answers: AnswerWait,
    began: Instant,
    _permit: SemaphorePermit<'d>,
}

impl DatabaseSession<'_> {
    /// Begins a transaction, which is rolled back on drop.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn transaction(&mut self) -> Result<DatabaseTransaction<'_>, DatabaseError> {
        let pooled = self.client.as_mut().expect(IS_OPEN);
        let tx = self.answers.of(pooled.client.transaction()).await?;
        Ok(DatabaseTransaction {
            tx,
            answers: &self.answers,
        })
    }

    /// Lets statements take any time.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn without_limit(&mut self) -> Result<(), DatabaseError> {
        self.answers.limit = Duration::MAX;
        self.batch_execute("SET statement_timeout = 0").await
    }

    /// Closes the connection, which frees its locks. Its time is not that of an operation.
    pub fn close(mut self) {
        self.client = None;
    }
}

const IS_OPEN: &str = "it is there until the session is closed";

impl Statements for DatabaseSession<'_> {
    type Client = Client;

    fn client(&self) -> &Client {
        &self.client.as_ref().expect(IS_OPEN).client
    }

    fn answers(&self) -> &AnswerWait {
        &self.answers
    }
}

impl Drop for DatabaseSession<'_> {
    fn drop(&mut self) {
        let Some(pooled) = self.client.take() else { return };
        self.database.metrics.took(self.began.elapsed());
        // The next session would wait for the outstanding answer too.
        if *self.answers.is_outstanding.get_mut() {
            pooled.task.abort();
            self.database.metrics.failed(BackendFailure::Lost);
        } else if pooled.client.is_closed() {
            self.database.metrics.failed(BackendFailure::Lost);
        } else {
            lock(&self.database.idle).push(pooled);
        }
    }
}

/// A transaction; rolled back on drop.
pub struct DatabaseTransaction<'s> {
    tx: Transaction<'s>,
    answers: &'s AnswerWait,
}

impl DatabaseTransaction<'_> {
    /// Commits it.
    ///
    /// # Errors
    /// [`DatabaseError`]; it may be committed.
    pub async fn commit(self) -> Result<(), DatabaseError> {
        self.answers.of(self.tx.commit()).await
    }
}

impl<'s> Statements for DatabaseTransaction<'s> {
    type Client = Transaction<'s>;

    fn client(&self) -> &Transaction<'s> {
        &self.tx
    }

    fn answers(&self) -> &AnswerWait {
        self.answers
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
