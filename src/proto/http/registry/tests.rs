//! Tests of the registry of sessions.

use std::net::Ipv4Addr;

use serde_json::json;

use super::*;
use crate::server::source::SourceKey;

const TICK: Duration = Duration::from_millis(1);

const A: Requester = from(1);
const B: Requester = from(2);

const fn from(host: u8) -> Requester {
    Requester {
        source: SourceKey::V4(Ipv4Addr::new(192, 0, 2, host)),
        is_authorised: false,
        local_address: None,
    }
}

const fn authorised(requester: Requester) -> Requester {
    Requester {
        is_authorised: true,
        ..requester
    }
}

fn id(name: &str) -> Arc<str> {
    name.into()
}

/// Fills the registry from enough sources that none exceeds its share; source `nth % 8`
/// registers `nth`.
fn fill(table: &mut SessionRegistry, ids: std::ops::Range<usize>, now: Instant) {
    for nth in ids {
        let requester = from(100 + (nth % 8) as u8);
        table
            .register(id(&nth.to_string()), text(&json!({})), requester, now)
            .expect("room");
    }
}

fn text(body: &Value) -> Box<str> {
    registered_text(None, body)
}

fn table() -> (SessionRegistry, Instant) {
    let (mut table, now) = (SessionRegistry::default(), Instant::now());
    table.register(id("S"), text(&json!({"a": 1})), A, now).expect("room");
    (table, now)
}

/// the first connection gets the id and the body that `/start` registered, and
/// the rights of that request.
#[test]
fn the_first_connection_gets_the_registered_id_and_body() {
    let (mut table, now) = table();
    let claim = table.claim("S", id("F"), now).expect("known");
    assert_eq!(
        claim,
        SessionClaim {
            registered: id("S"),
            session_id: id("S"),
            bot: None,
            body: json!({"a": 1}),
            is_authorised: false,
        }
    );
    assert_eq!(table.claim("T", id("F"), now), Err(UnknownSession));
    let key = authorised(B);
    table.register(id("T"), text(&json!({})), key, now).expect("room");
    assert!(table.claim("T", id("F"), now).expect("known").is_authorised);
}

/// The name of a bot stays beside its body, whatever that is.
#[test]
fn a_registration_may_name_a_bot() {
    let (mut table, now) = table();
    for (name, body) in [("a", json!({"a": 1})), ("b", json!(["sales", {}])), ("c", json!("\n"))] {
        let text = registered_text(Some("sales"), &body);
        table.register(id(name), text, A, now).expect("room");
        let claim = table.claim(name, id("F"), now).expect("known");
        assert_eq!((claim.bot.as_deref(), claim.body), (Some("sales"), body.clone()));
        // A body alone is never taken for one with a bot.
        let alone = format!("{name} alone");
        let text = registered_text(None, &body);
        table.register(id(&alone), text, A, now).expect("room");
        let claim = table.claim(&alone, id("F"), now).expect("known");
        assert_eq!((claim.bot, claim.body), (None, body));
    }
}

/// `claim_once` allows one session: no second one during or after it, nor after expiry, but a
/// retry after a failed connection.
#[test]
fn an_id_can_be_limited_to_one_session() {
    let (mut table, now) = table();
    let claim = table.claim_once("S", now).expect("known");
    assert_eq!((&*claim.session_id, &claim.body), ("S", &json!({"a": 1})));
    assert_eq!(table.claim_once("S", now), Err(UnknownSession));
    table.release(&claim, false);
    let claim = table.claim_once("S", now).expect("no session came of it");
    table.release(&claim, true);
    assert_eq!(table.claim_once("S", now), Err(UnknownSession));
    table.register(id("T"), text(&json!({})), A, now).expect("room");
    assert!(table.is_unused("T", now + limits::REGISTERED_UNUSED - TICK));
    assert_eq!(
        table.claim_once("T", now + limits::REGISTERED_UNUSED),
        Err(UnknownSession)
    );
}

/// An id is valid for further connections while one of them lives; then it is removed.
#[test]
fn further_connections_get_fresh_names_until_all_have_ended() {
    let (mut table, now) = table();
    let first = table.claim("S", id("F1"), now).expect("known");
    let second = table.claim("S", id("F2"), now).expect("known");
    assert_eq!((&*second.session_id, &second.body), ("F2", &json!({"a": 1})));
    table.release(&first, true);
    let third = table.claim("S", id("F3"), now).expect("the second still lives");
    assert_eq!(&*third.session_id, "F3", "a name is used for one session only");
    table.release(&second, true);
    assert!(table.contains("S", now));
    table.release(&third, true);
    assert!(!table.contains("S", now));
    assert_eq!(
        table.claim("S", id("F4"), now),
        Err(UnknownSession),
        "a bot that hung up does not come back"
    );
    assert_eq!((table.len(), table.quotas.total().bytes), (0, 0));
}

/// A failed offer leaves the session unused: the client retries.
#[test]
fn a_failed_connection_leaves_the_id_usable() {
    let (mut table, now) = table();
    let failed = table.claim("S", id("F1"), now).expect("known");
    table.release(&failed, false);
    let again = table.claim("S", id("F2"), now).expect("still known");
    assert_eq!(&*again.session_id, "S");
    // A renegotiation also claims, and releases unused while the session lives.
    let renegotiation = table.claim("S", id("F3"), now).expect("known");
    table.release(&renegotiation, false);
    assert!(table.contains("S", now));
    table.release(&again, true);
    assert!(!table.contains("S", now));
}

#[test]
fn an_unused_id_expires_and_a_used_one_does_not() {
    let (mut table, now) = table();
    table.register(id("used"), text(&json!({})), A, now).expect("room");
    let claim = table.claim("used", id("F"), now).expect("known");
    let end = now + limits::REGISTERED_UNUSED;
    assert!(table.contains("S", end - TICK));
    assert!(!table.contains("S", end));
    assert_eq!(table.claim("S", id("F"), end), Err(UnknownSession));
    assert!(table.contains("used", end));
    table.register(id("T"), text(&json!({})), A, end).expect("room");
    assert_eq!(table.len(), 2, "what expired was dropped");
    // Released unused after its expiry, it is removed at once.
    table.release(&claim, false);
    assert!(!table.contains("used", end));
    table.register(id("U"), text(&json!({})), A, end).expect("room");
    assert_eq!(table.len(), 2);
}

/// At the limit, the oldest unused entry is evicted for an equal source, after the grace
/// period.
#[test]
fn the_number_of_ids_is_limited_and_old_ones_are_evicted() {
    let (mut table, now) = (SessionRegistry::default(), Instant::now());
    fill(&mut table, 0..limits::REGISTERED_MAX, now);
    let claim = table.claim("0", id("F"), now).expect("known");
    // All sources have the same usage.
    let newcomer = from(100);
    let asks = |table: &mut SessionRegistry, name: &str, at| table.register(id(name), text(&json!({})), newcomer, at);
    assert_eq!(asks(&mut table, "one more", now + TICK), Err(RegistryFull::Capacity));
    let yields = now + REGISTERED_YIELDS_AFTER;
    assert_eq!(asks(&mut table, "one more", yields - TICK), Err(RegistryFull::Capacity));
    assert_eq!(asks(&mut table, "one more", yields), Ok(()));
    assert!(!table.contains("1", yields) && table.contains("0", yields) && table.contains("2", yields));
    assert_eq!(table.len(), limits::REGISTERED_MAX);
    let end = now + limits::REGISTERED_UNUSED + TICK;
    assert_eq!(asks(&mut table, "another", end), Ok(()));
    assert_eq!(table.len(), 3, "those that were never used are gone");
    table.release(&claim, true);
    assert_eq!(table.len(), 2);
}

/// A source at its share evicts its own oldest entries: 20,000 registrations of one address
/// evict no entry of another.
#[test]
fn a_flood_evicts_its_own_entries() {
    let (mut table, now) = (SessionRegistry::default(), Instant::now());
    table.register(id("honest"), text(&json!({})), B, now).expect("room");
    for nth in 0..20_000 {
        assert_eq!(table.register(id(&nth.to_string()), text(&json!({})), A, now), Ok(()));
        assert!(table.len() <= limits::REGISTERED_SHARE_MAX + 1);
        if nth % 1_000 == 0 {
            let name = format!("honest {nth}");
            assert_eq!(table.register(id(&name), text(&json!({})), B, now), Ok(()));
            let claim = table.claim(&name, id("F"), now).expect("known");
            table.release(&claim, true);
        }
    }
    assert!(table.contains("honest", now) && table.contains("19999", now) && !table.contains("0", now));
    assert_eq!(table.quotas.usage(A.holder()).entries, limits::REGISTERED_SHARE_MAX);
    let oldest_left = 20_000 - limits::REGISTERED_SHARE_MAX;
    assert!(table.contains(&oldest_left.to_string(), now) && !table.contains(&(oldest_left - 1).to_string(), now));
}

/// Four sources with their full share fill the registry; a source with less usage evicts one of
/// their entries at once.
#[test]
fn a_full_registry_accepts_a_source_with_less_usage() {
    let (mut table, now) = (SessionRegistry::default(), Instant::now());
    for nth in 0..limits::REGISTERED_MAX {
        let requester = from(10 + (nth % 4) as u8);
        table
            .register(id(&nth.to_string()), text(&json!({})), requester, now)
            .expect("room");
    }
    assert_eq!(table.len(), limits::REGISTERED_MAX);
    assert_eq!(table.register(id("honest"), text(&json!({})), B, now), Ok(()));
    assert!(!table.contains("0", now), "the oldest of the heaviest");
    assert_eq!(table.register(id("honest too"), text(&json!({})), B, now), Ok(()));
    assert!(!table.contains("1", now) && table.contains("2", now) && table.contains("honest", now));
}

fn body(bytes: usize) -> Value {
    // Two bytes are quotes.
    json!("x".repeat(bytes - 2))
}

/// The bytes of a source are limited: its oldest unused bodies are evicted until the new one
/// fits.
#[test]
fn the_bytes_of_a_source_are_limited() {
    let (mut table, now) = (SessionRegistry::default(), Instant::now());
    let half = REGISTERED_SHARE_BYTES_MAX / 2;
    table.register(id("used"), text(&body(half)), A, now).expect("room");
    let claim = table.claim("used", id("F"), now).expect("known");
    for name in ["a", "b"] {
        table.register(id(name), text(&body(half / 2)), A, now).expect("room");
    }
    assert_eq!(table.register(id("long"), text(&body(half)), A, now), Ok(()));
    assert!(!table.contains("a", now) && !table.contains("b", now) && table.contains("used", now));
    assert_eq!(
        table.register(id("longer"), text(&body(half + 1)), A, now),
        Err(RegistryFull::SourceShare)
    );
    assert!(!table.contains("long", now), "it made room in vain");
    table.release(&claim, true);
    assert_eq!(table.register(id("longer"), text(&body(half + 1)), A, now), Ok(()));
    assert_eq!(table.quotas.total().bytes, half + 1);
}

/// The total of bytes is limited: bodies of the source with the most bytes are evicted.
#[test]
fn the_total_of_bytes_is_limited() {
    let (mut table, now) = (SessionRegistry::default(), Instant::now());
    let share = REGISTERED_SHARE_BYTES_MAX;
    let all = REGISTERED_BYTES_MAX / share;
    for nth in 0..all {
        let requester = from(10 + nth as u8);
        assert_eq!(
            table.register(id(&nth.to_string()), text(&body(share)), requester, now),
            Ok(())
        );
    }
    assert_eq!(table.quotas.total().bytes, REGISTERED_BYTES_MAX);
    assert_eq!(
        table.register(id("equal"), text(&body(share)), B, now),
        Err(RegistryFull::Capacity)
    );
    assert_eq!(table.register(id("small"), text(&body(3)), B, now), Ok(()));
    assert!(!table.contains("0", now) && table.contains("1", now) && table.contains("small", now));
    let claims: Vec<SessionClaim> = (1..all)
        .map(|nth| table.claim(&nth.to_string(), id("F"), now).expect("known"))
        .collect();
    assert_eq!(
        table.register(id("large"), text(&body(share)), from(9), now),
        Err(RegistryFull::Capacity)
    );
    assert_eq!(claims.len(), all - 1);
}

/// All indexes are empty after every kind of removal.
#[test]
fn an_empty_registry_has_empty_indexes() {
    let (mut table, now) = (SessionRegistry::default(), Instant::now());
    fill(&mut table, 0..64, now);
    table
        .register(id("authorised"), text(&json!({})), authorised(A), now)
        .expect("room");
    let claims = ["0", "1", "authorised"].map(|name| table.claim(name, id("F"), now).expect("known"));
    for (nth, claim) in claims.iter().enumerate() {
        table.release(claim, nth != 1);
    }
    let end = now + limits::REGISTERED_UNUSED;
    table.expire(end - TICK);
    assert_eq!(table.len(), 63);
    table.expire(end);
    assert!(table.is_empty() && table.quotas.is_empty() && table.unused.is_empty());
}

/// ids are UUIDs of version 4.
#[test]
fn session_ids_are_uuids() {
    assert_eq!(&*session_id([0; 16]), "00000000-0000-4000-8000-000000000000");
    assert_eq!(&*session_id([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    let counted = std::array::from_fn(|nth| nth as u8);
    assert_eq!(&*session_id(counted), "00010203-0405-4607-8809-0a0b0c0d0e0f");
}
