//! Refreshed tokens, and the end of the connection.

use super::*;

#[test]
fn passes_valid_refreshed_tokens() {
    let mut client = Client::joined_with([]);
    assert_eq!(
        client.receive(ServerMessage::RefreshToken("eyJ.a-b_c".into())),
        [SignalOutput::Token(Secret::new("eyJ.a-b_c"))]
    );
    for token in ["", "a b", "a\r\nX-Evil: 1", "ä", &"x".repeat(ROOM_TOKEN_BYTES_MAX + 1)] {
        assert_eq!(client.receive(ServerMessage::RefreshToken(token.into())), []);
    }
    let shown = format!("{:?}", SignalOutput::Token(Secret::new("eyJ")));
    assert!(!shown.contains("eyJ"), "{shown}");
}

/// Notes 3.2: the action says what the server asks for; before version 13, `can_reconnect` alone
/// does.
#[test]
fn a_leave_carries_its_action() {
    for (can_reconnect, action, expected) in [
        (false, 0, LeaveAction::Disconnect),
        (true, 0, LeaveAction::Reconnect),
        (false, 1, LeaveAction::Resume),
        (false, 2, LeaveAction::Reconnect),
        (true, 2, LeaveAction::Reconnect),
        (false, 3, LeaveAction::Disconnect),
        (false, -1, LeaveAction::Disconnect),
    ] {
        let mut client = Client::joined_with([participant_info("PA_a", "ann")]);
        let leave = ServerMessage::Leave(LeaveRequest {
            can_reconnect,
            reason: 99,
            action,
        });
        assert_eq!(
            client.receive(leave.clone()),
            [SignalOutput::Leave {
                reason: 99,
                action: expected
            }],
            "{action}"
        );
        // Nothing follows.
        assert_eq!(client.receive(leave), []);
        assert_eq!(client.receive(update([participant_info("PA_b", "bob")])), []);
        assert_eq!((client.at(60_000), client.due_ms()), (vec![], None));
        // A resume keeps the participants.
        let kept = usize::from(expected == LeaveAction::Resume);
        assert_eq!(client.signal.callers(), kept);
    }
}

#[test]
fn sends_nothing_after_leave() {
    let mut client = Client::joined_with([]);
    client.signal.leave();
    let goodbye = LeaveRequest {
        can_reconnect: false,
        reason: 1,
        action: 0,
    };
    assert_eq!(client.outputs(), [sent(SignalRequestKind::Leave(goodbye))]);
    client.signal.leave();
    client.signal.add_track("cid", "bot-audio");
    client.signal.answer("v=0".into(), 1);
    client.signal.offer("v=0".into());
    assert_eq!(client.outputs(), []);
    assert_eq!(client.receive(offer(1)), []);
    // Invalid bytes are ignored by then.
    assert_eq!(
        client.signal.handle_message(Bytes::from_static(b"\xff"), client.now),
        Ok(())
    );
}
