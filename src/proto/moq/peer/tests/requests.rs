//! Requests of a remote end that are unusual, invalid or too many.

use super::*;
use crate::moq::link::Dir;
use crate::moq::message::{AnnounceMessage, GroupHeader, HOPS_MAX, STREAM_SUBSCRIBE, SubscribeMessage, SubscribeTerms};

/// How the peer of side 0 answered a stream that the other side opened by hand.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    /// `None` if its sending half is open.
    end: Option<StreamRead>,
    is_stopped: bool,
}

fn answer(pair: &mut Pair, id: StreamId) -> Answer {
    let is_stopped = pair.network.halves[1][&id].is_over;
    let (_, mut streams) = pair.side(1);
    let end = (id.dir() == Dir::Bi).then(|| streams.read(id));
    Answer {
        end: end.filter(|end| *end != StreamRead::Blocked),
        is_stopped,
    }
}

fn run_bot(pair: &mut Pair) -> Vec<MoqEvent> {
    let mut events = Vec::new();
    pair.run_side(0, &mut events);
    events
}

fn request(id: u64, broadcast: &str, track: &str) -> Vec<u8> {
    let message = SubscribeMessage {
        id,
        broadcast: broadcast.to_owned(),
        track: track.to_owned(),
        terms: SubscribeTerms::default(),
    };
    let mut bytes = vec![STREAM_SUBSCRIBE as u8];
    message.write(&mut bytes);
    bytes
}

/// Opens the stream of announcements of side 0, and returns it.
fn discovering(pair: &mut Pair) -> StreamId {
    let (peer, mut streams) = pair.side(0);
    peer.discover("", &mut streams);
    let (_, streams) = pair.side(1);
    *streams.sent_streams().last().expect("the request")
}

fn announce(pair: &mut Pair, id: StreamId, suffix: &str, hops: &[u64], is_active: bool) {
    let message = AnnounceMessage {
        is_active,
        suffix: suffix.to_owned(),
        hops: hops.to_vec(),
    };
    let mut bytes = Vec::new();
    message.write(&mut bytes);
    let (_, mut streams) = pair.side(1);
    assert_eq!(streams.write(id, &bytes), bytes.len());
}

/// The bytes of a browser's request for all announcements: type, length, prefix, excluded hop.
#[test]
fn a_browser_gets_the_broadcast() {
    let mut bot = Bot::published();
    let id = bot
        .pair
        .raw(1, Dir::Bi, b"\x01\x09\x00\xc0\x1f\xff\xff\xff\xff\xff\xff");
    run_bot(&mut bot.pair);
    let (_, mut streams) = bot.pair.side(1);
    assert_eq!(
        streams.read(id),
        StreamRead::Bytes(Bytes::from_static(b"\x0e\x01\x0an/response\x01\x0b"))
    );
}

#[test]
fn unknown_stream_types_end_their_stream_alone() {
    let mut bot = Bot::published();
    for (dir, kind) in [
        (Dir::Bi, &b"\x00"[..]),
        (Dir::Bi, b"\x06\x01\x00"),
        (Dir::Bi, b"\xff\xff\xff\xff\xff\xff\xff\xff"),
        (Dir::Uni, b"\x01\x00"),
        (Dir::Uni, b"\x40\x02junk"),
    ] {
        let id = bot.pair.raw(1, dir, kind);
        assert_eq!(run_bot(&mut bot.pair), []);
        let ended = Answer {
            end: (dir == Dir::Bi).then_some(StreamRead::Reset(STREAM_CODE_UNSUPPORTED)),
            is_stopped: true,
        };
        assert_eq!(answer(&mut bot.pair, id), ended, "{kind:?}");
    }
    bot.write(bot.records, b"alive");
    bot.subscribe("transcript.json.z", RECORDS);
    assert_eq!(frames(&bot.pair.run()[1]), [b"alive"]);
}

#[test]
fn a_probe_is_finished_a_fetch_rejected_and_a_farewell_reported() {
    let mut bot = Bot::published();
    let finished = Answer {
        end: Some(StreamRead::Finished),
        is_stopped: true,
    };
    let id = bot.pair.raw(1, Dir::Bi, b"\x04");
    assert_eq!(run_bot(&mut bot.pair), []);
    assert_eq!(answer(&mut bot.pair, id), finished);
    let id = bot.pair.raw(1, Dir::Bi, b"\x05\x05\x04http");
    assert_eq!(run_bot(&mut bot.pair), [MoqEvent::GoingAway]);
    assert_eq!(answer(&mut bot.pair, id), finished);
    let id = bot.pair.raw(1, Dir::Bi, b"\x03\x05\x01n\x01t\x00\x00");
    assert_eq!(run_bot(&mut bot.pair), []);
    assert_eq!(
        answer(&mut bot.pair, id).end,
        Some(StreamRead::Reset(STREAM_CODE_UNSUPPORTED))
    );
}

#[test]
fn subscriptions_wait_for_the_broadcast_and_unknown_ones_are_rejected() {
    let mut bot = Bot::new();
    let known = bot.subscribe("bot-audio", AUDIO);
    let unknown_track = bot.subscribe("video", AUDIO);
    let (peer, mut streams) = bot.pair.side(1);
    let unknown_broadcast = peer.subscribe("m/response", "bot-audio", AUDIO, &mut streams);
    assert_eq!(bot.pair.run(), [vec![], vec![]]);
    let (peer, mut streams) = bot.pair.side(0);
    peer.publish("n/response", &mut streams);
    let mut events = bot.pair.run()[1].clone();
    let ended = |subscription| MoqEvent::Ended {
        subscription,
        code: Some(STREAM_CODE_NOT_FOUND),
    };
    events.sort_by_key(|event| format!("{event:?}"));
    let accepted = MoqEvent::Accepted { subscription: known };
    assert_eq!(events, [accepted, ended(unknown_track), ended(unknown_broadcast)]);
    let (peer, mut streams) = bot.pair.side(0);
    peer.retract(&mut streams);
    let late = bot.subscribe("bot-audio", AUDIO);
    assert_eq!(bot.pair.run()[1], [ended(late)]);
}

#[test]
fn requests_are_capped() {
    let mut bot = Bot::new();
    let over = |pair: &mut Pair, id: StreamId| {
        run_bot(pair);
        answer(pair, id).end == Some(StreamRead::Reset(STREAM_CODE_TOO_MANY))
    };
    for number in 0..=publisher::SUBSCRIBERS_MAX {
        let bytes = request(number as u64, "n/response", "bot-audio");
        let id = bot.pair.raw(1, Dir::Bi, &bytes);
        let is_over = over(&mut bot.pair, id);
        assert_eq!(is_over, number == publisher::SUBSCRIBERS_MAX, "subscription {number}");
    }
    for number in 0..=publisher::INTERESTS_MAX {
        let id = bot.pair.raw(1, Dir::Bi, b"\x01\x02\x00\x00");
        assert_eq!(
            over(&mut bot.pair, id),
            number == publisher::INTERESTS_MAX,
            "request {number}"
        );
    }
}

#[test]
fn an_id_serves_one_subscription_at_a_time() {
    let mut bot = Bot::published();
    let bytes = request(5, "n/response", "bot-audio");
    bot.pair.raw(1, Dir::Bi, &bytes);
    let second = bot.pair.raw(1, Dir::Bi, &bytes);
    run_bot(&mut bot.pair);
    assert_eq!(
        answer(&mut bot.pair, second).end,
        Some(StreamRead::Reset(STREAM_CODE_DUPLICATE))
    );
}

/// A closed or stopped request ends the subscription, as browsers do both at once.
#[test]
fn a_subscriber_leaves_by_closing_or_stopping() {
    for case in 0..3 {
        let mut bot = Bot::published();
        let bytes = request(5, "n/response", "bot-audio");
        let id = bot.pair.raw(1, Dir::Bi, &bytes);
        run_bot(&mut bot.pair);
        assert!(bot.pair.side(0).0.has_subscriber(bot.audio));
        let (_, mut streams) = bot.pair.side(1);
        match case {
            0 => streams.finish(id),
            1 => streams.reset(id, 0),
            _ => {
                streams.finish(id);
                streams.stop(id, 0);
            }
        }
        run_bot(&mut bot.pair);
        assert!(!bot.pair.side(0).0.has_subscriber(bot.audio), "case {case}");
        assert_eq!(bot.pair.peers[0].inbound.len(), 0);
    }
}

#[test]
fn invalid_messages_end_their_stream_and_many_of_them_the_session() {
    let invalid: [&[u8]; 6] = [
        // A length that no message has, and a prefix longer than its message.
        b"\x01\xbf\xff\xff\xff",
        b"\x01\x02\x3f\x00",
        // A prefix that is not UTF-8, and bytes behind the message.
        b"\x01\x03\x01\xff\x00",
        b"\x01\x02\x00\x00more",
        b"\x02\x01\x00",
        b"\x02\x03\x00\x00\x00",
    ];
    let mut bot = Bot::published();
    let mut events = Vec::new();
    for round in 0.. {
        bot.pair.network.set_credit(1, Dir::Bi, 1);
        let id = bot.pair.raw(1, Dir::Bi, invalid[round % invalid.len()]);
        events = run_bot(&mut bot.pair);
        if !events.is_empty() {
            break;
        }
        assert!(answer(&mut bot.pair, id).is_stopped);
        assert_eq!(bot.pair.peers[0].inbound.len(), 0);
        assert!(round < 100, "the session ends");
    }
    assert_eq!(events, [MoqEvent::Violation("too many invalid streams".to_owned())]);
    bot.pair.raw(1, Dir::Uni, b"\x00");
    assert_eq!(run_bot(&mut bot.pair), [], "nothing follows");
}

#[test]
fn an_announcement_that_is_too_long_ends_the_session() {
    let mut bot = Bot::new();
    let id = discovering(&mut bot.pair);
    let (_, mut streams) = bot.pair.side(1);
    streams.write(id, b"\xbf\xff\xff\xff");
    let events = run_bot(&mut bot.pair);
    let reason = "an announcement that is too long".to_owned();
    assert_eq!(events, [MoqEvent::Violation(reason)]);
}

#[test]
fn ten_thousand_announcements_end_the_session_early() {
    let mut bot = Bot::new();
    let id = discovering(&mut bot.pair);
    let mut announced = 0;
    for number in 0..10_000 {
        announce(&mut bot.pair, id, &format!("n{number}/request"), &[7], true);
        match run_bot(&mut bot.pair).as_slice() {
            [MoqEvent::Announced { .. }] => announced += 1,
            [MoqEvent::Violation(reason)] => {
                assert_eq!(reason, "more than 64 broadcasts announced");
                break;
            }
            other => panic!("unexpected {other:?}"),
        }
    }
    assert_eq!(announced, consumer::ANNOUNCEMENTS_MAX);
}

/// A caller that comes and goes uses no room.
#[test]
fn retracted_announcements_make_room() {
    let mut bot = Bot::new();
    let id = discovering(&mut bot.pair);
    for _ in 0..1_000 {
        announce(&mut bot.pair, id, "n/request", &[7], true);
        announce(&mut bot.pair, id, "n/request", &[8], true);
        announce(&mut bot.pair, id, "n/request", &[], false);
        announce(&mut bot.pair, id, "n/other", &[], false);
        let path = "n/request".to_owned();
        let announced = MoqEvent::Announced { path: path.clone() };
        assert_eq!(run_bot(&mut bot.pair), [announced, MoqEvent::Retracted { path }]);
    }
}

#[test]
fn the_end_of_the_announcements_retracts_them() {
    for code in [None, Some(4)] {
        let mut bot = Bot::new();
        let id = discovering(&mut bot.pair);
        announce(&mut bot.pair, id, "n/request", &[7; HOPS_MAX], true);
        run_bot(&mut bot.pair);
        let (_, mut streams) = bot.pair.side(1);
        match code {
            None => streams.finish(id),
            Some(code) => streams.reset(id, code),
        }
        let path = "n/request".to_owned();
        assert_eq!(run_bot(&mut bot.pair), [MoqEvent::Retracted { path }]);
    }
}

#[test]
fn an_announcement_that_passed_through_this_end_is_ignored() {
    let mut bot = Bot::new();
    let id = discovering(&mut bot.pair);
    announce(&mut bot.pair, id, "n/response", &[11, 99], true);
    assert_eq!(run_bot(&mut bot.pair), []);
}

#[test]
fn an_invalid_announcement_ends_the_session() {
    let mut bot = Bot::new();
    let id = discovering(&mut bot.pair);
    let (_, mut streams) = bot.pair.side(1);
    streams.write(id, b"\x03\x02\x00\x00");
    let reason = "in an announcement: a message has an invalid value".to_owned();
    assert_eq!(run_bot(&mut bot.pair), [MoqEvent::Violation(reason)]);
}

/// A group of a subscription of the caller, by hand.
fn raw_group(pair: &mut Pair, subscription: u64, sequence: u64, frames: &[u8]) -> StreamId {
    let mut bytes = Vec::new();
    GroupHeader { subscription, sequence }.write(&mut bytes);
    bytes.extend_from_slice(frames);
    pair.raw(0, Dir::Uni, &bytes)
}

fn run_caller(pair: &mut Pair) -> Vec<MoqEvent> {
    let mut events = Vec::new();
    pair.run_side(1, &mut events);
    events
}

/// The length alone ends the session: no byte of the catalog is waited for.
#[test]
fn a_catalog_of_ten_megabytes_ends_the_session() {
    let mut bot = Bot::published();
    let id = bot.subscribe("catalog.json", CATALOG);
    raw_group(&mut bot.pair, id.0, 0, &[0x80, 0x98, 0x96, 0x80]);
    let reason = "a frame of catalog.json has 10000000 bytes, more than 65536".to_owned();
    assert_eq!(run_caller(&mut bot.pair), [MoqEvent::Violation(reason)]);
}

#[test]
fn a_long_frame_of_audio_ends_its_group_alone() {
    let mut bot = Bot::published();
    let subscription = bot.subscribe("bot-audio", AUDIO);
    raw_group(&mut bot.pair, subscription.0, 3, &[0x50, 0x01]);
    let ended = MoqEvent::GroupEnded {
        subscription,
        group: 3,
        is_reset: true,
    };
    assert_eq!(run_caller(&mut bot.pair), [ended]);
    bot.pair.run();
    bot.write(bot.audio, b"next");
    assert_eq!(frames(&bot.pair.run()[1]), [b"next"]);
}

#[test]
fn a_group_that_ends_within_a_frame_counts_as_aborted() {
    let mut bot = Bot::published();
    let subscription = bot.subscribe("bot-audio", AUDIO);
    let id = raw_group(&mut bot.pair, subscription.0, 3, b"\x01a\x02b");
    let (_, mut streams) = bot.pair.side(0);
    streams.finish(id);
    let events = run_caller(&mut bot.pair);
    assert_eq!(frames(&events), [b"a"]);
    let ended = MoqEvent::GroupEnded {
        subscription,
        group: 3,
        is_reset: true,
    };
    assert_eq!(events.last(), Some(&ended));
}

#[test]
fn too_many_groups_at_once_end_the_oldest() {
    let mut bot = Bot::published();
    let subscription = bot.subscribe("bot-audio", AUDIO);
    for sequence in 0..80 {
        raw_group(&mut bot.pair, subscription.0, sequence, &[5]);
    }
    let events = run_caller(&mut bot.pair);
    let ended = |group| MoqEvent::GroupEnded {
        subscription,
        group,
        is_reset: true,
    };
    let oldest: Vec<_> = (0..80 - consumer::GROUPS_IN_FLIGHT_MAX as u64).map(ended).collect();
    assert_eq!(events, oldest);
}

#[test]
fn groups_of_no_subscription_are_stopped() {
    let mut bot = Bot::published();
    let id = raw_group(&mut bot.pair, 77, 0, b"\x01a");
    assert_eq!(run_caller(&mut bot.pair), []);
    assert!(bot.pair.network.halves[0][&id].is_over);
    assert_eq!(bot.pair.peers[1].inbound.len(), 0);
}

/// Many incomplete frames are bounded together.
#[test]
fn incomplete_frames_are_bounded() {
    let mut bot = Bot::published();
    let mut sent = 0;
    for number in 0..30_u64 {
        let id = bot.subscribe("transcript.json.z", RECORDS);
        // Three quarters of the longest frame.
        let mut frame = vec![0x80, 0x03, 0, 0];
        frame.resize(150_000, number as u8);
        raw_group(&mut bot.pair, id.0, 0, &frame);
        sent += frame.len();
        let events = run_caller(&mut bot.pair);
        if events.contains(&MoqEvent::Violation("too many incomplete messages".to_owned())) {
            assert!(sent > 1_000_000, "{sent}");
            return;
        }
        assert_eq!(events, []);
    }
    panic!("{sent} bytes were taken");
}

/// A peer that opens streams and sends nothing on them holds a fixed number.
#[test]
fn silent_streams_are_bounded() {
    let mut bot = Bot::published();
    for _ in 0..1_000 {
        bot.pair.network.set_credit(1, Dir::Uni, 1);
        let (_, mut streams) = bot.pair.side(1);
        streams.open(Dir::Uni).expect("credit");
        assert_eq!(run_bot(&mut bot.pair), []);
    }
    assert_eq!(bot.pair.peers[0].inbound.len(), 256);
}

/// A peer that never reads its announcements loses the stream.
#[test]
fn announcements_to_a_peer_that_does_not_read_are_bounded() {
    let mut bot = Bot::new();
    bot.pair.network.window = 4;
    let (peer, mut streams) = bot.pair.side(1);
    peer.discover("", &mut streams);
    let mut events = Vec::new();
    for _ in 0..20 {
        bot.pair.run_side(0, &mut events);
        let mut streams = bot.pair.network.streams(1);
        bot.pair.peers[1].handle_event(LinkEvent::Connected, &mut streams);
        bot.pair.wake_writers(1);
    }
    for _ in 0..10_000 {
        let (peer, mut streams) = bot.pair.side(0);
        peer.publish("n/response", &mut streams);
        peer.retract(&mut streams);
    }
    let (_, streams) = bot.pair.side(0);
    let id = streams.sent_streams()[0];
    assert_eq!(bot.pair.network.reset_code(0, id), Some(STREAM_CODE_CANCEL));
}
