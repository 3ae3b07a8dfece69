//! Rooms that are lost, and whether the session returns to them.

use super::super::*;
use super::simulation::{DialResult, FakeParticipant, Simulation, secs};
use super::*;
use crate::audio::tone::{Tone, share};
use crate::livekit::wire::{MuteTrackRequest, ServerMessage};
use crate::participant::Participant;
use crate::webrtc::connection::sfu::tests::rig::{RATE_HZ, Talker, ms};

fn names(sim: &Simulation, from: usize) -> Vec<&'static str> {
    let name = |event: &SessionEvent| match event {
        SessionEvent::Joined => "joined",
        SessionEvent::ParticipantJoined(_) => "came",
        SessionEvent::ParticipantLeft(_) => "went",
        SessionEvent::Lost => "lost",
        SessionEvent::Restored => "resumed",
        SessionEvent::Left(_) => "left",
        SessionEvent::SpeechStarted | SessionEvent::SpeechStopped => "speech",
        _ => "else",
    };
    let names = sim.events[from..].iter().map(|(_, event)| name(event));
    names.filter(|name| *name != "speech").collect()
}

/// A server restart of 20 s is survived: bot, speech, messages and participants remain, and the
/// audio continues on the new connection.
#[test]
fn survives_a_server_restart() {
    let mut sim = Simulation::with_caller();
    sim.speech.extend(Tone::new(440.0, RATE_HZ).take(6 * RATE_HZ as usize));
    sim.run(secs(1));
    let (before, waiting) = (sim.events.len(), sim.speech.len());
    sim.kill_server();
    sim.participants[0] = FakeParticipant::caller("PA_ann2", "ann");
    sim.with(|session, _| session.handle_message("while away".into()));
    sim.run(secs(20));
    // Without signalling it takes a moment to see that the media is lost too.
    assert!(
        waiting - sim.speech.len() <= 2 * RATE_HZ as usize,
        "what was to be said waits"
    );
    assert_eq!(names(&sim, before), ["lost"]);
    sim.dial_result = DialResult::Open;
    assert!(sim.run_until(secs(10), |sim| sim.has(&SessionEvent::Restored)));
    sim.run(secs(4));
    assert_eq!(names(&sim, before), ["lost", "resumed"], "announced once");
    assert_eq!(sim.texts, ["while away"]);
    let said = sim.bot_audio();
    let loud = said.iter().filter(|sample| sample.unsigned_abs() > 1_000).count();
    assert!(
        loud > 7 * RATE_HZ as usize / 2,
        "six seconds of tone, {loud} samples of them loud"
    );
    assert!(
        share(
            &said[said.len() - 5 * RATE_HZ as usize / 2..][..RATE_HZ as usize],
            440.0,
            RATE_HZ
        ) > 0.0
    );
    for timestamps in sim.timestamps.iter().filter(|timestamps| timestamps.len() > 1) {
        assert!(
            timestamps
                .windows(2)
                .all(|pair| pair[1] > pair[0] && (pair[1] - pair[0]) % 960 == 0)
        );
    }
    let mut talkers = [("TR_ann2", Talker::new(600.0))];
    sim.play_speech(&mut talkers, 60);
    let mixed = sim.mixed();
    assert!(share(&mixed[mixed.len() - RATE_HZ as usize / 2..], 600.0, RATE_HZ) > 0.8);
    sim.run(ROOM_LEAVE_AFTER * 2);
    assert_eq!(sim.end_reason(), None);
    let at: Vec<u64> = sim.dials.iter().map(|(at, _)| at.as_secs()).collect();
    assert!(sim.dials.len() > 5 && sim.dials.len() < 12, "{at:?}");
}

/// A room that is joined anew has a new track of the bot, which an administrator has not muted.
#[test]
fn a_muted_bot_is_heard_again_after_a_rejoin() {
    let mut sim = Simulation::with_caller();
    let mutes = |sim: &Simulation| [true, false].map(|muted| sim.count(&SessionEvent::Muted(muted)));
    let mute = || {
        ServerMessage::Mute(MuteTrackRequest {
            sid: "TR_own".into(),
            muted: true,
        })
    };
    sim.send_and_drain(mute());
    assert_eq!(mutes(&sim), [1, 0]);
    sim.kill_server();
    sim.participants[0] = FakeParticipant::caller("PA_ann2", "ann");
    sim.dial_result = DialResult::Open;
    assert!(sim.run_until(secs(10), |sim| sim.has(&SessionEvent::Restored)));
    assert_eq!(mutes(&sim), [1, 1]);
    sim.send_and_drain(mute());
    assert_eq!(mutes(&sim), [2, 1]);
}

/// Participants that do not return are reported as gone. A room that remains empty is left.
#[test]
fn reports_participants_that_do_not_return() {
    let mut sim = Simulation::with_caller();
    sim.participant_joins(FakeParticipant::caller("PA_bob1", "bob"));
    sim.set_speaking("PA_bob1", true);
    let before = sim.events.len();
    sim.kill_server();
    sim.participants.remove(1);
    sim.participants[0] = FakeParticipant::caller("PA_ann2", "ann");
    sim.dial_result = DialResult::Open;
    sim.run(secs(2));
    assert_eq!(
        names(&sim, before),
        ["else", "lost", "resumed"],
        "bob has stopped to speak"
    );
    sim.run(ROOM_REGATHER_WITHIN - secs(3));
    assert_eq!(names(&sim, before), ["else", "lost", "resumed"]);
    sim.run(secs(3));
    assert_eq!(names(&sim, before), ["else", "lost", "resumed", "went"]);

    let before = sim.events.len();
    sim.kill_server();
    sim.participants.clear();
    sim.dial_result = DialResult::Open;
    sim.run(ROOM_REGATHER_WITHIN);
    assert_eq!(names(&sim, before), ["lost"]);
    sim.participant_joins(FakeParticipant::caller("PA_ann3", "ann"));
    assert_eq!(names(&sim, before), ["lost", "resumed"], "just in time");
    sim.kill_server();
    sim.participants.clear();
    sim.dial_result = DialResult::Open;
    sim.run(ROOM_REGATHER_WITHIN + secs(2));
    assert_eq!(names(&sim, before), ["lost", "resumed", "lost", "went", "left"]);
    assert_eq!(sim.end_reason(), Some(LeaveReason::Left));
}

/// Once the earlier participants have returned, the room empties like any other.
#[test]
fn does_not_wait_for_participants_that_returned_and_left() {
    let mut sim = Simulation::with_caller();
    sim.kill_server();
    sim.participants[0] = FakeParticipant::caller("PA_ann2", "ann");
    sim.dial_result = DialResult::Open;
    sim.run(secs(2));
    sim.participant_leaves("ann");
    sim.run(ROOM_LEAVE_AFTER);
    assert_eq!(sim.end_reason(), Some(LeaveReason::Left));
}

/// A room that is lost before the first caller is not waited in for longer.
#[test]
fn reconnecting_does_not_extend_the_wait_for_the_first_caller() {
    let mut sim = Simulation::new();
    sim.start_audio();
    for _ in 0..3 {
        sim.run(ROOM_FIRST_CALLER_WITHIN / 4);
        sim.break_socket();
    }
    sim.run(ROOM_FIRST_CALLER_WITHIN / 4 + secs(1));
    assert_eq!(sim.end_reason(), Some(LeaveReason::NeverConnected));
}

/// A turn that is on when the room is lost ends at once, interrupted or not. The rest of it is a
/// new turn.
#[test]
fn a_speech_turn_ends_with_its_connection() {
    for interrupted in [false, true] {
        let mut sim = Simulation::with_caller();
        sim.speech.extend(Tone::new(440.0, RATE_HZ).take(5 * RATE_HZ as usize));
        sim.run(secs(1));
        let turns =
            |sim: &Simulation| [SessionEvent::SpeechStarted, SessionEvent::SpeechStopped].map(|turn| sim.count(&turn));
        assert_eq!(turns(&sim), [1, 0]);
        sim.kill_server();
        sim.run(ROOM_PROBE_WITHIN + ms(20));
        assert_eq!((turns(&sim), sim.accepts_speech()), ([1, 1], false));
        sim.participants[0] = FakeParticipant::caller("PA_ann2", "ann");
        if interrupted {
            sim.speech.clear();
            sim.with(|session, now| session.handle_interruption(now));
        }
        sim.dial_result = DialResult::Open;
        sim.run(secs(10));
        assert_eq!(turns(&sim), if interrupted { [1, 1] } else { [2, 2] });
    }
}

/// A server that does not return is given up after a minute.
#[test]
fn gives_up_a_server_that_does_not_return() {
    let mut sim = Simulation::with_caller();
    let lost = sim.now;
    sim.kill_server();
    assert!(sim.run_until(secs(100), |sim| sim.gone.is_some()));
    assert_eq!(sim.end_reason(), Some(LeaveReason::Failed));
    let lasted = sim.now - lost;
    assert!(
        (ROOM_REJOIN_WITHIN - secs(6)..=ROOM_REJOIN_WITHIN).contains(&lasted),
        "{lasted:?}"
    );
    assert!(sim.join_failed().is_none());

    // So is one that refuses.
    for (status, ends) in [(401, true), (404, true), (503, false)] {
        let mut sim = Simulation::with_caller();
        sim.kill_server();
        sim.dial_result = DialResult::Refused(status);
        sim.run(secs(3));
        assert_eq!(sim.end_reason(), ends.then_some(LeaveReason::Failed), "{status}");
    }
}

/// Any failure is recovered from: of the socket, of the server's messages, of the media. Only the
/// last one is noticed.
#[test]
fn recovers_from_any_failure() {
    let mut sim = Simulation::with_caller();
    sim.break_socket();
    sim.run(secs(3));
    assert_eq!(sim.dials.len(), 2);

    sim.answers = false;
    sim.run(ROOM_PING_TIMEOUT + secs(6));
    sim.answers = true;
    sim.run(CONNECT_WITHIN + secs(6));
    assert!(sim.dials.len() > 2);
    assert_eq!(sim.count(&SessionEvent::Lost), 0);

    sim.run(ROOM_SETTLED);
    sim.network = false;
    sim.run(secs(12));
    assert_eq!(sim.count(&SessionEvent::Lost), 1);
    sim.network = true;
    sim.run(CONNECT_WITHIN + secs(6));
    assert_eq!((sim.count(&SessionEvent::Restored), sim.end_reason()), (1, None));
    assert_eq!(sim.count(&SessionEvent::ParticipantLeft(ann())), 0);
}

fn ann() -> Participant {
    Participant {
        identity: "ann".into(),
        name: "ann!".into(),
        ..Participant::default()
    }
}

/// A server that admits and removes the bot again and again is given up.
#[test]
fn gives_up_a_flapping_server() {
    let mut sim = Simulation::with_caller();
    let began = sim.now;
    while sim.end_reason().is_none() {
        assert!(sim.now - began < secs(90), "{:?}", sim.dials.len());
        if sim.run_until(secs(10), |sim| sim.session.is_live()) {
            sim.run(secs(1));
            sim.send_leave(6, 2);
        }
    }
    assert_eq!(sim.end_reason(), Some(LeaveReason::Failed));
    assert!(sim.dials.len() < 20);
}

/// the leave reason and action decide what follows.
#[test]
fn follows_the_leave_reason_of_the_server() {
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
        let mut sim = Simulation::with_caller();
        sim.send_leave(reason, action);
        sim.run(secs(4));
        assert_eq!(sim.end_reason(), left, "{reason} {action}");
        assert_eq!(sim.dials.len(), if left.is_some() { 1 } else { 2 }, "{reason} {action}");
        assert_eq!(sim.gone.is_some(), left.is_some());
    }
}

/// The newest token is used to reconnect.
#[test]
fn reconnects_with_the_newest_token() {
    let mut sim = Simulation::with_caller();
    sim.send_and_drain(ServerMessage::RefreshToken("second".into()));
    sim.break_socket();
    sim.run(secs(3));
    let tokens: Vec<&str> = sim.dials.iter().map(|(_, dial)| dial.token.expose()).collect();
    assert_eq!(tokens, ["first", "second"]);
}

/// A bot that ends, or a runner that stops, ends a reconnecting session at once.
#[test]
fn ends_at_once_while_reconnecting() {
    for dial_result in [DialResult::Unreachable, DialResult::NoAnswer, DialResult::Silent] {
        for wait in [ms(100), ms(600), secs(4)] {
            let mut sim = Simulation::with_caller();
            sim.kill_server();
            sim.dial_result = dial_result.clone();
            // Its last speech would go on while media may be alive.
            sim.run(ROOM_PROBE_WITHIN + wait);
            sim.with(|session, now| session.handle_bot_end(LeaveReason::BotEnded, now));
            assert_eq!(
                sim.end_reason(),
                Some(LeaveReason::BotEnded),
                "{dial_result:?} {wait:?}"
            );
            sim.run(ROOM_CLOSE_WITHIN);
            assert!(sim.gone.is_some(), "{dial_result:?} {wait:?}");
        }
    }
    // Its last speech has no listeners.
    let mut sim = Simulation::with_caller();
    sim.speech.extend(Tone::new(440.0, RATE_HZ).take(30 * RATE_HZ as usize));
    sim.run(ms(100));
    sim.with(|session, now| session.handle_bot_end(LeaveReason::BotEnded, now));
    sim.kill_server();
    sim.run(FINISH_WITHIN);
    assert_eq!(sim.end_reason(), Some(LeaveReason::BotEnded));
}
