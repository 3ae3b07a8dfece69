//! The ways to a server that UDP does not reach: TCP, and TURN.

use super::super::*;
use super::simulation::{FakeParticipant, PathResult, Simulation, secs};
use super::*;
use crate::limits::{
    ROOM_MEDIA_LOST_AFTER, ROOM_PATHS_SETTLED, ROOM_RELAY_AFTER, ROOM_TCP_AFTER, ROOM_TCP_ALONE_AFTER,
};
use crate::livekit::wire::{RoomIceServer, SignalRequestKind};
use crate::webrtc::connection::sfu::tests::rig::ms;

/// The simulated server loses DTLS records that precede its own checks, so the handshake may need
/// retransmissions.
const LATE: Duration = Duration::from_secs(12);

fn turn_servers() -> Vec<RoomIceServer> {
    let server = |url: &str, credential: &str| RoomIceServer {
        urls: vec![url.into()],
        username: "user".into(),
        credential: credential.into(),
    };
    vec![
        server("stun:stun.example", ""),
        server("turns:relay.example:443?transport=tcp", "canary"),
        server("turn:relay.example:3478?transport=udp", "canary"),
        server("turn:relay.example:3478?transport=tcp", ""),
    ]
}

fn room(change: impl FnOnce(&mut Simulation)) -> Simulation {
    let mut sim = Simulation::new();
    sim.participants.push(FakeParticipant::caller("PA_ann1", "ann"));
    sim.offers_tcp = true;
    change(&mut sim);
    sim.start_audio();
    sim
}

fn joins_within(sim: &mut Simulation, within: Duration) -> Duration {
    let has_joined = sim.run_until(within, |sim| sim.has(&SessionEvent::Joined));
    assert!(has_joined, "{:?}", sim.events);
    sim.time()
}

fn tcp_paths(sim: &Simulation) -> usize {
    let is_tcp = |request: &PathRequest| matches!(request, PathRequest::Tcp(_));
    sim.paths.iter().filter(|(_, _, _, request)| is_tcp(request)).count()
}

/// UDP that works opens nothing else.
#[test]
fn udp_alone_opens_no_path() {
    let mut sim = room(|sim| sim.ice_servers = turn_servers());
    joins_within(&mut sim, secs(1));
    sim.run(secs(60));
    assert_eq!(sim.opened_paths, 0);
    assert!(sim.talks());
}

/// A network that blocks UDP is crossed over TCP, with one connection for each direction.
#[test]
fn tcp_is_used_where_udp_is_blocked() {
    let mut sim = room(|sim| sim.network = false);
    let after = joins_within(&mut sim, LATE);
    assert!(after >= ROOM_TCP_AFTER, "{after:?}");
    assert!(sim.talks());
    sim.run(ROOM_PATHS_SETTLED * 2);
    assert_eq!(
        (sim.opened_paths, sim.paths.len()),
        (2, 2),
        "what carries media stays open"
    );
    assert_eq!(sim.dials.len(), 1);
}

/// A server that announces TCP alone, for example after UDP broke repeatedly, is not left: its
/// candidates are used, and sooner. How long the checks of ICE then take depends on random values.
#[test]
fn tcp_alone_is_used_at_once() {
    let mut sim = room(|sim| sim.offers_udp = false);
    assert!(sim.run_until(LATE, |sim| sim.opened_paths > 0), "no path was opened");
    let opened = sim.time();
    assert!(opened >= ROOM_TCP_ALONE_AFTER && opened < ROOM_TCP_AFTER, "{opened:?}");
    joins_within(&mut sim, LATE);
    assert!(sim.talks());
    assert_eq!(sim.dials.len(), 1);
}

/// A slow UDP path that comes up after TCP takes over, and the TCP connections are closed.
#[test]
fn udp_that_comes_up_late_replaces_tcp() {
    let mut sim = room(|sim| sim.network = false);
    joins_within(&mut sim, LATE);
    assert_eq!(tcp_paths(&sim), 2);
    sim.network = true;
    sim.run(ROOM_PATHS_SETTLED + secs(3));
    assert!(sim.talks());
    assert!(tcp_paths(&sim) < 2, "the publisher selects, and UDP is better");
    assert_eq!(sim.dials.len(), 1);
}

/// Where neither UDP nor TCP leads to the server, a relay does: UDP to the TURN server before TLS,
/// and without STUN servers and servers without credentials.
#[test]
fn a_relay_is_used_where_udp_and_tcp_are_blocked() {
    for tcp in [PathResult::Refused, PathResult::Hangs, PathResult::LosesAll] {
        let mut sim = room(|sim| {
            sim.network = false;
            sim.tcp = tcp;
            sim.ice_servers = turn_servers();
        });
        let after = joins_within(&mut sim, LATE);
        assert!(after >= ROOM_RELAY_AFTER, "{after:?}");
        assert!(sim.talks());
        let relays: Vec<&str> = (sim.paths.iter())
            .filter_map(|(_, _, _, request)| match request {
                PathRequest::Relay(server) => Some(server.url.as_str()),
                PathRequest::Tcp(_) => None,
            })
            .collect();
        assert_eq!(relays[..2], ["turn:relay.example:3478?transport=udp"; 2]);
        let trickled = |request: &&(Duration, SignalRequestKind)| matches!(&request.1, SignalRequestKind::Trickle(trickle) if trickle.candidate_init.contains("typ relay"));
        assert!(
            sim.requests.iter().filter(trickled).count() >= 2,
            "the server may check them too"
        );
        sim.run(ROOM_PATHS_SETTLED * 2);
        assert_eq!(sim.paths.len(), 2, "{tcp:?}: what carries no media is closed");
    }
}

/// A server that wants relays gets no other path.
#[test]
fn a_forced_relay_is_the_only_path() {
    let mut sim = room(|sim| {
        sim.force_relay = true;
        sim.ice_servers = turn_servers();
    });
    joins_within(&mut sim, LATE);
    assert!(sim.paths[0].0 < ms(100), "it is not waited for");
    // Both directions, and perhaps one more TURN server.
    assert_eq!(tcp_paths(&sim), 0);
    assert!((2..=3).contains(&sim.paths.len()), "{}", sim.paths.len());
    for (_, request) in &sim.requests {
        if let SignalRequestKind::Offer(offer) = request {
            assert!(!offer.sdp.contains("typ host"), "{}", offer.sdp);
        }
    }
    assert!(sim.talks());
}

/// A join that nothing leads to says what was tried, without addresses and credentials.
#[test]
fn a_join_without_any_path_says_what_was_tried() {
    let mut sim = room(|sim| {
        sim.network = false;
        (sim.tcp, sim.relay) = (PathResult::Refused, PathResult::Refused);
        sim.ice_servers = turn_servers();
    });
    sim.run(CONNECT_WITHIN + secs(1));
    let why = sim.join_failed().expect("the bot gets an error");
    for words in [
        "no answer over UDP",
        "TCP port 7881: connection refused",
        "turn:relay.example:3478?transport=udp: connection refused",
        "turns:relay.example:443?transport=tcp: connection refused",
    ] {
        assert!(why.contains(words), "{words}: {why}");
    }
    assert!(!why.contains("canary") && !why.contains("192.0.2"), "{why}");
    assert!(sim.opened_paths <= 2 * 3, "{}", sim.opened_paths);
    assert!(sim.paths.is_empty() || sim.gone.is_some());

    let mut sim = room(|sim| {
        sim.network = false;
        sim.offers_tcp = false;
    });
    sim.run(CONNECT_WITHIN + secs(1));
    let why = sim.join_failed().expect("the bot gets an error");
    assert!(
        why.contains("the server offers no TCP") && why.contains("names no TURN server"),
        "{why}"
    );
}

/// UDP that is blocked in the middle of a talk: the session resumes over TCP, with the same
/// participant.
#[test]
fn udp_that_is_blocked_later_is_resumed_over_tcp() {
    let mut sim = room(|_| {});
    joins_within(&mut sim, secs(1));
    sim.run(secs(5));
    sim.network = false;
    sim.run(ROOM_MEDIA_LOST_AFTER + secs(6));
    assert_eq!(
        (sim.count(&SessionEvent::Lost), sim.count(&SessionEvent::Restored)),
        (1, 1)
    );
    assert!(sim.talks());
    assert_eq!(tcp_paths(&sim), 2);
    assert!(sim.dials[1..].iter().all(|(_, dial)| dial.url.contains("reconnect=1")));
    // UDP that works again is used after the next resume, over which the old paths are closed.
    sim.network = true;
    sim.break_socket();
    sim.run(ROOM_PATHS_SETTLED + secs(3));
    assert!(sim.talks());
    assert_eq!(sim.paths.len(), 0);
}

/// A TCP connection that breaks is noticed at once, and the session resumes over a new one.
#[test]
fn a_broken_tcp_connection_is_resumed() {
    let mut sim = room(|sim| sim.network = false);
    joins_within(&mut sim, LATE);
    sim.run(secs(1));
    sim.break_paths();
    assert_eq!(sim.count(&SessionEvent::Lost), 1);
    assert!(sim.run_until(secs(4), |sim| sim.has(&SessionEvent::Restored)));
    assert!(sim.talks());
    assert_eq!(sim.end_reason(), None);
    assert!(sim.dials[1..].iter().all(|(_, dial)| dial.url.contains("reconnect=1")));
}

/// Many resumes in a row leave no paths behind.
#[test]
fn paths_are_bounded_over_many_resumes() {
    let mut sim = room(|sim| {
        sim.network = false;
        sim.ice_servers = turn_servers();
    });
    joins_within(&mut sim, LATE);
    for _ in 0..20 {
        sim.break_socket();
        sim.run(secs(3));
        assert!(sim.paths.len() <= 2 * crate::limits::ROOM_PATHS_MAX);
    }
    sim.run(ROOM_PATHS_SETTLED * 2);
    assert!(sim.paths.len() <= 2, "{}", sim.paths.len());
    assert!(sim.talks());
    sim.run(ms(1));
}
