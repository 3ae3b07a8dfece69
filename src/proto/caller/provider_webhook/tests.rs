//! Answers of the runner and of others, and what is none.

use serde_json::json;

use super::*;
use crate::telephony::{PROVIDERS, webhook};

/// What the runner answers is read again, for each provider.
#[test]
fn the_answers_of_the_runner_are_read() {
    let url = webhook::socket_url("bots.example.net", Some("t0ken"), Some("sales"));
    let form = b"CallSid=CA1&From=%2B15550001111&To=client%3Aa%26b";
    for provider in PROVIDERS {
        let reply = provider.protocol.reply(&url, form);
        let stream = read(reply.body.as_bytes()).expect("a stream");
        assert_eq!(stream.url, url, "{provider:?}");
        let expected = match provider.name {
            "twilio" => json!({"from_number": "+15550001111", "to_number": "client:a&b"}),
            "plivo" => json!({"from": "15550001111"}),
            _ => json!({}),
        };
        assert_eq!(stream.parameters, expected, "{provider:?}");
    }
}

#[test]
fn other_markup_is_read_and_what_is_none_is_refused() {
    let of = |text: &str| read(text.as_bytes()).map(|stream| stream.url);
    let url = Ok("wss://a/ws?x=1&y=2".to_owned());
    for text in [
        "<Response><Connect><Stream name='n' url = 'wss://a/ws?x=1&amp;y=2'/></Connect></Response>",
        "<Streams/><Stream\n  url=\"wss://a/ws?x=1&amp;y=2\">",
        "<Stream bidirectional=\"true\">\n wss://a/ws?x=1&amp;y=2\n</Stream>",
    ] {
        assert_eq!(of(text), url, "{text}");
    }
    for text in [
        "",
        "<Response><Hangup/></Response>",
        "<Stream url=\"https://a\"/>",
        "<Stream url=\"wss://a b\"/>",
        "<Stream url=\"wss://a",
        "<Stream",
        "{\"url\": 1}",
        "[]",
    ] {
        assert!(
            of(text).is_err_and(|error| error.contains("names no media WebSocket")),
            "{text}"
        );
    }
}

#[test]
fn the_public_host_is_at_the_called_address() {
    let at = |stream: &str| reached(stream, "bots.example.net", "http://127.0.0.1:7860");
    assert_eq!(at("wss://bots.example.net/ws/t"), "ws://127.0.0.1:7860/ws/t");
    assert_eq!(at("wss://bots.example.net:8443/ws"), "wss://bots.example.net:8443/ws");
    assert_eq!(at("wss://other.example/ws"), "wss://other.example/ws");
}
