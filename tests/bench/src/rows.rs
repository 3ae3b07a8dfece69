//! The rows of the table and their measurements.
//!
//! Each row starts a new runner. CPU is user and system time of its process, in cores: 0.01 is one
//! hundredth of a core. Percentiles are of single events, nearest rank.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::call::{Call, Heard};
use crate::http::{self, Connection};
use crate::phone::{self, Phone};
use crate::runner::Runner;
use crate::speech::{self, Bursts};
use crate::{Bench, Result};

const PTIME: Duration = Duration::from_millis(20);

pub type Lines = Vec<(String, String)>;

pub fn row(what: impl Into<String>, measured: String) -> (String, String) {
    (what.into(), measured)
}

pub fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Process creation to the end of the first `/status` response. The client requests it as soon as
/// the runner prints its address, like a supervisor.
pub fn start(bench: &Bench) -> Result<Lines> {
    let mut times = Vec::new();
    for _ in 0..bench.amount(20, 5) {
        let runner = Runner::start(&bench.binary)?;
        runner.sessions()?;
        times.push(runner.spawned.elapsed());
    }
    times.sort();
    let measured = format!(
        "{} ms median of {}, {} to {}",
        ms(at(&times, 50)),
        times.len(),
        ms(times[0]),
        ms(times[times.len() - 1])
    );
    Ok(vec![row("start to first /status answer", measured)])
}

pub fn size(bench: &Bench) -> Result<Lines> {
    let bytes = std::fs::metadata(&bench.binary)?.len();
    Ok(vec![row(
        "size of the binary, the page in it",
        format!("{bytes} bytes, {} MiB", mib(bytes / 1024)),
    )])
}

/// Time after which an idle runner or cloud service has unmapped what only its start needed.
pub const UNMAPPED_AFTER: Duration = Duration::from_secs(3);

/// Memory without sessions, and after a request.
pub fn idle(bench: &Bench) -> Result<Lines> {
    let runner = Runner::start(&bench.binary)?;
    thread::sleep(UNMAPPED_AFTER);
    let measured = format!(
        "RSS {} MiB (its own {}), PSS {} MiB",
        mib(runner.status_kib("VmRSS")?),
        mib(runner.status_kib("RssAnon")?),
        mib(runner.pss_kib()?)
    );
    runner.sessions()?;
    let after = format!("RSS {} MiB", mib(runner.status_kib("VmRSS")?));
    Ok(vec![
        row("memory when idle", measured),
        row("memory after a /status", after),
    ])
}

/// Largest memory of an idle runner. Most of it is pages of the binary, whose size the stage `size`
/// of `tests/check.sh` limits.
const IDLE_KIB_MAX: u64 = 10 * 1024;

/// Checks a figure that hardly depends on the machine: the memory of an idle runner.
pub fn footprint(bench: &Bench) -> Result<(Lines, Vec<String>)> {
    let runner = Runner::start(&bench.binary)?;
    thread::sleep(UNMAPPED_AFTER);
    runner.sessions()?;
    let idle_kib = runner.status_kib("VmRSS")?;
    let faults = match idle_kib {
        ..=IDLE_KIB_MAX => Vec::new(),
        _ => vec![format!("{idle_kib} KiB of memory when idle, of {IDLE_KIB_MAX} at most")],
    };
    let measured = format!("{idle_kib} KiB when idle");
    Ok((vec![row("memory within its limit", measured)], faults))
}

/// Keep-alive, sixteen connections in two threads of this process; the response is the whole JSON
/// of `/status`.
pub fn status(bench: &Bench) -> Result<Lines> {
    let runner = Runner::start(&bench.binary)?;
    let time = Duration::from_secs(bench.amount(10, 2).into());
    http::load(runner.addr, "/status", "", 2, 8, time / 10)?;
    let before = runner.cpu_s()?;
    let answers = http::load(runner.addr, "/status", "", 2, 8, time)? as f64;
    let cpu_s = runner.cpu_s()? - before;
    let rate = answers / time.as_secs_f64();
    Ok(vec![
        row("/status requests per second, 16 connections", format!("{rate:.0}")),
        row(
            "runner's CPU per /status request",
            format!("{:.1} us", cpu_s / answers * 1e6),
        ),
    ])
}

/// One caller after the other offers, connects and hangs up. The time of the answer is that of a
/// POST over an open connection. The CPU is that of a whole session without audio: offer, ICE,
/// DTLS, bot, end.
pub fn offer(bench: &Bench) -> Result<Lines> {
    let runner = Runner::start(&bench.binary)?;
    let count = bench.amount(200, 40);
    let runtime = runtime()?;
    let mut http = Connection::open(runner.addr)?;
    runtime.block_on(Call::begin(&mut http))?.leave()?;
    runner.wait_until_idle()?;
    let (mut answered, mut connected) = (Vec::new(), Vec::new());
    let before = runner.cpu_s()?;
    for _ in 0..count {
        let call = runtime.block_on(Call::begin(&mut http))?;
        answered.push(call.answered_in);
        connected.push(call.connected_in);
        call.leave()?;
    }
    runner.wait_until_idle()?;
    let cpu_s = runner.cpu_s()? - before;
    Ok(vec![
        row(format!("offer to answer, {count} offers"), spread(&mut answered)),
        row("offer to connected (ICE and DTLS)", spread(&mut connected)),
        row(
            "CPU of one session without audio",
            format!("{:.1} ms", cpu_s / f64::from(count) * 1e3),
        ),
    ])
}

/// The packets that came back in a part of a call.
#[derive(Default)]
pub struct Tally {
    pub packets: u64,
    first: Option<(u64, u64)>,
    last: (u64, u64),
}

impl Tally {
    fn take(&mut self, heard: &Heard) {
        let numbers = (*heard.packet.seq_no, heard.packet.time.numer());
        self.first.get_or_insert(numbers);
        self.last = numbers;
        self.packets += 1;
    }

    /// Returns the number of lost packets, and of 20 ms slots that the sender skipped.
    pub fn missing(&self) -> (u64, u64) {
        let Some((sequence, time)) = self.first else {
            return (0, 0);
        };
        let sent = self.last.0 - sequence + 1;
        let slots = (self.last.1 - time) / 960 + 1;
        (sent.saturating_sub(self.packets), slots.saturating_sub(sent))
    }
}

/// Runs all calls for a while, with their packets spread evenly over the 20 ms. Returns the packets
/// sent and received.
pub async fn talk(calls: &mut Vec<Call>, speech: &Arc<Vec<Vec<u8>>>, time: Duration) -> Result<(u64, Vec<Tally>)> {
    talk_each(calls, |_| speech.clone(), time).await
}

/// Does the same with packets that differ from call to call.
pub async fn talk_each(
    calls: &mut Vec<Call>,
    speech: impl Fn(usize) -> Arc<Vec<Vec<u8>>>,
    time: Duration,
) -> Result<(u64, Vec<Tally>)> {
    let (begin, count) = (Instant::now(), calls.len() as u32);
    let mut tasks = JoinSet::new();
    for (at, mut call) in calls.drain(..).enumerate() {
        let speech = speech(at);
        let first = begin + PTIME * at as u32 / count;
        tasks.spawn(async move {
            let mut tally = Tally::default();
            let sent = call
                .talk(&speech, first, begin + time, |heard| tally.take(&heard))
                .await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>((call, sent.len() as u64, tally))
        });
    }
    let (mut sent, mut tallies) = (0, Vec::new());
    while let Some(done) = tasks.join_next().await {
        let (call, packets, tally) = done??;
        calls.push(call);
        sent += packets;
        tallies.push(tally);
    }
    Ok((sent, tallies))
}

/// Live calls with speech in both directions: the callers send speech without a pause, and the echo
/// bot's audio is decoded and encoded. A wait is a thread of the runner that sleeps until something
/// happens, most often for the next packet. Memory per session is the growth by 31 sessions after
/// the first.
pub fn cpu(bench: &Bench) -> Result<Lines> {
    let runner = Runner::start(&bench.binary)?;
    let speech = Arc::new(speech::voice(10)?);
    let runtime = runtime()?;
    let mut http = Connection::open(runner.addr)?;
    let (mut calls, mut lines, mut rss_kib) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sent, mut heard) = (0, Vec::new());
    for count in [1, 8, 32] {
        while calls.len() < count {
            calls.push(runtime.block_on(Call::begin(&mut http))?);
        }
        let (settling, _) = runtime.block_on(talk(&mut calls, &speech, Duration::from_secs(2)))?;
        let (began, before, waits) = (Instant::now(), runner.cpu_s()?, runner.waits()?);
        let time = Duration::from_secs(bench.amount(if count == 1 { 40 } else { 20 }, 5).into());
        let (packets, tallies) = runtime.block_on(talk(&mut calls, &speech, time))?;
        let cores = (runner.cpu_s()? - before) / began.elapsed().as_secs_f64();
        let waits = (runner.waits()? - waits) as f64 / began.elapsed().as_secs_f64();
        lines.push(row(
            format!("CPU per echo session at {count}"),
            format!("{:.4} cores", cores / count as f64),
        ));
        lines.push(row(
            format!("waits per second and echo session at {count}"),
            format!("{:.1}", waits / count as f64),
        ));
        rss_kib.push(runner.status_kib("VmRSS")?);
        sent += settling + packets;
        heard = tallies;
    }
    let (first, last) = (rss_kib[0], rss_kib[rss_kib.len() - 1]);
    for mut call in calls {
        // Packets in flight arrive before the close.
        runtime.block_on(call.listen(Instant::now() + Duration::from_millis(5), |_| {}))?;
        call.leave()?;
    }
    runner.wait_until_idle()?;
    lines.extend(losses(&runner.log()?, sent, &heard));
    lines.push(row(
        "memory per echo session, 32 against 1",
        format!("{} KiB (RSS {} MiB at 32)", last.saturating_sub(first) / 31, mib(last)),
    ));
    Ok(lines)
}

/// Compares the packets sent with those that the runner reports as received, and checks the
/// sequence numbers of the packets that came back.
pub fn losses(log: &str, sent: u64, heard: &[Tally]) -> Lines {
    let received: u64 = log.lines().filter_map(received).sum();
    let back: u64 = heard.iter().map(|tally| tally.packets).sum();
    let missing = heard.iter().map(Tally::missing);
    let (lost, skipped) = missing.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    vec![
        row(
            "packets lost on the way in, all sessions",
            format!("{} of {sent}", sent.saturating_sub(received)),
        ),
        row(
            "packets lost on the way back, at 32",
            format!("{lost} of {}, {skipped} slots skipped", back + lost),
        ),
    ]
}

/// Returns the number of audio packets that a session received, from its last log line.
pub fn received(line: &str) -> Option<u64> {
    let (_, counts) = line.split_once("audio: ")?;
    counts.split_once(" received")?.0.parse().ok()
}

/// Live telephone calls with speech in both directions, Twilio's messages, and the echo bot.
///
/// Lost are messages that did not come back. Latency is the time from sending a message to
/// receiving its echo. Lateness is the time from the deadline of a paced message to its arrival:
/// each call receives four seconds of speech at once, of which the first eleven messages may be
/// sent at once and each further one 20 ms after the one before; it is measured while all calls are
/// paced. Both include loopback and the wake-ups of this process, which runs all callers in one
/// thread.
pub fn calls(bench: &Bench) -> Result<Lines> {
    let runner = Runner::start(&bench.binary)?;
    let runtime = runtime()?;
    let (mut phones, mut lines, mut rss_kib) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sent, mut back, mut through) = (0, 0, Vec::new());
    for count in [1, 10, 100] {
        while phones.len() < count {
            phones.push(runtime.block_on(Phone::begin(runner.addr, phones.len()))?);
        }
        let messages = bench.amount(1_000, 250);
        let (began, before) = (Instant::now(), runner.cpu_s()?);
        through.clear();
        for (phone, one_sent, one_heard) in runtime.block_on(talk_all(&mut phones, messages))? {
            phones.push(phone);
            sent += one_sent.len();
            back += one_heard.len();
            through.extend(one_heard.iter().zip(&one_sent).map(|(heard, sent)| *heard - *sent));
        }
        let cores = (runner.cpu_s()? - before) / began.elapsed().as_secs_f64();
        lines.push(row(
            format!("CPU per telephone call at {count}"),
            format!("{:.4} cores", cores / count as f64),
        ));
        rss_kib.push(runner.status_kib("VmRSS")?);
    }
    let mut late = runtime.block_on(burst_all(&mut phones))?;
    lines.push(row("messages lost, all calls", format!("{} of {sent}", sent - back)));
    lines.push(row("message in to its echo out, 100 calls", spread(&mut through)));
    lines.push(row("paced messages late, 100 calls", spread(&mut late)));
    let (first, last) = (rss_kib[0], rss_kib[rss_kib.len() - 1]);
    lines.push(row(
        "memory per telephone call, 100 against 1",
        format!("{} KiB (RSS {} MiB at 100)", last.saturating_sub(first) / 99, mib(last)),
    ));
    for phone in phones {
        runtime.block_on(phone.leave())?;
    }
    runner.wait_until_idle()?;
    Ok(lines)
}

type Talk = (Phone, Vec<Instant>, Vec<Instant>);

/// Runs all phones at once, each at its own phase of the 20 ms.
async fn talk_all(phones: &mut Vec<Phone>, messages: u32) -> Result<Vec<Talk>> {
    let (begin, count) = (Instant::now(), phones.len() as u32);
    let mut tasks = JoinSet::new();
    for (at, mut phone) in phones.drain(..).enumerate() {
        let first = begin + phone::PTIME * at as u32 / count;
        tasks.spawn(async move {
            let (sent, heard) = phone.talk(messages, first).await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>((phone, sent, heard))
        });
    }
    let mut talks = Vec::new();
    while let Some(done) = tasks.join_next().await {
        talks.push(done??);
    }
    Ok(talks)
}

/// Sends every phone four seconds of speech at once, one phone after the other. Returns the
/// lateness of the paced part of each echo, from the time at which all have begun.
async fn burst_all(phones: &mut Vec<Phone>) -> Result<Vec<Duration>> {
    const UNPACED: usize = 11;
    let (mut tasks, begin) = (JoinSet::new(), Instant::now());
    // Not a divisor of 20 ms, so that the calls have different phases.
    let step = Duration::from_micros(10_700);
    let all_begun = begin + step * phones.len() as u32 + phone::PTIME * 10;
    for (at, mut phone) in phones.drain(..).enumerate() {
        tasks.spawn(async move {
            tokio::time::sleep_until((begin + step * at as u32).into()).await;
            let heard = phone.burst(200).await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>((phone, heard))
        });
    }
    let mut late = Vec::new();
    while let Some(done) = tasks.join_next().await {
        let (phone, heard) = done??;
        phones.push(phone);
        let Some(first) = heard.first() else { continue };
        let paced = heard
            .iter()
            .enumerate()
            .skip(UNPACED)
            .filter(|(_, at)| **at > all_begun);
        late.extend(paced.map(|(nth, at)| {
            let due = *first + phone::PTIME * (nth - UNPACED + 1) as u32;
            at.saturating_duration_since(due)
        }));
    }
    Ok(late)
}

/// The time from a packet that begins a loud burst after silence to the first loud packet of the
/// echo.
///
/// It is found by content, not by sequence number, so that a runner cannot hide a delay by a slot.
/// It includes both trips over loopback, the wake-ups of the runner and of this process, the
/// runner's SRTP, jitter buffer, decoder, bot, encoder and pacer, and the client's SRTP. It
/// excludes the look-ahead of the codecs, some 13 ms that do not depend on the runner; see
/// [`Bursts`]. Eight calls run at once, each at its own phase of the 20 ms, so that bursts meet any
/// phase of the pacer. A stall of the machine shows until the end of a call: a backlog drains only
/// when the source pauses, and an echo never does. The last line is a client with a thread that
/// reflects datagrams: the share of the machine and of the measurement.
pub fn delay(bench: &Bench) -> Result<Lines> {
    let count = bench.amount(50, 10) as usize;
    let bursts = (0..8).map(|at| Bursts::new(count, at)).collect::<Result<Vec<_>>>()?;
    let runner = Runner::start(&bench.binary)?;
    let runtime = runtime()?;
    let mut http = Connection::open(runner.addr)?;
    let mut tasks = JoinSet::new();
    let calls = (0..8)
        .map(|_| runtime.block_on(Call::begin(&mut http)))
        .collect::<Result<Vec<_>>>()?;
    let began = Instant::now();
    for (at, (call, bursts)) in calls.into_iter().zip(bursts).enumerate() {
        // Steps of 2.7 ms: no two calls share a phase, and none is a multiple of the milliseconds
        // of a timer.
        let first = began + Duration::from_millis(500) + Duration::from_micros(2_700) * at as u32;
        let guard = runtime.enter();
        tasks.spawn(burst_delays(call, bursts, first));
        drop(guard);
    }
    let mut delays = Vec::new();
    while let Some(done) = runtime.block_on(tasks.join_next()) {
        delays.extend(done??);
    }
    let total = count * 8;
    let missed = total - delays.len();
    let mut measured = spread(&mut delays);
    if missed > 0 {
        // A call with missing or split bursts is not counted.
        measured += &format!(", {missed} not counted");
    }
    let mut baseline_delays = runtime.block_on(baseline(bench.amount(400, 80)))?;
    Ok(vec![
        row(format!("delay packet in to packet out, {total} bursts"), measured),
        row("of it loopback and client alone", spread(&mut baseline_delays)),
    ])
}

async fn burst_delays(mut call: Call, bursts: Bursts, first: Instant) -> Result<Vec<Duration>> {
    let end = first + PTIME * bursts.packets.len() as u32;
    let mut heard = Vec::new();
    let sent = call.talk(&bursts.packets, first, end, |one| heard.push(one)).await?;
    call.listen(end + PTIME * 10, |one| heard.push(one)).await?;
    let payloads: Vec<_> = heard.iter().map(|one| &one.packet.payload).collect();
    let onsets = speech::onsets(&payloads)?;
    // In order, so that an echo that comes after the next burst is not matched to that burst.
    if onsets.len() != bursts.begins.len() {
        return Ok(Vec::new());
    }
    let pairs = bursts.begins.iter().zip(onsets);
    Ok(pairs
        .map(|(begin, onset)| heard[onset].at.saturating_duration_since(sent[*begin]))
        .collect())
}

async fn baseline(count: u32) -> Result<Vec<Duration>> {
    let mirror = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let addr = mirror.local_addr()?;
    thread::spawn(move || {
        let mut datagram = [0; 2_048];
        // An empty datagram ends it.
        while let Ok((length @ 1.., source)) = mirror.recv_from(&mut datagram) {
            let _ = mirror.send_to(&datagram[..length], source);
        }
    });
    let socket = tokio::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let mut delays = Vec::new();
    let mut datagram = [0; 2_048];
    for _ in 0..count {
        tokio::time::sleep(PTIME / 2).await;
        let sent = Instant::now();
        socket.send_to(&[1; 100], addr).await?;
        socket.recv_from(&mut datagram).await?;
        delays.push(sent.elapsed());
    }
    socket.send_to(&[], addr).await?;
    Ok(delays)
}

pub fn at(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent).div_ceil(100).clamp(1, sorted.len()) - 1]
}

pub fn spread(times: &mut [Duration]) -> String {
    if times.is_empty() {
        return "nothing".to_owned();
    }
    times.sort();
    format!("p50 {} ms, p99 {} ms", ms(at(times, 50)), ms(at(times, 99)))
}

fn ms(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1e3)
}

pub fn mib(kib: u64) -> String {
    format!("{:.2}", kib as f64 / 1024.0)
}
