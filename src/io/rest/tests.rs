//! Hang-ups against fake providers in the same process.

use edge_runner_http::testing::{FakeServer, Script, answer, garbage, get};
use tokio::net::TcpListener;

use super::*;
use crate::config::{Secret, Settings};
use crate::limits::REST_TIMEOUT;
use crate::proto::telephony::{PROVIDERS, Provider, hangup};

static NO_PAUSES: [Duration; 2] = [Duration::ZERO; 2];
const HUNG_UP: &str = "the call was hung up";
const OVER_ALREADY: &str = "the provider knows of no such call, so it is over";

/// Credentials for every provider, all at the fake server.
fn settings(fake: &FakeServer) -> Settings {
    let url = fake.url("");
    Settings::from([
        ("TELCO_A_ACCOUNT_SID", "AC01"),
        ("TELCO_A_AUTH_TOKEN", "a-token"),
        ("TELCO_B_API_KEY", "b-key"),
        ("TELCO_C_AUTH_ID", "MA01"),
        ("TELCO_C_AUTH_TOKEN", "c-token"),
        ("TELCO_A_API_URL", &url),
        ("TELCO_B_API_URL", &url),
        ("TELCO_C_API_URL", &url),
    ])
}

async fn hang_up(fake: &FakeServer, provider: &'static Provider) -> Result<&'static str, String> {
    let request = hangup::request(provider, "v3:id-1", &settings(fake)).expect("credentials");
    try_to_hang_up(provider, &request, &NO_PAUSES).await
}

/// R-033, R-034, R-035, R-038, R-087: the exact request to every provider.
#[tokio::test]
async fn every_provider_gets_its_request() {
    let version = env!("CARGO_PKG_VERSION");
    for (provider, status, line, credential, rest) in [
        (
            PROVIDERS[0],
            "200 OK",
            "POST /2010-04-01/Accounts/AC01/Calls/v3:id-1.json HTTP/1.1",
            "Basic QUMwMTphLXRva2Vu",
            "content-type: application/x-www-form-urlencoded\r\ncontent-length: 16\r\n\r\nStatus=completed",
        ),
        (
            PROVIDERS[1],
            "200 OK",
            "POST /v2/calls/v3:id-1/actions/hangup HTTP/1.1",
            "Bearer b-key",
            "content-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
        ),
        (
            PROVIDERS[2],
            "204 No Content",
            "DELETE /v1/Account/MA01/Call/v3:id-1/ HTTP/1.1",
            "Basic TUEwMTpjLXRva2Vu",
            "\r\n",
        ),
    ] {
        let fake = FakeServer::new(vec![answer(status, "")]).await;
        assert_eq!(hang_up(&fake, provider).await, Ok(HUNG_UP));
        let host = fake.address;
        let wanted = format!(
            "{line}\r\nhost: {host}\r\nuser-agent: edge-runner/{version}\r\naccept: application/json\r\n\
             authorization: {credential}\r\n{rest}"
        );
        assert_eq!(fake.requests(), [wanted]);
    }
}

#[tokio::test]
async fn a_call_that_has_ended_counts_as_hung_up() {
    for (provider, status, body) in [
        (PROVIDERS[0], "404 Not Found", r#"{"code":20404,"status":404}"#),
        (PROVIDERS[0], "400 Bad Request", r#"{"code":21220,"status":400}"#),
        (
            PROVIDERS[1],
            "422 Unprocessable Entity",
            r#"{"errors":[{"code":"90018","title":"Call has already ended"}]}"#,
        ),
        (PROVIDERS[2], "404 Not Found", ""),
    ] {
        let fake = FakeServer::new(vec![answer(status, body)]).await;
        assert_eq!(hang_up(&fake, provider).await, Ok(OVER_ALREADY));
        assert_eq!(fake.requests().len(), 1);
    }
}

#[tokio::test]
async fn server_errors_are_retried_twice() {
    let fake = FakeServer::new(vec![
        answer("500 Internal Server Error", "oops"),
        answer("503 Service Unavailable", ""),
        answer("200 OK", "{}"),
    ])
    .await;
    assert_eq!(hang_up(&fake, PROVIDERS[0]).await, Ok(HUNG_UP));
    let requests = fake.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests.iter().all(|request| *request == requests[0]));

    let fake = FakeServer::new((0..4).map(|_| answer("429 Too Many Requests", "")).collect()).await;
    let why = hang_up(&fake, PROVIDERS[1]).await;
    assert_eq!(why, Err("status 429, too many requests, 3 times".into()));
    assert_eq!(fake.requests().len(), 3);
}

#[tokio::test]
async fn a_rejection_is_final() {
    let body = r#"{"code":20003,"message":"Authenticate"}"#;
    let fake = FakeServer::new(vec![answer("401 Unauthorized", body), answer("200 OK", "")]).await;
    let why = hang_up(&fake, PROVIDERS[0]).await;
    let wanted = "status 401, the provider does not take the credentials, code 20003: Authenticate";
    assert_eq!(why, Err(wanted.into()));
    assert_eq!(fake.requests().len(), 1);

    let redirect = Script::Say(b"HTTP/1.1 307 Elsewhere\r\nlocation: /\r\ncontent-length: 0\r\n\r\n".to_vec());
    let fake = FakeServer::new(vec![redirect, answer("200 OK", "")]).await;
    let why = hang_up(&fake, PROVIDERS[2]).await;
    assert_eq!(why, Err("status 307, a redirect, which is not followed".into()));
    assert_eq!(fake.requests().len(), 1);
}

/// Every transport failure is retried.
#[tokio::test]
async fn transport_failures_are_retried() {
    let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{";
    for broken in [
        &b"hello\r\n\r\n"[..],
        b"",
        b"HTTP/1.1 2",
        b"\x15\x03\x01\x00\x02\x02\x46",
        cut,
    ] {
        let fake = FakeServer::new(vec![garbage(broken), garbage(broken), answer("200 OK", "")]).await;
        assert_eq!(hang_up(&fake, PROVIDERS[0]).await, Ok(HUNG_UP));
        assert_eq!(fake.requests().len(), 3);
    }
    let fake = FakeServer::new(vec![garbage(b""), garbage(b"x"), garbage(cut)]).await;
    let why = hang_up(&fake, PROVIDERS[0]).await.expect_err("three broken answers");
    assert!(why.starts_with("127.0.0.1 sent no valid response: "), "{why}");
}

/// A provider that accepts and stays silent costs three timeouts and the pauses. The clock is
/// paused.
#[tokio::test(start_paused = true)]
async fn silence_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    let start = tokio::time::Instant::now();
    let why = try_to_hang_up(PROVIDERS[0], &get(url), &HANG_UP_PAUSES).await;
    assert_eq!(why, Err("127.0.0.1 did not answer within 10 s, 3 times".into()));
    let pauses: Duration = HANG_UP_PAUSES.iter().sum();
    let spent = start.elapsed();
    // Timers round up to the millisecond.
    assert!(
        spent.abs_diff(REST_TIMEOUT * 3 + pauses) < Duration::from_millis(10),
        "{spent:?}"
    );
}

/// A request that cannot be sent is not retried.
#[tokio::test]
async fn a_request_that_cannot_be_sent_is_final() {
    let mut request = get("http://127.0.0.1:1/".into());
    request.authorization = Some(Secret::new("Bearer two\nlines"));
    let why = try_to_hang_up(PROVIDERS[1], &request, &NO_PAUSES)
        .await
        .expect_err("a line break");
    assert!(why.contains("credential") && !why.contains("two"), "{why}");
}
