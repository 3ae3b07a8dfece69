//! Sessions of jobs: how long the bot stays, its outcome before its leave, terminations, second
//! bots, and a bot that fails.

use super::super::*;
use super::simulation::{DialResult, FakeParticipant, Simulation, secs};
use crate::limits::{JOB_REPORT_WITHIN, JOB_STAY_MARGIN};
use crate::livekit::wire::{LeaveRequest, MuteTrackRequest, ServerMessage, SignalRequestKind};
use crate::livekit::worker::JobOutcome;
use crate::webrtc::connection::sfu::tests::rig::ms;

fn rules() -> JobRules {
    JobRules {
        empty_timeout: secs(120),
        departure_timeout: secs(20),
        mark: Some(("lk.agent.name", "bot".to_owned())),
    }
}

/// A job in a room with these participants, which the bot has taken.
fn job_with(participants: &[FakeParticipant]) -> Simulation {
    let mut sim = Simulation::with_setup(Some(rules()), &[]);
    sim.participants.extend(participants.iter().cloned());
    sim.start_audio();
    sim.run(secs(4));
    sim
}

fn ann() -> FakeParticipant {
    FakeParticipant::caller("PA_ann1", "ann")
}

fn outcome(sim: &Simulation) -> Option<&JobOutcome> {
    sim.news.iter().find_map(|(_, news)| match news {
        JobEvent::Ended(outcome) => Some(outcome),
        _ => None,
    })
}

/// The number of requests before the outcome was reported, and before the leave.
fn order(sim: &Simulation) -> [Option<usize>; 2] {
    let ended = sim.news.iter().find(|(_, news)| matches!(news, JobEvent::Ended(_)));
    let is_leave = |request: &(Duration, SignalRequestKind)| matches!(request.1, SignalRequestKind::Leave(_));
    [ended.map(|(at, _)| *at), sim.requests.iter().position(is_leave)]
}

#[test]
fn the_outcome_is_reported_before_the_leave() {
    let mut sim = job_with(&[ann()]);
    assert_eq!(sim.news, [(sim.news[0].0, JobEvent::Joined)]);
    sim.with(|session, now| session.handle_bot_end(LeaveReason::BotEnded, now));
    sim.run(secs(2));
    assert_eq!(outcome(&sim), Some(&JobOutcome::Success));
    let [reported, left] = order(&sim);
    assert!(reported <= left && left.is_some(), "{reported:?} {left:?}");
    assert!(sim.left_gracefully() && sim.gone.is_some());
    assert_eq!(sim.news.len(), 2, "once");
}

/// A worker that does not report does not keep the bot in the room.
#[test]
fn the_leave_waits_for_the_report_for_a_short_time() {
    let mut sim = job_with(&[ann()]);
    sim.reports = false;
    sim.with(|session, now| session.handle_end(LeaveReason::Shutdown, now));
    sim.run(JOB_REPORT_WITHIN - ms(1));
    assert_eq!(order(&sim)[1], None);
    sim.run(ms(2));
    assert!(order(&sim)[1].is_some());
    assert_eq!(outcome(&sim), Some(&JobOutcome::Failed("runner stopped".into())));
    sim.run(secs(1));
    assert!(sim.gone.is_some());
    assert_eq!(sim.end_reason(), Some(LeaveReason::Shutdown));
}

/// The server closes the room of a job. Only if it does not, the bot leaves by itself.
#[test]
fn the_bot_stays_until_the_server_closes_the_room() {
    let mut sim = job_with(&[ann()]);
    sim.participant_leaves("ann");
    sim.run(secs(20) + JOB_STAY_MARGIN - ms(100));
    assert_eq!(sim.end_reason(), None, "a session of /start would have left");
    sim.run(ms(200));
    assert_eq!(sim.end_reason(), Some(LeaveReason::Left));
    assert_eq!(outcome(&sim), Some(&JobOutcome::Success));

    let mut sim = job_with(&[ann()]);
    sim.send_and_drain(ServerMessage::Leave(LeaveRequest {
        reason: 10,
        ..LeaveRequest::default()
    }));
    sim.run(secs(2));
    assert_eq!(
        (sim.end_reason(), outcome(&sim)),
        (Some(LeaveReason::Left), Some(&JobOutcome::Success))
    );
}

#[test]
fn the_bot_waits_for_the_first_caller_as_long_as_the_room() {
    let mut sim = job_with(&[]);
    sim.run(secs(100));
    assert_eq!(sim.end_reason(), None);
    sim.run(secs(20) + JOB_STAY_MARGIN);
    assert_eq!(sim.end_reason(), Some(LeaveReason::NeverConnected));
    assert_eq!(outcome(&sim), Some(&JobOutcome::Success), "no caller came");
}

/// A termination ends a live session. While the bot is on its way back into the room it means only
/// that the server has lost it.
#[test]
fn a_termination_is_ignored_while_the_bot_is_away() {
    let mut sim = job_with(&[ann()]);
    sim.dial_result = DialResult::Unreachable;
    sim.send_and_drain(ServerMessage::Leave(LeaveRequest {
        action: 2,
        ..LeaveRequest::default()
    }));
    sim.with(|session, now| session.handle_job_terminated(now));
    assert_eq!(
        sim.news.last().map(|(_, news)| news),
        Some(&JobEvent::Terminated { was_live: false })
    );
    sim.dial_result = DialResult::Open;
    assert!(sim.run_until(secs(20), |sim| sim.has(&SessionEvent::Restored)));
    assert_eq!(outcome(&sim), None);
    sim.with(|session, now| session.handle_job_terminated(now));
    sim.run(secs(2));
    assert_eq!(sim.end_reason(), Some(LeaveReason::Left));
    let reported: Vec<&JobEvent> = sim.news.iter().map(|(_, news)| news).collect();
    assert!(
        reported.contains(&&JobEvent::Terminated { was_live: true }),
        "{reported:?}"
    );
}

/// Of two bots of one name, the one that joined first stays; the identity decides a tie. Bots of
/// other names, and callers, do not count.
#[test]
fn a_second_bot_of_the_name_leaves() {
    let other = |identity: &'static str, joined_ms, attributes: &[_]| FakeParticipant {
        joined_ms,
        attributes: Vec::from(attributes),
        ..FakeParticipant::agent("PA_bot1", identity)
    };
    const NAMED: &[(&str, &str)] = &[("lk.agent.name", "bot")];
    for (who, leaves) in [
        (other("agent-AJ_0", 999, NAMED), true),
        (other("agent-AJ_0", 1_001, NAMED), false),
        (other("A", 1_000, NAMED), true),
        (other("agent-AJ_0", 1_000, NAMED), false),
        (other("agent-AJ_0", 999, &[("lk.agent.name", "other")]), false),
        (other("agent-AJ_0", 999, &[]), false),
        (
            FakeParticipant {
                kind: 0,
                ..other("ben", 999, NAMED)
            },
            false,
        ),
    ] {
        let sim = job_with(&[ann(), who.clone()]);
        let expected = leaves.then_some(LeaveReason::Replaced);
        assert_eq!(sim.end_reason(), expected, "{who:?}");
        assert_eq!(outcome(&sim), leaves.then_some(&JobOutcome::Success));
    }
    let mut sim = Simulation::new();
    sim.participants.extend([ann(), other("A", 1, NAMED)]);
    sim.start_audio();
    sim.run(secs(4));
    assert_eq!(sim.end_reason(), None, "a session without a job has no such rule");
}

/// A bot that fails while a caller is there is started once more and told who is there. A second
/// failure is the end, and so is one without callers.
#[test]
fn a_failed_bot_is_started_once_more() {
    let mut sim = job_with(&[ann()]);
    sim.events.clear();
    assert!(sim.with(|session, now| session.handle_bot_failure(now)));
    let reported: Vec<&SessionEvent> = sim.events.iter().map(|(_, event)| event).collect();
    assert!(
        matches!(&reported[..], [SessionEvent::ParticipantJoined(who), SessionEvent::Joined] if &*who.identity == "ann"),
        "{reported:?}"
    );
    assert!(!sim.with(|session, now| session.handle_bot_failure(now)));
    sim.with(|session, now| session.handle_bot_end(LeaveReason::BotFailed, now));
    sim.run(secs(2));
    assert_eq!(outcome(&sim), Some(&JobOutcome::Failed("bot failed".into())));

    let mut muted = job_with(&[ann()]);
    muted.send_and_drain(ServerMessage::Mute(MuteTrackRequest {
        sid: "TR_own".into(),
        muted: true,
    }));
    muted.events.clear();
    assert!(muted.with(|session, now| session.handle_bot_failure(now)));
    assert_eq!(muted.count(&SessionEvent::Muted(true)), 1, "the mute is not lifted");

    let mut alone = job_with(&[]);
    assert!(!alone.with(|session, now| session.handle_bot_failure(now)));
    let mut without_job = Simulation::with_caller();
    assert!(!without_job.with(|session, now| session.handle_bot_failure(now)));
}

/// The URLs are used in turn when one does not answer.
#[test]
fn another_url_is_dialled_when_one_does_not_answer() {
    let mut sim = Simulation::with_setup(Some(rules()), &["ws://b.example.net", "ws://c.example.net"]);
    sim.dial_result = DialResult::Unreachable;
    sim.start_audio();
    sim.run(secs(10));
    let hosts: Vec<&str> = (sim.dials.iter())
        .map(|(_, dial)| dial.url.split("/rtc").next().unwrap_or_default())
        .collect();
    assert_eq!(
        hosts,
        [
            "https://media.example.net",
            "http://b.example.net",
            "http://c.example.net"
        ]
    );
    assert_eq!(
        outcome(&sim),
        Some(&JobOutcome::Failed("the room was not entered".into()))
    );
}
