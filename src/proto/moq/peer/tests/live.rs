//! Groups of live tracks: their budget, their number, and their end with the subscription.

use super::*;
use crate::moq::link::Dir;
use crate::moq::peer::live::LIVE_GROUPS_MAX;

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
    let (peer, mut streams) = bot.pair.side(0);
    peer.handle_timeout(now, &mut streams);
}

fn ended_groups(events: &[MoqEvent], of_reset: bool) -> Vec<u64> {
    let group = |event: &MoqEvent| match event {
        MoqEvent::GroupEnded { group, is_reset, .. } => (*is_reset == of_reset).then_some(*group),
        _ => None,
    };
    events.iter().filter_map(group).collect()
}

#[test]
fn a_group_that_is_not_sent_within_its_budget_is_aborted() {
    let mut bot = subscribed(10);
    bot.write_at(bot.audio, &[1; 80], now());
    bot.write_at(bot.audio, &[2; 80], now() + Duration::from_millis(20));
    assert_eq!(deadline(&mut bot), Some(now() + LIVE_BUDGET));
    expire(&mut bot, now() + LIVE_BUDGET - Duration::from_millis(1));
    expire(&mut bot, now() + LIVE_BUDGET);
    assert_eq!(
        deadline(&mut bot),
        Some(now() + LIVE_BUDGET + Duration::from_millis(20))
    );
    let events = bot.pair.run()[1].clone();
    assert_eq!(frames(&events), [[2; 80]]);
    assert_eq!(ended_groups(&events, false), [1]);
    // The aborted group had not begun for the receiver, or it is reported as aborted.
    assert!(ended_groups(&events, true).iter().all(|group| *group == 0));
}

#[test]
fn a_group_that_is_being_received_ends_when_it_is_aborted() {
    let mut bot = subscribed(10);
    bot.write(bot.audio, &[1; 80]);
    let mut events = Vec::new();
    bot.pair.run_side(1, &mut events);
    expire(&mut bot, now() + LIVE_BUDGET);
    let events = bot.pair.run()[1].clone();
    assert_eq!(ended_groups(&events, true), [0]);
    assert_eq!(frames(&events).len(), 0);
}

#[test]
fn a_group_without_a_stream_is_dropped_after_its_budget() {
    let mut bot = subscribed(usize::MAX);
    bot.pair.network.set_credit(0, Dir::Uni, 0);
    bot.write_at(bot.audio, b"late", now());
    bot.write_at(bot.audio, b"soon", now() + Duration::from_millis(400));
    expire(&mut bot, now() + Duration::from_millis(600));
    bot.pair.network.set_credit(0, Dir::Uni, 5);
    assert_eq!(frames(&bot.pair.run()[1]), [b"soon"]);
}

/// A connection that stands still holds at most a fixed number of groups.
#[test]
fn groups_in_flight_are_capped() {
    let mut bot = subscribed(0);
    let sending = bot.pair.network.sending(0);
    for number in 0..100_u8 {
        bot.write(bot.audio, &[number; 80]);
        let mut events = Vec::new();
        bot.pair.run_side(0, &mut events);
    }
    let (_, mut streams) = bot.pair.side(1);
    let open: Vec<_> = streams
        .sent_streams()
        .into_iter()
        .filter(|id| id.dir() == Dir::Uni)
        .collect();
    let aborted = open
        .iter()
        .filter(|id| matches!(streams.read(**id), StreamRead::Reset(2)));
    assert_eq!(aborted.count(), 100 - LIVE_GROUPS_MAX);
    assert_eq!(bot.pair.network.sending(0) - sending, LIVE_GROUPS_MAX);
    bot.pair.network.window = 1_000;
    let fresh: Vec<Vec<u8>> = (68..100_u8).map(|number| vec![number; 80]).collect();
    bot.pair.wake_writers(0);
    assert_eq!(frames(&bot.pair.run()[1]), fresh);
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
