//! The order and the number of the paths of one peer connection, by a test clock.

use super::*;
use crate::webrtc::gather::server::parse_servers;
use crate::webrtc::ice::IceServer;

fn offers(urls: &[&str], force_relay: bool) -> ServerOffers {
    let list = urls.iter().map(|url| IceServer {
        urls: vec![(*url).to_owned()],
        username: Some("u".into()),
        credential: Some("canary".into()),
    });
    ServerOffers {
        relays: parse_servers(&list.collect::<Vec<_>>()),
        force_relay,
    }
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 9], port))
}

/// Opens everything that is due until `end`; returns the times in milliseconds and the names.
fn opened(paths: &mut ServerPaths, start: Instant, end: Duration) -> Vec<(u128, String, PathId)> {
    let mut opened = Vec::new();
    let mut now = start;
    loop {
        while let Some(step) = paths.poll(now) {
            if let PathStep::Open(id, request) = step {
                let name = match request {
                    PathRequest::Tcp(address) => address.port().to_string(),
                    PathRequest::Relay(server) => server.url,
                };
                opened.push(((now - start).as_millis(), name, id));
            }
        }
        match paths.poll_timeout().filter(|next| *next <= start + end) {
            Some(next) => {
                assert!(next > now, "a deadline in the past");
                now = next;
            }
            None => return opened,
        }
    }
}

fn times(opened: &[(u128, String, PathId)]) -> Vec<(u128, &str)> {
    opened.iter().map(|(at, name, _)| (*at, name.as_str())).collect()
}

#[test]
fn paths_open_in_order() {
    let now = Instant::now();
    let urls = ["turns:r.example", "turn:r.example?transport=tcp", "turn:r.example"];
    let mut paths = ServerPaths::new(1, 0, &offers(&urls, false));
    paths.handle_udp_candidate();
    paths.handle_tcp_candidate(at(7881));
    assert_eq!(paths.poll_timeout(), None, "no description has been sent");
    paths.begin(now);
    assert_eq!(
        times(&opened(&mut paths, now, Duration::from_secs(60))),
        [
            (1_000, "7881"),
            (2_000, "turn:r.example"),
            (3_000, "turn:r.example?transport=tcp"),
            (4_000, "turns:r.example")
        ]
    );
}

#[test]
fn tcp_alone_is_not_waited_for_and_a_forced_relay_is_alone() {
    let now = Instant::now();
    let mut paths = ServerPaths::new(1, 0, &offers(&[], true));
    paths.handle_tcp_candidate(at(7881));
    paths.begin(now);
    assert_eq!(
        times(&opened(&mut paths, now, Duration::from_secs(60))),
        [(100, "7881")]
    );
    let mut paths = ServerPaths::new(1, 0, &offers(&["turn:r.example"], true));
    paths.handle_tcp_candidate(at(7881));
    paths.begin(now);
    assert_eq!(
        times(&opened(&mut paths, now, Duration::from_secs(60))),
        [(0, "turn:r.example")]
    );
}

/// A refused TURN server makes way for the next one at once.
#[test]
fn a_refused_relay_is_replaced_by_the_next() {
    let now = Instant::now();
    let mut paths = ServerPaths::new(1, 0, &offers(&["turn:a.example", "turn:b.example"], false));
    paths.begin(now);
    let first = opened(&mut paths, now, ROOM_RELAY_AFTER);
    let refused = PathEvent::Ended("401: wrong username or credential".into());
    assert_eq!(paths.handle_event(first[0].2, refused.clone()), PathChange::None);
    let later = now + ROOM_RELAY_AFTER + Duration::from_millis(50);
    let Some(PathStep::Open(second, _)) = paths.poll(later) else {
        panic!("the next one")
    };
    assert_eq!(paths.handle_event(second, refused.clone()), PathChange::None);
    assert_eq!(
        paths.handle_event(second, refused),
        PathChange::None,
        "it has ended already"
    );
    let words = paths.explain();
    assert!(
        words.contains("turn:a.example: 401: wrong username or credential"),
        "{words}"
    );
    assert!(words.contains("turn:b.example") && !words.contains("canary"), "{words}");
}

/// At the cap no further path is opened, and after many candidates few are.
#[test]
fn paths_are_capped() {
    let now = Instant::now();
    let urls: Vec<String> = (0..8).map(|n| format!("turn:r{n}.example")).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let mut paths = ServerPaths::new(1, 0, &offers(&urls, false));
    for port in 1..100 {
        paths.handle_tcp_candidate(at(port));
    }
    paths.begin(now);
    let opened = opened(&mut paths, now, Duration::from_secs(60));
    assert_eq!(opened.len(), ROOM_TCP_CANDIDATES_MAX + ROOM_RELAYS_MAX);
    assert!(opened.len() <= ROOM_PATHS_MAX);
}

/// TCP connections end with an ICE restart, after the one that follows; relays stay.
#[test]
fn a_restart_replaces_tcp_and_keeps_relays() {
    let now = Instant::now();
    let mut paths = ServerPaths::new(1, 1, &offers(&["turn:r.example"], false));
    paths.handle_tcp_candidate(at(7881));
    paths.begin(now);
    let opened = opened(&mut paths, now, Duration::from_secs(60));
    let [(_, _, tcp), (_, _, relay)] = &opened[..] else {
        panic!("{opened:?}")
    };
    assert!(
        tcp.number & 1 == 1 && relay.number & 1 == 1,
        "the lowest bit is the connection"
    );
    let (local, relayed) = (at(40_000), vec![at(50_000)]);
    assert_eq!(
        paths.handle_event(*tcp, PathEvent::Connected { local }),
        PathChange::AddTcp {
            local,
            remote: at(7881)
        }
    );
    let allocated = PathEvent::Allocated {
        relayed: relayed.clone(),
        local,
    };
    assert!(matches!(
        paths.handle_event(*relay, allocated),
        PathChange::AddRelayed { .. }
    ));
    assert_eq!(paths.restart(now), [local]);
    assert_eq!(paths.poll(now), None, "the old connection may still carry media");
    assert_eq!(
        paths.handle_event(*tcp, PathEvent::Ended(String::new())),
        PathChange::None
    );
    assert_eq!(paths.restart(now), []);
    assert_eq!(paths.poll(now + Duration::from_secs(60)), None, "the relay is held");
    assert_eq!(
        paths.handle_event(*relay, PathEvent::Ended(String::new())),
        PathChange::RemoveRelayed {
            relayed,
            local,
            carried_media: false
        }
    );
}

/// Once up, nothing is opened, and what carries no media is closed after a while.
#[test]
fn unused_paths_are_closed_once_up() {
    let now = Instant::now();
    let mut paths = ServerPaths::new(1, 0, &offers(&["turn:r.example"], false));
    paths.handle_tcp_candidate(at(1));
    paths.handle_tcp_candidate(at(2));
    paths.begin(now);
    let opened = opened(&mut paths, now, Duration::from_millis(1_500));
    for (number, (_, _, id)) in (0..).zip(&opened) {
        paths.handle_event(
            *id,
            PathEvent::Connected {
                local: at(40_000 + number),
            },
        );
    }
    paths.handle_up(now);
    let later = now + ROOM_PATHS_SETTLED * 2;
    assert_eq!(paths.poll(later), None, "it is not known which one is used");
    let over_tcp = PacketPath {
        over: IceProtocol::Tcp,
        source: at(40_001),
        peer: at(2),
    };
    paths.handle_media_sent(over_tcp, now);
    assert_eq!(paths.media_path_name(), "TCP");
    assert_eq!(paths.poll(now + ROOM_PATHS_SETTLED / 2), None);
    assert_eq!(paths.poll(later), Some(PathStep::Close(opened[0].2)));
    assert_eq!(paths.poll(later), None);
    let over_udp = PacketPath {
        over: IceProtocol::Udp,
        ..over_tcp
    };
    paths.handle_media_sent(over_udp, later);
    paths.handle_media_sent(over_tcp, later);
    assert_eq!(paths.poll(later + ROOM_PATHS_SETTLED), None, "it is used again");
    let ended = PathEvent::Ended("the server closed the connection".into());
    assert_eq!(
        paths.handle_event(opened[1].2, ended),
        PathChange::RemoveTcp {
            local: at(40_001),
            carried_media: true
        }
    );
}
