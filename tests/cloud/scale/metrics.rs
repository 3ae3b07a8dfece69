//! `/metrics` of replicas: each counts what it does, and the queue is that of all.

use std::fs;

use super::{context, start};
use crate::cloud::builds::{GATED, shell};
use crate::cloud::metrics::{assert_values, read, wait_for};
use crate::metrics::value;
use crate::support::cloud::DataDir;
use crate::support::http::Reply;
use crate::support::scale::Place;

fn created(reply: &Reply) -> String {
    assert_eq!(reply.status, 201, "{}", reply.text());
    reply.json()["build"]["id"].as_str().expect("an identifier").to_owned()
}

/// Replicas count what each of them does; the queue is that of all. A worker that is stopped past
/// its lease counts the loss, and one without a database has no figures of the queue.
#[test]
fn replicas_count_claims_losses_and_errors() {
    let Some((place, mut postgres, mut store)) = Place::with_own_servers() else {
        return;
    };
    let (data, gate) = ([DataDir::new(), DataDir::new(), DataDir::new()], DataDir::new());
    let options = ["--role", "worker", "--lease", "2", "--max-builds", "1"];
    let start = |data: &DataDir, args: &[&str]| start(&place, data, args);
    let api = start(&data[0], &["--role", "api"]);
    let frozen = start(&data[1], &shell(&options, GATED, gate.path()));
    let upload = api.upload(&context("x"));
    let id = created(&api.create(&upload));
    assert_eq!(created(&api.create(&upload)), id);
    api.wait_for(&id, "building");
    frozen.runner.signal("STOP");
    let other = start(&data[2], &shell(&options, GATED, gate.path()));
    let text = wait_for(&other, "claims_total{attempt=\"again\"}", |count| count >= 1.0);
    let info = format!("info{{version=\"{}\",role=\"worker\"}}", env!("CARGO_PKG_VERSION"));
    assert_values(&text, &[("running_builds", 1.0), (&info, 1.0)]);
    frozen.runner.signal("CONT");
    wait_for(&frozen, "leases_lost_total{how=\"taken\"}", |count| count >= 1.0);
    fs::write(gate.path().join("go"), "").expect("the folder is writable");
    api.wait_for(&id, "success");
    wait_for(&other, "builds_ended_total{status=\"success\"}", |count| count == 1.0);
    let text = read(&api);
    assert_values(
        &text,
        &[
            ("archives_total{outcome=\"accepted\"}", 1.0),
            ("creations_total{outcome=\"created\"}", 1.0),
            ("creations_total{outcome=\"repeated\"}", 1.0),
            ("builds_ended_total{status=\"success\"}", 0.0),
            ("builds{status=\"building\"}", 0.0),
            ("store_errors_total{reason=\"unreachable\"}", 0.0),
        ],
    );
    let grant = api.grant();
    assert_eq!(api.send(&grant, &context("y")).status / 100, 2);
    store.crash();
    let second = grant["uploadId"].as_str().expect("an identifier");
    assert_eq!(api.create(second).status, 503);
    let text = read(&api);
    assert_values(&text, &[("requests_total{route=\"create\",class=\"5xx\"}", 1.0)]);
    assert!(
        value(&text, "edge_runner_cloud_store_errors_total{reason=\"unreachable\"}").is_some_and(|count| count >= 1.0)
    );
    postgres.crash();
    let text = wait_for(&api, "database_errors_total{reason=\"connect\"}", |count| count > 0.0);
    assert!(!text.contains("edge_runner_cloud_builds{"), "{text}");
}
