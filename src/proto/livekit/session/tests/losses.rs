//! Rooms that are lost, and come back to or not.

use super::super::*;
use super::house::{Door, Guest, House, secs};
use super::*;
use crate::audio::tone::{Tone, share};
use crate::livekit::wire::ServerMessage;
use crate::participant::Participant;
use crate::webrtc::connection::sfu::tests::world::{RATE_HZ, Talker, ms};

fn names(house: &House, from: usize) -> Vec<&'static str> {
    let name = |event: &SessionEvent| match event {
        SessionEvent::Joined => "joined",
        SessionEvent::ParticipantJoined(_) => "came",
        SessionEvent::ParticipantLeft(_) => "went",
        SessionEvent::Lost => "lost",
        SessionEvent::Resumed => "resumed",
        SessionEvent::Left(_) => "left",
        SessionEvent::SpeechStarted | SessionEvent::SpeechStopped => "speech",
        _ => "else",
    };
    let names = house.events[from..].iter().map(|(_, event)| name(event));
    names.filter(|name| *name != "speech").collect()
}

/// A server that restarts for 20 s is survived: bot, speech, texts and participants stay, and the voice goes on in the new
/// connection.
#[test]
fn the_restart_of_a_server_is_survived() {
    let mut house = House::with_caller();
    house
        .speech
        .extend(Tone::new(440.0, RATE_HZ).take(3 * RATE_HZ as usize));
    house.run(secs(1));
    let (before, waiting) = (house.events.len(), house.speech.len());
    house.dies();
    house.guests[0] = Guest::caller("PA_ann2", "ann");
    house.with(|session, _| session.handle_message("while away".into()));
    house.run(secs(20));
    assert!(
        waiting - house.speech.len() < RATE_HZ as usize / 5,
        "what was to be said waits"
    );
    assert_eq!(names(&house, before), ["lost"]);
    house.door = Door::Open;
    assert!(house.run_until(secs(10), |house| house.has(&SessionEvent::Resumed)));
    house.run(secs(4));
    assert_eq!(names(&house, before), ["lost", "resumed"], "nobody is announced twice");
    assert_eq!(house.texts, ["while away"]);
    let said = house.bot_said();
    let loud = said.iter().filter(|sample| sample.unsigned_abs() > 1_000).count();
    assert!(
        loud > 2 * RATE_HZ as usize,
        "three seconds of tone, {loud} samples of them loud"
    );
    assert!(
        share(
            &said[said.len() - 5 * RATE_HZ as usize / 2..][..RATE_HZ as usize],
            440.0,
            RATE_HZ
        ) > 0.0
    );
    for stamps in house.stamps.iter().filter(|stamps| stamps.len() > 1) {
        assert!(
            stamps
                .windows(2)
                .all(|pair| pair[1] > pair[0] && (pair[1] - pair[0]) % 960 == 0)
        );
    }
    let mut talkers = [("TR_ann2", Talker::new(600.0))];
    house.talks(&mut talkers, 60);
    let mixed = house.mixed();
    assert!(share(&mixed[mixed.len() - RATE_HZ as usize / 2..], 600.0, RATE_HZ) > 0.8);
    house.run(ROOM_EMPTY * 2);
    assert_eq!(house.left(), None);
    let at: Vec<u64> = house.dials.iter().map(|(at, _)| at.as_secs()).collect();
    assert!(house.dials.len() > 5 && house.dials.len() < 12, "{at:?}");
}

/// Whoever does not come back after a loss is announced as gone; a room that stays empty after it is left.
#[test]
fn whoever_does_not_come_back_is_gone() {
    let mut house = House::with_caller();
    house.comes(Guest::caller("PA_bob1", "bob"));
    house.speaks("PA_bob1", true);
    let before = house.events.len();
    house.dies();
    house.guests.remove(1);
    house.guests[0] = Guest::caller("PA_ann2", "ann");
    house.door = Door::Open;
    house.run(secs(2));
    assert_eq!(
        names(&house, before),
        ["else", "lost", "resumed"],
        "bob has stopped to speak"
    );
    house.run(ROOM_REGATHER - secs(3));
    assert_eq!(names(&house, before), ["else", "lost", "resumed"]);
    house.run(secs(3));
    assert_eq!(names(&house, before), ["else", "lost", "resumed", "went"]);

    let before = house.events.len();
    house.dies();
    house.guests.clear();
    house.door = Door::Open;
    house.run(ROOM_REGATHER);
    assert_eq!(names(&house, before), ["lost"]);
    house.comes(Guest::caller("PA_ann3", "ann"));
    assert_eq!(names(&house, before), ["lost", "resumed"], "just in time");
    house.dies();
    house.guests.clear();
    house.door = Door::Open;
    house.run(ROOM_REGATHER + secs(2));
    assert_eq!(names(&house, before), ["lost", "resumed", "lost", "went", "left"]);
    assert_eq!(house.left(), Some(LeaveReason::Left));
}

/// Once those who were there have come back, a room that they leave is as empty as any.
#[test]
fn whoever_came_back_and_leaves_is_not_waited_for_longer() {
    let mut house = House::with_caller();
    house.dies();
    house.guests[0] = Guest::caller("PA_ann2", "ann");
    house.door = Door::Open;
    house.run(secs(2));
    house.goes("ann");
    house.run(ROOM_EMPTY);
    assert_eq!(house.left(), Some(LeaveReason::Left));
}

/// A room that is lost before anybody came is waited in no longer than another.
#[test]
fn losses_do_not_prolong_the_wait_for_the_first_caller() {
    let mut house = House::new();
    house.enter();
    for _ in 0..3 {
        house.run(ROOM_NOBODY / 4);
        house.breaks();
    }
    house.run(ROOM_NOBODY / 4 + secs(1));
    assert_eq!(house.left(), Some(LeaveReason::NeverConnected));
}

/// A turn that is on when the room is lost ends there and then, interrupted or not; what is left of it is another one.
#[test]
fn a_turn_ends_with_the_stay_that_heard_it() {
    for interrupted in [false, true] {
        let mut house = House::with_caller();
        house
            .speech
            .extend(Tone::new(440.0, RATE_HZ).take(3 * RATE_HZ as usize));
        house.run(secs(1));
        let turns =
            |house: &House| [SessionEvent::SpeechStarted, SessionEvent::SpeechStopped].map(|turn| house.count(&turn));
        assert_eq!(turns(&house), [1, 0]);
        house.dies();
        assert_eq!((turns(&house), house.accepts_speech()), ([1, 1], false));
        house.guests[0] = Guest::caller("PA_ann2", "ann");
        if interrupted {
            house.speech.clear();
            house.with(|session, now| session.handle_interruption(now));
        }
        house.door = Door::Open;
        house.run(secs(10));
        assert_eq!(turns(&house), if interrupted { [1, 1] } else { [2, 2] });
    }
}

/// A server that does not come back is given up after a minute.
#[test]
fn a_server_that_does_not_come_back_is_given_up() {
    let mut house = House::with_caller();
    let lost = house.now;
    house.dies();
    assert!(house.run_until(secs(100), |house| house.gone.is_some()));
    assert_eq!(house.left(), Some(LeaveReason::Failed));
    let lasted = house.now - lost;
    assert!(
        (ROOM_BACK_WITHIN - secs(6)..=ROOM_BACK_WITHIN).contains(&lasted),
        "{lasted:?}"
    );
    assert!(house.join_failed().is_none());

    // So is one that says no.
    for (status, ends) in [(401, true), (404, true), (503, false)] {
        let mut house = House::with_caller();
        house.dies();
        house.door = Door::Refuses(status);
        house.run(secs(3));
        assert_eq!(house.left(), ends.then_some(LeaveReason::Failed), "{status}");
    }
}

/// Whatever breaks is mended by a new join: the socket, the server's voice, the media.
#[test]
fn whatever_breaks_is_mended() {
    let mut house = House::with_caller();
    house.breaks();
    house.run(secs(3));
    assert_eq!((house.dials.len(), house.count(&SessionEvent::Resumed)), (2, 1));

    house.answers = false;
    house.run(ROOM_PING_TIMEOUT + secs(6));
    assert_eq!(house.count(&SessionEvent::Lost), 2);
    house.answers = true;
    // The stay that was not answered has its time first.
    house.run(CONNECT_WITHIN + secs(6));
    assert_eq!(house.count(&SessionEvent::Resumed), 2);

    house.run(ROOM_SETTLED);
    house.network = false;
    house.run(secs(12));
    assert_eq!(house.count(&SessionEvent::Lost), 3);
    house.network = true;
    house.run(CONNECT_WITHIN + secs(6));
    assert_eq!((house.count(&SessionEvent::Resumed), house.left()), (3, None));
    assert_eq!(house.count(&SessionEvent::ParticipantLeft(ann())), 0);
}

fn ann() -> Participant {
    Participant {
        identity: "ann".into(),
        name: "ann!".into(),
        ..Participant::default()
    }
}

/// A server that lets in and puts out again and again is not come back to for ever.
#[test]
fn a_server_that_flaps_is_given_up() {
    let mut house = House::with_caller();
    let began = house.now;
    while house.left().is_none() {
        assert!(house.now - began < secs(90), "{:?}", house.dials.len());
        if house.run_until(secs(10), |house| house.session.is_live()) {
            house.run(secs(1));
            house.breaks();
        }
    }
    assert_eq!(house.left(), Some(LeaveReason::Failed));
    assert!(house.dials.len() < 20);
}

/// What a server that ends the stay means by it. R-011.
#[test]
fn a_stay_ends_as_the_server_says() {
    for (reason, action, left) in [
        (2, 0, Some(LeaveReason::Replaced)),
        (4, 0, Some(LeaveReason::Left)),
        (5, 0, Some(LeaveReason::Left)),
        (10, 0, Some(LeaveReason::Left)),
        (0, 0, Some(LeaveReason::Failed)),
        (14, 0, Some(LeaveReason::Failed)),
        (3, 0, None),
        (0, 1, None),
        (6, 2, None),
    ] {
        let mut house = House::with_caller();
        house.leave(reason, action);
        house.run(secs(4));
        assert_eq!(house.left(), left, "{reason} {action}");
        assert_eq!(
            house.dials.len(),
            if left.is_some() { 1 } else { 2 },
            "{reason} {action}"
        );
        assert_eq!(house.gone.is_some(), left.is_some());
    }
}

/// The newest token is the one that is used to come back.
#[test]
fn the_newest_token_opens_the_door() {
    let mut house = House::with_caller();
    house.say(ServerMessage::RefreshToken("second".into()));
    house.breaks();
    house.run(secs(3));
    let tokens: Vec<&str> = house.dials.iter().map(|(_, dial)| dial.token.expose()).collect();
    assert_eq!(tokens, ["first", "second"]);
}

/// A bot that ends, or a runner that stops, while the room is lost is gone at once.
#[test]
fn an_end_on_the_way_back_is_an_end() {
    for door in [Door::Unreachable, Door::Dead, Door::Mute] {
        for wait in [ms(100), ms(600), secs(4)] {
            let mut house = House::with_caller();
            house.dies();
            house.door = door.clone();
            house.run(wait);
            house.with(|session, now| session.handle_bot_end(LeaveReason::BotEnded, now));
            assert_eq!(house.left(), Some(LeaveReason::BotEnded), "{door:?} {wait:?}");
            house.run(ROOM_CLOSE_WITHIN);
            assert!(house.gone.is_some(), "{door:?} {wait:?}");
        }
    }
    // Its last words have nobody to hear them.
    let mut house = House::with_caller();
    house
        .speech
        .extend(Tone::new(440.0, RATE_HZ).take(3 * RATE_HZ as usize));
    house.run(ms(100));
    house.with(|session, now| session.handle_bot_end(LeaveReason::BotEnded, now));
    house.dies();
    assert_eq!(house.left(), Some(LeaveReason::BotEnded));
}
