//! Canaries: every credential, phone number and sentence is a unique word, and none appears where
//! it does not belong. Credentials, and what peers present as such, appear in no log line of any
//! level and in no answer but the one that hands them out. Numbers, speech and texts appear in no
//! line from INFO up.
//!
//! Runs the real binary with credentials from every source, and sends valid and invalid requests on
//! every route and transport.

mod assistant;
mod cascade;
mod misuse;
mod moq;
mod tls;
mod videoroom;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::thread;

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha1::Sha1;

use crate::support::client::Client;
use crate::support::device::{Device, Options};
use crate::support::http::{self, Reply};
use crate::support::provider::{ALL, Caller, FROM, TO};
use crate::support::rest::Rest;
use crate::support::runner::TestRunner;
use crate::support::socket::{ConnectOptions, Socket};
use crate::support::sound::Speech;

// The runner's credentials.
const ACCOUNT: &str = "ACcanary00account00of00telco00a0";
const A_TOKEN: &str = "canary-token-of-telco-a-9f3b";
const B_KEY: &str = "canary-key-of-telco-b-8e2a";
const AUTH_ID: &str = "MACANARYAUTHIDOFTELC";
const C_TOKEN: &str = "canary-token-of-telco-c-7d19";
const VIDEOROOM_KEY: &str = "canary-key-of-videoroom-6c08";
const DIALIN_HMAC: &str = "Y2FuYXJ5LWhtYWMtb2YtdmlkZW9yb29t";
const MEDIAROOM_KEY: &str = "canary-key-of-mediaroom-5bf7";
const MEDIAROOM_SECRET: &str = "canary-secret-of-mediaroom-4ae6";
const API_KEY: &str = "canary-key-of-this-runner-39d5";
const TURN_USER: &str = "canary-user-of-turn-28c4";
const TURN_CREDENTIAL: &str = "canary-credential-of-turn-17b3";
/// In a malformed line of `.env`.
const TORN: &str = "canary-of-a-torn-line-06a2";
/// An argument of a program bot.
const ARGUMENT: &str = "canary-argument-of-the-bot-f591";

// What peers present or send.
const WRONG_KEY: &str = "canary-key-of-an-outsider-e480";
const WRONG_TOKEN: &str = "canary-token-of-an-outsider-d37f";
const COOKIE: &str = "canary-cookie-of-another-page-c26e";
const BODY_KEY: &str = "canary-key-in-a-body-b15d";
const SIGNATURE: &str = "canary+signature+of+a+webhook+a04c=";
const ICE_PWD: &str = "canaryPasswordOfIce9f3b";

// What people say and write.
const SAID: &str = "canary sentence about my secret illness";

const ENV_FILE: &str = "\
export TELCO_B_API_KEY=canary-key-of-telco-b-8e2a
PLIVO_AUTH_ID='MACANARYAUTHIDOFTELC'
TELCO_C_AUTH_TOKEN = canary-token-of-telco-c-7d19 # mine
DAILY_API_KEY=canary-key-of-videoroom-6c08
PINLESS_HMAC_SECRET=Y2FuYXJ5LWhtYWMtb2YtdmlkZW9yb29t
MEDIAROOM_URL=wss://rooms.example.net
MEDIAROOM_API_KEY=canary-key-of-mediaroom-5bf7
LIVEKIT_API_SECRET=\"canary-secret-of-mediaroom-4ae6\"
canary-of-a-torn-line-06a2
";

/// What `/start` hands out to authorized clients.
const ICE: [&str; 2] = [TURN_USER, TURN_CREDENTIAL];
const JSON: &str = "Content-Type: application/json";
const PROXY: &str = "bots.example.net";

/// Everything that no output may contain.
fn secrets() -> Vec<String> {
    let plain = [
        ACCOUNT,
        A_TOKEN,
        B_KEY,
        AUTH_ID,
        C_TOKEN,
        VIDEOROOM_KEY,
        DIALIN_HMAC,
        MEDIAROOM_KEY,
        MEDIAROOM_SECRET,
        API_KEY,
        TURN_USER,
        TURN_CREDENTIAL,
        TORN,
        ARGUMENT,
        WRONG_KEY,
        WRONG_TOKEN,
        COOKIE,
        BODY_KEY,
        SIGNATURE,
        ICE_PWD,
    ];
    // The encoded form on the wire must not appear either.
    let pairs = [(ACCOUNT, A_TOKEN), (AUTH_ID, C_TOKEN), (TURN_USER, TURN_CREDENTIAL)];
    let encoded = pairs.map(|(name, token)| BASE64.encode(format!("{name}:{token}").as_bytes()));
    plain.map(str::to_owned).into_iter().chain(encoded).collect()
}

/// One runner and its secrets.
struct Watched {
    runner: TestRunner,
    secrets: Vec<String>,
    /// The key for `/start` and `/api/offer`; `None` if the runner requires none.
    key: Option<&'static str>,
}

impl Watched {
    /// Starts a runner with credentials in `.env`, in variables and in files, and with these
    /// options and variables.
    fn start(options: &[&str], variables: &[(&str, &str)], key: Option<&'static str>) -> Self {
        let turn = format!("turn:127.0.0.1:{}", turn_that_refuses());
        let ice = json!({"urls": [turn, "turn:127.0.0.1:9?transport=tcp", "stun:127.0.0.1:9"], "username": TURN_USER,
            "credential": TURN_CREDENTIAL});
        let ice = ice.to_string();
        let own = [
            ("TELCO_A_ACCOUNT_SID", ACCOUNT),
            ("TWILIO_AUTH_TOKEN", A_TOKEN),
            ("RUNNER_ICE_SERVERS", &ice),
        ];
        let files = [(".env", ENV_FILE), ("key", API_KEY)];
        Self {
            runner: TestRunner::start_among(&files, options, &[&own, variables].concat()),
            secrets: secrets(),
            key,
        }
    }

    fn addr(&self) -> SocketAddr {
        self.runner.addr
    }

    /// Sends a request with all usual headers, and checks the answer. The answer may contain
    /// `handed_out`.
    fn ask(&self, method: &str, target: &str, more: &[&str], body: &str, handed_out: &[&str]) -> Reply {
        let cookie = format!("Cookie: session={COOKIE}; {COOKIE}=1");
        let headers = [&[JSON, &cookie], more].concat();
        let reply = http::request(self.addr(), method, target, &headers, body.as_bytes()).expect("an answer");
        let text = format!("{:?}\n{}", reply.headers, reply.text());
        for secret in self
            .secrets
            .iter()
            .filter(|secret| !handed_out.contains(&secret.as_str()))
        {
            assert!(
                !text.contains(secret),
                "{secret} is in the answer to {method} {target}: {text}"
            );
        }
        reply
    }

    /// The same with the key, if one is required.
    fn ask_well(&self, method: &str, target: &str, body: &Value) -> Reply {
        let authorization = self.key.map(|key| format!("Authorization: Bearer {key}"));
        let more: Vec<&str> = authorization.iter().map(String::as_str).collect();
        self.ask(method, target, &more, &body.to_string(), &ICE)
    }

    /// Requests a socket token, which is a secret from then on.
    fn token(&mut self, transport: &str) -> Option<String> {
        let reply = self.ask_well(
            "POST",
            "/start",
            &json!({"transport": transport, "body": {"note": SAID, "who": FROM}}),
        );
        let token = reply.json()["token"].as_str().map(str::to_owned)?;
        self.secrets.extend(token.split('.').map(str::to_owned));
        Some(token)
    }

    /// Stops the runner and checks its output.
    fn end(mut self, at_least: &[&str]) {
        self.runner.signal("TERM");
        let status = self.runner.wait();
        let (said, log) = self.runner.last_words();
        assert_eq!(status.code(), Some(0), "{log}");
        for words in at_least {
            assert!(
                log.contains(words),
                "`{words}` was not logged, so this proves little: {log}"
            );
        }
        assert_silent(&format!("{said}\n{log}"), &self.secrets);
        let digits = [FROM, TO].map(|number| number.trim_start_matches("+1").to_owned());
        let private = digits.iter().map(String::as_str).chain([SAID]);
        for word in private {
            assert!(!said.contains(word), "{word} was printed: {said}");
            let reported = |line: &&str| line.contains(word) && !line.contains(" DEBUG ") && !line.contains(" TRACE ");
            assert_eq!(log.lines().find(reported), None, "{word} was logged");
        }
    }
}

/// Fails if the text contains a secret, and shows the line.
fn assert_silent(text: &str, secrets: &[String]) {
    for secret in secrets {
        let found = text.lines().find(|line| line.contains(secret.as_str()));
        assert_eq!(found, None, "{secret} came out");
    }
}

/// Unauthorized and malformed requests, with keys and tokens in every possible place.
fn ask_badly(watched: &Watched) {
    let bearer = format!("Authorization: Bearer {WRONG_KEY}");
    let basic = format!(
        "Authorization: Basic {}",
        BASE64.encode(format!("{TURN_USER}:{TURN_CREDENTIAL}").as_bytes())
    );
    let bare = format!("Authorization: {WRONG_KEY}");
    let named = format!("X-Api-Key: {WRONG_KEY}");
    let headers = [&bearer, &basic, &bare, &named].map(String::as_str);
    let bodies = [
        json!({"transport": 7, "api_key": BODY_KEY}).to_string(),
        json!({"transport": "none", "token": BODY_KEY}).to_string(),
        json!({"body": {"headers": {"Authorization": format!("Bearer {BODY_KEY}")}}, "transport": []}).to_string(),
        json!({"sdp": 1, "type": "offer", "requestData": {"password": BODY_KEY}}).to_string(),
        json!({"sdp": format!("v=0\r\na=ice-pwd:{ICE_PWD}\r\n"), "type": "offer"}).to_string(),
        json!({"sdp": format!("v=0\r\na=ice-pwd:{ICE_PWD}\r\n"), "type": 1}).to_string(),
        json!({"pc_id": "none", "candidates": [{"candidate": format!("candidate:1 1 udp 1 {ICE_PWD} 1 typ host")}]})
            .to_string(),
        format!("api_key={BODY_KEY}&From={FROM}"),
        format!("{{\"apiKey\": \"{BODY_KEY}\", broken"),
        format!("[\"Bearer {BODY_KEY}\"]"),
    ];
    let token = format!("/ws/{WRONG_TOKEN}");
    let targets = [
        "/start",
        "/api/offer",
        "/sessions/none/api/offer",
        "/",
        "/status",
        "/metrics",
        "/client/",
        "/videoroom",
        "/daily-dialin-webhook",
        token.as_str(),
        "/%77s/canary-token-of-an-outsider-d37f",
        "/ws-client?token=canary-token-of-an-outsider-d37f",
        "/ws/canary-token-of-an-outsider-d37f/more",
        "/ws-client//canary-token-of-an-outsider-d37f",
    ];
    for (n, target) in targets.iter().enumerate() {
        for (m, header) in headers.iter().enumerate() {
            for method in ["GET", "POST", "PATCH", "OPTIONS"] {
                // Every body is sent to every target, with one of the headers.
                let body = &bodies[(n + m + method.len()) % bodies.len()];
                watched.ask(method, target, &[header], body, &[]);
            }
        }
    }
    for body in &bodies {
        let authorization = watched.key.map(|key| format!("Authorization: Bearer {key}"));
        let more: Vec<&str> = authorization.iter().map(String::as_str).collect();
        for (method, target) in [("POST", "/start"), ("POST", "/api/offer"), ("PATCH", "/api/offer")] {
            // Some of them are valid starts.
            let handed_out: &[&str] = if target == "/start" { &ICE } else { &[] };
            watched.ask(method, target, &more, body, handed_out);
        }
    }
}

/// A browser's offers: answered, restarted and trickled, but never connected.
fn offer(watched: &Watched) {
    let sdp = include_str!("data/sdp/chrome.offer.sdp").replace("u8Vq3LpXwN0ycR7mGd2hJf4B", ICE_PWD);
    let reply = watched.ask_well(
        "POST",
        "/api/offer",
        &json!({"sdp": sdp, "type": "offer", "requestData": {"note": SAID}}),
    );
    assert_eq!(reply.status, 200, "{}", reply.text());
    let candidate = json!({"candidate": "candidate:1 1 udp 2122129151 192.0.2.21 54400 typ host", "sdp_mid": "0", "sdp_mline_index": 0});
    let patch = json!({"pc_id": reply.json()["pc_id"], "candidates": [candidate]});
    watched.ask_well("PATCH", "/api/offer", &patch);
}

/// A provider's webhooks: unsigned, and signed wrongly and correctly.
fn webhooks(watched: &Watched) {
    let body = format!(
        "CallSid=CA1&From={}&To={}&SpeechResult={}",
        "%2B15550001111",
        "%2B15550002222",
        SAID.replace(' ', "%20")
    );
    let form = "Content-Type: application/x-www-form-urlencoded";
    let wrong = format!("X-Twilio-Signature: {SIGNATURE}");
    let right = format!("X-Twilio-Signature: {}", signed(&body));
    for signature in [None, Some(&wrong), Some(&right)] {
        let headers: Vec<&str> = [form].into_iter().chain(signature.map(String::as_str)).collect();
        let reply = http::request(watched.addr(), "POST", "/", &headers, body.as_bytes()).expect("an answer");
        let text = reply.text();
        assert!(watched.secrets.iter().all(|secret| !text.contains(secret)), "{text}");
        assert_eq!(reply.status == 200, signature == Some(&right), "{text}");
    }
}

/// Signs a body as Twilio does: the URL, followed by every parameter in order, with the account's
/// token.
fn signed(body: &str) -> String {
    let mut text = format!("https://{PROXY}/");
    let mut pairs: Vec<(&str, String)> = body
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name, value.replace("%2B", "+").replace("%20", " ")))
        .collect();
    pairs.sort();
    for (name, value) in pairs {
        text += name;
        text += &value;
    }
    let mac = Hmac::<Sha1>::new_from_slice(A_TOKEN.as_bytes()).expect("a key of any length");
    BASE64.encode(&mac.chain_update(text).finalize().into_bytes())
}

/// A call of every provider, ended by the runner, which hangs up; and rejected sockets.
fn calls(watched: &mut Watched) {
    for provider in ALL {
        let token = watched.token(provider.transport());
        let target = token
            .as_ref()
            .map_or("/ws".to_owned(), |token| format!("/ws?token={token}"));
        let mut caller = Caller::connect(watched.addr(), &target, provider, provider.lines()[0]);
        caller.others = Some(Vec::new());
        caller.greet();
        caller.start();
        caller.send(
            &json!({"event": "error", "payload": {"code": 1, "title": FROM, "detail": format!("{FROM} {SAID}")}}),
        );
        caller.press("5");
        caller.say(&vec![0; caller.line.rate_hz as usize / 5]);
        caller.send(&json!({"event": SAID, "from": FROM, "token": BODY_KEY}));
        caller.send_garbage();
        caller.end();
        if let Some(token) = token {
            refused(watched, &format!("/ws/{token}"), &[]);
        }
    }
    refused(watched, "/ws/canary-token-of-an-outsider-d37f", &[]);
    refused(watched, "/ws", &[("authorization", WRONG_TOKEN)]);
    // An unknown provider, and an invalid start.
    for text in [
        BODY_KEY.to_owned(),
        json!({"event": "start", "start": {"callSid": {"token": BODY_KEY, "from": FROM}}}).to_string(),
    ] {
        if let Ok(mut socket) = Socket::try_connect(watched.addr(), "/ws", ConnectOptions::default()) {
            for _ in 0..6 {
                socket.text(text.clone());
            }
            let close = socket.end();
            assert!(!format!("{close:?}").contains(BODY_KEY), "{close:?}");
        }
    }
}

/// Opens a socket without a valid token, if the runner requires tokens.
fn refused(watched: &Watched, target: &str, headers: &[(&'static str, &str)]) {
    if let Err(refused) = Socket::try_connect(
        watched.addr(),
        target,
        ConnectOptions {
            headers,
            ..ConnectOptions::default()
        },
    ) {
        let text = format!("{refused:?}");
        assert!(watched.secrets.iter().all(|secret| !text.contains(secret)), "{text}");
    }
}

/// A plain client that writes text and an invalid message, and is closed.
fn writes(watched: &mut Watched) {
    let token = watched.token("websocket");
    let target = token.map_or("/ws-client".to_owned(), |token| format!("/ws-client/{token}"));
    let mut client = Client::connect(watched.addr(), &target);
    for kind in [
        "client-ready",
        "send-text",
        "append-to-context",
        "client-message",
        "raw-audio",
        SAID,
    ] {
        client.tell(
            kind,
            SAID,
            &json!({"content": SAID, "t": SAID, "d": {"text": SAID}, "version": SAID, "about": SAID}),
        );
        client.tell(kind, "2", &json!(SAID));
        client
            .socket
            .message(&json!({"label": SAID, "type": kind, "data": SAID}).to_string());
    }
    client.socket.message(SAID);
    client.say(&vec![0; 3_200], 16_000);
    client.socket.text(SAID);
    client.hear_until("the end", |client| client.gone);
    assert!(!format!("{:?}", client.close).contains(SAID), "{:?}", client.close);
}

/// A TURN server that challenges every request and accepts none; returns its port.
fn turn_that_refuses() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let port = socket.local_addr().expect("it is bound").port();
    // The thread ends with the test process.
    thread::spawn(move || {
        let mut datagram = [0; 1_500];
        while let Ok((bytes, from)) = socket.recv_from(&mut datagram) {
            if bytes < 20 {
                continue;
            }
            // ERROR-CODE 401, REALM and NONCE, each padded to four bytes (RFC 8489 section 14).
            let attributes = *b"\x00\x09\x00\x04\x00\x00\x04\x01\x00\x14\x00\x04here\x00\x15\x00\x08nonce123";
            let kind = [datagram[0] | 0x01, datagram[1] | 0x10];
            let length = [0, attributes.len() as u8];
            let answer = [&kind[..], &length, &datagram[4..20], &attributes].concat();
            let _ = socket.send_to(&answer, from);
        }
    });
    port
}

/// Everything that can be requested of any runner.
fn exercise(watched: &mut Watched) {
    ask_badly(watched);
    offer(watched);
    calls(watched);
    writes(watched);
}

/// A server that answers every request with these bytes; returns its URL.
fn answers(bytes: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    // The thread ends with the test process.
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4_096]);
            let _ = stream.write_all(bytes.as_bytes());
        }
    });
    url
}

/// The built-in bot with a key from a file and socket tokens; providers reject requests and repeat
/// their content.
#[test]
fn no_canary_leaks_when_providers_reject_requests() {
    let answer = json!({"code": 20003, "errors": [{"title": B_KEY, "detail": C_TOKEN}],
        "message": format!("no {FROM} for {ACCOUNT} {A_TOKEN} {AUTH_ID} {B_KEY} {C_TOKEN}"), "error": C_TOKEN});
    let api = Rest::start(&[(401, &answer.to_string())]);
    let bases = ["TELCO_A_API_URL", "TELCO_B_API_URL", "TELCO_C_API_URL"];
    let variables = bases.map(|base| (base, api.url()));
    let variables = [0, 1, 2].map(|n| (variables[n].0, variables[n].1.as_str()));
    let options = [
        "--bot",
        "echo",
        "-v",
        "--ws-auth",
        "token",
        "--api-key-file",
        "key",
        "--metrics",
        "any",
    ];
    let mut watched = Watched::start(&options, &variables, Some(API_KEY));
    exercise(&mut watched);
    watched.runner.wait_for_logs("the call was not hung up", 3);
    watched.end(&[" DEBUG ", "session ended: ", ".env line 9", "turn:127.0.0.1"]);
}

/// Every packet is logged, the key is in a variable, and providers fail in every way.
#[test]
fn no_canary_leaks_from_packet_logs() {
    let broken = Rest::start(&[(500, A_TOKEN)]);
    let garbage = answers("canary-key-of-telco-b-8e2a \0\r\n\r\n");
    let early = answers(
        "HTTP/1.1 200 canary-token-of-telco-c-7d19\r\nContent-Length: 900\r\nX: canary-token-of-telco-c-7d19\r\n\r\n{",
    );
    let broken_url = broken.url();
    let variables = [
        ("TELCO_A_API_URL", broken_url.as_str()),
        ("TELCO_B_API_URL", &garbage),
        ("TELCO_C_API_URL", &early),
        ("RUNNER_API_KEY", API_KEY),
    ];
    let watched = Watched::start(
        &["-vv", "--allowed-origins", "https://a.example"],
        &variables,
        Some(API_KEY),
    );
    watched.ask(
        "GET",
        "/status",
        &["Origin: https://canary-key-of-an-outsider-e480.example"],
        "",
        &[],
    );
    watched.end(&[" DEBUG "]);
    let mut watched = Watched::start(&["-vv"], &variables, Some(API_KEY));
    exercise(&mut watched);
    watched.runner.wait_for_logs("the call was not hung up", 2);
    watched.end(&[" str0m::", "session ended: "]);
}

/// Libraries log too, and the webhook is verified.
#[test]
fn no_canary_leaks_from_libraries_and_webhooks() {
    let options = [
        "-t",
        "telephony_a",
        "--proxy",
        PROXY,
        "--ws-auth",
        "token",
        "--api-key",
        API_KEY,
    ];
    let url = answers("HTTP/1.1 204 Gone\r\n\r\n");
    let variables = [
        ("TELCO_A_API_URL", url.as_str()),
        ("TELCO_B_API_URL", &url),
        ("TELCO_C_API_URL", &url),
        ("RUST_LOG", "debug"),
    ];
    let mut watched = Watched::start(&options, &variables, Some(API_KEY));
    webhooks(&watched);
    ask_badly(&watched);
    offer(&watched);
    let _ = watched.token("telephony_a");
    watched.end(&["403 POST /", " DEBUG "]);
}

/// Program bots: one that fails, and one that cannot be started.
#[test]
fn no_canary_leaks_when_bots_fail() {
    for script in ["exit 3", "kill -9 $$", "sleep 60"] {
        let options = ["-vv", "--unverified-calls", "--", "/bin/sh", "-c", script, ARGUMENT];
        let variables = [
            ("TELCO_A_API_URL", "http://127.0.0.1:9"),
            ("TELCO_B_API_URL", "http://127.0.0.1:9"),
        ];
        let mut watched = Watched::start(
            &options,
            &[&variables[..], &[("TELCO_C_API_URL", "http://127.0.0.1:9")]].concat(),
            None,
        );
        offer(&watched);
        for provider in ALL {
            let mut caller = Caller::dial(watched.addr(), provider);
            caller.send_garbage();
            caller.end();
        }
        let _ = watched.token("websocket");
        let client = Client::connect(watched.addr(), "/ws-client");
        client.socket.message(SAID);
        drop(client);
        watched.end(&["session ended: "]);
    }
}

/// A microcontroller sends messages on its channel.
#[test]
fn no_canary_leaks_from_a_device() {
    let options = ["--embedded", "--host", "127.0.0.1", "--bot", "echo"];
    let watched = Watched::start(&options, &[("RUST_LOG", "edge_runner=debug,str0m=debug")], None);
    let mut said = Options::new(Speech::Silence);
    said.credentials.1 = format!("{}{ICE_PWD}", said.credentials.0);
    said.says = vec![
        json!({"label": "rtvi-ai", "type": "send-text", "id": "1", "data": {"content": SAID}}).to_string(),
        json!({"label": "rtvi-ai", "type": SAID, "id": SAID, "data": {"content": SAID}}).to_string(),
        SAID.to_owned(),
    ];
    let mut device = Device::join(watched.addr(), said);
    device.wait("its channel", |report| report.channel_open && report.audio.len() > 5);
    device.vanish();
    watched.end(&["connected", " DEBUG "]);
}
