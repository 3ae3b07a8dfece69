//! Devices that lose power repeatedly, beside calls that continue.
//!
//! In: a duration. Out: the loss of the calls both ways, the number of boots and their times to an
//! open channel, and the figures of the runner in the first minute, in the last, and after all
//! sessions. The devices are the strict microcontrollers of the tests in half duplex: 20 of them
//! boot, one every half second, talk for ten seconds and fall silent without a close. Every second
//! one boots with its old port and credentials, like devices without a clock. The others come from
//! a new port, so that the runner sees callers of one address only. All share the cores with the
//! runner, so load on the machine causes loss.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::call::Call;
use crate::http::Connection;
use crate::rows::{self, Lines, mib, row, runtime};
use crate::runner::Runner;
use crate::support::device::{Device, Options};
use crate::support::sound::Speech;
use crate::{Bench, Result, speech};

const CALLS: usize = 8;
/// A separate address, because the devices use up the log limit of theirs.
const CALLERS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const DEVICES: u32 = 20;
const LIFE: Duration = Duration::from_secs(10);
/// Sampling interval.
const INTERVAL: Duration = Duration::from_secs(2);
/// Largest rise of memory from the first minute to the last: that of two sessions, since they come
/// and go.
const RISE_KIB_MAX: u64 = 1024;
/// Time limit from boot to an open channel.
const CHANNEL_WITHIN: Duration = Duration::from_secs(5);

/// Time from a rejection to the next offer: the firmware restarts.
const REFUSED_AGAIN_AFTER: Duration = Duration::from_secs(3);

/// The results of one device.
#[derive(Default)]
struct Boots {
    boots: u32,
    /// Time from each offer to the open channel.
    open_after: Vec<Duration>,
    faults: Vec<String>,
}

/// Twenty devices that boot every ten seconds beside eight calls.
pub fn reboots(bench: &Bench) -> Result<(Lines, Vec<String>)> {
    let time = if bench.quick {
        Duration::from_secs(60)
    } else {
        Duration::from_secs(60) * bench.minutes
    };
    let runner = Runner::start_embedded(&bench.binary)?;
    runner.wait_until_settled()?;
    let before = runner.held()?;
    let speech = Arc::new(speech::voice(10)?);
    let runtime = runtime()?;
    let mut http = Connection::open_from(CALLERS, runner.addr)?;
    let mut calls = Vec::new();
    for _ in 0..CALLS {
        calls.push(runtime.block_on(Call::begin(&mut http))?);
    }
    let over = AtomicBool::new(false);
    let (end, mut rss_kib, mut all) = (Instant::now() + time, Vec::new(), Boots::default());
    let (sent, heard) = thread::scope(|scope| -> Result<_> {
        let (over, addr) = (&over, runner.addr);
        let devices: Vec<_> = (0..DEVICES)
            .map(|nth| scope.spawn(move || boot_until(addr, nth, end, over)))
            .collect();
        let watch = scope.spawn(|| watch(&runner, end, over));
        let talked = runtime.block_on(rows::talk(&mut calls, &speech, time));
        over.store(true, Ordering::Relaxed);
        for device in devices {
            let one = device.join().map_err(|_| "a device broke a rule, or waited in vain")?;
            all.boots += one.boots;
            all.open_after.extend(one.open_after);
            all.faults.extend(one.faults);
        }
        rss_kib = watch.join().expect("watching does not panic")?;
        talked
    })?;
    // All at once, because callers that answer no check are ended like devices without power.
    for mut call in calls {
        runtime.block_on(call.listen(Instant::now() + Duration::from_millis(5), |_| {}))?;
        call.leave()?;
    }
    drop(http);
    wait_for_devices(&runner)?;
    runner.wait_until_settled()?;
    let after = runner.held()?;
    let log = runner.log()?;
    let received = received_of_calls(&log);
    let missing = heard.iter().map(rows::Tally::missing);
    let (lost, skipped) = missing.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let back: u64 = heard.iter().map(|tally| tally.packets).sum();
    // Medians are compared, because peaks of the allocator are momentary.
    let minute = 60 / INTERVAL.as_secs() as usize;
    let first = median(&rss_kib[..minute.min(rss_kib.len())]);
    let last = median(&rss_kib[rss_kib.len().saturating_sub(minute)..]);
    let mut faults = std::mem::take(&mut all.faults);
    let mut hold = |kept: bool, fault: String| faults.extend((!kept).then_some(fault));
    let lost_in = sent.saturating_sub(received);
    hold(
        lost_in == 0 && lost == 0,
        format!("the calls lost {lost_in} in and {lost} back"),
    );
    hold(
        last <= first + RISE_KIB_MAX,
        format!("memory rose from {first} to {last} KiB"),
    );
    hold(
        after.0 <= before.0,
        format!("{} descriptors became {}", before.0, after.0),
    );
    hold(after.1 <= before.1, format!("{} threads became {}", before.1, after.1));
    all.open_after.sort_unstable();
    let at = |share: usize| {
        all.open_after
            .get(all.open_after.len() * share / 100)
            .copied()
            .unwrap_or_default()
    };
    Ok((
        vec![
            row(
                format!("{CALLS} calls beside {DEVICES} devices, {} s", time.as_secs()),
                format!(
                    "{lost_in} of {sent} lost in, {lost} of {} back, {skipped} slots skipped",
                    back + lost
                ),
            ),
            row(
                format!("{} boots, offer to channel", all.boots),
                format!(
                    "{:.0} ms, p99 {:.0} ms",
                    at(50).as_secs_f64() * 1e3,
                    at(99).as_secs_f64() * 1e3
                ),
            ),
            row(
                "RSS, first and last minute",
                format!("{} and {} MiB", mib(first), mib(last)),
            ),
            row(
                "descriptors and threads, start and end",
                format!("{} and {}, {} and {}", before.0, after.0, before.1, after.1),
            ),
        ],
        faults,
    ))
}

/// Runs one device through its boots.
fn boot_until(runner: std::net::SocketAddr, nth: u32, end: Instant, over: &AtomicBool) -> Boots {
    let options = Options::new(Speech::Tone { hz: 440.0 });
    let mut boots = Boots::default();
    thread::sleep(LIFE * nth / DEVICES);
    let mut former: Option<Device> = None;
    while Instant::now() < end && !over.load(Ordering::Relaxed) {
        let began = Instant::now();
        boots.boots += 1;
        let again = match former.take().filter(|_| nth.is_multiple_of(2)) {
            Some(former) => former.boot_again(runner, options.clone()),
            None => Device::try_join(runner, options.clone()),
        };
        let mut device = match again {
            Ok(device) => device,
            Err(refusal) => {
                boots
                    .faults
                    .push(format!("device {nth}, boot {}: {refusal}", boots.boots));
                thread::sleep(REFUSED_AGAIN_AFTER);
                continue;
            }
        };
        while !device.report().channel_open && began.elapsed() < CHANNEL_WITHIN {
            thread::sleep(Duration::from_millis(2));
        }
        boots.open_after.push(began.elapsed());
        // The last boot is cut short.
        let until = (began + LIFE).min(end);
        thread::sleep(until.saturating_duration_since(Instant::now()));
        let report = device.vanish();
        if !report.channel_open {
            boots
                .faults
                .push(format!("device {nth}, boot {}: no channel", boots.boots));
        }
        for rule in report.violations.keys().take(1) {
            boots.faults.push(format!("device {nth}, boot {}: {rule}", boots.boots));
        }
        former = Some(device);
    }
    boots
}

/// Samples memory until the end.
fn watch(runner: &Runner, end: Instant, over: &AtomicBool) -> Result<Vec<u64>> {
    let mut rss_kib = Vec::new();
    while Instant::now() < end && !over.load(Ordering::Relaxed) {
        thread::sleep(INTERVAL);
        rss_kib.push(runner.status_kib("VmRSS")?);
    }
    Ok(rss_kib)
}

/// Waits until the sessions of devices without power have ended.
fn wait_for_devices(runner: &Runner) -> Result<()> {
    let began = Instant::now();
    while runner.sessions()? > 0 {
        if began.elapsed() > Duration::from_secs(60) {
            return Err("sessions of devices without power do not end".into());
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Returns the number of packets that the sessions of the calls received. In the log, sessions of
/// devices are marked as embedded, and each line begins with the id of its session.
fn received_of_calls(log: &str) -> u64 {
    let id = |line: &str| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned());
    let begins = |line: &&str| line.contains("session started: webrtc") && !line.contains("embedded");
    let calls: HashSet<String> = log.lines().filter(begins).filter_map(id).collect();
    let of_call = |line: &&str| id(line).is_some_and(|id| calls.contains(&id));
    log.lines().filter(of_call).filter_map(rows::received).sum()
}

fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
