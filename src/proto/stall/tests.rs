//! Stalls of a runtime and of tasks, in virtual time, and the words about them.

use super::*;
use crate::limits::WATCH_INTERVAL;

const MS: Duration = Duration::from_millis(1);

/// Checks every half second until `until`, and returns the events with their times.
fn looks(
    start: Instant,
    from: Duration,
    until: Duration,
    mut look: impl FnMut(Instant) -> Option<StallEvent>,
) -> Vec<(Duration, StallEvent)> {
    let mut at = from;
    let mut events = Vec::new();
    while at <= until {
        events.extend(look(start + at).map(|change| (at, change)));
        at += WATCH_INTERVAL;
    }
    events
}

/// A query answered within the limit is no stall; a longer one is reported once, and so is its
/// end.
#[test]
fn reports_a_runtime_stall_once_and_its_end_once() {
    let start = Instant::now();
    let mut heartbeat = Heartbeat::new(start);
    assert_eq!(heartbeat.handle_look(true, start), None);
    let events = looks(start, WATCH_INTERVAL, RUNTIME_STALL - MS, |now| {
        heartbeat.handle_look(false, now)
    });
    assert_eq!((events, heartbeat.is_stalled()), (Vec::new(), false));
    let events = looks(start, RUNTIME_STALL, RUNTIME_STALL * 4, |now| {
        heartbeat.handle_look(false, now)
    });
    assert_eq!(events, [(RUNTIME_STALL, StallEvent::Stalled(RUNTIME_STALL))]);
    assert!(heartbeat.is_stalled());
    let end = RUNTIME_STALL * 4 + WATCH_INTERVAL;
    let events = looks(start, end, end * 2, |now| heartbeat.handle_look(true, now));
    assert_eq!(events, [(end, StallEvent::Recovered(end))]);
    assert!(!heartbeat.is_stalled());
}

/// A late answer within the limit restarts the measurement.
#[test]
fn a_slow_runtime_is_not_stalled() {
    let start = Instant::now();
    let mut heartbeat = Heartbeat::new(start);
    let mut nth = 0;
    let events = looks(start, WATCH_INTERVAL, RUNTIME_STALL * 20, |now| {
        nth += 1;
        heartbeat.handle_look(nth % 5 == 0, now)
    });
    assert_eq!(events, []);
}

/// After an hour of suspension, neither an open query nor a running task counts as stalled.
#[test]
fn suspension_is_not_a_stall() {
    let start = Instant::now();
    let (mut heartbeat, mut turns) = (Heartbeat::new(start), TaskWatch::new(start));
    let mut look = |at: Duration| {
        (
            heartbeat.handle_look(false, start + at),
            turns.handle_look(1, start + at),
        )
    };
    assert_eq!(look(WATCH_INTERVAL), (None, None));
    let hour = Duration::from_secs(3_600);
    assert_eq!(look(hour), (None, None));
    assert_eq!(look(hour + WATCH_INTERVAL), (None, None));
    // Afterwards, time counts again.
    let mut events = 0;
    for nth in 2..20 {
        let (runtime, task) = look(hour + WATCH_INTERVAL * nth);
        events += u32::from(runtime.is_some()) + u32::from(task.is_some());
    }
    assert_eq!(events, 2);
    // The longest gap between two checks that counts, and the first that does not.
    for (gap, counts) in [(WATCH_GAP_MAX, true), (WATCH_GAP_MAX + MS, false)] {
        let mut timer = StallTimer::new(start);
        assert_eq!(timer.elapsed(start + gap) == gap, counts);
    }
}

#[test]
fn reports_a_task_stall_once_and_its_end_once() {
    let start = Instant::now();
    let mut turns = TaskWatch::new(start);
    // Entered just before the first check.
    let events = looks(start, Duration::ZERO, TURN_STALL * 3, |now| turns.handle_look(7, now));
    assert_eq!(events, [(TURN_STALL, StallEvent::Stalled(TURN_STALL))]);
    let end = TURN_STALL * 3 + WATCH_INTERVAL;
    let events = looks(start, end, end * 2, |now| turns.handle_look(8, now));
    assert_eq!(events, [(end, StallEvent::Recovered(end))]);
    assert_eq!(turns.stalls(), 1);
}

/// A task that runs at every check, each time in another poll, is busy; a waiting one is idle.
#[test]
fn neither_busy_nor_idle_tasks_stall() {
    let start = Instant::now();
    let (mut busy, mut idle) = (TaskWatch::new(start), TaskWatch::new(start));
    let mut moves = u32::MAX - 20;
    let events = looks(start, Duration::ZERO, TURN_STALL * 20, |now| {
        // The counter wraps at its end.
        moves = moves.wrapping_add(2);
        busy.handle_look(moves, now)
    });
    assert_eq!(events, []);
    assert_eq!(
        looks(start, Duration::ZERO, TURN_STALL * 20, |now| idle.handle_look(6, now)),
        []
    );
    assert_eq!((busy.stalls(), idle.stalls()), (0, 0));
}

/// Repeated stalls are logged up to a limit, and counted beyond it.
#[test]
fn the_warnings_of_one_task_are_limited() {
    let start = Instant::now();
    let mut turns = TaskWatch::new(start);
    let (mut warnings, mut ends, mut now) = (0, 0, start);
    for nth in 0..TURN_WARNINGS_MAX + 3 {
        for _ in 0..10 {
            now += WATCH_INTERVAL;
            match turns.handle_look(2 * nth + 1, now) {
                Some(StallEvent::Stalled(_)) => warnings += 1,
                Some(StallEvent::Recovered(_)) => ends += 1,
                None => {}
            }
        }
    }
    assert_eq!((warnings, ends), (TURN_WARNINGS_MAX, TURN_WARNINGS_MAX));
    assert_eq!(turns.stalls(), TURN_WARNINGS_MAX + 3);
}

#[test]
fn messages_advise_the_operator() {
    let time = Duration::from_millis(3_250);
    let stalled = RuntimeStallMessage(StallEvent::Stalled(time)).to_string();
    assert!(
        stalled.starts_with("the runtime has been stalled for 3.2 s: a bot blocks its thread; "),
        "{stalled}"
    );
    assert!(stalled.contains("spawn_blocking"));
    let over = RuntimeStallMessage(StallEvent::Recovered(time)).to_string();
    assert_eq!(over, "the runtime goes on after a stall of 3.2 s");
    let bot = TaskStallMessage(TaskRole::Bot, StallEvent::Stalled(time)).to_string();
    assert!(
        bot.starts_with("the session's bot has kept its thread for 3.2 s"),
        "{bot}"
    );
    let media = TaskStallMessage(TaskRole::Media, StallEvent::Recovered(time)).to_string();
    assert_eq!(media, "the session's media goes on after a turn of 3.2 s");
}
