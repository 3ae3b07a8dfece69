//! Requests and reasons. Whole connections are tested over loopback in `io::moq::arrivals`.

use super::*;
use crate::moq::link::MOQ_PROTOCOL;

fn request(path: &str) -> LinkRequest {
    LinkRequest {
        authority: "localhost:4080".into(),
        path: path.into(),
        origin: Some("https://a.example".into()),
        protocols: vec!["moq-lite-05".into(), MOQ_PROTOCOL.into()],
    }
}

#[test]
fn the_token_is_in_the_path_or_the_query() {
    for (path, token) in [
        ("/moq", None),
        ("/moq/", None),
        ("/moq/a.b", Some("a.b")),
        ("/moq?token=a.b", Some("a.b")),
        ("/moq/?x=1&token=a%2Eb", Some("a.b")),
        ("/moq/c?token=d", Some("c")),
        ("/moq?token=", None),
    ] {
        let read = ArrivalRequest::read(&request(path)).expect(path);
        assert_eq!(read.token.as_deref(), token, "{path}");
        assert_eq!(read.origin.as_deref(), Some("https://a.example"));
    }
    for path in ["", "/", "/moqx", "/other", "moq", "/MOQ"] {
        assert_eq!(ArrivalRequest::read(&request(path)), Err(ArrivalError::Path), "{path}");
    }
    let other_versions = LinkRequest {
        protocols: vec!["moq-lite-03".into()],
        ..request("/moq")
    };
    assert_eq!(ArrivalRequest::read(&other_versions), Err(ArrivalError::Version));
}

#[test]
fn alerts_about_the_certificate_have_their_own_error() {
    let closed = |why: &str| ArrivalError::of(LinkClosed::Failed(why.to_owned()));
    for alert in [42, 45, 46, 48, 51] {
        let why = format!("aborted by peer: the cryptographic handshake failed: error {alert}: bad");
        assert_eq!(closed(&why), ArrivalError::Certificate, "{alert}");
    }
    let other = "aborted by peer: the cryptographic handshake failed: error 120";
    assert_eq!(closed(other), ArrivalError::Handshake(other.into()));
}

/// Each reason has a label of the list, and a text of one printable line.
#[test]
fn each_reason_has_a_label_and_a_text() {
    let all = [
        ArrivalError::Certificate,
        ArrivalError::Handshake("x".into()),
        ArrivalError::Silent,
        ArrivalError::Path,
        ArrivalError::Origin,
        ArrivalError::TokenMissing,
        ArrivalError::Token(TokenError::Used),
        ArrivalError::Version,
        ArrivalError::Unannounced,
        ArrivalError::Unclaimed("a\nb\u{202e}".repeat(1_000)),
        ArrivalError::Violation("x".into()),
        ArrivalError::Left,
        ArrivalError::Evicted,
        ArrivalError::Stopping,
    ];
    for why in &all {
        assert!(ArrivalError::LABELS.contains(&why.label()), "{why:?}");
        let text = why.to_string();
        assert!(text.len() < 300 && text.is_ascii() && !text.contains('\n'), "{text}");
    }
    for label in ArrivalError::LABELS {
        assert!(all.iter().any(|why| why.label() == label), "{label}");
    }
}
