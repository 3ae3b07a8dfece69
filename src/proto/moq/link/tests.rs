//! Two links over a simulated network: each event, each rejection, loss and back-pressure.

use std::collections::BTreeMap;
use std::time::Duration;

use super::simulation::{AUTHORITY, PATH, SimulatedEnd, SimulatedLinks, SimulatedNetwork};
use super::{Dir, LinkClosed, LinkEvent, LinkRequest, MOQ_PROTOCOL, MoqStreams, StreamId, StreamRead};

/// A network whose links are connected.
fn connected() -> SimulatedNetwork {
    let mut network = SimulatedNetwork::new(SimulatedLinks::WebTransport);
    connect(&mut network);
    network
}

fn connect(network: &mut SimulatedNetwork) {
    request(network);
    let now = network.now;
    network.server.link().accept(now);
    network.run_until(|network| network.client.has(&LinkEvent::Connected) && network.server.has(&LinkEvent::Connected));
    network.client.events.clear();
    network.server.events.clear();
}

fn request(network: &mut SimulatedNetwork) -> LinkRequest {
    let mut request = None;
    network.run_until(|network| {
        request = network.server.take(|event| matches!(event, LinkEvent::Requested(_)));
        request.is_some()
    });
    match request {
        Some(LinkEvent::Requested(request)) => request,
        other => panic!("{other:?}"),
    }
}

fn closed(end: &mut SimulatedEnd) -> Option<LinkClosed> {
    match end.take(|event| matches!(event, LinkEvent::Closed(_)))? {
        LinkEvent::Closed(closed) => Some(closed),
        _ => None,
    }
}

fn opened(end: &mut SimulatedEnd) -> Option<StreamId> {
    match end.take(|event| matches!(event, LinkEvent::Opened(_)))? {
        LinkEvent::Opened(id) => Some(id),
        _ => None,
    }
}

/// What a stream has to read, and how it goes on.
fn read_all(end: &mut SimulatedEnd, id: StreamId) -> (Vec<u8>, StreamRead) {
    let mut bytes = Vec::new();
    loop {
        match end.link().read(id) {
            StreamRead::Bytes(part) => bytes.extend_from_slice(&part),
            other => return (bytes, other),
        }
    }
}

#[test]
fn a_client_asks_and_the_server_accepts() {
    let mut network = SimulatedNetwork::new(SimulatedLinks::WebTransport);
    let request = request(&mut network);
    assert_eq!(
        request,
        LinkRequest {
            authority: AUTHORITY.into(),
            path: PATH.into(),
            origin: None,
            protocols: vec![MOQ_PROTOCOL.into()],
        }
    );
    // Nothing is connected before the answer.
    network.run(Duration::from_secs(3));
    assert!(!network.client.has(&LinkEvent::Connected));
    assert_eq!(network.client.link().open(Dir::Uni), None);
    assert_eq!(network.server.link().open(Dir::Uni), None);

    let now = network.now;
    network.server.link().accept(now);
    network.run_until(|network| network.client.has(&LinkEvent::Connected));
    assert!(network.server.has(&LinkEvent::Connected));
}

#[test]
fn the_request_takes_two_round_trips() {
    let mut network = SimulatedNetwork::new(SimulatedLinks::WebTransport);
    let start = network.now;
    request(&mut network);
    // One for the handshake, whose last flight from the server has its SETTINGS, and a half for the
    // request.
    assert_eq!(network.now - start, 3 * network.latency);
}

#[test]
fn streams_carry_bytes_both_ways() {
    let mut network = connected();
    let up = network.client.link().open(Dir::Uni).unwrap();
    assert_eq!(network.client.link().write(up, b"up"), 2);
    network.client.link().finish(up);
    let down = network.server.link().open(Dir::Uni).unwrap();
    assert_eq!(network.server.link().write(down, b"down"), 4);
    let both = network.client.link().open(Dir::Bi).unwrap();
    assert_eq!(network.client.link().write(both, b"question"), 8);
    network.run(Duration::from_millis(50));

    assert_eq!(opened(&mut network.server), Some(both));
    assert_eq!(opened(&mut network.server), Some(up));
    assert_eq!(opened(&mut network.client), Some(down));
    assert_eq!(
        read_all(&mut network.server, up),
        (b"up".to_vec(), StreamRead::Finished)
    );
    assert_eq!(
        read_all(&mut network.client, down),
        (b"down".to_vec(), StreamRead::Blocked)
    );
    assert_eq!(
        read_all(&mut network.server, both),
        (b"question".to_vec(), StreamRead::Blocked)
    );
    assert_eq!(network.server.link().write(both, b"answer"), 6);
    network.server.link().finish(both);
    network.run(Duration::from_millis(50));
    assert!(network.client.has(&LinkEvent::Readable(both)));
    assert_eq!(
        read_all(&mut network.client, both),
        (b"answer".to_vec(), StreamRead::Finished)
    );
    // A stream that is gone reads as reset, and takes all that is written.
    assert_eq!(network.client.link().read(both), StreamRead::Reset(0));
    assert_eq!(network.client.link().read(up), StreamRead::Reset(0));
    assert_eq!(network.server.link().write(both, b"more"), 4);
    assert_eq!(network.server.link().write(up, b"more"), 4);
}

#[test]
fn the_server_opens_a_bidirectional_stream() {
    let mut network = connected();
    let id = network.server.link().open(Dir::Bi).unwrap();
    assert_eq!(network.server.link().write(id, b"question"), 8);
    network.run(Duration::from_millis(50));
    assert_eq!(opened(&mut network.client), Some(id));
    assert_eq!(
        read_all(&mut network.client, id),
        (b"question".to_vec(), StreamRead::Blocked)
    );
    assert_eq!(network.client.link().write(id, b"answer"), 6);
    network.client.link().finish(id);
    network.run(Duration::from_millis(50));
    assert_eq!(
        read_all(&mut network.server, id),
        (b"answer".to_vec(), StreamRead::Finished)
    );
}

#[test]
fn codes_of_resets_and_stops_arrive() {
    for code in [0, 24, 30, u32::MAX] {
        let mut network = connected();
        let up = network.client.link().open(Dir::Uni).unwrap();
        network.client.link().write(up, b"begin");
        let down = network.server.link().open(Dir::Uni).unwrap();
        network.server.link().write(down, b"begin");
        network.run(Duration::from_millis(50));

        network.client.link().reset(up, code);
        network.client.link().stop(down, code);
        network.run(Duration::from_millis(50));
        let (_, end) = read_all(&mut network.server, up);
        assert_eq!(end, StreamRead::Reset(code));
        assert!(network.server.has(&LinkEvent::Stopped { id: down, code }));
        assert_eq!(network.server.link().write(down, b"more"), 4);
    }
}

#[test]
fn loss_and_reordering_lose_nothing() {
    let mut network = SimulatedNetwork::new(SimulatedLinks::WebTransport);
    network.loss_percent = 10;
    network.jitter = Duration::from_millis(30);
    connect(&mut network);
    let (mut sent, mut received) = (0, 0);
    let mut lengths = BTreeMap::new();
    while received < 200 {
        for index in 0..10 {
            for end in [&mut network.client, &mut network.server] {
                if sent < 200
                    && let Some(id) = end.link().open(Dir::Uni)
                {
                    let payload = vec![index; 200];
                    assert_eq!(end.link().write(id, &payload), 200);
                    end.link().finish(id);
                    sent += 1;
                }
            }
        }
        network.run(Duration::from_millis(20));
        for end in [&mut network.client, &mut network.server] {
            while let Some(event) = end.events.pop_front() {
                let (LinkEvent::Opened(id) | LinkEvent::Readable(id)) = event else {
                    continue;
                };
                let (bytes, result) = read_all(end, id);
                let length = lengths.entry(id).or_insert(0);
                *length += bytes.len();
                match result {
                    StreamRead::Finished => received += 1,
                    StreamRead::Blocked => continue,
                    // The event is older than the read that found the end.
                    other => assert_eq!(other, StreamRead::Reset(0)),
                }
                assert_eq!(*length, 200);
            }
        }
    }
    assert_eq!(received, 200);
}

#[test]
fn an_unread_stream_blocks_its_writer() {
    let mut network = connected();
    let id = network.client.link().open(Dir::Uni).unwrap();
    let data: Vec<u8> = (0..1_000_000_u32).map(|index| index as u8).collect();
    let mut written = network.client.link().write(id, &data);
    network.run(Duration::from_secs(5));
    network.client.events.clear();
    written += network.client.link().write(id, &data[written..]);
    assert!((60_000..=64 * 1024).contains(&written), "{written}");

    let (mut bytes, _) = read_all(&mut network.server, id);
    assert_eq!(bytes.len(), written);
    while bytes.len() < data.len() {
        network.run(Duration::from_millis(50));
        if network.client.take(|event| *event == LinkEvent::Writable(id)).is_some() {
            written += network.client.link().write(id, &data[written..]);
        }
        bytes.extend(read_all(&mut network.server, id).0);
    }
    assert_eq!(bytes, data);
}

#[test]
fn a_backlog_leaves_room_for_other_streams() {
    let mut network = connected();
    let backlog = network.client.link().open(Dir::Uni).unwrap();
    let data: Vec<u8> = (0..200_000_u32).map(|index| index as u8).collect();
    let mut written = network.client.link().write_backlog(backlog, &data);
    assert!((31 * 1024..=32 * 1024).contains(&written), "{written}");
    let audio = network.client.link().open(Dir::Uni).unwrap();
    assert_eq!(network.client.link().write(audio, &[1; 10_000]), 10_000);

    let mut received = Vec::new();
    while received.len() < data.len() {
        network.run(Duration::from_millis(50));
        if network
            .client
            .take(|event| *event == LinkEvent::Writable(backlog))
            .is_some()
        {
            written += network.client.link().write_backlog(backlog, &data[written..]);
        }
        received.extend(read_all(&mut network.server, backlog).0);
    }
    assert_eq!(received, data);
    assert_eq!(read_all(&mut network.server, audio).0, [1; 10_000]);
}

#[test]
fn streams_are_limited_and_become_available_again() {
    let mut network = connected();
    let mut opened_by_client = Vec::new();
    while let Some(id) = network.client.link().open(Dir::Uni) {
        network.client.link().write(id, b"group");
        network.client.link().finish(id);
        opened_by_client.push(id);
    }
    // The control stream of HTTP/3 is one of the 128.
    assert!((127..=128).contains(&opened_by_client.len()));
    network.run(Duration::from_millis(100));
    while let Some(id) = opened(&mut network.server) {
        read_all(&mut network.server, id);
    }
    network.run(Duration::from_millis(100));
    assert!(network.client.has(&LinkEvent::Available(Dir::Uni)));
    assert!(network.client.link().open(Dir::Uni).is_some());
}

#[test]
fn a_stream_with_a_higher_priority_is_sent_first() {
    let mut network = connected();
    // More than the congestion window holds, and then something urgent.
    let bulk = network.client.link().open(Dir::Uni).unwrap();
    network.client.link().write(bulk, &[0; 60_000]);
    let urgent = network.client.link().open(Dir::Uni).unwrap();
    network.client.link().set_priority(urgent, 1);
    network.client.link().write(urgent, b"urgent");
    network.client.link().finish(urgent);
    network.run_until(|network| network.server.has(&LinkEvent::Opened(urgent)));
    let (bytes, _) = read_all(&mut network.server, bulk);
    assert!(bytes.len() < 30_000, "{}", bytes.len());
}

#[test]
fn an_empty_stream_arrives() {
    let mut network = connected();
    let id = network.client.link().open(Dir::Uni).unwrap();
    network.client.link().finish(id);
    network.run(Duration::from_millis(50));
    assert_eq!(opened(&mut network.server), Some(id));
    assert_eq!(network.server.link().read(id), StreamRead::Finished);
}

#[test]
fn a_close_tells_code_and_reason() {
    for is_client in [true, false] {
        let mut network = connected();
        let now = network.now;
        let (closing, other) = match is_client {
            true => (&mut network.client, &mut network.server),
            false => (&mut network.server, &mut network.client),
        };
        closing.link().close(7, "bye", now);
        other.events.clear();
        network.run(Duration::from_secs(5));
        let (closing, other) = match is_client {
            true => (&mut network.client, &mut network.server),
            false => (&mut network.server, &mut network.client),
        };
        assert_eq!(closed(closing), Some(LinkClosed::Locally));
        assert_eq!(
            closed(other),
            Some(LinkClosed::ByPeer {
                code: 7,
                reason: "bye".into()
            })
        );
        assert!(closing.events.is_empty() && other.events.is_empty());
        assert!(closing.link().is_drained() && other.link().is_drained());
        assert_eq!(closing.link().open(Dir::Uni), None);
    }
}

#[test]
fn what_was_written_before_a_close_is_sent_before_it() {
    let mut network = connected();
    let id = network.server.link().open(Dir::Uni).unwrap();
    network.server.link().write(id, &[1; 10_000]);
    network.server.link().finish(id);
    let now = network.now;
    network.server.link().close(0, "", now);
    let mut bytes = Vec::new();
    network.run_until(|network| {
        if network.client.link.is_some() {
            bytes.extend(read_all(&mut network.client, id).0);
        }
        network
            .client
            .events
            .iter()
            .any(|event| matches!(event, LinkEvent::Closed(_)))
    });
    // The rest shares its packet with the close.
    assert!(bytes.len() > 10_000 - 1200, "{}", bytes.len());
}

#[test]
fn a_close_before_the_answer_ends_the_connection() {
    let mut network = SimulatedNetwork::new(SimulatedLinks::WebTransport);
    request(&mut network);
    let now = network.now;
    network.client.link().close(3, "changed my mind", now);
    network.run(Duration::from_secs(5));
    assert_eq!(
        closed(&mut network.server),
        Some(LinkClosed::ByPeer {
            code: 3,
            reason: "changed my mind".into()
        })
    );
    let now = network.now;
    network.server.link().accept(now);
    network.run(Duration::from_secs(1));
    assert!(!network.server.has(&LinkEvent::Connected));
}

#[test]
fn a_rejection_tells_the_status() {
    let mut network = SimulatedNetwork::new(SimulatedLinks::WebTransport);
    request(&mut network);
    let now = network.now;
    network.server.link().reject(401, now);
    network.run(Duration::from_secs(5));
    assert_eq!(closed(&mut network.client), Some(LinkClosed::Rejected(401)));
    assert_eq!(closed(&mut network.server), Some(LinkClosed::Locally));
    assert!(network.client.link().is_drained() && network.server.link().is_drained());
}

#[test]
fn a_silent_connection_is_kept_and_a_dead_one_times_out() {
    let mut network = connected();
    network.run(Duration::from_secs(120));
    assert!(network.client.events.is_empty(), "{:?}", network.client.events);

    network.loss_percent = 100;
    network.run(Duration::from_secs(60));
    assert_eq!(closed(&mut network.client), Some(LinkClosed::TimedOut));
    assert_eq!(closed(&mut network.server), Some(LinkClosed::TimedOut));
    assert!(network.server.link().is_drained());
}

#[test]
fn a_close_on_a_dead_network_drains() {
    let mut network = connected();
    network.loss_percent = 100;
    let now = network.now;
    network.server.link().close(0, "", now);
    network.run(Duration::from_secs(5));
    assert_eq!(closed(&mut network.server), Some(LinkClosed::Locally));
    assert!(network.server.link().is_drained());
}

#[test]
fn a_server_without_the_protocol_fails_the_handshake() {
    // The client wants the ALPN of MoQ over QUIC; this server has that of HTTP/3.
    let mut network = SimulatedNetwork::with_other_alpn();
    network.run(Duration::from_secs(5));
    match closed(&mut network.client) {
        Some(LinkClosed::Failed(reason)) => assert!(reason.contains("120"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn datagrams_fit_the_smallest_path() {
    let mut network = connected();
    let id = network.server.link().open(Dir::Uni).unwrap();
    network.server.link().write(id, &[0; 50_000]);
    network.run(Duration::from_secs(5));
    assert!(network.server.sent.iter().all(|size| *size <= 1200));
}
