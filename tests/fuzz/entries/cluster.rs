//! Properties of what replicas with one key accept from each other.

use std::net::Ipv4Addr;
use std::time::Instant;

use edge_runner_proto::http::cluster::sealed_id::SealedIds;
use edge_runner_proto::http::cluster::{ClusterKey, ProcessId, Replica, parse_connection_id};
use edge_runner_proto::http::started::{IdUse, StartedSessions};
use edge_runner_proto::http::token::{SocketKind, SocketTokens, TokenError};
use edge_runner_proto::limits;
use edge_runner_proto::secret::Secret;
use edge_runner_proto::server::admission::Requester;
use edge_runner_proto::server::source::SourceKey;
use edge_runner_proto::time::RequestTime;

/// The key and the time of the ids and tokens in the corpus.
const KEY: &str = "0123456789abcdef0123456789abcdef";
const NOW_S: u64 = 1_795_252_753;

const CALLER: Requester = Requester {
    source: SourceKey::V4(Ipv4Addr::new(192, 0, 2, 1)),
    is_authorised: false,
    local_address: None,
};

/// An id that opens is what sealing its content gives, opens one session, and no other after that.
/// A token that is accepted is accepted once. The id of a connection is what its parts make.
pub fn sealed_id(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let key = ClusterKey::new(Secret::new(KEY));
    let at = RequestTime {
        now: Instant::now(),
        unix_s: NOW_S,
    };
    let mut sessions = StartedSessions::new(Some(&key));
    let ids = SealedIds::new(&key);
    let is_known = sessions.contains(&text, at);
    match ids.open(&text) {
        Some(session) => {
            assert!(session.body.len() <= limits::SEALED_BODY_BYTES_MAX);
            let again = ids.seal(&session).expect("it fitted");
            // The UUID may be in upper case.
            assert!(again.eq_ignore_ascii_case(&text) && again[37..] == text[37..]);
            assert!(!is_known || session.expires_s > NOW_S);
        }
        None => assert!(!is_known),
    }
    assert_eq!(sessions.is_unused(&text, at), is_known);
    let claimed = sessions.claim(&text, "fresh".into(), IdUse::Connect, CALLER, at);
    assert_eq!(claimed.is_ok(), is_known);
    if let Ok(claimed) = claimed {
        sessions.release(&claimed, true, at);
        assert!(!sessions.contains(&text, at) && sessions.is_empty());
    }
    let mut tokens = SocketTokens::of_replica(&key, ProcessId::new([2; 8]));
    for family in [SocketKind::Call, SocketKind::Client] {
        if let Ok(unused) = tokens.verify(&text, family, at) {
            unused.redeem();
            assert_eq!(tokens.verify(&text, family, at).err(), Some(TokenError::Used));
        }
    }
    if let Some((name, process)) = parse_connection_id(&text) {
        assert!((1..=limits::REPLICA_NAME_BYTES_MAX).contains(&name.len()));
        assert!(text.len() <= limits::PC_ID_BYTES_MAX);
        let maker = Replica::new(&key, Some(name), process.as_bytes());
        assert_eq!(maker.other_maker(&text), None);
        assert!(maker.connection_id([0; 8]).starts_with(&format!("{name}.{process}.")));
    }
    let other = Replica::new(&key, Some("other"), [3; 8]);
    if let Some(name) = other.other_maker(&text) {
        assert!(text.starts_with(name) && parse_connection_id(&text).is_some());
    }
}
