//! A NAT gives the caller another port in the middle of a call, as after a silence or a restart of
//! the router. The caller knows nothing of it, and both go on to hear each other.

use super::pair::{Pair, ms, secs};
use super::restart::{assert_talks, call_of};
use crate::event::SessionEvent;
use crate::testing::client::TestClient;

fn public(port: u16) -> std::net::SocketAddr {
    ([203, 0, 113, 9], port).into()
}

/// A talking caller behind a NAT.
fn call() -> Pair {
    let (mut pair, _) = call_of(TestClient::new("192.0.2.9:5000"));
    pair.public = Some(public(5_000));
    pair.run(secs(2));
    pair
}

#[test]
fn a_call_follows_a_caller_whose_port_changes() {
    let mut pair = call();
    for port in 5_001..5_006 {
        let received = pair.client.received.len();
        let moved = pair.time();
        pair.public = Some(public(port));
        pair.run(secs(2));
        // Speech goes to the new port as soon as the caller has answered a check there.
        let lost = 100 - (pair.client.received.len() - received);
        assert!(lost <= 40, "{lost} of 100 packets are lost with port {port}");
        let settled = moved + ms(1_000);
        let mut late = pair
            .destinations
            .iter()
            .filter(|(at, _, first)| *at > settled && *first >= 128);
        assert!(
            late.all(|(_, to, _)| *to == public(port)),
            "no speech goes to the old port"
        );
        assert_talks(&mut pair);
    }
    assert!(!pair.saw(&SessionEvent::Lost) && pair.left().is_none());
}

/// The port that the caller had before is another one's now: nothing more is sent there.
#[test]
fn an_old_port_gets_nothing_after_a_while() {
    let mut pair = call();
    pair.public = Some(public(5_001));
    pair.run(secs(45));
    let from = pair.time();
    pair.run(secs(30));
    let mut late = pair.destinations.iter().filter(|(at, ..)| *at > from);
    assert!(
        late.all(|(_, to, _)| *to == public(5_001)),
        "checks of the old pair end"
    );
    assert_talks(&mut pair);
}
