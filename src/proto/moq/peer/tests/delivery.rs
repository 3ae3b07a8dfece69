//! Everything arrives however reads and writes are cut, and whenever streams can be opened.

use super::*;
use crate::moq::link::Dir;

/// Runs a session with all kinds of tracks, and returns the events of the caller: those of each
/// subscription in their order.
fn session(prepare: impl Fn(&mut Pair), release: impl Fn(&mut Pair)) -> Vec<MoqEvent> {
    let mut bot = Bot::new();
    prepare(&mut bot.pair);
    let (peer, mut streams) = bot.pair.side(1);
    peer.discover("n", &mut streams);
    let mut events = bot.pair.run()[1].clone();
    let (peer, mut streams) = bot.pair.side(0);
    peer.publish("n/response", &mut streams);
    bot.write(bot.catalog, &[7; 300]);
    bot.write(bot.records, b"first");
    bot.subscribe("catalog.json", CATALOG);
    bot.subscribe("bot-audio", AUDIO);
    bot.subscribe("transcript.json.z", RECORDS);
    events.extend(bot.pair.run()[1].clone());
    release(&mut bot.pair);
    events.extend(bot.pair.run()[1].clone());
    for number in 0..20 {
        bot.write(bot.audio, &[number; 80]);
        bot.write(bot.records, &[number; 130]);
        events.extend(bot.pair.run()[1].clone());
    }
    for track in [bot.catalog, bot.audio, bot.records] {
        let (peer, mut streams) = bot.pair.side(0);
        peer.finish(track, &mut streams);
        events.extend(bot.pair.run()[1].clone());
    }
    let (peer, mut streams) = bot.pair.side(0);
    peer.retract(&mut streams);
    events.extend(bot.pair.run()[1].clone());
    let order = |event: &MoqEvent| match event {
        MoqEvent::Announced { .. } => 0,
        MoqEvent::Retracted { .. } => 100,
        MoqEvent::Frame { subscription, .. }
        | MoqEvent::GroupEnded { subscription, .. }
        | MoqEvent::Accepted { subscription }
        | MoqEvent::Ended { subscription, .. } => 1 + subscription.0,
        other => panic!("unexpected {other:?}"),
    };
    events.sort_by_key(order);
    events
}

#[test]
fn every_size_of_reads_gives_the_same_events() {
    let whole = session(|_| {}, |_| {});
    assert_eq!(frames(&whole).len(), 1 + 20 + 21);
    for read_max in [1, 2, 3, 5, 7, 11, 64, 79, 80, 81, 130] {
        let cut = session(|pair| pair.network.read_max = read_max, |_| {});
        assert_eq!(cut, whole, "reads of {read_max} bytes");
    }
}

#[test]
fn every_window_gives_the_same_events() {
    let whole = session(|_| {}, |_| {});
    for window in 1..60 {
        let blocked = session(|pair| pair.network.window = window, |_| {});
        assert_eq!(blocked, whole, "a window of {window} bytes");
    }
}

#[test]
fn requests_and_groups_wait_for_streams() {
    let whole = session(|_| {}, |_| {});
    let late = session(
        |pair| {
            pair.network.set_credit(1, Dir::Bi, 0);
            pair.network.set_credit(0, Dir::Uni, 0);
        },
        |pair| {
            for _ in 0..4 {
                pair.network.set_credit(1, Dir::Bi, 1);
                pair.run();
            }
            pair.network.set_credit(0, Dir::Uni, 100);
        },
    );
    // The broadcast and the acceptances were seen by `release`.
    assert_eq!(frames(&late), frames(&whole));
}

/// Bytes stay in the stream, where flow control counts them, until the caller polls.
#[test]
fn a_stream_is_read_as_far_as_the_caller_polls() {
    let mut bot = Bot::published();
    bot.subscribe("transcript.json.z", RECORDS);
    bot.pair.run();
    bot.pair.network.window = 1_000;
    for _ in 0..100 {
        bot.write(bot.records, &[1; 99]);
    }
    let mut events = Vec::new();
    bot.pair.run_side(0, &mut events);
    bot.pair.network.read_max = 250;
    let (peer, mut streams) = bot.pair.side(1);
    let id = *streams.sent_streams().last().expect("the stream of the log");
    peer.handle_event(LinkEvent::Opened(id), &mut streams);
    assert_eq!(streams.unread(id), 1_000);
    assert!(peer.poll_event(&mut streams).is_some());
    assert_eq!(streams.unread(id), 750);
    let events = bot.pair.run()[1].clone();
    assert_eq!(frames(&events).len(), 99);
}

/// Frames that arrived before the end of their track are reported before it.
#[test]
fn frames_come_before_the_end_of_their_track() {
    let mut bot = Bot::published();
    let subscription = bot.subscribe("transcript.json.z", RECORDS);
    bot.pair.run();
    bot.write(bot.records, b"last");
    let (peer, mut streams) = bot.pair.side(0);
    peer.finish(bot.records, &mut streams);
    let events = bot.pair.run()[1].clone();
    assert_eq!(frames(&events), [b"last"]);
    let ended = MoqEvent::Ended {
        subscription,
        code: None,
    };
    assert_eq!(events.last(), Some(&ended));
}

#[test]
fn a_new_link_carries_the_whole_log_and_the_latest_snapshot_again() {
    let mut bot = Bot::published();
    bot.write(bot.catalog, b"catalog");
    bot.write(bot.records, b"one");
    bot.subscribe("transcript.json.z", RECORDS);
    bot.subscribe("catalog.json", CATALOG);
    bot.pair.run();
    bot.write(bot.records, b"unsent");
    bot.pair.network = network::Network::new();
    bot.pair.peers[0].reconnect(33);
    bot.pair.peers[1].reconnect(44);
    let (peer, mut streams) = bot.pair.side(1);
    peer.discover("", &mut streams);
    bot.write(bot.records, b"two");
    let id = bot.subscribe("transcript.json.z", RECORDS);
    bot.subscribe("catalog.json", CATALOG);
    let events = bot.pair.run()[1].clone();
    assert_eq!(id, MoqSubscriptionId(2), "ids are not used again");
    assert_eq!(
        events[0],
        MoqEvent::Announced {
            path: "n/response".to_owned()
        }
    );
    let mut all = frames(&events);
    all.sort();
    assert_eq!(all, [&b"catalog"[..], b"one", b"two", b"unsent"]);
}
