//! The soak: hours of callers, after which a runner holds what it held after the first minutes.
//!
//! In: how many minutes. Out: memory, descriptors, threads and live sessions over that time, and
//! what of it is not flat. Eight sessions always talk, on three transports, and others come and go
//! beside them (`soak_clients`). The slopes are those of the second half: in the first one the allocator,
//! the sessions of `/start` that nobody uses, and those whose callers vanished reach the level at
//! which they stay. Once all have left, nothing may be held that was not before.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::rows::{Lines, mib, row};
use crate::runner::Runner;
use crate::soak_clients::{self, SEATS, SoakRun, Tally};
use crate::{Bench, Result, speech};

/// Beside the seats, so many who come and go.
const VISITORS: u64 = 2;
/// Between two samples; longer when a run takes hours.
const INTERVAL: Duration = Duration::from_secs(2);
const SAMPLES_MAX: u32 = 3_600;
/// What memory may rise by over the second half, along its slope. Sessions of 0.5 MiB come and go
/// in any order, and two of them more at the end than at the beginning are no leak; 1 KiB lost per
/// session would be 1 MiB in ten minutes, and 6 MiB in an hour.
const RISE_KIB_MAX: f64 = 1024.0;
/// What the runner's own memory may be above that of the start once all have left: what is made
/// once, such as tables of the codec, and the rest of pages in which something is kept. The same
/// after a minute and after a day.
const LEFT_KIB_MAX: i64 = 4096;
/// What descriptors, tasks and threads may rise by over the second half, along their slopes. Some
/// twenty callers are always on their way out, give or take six; of those lost for good, one in a
/// hundred visits would be 10 in ten minutes.
const RISE_COUNT_MAX: f64 = 6.0;
/// How long the last connections may take to close: one that says nothing more has 75 s.
const PATIENCE: Duration = Duration::from_secs(90);

/// What the runner held at one moment.
#[derive(Clone, Copy)]
struct Sample {
    at: Duration,
    rss_kib: u64,
    /// What of it is no part of a file.
    own_kib: u64,
    descriptors: u64,
    threads: u64,
    tasks: u64,
    sessions: u64,
}

impl Sample {
    fn take(runner: &Runner, began: Instant) -> Result<Sample> {
        let sessions = runner.sessions()?;
        let (descriptors, threads) = runner.held()?;
        Ok(Sample {
            at: began.elapsed(),
            rss_kib: runner.status_kib("VmRSS")?,
            own_kib: runner.status_kib("RssAnon")?,
            descriptors,
            threads,
            tasks: runner.figure("edge_runner_tasks")?,
            sessions,
        })
    }
}

/// Eight live sessions and churn for as long as asked.
pub fn soak(bench: &Bench) -> Result<(Lines, Vec<String>)> {
    let time = Duration::from_secs(60) * bench.minutes;
    let runner = Runner::start(&bench.binary)?;
    let speech = speech::voice(10)?;
    let began = Instant::now();
    let before = settled(&runner, began, None)?;
    let soak = SoakRun {
        addr: runner.addr,
        speech: &speech,
        end: began + time,
        over: AtomicBool::new(false),
    };
    let (samples, tally) = live(&runner, &soak, began, (time / SAMPLES_MAX).max(INTERVAL))?;
    let after = settled(&runner, began, Some(&before))?;
    let second_half = samples.partition_point(|sample| sample.at < time / 2)..samples.len();
    let (mut lines, mut faults) = judge(&samples, second_half, &before, &after);
    let [live, started, ended] = ["sessions", "sessions_started_total", "sessions_ended_total"]
        .map(|name| runner.figure(&format!("edge_runner_{name}")));
    let (live, started, ended) = (live?, started?, ended?);
    lines.push(row(
        "sessions by /metrics, at the end",
        format!("{started} started, {ended} ended, {live} live"),
    ));
    if live > 0 || started != ended {
        faults.push("the sessions that /metrics counts do not all end".to_owned());
    }
    let log = runner.log()?;
    if let Some(line) = log
        .lines()
        .find(|line| line.contains(" ERROR ") || line.contains("panic"))
    {
        faults.push(format!("the runner logged: {line}"));
    }
    let done = tally.iter().map(|(name, count)| row(*name, count.to_string()));
    Ok((done.chain(lines).collect(), faults))
}

/// Lets everybody in, and looks at the runner until all are gone.
fn live(runner: &Runner, soak: &SoakRun<'_>, began: Instant, interval: Duration) -> Result<(Vec<Sample>, Tally)> {
    thread::scope(|scope| {
        let seats = SEATS
            .iter()
            .zip(1..)
            .map(|(seat, seed)| scope.spawn(move || soak_clients::run_seat(soak, *seat, seed)));
        let visitors = (0..VISITORS).map(|seed| scope.spawn(move || soak_clients::run_visitor(soak, 100 + seed)));
        let clients: Vec<_> = seats.chain(visitors).collect();
        let (mut samples, mut told) = (Vec::new(), Duration::ZERO);
        while Instant::now() < soak.end {
            if clients.iter().any(|client| client.is_finished()) {
                soak.over.store(true, Ordering::Relaxed);
                break;
            }
            thread::sleep(interval);
            let sample = Sample::take(runner, began)?;
            samples.push(sample);
            if sample.at >= told {
                tell(&sample);
                told += Duration::from_secs(60);
            }
        }
        let mut tally = Tally::new();
        for client in clients {
            for (name, count) in client.join().expect("a client does not panic")? {
                *tally.entry(name).or_default() += count;
            }
        }
        Ok((samples, tally))
    })
}

/// Says how it goes: whoever waits for hours wants to know.
fn tell(sample: &Sample) {
    eprintln!(
        "{:4} min: RSS {} MiB, {} descriptors, {} tasks, {} sessions",
        sample.at.as_secs() / 60,
        mib(sample.rss_kib),
        sample.descriptors,
        sample.tasks,
        sample.sessions
    );
}

/// Waits until nobody is there, and as little is held as at the start if there was one; returns
/// what is held then.
fn settled(runner: &Runner, began: Instant, start: Option<&Sample>) -> Result<Sample> {
    runner.wait_until_settled()?;
    let since = Instant::now();
    loop {
        let sample = Sample::take(runner, began)?;
        let more = |start: &Sample| {
            sample.descriptors > start.descriptors || sample.threads > start.threads || sample.tasks > start.tasks
        };
        if !start.is_some_and(more) || since.elapsed() > PATIENCE {
            return Ok(sample);
        }
        thread::sleep(Duration::from_secs(1));
    }
}

fn judge(samples: &[Sample], second_half: Range<usize>, before: &Sample, after: &Sample) -> (Lines, Vec<String>) {
    let half = &samples[second_half];
    let hours = |sample: &Sample| sample.at.as_secs_f64() / 3600.0;
    let length = half.last().map_or(0.0, hours) - half.first().map_or(0.0, hours);
    let memory = slope(half.iter().map(|sample| (hours(sample), sample.rss_kib as f64)));
    let left = after.own_kib as i64 - before.own_kib as i64;
    let mut lines = vec![
        row("RSS", format!("{} MiB", spread(samples, |sample| sample.rss_kib, mib))),
        row("RSS, second half", format!("{memory:+.0} KiB per hour")),
        row(
            "RSS with nobody there, start and end",
            format!(
                "{} and {} MiB, its own {} and {}",
                mib(before.rss_kib),
                mib(after.rss_kib),
                mib(before.own_kib),
                mib(after.own_kib)
            ),
        ),
        row(
            "live sessions",
            spread(samples, |sample| sample.sessions, |n| n.to_string()),
        ),
    ];
    let mut faults = Vec::new();
    let mut hold = |kept: bool, fault: String| faults.extend((!kept).then_some(fault));
    hold(
        memory * length <= RISE_KIB_MAX,
        format!("memory rose by {:.0} KiB over the second half", memory * length),
    );
    hold(
        left <= LEFT_KIB_MAX,
        format!("{left} KiB are left of sessions that are over"),
    );
    let counts: [(&str, fn(&Sample) -> u64); 3] = [
        ("descriptors", |sample| sample.descriptors),
        ("tasks", |sample| sample.tasks),
        ("threads", |sample| sample.threads),
    ];
    for (name, of) in counts {
        let slope = slope(half.iter().map(|sample| (hours(sample), of(sample) as f64)));
        let (first, last) = (of(before), of(after));
        lines.push(row(name, spread(samples, of, |count| count.to_string())));
        lines.push(row(
            format!("{name}, second half; with nobody there"),
            format!("{slope:+.1} per hour; {first} at the start, {last} at the end"),
        ));
        hold(
            slope * length <= RISE_COUNT_MAX,
            format!("{name} rose by {:.1} over the second half", slope * length),
        );
        hold(last <= first, format!("{first} {name} became {last}"));
    }
    hold(
        half.iter().all(|sample| sample.sessions + 4 >= SEATS.len() as u64),
        "fewer sessions lived than there are seats".to_owned(),
    );
    (lines, faults)
}

/// Tells the least, the median and the most of something.
fn spread(samples: &[Sample], of: impl Fn(&Sample) -> u64, say: impl Fn(u64) -> String) -> String {
    let mut all: Vec<u64> = samples.iter().map(of).collect();
    all.sort_unstable();
    match all.as_slice() {
        [] => "nothing".to_owned(),
        [least, .., most] => format!("{} to {}, mostly {}", say(*least), say(*most), say(all[all.len() / 2])),
        [one] => say(*one),
    }
}

/// The slope of the straight line with the least squares.
fn slope(points: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let count = points.clone().count() as f64;
    let (x, y) = points
        .clone()
        .fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let (covariance, variance) = points.fold((0.0, 0.0), |(covariance, variance), point| {
        (
            covariance + (point.0 - x) * (point.1 - y),
            variance + (point.0 - x).powi(2),
        )
    });
    if variance > 0.0 { covariance / variance } else { 0.0 }
}
