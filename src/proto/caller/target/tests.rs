//! URLs with and without a transport, and answers of runners.

use super::*;

fn target(url: &str, transport: Option<&str>) -> Result<CallTarget, String> {
    let transport = transport.map(|name| Transport::from_name(name).expect("a transport"));
    CallTarget::parse(url, transport)
}

fn started_at(base: String, transport: Transport) -> Result<CallTarget, String> {
    Ok(CallTarget::Started { base, transport })
}

#[test]
fn the_path_or_the_option_selects_the_socket() {
    for (url, transport) in [
        ("ws://localhost:7860/ws-client", None),
        ("wss://a.example/ws-client?token=1", None),
        ("ws://localhost/ws-client", Some("websocket")),
        ("ws://localhost/other", Some("websocket")),
    ] {
        assert_eq!(target(url, transport), Ok(CallTarget::Socket { url: url.into() }));
    }
    for url in ["http://localhost:7860", "http://localhost:7860/"] {
        let base = "http://localhost:7860".to_owned();
        assert_eq!(target(url, Some("websocket")), started_at(base, Transport::WebSocket));
    }
}

#[test]
fn an_address_without_a_path_is_called_by_webrtc() {
    for transport in [None, Some("webrtc")] {
        let base = "https://a.example".to_owned();
        assert_eq!(
            target("https://a.example/", transport),
            started_at(base, Transport::WebRtc)
        );
        let url = "http://a/sessions/1/api/offer".to_owned();
        assert_eq!(target(&url, transport), Ok(CallTarget::Offer { url: url.clone() }));
        for url in ["http://a/whip", "http://a/whip/kitchen?token=1"] {
            assert_eq!(target(url, transport), Ok(CallTarget::Whip { url: url.into() }));
        }
    }
}

#[test]
fn a_telephone_calls_as_the_named_provider() {
    let provider = PROVIDERS[2];
    let url = "ws://a/ws/token".to_owned();
    let expected = CallTarget::Telephone {
        url: url.clone(),
        provider,
    };
    assert_eq!(target(&url, Some("plivo")), Ok(expected));
    let base = "http://a".to_owned();
    let expected = started_at(base, Transport::Telephony(provider));
    assert_eq!(target("http://a/", Some("plivo")), expected);
    assert!(target("ws://a/ws", None).is_err_and(|error| error.contains("`-t twilio`")));
    let started = started_telephone("http://a", br#"{"wsUrl":"ws://a/ws","token":"t"}"#);
    assert_eq!(started.as_deref(), Ok("ws://a/ws/t"));
    assert_eq!(default_telephone("https://a"), "wss://a/ws");
}

#[test]
fn an_evaluation_is_on_the_endpoint_of_telephones() {
    let url = |given: &str| CallTarget::eval(given);
    let at = |url: &str| Ok(CallTarget::Eval { url: url.into() });
    assert_eq!(url("https://a:1/"), at("wss://a:1/ws"));
    assert_eq!(url("ws://a/ws?token=1"), at("ws://a/ws?token=1"));
    assert!(url("http://a/whip").is_err() && url("a").is_err());
}

#[test]
fn a_target_says_what_it_does_not_carry() {
    let scenario = |text: &str| Scenario::parse("a.toml", text).expect("a scenario");
    let (texts, sounds) = (
        scenario("[[step]]\n[[step]]\ntext = \"a\""),
        scenario("[[step]]\nexpect-speech = true"),
    );
    let telephone = target("http://a", Some("plivo")).expect("a target");
    let eval = CallTarget::eval("http://a").expect("a target");
    let error = telephone.check_scenario(&texts).expect_err("texts");
    assert!(error.starts_with("a.toml:2: a telephone carries sound"), "{error}");
    assert_eq!(
        (telephone.check_scenario(&sounds), eval.check_scenario(&texts)),
        (Ok(()), Ok(()))
    );
    let error = eval.check_scenario(&sounds).expect_err("sounds");
    assert!(error.starts_with("a.toml:1: an evaluation carries texts"), "{error}");
    let webrtc = target("http://a", None).expect("a target");
    assert_eq!(
        (webrtc.check_scenario(&sounds), webrtc.check_scenario(&texts)),
        (Ok(()), Ok(()))
    );
}

#[test]
fn answers_to_offers_are_read() {
    let base = "http://a:1";
    let of = |response: Value| started_offer(base, response.to_string().as_bytes());
    assert_eq!(
        of(json!({"sessionId": "1-b"})).as_deref(),
        Ok("http://a:1/sessions/1-b/api/offer")
    );
    assert!(of(json!({"sessionId": "../x"})).is_err() && of(json!({})).is_err());
    assert!(started_offer(base, b"hi").expect_err("none").contains("not JSON"));
    assert_eq!(default_offer(base), "http://a:1/api/offer");
    assert_eq!(answer(br#"{"sdp":"v=0","type":"answer"}"#).as_deref(), Ok("v=0"));
    assert!(answer(b"hi").is_err() && answer(b"{}").is_err());
    assert_eq!(offer_body("v=0")["sdp"], "v=0");
}

#[test]
fn the_session_of_whip_is_at_the_same_server() {
    let url = |location: &str| resource_url("http://a:1/whip?token=2", location);
    assert_eq!(url("/whip/s/1").as_deref(), Some("http://a:1/whip/s/1"));
    assert_eq!(url("http://a:1/whip/s/1").as_deref(), Some("http://a:1/whip/s/1"));
    for other in ["http://b/whip", "//b/whip", "http://a:12/x", "whip"] {
        assert_eq!(url(other), None, "{other}");
    }
}

#[test]
fn other_targets_are_refused_in_a_sentence() {
    for (url, transport, words) in [
        ("localhost:7860", None, "is not a URL"),
        ("http://", None, "has no host"),
        ("http://a b", None, "a space"),
        ("ftp://a", None, "`ftp` is not a scheme"),
        ("ws://a/else", None, "does not say how to call"),
        ("http://a/else", None, "does not say how to call"),
        ("ws://a/ws-client", Some("webrtc"), "does not say how to call"),
        ("http://a", Some("videoroom"), "cannot call by `daily`"),
    ] {
        let error = target(url, transport).expect_err(url);
        assert!(error.contains(words), "{url}: {error}");
    }
}

#[test]
fn the_socket_of_start_has_its_token() {
    let base = "https://a.example:1";
    let of = |response: Value| started_socket(base, response.to_string().as_bytes());
    for (response, url) in [
        (json!({"wsUrl": "ws://b/ws-client"}), "ws://b/ws-client"),
        (json!({"wsUrl": "ws://a.example:1/c"}), "wss://a.example:1/c"),
        (json!({"wsUrl": "ws://a.example:12/c"}), "ws://a.example:12/c"),
        (json!({"wsUrl": "ws://b/c", "token": "t"}), "ws://b/c?token=t"),
        (json!({"wsUrl": "ws://b/c?x=1", "token": "t"}), "ws://b/c?x=1&token=t"),
        (json!({"wsUrl": "ws://b/c?token=u", "token": "t"}), "ws://b/c?token=u"),
        (json!({"ws_url": "/c"}), "wss://a.example:1/c"),
    ] {
        assert_eq!(of(response).as_deref(), Ok(url));
    }
    assert!(of(json!({"wsUrl": null})).expect_err("none").contains("no `wsUrl`"));
    assert!(started_socket(base, b"<html>").expect_err("none").contains("not JSON"));
    assert_eq!(default_socket("http://a:7860"), "ws://a:7860/ws-client");
}

#[test]
fn a_room_is_that_of_a_server_or_of_a_runner() {
    let room = |url: &str| target(url, Some("livekit"));
    for url in ["ws://localhost:7880", "wss://a.example/sfu"] {
        let expected = CallTarget::Room {
            url: url.into(),
            transport: Transport::Mediaroom,
        };
        assert_eq!(room(url), Ok(expected));
    }
    let base = "https://a.example".to_owned();
    assert_eq!(room("https://a.example/"), started_at(base, Transport::Mediaroom));
    assert!(room("http://a/whip").is_err_and(|error| error.contains("does not say how to call")));
}

#[test]
fn media_over_quic_is_where_the_runner_says() {
    let base = "http://localhost:7860".to_owned();
    assert_eq!(
        target("http://localhost:7860", Some("moq")),
        started_at(base, Transport::Moq)
    );
    for url in ["https://a:4080/moq", "moq://a", "ws://a"] {
        assert!(
            target(url, Some("moq")).is_err_and(|error| error.contains("address of a runner")),
            "{url}"
        );
    }
}
