//! Connections over loopback, by a client made of the same link and peer.

use std::future::pending;
use std::time::Duration;

use quinn_proto::Transmit;
use tokio::task::JoinHandle;
use tokio_rustls::rustls::{RootCertStore, version::TLS13};

use super::super::port::MoqPort;
use super::*;
use crate::bot::{self, Shutdown, ShutdownTrigger};
use crate::io::tasks::SlotPool;
use crate::proto::http::token::Issuer;
use crate::proto::metrics::text::MetricsText;
use crate::proto::moq::limits::MOQ_UNBOUND_PER_SOURCE;
use crate::proto::moq::link::{LinkClosed, LinkEvent, LinkTarget, MoqLink, client_config, server_config};
use crate::proto::moq::metrics::MoqMetrics;
use crate::proto::moq::peer::MoqPeer;

const GUARD: Duration = Duration::from_secs(60);

/// A port that serves, and one that dials, with their readers.
struct Rig {
    server: Arc<MoqPort>,
    client: Arc<MoqPort>,
    roots: RootCertStore,
    waiting: WaitingRegistry,
    rules: ConnectionRules,
    metrics: Arc<MoqMetrics>,
    arrivals: Arc<Arrivals>,
    stop: ShutdownTrigger,
    readers: [JoinHandle<()>; 2],
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.readers.iter().for_each(JoinHandle::abort);
    }
}

fn rig(needs_token: bool, allowed_origins: &[String]) -> Rig {
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a valid name");
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a certificate");
    let key = made.signing_key.serialize_der().try_into().expect("a key");
    let tls = tokio_rustls::rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .expect("ring has TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a key and its certificate");
    let server = server_config(tls, &random()).expect("it has TLS 1.3");
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = MoqPort::bind(loopback, Some(Arc::new(server))).expect("a free port");
    let client = MoqPort::bind(loopback, None).expect("a free port");
    let (stop, shutdown) = Shutdown::channel();
    let idle_bot = bot::erase(|_| async { Ok(()) });
    let sessions = Sessions::new(Arc::default(), idle_bot, SlotPool::new(8), shutdown);
    let waiting = WaitingRegistry::default();
    let rules = ConnectionRules {
        origins: AllowedOrigins::new(allowed_origins),
        needs_token,
        tokens: Arc::new(Mutex::new(SocketTokens::new(random(), tasks::now()))),
        log_limit: Arc::default(),
    };
    let metrics = Arc::new(MoqMetrics::default());
    let arrivals = Arrivals::new(sessions, waiting.clone(), rules.clone(), metrics.clone());
    let readers = [
        tokio::spawn(server.clone().run(arrivals.clone())),
        tokio::spawn(client.clone().run(Arc::new(NoArrivals))),
    ];
    Rig {
        server,
        client,
        roots,
        waiting,
        rules,
        metrics,
        arrivals,
        stop,
        readers,
    }
}

/// A caller that announces one broadcast.
struct Caller {
    link: MoqLink,
    inbox: ConnectionInbox,
    peer: MoqPeer,
    buffer: Vec<u8>,
}

impl Rig {
    fn caller(&self, path: &str, broadcast: Option<&str>) -> Caller {
        let target = LinkTarget {
            authority: "localhost:4080".into(),
            path: path.into(),
        };
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let tls = tokio_rustls::rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("ring has TLS 1.3")
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        let config = client_config(tls).expect("it has TLS 1.3");
        let remote = SocketAddr::from(([127, 0, 0, 1], self.server.number()));
        let now = tasks::now();
        let (connection, inbox) = self
            .client
            .connect(config, remote, "localhost", now)
            .expect("a usable address");
        let mut link = MoqLink::client(connection, target, now);
        let mut peer = MoqPeer::new(7);
        if let Some(broadcast) = broadcast {
            peer.publish(broadcast, &mut link);
        }
        Caller {
            link,
            inbox,
            peer,
            buffer: Vec::new(),
        }
    }

    fn wait_for(&self, path: &str, id: &str) -> (WaitingEntry, oneshot::Receiver<ArrivedConnection>) {
        let (arrived, arriving) = oneshot::channel();
        let session_id = id.into();
        (
            self.waiting.register(path, WaitingSession { session_id, arrived }),
            arriving,
        )
    }

    fn token(&self, id: &str) -> String {
        lock(&self.rules.tokens).mint(SocketKind::Moq, id, Issuer::Anyone, tasks::request_time())
    }

    /// Returns the metrics line of an outcome.
    fn count(&self, outcome: &str) -> String {
        let mut text = MetricsText::default();
        self.metrics.render(&mut text, 0, 0);
        let text = text.into_string();
        let name = format!("edge_runner_moq_connection_attempts_total{{outcome=\"{outcome}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name));
        line.expect("a line per outcome").to_owned()
    }
}

impl Caller {
    fn flush(&mut self, now: std::time::Instant) {
        while let Some(event) = self.link.poll_endpoint_event() {
            if let Some(event) = self.inbox.handle_endpoint_event(event) {
                self.link.handle_connection_event(event, now);
            }
        }
        while let Some(transmit) = self.link.poll_transmit(now, &mut self.buffer) {
            let transmit: Transmit = transmit;
            self.inbox.port().send(&transmit, &self.buffer);
        }
    }

    /// Runs until the link is closed.
    async fn closed(&mut self) -> LinkClosed {
        let closed = self.run_until(|event| matches!(event, LinkEvent::Closed(_))).await;
        let LinkEvent::Closed(why) = closed else {
            unreachable!("no other event fits");
        };
        why
    }

    /// Runs until the session is up and the broadcast announced.
    async fn connected(&mut self) {
        self.run_until(|event| *event == LinkEvent::Connected).await;
    }

    /// Runs until there is a certain event of the link, which the peer has handled.
    async fn run_until(&mut self, fits: impl Fn(&LinkEvent) -> bool) -> LinkEvent {
        let run = async {
            loop {
                let now = tasks::now();
                while let Some(event) = self.link.poll_event() {
                    let is_wanted = fits(&event);
                    self.peer.handle_event(event.clone(), &mut self.link);
                    if is_wanted {
                        self.flush(now);
                        return event;
                    }
                    assert!(!matches!(event, LinkEvent::Closed(_)), "{event:?}");
                }
                while self.peer.poll_event(&mut self.link).is_some() {}
                self.flush(now);
                let due = self.link.poll_timeout();
                tokio::select! {
                    received = self.inbox.recv() => self.link.handle_connection_event(received.event, tasks::now()),
                    () = async {
                        match due {
                            Some(due) => sleep_until(due.into()).await,
                            None => pending().await,
                        }
                    } => self.link.handle_timeout(tasks::now()),
                }
            }
        };
        tokio::time::timeout(GUARD, run).await.expect("the event in time")
    }

    /// Runs until a session takes the connection.
    async fn arrives(&mut self, arriving: oneshot::Receiver<ArrivedConnection>) -> ArrivedConnection {
        tokio::select! {
            why = self.closed() => panic!("closed: {why:?}"),
            arrived = arriving => arrived.expect("the registry keeps the sender"),
        }
    }
}

/// Two callers reach the sessions of their namespaces, in any order.
#[tokio::test]
async fn an_announcement_finds_its_session() {
    let rig = rig(false, &[]);
    let (_first, for_a) = rig.wait_for("a/request", "a");
    let (_second, for_b) = rig.wait_for("b/request", "b");
    let (mut b, mut a) = (
        rig.caller("/moq", Some("b/request")),
        rig.caller("/moq", Some("a/request")),
    );
    let b = b.arrives(for_b).await;
    let a = a.arrives(for_a).await;
    assert_ne!(a.arrival.link.remote_address(), SocketAddr::from(([0, 0, 0, 0], 0)));
    assert!(rig.waiting.lock().is_empty());
    assert_eq!(rig.count("accepted"), "2");
    drop((a, b));
    assert_eq!(rig.server.connections(), 0);
    assert_eq!(rig.arrivals.unbound(), 0);
}

/// A program may connect before `/start` has registered its session. Other sessions do not get it.
#[tokio::test]
async fn an_announcement_waits_for_its_session() {
    let rig = rig(false, &[]);
    let (_other, mut for_other) = rig.wait_for("other/request", "other");
    let mut caller = rig.caller("/moq", Some("a/request"));
    caller.connected().await;
    let (_third, mut for_third) = rig.wait_for("third/request", "third");
    let (_entry, for_a) = rig.wait_for("a/request", "a");
    let _a = caller.arrives(for_a).await;
    assert!(for_other.try_recv().is_err() && for_third.try_recv().is_err());
    assert_eq!(rig.count("accepted"), "1");
}

#[tokio::test]
async fn other_paths_and_origins_are_rejected() {
    let open = rig(false, &[]);
    let closed = open.caller("/other", Some("a/request")).closed().await;
    assert_eq!(closed, LinkClosed::Rejected(404));
    assert_eq!(open.count("path"), "1");
    // The client is no browser, so it has no origin.
    let listed = rig(false, &["https://a.example".to_owned()]);
    let closed = listed.caller("/moq", Some("a/request")).closed().await;
    assert_eq!(closed, LinkClosed::Rejected(403));
    assert_eq!(listed.count("origin"), "1");
}

/// A token opens one connection, to the session for which it was made.
#[tokio::test]
async fn a_token_reaches_its_session_once() {
    let rig = rig(true, &[]);
    let (_first, for_a) = rig.wait_for("x/request", "a");
    let (_second, for_b) = rig.wait_for("x/request", "b");
    assert_eq!(
        rig.caller("/moq", Some("x/request")).closed().await,
        LinkClosed::Rejected(401)
    );
    assert_eq!(
        rig.caller("/moq/forged", Some("x/request")).closed().await,
        LinkClosed::Rejected(401)
    );
    let token = rig.token("b");
    let mut caller = rig.caller(&format!("/moq/{token}"), Some("x/request"));
    let _b = caller.arrives(for_b).await;
    let again = rig
        .caller(&format!("/moq?token={token}"), Some("x/request"))
        .closed()
        .await;
    assert_eq!(again, LinkClosed::Rejected(401));
    assert_eq!(rig.count("token"), "3");
    let query = format!("/moq?token={}", rig.token("a"));
    let _a = rig.caller(&query, Some("x/request")).arrives(for_a).await;
}

/// A caller that does not trust the certificate is named as such.
#[tokio::test]
async fn distrust_is_an_error_of_its_own() {
    let mut rig = rig(false, &[]);
    rig.roots = RootCertStore::empty();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a valid name");
    rig.roots.add(other.cert.der().clone()).expect("a certificate");
    let mut caller = rig.caller("/moq", None);
    assert!(matches!(caller.closed().await, LinkClosed::Failed(_)));
    let counted = async {
        while rig.count("certificate") != "1" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(GUARD, counted).await.expect("a counted failure");
}

/// At shutdown, connections without a session are closed.
#[tokio::test]
async fn shutdown_closes_unbound_connections() {
    let rig = rig(false, &[]);
    let mut caller = rig.caller("/moq", None);
    let stopping = async {
        while rig.arrivals.unbound() == 0 {
            tokio::task::yield_now().await;
        }
        rig.stop.set();
    };
    let (closed, ()) = tokio::join!(caller.closed(), stopping);
    assert!(!matches!(closed, LinkClosed::TimedOut), "{closed:?}");
}

/// The log of a session without a caller says what happened to the last connection.
#[tokio::test]
async fn waiting_sessions_learn_why_a_connection_reached_none() {
    let rig = rig(false, &[]);
    let mut failures = rig.waiting.failures();
    assert!(!failures.has_changed().expect("the registry lives"));
    rig.caller("/elsewhere", Some("a/request")).closed().await;
    let changed = tokio::time::timeout(GUARD, failures.changed()).await;
    changed.expect("a reason in time").expect("the registry lives");
    assert_eq!(*failures.borrow_and_update(), ArrivalError::Path.to_string());
}

#[tokio::test]
async fn a_caller_learns_that_its_session_has_just_ended() {
    let rig = rig(false, &[]);
    let (_entry, arriving) = rig.wait_for("a/request", "a");
    drop(arriving);
    let why = rig.caller("/moq", Some("a/request")).closed().await;
    let reason = "the session is over".to_owned();
    assert_eq!(why, LinkClosed::ByPeer { code: 0, reason });
}

/// From the eighth connection without a session on, a source has to prove its address; it has a
/// share of them all, and another source has its own. The metrics count the refused and the asked.
#[tokio::test]
async fn unbound_connections_have_to_prove_their_address_and_are_capped() {
    let rig = rig(false, &[]);
    let from = |host| SocketAddr::from(([192, 0, 2, host], 4_000));
    let admit = |host, is_validated| rig.arrivals.admit(from(host), is_validated);
    let mut held = Vec::new();
    let mut accept = |host, is_validated| match admit(host, is_validated) {
        ConnectionVerdict::Accept(permit) => held.push(permit),
        ConnectionVerdict::Retry => panic!("it was asked for a proof of its address"),
        ConnectionVerdict::Refuse => panic!("it was refused"),
    };
    for _ in 0..MOQ_RETRY_FROM {
        accept(1, false);
    }
    assert!(matches!(admit(1, false), ConnectionVerdict::Retry));
    assert!(matches!(admit(2, false), ConnectionVerdict::Retry), "of any source");
    assert_eq!(
        (rig.count("retried"), rig.count("refused")),
        ("2".to_owned(), "0".to_owned())
    );
    for _ in MOQ_RETRY_FROM..MOQ_UNBOUND_PER_SOURCE {
        accept(1, true);
    }
    assert!(matches!(admit(1, true), ConnectionVerdict::Refuse));
    assert_eq!(
        (rig.count("retried"), rig.count("refused")),
        ("2".to_owned(), "1".to_owned())
    );
    accept(2, true);
}
