//! Groups of live tracks: their budget, their number, and their end with the subscription.

use super::*;
use crate::moq::link::Dir;
use crate::moq::peer::live::LIVE_FRAMES_MAX;

/// A bot whose audio is subscribed, with streams that take `window` bytes until they are read.
fn subscribed(window: usize) -> Bot {
    let mut bot = Bot::published();
    bot.subscribe("bot-audio", AUDIO);
    bot.pair.run();
    bot.pair.network.window = window;
    bot
}

fn deadline(bot: &mut Bot) -> Option<Instant> {
    bot.pair.side(0).0.poll_timeout()
}

fn expire(bot: &mut Bot, now: Instant) {
    bot.pair.side(0).0.handle_timeout(now);
}

fn ended_groups(events: &[MoqEvent], of_reset: bool) -> Vec<u64> {
    let group = |event: &MoqEvent| match event {
        MoqEvent::GroupEnded { group, is_reset, .. } => (*is_reset == of_reset).then_some(*group),
        _ => None,
    };
    events.iter().filter_map(group).collect()
}

/// The sequences of the groups that ended whole.
fn sequences(events: &[MoqEvent]) -> Vec<u64> {
    assert!(ended_groups(events, true).is_empty(), "no group is aborted");
    ended_groups(events, false)
}

/// The published player waits for a missing sequence until its buffer is full.
#[test]
fn late_frames_leave_no_gap_in_the_sequences() {
    let mut bot = subscribed(usize::MAX);
    bot.write(bot.audio, b"first");
    let first = bot.pair.run()[1].clone();
    bot.pair.network.set_credit(0, Dir::Uni, 0);
    bot.write_at(bot.audio, b"late", now());
    bot.write_at(bot.audio, b"soon", now() + Duration::from_millis(400));
    assert_eq!(deadline(&mut bot), Some(now() + LIVE_BUDGET));
    expire(&mut bot, now() + LIVE_BUDGET - Duration::from_millis(1));
    expire(&mut bot, now() + LIVE_BUDGET);
    assert_eq!(
        deadline(&mut bot),
        Some(now() + LIVE_BUDGET + Duration::from_millis(400))
    );
    bot.pair.network.set_credit(0, Dir::Uni, 5);
    let second = bot.pair.run()[1].clone();
    assert_eq!(frames(&second), [b"soon"]);
    assert_eq!([sequences(&first), sequences(&second)], [[0], [1]]);
    assert_eq!(deadline(&mut bot), None);
}

#[test]
fn a_group_that_began_is_sent_to_its_end() {
    let mut bot = subscribed(10);
    bot.write(bot.audio, &[1; 80]);
    let mut events = Vec::new();
    bot.pair.run_side(1, &mut events);
    expire(&mut bot, now() + 10 * LIVE_BUDGET);
    bot.pair.side(0).0.drop_live();
    events.extend(bot.pair.run()[1].clone());
    assert_eq!(frames(&events), [[1; 80]]);
    assert_eq!(sequences(&events), [0]);
}

/// A connection that stands still holds a fixed number of groups, and the frames that waited less
/// than the budget follow when it moves again.
#[test]
fn groups_in_flight_are_capped() {
    let mut bot = subscribed(0);
    let sending = bot.pair.network.sending(0);
    let last = 99;
    for number in 0..=last {
        let at = now() + Duration::from_millis(20 * u64::from(number));
        expire(&mut bot, at);
        bot.write_at(bot.audio, &[number; 80], at);
        bot.pair.run_side(0, &mut Vec::new());
    }
    assert_eq!(bot.pair.network.sending(0) - sending, LIVE_FRAMES_MAX);
    bot.pair.network.window = 1_000;
    bot.pair.wake_writers(0);
    let events = bot.pair.run()[1].clone();
    let waiting = (LIVE_BUDGET.as_millis() / 20) as u8;
    let expected = (0..LIVE_FRAMES_MAX as u8).chain(last + 1 - waiting..=last);
    let mut received = frames(&events);
    received.sort();
    assert_eq!(received, expected.map(|number| vec![number; 80]).collect::<Vec<_>>());
    let mut order = sequences(&events);
    order.sort();
    assert!(order.into_iter().eq(0..received.len() as u64));
}

#[test]
fn an_interruption_drops_what_waits() {
    let mut bot = subscribed(usize::MAX);
    bot.pair.network.set_credit(0, Dir::Uni, 0);
    bot.write(bot.audio, b"dropped");
    bot.pair.side(0).0.drop_live();
    bot.write(bot.audio, b"answer");
    bot.pair.network.set_credit(0, Dir::Uni, 5);
    let events = bot.pair.run()[1].clone();
    assert_eq!(
        (frames(&events), sequences(&events)),
        (vec![b"answer".to_vec()], vec![0])
    );
}

/// While one of two subscriptions cannot get a group, neither does.
#[test]
fn every_subscription_gets_every_sequence() {
    let mut bot = subscribed(usize::MAX);
    bot.subscribe("bot-audio", AUDIO);
    bot.pair.run();
    bot.pair.network.set_credit(0, Dir::Uni, 1);
    bot.write(bot.audio, b"one");
    assert_eq!(frames(&bot.pair.run()[1]), Vec::<Vec<u8>>::new());
    bot.pair.network.set_credit(0, Dir::Uni, 9);
    bot.write(bot.audio, b"two");
    let events = bot.pair.run()[1].clone();
    let mut order = sequences(&events);
    order.sort();
    assert_eq!(order, [0, 0, 1, 1]);
}

/// A relay drops a group for a browser as soon as the next begins, so it gets few and long ones.
#[test]
fn groups_of_several_frames_begin_and_end_in_step() {
    let mut bot = subscribed(usize::MAX);
    bot.pair.side(0).0.set_frames_per_group(3);
    for number in 0..4_u8 {
        bot.write(bot.audio, &[number]);
    }
    let events = bot.pair.run()[1].clone();
    assert_eq!(frames(&events), [[0], [1], [2], [3]], "each is sent at once");
    assert_eq!(sequences(&events), [0]);
    // A subscriber in the middle of a group gets the next.
    bot.subscribe("bot-audio", AUDIO);
    bot.pair.run();
    for number in 4..7_u8 {
        bot.write(bot.audio, &[number]);
    }
    let events = bot.pair.run()[1].clone();
    let mut received = frames(&events);
    received.sort();
    assert_eq!(received, [[4], [5], [6], [6]]);
    assert_eq!(sequences(&events), [1]);
    bot.pair.side(0).0.drop_live();
    let audio = bot.audio;
    let (peer, mut streams) = bot.pair.side(0);
    peer.finish(audio, &mut streams);
    assert_eq!(
        sequences(&bot.pair.run()[1]),
        [2, 2],
        "the last group ends with the track"
    );
}

/// A stream that takes nothing holds a frame in part, and further ones wait.
#[test]
fn a_blocked_group_loses_late_frames_and_goes_on() {
    let mut bot = subscribed(10);
    bot.pair.side(0).0.set_frames_per_group(3);
    bot.write_at(bot.audio, &[1; 80], now());
    bot.write_at(bot.audio, &[2; 80], now());
    bot.write_at(bot.audio, &[3; 80], now() + Duration::from_millis(400));
    expire(&mut bot, now() + LIVE_BUDGET);
    bot.write_at(bot.audio, &[4; 80], now() + LIVE_BUDGET);
    let events = bot.pair.run()[1].clone();
    assert_eq!(frames(&events), [[1; 80], [3; 80], [4; 80]]);
    assert_eq!(sequences(&events), [0]);
}

#[test]
fn groups_end_with_their_subscription() {
    let mut bot = Bot::published();
    let id = bot.subscribe("bot-audio", AUDIO);
    bot.pair.run();
    bot.pair.network.window = 10;
    bot.write(bot.audio, &[1; 80]);
    let (peer, mut streams) = bot.pair.side(1);
    peer.unsubscribe(id, &mut streams);
    assert_eq!(bot.pair.run()[1], []);
    assert_eq!(deadline(&mut bot), None);
    assert!(!bot.pair.side(0).0.has_subscriber(bot.audio));
    assert_eq!(bot.pair.network.sending(0), 0, "no stream is left open");
    assert_eq!(bot.pair.network.sending(1), 0, "no stream is left open");
    bot.write(bot.audio, b"unheard");
    assert_eq!(bot.pair.run(), [vec![], vec![]]);
}

#[test]
fn a_receiver_that_stops_a_group_hears_the_next() {
    let mut bot = subscribed(10);
    bot.write(bot.audio, &[1; 80]);
    let (_, mut streams) = bot.pair.side(1);
    let id = *streams.sent_streams().last().expect("a group");
    streams.stop(id, 0);
    bot.pair.network.window = 1_000;
    bot.write(bot.audio, b"next");
    assert_eq!(frames(&bot.pair.run()[1]), [b"next"]);
}

/// Fifty packets a second for a minute leave nothing behind.
#[test]
fn a_minute_of_audio_leaves_nothing_behind() {
    let mut bot = subscribed(usize::MAX);
    let mut received = 0;
    for packet in 0..3_000_u64 {
        let at = now() + Duration::from_millis(20 * packet);
        bot.pair.network.set_credit(0, Dir::Uni, 1);
        expire(&mut bot, at);
        bot.write_at(bot.audio, &[9; 100], at);
        received += frames(&bot.pair.run()[1]).len();
        bot.pair.network.forget_over();
    }
    assert_eq!(received, 3_000);
    expire(&mut bot, now() + Duration::from_secs(61));
    assert_eq!(deadline(&mut bot), None);
    let caller = &bot.pair.peers[1];
    assert_eq!(
        (caller.inbound.len(), caller.partial_bytes),
        (1, 0),
        "the replies alone"
    );
}
