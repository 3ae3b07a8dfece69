//! Two peers, joined by streams in memory.

mod delivery;
mod kept;
mod live;
mod network;
mod requests;

use std::time::{Duration, Instant};

use super::*;
use crate::moq::link::StreamRead;
use network::Pair;

const AUDIO: MoqSubscribeOptions = MoqSubscribeOptions {
    kind: MoqTrackKind::Live,
    priority: 1,
    max_latency: Duration::from_millis(500),
};
const RECORDS: MoqSubscribeOptions = MoqSubscribeOptions {
    kind: MoqTrackKind::Log,
    ..AUDIO
};
const CATALOG: MoqSubscribeOptions = MoqSubscribeOptions {
    kind: MoqTrackKind::Snapshot,
    ..AUDIO
};

#[allow(clippy::disallowed_methods, reason = "a base for the times of a test")]
fn now() -> Instant {
    static BASE: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    *BASE
}

/// The payloads of the frames among `events`.
fn frames(events: &[MoqEvent]) -> Vec<Vec<u8>> {
    let payload = |event: &MoqEvent| match event {
        MoqEvent::Frame { payload, .. } => Some(payload.to_vec()),
        _ => None,
    };
    events.iter().filter_map(payload).collect()
}

/// The bot is peer 0 and publishes all kinds of tracks; the caller is peer 1.
struct Bot {
    pair: Pair,
    catalog: MoqTrackId,
    audio: MoqTrackId,
    records: MoqTrackId,
}

impl Bot {
    fn new() -> Self {
        let mut pair = Pair::new();
        let (peer, _) = pair.side(0);
        let catalog = peer.add_track("catalog.json", MoqTrackKind::Snapshot);
        let audio = peer.add_track("bot-audio", MoqTrackKind::Live);
        let records = peer.add_track("transcript.json.z", MoqTrackKind::Log);
        Self {
            pair,
            catalog,
            audio,
            records,
        }
    }

    fn published() -> Self {
        let mut bot = Self::new();
        let (peer, mut streams) = bot.pair.side(0);
        peer.publish("n/response", &mut streams);
        bot
    }

    fn write(&mut self, track: MoqTrackId, frame: &[u8]) {
        self.write_at(track, frame, now());
    }

    fn write_at(&mut self, track: MoqTrackId, frame: &[u8], now: Instant) {
        let (peer, mut streams) = self.pair.side(0);
        peer.write(track, frame, now, &mut streams);
    }

    fn subscribe(&mut self, track: &str, options: MoqSubscribeOptions) -> MoqSubscriptionId {
        let (peer, mut streams) = self.pair.side(1);
        peer.subscribe("n/response", track, options, &mut streams)
    }
}

#[test]
fn a_broadcast_is_announced_before_and_after_the_request_and_retracted() {
    for is_first in [true, false] {
        let mut bot = Bot::new();
        let (peer, mut streams) = bot.pair.side(0);
        if is_first {
            peer.publish("/n//response/", &mut streams);
        }
        let (peer, mut streams) = bot.pair.side(1);
        peer.discover("", &mut streams);
        let mut events = bot.pair.run()[1].clone();
        let (peer, mut streams) = bot.pair.side(0);
        if !is_first {
            peer.publish("n/response", &mut streams);
        }
        events.extend(bot.pair.run()[1].clone());
        let path = "n/response".to_owned();
        assert_eq!(events, [MoqEvent::Announced { path: path.clone() }]);
        let (peer, mut streams) = bot.pair.side(0);
        peer.retract(&mut streams);
        assert_eq!(bot.pair.run()[1], [MoqEvent::Retracted { path }]);
    }
}

#[test]
fn a_prefix_selects_whole_segments() {
    for (prefix, is_announced) in [("n", true), ("n/response", true), ("n/re", false), ("m", false)] {
        let mut bot = Bot::published();
        let (peer, mut streams) = bot.pair.side(1);
        peer.discover(prefix, &mut streams);
        assert_eq!(!bot.pair.run()[1].is_empty(), is_announced, "{prefix}");
    }
}

#[test]
fn the_three_kinds_of_tracks_reach_a_subscriber() {
    let mut bot = Bot::published();
    bot.write(bot.catalog, b"old");
    bot.write(bot.catalog, b"new");
    bot.write(bot.audio, b"missed");
    bot.write(bot.records, b"one");
    bot.write(bot.records, b"two");
    let catalog = bot.subscribe("catalog.json", CATALOG);
    let audio = bot.subscribe("bot-audio", AUDIO);
    let records = bot.subscribe("transcript.json.z", RECORDS);
    let events = bot.pair.run();
    for subscription in [catalog, audio, records] {
        assert!(events[1].contains(&MoqEvent::Accepted { subscription }));
    }
    assert_eq!(frames(&events[1]), [b"new", b"one", b"two"]);
    for track in [bot.catalog, bot.audio, bot.records] {
        assert!(events[0].contains(&MoqEvent::Subscribed { track }));
        assert!(bot.pair.side(0).0.has_subscriber(track));
    }
    bot.write(bot.audio, b"live");
    bot.write(bot.records, b"three");
    bot.write(bot.catalog, b"newer");
    let frame = |subscription, group, payload| MoqEvent::Frame {
        subscription,
        group,
        payload: Bytes::from_static(payload),
    };
    let ended = |subscription, group| MoqEvent::GroupEnded {
        subscription,
        group,
        is_reset: false,
    };
    let mut events = bot.pair.run()[1].clone();
    let mut wanted = vec![
        frame(audio, 1, b"live"),
        ended(audio, 1),
        frame(records, 0, b"three"),
        frame(catalog, 2, b"newer"),
        ended(catalog, 2),
    ];
    events.sort_by_key(|event| format!("{event:?}"));
    wanted.sort_by_key(|event| format!("{event:?}"));
    assert_eq!(events, wanted);
}
