//! The soak: hours of callers, after which the runner must hold no more than after the first
//! minutes.
//!
//! In: a number of minutes. Out: memory, descriptors, threads and live sessions over that time, and
//! the figures that rise. Eight sessions on three transports are always live, and others come and
//! go (`soak_clients`). Slopes are measured over the second half. In the first half the allocator,
//! unused sessions of `/start` and sessions of vanished callers reach a steady level. After the
//! last session the runner may hold no more than at the start.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::rows::{Lines, mib, row};
use crate::runner::Runner;
use crate::soak_clients::{self, SEATS, SoakRun, Tally};
use crate::{Bench, Result, speech};

/// Clients that come and go, beside the seats.
const VISITORS: u64 = 2;
/// Sampling interval; longer in runs of hours.
const INTERVAL: Duration = Duration::from_secs(2);
const SAMPLES_MAX: u32 = 3_600;
/// Largest rise of memory over the second half, by its slope. Two sessions of 0.5 MiB more at the
/// end than at the beginning are no leak; a leak of 1 KiB per session would be 1 MiB in ten
/// minutes, and 6 MiB in an hour.
const RISE_KIB_MAX: f64 = 1024.0;
/// Largest private memory after the last session, relative to the start, for runs of any length:
/// tables of the codec and other data that is created once, and the rest of partly used pages.
const LEFT_KIB_MAX: i64 = 4096;
/// Largest rise of descriptors, tasks and threads over the second half, by their slopes. About
/// twenty callers, plus or minus six, are always about to leave; a leak in one of a hundred visits
/// would be 10 in ten minutes.
const RISE_COUNT_MAX: f64 = 6.0;
/// Time limit for the last connections to close; a silent one has 75 s.
const PATIENCE: Duration = Duration::from_secs(90);

/// The figures of the runner at one moment.
#[derive(Clone, Copy)]
struct Sample {
    at: Duration,
    rss_kib: u64,
    /// The part of it that is not backed by a file.
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

/// Eight live sessions, with others that come and go.
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

/// Runs all clients, and samples the runner until they are gone.
fn live(runner: &Runner, soak: &SoakRun<'_>, began: Instant, interval: Duration) -> Result<(Vec<Sample>, Tally)> {
    thread::scope(|scope| {
        let seats = SEATS
            .iter()
            .zip(1..)
            .map(|(seat, seed)| scope.spawn(move || soak_clients::run_seat(soak, *seat, seed)));
        let visitors = (0..VISITORS).map(|seed| scope.spawn(move || soak_clients::run_visitor(soak, 100 + seed)));
        let clients: Vec<_> = seats.chain(visitors).collect();
        let (mut samples, mut reported) = (Vec::new(), Duration::ZERO);
        while Instant::now() < soak.end {
            if clients.iter().any(|client| client.is_finished()) {
                soak.over.store(true, Ordering::Relaxed);
                break;
            }
            thread::sleep(interval);
            let sample = Sample::take(runner, began)?;
            samples.push(sample);
            if sample.at >= reported {
                tell(&sample);
                reported += Duration::from_secs(60);
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

/// Prints the progress of a long run.
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

/// Waits until no session is live and, with `start`, the figures are back at that level. Returns
/// the figures.
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
            "RSS without sessions, start and end",
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
            format!("{name}, second half; without sessions"),
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

/// Formats minimum, median and maximum.
fn spread(samples: &[Sample], of: impl Fn(&Sample) -> u64, say: impl Fn(u64) -> String) -> String {
    let mut all: Vec<u64> = samples.iter().map(of).collect();
    all.sort_unstable();
    match all.as_slice() {
        [] => "nothing".to_owned(),
        [least, .., most] => format!("{} to {}, mostly {}", say(*least), say(*most), say(all[all.len() / 2])),
        [one] => say(*one),
    }
}

/// The slope of a least-squares line.
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
