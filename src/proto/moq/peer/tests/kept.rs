//! Snapshots and logs: late and slow subscribers, bounds, and the end of a track.

use super::*;
use crate::moq::link::Dir;
use crate::moq::message::{GroupBounds, STREAM_SUBSCRIBE, SubscribeMessage, SubscribeTerms};

/// A subscription by hand, with its bounds.
fn raw_subscribe(bot: &mut Bot, id: u64, track: &str, groups: GroupBounds) -> StreamId {
    let message = SubscribeMessage {
        id,
        broadcast: "n/response".to_owned(),
        track: track.to_owned(),
        terms: SubscribeTerms {
            groups,
            ..SubscribeTerms::default()
        },
    };
    let mut bytes = vec![STREAM_SUBSCRIBE as u8];
    message.write(&mut bytes);
    bot.pair.raw(1, Dir::Bi, &bytes)
}

/// What the bot sent on a stream, and how it ended it.
fn sent(bot: &mut Bot, id: StreamId) -> (Vec<u8>, StreamRead) {
    let (_, mut streams) = bot.pair.side(1);
    let mut bytes = Vec::new();
    loop {
        match streams.read(id) {
            StreamRead::Bytes(more) => bytes.extend_from_slice(&more),
            end => return (bytes, end),
        }
    }
}

/// The groups that the bot sent since the last call: their bytes behind the type.
fn sent_groups(bot: &mut Bot) -> Vec<Vec<u8>> {
    let (_, streams) = bot.pair.side(1);
    let groups: Vec<_> = streams.sent_streams();
    let groups = groups.into_iter().filter(|id| id.dir() == Dir::Uni);
    groups
        .map(|id| sent(bot, id).0)
        .filter(|bytes| !bytes.is_empty())
        .collect()
}

#[test]
fn a_newer_snapshot_replaces_one_that_is_stuck() {
    let mut bot = Bot::published();
    bot.write(bot.catalog, &[1; 100]);
    bot.pair.network.window = 30;
    bot.subscribe("catalog.json", CATALOG);
    let mut events = Vec::new();
    bot.pair.run_side(0, &mut events);
    bot.write(bot.catalog, &[2; 100]);
    bot.write(bot.catalog, &[3; 100]);
    assert_eq!(frames(&bot.pair.run()[1]), [[3; 100]]);
}

#[test]
fn a_log_is_sent_whole_to_each_subscription() {
    let mut bot = Bot::published();
    for round in 1..5 {
        bot.write(bot.records, &[round; 3]);
        let id = bot.subscribe("transcript.json.z", RECORDS);
        assert_eq!(frames(&bot.pair.run()[1]).len(), usize::from(round));
        let (peer, mut streams) = bot.pair.side(1);
        peer.unsubscribe(id, &mut streams);
        bot.pair.run();
    }
}

#[test]
fn a_log_bounds_what_it_keeps_for_a_subscriber_that_does_not_read() {
    let mut bot = Bot::published();
    bot.subscribe("transcript.json.z", RECORDS);
    bot.pair.run();
    bot.pair.network.window = 1_000;
    let mut written = 0;
    let record = [5; 10_000];
    let violation = loop {
        bot.write(bot.records, &record);
        written += record.len();
        let mut events = Vec::new();
        bot.pair.run_side(0, &mut events);
        if let Some(event) = events.pop() {
            break event;
        }
        assert!(written < 2 * tracks::LOG_BYTES_MAX);
    };
    let reason = "the peer does not read the track transcript.json.z".to_owned();
    assert_eq!(violation, MoqEvent::Violation(reason));
    assert!(written > tracks::LOG_BYTES_MAX);
}

#[test]
fn a_long_log_goes_on_for_a_subscriber_that_reads_and_is_closed_to_later_ones() {
    let mut bot = Bot::published();
    bot.subscribe("transcript.json.z", RECORDS);
    let record = [5; 50_000];
    let count = 3 * tracks::LOG_BYTES_MAX / record.len();
    let mut received = 0;
    for _ in 0..count {
        bot.write(bot.records, &record);
        received += frames(&bot.pair.run()[1]).len();
    }
    assert_eq!(received, count);
    assert!(bot.pair.side(0).0.is_truncated(bot.records));
    let late = bot.subscribe("transcript.json.z", RECORDS);
    let ended = MoqEvent::Ended {
        subscription: late,
        code: Some(STREAM_CODE_TOO_LATE),
    };
    assert_eq!(bot.pair.run()[1], [ended]);
    bot.pair.network = network::Network::new();
    bot.pair.peers[0].reconnect(33);
    bot.pair.peers[0].restart(bot.records);
    bot.pair.peers[1].reconnect(44);
    bot.write(bot.records, b"again");
    bot.subscribe("transcript.json.z", RECORDS);
    assert_eq!(frames(&bot.pair.run()[1]), [b"again"]);
}

#[test]
fn a_log_without_a_subscriber_is_bounded() {
    let mut bot = Bot::published();
    for _ in 0..3 * tracks::LOG_BYTES_MAX / 50_000 {
        bot.write(bot.records, &[5; 50_000]);
    }
    let (peer, _) = bot.pair.side(0);
    assert!(peer.is_truncated(bot.records));
    assert_eq!(bot.pair.run(), [vec![], vec![]]);
}

#[test]
fn what_is_kept_is_sent_whole_before_the_end_of_a_track() {
    let mut bot = Bot::published();
    bot.pair.network.window = 7;
    bot.write(bot.catalog, &[1; 100]);
    bot.write(bot.records, &[2; 100]);
    let catalog = bot.subscribe("catalog.json", CATALOG);
    let records = bot.subscribe("transcript.json.z", RECORDS);
    let mut events = Vec::new();
    bot.pair.run_side(0, &mut events);
    for track in [bot.catalog, bot.records] {
        let (peer, mut streams) = bot.pair.side(0);
        peer.finish(track, &mut streams);
    }
    bot.write(bot.records, b"ignored");
    let events = bot.pair.run()[1].clone();
    assert_eq!(frames(&events).len(), 2);
    for subscription in [catalog, records] {
        let ended = MoqEvent::Ended {
            subscription,
            code: None,
        };
        assert!(events.contains(&ended));
    }
    // A later subscriber receives what is kept, and the end.
    bot.subscribe("transcript.json.z", RECORDS);
    let events = bot.pair.run()[1].clone();
    assert_eq!(frames(&events), [[2; 100]]);
    assert!(matches!(events.last(), Some(MoqEvent::Ended { code: None, .. })));
}

#[test]
fn a_snapshot_below_the_first_wanted_group_is_not_sent() {
    let mut bot = Bot::published();
    bot.write(bot.catalog, b"a");
    let bounds = GroupBounds {
        start: Some(1),
        end: Some(2),
    };
    let id = raw_subscribe(&mut bot, 0, "catalog.json", bounds);
    let mut events = Vec::new();
    bot.pair.run_side(0, &mut events);
    assert_eq!(sent_groups(&mut bot), [] as [Vec<u8>; 0]);
    bot.write(bot.catalog, b"b");
    assert_eq!(sent_groups(&mut bot), [[0, 2, 0, 1, 1, b'b']]);
    bot.write(bot.catalog, b"c");
    assert_eq!(sent_groups(&mut bot), [[0, 2, 0, 2, 1, b'c']]);
    // SUBSCRIBE_OK repeats the terms, and the range is over.
    assert_eq!(sent(&mut bot, id), (vec![0, 5, 0, 0, 0, 2, 3], StreamRead::Finished));
    bot.write(bot.catalog, b"d");
    assert_eq!(sent_groups(&mut bot), [] as [Vec<u8>; 0]);
    assert!(!bot.pair.side(0).0.has_subscriber(bot.catalog));
}

#[test]
fn bounds_select_the_groups_of_a_live_track() {
    let mut bot = Bot::published();
    let bounds = GroupBounds {
        start: Some(2),
        end: Some(3),
    };
    raw_subscribe(&mut bot, 9, "bot-audio", bounds);
    let mut events = Vec::new();
    bot.pair.run_side(0, &mut events);
    for number in 0..6 {
        bot.write(bot.audio, &[number]);
    }
    assert_eq!(sent_groups(&mut bot), [[0, 2, 9, 2, 1, 2], [0, 2, 9, 3, 1, 3]]);
    assert!(!bot.pair.side(0).0.has_subscriber(bot.audio));
}

#[test]
fn an_update_changes_the_bounds() {
    let mut bot = Bot::published();
    let id = raw_subscribe(&mut bot, 0, "bot-audio", GroupBounds::default());
    let mut update = Vec::new();
    SubscribeTerms::default().write_update(&mut update);
    let terms = SubscribeTerms {
        groups: GroupBounds {
            start: None,
            end: Some(0),
        },
        ..SubscribeTerms::default()
    };
    terms.write_update(&mut update);
    let (_, mut streams) = bot.pair.side(1);
    streams.write(id, &update);
    let mut events = Vec::new();
    bot.pair.run_side(0, &mut events);
    bot.write(bot.audio, b"a");
    bot.write(bot.audio, b"b");
    assert_eq!(sent_groups(&mut bot), [[0, 2, 0, 0, 1, b'a']]);
    assert_eq!(sent(&mut bot, id).1, StreamRead::Finished);
}
