//! Logs of ended builds, which become objects.

use super::{start, until};
use crate::support::cloud::{DataDir, TestCloud};
use crate::support::http;
use crate::support::runner::TestRunner;
use crate::support::scale::Place;

/// Several rows of the database, and four pages.
const LINES: usize = 35_000;

/// Reads a log page by page.
fn pages(cloud: &TestCloud, id: &str, limit: usize) -> Vec<String> {
    let (mut lines, mut token) = (Vec::new(), String::new());
    loop {
        let reply = cloud.get(&format!("/v1/builds/{id}/logs?limit={limit}{token}"));
        assert_eq!(reply.status, 200, "{}", reply.text());
        let page = reply.json();
        let some = page["logs"].as_array().expect("lines");
        lines.extend(some.iter().map(|line| line.as_str().expect("text").to_owned()));
        match page.get("nextToken") {
            None => return lines,
            Some(next) => token = format!("&nextToken={}", next.as_str().expect("text")),
        }
    }
}

/// Returns how many sweeps have ended.
pub fn sweeps(cloud: &TestCloud) -> u64 {
    let text = http::get(cloud.runner.addr, "/metrics").text();
    let lines = text
        .lines()
        .filter(|line| line.starts_with("edge_runner_cloud_sweeps_total"));
    lines
        .map(|line| {
            line.rsplit(' ')
                .next()
                .expect("a value")
                .parse::<u64>()
                .expect("a number")
        })
        .sum()
}

/// An hour after the end of its build a log is an object, and reads as before at every replica. The
/// sweep begins with that a day after the migration, when no replica of the release before is left.
/// `cloud export` finds it there, and it goes with its build.
#[test]
fn the_log_of_an_ended_build_becomes_an_object() {
    let Some(place) = Place::new() else { return };
    let data = [DataDir::new(), DataDir::new(), DataDir::new(), DataDir::new()];
    let script = format!("seq -f 'line %.0f' {LINES}; echo image > \"$BUILD_OUT/i\"");
    let worker = ["--role", "worker", "--keep-archives", "0.1", "--", "sh", "-c", &script];
    let api = start(&place, &data[0], &["--role", "api"]);
    let sweeping = start(&place, &data[1], &worker);
    let id = api.build(&super::context("x"));
    api.wait_for(&id, "success");
    let before = pages(&api, &id, 10_000);
    assert!(
        before.len() > LINES && before.contains(&format!("line {LINES}")),
        "{}",
        before.len()
    );
    place.sql("UPDATE build SET completed_ms = completed_ms - 7200000");
    let (rows, already) = ("SELECT COUNT(*) FROM build_log", sweeps(&sweeping));
    until("two sweeps were to pass", || sweeps(&sweeping) >= already + 2);
    assert!(
        place.sql(rows).parse::<u32>().is_ok_and(|rows| rows > 1),
        "they stay for a day"
    );
    place.sql("UPDATE setting SET value = '0' WHERE name = 'log_objects_from_ms'");
    until("the log was to become an object", || place.sql(rows) == "0");
    let object = format!("images/{id}/log");
    assert!(
        place.objects("").contains(&object),
        "{:?} has no {object}",
        place.objects("")
    );
    let other = start(&place, &data[2], &["--role", "api"]);
    for limit in [10_000, 9_999] {
        assert!(pages(&other, &id, limit) == before, "it was to read as before");
    }
    for bad in ["1", "99999999"] {
        let reply = other.get(&format!("/v1/builds/{id}/logs?nextToken={bad}"));
        assert_eq!(reply.status, 400, "{bad}: {}", reply.text());
    }
    drop((api, sweeping));
    let path = data[3].path().to_str().expect("folders of tests are UTF-8");
    let exported = TestRunner::run_with(&["cloud", "export", "--data-dir", path], &place.variables());
    assert_eq!(exported.code, Some(0), "{}", exported.stderr);
    let here = TestCloud::start(&data[3], &[]);
    assert!(pages(&here, &id, 10_000) == before, "it was to be exported");
    drop(here);
    let _sweeping = start(&place, &data[1], &["--role", "api", "--keep-builds", "0.1"]);
    until("its objects were to be swept", || place.objects("images/").is_empty());
}

/// Logs with gaps stay rows, and keep no sweep from its end.
#[test]
fn many_logs_with_gaps_do_not_keep_a_sweep() {
    let Some(place) = Place::new() else { return };
    let data = DataDir::new();
    let options = [
        "--keep-archives",
        "0.1",
        "--",
        "sh",
        "-c",
        "echo image > \"$BUILD_OUT/i\"",
    ];
    let cloud = start(&place, &data, &options);
    let id = cloud.build(&super::context("x"));
    cloud.wait_for(&id, "success");
    place.sql(
        "INSERT INTO build OVERRIDING USER VALUE
             SELECT (jsonb_populate_record(build, jsonb_build_object('id', gen_random_uuid()::TEXT))).* FROM build, generate_series(1, 256)",
    );
    place.sql(&format!(
        "INSERT INTO build_log (build, start, data) SELECT id, at, 'x' FROM build, (VALUES (0), (5)) AS piece (at) WHERE id <> '{id}'"
    ));
    place.sql(&format!(
        "UPDATE build SET completed_ms = completed_ms - 7200000 WHERE id <> '{id}'"
    ));
    place.sql("UPDATE setting SET value = '0' WHERE name = 'log_objects_from_ms'");
    let already = sweeps(&cloud);
    until("two sweeps were to end", || sweeps(&cloud) >= already + 2);
    assert_eq!(place.sql("SELECT COUNT(*) FROM build_log WHERE data = 'x'"), "512");
}
