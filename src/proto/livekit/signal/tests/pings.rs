//! Pings, and the silence of the server.

use super::*;

/// Notes 4, rule 7: a ping in each interval, with the last measured round trip.
#[test]
fn sends_pings_with_the_last_round_trip() {
    let mut client = Client::joined_with([]);
    assert_eq!(client.due_ms(), Some(5_000));
    assert_eq!(client.at(4_999), []);
    assert_eq!(client.at(5_000), [ping(5_000, 0)]);
    client.now += Duration::from_millis(120);
    assert_eq!(client.receive(pong(5_000)), []);
    assert_eq!(client.due_ms(), Some(10_000));
    assert_eq!(client.at(10_000), [ping(10_000, 120)]);
    // An answer to an earlier ping, a foreign one, and a repeated one measure nothing.
    for ms in [5_000, 77] {
        client.receive(pong(ms));
    }
    assert_eq!(client.at(15_000), [ping(15_000, 120)]);
    client.now += Duration::from_millis(30);
    client.receive(pong(15_000));
    client.now += Duration::from_millis(1_000);
    client.receive(pong(15_000));
    assert_eq!(client.at(20_000), [ping(20_000, 30)]);
}

/// Notes 4, rule 7: any message of the server counts, and its silence ends the connection once.
#[test]
fn a_silent_server_times_out() {
    let mut client = Client::joined_with([]);
    client.at(9_000);
    client.receive(ServerMessage::RoomUpdate(RoomUpdate::default()));
    client.at(19_000);
    client.at(23_999);
    assert_eq!(client.due_ms(), Some(24_000));
    assert_eq!(client.at(24_000), [SignalOutput::PingTimeout]);
    assert_eq!(client.due_ms(), None);
    assert_eq!(client.at(60_000), []);
    assert_eq!(client.receive(update([participant_info("PA_a", "ann")])), []);
    client.signal.offer("v=0".into());
    assert_eq!(client.outputs(), []);
}

#[test]
fn a_server_without_a_join_times_out_without_pings() {
    let mut client = Client::new();
    assert_eq!(client.due_ms(), Some(15_000));
    assert_eq!(client.at(14_999), []);
    assert_eq!(client.at(15_000), [SignalOutput::PingTimeout]);
}

/// No number of a server stops the pings, floods them, or makes the timeout shorter than the
/// interval.
#[test]
fn clamps_ping_times() {
    for (interval, timeout, ping_s, silent_s) in [
        (0, 0, 5, 15),
        (-1, i32::MIN, 5, 15),
        (10, 45, 10, 45),
        (1, 1, 1, 4),
        (30, 5, 30, 33),
        (i32::MAX, i32::MAX, 30, 60),
    ] {
        let mut client = Client::new();
        let numbers = JoinResponse {
            ping_interval: interval,
            ping_timeout: timeout,
            ..join([])
        };
        client.receive(ServerMessage::Join(Box::new(numbers)));
        assert_eq!(client.due_ms(), Some(u128::from(ping_s) * 1_000), "{interval}");
        assert_eq!(client.at(ping_s * 1_000).len(), 1);
        assert!(
            !client.at(silent_s * 1_000 - 1).contains(&SignalOutput::PingTimeout),
            "{timeout}"
        );
        assert!(
            client.at(silent_s * 1_000).contains(&SignalOutput::PingTimeout),
            "{timeout}"
        );
    }
}

/// Invalid bytes are no sign of life.
#[test]
fn invalid_bytes_do_not_reset_the_ping_timeout() {
    let mut client = Client::joined_with([]);
    client.at(14_000);
    assert!(client.receive_invalid(&b"\xff"[..]).contains("not a LiveKit message"));
    assert_eq!(client.at(15_000), [SignalOutput::PingTimeout]);
}

// ---- offers and answers
