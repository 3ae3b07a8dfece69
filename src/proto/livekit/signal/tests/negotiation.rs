//! Offers, answers and candidates of both connections.

use super::*;

/// Notes 4, rule 3: own offers count from 1. An answer to an older offer, or a second answer, is
/// dropped.
#[test]
fn accepts_only_the_answer_to_the_last_offer() {
    let mut client = Client::joined_with([]);
    let described = |kind: &str, id: u32| SessionDescription {
        kind: kind.into(),
        sdp: format!("o={id}"),
        id,
        ..SessionDescription::default()
    };
    assert_eq!(client.receive(answer(0)), []);
    client.signal.offer("o=1".into());
    client.signal.offer("o=2".into());
    assert_eq!(
        client.outputs(),
        [
            sent(SignalRequestKind::Offer(described("offer", 1))),
            sent(SignalRequestKind::Offer(described("offer", 2)))
        ]
    );
    let handed_on = |id: u32| [SignalOutput::Answer { sdp: format!("v={id}") }];
    assert_eq!(client.receive(answer(1)), []);
    assert_eq!(client.receive(answer(3)), []);
    assert_eq!(client.receive(answer(2)), handed_on(2));
    assert_eq!(client.receive(answer(2)), []);
    // An old server sends no id.
    client.signal.offer("o=3".into());
    client.outputs();
    assert_eq!(client.receive(answer(0)), handed_on(0));
}

/// Notes 4, rule 2: every offer of the server is answered by its id.
#[test]
fn answers_every_offer_by_its_id() {
    let mut client = Client::joined_with([]);
    for id in [7, 8, 8, 0] {
        assert_eq!(
            client.receive(offer(id)),
            [SignalOutput::Offer {
                sdp: format!("v={id}"),
                id,
                mid_to_track: [("0".to_owned(), "TR_ann".to_owned())].into(),
            }]
        );
        client.signal.answer("v=0".into(), id);
        let described = SessionDescription {
            kind: "answer".into(),
            sdp: "v=0".into(),
            id,
            ..SessionDescription::default()
        };
        assert_eq!(client.outputs(), [sent(SignalRequestKind::Answer(described))]);
    }
}

// ---- candidates

const HOST: &str = "candidate:1 1 udp 2130706431 192.0.2.1 50000 typ host";
const TCP: &str = "candidate:2 1 tcp 1518280447 192.0.2.1 7881 typ host tcptype passive";

/// Notes 4, rule 6: JSON with any further members; both connections, UDP and TCP.
#[test]
fn passes_candidates_of_both_connections() {
    let mut client = Client::joined_with([]);
    client.signal.offer("v=0".into());
    client.outputs();
    client.receive(offer(1));
    for target in [SignalTarget::Publisher, SignalTarget::Subscriber] {
        for (text, found) in [
            (
                format!(r#"{{"candidate":"{HOST}","sdpMid":"0","sdpMLineIndex":0}}"#),
                HOST,
            ),
            (
                format!(r#"{{"candidate":"{TCP}","sdpMid":null,"sdpMLineIndex":null}}"#),
                TCP,
            ),
            (
                format!(r#"{{"candidate":" a={HOST}\r\n","usernameFragment":"x"}}"#),
                HOST,
            ),
        ] {
            assert_eq!(client.receive(trickled(target, &text)), [candidate(target, found)]);
        }
    }
}

#[test]
fn ignores_malformed_candidates() {
    let mut client = Client::joined_with([]);
    client.signal.offer("v=0".into());
    client.outputs();
    let long = format!(r#"{{"candidate":"candidate:{}"}}"#, "x".repeat(512));
    for init in [
        "",
        "null",
        "{}",
        "[]",
        r#"{"candidate":""}"#,
        r#"{"candidate":null}"#,
        r#"{"candidate":1}"#,
        HOST,
        &format!(r#"{{"candidate":"{HOST}\r\na=evil"}}"#),
        &long,
        &"[".repeat(100_000),
    ] {
        assert_eq!(client.receive(trickled(SignalTarget::Publisher, init)), [], "{init}");
    }
    let unknown = TrickleRequest {
        candidate_init: format!(r#"{{"candidate":"{HOST}"}}"#),
        target: 7,
        last: true,
    };
    assert_eq!(client.receive(ServerMessage::Trickle(unknown)), []);
}

/// Notes 4, rule 6: any number of candidates may precede their connection.
#[test]
fn holds_candidates_until_their_connection_exists() {
    let mut client = Client::joined_with([]);
    let numbered = |i: usize| format!("candidate:{i} 1 udp 1 192.0.2.1 50000 typ host");
    let text = |i: usize| format!(r#"{{"candidate":"{}"}}"#, numbered(i));
    assert_eq!(client.receive(trickled(SignalTarget::Publisher, &text(0))), []);
    for i in 1..ROOM_CANDIDATES_HELD_MAX + 10 {
        assert_eq!(client.receive(trickled(SignalTarget::Subscriber, &text(i))), []);
    }
    let outputs = client.receive(offer(1));
    assert!(matches!(outputs[0], SignalOutput::Offer { .. }));
    let kept: Vec<SignalOutput> = (1..ROOM_CANDIDATES_HELD_MAX)
        .map(|i| candidate(SignalTarget::Subscriber, &numbered(i)))
        .collect();
    assert_eq!(outputs[1..], kept);
    client.signal.offer("v=0".into());
    assert_eq!(
        client.outputs()[1..],
        [candidate(SignalTarget::Publisher, &numbered(0))]
    );
    // Once the connection exists, none is held and none is repeated.
    assert_eq!(
        client.receive(trickled(SignalTarget::Subscriber, &text(99))),
        [candidate(SignalTarget::Subscriber, &numbered(99))]
    );
    assert!(matches!(client.receive(offer(2))[..], [SignalOutput::Offer { .. }]));
}

// ---- our track
