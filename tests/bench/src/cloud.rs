//! The cloud service: its memory, its requests, builds and claims per second, and its upload rate;
//! with `CLOUD_DATABASE` and `CLOUD_STORE` in the environment also those of a replica with role
//! `all`, and the claims of workers.
//!
//! Uploads are compared with a program that writes and syncs as many bytes to a file in the same
//! folder, as the service has to. They alternate, so that other load on the disk affects both.

use std::fs::{self, File};
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::http::{self, Connection};
use crate::rows::{Lines, UNMAPPED_AFTER, at, mib, row};
use crate::runner::Runner;
use crate::{Bench, Result};

const KEY: &str = "sk_bench_0123456789abcdef";
const MIB: usize = 1024 * 1024;
const DAY_MS: u128 = 24 * 60 * 60 * 1000;

/// What a replica needs of the environment.
const SHARED: [&str; 4] = [
    "CLOUD_DATABASE",
    "CLOUD_STORE",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
];

pub fn cloud(bench: &Bench) -> Result<Lines> {
    let mut lines = service(bench, &[])?;
    lines.push(claims(bench)?);
    let shared: Vec<(&str, String)> = SHARED
        .iter()
        .filter_map(|name| Some((*name, std::env::var(name).ok()?)))
        .collect();
    if shared.len() < SHARED.len() {
        lines.push(row(
            "replica on PostgreSQL and a store",
            "not measured: see tests/bench/README.md".into(),
        ));
        return Ok(lines);
    }
    let shared: Vec<(&str, &str)> = shared.iter().map(|(name, value)| (*name, &**value)).collect();
    let mut of_replica = service(bench, &shared)?;
    of_replica.extend(claims_of_workers(bench, &shared)?);
    lines.extend(
        of_replica
            .into_iter()
            .map(|(what, measured)| (format!("replica: {what}"), measured)),
    );
    Ok(lines)
}

/// Measures a service with these variables.
fn service(bench: &Bench, variables: &[(&str, &str)]) -> Result<Lines> {
    let runner = Runner::start_cloud(&bench.binary, KEY, variables)?;
    let mut asks = Connection::open(runner.addr)?;
    asks.headers = headers();
    asks.request("GET", "/v1/regions", b"")?;
    thread::sleep(UNMAPPED_AFTER);
    let idle = format!(
        "RSS {} MiB (its own {}), PSS {} MiB",
        mib(runner.status_kib("VmRSS")?),
        mib(runner.status_kib("RssAnon")?),
        mib(runner.pss_kib()?)
    );
    let mut lines = vec![row("memory of `cloud serve` when idle", idle)];
    lines.extend(uploads(bench, &runner, &mut asks)?);
    lines.extend(questions(bench, &runner, &mut asks)?);
    lines.extend(builds(bench, &mut asks)?);
    lines.push(row(
        "memory after all of it",
        format!("{} MiB", mib(runner.status_kib("VmRSS")?)),
    ));
    Ok(lines)
}

/// Requests for builds one after the other, and the time until all of them have ended.
fn builds(bench: &Bench, asks: &mut Connection) -> Result<Lines> {
    let count = bench.amount(400, 40);
    let mut uploads = Vec::new();
    for n in 0..count {
        uploads.push(send(asks, &[&archive(n)])?);
    }
    let (began, mut times, mut made) = (Instant::now(), Vec::new(), Vec::new());
    for upload in uploads {
        let wanted = format!(r#"{{"uploadId":"{upload}","region":"local"}}"#);
        let asked = Instant::now();
        let (status, answer) = asks.request("POST", "/v1/builds", wanted.as_bytes())?;
        times.push(asked.elapsed());
        if status != 201 {
            return Err(format!("a build was answered with {status}").into());
        }
        made.push(answer);
    }
    // The oldest one is claimed first, so that the newest four are among the last to end. Their
    // records tell, and not the metrics, which earlier releases do not have.
    for answer in made.iter().rev().take(4) {
        let made: Value = serde_json::from_slice(answer)?;
        let path = format!(
            "/v1/builds/{}",
            made["build"]["id"].as_str().ok_or("a build without an id")?
        );
        loop {
            let (_, answer) = asks.request("GET", &path, b"")?;
            let build: Value = serde_json::from_slice(&answer)?;
            match build["build"]["status"].as_str() {
                Some("success") => break,
                Some("pending" | "building") if began.elapsed() < Duration::from_secs(300) => {}
                other => return Err(format!("the build is {other:?}: {build}").into()),
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
    let took = began.elapsed();
    times.sort();
    let ms = |at: Duration| at.as_secs_f64() * 1e3;
    Ok(vec![
        row(
            format!("creation of a build, {count} one after the other"),
            format!("{:.1} ms, p99 {:.1} ms", ms(at(&times, 50)), ms(at(&times, 99))),
        ),
        row(
            "builds per second: claim, unpack, `touch`, record; 4 at once",
            format!("{:.1}", f64::from(count) / took.as_secs_f64()),
        ),
    ])
}

/// Commands at once of each process that claims builds, the highest that there is.
const SLOTS: u32 = 64;
/// Claims builds for commands that do not end, so that each claim takes a slot.
const CLAIMING: &str = "--max-builds 64 -- sleep 1000";

/// Claims of the service on one machine, from a queue that an earlier process has left.
fn claims(bench: &Bench) -> Result<(String, String)> {
    let folder = std::env::temp_dir().join(format!("edge-runner-bench-queue-{}", std::process::id()));
    let data = format!("--data-dir {}", folder.display());
    let measured = || {
        let filling =
            Runner::start_cloud_with(&bench.binary, KEY, &format!("{data} --max-builds 1 -- sleep 1000"), &[])?;
        // The first one runs, and does so again.
        let queued = queue(&filling, SLOTS)?.split_off(1);
        drop(filling);
        let service = Runner::start_cloud_with(&bench.binary, KEY, &format!("{data} {CLAIMING}"), &[])?;
        claim_rate(&service, &queued)
    };
    let rate = measured();
    // The processes have ended, so that nothing writes to it.
    let _ = fs::remove_dir_all(&folder);
    Ok(row("claims per second, 64 slots", format!("{:.0}", rate?)))
}

/// Claims of one worker, and of two at once, from a queue in PostgreSQL.
fn claims_of_workers(bench: &Bench, variables: &[(&str, &str)]) -> Result<Lines> {
    let api = Runner::start_cloud_with(&bench.binary, KEY, "--data-dir data --role api", variables)?;
    let mut lines = Vec::new();
    for count in [1, 2] {
        let queued = queue(&api, SLOTS * count)?;
        // Their leases outlive the measurement.
        let args = format!("--data-dir data --role worker --lease 600 {CLAIMING}");
        let workers = (0..count)
            .map(|_| Runner::start_cloud_with(&bench.binary, KEY, &args, variables))
            .collect::<Result<Vec<_>>>()?;
        lines.push(row(
            format!("claims per second of workers with 64 slots, {count} at once"),
            format!("{:.0}", claim_rate(&api, &queued)?),
        ));
        drop(workers);
    }
    Ok(lines)
}

/// Requests builds of archives that differ, and returns the paths of the builds.
fn queue(runner: &Runner, count: u32) -> Result<Vec<String>> {
    /// Beyond those of [`builds`].
    static NEXT: AtomicU32 = AtomicU32::new(1_000_000);
    let mut asks = Connection::open(runner.addr)?;
    asks.headers = headers();
    (0..count)
        .map(|_| {
            let upload = send(&mut asks, &[&archive(NEXT.fetch_add(1, Ordering::Relaxed))])?;
            let wanted = format!(r#"{{"uploadId":"{upload}","region":"local"}}"#);
            let (status, made) = asks.request("POST", "/v1/builds", wanted.as_bytes())?;
            let made: Value = serde_json::from_slice(&made)?;
            let id = made["build"]["id"].as_str();
            Ok(format!(
                "/v1/builds/{}",
                id.ok_or(format!("the build was answered with {status}"))?
            ))
        })
        .collect()
}

/// Waits until all builds of a queue are claimed, and returns how many were claimed per second from
/// the first claim to the answer that has the last one.
fn claim_rate(runner: &Runner, builds: &[String]) -> Result<f64> {
    let mut asks = Connection::open(runner.addr)?;
    asks.headers = headers();
    let began = Instant::now();
    let mut start = |path: &String| -> Result<u32> {
        loop {
            let (_, answer) = asks.request("GET", path, b"")?;
            let answer: Value = serde_json::from_slice(&answer)?;
            if let Some(start) = answer["build"]["startedAt"].as_str() {
                return Ok(ms_of_day(start).ok_or(format!("`startedAt` is {start}"))?);
            }
            if began.elapsed() > Duration::from_secs(120) {
                return Err(format!("the build is not claimed: {answer}").into());
            }
            thread::sleep(Duration::from_millis(5));
        }
    };
    // The oldest one is claimed first, so that few answers are asked for meanwhile.
    let newest_first = builds.iter().rev().map(&mut start).collect::<Result<Vec<_>>>()?;
    let first = newest_first.iter().min().ok_or("no builds")?;
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() % DAY_MS;
    let took_ms = (now_ms + DAY_MS - u128::from(*first)) % DAY_MS;
    Ok(builds.len() as f64 / took_ms.max(1) as f64 * 1e3)
}

/// The time of day of `2026-11-29T12:34:56.789Z`, in milliseconds.
fn ms_of_day(time: &str) -> Option<u32> {
    let (_, time) = time.strip_suffix('Z')?.split_once('T')?;
    let mut parts = time.split([':', '.']).map(|part| part.parse::<u32>().ok());
    let mut next = || parts.next().flatten();
    Some(((next()? * 60 + next()?) * 60 + next()?) * 1000 + next()?)
}

/// [`ARCHIVE`] with a comment of gzip, so that each has a digest of its own.
fn archive(n: u32) -> Vec<u8> {
    let mut archive = ARCHIVE.to_vec();
    archive[3] |= 0x10;
    archive.splice(10..10, format!("{n}\0").into_bytes());
    archive
}

fn headers() -> String {
    format!("Authorization: Bearer {KEY}\r\n")
}

/// `GET` of one finished build, keep-alive, sixteen connections in two threads of this process.
fn questions(bench: &Bench, runner: &Runner, asks: &mut Connection) -> Result<Lines> {
    let upload = send(asks, &[ARCHIVE])?;
    let wanted = format!(r#"{{"uploadId":"{upload}","region":"local"}}"#);
    let (status, made) = asks.request("POST", "/v1/builds", wanted.as_bytes())?;
    let made: Value = serde_json::from_slice(&made)?;
    let id = made["build"]["id"]
        .as_str()
        .ok_or(format!("the build was answered with {status}"))?;
    let path = format!("/v1/builds/{id}");
    let began = Instant::now();
    loop {
        let (_, build) = asks.request("GET", &path, b"")?;
        let build: Value = serde_json::from_slice(&build)?;
        match build["build"]["status"].as_str() {
            Some("success") => break,
            Some("pending" | "building") if began.elapsed() < Duration::from_secs(30) => {}
            other => return Err(format!("the build is {other:?}: {build}").into()),
        }
        thread::sleep(Duration::from_millis(20));
    }
    let time = Duration::from_secs(bench.amount(10, 2).into());
    http::load(runner.addr, &path, &headers(), 2, 8, time / 10)?;
    let before = runner.cpu_s()?;
    let answers = http::load(runner.addr, &path, &headers(), 2, 8, time)? as f64;
    let cpu_s = runner.cpu_s()? - before;
    Ok(vec![
        row(
            "GET of a build per second, 16 connections",
            format!("{:.0}", answers / time.as_secs_f64()),
        ),
        row(
            "service's CPU per GET of a build",
            format!("{:.1} us", cpu_s / answers * 1e6),
        ),
    ])
}

/// An empty tar with an empty `Dockerfile`, gzipped.
const ARCHIVE: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\xed\xcd\x4d\x0a\x40\x50\x00\x85\xd1\xb7\x14\x4b\x90\xf0\x36\x60\x23\x12\x25\x4a\xf9\xd9\xbf\x97\xa1\x4c\x29\x75\xce\xe4\xbb\xb3\xdb\x2c\xdd\xd4\xaf\xc3\x38\xf7\xe1\x35\x79\x52\x97\xe5\xd5\xe4\xde\x87\x1d\x63\x51\x85\x2c\x0f\x1f\x38\xb6\xbd\x5d\xd3\x65\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\xff\x38\x01\x82\x3e\x4d\x85\x00\x28\x00\x00";

/// Uploads of incompressible data, and the same bytes written to a file for comparison.
fn uploads(bench: &Bench, runner: &Runner, asks: &mut Connection) -> Result<Lines> {
    // The largest archive that the service takes by default.
    let count = bench.amount(500, 32) as usize;
    let mut state = 1u32;
    let mut noise: Vec<u8> = (0..MIB)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect();
    // The gzip magic, which the service checks.
    noise[..2].copy_from_slice(&[0x1f, 0x8b]);
    let pieces = vec![&noise[..]; count];
    let (mut sent, mut written) = (Vec::new(), Vec::new());
    let before = runner.cpu_s()?;
    let times = bench.amount(5, 3);
    for _ in 0..times {
        let began = Instant::now();
        let path = runner.folder().join("beside");
        let mut file = File::create(&path)?;
        for piece in &pieces {
            file.write_all(piece)?;
        }
        file.sync_all()?;
        written.push(began.elapsed());
        fs::remove_file(&path)?;
        let began = Instant::now();
        send(asks, &pieces)?;
        sent.push(began.elapsed());
    }
    let cpu_s = runner.cpu_s()? - before;
    sent.sort();
    written.sort();
    let rate = |time: Duration| count as f64 / time.as_secs_f64();
    Ok(vec![
        row(
            format!("upload of {count} MiB, median of {times}"),
            format!(
                "{:.0} MiB/s; a file beside it, synced: {:.0} MiB/s",
                rate(at(&sent, 50)),
                rate(at(&written, 50))
            ),
        ),
        row(
            "service's CPU per MiB of an upload",
            format!("{:.2} ms", cpu_s / (f64::from(times) * count as f64) * 1e3),
        ),
        row(
            "most memory of it up to then",
            format!("{} MiB", mib(runner.status_kib("VmHWM")?)),
        ),
    ])
}

/// Uploads a body, and returns the upload's identifier.
fn send(asks: &mut Connection, pieces: &[&[u8]]) -> Result<String> {
    let (status, grant) = asks.request("POST", "/v1/builds/upload-url", b"{}")?;
    if status != 200 {
        return Err(format!("the grant was answered with {status}").into());
    }
    let grant: Value = serde_json::from_slice(&grant)?;
    let fields = grant["uploadFields"].as_object().ok_or("a grant without fields")?;
    let mut head = String::new();
    for (name, value) in fields {
        let value = value.as_str().unwrap_or_default();
        head += &format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
    }
    head += "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n";
    let body = [&[head.as_bytes()], pieces, &[&b"\r\n--b--\r\n"[..]]].concat();
    let url = grant["uploadUrl"].as_str().and_then(|url| url.strip_prefix("http://"));
    let (host, path) = url.and_then(|url| url.split_once('/')).ok_or("a grant without a URL")?;
    let mut connection = Connection::open(host.parse()?)?;
    let (status, words) = connection.post_pieces(&format!("/{path}"), "multipart/form-data; boundary=b", &body)?;
    match status {
        200 | 204 => Ok(grant["uploadId"].as_str().unwrap_or_default().to_owned()),
        _ => Err(format!(
            "the upload was answered with {status}: {}",
            String::from_utf8_lossy(&words)
        )
        .into()),
    }
}
