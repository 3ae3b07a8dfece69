//! Growth: the memory and descriptors that a runner keeps after its sessions.
//!
//! In: the number and kind of connections. Out: memory after the first of them and after the rest,
//! both without sessions. Each client connects, sends for a moment and closes; several do so at
//! once. Only the differences are reported, because later sessions reuse what the allocator keeps
//! of the first ones.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::call::Call;
use crate::http::Connection;
use crate::phone::{self, Phone};
use crate::plain::Plain;
use crate::rows::{Lines, mib, row, runtime};
use crate::runner::Runner;
use crate::{Bench, Result, speech};

/// Largest growth by 9,000 sessions, in KiB: 0.1 KiB each, the size of the smallest possible leak,
/// an entry of a map.
const GROWTH_KIB_MAX: i64 = 1024;

/// The kind of a connection.
#[derive(Clone, Copy)]
enum Kind {
    WebRtc,
    Plain,
    Phone,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::WebRtc => "WebRTC",
            Kind::Plain => "/ws-client",
            Kind::Phone => "telephony",
        }
    }
}

/// Memory after 100 short calls, and after 1,000 more: eight at once, 200 ms each.
pub fn growth(bench: &Bench) -> Result<Lines> {
    let runner = Runner::start(&bench.binary)?;
    let (warm, count) = (100, bench.amount(1_000, 100));
    let stay = Duration::from_millis(200);
    let first = after(&runner, Kind::WebRtc, warm, 8, stay)?;
    let last = after(&runner, Kind::WebRtc, count, 8, stay)?;
    Ok(vec![row(
        format!("growth by {count} sessions after the first {warm}"),
        first.to(&last),
    )])
}

/// Ten thousand connections of each kind, sixteen at once. After the first tenth, memory and
/// descriptors must not grow.
pub fn churn(bench: &Bench) -> Result<(Lines, Vec<String>)> {
    let (mut lines, mut faults) = (Vec::new(), Vec::new());
    let warm = (bench.cycles / 10).max(1);
    for kind in [Kind::Plain, Kind::Phone, Kind::WebRtc] {
        let (runner, began) = (Runner::start(&bench.binary)?, Instant::now());
        let stay = Duration::from_millis(60);
        let first = after(&runner, kind, warm, 16, stay)?;
        let last = after(&runner, kind, bench.cycles.saturating_sub(warm), 16, stay)?;
        let name = kind.name();
        lines.push(row(
            format!("{} {name} cycles after {warm}", bench.cycles - warm),
            first.to(&last),
        ));
        lines.push(row(
            format!("descriptors, threads, time of {name}"),
            format!(
                "{} to {}, {} to {}, {} s",
                first.descriptors,
                last.descriptors,
                first.threads,
                last.threads,
                began.elapsed().as_secs()
            ),
        ));
        let grown = last.rss_kib as i64 - first.rss_kib as i64;
        if grown > GROWTH_KIB_MAX {
            faults.push(format!("{name}: {grown} KiB grown, {GROWTH_KIB_MAX} are allowed"));
        }
        if last.descriptors > first.descriptors {
            faults.push(format!(
                "{name}: {} descriptors became {}",
                first.descriptors, last.descriptors
            ));
        }
    }
    Ok((lines, faults))
}

/// The figures of a runner without sessions.
struct Reading {
    rss_kib: u64,
    descriptors: u64,
    threads: u64,
}

impl Reading {
    fn to(&self, later: &Reading) -> String {
        let grown = later.rss_kib as i64 - self.rss_kib as i64;
        format!("{grown:+} KiB, {} to {} MiB", mib(self.rss_kib), mib(later.rss_kib))
    }
}

/// Makes `count` connections, `at_once` at a time, and returns the figures after the last.
fn after(runner: &Runner, kind: Kind, count: u32, at_once: u32, stay: Duration) -> Result<Reading> {
    let speech = speech::voice(1)?;
    let left = AtomicU32::new(count);
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..at_once)
            .map(|_| scope.spawn(|| work(runner, kind, &speech, &left, stay)))
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    runner.wait_until_settled()?;
    let (descriptors, threads) = runner.held()?;
    Ok(Reading {
        rss_kib: runner.status_kib("VmRSS")?,
        descriptors,
        threads,
    })
}

fn work(runner: &Runner, kind: Kind, speech: &[Vec<u8>], left: &AtomicU32, stay: Duration) -> Result<()> {
    let runtime = runtime()?;
    let mut http = Connection::open(runner.addr)?;
    let take = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    while let Ok(number) = take() {
        runtime.block_on(async {
            match kind {
                Kind::WebRtc => {
                    let mut call = Call::begin(&mut http).await?;
                    let now = Instant::now();
                    call.talk(speech, now, now + stay, |_| {}).await?;
                    call.leave()
                }
                Kind::Plain => {
                    let mut plain = Plain::begin(runner.addr).await?;
                    let now = Instant::now();
                    plain.talk(now, now + stay).await?;
                    plain.leave().await
                }
                Kind::Phone => {
                    let mut phone = Phone::begin(runner.addr, number as usize).await?;
                    let count = stay.as_millis() / phone::PTIME.as_millis();
                    phone.talk(count as u32, Instant::now()).await?;
                    phone.leave().await
                }
            }
        })?;
    }
    Ok(())
}
