//! Calls over QUIC with the echo bot, in serve mode.
//!
//! The callers are those of the tests: the library's own link and peer, each in a thread of this
//! process, so their CPU is not counted. Speech, times and percentiles are those of the WebRTC
//! rows.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::http::Connection;
use crate::rows::{Lines, mib, received, row, spread};
use crate::runner::Runner;
use crate::speech::{self, Bursts};
use crate::support::moq::{MoqClient, MoqInvitation, MoqPacket};
use crate::{Bench, Result};

/// Time in which the echo of the last packet arrives.
const LAST_ECHO: Duration = Duration::from_millis(150);

pub fn moq(bench: &Bench) -> Result<Lines> {
    let runner = Runner::start_moq(&bench.binary)?;
    let mut http = Connection::open(runner.addr)?;
    runner.sessions()?;
    thread::sleep(Duration::from_secs(2));
    let idle_kib = runner.status_kib("VmRSS")?;
    let mut lines = vec![row(
        "memory when idle, with -t moq",
        format!("RSS {} MiB", mib(idle_kib)),
    )];
    lines.extend(calls(bench, &runner, &mut http)?);
    lines.extend(delay(bench, &mut http)?);
    Ok(lines)
}

/// Begins a call, and returns it when the bot listens.
fn begin(http: &mut Connection) -> Result<MoqClient> {
    let (status, reply) = http.request("POST", "/start", br#"{"transport":"moq"}"#)?;
    let reply: Value = serde_json::from_slice(&reply)?;
    if status != 200 {
        return Err(format!("/start was answered {status}: {reply}").into());
    }
    let client = MoqClient::connect(&MoqInvitation::read(&reply));
    client.wait_for("subscription of the bot", |observed| observed.is_received);
    Ok(client)
}

/// CPU and memory as in the row `cpu`.
fn calls(bench: &Bench, runner: &Runner, http: &mut Connection) -> Result<Lines> {
    let speech = Arc::new(speech::voice(10)?);
    let (mut clients, mut lines, mut rss_kib) = (Vec::new(), Vec::new(), Vec::new());
    for count in [1_usize, 8, 32] {
        while clients.len() < count {
            // Steps of 3.1 ms, so that the calls have different phases of the 20 ms.
            let phase = Duration::from_micros(3_100) * clients.len() as u32;
            let client = begin(http)?;
            client.speak(speech.clone(), Instant::now() + phase);
            clients.push(client);
        }
        thread::sleep(Duration::from_secs(2));
        let (began, before) = (Instant::now(), runner.cpu_s()?);
        thread::sleep(Duration::from_secs(
            bench.amount(if count == 1 { 40 } else { 20 }, 5).into(),
        ));
        let cores = (runner.cpu_s()? - before) / began.elapsed().as_secs_f64();
        lines.push(row(
            format!("CPU per session over QUIC at {count}"),
            format!("{:.4} cores", cores / count as f64),
        ));
        rss_kib.push(runner.status_kib("VmRSS")?);
    }
    let (mut sent, mut back, mut lost) = (0, 0, 0);
    for client in &clients {
        let observed = client.observed();
        let groups: BTreeSet<u64> = observed.received.iter().map(|packet| packet.group).collect();
        let span = match (groups.first(), groups.last()) {
            (Some(first), Some(last)) => last - first + 1,
            _ => 0,
        };
        sent += observed.sent.len() as u64;
        back += observed.received.len() as u64;
        lost += span - groups.len() as u64;
        client.leave();
    }
    runner.wait_until_idle()?;
    let arrived: u64 = runner.log()?.lines().filter_map(received).sum();
    let (first, last) = (rss_kib[0], rss_kib[rss_kib.len() - 1]);
    lines.push(row(
        "packets lost over QUIC in, groups lost back",
        format!(
            "{} of {sent} in, {lost} groups beside {} packets back",
            sent.saturating_sub(arrived),
            back
        ),
    ));
    lines.push(row(
        "memory per session over QUIC, 32 against 1",
        format!("{} KiB (RSS {} MiB at 32)", last.saturating_sub(first) / 31, mib(last)),
    ));
    Ok(lines)
}

/// Delay as in the row `delay`.
fn delay(bench: &Bench, http: &mut Connection) -> Result<Lines> {
    let count = bench.amount(50, 10) as usize;
    let mut calls = Vec::new();
    for at in 0..8 {
        calls.push((begin(http)?, Bursts::new(count, at)?));
    }
    let began = Instant::now() + Duration::from_millis(500);
    for (at, (client, bursts)) in calls.iter().enumerate() {
        let first = began + Duration::from_micros(2_700) * at as u32;
        client.speak(Arc::new(bursts.packets.clone()), first);
    }
    let mut delays = Vec::new();
    for (client, bursts) in &calls {
        let all = bursts.packets.len();
        client.wait_for("own voice", |observed| observed.sent.len() >= all);
        thread::sleep(LAST_ECHO);
        let mut observed = client.observed();
        let last = observed.sent[all - 1] + LAST_ECHO;
        observed.received.retain(|packet| packet.at <= last);
        observed.received.sort_by_key(|packet: &MoqPacket| packet.timestamp_us);
        let payloads: Vec<_> = observed.received.iter().map(|packet| &packet.payload).collect();
        let onsets = speech::onsets(&payloads)?;
        // A call with missing or split bursts is not counted.
        if onsets.len() == bursts.begins.len() {
            let pairs = bursts.begins.iter().zip(onsets);
            delays.extend(pairs.map(|(begin, onset)| {
                let sent = observed.sent[*begin];
                observed.received[onset].at.saturating_duration_since(sent)
            }));
        }
    }
    let (total, counted) = (count * 8, delays.len());
    let measured = format!("{}, {} not counted", spread(&mut delays), total - counted);
    Ok(vec![row(
        format!("delay over QUIC packet in to packet out, {total} bursts"),
        measured,
    )])
}
