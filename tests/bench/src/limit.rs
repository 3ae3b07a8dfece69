//! The row `limit`: how many WebRTC calls at once lose nothing, and what loses the first packet.
//!
//! Calls as in the row `cpu`, of which 16 more begin at each step, until packets are lost. Each
//! step reports the packets that did not reach the bot, those that did not come back, the slots of
//! 20 ms that the runner skipped, and the CPU of the runner and of the callers, which share the
//! cores. The last line says where packets were lost: in the kernel's queue of the port, in the
//! inboxes of the sessions, behind others so that they came too late, or on the way back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::call::Call;
use crate::http::Connection;
use crate::rows::{self, Lines, row};
use crate::runner::{self, Runner};
use crate::{Bench, Result, junk, speech};

/// Calls that a step adds.
const STEP: usize = 16;
/// Calls of the last step. One address gets three quarters of the sessions.
const CALLS_MAX: usize = 240;

pub fn limit(bench: &Bench) -> Result<Lines> {
    let runner = Runner::start_stock(&bench.binary, &format!(" --max-sessions {}", CALLS_MAX * 4 / 3))?;
    let speech = Arc::new(speech::voice(10)?);
    let runtime = rows::runtime()?;
    let mut http = Connection::open(runner.addr)?;
    let (mut calls, mut lines, mut without_loss) = (Vec::new(), Vec::new(), 0);
    let time = Duration::from_secs(bench.amount(20, 5).into());
    let mut where_lost = "nowhere".to_owned();
    for count in (STEP..=CALLS_MAX).step_by(STEP) {
        while calls.len() < count {
            calls.push(runtime.block_on(Call::begin(&mut http))?);
        }
        let port = calls[0].remote.port();
        runtime.block_on(rows::talk(&mut calls, &speech, Duration::from_secs(2)))?;
        let before = Lost::so_far(&runner, port)?;
        // Callers were silent while the figures were read, for which the runner skips a slot.
        runtime.block_on(rows::talk(&mut calls, &speech, Duration::from_secs(1)))?;
        let (began, cpu_s, own_s) = (Instant::now(), runner.cpu_s()?, runner::cpu_s("self")?);
        let (_, received) = runtime.block_on(rows::talk(&mut calls, &speech, time))?;
        let took = began.elapsed().as_secs_f64();
        let (cpu_s, own_s) = (runner.cpu_s()? - cpu_s, runner::cpu_s("self")? - own_s);
        let lost = Lost::so_far(&runner, port)?;
        let on_way_in = lost.on_way_in - before.on_way_in;
        let (kernel, inbox) = (lost.kernel - before.kernel, lost.inbox - before.inbox);
        let missing = received.iter().map(rows::Tally::missing);
        let (back, skipped) = missing.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        lines.push(row(
            format!("{count} sessions: packets lost in and back, slots skipped"),
            format!(
                "{on_way_in}, {back}, {skipped}; runner {:.2} and callers {:.2} cores",
                cpu_s / took,
                own_s / took
            ),
        ));
        if on_way_in + back + skipped > 0 {
            where_lost = format!(
                "kernel {kernel}, inboxes {inbox}, too late {}, way back {back}, slots skipped {skipped}",
                on_way_in.saturating_sub(kernel + inbox)
            );
            break;
        }
        without_loss = count;
    }
    lines.push(row("sessions without a loss", without_loss.to_string()));
    lines.push(row("what loses the first packets", where_lost));
    for call in calls {
        call.leave()?;
    }
    Ok(lines)
}

/// Packets of callers that were lost so far.
struct Lost {
    /// By the count of the sessions, which includes packets that came too late.
    on_way_in: u64,
    /// In the queue of the port.
    kernel: u64,
    /// In the inboxes of the sessions.
    inbox: u64,
}

impl Lost {
    fn so_far(runner: &Runner, port: u16) -> Result<Lost> {
        // Sessions add to the metrics once a second.
        std::thread::sleep(Duration::from_millis(1_500));
        Ok(Lost {
            on_way_in: runner.figure("edge_runner_audio_packets_lost_total")?,
            kernel: junk::dropped(port)?,
            inbox: runner.figure("edge_runner_datagrams_dropped_total{reason=\"inbox_full\"}")?,
        })
    }
}
