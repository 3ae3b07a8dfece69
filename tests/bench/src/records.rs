//! The row `records`: calls whose records are written to `--calls-dir`, as fast as they come.
//!
//! Eight clients side by side have short calls on `/ws-client`, one after the other: a typed text
//! of 1,500 bytes, 20 ms of speech, a close. `--calls-kept` allows more calls than there are, so
//! that the limit of bytes is what bounds the memory. Another client asks for `/calls` meanwhile.
//! Afterwards it reports the lines of the files of a day, what the log says of records that were
//! not written, memory before and after, and the times of both routes.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::http::Connection;
use crate::plain::Plain;
use crate::rows::{self, Lines, mib, row, spread};
use crate::runner::Runner;
use crate::{Bench, Result};

const CLIENTS: u32 = 8;
/// Bytes of the text of a call.
const TEXT_BYTES: usize = 1_500;
/// Time for the last records on a slow disk.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two requests beside the calls.
const ASK_EVERY: Duration = Duration::from_millis(10);
/// Requests of each route afterwards.
const ASKED: usize = 500;

pub fn records(bench: &Bench) -> Result<Lines> {
    let count = bench.amount(1_000, 200);
    let runner = Runner::start_stock(
        &bench.binary,
        " --max-sessions 160 --calls-kept 10000 --calls-dir calls",
    )?;
    // The first call of a process makes what all of them use.
    rows::runtime()?.block_on(call(runner.addr, 0))?;
    runner.wait_until_settled()?;
    let before = (runner.status_kib("VmRSS")?, runner.status_kib("RssAnon")?);
    let began = Instant::now();
    let mut beside = burst(runner.addr, count)?;
    let took = began.elapsed().as_secs_f64();
    runner.wait_until_settled()?;
    let after = (runner.status_kib("VmRSS")?, runner.status_kib("RssAnon")?);
    let written = written(&runner.folder().join("calls"), count + 1)?;
    let unwritten = runner
        .log()?
        .lines()
        .filter(|line| line.contains(" not written"))
        .count();
    let mut http = Connection::open(runner.addr)?;
    let (ids, kept) = kept(&mut http)?;
    let mut list = times(&mut http, std::iter::repeat_n("/calls".to_owned(), ASKED))?;
    let each = ids.iter().cycle().take(ASKED).map(|id| format!("/calls/{id}"));
    let mut one = times(&mut http, each)?;
    Ok(vec![
        row(
            format!("{count} calls of {CLIENTS} clients with --calls-dir"),
            format!("{:.0} calls a second", f64::from(count) / took),
        ),
        row(
            "records in files, and lines of the log without one",
            format!("{} of {}, {unwritten}", written.records, count + 1),
        ),
        row(
            "files of records",
            format!(
                "{} bytes, {} a call",
                written.bytes,
                written.bytes / u64::from(count + 1)
            ),
        ),
        row(
            "memory before and after (RSS, its own)",
            format!(
                "{} and {} MiB, {} and {} MiB",
                mib(before.0),
                mib(after.0),
                mib(before.1),
                mib(after.1)
            ),
        ),
        row("records kept in memory, of at most 1 MiB", kept.to_string()),
        row("/calls beside the calls", spread(&mut beside)),
        row("/calls, 50 rows", spread(&mut list)),
        row("/calls/ID", spread(&mut one)),
    ])
}

/// Has calls, and returns the times of `/calls` beside them.
fn burst(addr: SocketAddr, count: u32) -> Result<Vec<Duration>> {
    let (next, is_over) = (AtomicU32::new(1), AtomicBool::new(false));
    thread::scope(|scope| {
        let asking = scope.spawn(|| -> Result<Vec<Duration>> {
            let mut http = Connection::open(addr)?;
            let mut taken = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                taken.extend(times(&mut http, ["/calls".to_owned()].into_iter())?);
                thread::sleep(ASK_EVERY);
            }
            Ok(taken)
        });
        let client = || -> Result<()> {
            let runtime = rows::runtime()?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number > count {
                    return Ok(());
                }
                runtime.block_on(call(addr, number))?;
            }
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        let calls = clients
            .into_iter()
            .try_for_each(|client| client.join().expect("a client does not panic"));
        is_over.store(true, Ordering::Relaxed);
        let taken = asking.join().expect("the client does not panic");
        calls.and(taken)
    })
}

async fn call(addr: SocketAddr, number: u32) -> Result<()> {
    let mut plain = Plain::begin(addr).await?;
    let text = format!("call {number}: {}", "so many words ".repeat(TEXT_BYTES / 14));
    plain.send_text(&text).await?;
    plain.say_once().await?;
    plain.leave().await
}

/// What is in the files of records.
#[derive(Default)]
struct WrittenRecords {
    records: usize,
    bytes: u64,
}

/// Reads the files until they have a record of each call, or for as long as a slow disk may take.
fn written(folder: &Path, count: u32) -> Result<WrittenRecords> {
    let began = Instant::now();
    loop {
        let mut found = WrittenRecords::default();
        let mut ids = BTreeSet::new();
        for entry in fs::read_dir(folder)? {
            let text = fs::read_to_string(entry?.path())?;
            found.bytes += text.len() as u64;
            for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
                let record: Value = serde_json::from_str(line)?;
                ids.insert(record["id"].as_str().ok_or("a record without an id")?.to_owned());
                found.records += 1;
            }
        }
        if ids.len() != found.records {
            return Err("a call has two records".into());
        }
        if found.records >= count as usize || began.elapsed() > PATIENCE {
            return Ok(found);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Returns the ids of the latest calls, and how many records are kept.
fn kept(http: &mut Connection) -> Result<(Vec<String>, usize)> {
    let (mut ids, mut after) = (Vec::new(), String::new());
    loop {
        let (status, body) = http.request("GET", &format!("/calls?limit=200{after}"), b"")?;
        if status != 200 {
            return Err(format!("/calls answered {status}").into());
        }
        let page: Value = serde_json::from_slice(&body)?;
        for call in page["calls"].as_array().ok_or("no list of calls")? {
            ids.push(call["id"].as_str().ok_or("a call without an id")?.to_owned());
        }
        let Some(next) = page["next"].as_str() else {
            let kept = ids.len();
            ids.truncate(200);
            return Ok((ids, kept));
        };
        after = format!("&after={next}");
    }
}

/// Requests each path once, and returns the times of the answers.
fn times(http: &mut Connection, paths: impl Iterator<Item = String>) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for path in paths {
        let began = Instant::now();
        let (status, _) = http.request("GET", &path, b"")?;
        times.push(began.elapsed());
        if status != 200 {
            return Err(format!("{path} answered {status}").into());
        }
    }
    Ok(times)
}
