//! Joining a room: the first message of the server.

use super::*;

/// Notes 4, rule 1: the join names us and the others. The audio of the callers is subscribed to in
/// one request.
#[test]
fn a_join_lists_participants() {
    let mut client = Client::new();
    let bot = ParticipantInfo {
        kind: 4,
        ..participant_info("PA_b", "bot")
    };
    let outputs = client.receive(ServerMessage::Join(Box::new(join([
        participant_info("PA_a", "ann"),
        bot,
        participant_info("PA_c", "cid"),
    ]))));
    assert_eq!(
        outputs,
        [
            SignalOutput::Joined(JoinInfo {
                room_name: "room-1".into(),
                sid: "PA_own".into(),
                subscriber_primary: true,
                fast_publish: true,
                server_version: "1.13.5".into(),
                offers: ServerOffers::default(),
            }),
            joined("ann"),
            SignalOutput::Change(RosterChange::Joined(participant("bot", true))),
            joined("cid"),
            subscribed(&["TR_ann", "TR_cid"]),
        ]
    );
    assert_eq!(client.signal.callers(), 2);
    // A second join changes nothing.
    assert_eq!(client.receive(ServerMessage::Join(Box::new(join([])))), []);
    assert_eq!(client.signal.callers(), 2);
}

#[test]
fn rejects_a_join_without_our_identity() {
    let long = "x".repeat(257);
    for (sid, identity) in [
        ("", ""),
        ("PA_own", ""),
        ("", "Agent-1"),
        (&long, "Agent-1"),
        ("PA_own", &long),
    ] {
        let mut client = Client::new();
        let own = ParticipantInfo {
            sid: sid.into(),
            identity: identity.into(),
            ..ParticipantInfo::default()
        };
        let unidentified = JoinResponse {
            participant: Some(own),
            ..join([])
        };
        let words = client.receive_invalid(bytes(ServerMessage::Join(Box::new(unidentified))));
        assert_eq!(words, "a join without our identity");
        // A complete one is still accepted.
        assert!(!client.receive(ServerMessage::Join(Box::new(join([])))).is_empty());
    }
}

/// A token is not sent to a server that another one names.
#[test]
fn does_not_follow_an_alternative_url() {
    let elsewhere = JoinResponse {
        alternative_url: "wss://elsewhere.example".into(),
        ..JoinResponse::default()
    };
    let words = Client::new().receive_invalid(bytes(ServerMessage::Join(Box::new(elsewhere))));
    assert!(
        words.contains("MEDIAROOM_URL") && !words.contains("elsewhere.example"),
        "{words}"
    );
}

#[test]
fn only_leave_and_token_count_before_the_join() {
    let mut client = Client::new();
    assert_eq!(client.receive(update([participant_info("PA_a", "ann")])), []);
    assert_eq!(client.receive(offer(1)), []);
    assert_eq!(client.signal.callers(), 0);
    assert_eq!(client.signal.track_owner("TR_ann"), None);
    assert_eq!(
        client.receive(ServerMessage::RefreshToken("a.b".into())),
        [SignalOutput::Token(Secret::new("a.b"))]
    );
    let leave = ServerMessage::Leave(LeaveRequest {
        reason: 7,
        ..LeaveRequest::default()
    });
    assert_eq!(
        client.receive(leave),
        [SignalOutput::Leave {
            reason: 7,
            action: LeaveAction::Disconnect
        }]
    );
}

// ---- liveness

/// A token without the permission to subscribe is reported. A server that names no permissions
/// says nothing of them.
#[test]
fn a_token_that_does_not_let_the_bot_hear_is_reported() {
    let permission = |can_subscribe| {
        Some(ParticipantPermission {
            can_subscribe,
            ..ParticipantPermission::default()
        })
    };
    for (permission, is_reported) in [(None, false), (permission(true), false), (permission(false), true)] {
        let mut message = join([]);
        let own = message.participant.get_or_insert_default();
        own.permission.clone_from(&permission);
        let outputs = Client::new().receive(ServerMessage::Join(Box::new(message)));
        let no_audio = SignalOutput::NoAudio(NoAudioCause::Token);
        assert_eq!(outputs.contains(&no_audio), is_reported, "{permission:?}");
    }
}
