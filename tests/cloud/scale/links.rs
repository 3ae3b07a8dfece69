//! Links to the database that fail without a word: no connection is closed.

use std::fs;

use super::{QUICK, context, start, until};
use crate::cloud::builds::{GATED, shell};
use crate::support::cloud::{DataDir, TestCloud};
use crate::support::http;
use crate::support::link::Link;
use crate::support::scale::{Links, Place};

/// I-34: behind a link that is cut, and before a database that takes what it never answers, a
/// replica says 503 with `Retry-After`, and works again as soon as the link does. A build that runs
/// meanwhile ends once.
#[test]
fn a_link_that_fails_without_a_word_is_noticed() {
    let Some(place) = Place::new() else { return };
    let (links, data, gate) = (place.links(), DataDir::new(), DataDir::new());
    // Longer than both faults.
    let options = shell(&["--lease", "300"], GATED, gate.path());
    let cloud = TestCloud::start_with(&data, &options, &links.variables());
    let id = cloud.build(&context("x"));
    cloud.wait_for(&id, "building");
    for fail in [Link::stall, Link::cut] {
        fail(&links.database);
        let refused = cloud.get(&format!("/v1/builds/{id}"));
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert!(refused.header("retry-after").is_some());
        until("it was to be unready", || {
            let ready = http::get(cloud.runner.addr, "/readyz");
            ready.status == 503 && ready.json()["reason"] == "records"
        });
        links.database.mend();
        until("it was to be ready", || {
            http::get(cloud.runner.addr, "/readyz").status == 200
        });
        assert_eq!(cloud.status(&id)["status"], "building");
    }
    fs::write(gate.path().join("go"), "").expect("the folder is writable");
    cloud.wait_for(&id, "success");
    assert_eq!(place.sql("SELECT attempt FROM build"), "1");
}

/// A replica that sweeps when its links fail loses its lock, and another one sweeps.
#[test]
fn the_sweep_goes_on_elsewhere() {
    assert_swept_elsewhere(|_, links| links.database.cut());
}

/// So does one that stands still, whose machine acknowledges all that the database sends. When it
/// goes on it ends that sweep, and serves.
#[test]
fn the_sweep_of_a_frozen_replica_goes_on_elsewhere() {
    assert_swept_elsewhere(|replica, _| replica.runner.signal("STOP"));
}

/// Lets a replica fail in the middle of a sweep, and waits until another one has swept.
fn assert_swept_elsewhere(fail: impl FnOnce(&TestCloud, &Links)) {
    let Some(place) = Place::new() else { return };
    let (links, data) = (place.links(), [DataDir::new(), DataDir::new(), DataDir::new()]);
    let builder = start(&place, &data[0], &QUICK);
    let id = builder.build(&context("x"));
    builder.wait_for(&id, "success");
    assert_eq!(place.objects("").len(), 2);
    drop(builder);
    let sweeping = ["--role", "api", "--keep-builds", "0.1", "--keep-archives", "0.1"];
    // It holds the lock for as long as the store does not answer.
    links.store.stall();
    let failed = TestCloud::start_with(&data[1], &sweeping, &links.variables());
    let locks = "SELECT COUNT(*) FROM pg_locks JOIN pg_database d ON d.oid = database \
                 WHERE locktype = 'advisory' AND datname = current_database()";
    until("a sweep was to begin", || place.sql(locks) == "1");
    fail(&failed, &links);
    let _other = start(&place, &data[2], &sweeping);
    until("the other replica was to sweep", || place.objects("").is_empty());
    until("the records were to be swept", || {
        place.sql("SELECT COUNT(*) FROM build") == "0"
    });
    failed.runner.signal("CONT");
    links.database.mend();
    links.store.mend();
    failed.runner.wait_for_log("sweeping: ");
    until("the replica was to be ready again", || {
        http::get(failed.runner.addr, "/readyz").status == 200
    });
}
