//! The row `junk`: the effect of 50,000 unsolicited datagrams per second on a live call.
//!
//! A call with speech both ways, first alone, then beside threads that send from many ports to the
//! UDP port of the runner: noise, checks for unknown sessions, and packets that look like DTLS, RTP
//! and RTCP. The row reports packets that did not reach the session, by its own count, packets that
//! did not come back, by their sequence numbers, and the datagrams that the kernel dropped at the
//! socket, from `/proc/net/udp`.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::call::Call;
use crate::http::Connection;
use crate::rows::{self, Lines, row};
use crate::runner::Runner;
use crate::{Bench, Result, speech};

const PER_SECOND: u64 = 50_000;
/// Interval of the bursts.
const BURST: Duration = Duration::from_millis(1);
const SOURCES: usize = 64;

pub fn junk(bench: &Bench) -> Result<Lines> {
    let runner = Runner::start(&bench.binary)?;
    let time = Duration::from_secs(bench.seconds.unwrap_or_else(|| bench.amount(60, 10)).into());
    let mut lines = stretch(&runner, "alone", time)?;
    // The log line with the port may follow the one that the start waits for; by now it is there.
    let port = rtc_port(&runner.log()?).ok_or("the log does not tell the UDP port")?;
    let (over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let before = (dropped(port)?, runner.cpu_s()?);
    let mut took = Duration::ZERO;
    let beside = thread::scope(|scope| {
        let flood = scope.spawn(|| flood(([127, 0, 0, 1], port).into(), &over, &sent));
        let began = Instant::now();
        let lines = stretch(&runner, "beside junk", time);
        over.store(true, Ordering::Relaxed);
        took = began.elapsed();
        flood.join().expect("the flood does not panic").and(lines)
    })?;
    lines.extend(beside);
    let sent = sent.load(Ordering::Relaxed);
    lines.push(row(
        format!("junk of {} s, sent and dropped by the kernel", took.as_secs()),
        format!(
            "{sent} ({:.0} per s), {} dropped",
            sent as f64 / took.as_secs_f64(),
            dropped(port)? - before.0
        ),
    ));
    lines.push(row(
        "CPU of the runner meanwhile, call included",
        format!("{:.3} cores", (runner.cpu_s()? - before.1) / took.as_secs_f64()),
    ));
    Ok(lines)
}

/// One call of this duration, and its loss.
fn stretch(runner: &Runner, name: &str, time: Duration) -> Result<Lines> {
    let runtime = rows::runtime()?;
    let speech = Arc::new(speech::voice(10)?);
    let mut http = Connection::open(runner.addr)?;
    let mut calls = vec![runtime.block_on(Call::begin(&mut http))?];
    let (sent, heard) = runtime.block_on(rows::talk(&mut calls, &speech, time))?;
    for mut call in calls {
        // Packets in flight arrive before the close.
        runtime.block_on(call.listen(Instant::now() + Duration::from_millis(50), |_| {}))?;
        call.leave()?;
    }
    runner.wait_until_idle()?;
    let log = runner.log()?;
    let received = log.lines().filter_map(rows::received).last().unwrap_or(0);
    let lost_in = sent.saturating_sub(received);
    let back = heard[0].packets;
    let (lost_back, _) = heard[0].missing();
    Ok(vec![
        row(
            format!("a call {name}, frames lost on the way in"),
            format!("{lost_in} of {sent} ({})", percent(lost_in, sent)),
        ),
        row(
            format!("a call {name}, frames lost on the way back"),
            format!(
                "{lost_back} of {} ({})",
                back + lost_back,
                percent(lost_back, back + lost_back)
            ),
        ),
    ])
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.2} %", part as f64 * 100.0 / whole.max(1) as f64)
}

/// Sends bursts of all kinds until the end.
fn flood(to: SocketAddr, over: &AtomicBool, sent: &AtomicU64) -> Result<()> {
    let sockets = (0..SOURCES)
        .map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)))
        .collect::<std::io::Result<Vec<_>>>()?;
    let kinds = kinds();
    let began = Instant::now();
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        let due = began.elapsed().as_micros() as u64 * PER_SECOND / 1_000_000;
        while count < due {
            // Consecutive datagrams differ in kind and source.
            let (kind, socket) = (
                &kinds[count as usize % kinds.len()],
                &sockets[count as usize * 7 % SOURCES],
            );
            // A full queue of the receiver is not an error here.
            socket.send_to(kind, to)?;
            count += 1;
        }
        sent.store(count, Ordering::Relaxed);
        thread::sleep(BURST);
    }
    Ok(())
}

/// Returns unsolicited datagrams of each kind, short and long.
fn kinds() -> Vec<Vec<u8>> {
    let noise = |first: u8, bytes: usize| -> Vec<u8> {
        let mut state = 0x9e37_79b9_u32 ^ u32::from(first) ^ bytes as u32;
        let rest = (1..bytes).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        std::iter::once(first).chain(rest).collect()
    };
    let mut kinds: Vec<Vec<u8>> = [1, 63, 255].into_iter().map(|first| noise(first, 40)).collect();
    // A check for an unknown session (RFC 8489 section 5, RFC 8445 section 7.1).
    let mut check = vec![0, 1, 0, 72, 0x21, 0x12, 0xa4, 0x42];
    check.extend([7; 12]);
    check.extend([0, 6, 0, 9]);
    check.extend(b"nobd:them\0\0\0");
    check.extend([0, 0x24, 0, 4, 0x6e, 0, 0x1e, 0xff, 0, 8, 0, 20]);
    check.extend([9; 20]);
    check.extend([0x80, 0x28, 0, 4, 1, 2, 3, 4, 0x80, 0x22, 0, 4, 1, 2, 3, 4]);
    kinds.push(check);
    // A ClientHello, DTLS application data, RTP like audio, RTP like video, RTCP.
    let record = |kind: u8, bytes: usize| [&[kind, 254, 253, 0, 0, 0, 0, 0, 0, 0, 1][..], &noise(1, bytes)].concat();
    kinds.extend([record(22, 200), record(23, 80), record(23, 1_100)]);
    kinds.extend([noise(128, 100), noise(128, 1_200), noise(0x81, 60)]);
    kinds
}

/// Returns the UDP port of the sessions from the log.
fn rtc_port(log: &str) -> Option<u16> {
    let (_, rest) = log.split_once("WebRTC on UDP port ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Returns how many datagrams the kernel has dropped at the IPv4 socket of this port: the last
/// column.
pub fn dropped(port: u16) -> Result<u64> {
    let table = std::fs::read_to_string("/proc/net/udp")?;
    let end = format!(":{port:04X}");
    let line = table.lines().find(|line| {
        line.split_whitespace()
            .nth(1)
            .is_some_and(|local| local.ends_with(&end))
    });
    let drops = line.and_then(|line| line.split_whitespace().last());
    Ok(drops.ok_or("no such socket in /proc/net/udp")?.parse()?)
}
