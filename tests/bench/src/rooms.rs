//! Sessions in LiveKit rooms with the echo bot. Each has its own room and one participant, which
//! speaks without a pause.
//!
//! The test server and the participants are in this process, so their CPU is not counted. A session
//! has a second connection beside that of a WebRTC session, and each packet of the bot carries its
//! audio level.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::http::Connection;
use crate::rows::{Lines, mib, row};
use crate::runner::Runner;
use crate::support::livekit::{Options, Server};
use crate::support::participant::TestParticipant;
use crate::support::sound::Speech;
use crate::{Bench, Result};

const COUNTS: [usize; 2] = [1, 8];

pub fn rooms(bench: &Bench) -> Result<Lines> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let options = Options::default();
    let server = runtime.block_on(Server::start(options.clone()))?;
    let url = server.url();
    let environment = [
        ("MEDIAROOM_URL", url.as_str()),
        ("MEDIAROOM_API_KEY", &options.key),
        ("MEDIAROOM_API_SECRET", &options.secret),
    ];
    let runner = Runner::start_with(&bench.binary, &environment)?;
    let mut http = Connection::open(runner.addr)?;
    let (mut callers, mut lines, mut rss_kib) = (Vec::new(), Vec::new(), Vec::new());
    let mut entered = Vec::new();
    for count in COUNTS {
        while callers.len() < count {
            let asked = Instant::now();
            let (_, reply) = http.request("POST", "/start", br#"{"transport":"mediaroom"}"#)?;
            let reply: Value = serde_json::from_slice(&reply)?;
            let text = |name: &str| reply[name].as_str().map(str::to_owned).ok_or("no room in the reply");
            let participant = TestParticipant::join(runtime.handle(), &text("url")?, &text("token")?);
            participant.talk(Some(Speech::Voice {
                from_ms: 0,
                to_ms: u32::MAX,
            }));
            participant.wait_for("voice of the bot", |seen| {
                seen.received.iter().any(|sample| *sample != 0)
            });
            entered.push(asked.elapsed());
            callers.push(participant);
        }
        thread::sleep(Duration::from_secs(2));
        let (began, before) = (Instant::now(), runner.cpu_s()?);
        thread::sleep(Duration::from_secs(bench.amount(20, 5).into()));
        let cores = (runner.cpu_s()? - before) / began.elapsed().as_secs_f64();
        lines.push(row(
            format!("CPU per session in a media room at {count}"),
            format!("{:.4} cores", cores / count as f64),
        ));
        rss_kib.push(runner.status_kib("VmRSS")?);
    }
    let (first, last) = (rss_kib[0], rss_kib[rss_kib.len() - 1]);
    let more = (COUNTS[1] - COUNTS[0]) as u64;
    lines.push(row(
        "memory per session in a media room, 8 against 1",
        format!("{} KiB (RSS {} MiB at 8)", last.saturating_sub(first) / more, mib(last)),
    ));
    entered.sort();
    lines.push(row(
        "/start of a media room to the caller's own voice in the echo",
        format!(
            "{} ms median of {}",
            entered[entered.len() / 2].as_millis(),
            entered.len()
        ),
    ));
    for participant in callers {
        participant.leave();
    }
    Ok(lines)
}
