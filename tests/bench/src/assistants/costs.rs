//! What calls with an assistant cost: memory when idle, CPU and memory per call.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use edge_runner_proto::audio::g711::Law;
use tokio::task::JoinSet;

use super::assistant::Assistant;
use super::delays::times;
use super::records::Moment;
use super::sound;
use crate::call::Call;
use crate::http::Connection;
use crate::phone::{self, Phone};
use crate::rows::{self, Lines, mib, row};
use crate::runner::Runner;
use crate::speech;
use crate::{Bench, Result};

/// Calls at once.
const COUNTS: [usize; 3] = [1, 8, 32];
/// The length of a question with its answer, and of the time in which calls settle.
const CYCLE: Duration = Duration::from_secs(9);

/// Memory two seconds after the start, beside that of the echo bot.
pub fn idle(bench: &Bench, assistant: &Assistant) -> Result<Lines> {
    let rss_mib = |runner: &Runner| -> Result<String> {
        runner.sessions()?;
        thread::sleep(Duration::from_secs(2));
        Ok(mib(runner.status_kib("VmRSS")?))
    };
    let own = rss_mib(&assistant.start(bench)?)?;
    let echo = rss_mib(&Runner::start(&bench.binary)?)?;
    Ok(vec![row(
        format!("memory when idle with `{}`", assistant.bot),
        format!("RSS {own} MiB; with `echo` {echo} MiB"),
    )])
}

/// CPU and memory as in the row `cpu`: a question of 3 s, an answer of 5 s, and again, each caller
/// at another phase of it.
pub fn calls(bench: &Bench, assistant: &Assistant) -> Result<Lines> {
    let bot = assistant.bot;
    let runner = assistant.start(bench)?;
    let packets = speech::encode_as_browser(&sound::conversation(speech::BROWSER_RATE_HZ))?;
    let runtime = rows::runtime()?;
    let mut http = Connection::open(runner.addr)?;
    let (mut calls, mut lines, mut rss_kib) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sent, mut received) = (0, Vec::new());
    for count in COUNTS {
        while calls.len() < count {
            calls.push(runtime.block_on(Call::begin(&mut http))?);
        }
        let speech: Vec<_> = (0..count)
            .map(|at| {
                let mut packets = packets.clone();
                let begin_at = packets.len() * at / count;
                packets.rotate_left(begin_at);
                Arc::new(packets)
            })
            .collect();
        let say = |at: usize| speech[at].clone();
        let (settling, _) = runtime.block_on(rows::talk_each(&mut calls, say, CYCLE))?;
        let (began, before) = (Instant::now(), runner.cpu_s()?);
        let time = CYCLE * bench.amount(if count == 1 { 4 } else { 2 }, 1);
        let (packets, tallies) = runtime.block_on(rows::talk_each(&mut calls, say, time))?;
        let cores = (runner.cpu_s()? - before) / began.elapsed().as_secs_f64();
        lines.push(row(
            format!("CPU per call of `{bot}` at {count}"),
            format!("{:.4} cores", cores / count as f64),
        ));
        rss_kib.push(runner.status_kib("VmRSS")?);
        sent += settling + packets;
        received = tallies;
    }
    let answers = assistant.records.take();
    let answers = times(&answers, Moment::FirstAudio, |_| true).len();
    for mut call in calls {
        // Packets in flight arrive before the close.
        runtime.block_on(call.listen(Instant::now() + Duration::from_millis(5), |_| {}))?;
        call.leave()?;
    }
    runner.wait_until_idle()?;
    lines.extend(rows::losses(&runner.log()?, sent, &received));
    lines.push(row(
        format!("memory per call of `{bot}`, 32 against 1"),
        per_call(&rss_kib, 31, &format!(" at 32; {answers} answers")),
    ));
    Ok(lines)
}

fn per_call(rss_kib: &[u64], more: u64, what: &str) -> String {
    let (first, last) = (rss_kib[0], rss_kib[rss_kib.len() - 1]);
    format!(
        "{} KiB (RSS {} MiB{what})",
        last.saturating_sub(first) / more,
        mib(last)
    )
}

/// The same with telephone calls, Twilio's messages, and G.711 up to the service.
pub fn phones(bench: &Bench, assistant: &Assistant) -> Result<Lines> {
    let runner = assistant.start(bench)?;
    let pcm = sound::conversation(8_000);
    let mut line = vec![0; pcm.len()];
    Law::Mu.encode(&pcm, &mut line);
    let runtime = rows::runtime()?;
    let (mut phones, mut rss_kib, mut cores) = (Vec::new(), Vec::new(), 0.0);
    for count in [1, 32] {
        while phones.len() < count {
            phones.push(runtime.block_on(Phone::begin(runner.addr, phones.len()))?);
        }
        runtime.block_on(converse(&mut phones, &line, CYCLE))?;
        let (began, before) = (Instant::now(), runner.cpu_s()?);
        runtime.block_on(converse(&mut phones, &line, CYCLE * bench.amount(2, 1)))?;
        cores = (runner.cpu_s()? - before) / began.elapsed().as_secs_f64() / count as f64;
        rss_kib.push(runner.status_kib("VmRSS")?);
    }
    let answers = assistant.records.take();
    let answers = times(&answers, Moment::FirstAudio, |_| true).len();
    for phone in phones {
        runtime.block_on(phone.leave())?;
    }
    Ok(vec![
        row(
            "CPU per telephone call of `realtime` at 32",
            format!("{cores:.4} cores"),
        ),
        row(
            "memory per telephone call of `realtime`",
            per_call(&rss_kib, 31, &format!(" at 32; {answers} answers")),
        ),
    ])
}

/// Runs all phones at once, each at another phase of the conversation.
async fn converse(phones: &mut Vec<Phone>, line: &[u8], time: Duration) -> Result<()> {
    let (begin, count) = (Instant::now(), phones.len());
    let mut tasks = JoinSet::new();
    for (at, mut phone) in phones.drain(..).enumerate() {
        let mut line = line.to_vec();
        let begin_at = line.len() * at / count;
        line.rotate_left(begin_at);
        let first = begin + phone::PTIME * at as u32 / count as u32;
        tasks.spawn(async move {
            phone.converse(&line, first, begin + time).await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(phone)
        });
    }
    while let Some(done) = tasks.join_next().await {
        phones.push(done??);
    }
    Ok(())
}
