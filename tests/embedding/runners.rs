//! Tests of runners inside a program, through the public API: several at once, and custom routes.
#![allow(clippy::disallowed_types, reason = "a client has a socket")]

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use edge_runner::bot::{Kind, MissingField};
use edge_runner::config::{ClusterConfig, ClusterKey, Config, Feature, MoqMode, Network, Provider, Secret, Transport};
use edge_runner::http::{Method, Request, Response, StatusCode, header};
use edge_runner::runner::{RunnerErrorKind, Serving};
use edge_runner::{Audio, BotError, Event, Runner, RunnerArguments};
use embedding::bot;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

const GUARD: Duration = Duration::from_secs(60);

/// Starts a runner that serves until the returned sender is dropped.
async fn serve(runner: Runner) -> (Serving, oneshot::Sender<()>) {
    let (stop, stopped) = oneshot::channel();
    let serving = runner.serve(bot, async { drop(stopped.await) }).await;
    (serving.expect("free ports"), stop)
}

/// Sends one request and returns the status and body of its response.
async fn ask(at: &Serving, head: &str, body: &str) -> (u16, String) {
    let address: SocketAddr = at.addresses()[0];
    let mut stream = TcpStream::connect(address).await.expect("the runner listens");
    let length = body.len();
    let request = format!("{head}\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.expect("the runner reads");
    let mut answer = String::new();
    let reading = stream.read_to_string(&mut answer);
    tokio::time::timeout(GUARD, reading)
        .await
        .expect("in time")
        .expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("a status"), body.to_owned())
}

/// Connects a plain client, whose session lasts as long as its stream.
async fn call(at: &Serving, more: &str) -> TcpStream {
    let mut stream = TcpStream::connect(at.addresses()[0]).await.expect("the runner listens");
    let request = format!(
        "GET /ws-client HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("the runner reads");
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.expect("an answer");
    assert_eq!(&status, b"HTTP/1.1 101");
    stream
}

/// `/status`, which the page shows, names the bot of the program and not a built-in one.
#[tokio::test]
async fn a_bot_of_ones_own_is_named_in_the_status() {
    let name = async |runner: Runner| {
        let (serving, stop) = serve(runner).await;
        let (status, body) = ask(&serving, "GET /status HTTP/1.1", "").await;
        drop(stop);
        assert_eq!(status, 200);
        serde_json::from_str::<Value>(&body).expect("JSON")["bot"].clone()
    };
    assert_eq!(name(Runner::builder().port(0).build()).await, "embedding");
    let named = Runner::builder().port(0).bot_name("kitchen");
    assert_eq!(name(named.build()).await, "kitchen");
}

/// Two runners in one process have their own ports, keys, sessions, registrations and metrics, and
/// end separately.
#[tokio::test]
async fn two_runners_share_nothing() -> Result<(), Box<dyn Error>> {
    let environment: Vec<_> = std::env::vars_os().collect();
    let (first, stop_first) = serve(Runner::builder().port(0).api_key("a key").sessions_max(3).build()).await;
    let (second, stop_second) = serve(Runner::builder().port(0).build()).await;
    assert_ne!(first.addresses()[0].port(), second.addresses()[0].port());
    assert_ne!(first.rtc_port(), second.rtc_port());

    let start = json!({"transport": "webrtc"}).to_string();
    assert_eq!(ask(&first, "POST /start HTTP/1.1", &start).await.0, 401);
    let (status, reply) = ask(&first, "POST /start HTTP/1.1\r\nAuthorization: Bearer a key", &start).await;
    assert_eq!(status, 200);
    let id = serde_json::from_str::<Value>(&reply)?["sessionId"]
        .as_str()
        .expect("an id")
        .to_owned();
    let offer = format!("POST /sessions/{id}/api/offer HTTP/1.1");
    assert_eq!(
        ask(&first, &offer, r#"{"sdp": "none"}"#).await.0,
        400,
        "the id is known, and the SDP is not an offer"
    );
    assert_eq!(
        ask(&second, &offer, r#"{"sdp": "none"}"#).await.0,
        404,
        "the id is unknown"
    );

    let client = call(&first, "").await;
    assert_eq!((first.sessions(), second.sessions()), (1, 0));
    let live = |text: &str| text.contains("edge_runner_sessions{transport=\"websocket\"} 1");
    assert_eq!((live(&first.metrics()), live(&second.metrics())), (true, false));
    assert!(live(&ask(&first, "GET /metrics HTTP/1.1", "").await.1));

    drop(stop_first);
    tokio::time::timeout(GUARD, first.ended()).await??;
    drop(client);
    assert_eq!(ask(&second, "GET /status HTTP/1.1", "").await.0, 200, "it still serves");
    drop(stop_second);
    tokio::time::timeout(GUARD, second.ended()).await??;
    assert_eq!(std::env::vars_os().collect::<Vec<_>>(), environment);
    Ok(())
}

/// A bot hangs up: its queued speech is sent, then the session ends, though the bot returns only
/// when it is told so.
#[tokio::test]
async fn a_bot_hangs_up_behind_its_last_speech() -> Result<(), Box<dyn Error>> {
    let bot = async |mut args: RunnerArguments| -> Result<(), BotError> {
        let mut media = args.media(Audio::at(16_000))?;
        while let Some(event) = media.recv().await {
            if let Event::Joined = event {
                media.send_audio(&[1_000; 3_200]).await?;
                media.hang_up("the bot is done");
            }
        }
        Ok(())
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let runner = Runner::builder().port(0).build();
    let serving = runner.serve(bot, async { drop(stopped.await) }).await?;
    let mut client = call(&serving, "").await;
    let mut received = Vec::new();
    tokio::time::timeout(GUARD, client.read_to_end(&mut received)).await??;
    let speech = received.windows(2).filter(|bytes| *bytes == 1_000_i16.to_le_bytes());
    assert!(speech.count() >= 3_200, "{} bytes", received.len());
    drop(stop);
    tokio::time::timeout(GUARD, serving.ended()).await??;
    Ok(())
}

/// A custom route gets the whole request, beside the runner's own routes, after the same checks of
/// host names and origins.
#[tokio::test]
async fn custom_routes_are_served_beside_the_runners_own() {
    let shout = async |request: Request| {
        let is_local = request.extensions().get::<IpAddr>().is_some_and(IpAddr::is_loopback);
        if request.method() != Method::POST || !is_local {
            let mut refused = Response::new("only by POST".into());
            *refused.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            return refused;
        }
        let query = request.uri().query().unwrap_or_default().to_owned();
        let text = String::from_utf8_lossy(request.body()).to_uppercase();
        let mut answer = Response::new(format!("{text}{query}").into());
        let kind = header::HeaderValue::from_static("text/plain");
        answer.headers_mut().insert(header::CONTENT_TYPE, kind);
        answer
    };
    let listed = |config: &mut Config| config.allowed_origins = vec!["https://a.example".into()];
    let runner = Runner::builder()
        .port(0)
        .configure(listed)
        .route("/shout", shout)
        .build();
    let (serving, _stop) = serve(runner).await;
    let origin = "Origin: https://a.example";
    let own = ask(&serving, &format!("POST /shout?!! HTTP/1.1\r\n{origin}"), "hello").await;
    assert_eq!(own, (200, "HELLO!!".to_owned()));
    let refused = ask(&serving, &format!("GET /shout HTTP/1.1\r\n{origin}"), "").await;
    assert_eq!(refused, (405, "only by POST".to_owned()));
    assert_eq!(
        ask(&serving, "POST /shout HTTP/1.1", "hello").await.0,
        403,
        "the request has no origin"
    );
    assert_eq!(
        ask(&serving, &format!("POST /shouts HTTP/1.1\r\n{origin}"), "").await.0,
        404
    );
    assert_eq!(
        ask(&serving, &format!("GET /status HTTP/1.1\r\n{origin}"), "").await.0,
        200
    );
    let long = "x".repeat(300 * 1024);
    assert_eq!(
        ask(&serving, &format!("POST /shout HTTP/1.1\r\n{origin}"), &long)
            .await
            .0,
        413
    );
}

/// Configurations that cannot be served fail before anything listens.
#[tokio::test]
async fn rejects_configurations_that_cannot_be_served() {
    let (taken, _stop) = serve(Runner::builder().port(0).build()).await;
    let port = taken.addresses()[0].port();
    let answer = async |_: Request| Response::default();
    let twice = Runner::builder().port(0).route("/x", answer).route("/x", answer);
    let room = |config: &mut Config| config.direct = true;
    let elsewhere = Runner::builder().host([192, 0, 2, 1].into()).port(0);
    let invalid = RunnerErrorKind::InvalidConfig;
    for (runner, kind, word) in [
        (Runner::builder().port(port), RunnerErrorKind::PortInUse, "in use"),
        (elsewhere, RunnerErrorKind::Unbindable, "192.0.2.1"),
        (Runner::builder().port(0).route("/start", answer), invalid, "/start"),
        (
            Runner::builder().port(0).route("/client/mine", answer),
            invalid,
            "/client/mine",
        ),
        (Runner::builder().port(0).route("none", answer), invalid, "none"),
        (twice, invalid, "/x"),
        (Runner::builder().port(0).configure(room), invalid, "direct"),
    ] {
        let refused = runner.build().serve(bot, std::future::pending()).await;
        let refused = refused.expect_err("it cannot be served");
        assert_eq!(refused.kind(), kind, "{refused}");
        assert!(refused.to_string().contains(word), "{refused}");
    }
}

/// Every type that a field of [`Config`] or a variant of [`Transport`] holds has a name here.
#[test]
fn types_of_the_configuration_can_be_named() {
    let proxies: Vec<Network> = vec!["10.0.0.0/8".parse().expect("a network")];
    let mut config = Config::default();
    config.trusted_proxies = proxies;
    config.cluster = Some(ClusterConfig {
        key: ClusterKey::new(Secret::new("k".repeat(32))),
        key_file: "key".into(),
        replica_name: None,
    });
    fn name(provider: &'static Provider) -> &'static str {
        provider.name
    }
    let twilio = Transport::from_name("telephony_a").expect("a provider");
    let Transport::Telephony(provider) = twilio else {
        panic!("a telephony provider");
    };
    let feature: Feature = twilio.feature();
    assert_eq!((name(provider), feature), ("twilio", Feature::Telephony));
}

/// Live sessions continue during the drain, and no new session starts.
#[tokio::test]
async fn an_embedded_runner_drains() {
    let runner = Runner::builder().port(0).drain(Duration::from_secs(60)).build();
    let (serving, stop) = serve(runner).await;
    let client = call(&serving, "").await;
    drop(stop);
    let draining = async {
        while !ask(&serving, "GET /status HTTP/1.1", "").await.1.contains("draining") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(GUARD, draining).await.expect("it drains");
    assert_eq!(ask(&serving, "POST /start HTTP/1.1", "{}").await.0, 503);
    assert_eq!(serving.sessions(), 1);
    drop(client);
    tokio::time::timeout(GUARD, serving.ended())
        .await
        .expect("in time")
        .expect("without an error");
}

/// `Runner::new` takes a configuration as a value and uses all of it.
#[tokio::test]
#[allow(
    clippy::field_reassign_with_default,
    reason = "the struct is non-exhaustive, so it has no literal"
)]
async fn a_runner_is_created_from_a_configuration() {
    let mut config = Config::default();
    config.port = 0;
    config.rtc_port = Some(0);
    config.transport = Some(Transport::WebSocket);
    config.api_key = Some(edge_runner::config::Secret::new("a secret"));
    let runner = Runner::new(config);
    assert!(!format!("{runner:?}").contains("a secret"));
    let (serving, _stop) = serve(runner).await;
    assert!(format!("{serving:?}").contains("addresses"));
    let (_, status) = ask(&serving, "GET /status HTTP/1.1", "").await;
    assert!(
        status.contains("websocket") && !status.contains("telephony"),
        "{status}"
    );
}

/// A bot over QUIC has the URL and the paths of its session; bots of other kinds have none.
#[tokio::test]
async fn a_bot_over_quic_has_its_url_and_its_namespace() -> Result<(), Box<dyn Error>> {
    let (reported, mut tells) = tokio::sync::mpsc::channel(2);
    let bot = move |args: RunnerArguments| {
        let reported = reported.clone();
        async move {
            let missing = |error: MissingField| error.to_string();
            let common = (
                args.relay_url().map(str::to_owned).map_err(missing),
                args.namespace().map(str::to_owned).map_err(missing),
            );
            let own = match &args.kind {
                Kind::Moq(moq) => format!("{} {} {} {moq:?}", moq.bot_id, moq.client_id, moq.serve),
                other => other.name().to_owned(),
            };
            reported.send((common, own)).await?;
            Ok::<(), BotError>(())
        }
    };
    let serve = |transport: Transport| {
        let runner = Runner::builder().port(0).configure(move |config| {
            config.transport = Some(transport);
            config.moq.client_id = "client0".to_owned();
            if let MoqMode::Serve { bind, .. } = &mut config.moq.mode {
                *bind = SocketAddr::from(([127, 0, 0, 1], 0));
            }
        });
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = runner.build().serve(bot.clone(), async { drop(stopped.await) });
        async { (serving.await.expect("free ports"), stop) }
    };
    let (over_quic, _stop) = serve(Transport::Moq).await;
    let body = json!({"namespace": "rooms/one"}).to_string();
    let (status, reply) = ask(
        &over_quic,
        "POST /start HTTP/1.1\r\nContent-Type: application/json",
        &body,
    )
    .await;
    assert_eq!(status, 200, "{reply}");
    let reply: Value = serde_json::from_str(&reply)?;
    let ((url, namespace), own) = tokio::time::timeout(GUARD, tells.recv()).await?.expect("a bot");
    assert_eq!(url.as_deref(), Ok(reply["moq"]["relayUrl"].as_str().expect("a URL")));
    assert_eq!(namespace.as_deref(), Ok("rooms/one"));
    // Who knows the namespace can join through a relay, so logs do not have it.
    assert_eq!(own, "response client0 true MoqArguments { .. }");

    let (plain, _stop) = serve(Transport::WebSocket).await;
    let _client = call(&plain, "").await;
    let ((url, namespace), own) = tokio::time::timeout(GUARD, tells.recv()).await?.expect("a bot");
    assert_eq!(own, "websocket");
    assert!(url.is_err_and(|words| words.contains("`relay_url`")));
    assert!(namespace.is_err_and(|words| words.contains("`namespace`")));
    Ok(())
}
