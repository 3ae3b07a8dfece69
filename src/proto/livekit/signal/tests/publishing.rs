//! The bot's track.

use super::*;

fn announced() -> AddTrackRequest {
    AddTrackRequest {
        cid: "cid-1".into(),
        name: "bot-audio".into(),
        kind: 0,
        source: 2,
        disable_red: true,
        ..AddTrackRequest::default()
    }
}

fn published(cid: &str, sid: &str) -> ServerMessage {
    ServerMessage::TrackPublished(TrackPublishedResponse {
        cid: cid.into(),
        track: Some(track(sid, TrackType::Audio)),
    })
}

/// Notes 5.1: a microphone without redundancy, named as in `a=msid`.
#[test]
fn reports_the_published_track_once() {
    let mut client = Client::joined_with([]);
    client.signal.add_track("cid-1", "bot-audio");
    assert_eq!(client.outputs(), [sent(SignalRequestKind::AddTrack(announced()))]);
    assert_eq!(client.receive(published("cid-2", "TR_other")), []);
    assert_eq!(client.receive(published("cid-1", "")), []);
    let reported = [SignalOutput::Published { sid: "TR_own".into() }];
    assert_eq!(client.receive(published("cid-1", "TR_own")), reported);
    assert_eq!(client.receive(published("cid-1", "TR_own")), []);
    let nothing = TrackPublishedResponse {
        cid: String::new(),
        track: None,
    };
    assert_eq!(client.receive(ServerMessage::TrackPublished(nothing)), []);
}

/// Notes 4, rule 10: newer servers repeat the request, and may report it as queued.
#[test]
fn reports_a_refused_track_with_its_reason() {
    let response = |reason: i32, message: &str, cid: Option<&str>| {
        ServerMessage::Request(RequestResponse {
            request_id: 0,
            reason,
            message: message.into(),
            add_track: cid.map(|cid| AddTrackRequest {
                cid: cid.into(),
                ..AddTrackRequest::default()
            }),
            update_metadata: None,
        })
    };
    for (reason, message, words) in [
        (1, "", "the server does not find the track"),
        (2, "", "the access token does not allow publishing audio"),
        (
            2,
            "no source",
            "the access token does not allow publishing audio: no source",
        ),
        (3, "", "a limit of the server is reached"),
        (5, "", "the server refuses"),
        (-1, "odd", "the server refuses: odd"),
    ] {
        for cid in [None, Some("cid-1")] {
            let mut client = Client::joined_with([]);
            assert_eq!(client.receive(response(reason, message, cid)), []);
            client.signal.add_track("cid-1", "bot-audio");
            client.outputs();
            assert_eq!(client.receive(response(0, "", cid)), []);
            assert_eq!(client.receive(response(4, "", cid)), []);
            assert_eq!(client.receive(response(reason, message, Some("cid-2"))), []);
            assert_eq!(
                client.receive(response(reason, message, cid)),
                [SignalOutput::PublishRefused(words.into())]
            );
            assert_eq!(client.receive(response(reason, message, cid)), []);
        }
    }
    let mut client = Client::joined_with([]);
    client.signal.add_track("cid-1", "bot-audio");
    client.outputs();
    let outputs = client.receive(response(2, &"ä".repeat(100_000), None));
    assert!(matches!(&outputs[..], [SignalOutput::PublishRefused(words)] if words.chars().count() < 300));
}

#[test]
fn reports_an_unpublished_track() {
    let mut client = Client::joined_with([]);
    client.signal.add_track("cid-1", "bot-audio");
    client.outputs();
    client.receive(published("cid-1", "TR_own"));
    let unpublished = |sid: &str| ServerMessage::TrackUnpublished(TrackUnpublishedResponse { track_sid: sid.into() });
    assert_eq!(client.receive(unpublished("TR_other")), []);
    let outputs = client.receive(unpublished("TR_own"));
    assert!(matches!(outputs[..], [SignalOutput::PublishRefused(_)]));
    assert_eq!(client.receive(unpublished("TR_own")), []);
}

// ---- participants
