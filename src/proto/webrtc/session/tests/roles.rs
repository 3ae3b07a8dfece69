//! Both sides of a connection claim the same ICE role (RFC 8445, section 7.3.1.1): one of them
//! gives way, and the call goes on.

use str0m::ice::StunMessage;

use super::pair::{Pair, secs};
use super::restart::assert_talks;
use crate::testing::client::TestClient;

/// Returns whether the last of these checks is of the controlling side.
fn is_controlling<'d>(sent: impl DoubleEndedIterator<Item = &'d Vec<u8>>) -> bool {
    let is_check = |message: &StunMessage<'_>| message.is_binding_request() && message.username().is_some();
    let mut checks = sent
        .rev()
        .filter_map(|datagram| StunMessage::parse(datagram).ok().filter(is_check));
    let last = checks.next().expect("a check");
    match (last.ice_controlling(), last.ice_controlled()) {
        (Some(_), None) => true,
        (None, Some(_)) => false,
        other => panic!("a check has one role, not {other:?}"),
    }
}

/// Both sides send checks in the role `controlling` at first, and the call goes on.
fn assert_that_they_agree(make: impl Fn() -> Pair, controlling: bool) {
    // The numbers that decide are random: each side gives way in some of these calls.
    for nth in 0..8 {
        let mut pair = make();
        pair.keep_sent = true;
        pair.keep_launched = true;
        let has_checked = |pair: &Pair| {
            let is_check = |datagram: &Vec<u8>| datagram.starts_with(&[0, 1]);
            pair.sent.iter().any(|(_, datagram)| is_check(datagram)) && pair.launched.iter().any(is_check)
        };
        assert!(pair.run_until(secs(1), has_checked), "both check");
        let roles = |pair: &Pair| {
            let own = is_controlling(pair.sent.iter().map(|(_, datagram)| datagram));
            (own, is_controlling(pair.launched.iter()))
        };
        let first = |sent: &[Vec<u8>]| is_controlling(sent[..=position(sent)].iter());
        let sent: Vec<Vec<u8>> = pair.sent.iter().map(|(_, datagram)| datagram.clone()).collect();
        let roles_at_first = (first(&sent), first(&pair.launched));
        assert_eq!(
            roles_at_first,
            (controlling, controlling),
            "there is a conflict at first"
        );
        pair.connect();
        pair.open_audio(16_000, 16_000);
        pair.client.speak(440.0, pair.now);
        pair.run(secs(3));
        let (own, clients) = roles(&pair);
        assert_ne!(own, clients, "call {nth}: one controls, and the other is controlled");
        assert_talks(&mut pair);
    }
}

/// Returns where the first check is.
fn position(sent: &[Vec<u8>]) -> usize {
    let found = sent.iter().position(|datagram| datagram.starts_with(&[0, 1]));
    found.expect("a check")
}

#[test]
fn two_controlled_sides_agree() {
    let make = || {
        let mut pair = Pair::new();
        pair.client.rtc.direct_api().set_ice_controlling(false);
        pair
    };
    assert_that_they_agree(make, false);
}

/// A client that says it is an ICE lite one, and is not, has the runner in the controlling role.
#[test]
fn two_controlling_sides_agree() {
    let lite = |offer: String| offer.replacen("a=group:", "a=ice-lite\r\na=group:", 1);
    assert_that_they_agree(|| Pair::with(TestClient::new("192.0.2.9:5000"), lite), true);
}
