//! Connections that are lost and resumed: the participant, its track and its subscribers stay.

use super::super::*;
use super::simulation::{DialResult, FakeParticipant, ResumeAnswer, Simulation, secs};
use super::*;
use crate::audio::tone::Tone;
use crate::limits::{ROOM_MEDIA_LOST_AFTER, ROOM_PROBE_INTERVAL, ROOM_PROBE_WITHIN, ROOM_RESUME_PAUSES};
use crate::livekit::wire::{ServerMessage, SignalRequestKind};
use crate::webrtc::connection::sfu::tests::rig::{RATE_HZ, ms};

/// The dials that resume, with their reconnect reason.
fn resumes(sim: &Simulation) -> Vec<&str> {
    let reason = |url: &'_ str| url.find("&reconnect_reason=").map(|at| at + "&reconnect_reason=".len());
    let dials = sim.dials.iter().map(|(_, dial)| dial.url.as_str());
    dials.filter_map(|url| Some(&url[reason(url)?..])).collect()
}

fn joins(sim: &Simulation) -> usize {
    sim.dials.len() - resumes(sim).len()
}

fn is_news(event: &SessionEvent) -> bool {
    !matches!(event, SessionEvent::SpeechStarted | SessionEvent::SpeechStopped)
}

/// Signalling that is lost while the media is alive costs nothing: the bot speaks on, no one is
/// reported as gone, and the server is told of the track and the subscriptions.
#[test]
fn speech_goes_on_while_signalling_is_resumed() {
    let mut sim = Simulation::with_caller();
    sim.send_and_drain(ServerMessage::RefreshToken("second".into()));
    sim.speech.extend(Tone::new(440.0, RATE_HZ).take(10 * RATE_HZ as usize));
    sim.run(secs(1));
    let (before, voice) = (sim.events.len(), sim.voice.len());
    sim.dial_result = DialResult::Unreachable;
    sim.break_socket();
    sim.run(secs(3));
    assert!(sim.voice.len() - voice > 140, "no frame is missing without signalling");
    sim.dial_result = DialResult::Open;
    sim.run(secs(4));
    assert!(sim.voice.len() - voice > 340);
    assert!(
        !sim.events[before..].iter().any(|(_, event)| is_news(event)),
        "{:?}",
        &sim.events[before..]
    );
    assert_eq!(joins(&sim), 1);
    let (_, last) = sim.dials.last().expect("a dial");
    assert!(
        last.url.contains("&reconnect=1&sid=PA_own1&reconnect_reason=1"),
        "{}",
        last.url
    );
    assert_eq!(last.token.expose(), "second");
    let states: Vec<_> = (sim.requests.iter())
        .filter_map(|(_, request)| match request {
            SignalRequestKind::SyncState(state) => Some(state),
            _ => None,
        })
        .collect();
    assert_eq!(states.len(), 1);
    let track = &states[0].publish_tracks[0];
    assert_eq!(track.cid, "bot-audio");
    assert_eq!(track.track.as_ref().map(|track| track.sid.as_str()), Some("TR_own"));
    let subscription = states[0].subscription.as_ref().expect("one");
    assert_eq!(
        (&subscription.track_sids[..], subscription.subscribe),
        (&["TR_ann1".to_owned()][..], true)
    );
    assert!(states[0].offer.is_some() && states[0].answer.is_some());
    let timestamps = sim.timestamps.last().expect("a connection");
    assert_eq!(sim.timestamps.len(), 1, "the same connections");
    assert!(timestamps.windows(2).all(|pair| pair[1] > pair[0]));
    assert!(sim.talks());
    assert_eq!(sim.end_reason(), None);
}

/// An administrator may mute the bot while it has no signalling.
#[test]
fn a_mute_of_the_time_without_signalling_is_noticed() {
    let mut sim = Simulation::with_caller();
    for (is_muted, mutes) in [(true, [1, 0]), (true, [1, 0]), (false, [1, 1])] {
        sim.mutes_bot = is_muted;
        sim.break_socket();
        sim.run(secs(4));
        assert_eq!([true, false].map(|muted| sim.count(&SessionEvent::Muted(muted))), mutes);
    }
    assert_eq!(joins(&sim), 1);
}

/// Every offer of the subscriber connection is answered with its id, also the first one after a
/// resume.
#[test]
fn answers_each_offer_after_a_resume() {
    let mut sim = Simulation::with_caller();
    for _ in 0..3 {
        sim.break_socket();
        sim.run(secs(2));
        sim.participant_joins(FakeParticipant::caller("PA_bob1", "bob"));
        sim.run(ms(100));
        sim.participant_leaves("bob");
    }
    // The simulated server asserts the id of each answer.
    let answers = |request: &&(Duration, SignalRequestKind)| matches!(request.1, SignalRequestKind::Answer(_));
    assert!(sim.requests.iter().filter(answers).count() >= 6);
    assert!(sim.talks());
    assert_eq!(joins(&sim), 1);
}

/// Media that is lost while signalling works is resumed with the reason, and the bot's speech
/// waits meanwhile.
#[test]
fn media_that_is_lost_is_resumed() {
    let mut sim = Simulation::with_caller();
    sim.speech.extend(Tone::new(440.0, RATE_HZ).take(30 * RATE_HZ as usize));
    sim.run(secs(1));
    sim.network = false;
    sim.run(ROOM_MEDIA_LOST_AFTER + secs(2));
    assert_eq!(sim.count(&SessionEvent::Lost), 1);
    let waiting = sim.speech.len();
    sim.run(secs(5));
    assert_eq!(sim.speech.len(), waiting, "speech waits");
    sim.network = true;
    assert!(sim.run_until(secs(10), |sim| sim.has(&SessionEvent::Restored)));
    sim.run(secs(1));
    assert!(sim.speech.len() < waiting);
    assert!(["2", "3"].contains(&resumes(&sim)[0]), "{:?}", resumes(&sim));
    assert_eq!((joins(&sim), sim.end_reason()), (1, None));
    sim.speech.clear();
    sim.run(secs(3));
    assert!(sim.talks());
}

/// A server that is gone is noticed by its media within a moment, not after its ping timeout.
#[test]
fn speech_waits_soon_after_the_server_is_gone() {
    let mut sim = Simulation::with_caller();
    sim.speech.extend(Tone::new(440.0, RATE_HZ).take(20 * RATE_HZ as usize));
    sim.run(secs(1));
    sim.kill_server();
    sim.run(ROOM_PROBE_WITHIN + ROOM_PROBE_INTERVAL);
    assert_eq!(sim.count(&SessionEvent::Lost), 1);
    let waiting = sim.speech.len();
    sim.run(secs(10));
    assert_eq!(sim.speech.len(), waiting);
}

/// A participant that the server no longer has joins anew at once; so does one at a server that
/// knows no resumes, or that closes peer connections for good.
#[test]
fn joins_anew_when_the_server_does_not_resume() {
    for answer in [ResumeAnswer::Leaves, ResumeAnswer::Joins] {
        let mut sim = Simulation::with_caller();
        sim.resume_answer = answer;
        sim.break_socket();
        assert!(
            sim.run_until(secs(3), |sim| sim.count(&SessionEvent::Restored) == 1),
            "{answer:?}"
        );
        assert_eq!((joins(&sim), resumes(&sim).len()), (2, 1), "{answer:?}");
        assert_eq!(sim.end_reason(), None);
        sim.run(secs(1));
        assert!(sim.talks());
    }
}

/// A leave with action 1 asks for a resume, one with action 2 for a new join.
#[test]
fn follows_the_action_of_a_leave() {
    for (action, expected) in [(1, (1, 1)), (2, (2, 0))] {
        let mut sim = Simulation::with_caller();
        sim.send_leave(0, action);
        sim.run(secs(3));
        assert_eq!((joins(&sim), resumes(&sim).len()), expected, "{action}");
        assert!(sim.talks());
    }
}

/// Sockets that the server closes right after each resume are opened again with growing pauses, and
/// the talk goes on.
#[test]
fn a_cut_resume_is_tried_again() {
    let mut sim = Simulation::with_caller();
    sim.resume_answer = ResumeAnswer::Closes;
    sim.break_socket();
    sim.run(secs(5));
    let tries = resumes(&sim).len();
    assert!((3..=5).contains(&tries), "{tries}");
    assert_eq!(sim.count(&SessionEvent::Lost), 0);
    sim.resume_answer = ResumeAnswer::Resumes;
    sim.run(secs(5));
    assert_eq!((joins(&sim), sim.end_reason()), (1, None));
    assert!(sim.talks());
    let last = *ROOM_RESUME_PAUSES.last().expect("pauses");
    sim.resume_answer = ResumeAnswer::Closes;
    sim.break_socket();
    let before = sim.dials.len();
    sim.run(secs(300));
    let most = 300 / last.as_secs() as usize + ROOM_RESUME_PAUSES.len();
    assert!(sim.dials.len() - before <= most, "attempts are bounded");
    assert_eq!(sim.end_reason(), None, "a talk with living media is not ended");
}

/// Participants that left while there was no signalling are reported once the server has listed
/// those who are here.
#[test]
fn reports_who_left_during_a_resume() {
    let mut sim = Simulation::with_caller();
    sim.participant_joins(FakeParticipant::caller("PA_bob1", "bob"));
    sim.set_speaking("PA_bob1", true);
    sim.dial_result = DialResult::Unreachable;
    sim.break_socket();
    sim.participants.retain(|participant| participant.identity != "bob");
    let before = sim.events.len();
    sim.run(secs(1));
    assert_eq!(sim.events.len(), before);
    sim.dial_result = DialResult::Open;
    sim.run(secs(3));
    let left = |event: &SessionEvent| matches!(event, SessionEvent::ParticipantLeft(who) if &*who.identity == "bob");
    assert_eq!(sim.events[before..].iter().filter(|(_, event)| left(event)).count(), 1);
    assert_eq!(sim.end_reason(), None);
}

/// A bot that ends during a resume leaves at once, and the last speech of one that has ended goes
/// on without signalling.
#[test]
fn ends_during_a_resume() {
    for dial_result in [DialResult::Unreachable, DialResult::NoAnswer, DialResult::Silent] {
        let mut sim = Simulation::with_caller();
        sim.dial_result = dial_result.clone();
        sim.break_socket();
        sim.run(ms(700));
        sim.with(|session, now| session.handle_end(LeaveReason::Shutdown, now));
        sim.run(ROOM_CLOSE_WITHIN);
        assert_eq!(sim.end_reason(), Some(LeaveReason::Shutdown), "{dial_result:?}");
        assert!(sim.gone.is_some(), "{dial_result:?}");
    }
    let mut sim = Simulation::with_caller();
    sim.speech.extend(Tone::new(440.0, RATE_HZ).take(2 * RATE_HZ as usize));
    sim.run(ms(500));
    sim.with(|session, now| session.handle_bot_end(LeaveReason::BotEnded, now));
    sim.break_socket();
    assert!(sim.run_until(secs(5), |sim| sim.gone.is_some()));
    let loud = sim
        .bot_audio()
        .iter()
        .filter(|sample| sample.unsigned_abs() > 1_000)
        .count();
    assert!(loud > 3 * RATE_HZ as usize / 2, "{loud}");
    assert_eq!(sim.end_reason(), Some(LeaveReason::BotEnded));
}
