//! Canaries of Media over QUIC: one-time tokens, the token of a relay in its URL, and namespaces.

use serde_json::json;

use super::Watched;

/// The token of a relay.
const JWT: &str = "canary-token-of-a-relay-5e7a";

/// The runner serves, and requires the token that ends its URL.
#[test]
fn no_canary_leaks_from_the_port_of_quic() {
    let options = ["-t", "moq", "--moq-bind", "127.0.0.1:0", "--ws-auth", "token", "-vvv"];
    let mut watched = Watched::start(&options, &[], None);
    let mut namespaces = Vec::new();
    for _ in 0..2 {
        let reply = watched.ask_well("POST", "/start", &json!({"body": {"note": "x"}}));
        let moq = reply.json()["moq"].take();
        let url = moq["relayUrl"].as_str().expect("a URL").to_owned();
        let (_, token) = url.rsplit_once("/moq/").expect("it ends with a token");
        watched.secrets.extend(token.split('.').map(str::to_owned));
        namespaces.push(moq["namespace"].as_str().expect("a name").to_owned());
    }
    // A client that knows a namespace may join in it.
    for line in watched
        .runner
        .log()
        .lines()
        .filter(|line| !line.contains(" DEBUG ") && !line.contains(" TRACE "))
    {
        assert!(!namespaces.iter().any(|namespace| line.contains(namespace)), "{line}");
    }
    watched.end(&["session"]);
}

/// The runner dials a relay that does not answer.
#[test]
fn no_canary_leaks_from_the_url_of_a_relay() {
    let url = format!("https://127.0.0.1:9/anon?jwt={JWT}");
    let options = ["-t", "moq", "--moq-connect", &url, "-vvv"];
    let mut watched = Watched::start(&options, &[], None);
    watched.secrets.push(JWT.to_owned());
    let reply = watched.ask("POST", "/start", &[], "{}", &[]);
    assert_eq!(reply.status, 504);
    watched.end(&["127.0.0.1:9"]);
}
