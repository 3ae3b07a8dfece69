//! The cloud service: its memory when idle, its requests per second, and its upload rate.
//!
//! Uploads are compared with a program that writes and syncs as many bytes to a file in the same
//! folder, as the service has to. They alternate, so that other load on the disk affects both.

use std::fs::{self, File};
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::http::{self, Connection};
use crate::rows::{Lines, at, mib, row};
use crate::runner::Runner;
use crate::{Bench, Result};

const KEY: &str = "sk_bench_0123456789abcdef";
const MIB: usize = 1024 * 1024;

pub fn cloud(bench: &Bench) -> Result<Lines> {
    let runner = Runner::start_cloud(&bench.binary, KEY)?;
    let mut asks = Connection::open(runner.addr)?;
    asks.headers = headers();
    asks.request("GET", "/v1/regions", b"")?;
    thread::sleep(Duration::from_secs(2));
    let idle = format!(
        "RSS {} MiB (its own {}), PSS {} MiB",
        mib(runner.status_kib("VmRSS")?),
        mib(runner.status_kib("RssAnon")?),
        mib(runner.pss_kib()?)
    );
    let mut lines = vec![row("memory of `cloud serve` when idle", idle)];
    lines.extend(uploads(bench, &runner, &mut asks)?);
    lines.extend(questions(bench, &runner, &mut asks)?);
    Ok(lines)
}

fn headers() -> String {
    format!("Authorization: Bearer {KEY}\r\n")
}

/// `GET` of one finished build, keep-alive, sixteen connections in two threads of this process.
fn questions(bench: &Bench, runner: &Runner, asks: &mut Connection) -> Result<Lines> {
    let upload = send(runner, asks, &[ARCHIVE])?;
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
    let count = bench.amount(256, 32) as usize;
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
        send(runner, asks, &pieces)?;
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
fn send(runner: &Runner, asks: &mut Connection, pieces: &[&[u8]]) -> Result<String> {
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
    let mut connection = Connection::open(runner.addr)?;
    let (status, words) = connection.post_pieces("/build-contexts", "multipart/form-data; boundary=b", &body)?;
    match status {
        204 => Ok(grant["uploadId"].as_str().unwrap_or_default().to_owned()),
        _ => Err(format!(
            "the upload was answered with {status}: {}",
            String::from_utf8_lossy(&words)
        )
        .into()),
    }
}
