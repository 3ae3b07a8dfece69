//! Faults at one moment of a run, which chaos meets by chance only: a stop, a lost answer, output
//! that the database does not take.

use std::fs::{self, OpenOptions};

use serde_json::{Value, json};

use super::logs::sweeps;
use super::{QUICK, context, id_of, start, until};
use crate::cloud::builds::{GATED, shell};
use crate::support::cloud::{DataDir, TestCloud};
use crate::support::runner::TestRunner;
use crate::support::scale::{Held, Place};

/// What a build looks like that an orderly stop gave back: `status|counted attempts|has a lease`. A
/// claim that was under way may have had it once more.
const GIVEN_BACK: &str = "building|0|f";

fn state(place: &Place) -> String {
    place.sql("SELECT status, attempt - given_back, lease IS NOT NULL FROM build ORDER BY seq DESC LIMIT 1")
}

/// Stops a worker, and returns when it has noticed.
fn begin_stop(worker: &TestCloud) {
    worker.runner.signal("TERM");
    worker.runner.wait_for_log("SIGTERM: stopping");
}

fn wait_for_end(mut worker: TestCloud) {
    let ended = worker.runner.wait();
    assert!(ended.success(), "{ended}: {}", worker.runner.log());
}

/// PostgreSQL takes no NUL. A command that prints one and fails ends, and frees its slot; so does
/// an import of its build. A filter with one finds nothing.
#[test]
fn a_command_that_prints_nul_fails() {
    let Some(place) = Place::new() else { return };
    let (data, one) = (DataDir::new(), DataDir::new());
    let script = r"printf 'no\000good\n' >&2; exit 1";
    let reason = |build: &Value| {
        let error = build["errorMessage"].as_str().expect("a reason").to_owned();
        assert!(error.contains("stderr ends: no"), "{error}");
        error
    };
    let mut cloud = TestCloud::start(&one, &["--", "sh", "-c", script]);
    let embedded = cloud.build(&context("x"));
    assert!(reason(&cloud.wait_for(&embedded, "failed")).ends_with("no\0good"));
    cloud.runner.signal("TERM");
    cloud.runner.wait();
    let cloud = start(&place, &data, &["--max-builds", "1", "--", "sh", "-c", script]);
    let id = cloud.build(&context("x"));
    assert!(reason(&cloud.wait_for(&id, "failed")).ends_with("no\u{fffd}good"));
    let next = cloud.build(&context("y"));
    cloud.wait_for(&next, "failed");
    for filter in ["region=%00", "contextHash=%00"] {
        let listed = cloud.get(&format!("/v1/builds?{filter}"));
        assert_eq!((listed.status, &listed.json()["total"]), (200, &json!(0)), "{filter}");
    }
    let path = one.path().to_str().expect("folders of tests are UTF-8");
    let ran = TestRunner::run_with(&["cloud", "import", "--data-dir", path], &place.variables());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(reason(&cloud.status(&embedded)).ends_with("no\u{fffd}good"));
}

/// I-14: a piece of a log that was written, and whose answer was lost, is written again with what
/// has come since, and nothing is missing.
#[test]
fn a_log_is_whole_after_a_lost_answer() {
    let Some(place) = Place::new() else { return };
    let (links, data, gate) = (place.links(), [DataDir::new(), DataDir::new()], DataDir::new());
    let script = r#"for word in one two three go; do echo "$word"; while [ ! -e "$0/$word" ]; do sleep 0.02; done; done
        echo image > "$BUILD_OUT/i""#;
    // No renewal waits for the row.
    let options = ["--role", "worker", "--lease", "300", "--max-builds", "1"];
    let api = start(&place, &data[0], &["--role", "api"]);
    let variables = [&links.variables()[..], &[("RUST_LOG", "debug")]].concat();
    let worker = TestCloud::start_with(&data[1], &shell(&options, script, gate.path()), &variables);
    let id = api.build(&context("x"));
    let go_on = |word: &str| fs::write(gate.path().join(word), "").expect("the folder is writable");
    let has = |word: &str| api.log(&id).contains(&word.to_owned());
    until("the first line was to be there", || has("one"));
    let held = place.hold("SELECT id FROM build FOR UPDATE");
    go_on("one");
    place.wait_for_waiting("WITH run AS");
    links.database.stall();
    drop(held);
    until("the second line was to be there", || has("two"));
    go_on("two");
    worker
        .runner
        .wait_for_log("copying its log: the database cannot be reached");
    links.database.mend();
    until("the third line was to be there", || has("three"));
    go_on("three");
    go_on("go");
    api.wait_for(&id, "success");
    let log = api.log(&id);
    let words = ["one", "two", "three", "go"];
    let said: Vec<&String> = log.iter().filter(|line| words.contains(&line.as_str())).collect();
    assert_eq!(said, words, "{log:?}");
    assert!(
        log.last().is_some_and(|last| last.contains("the image is i")),
        "{log:?}"
    );
}

/// I-14: a build that ends while the database is away has its whole log when that is back.
#[test]
fn a_log_ends_while_the_database_is_away() {
    let Some((place, mut postgres, _store)) = Place::with_own_servers() else {
        return;
    };
    let (data, gate) = (DataDir::new(), DataDir::new());
    let cloud = start(&place, &data, &shell(&[], GATED, gate.path()));
    let id = cloud.build(&context("x"));
    cloud.wait_for(&id, "building");
    until("the log was to begin", || !cloud.log(&id).is_empty());
    postgres.crash();
    fs::write(gate.path().join("go"), "").expect("the folder is writable");
    data.wait_for_empty_scratch();
    // They are a second apart: for longer than a stopped run tries.
    let renewals = cloud.runner.log().matches("renewing leases").count();
    cloud.runner.wait_for_logs("renewing leases", renewals + 4);
    postgres.start_again();
    cloud.wait_for(&id, "success");
    let log = cloud.log(&id);
    assert!(
        log.last().is_some_and(|last| last.contains("the image is bot.img")),
        "{log:?}"
    );
}

/// Returns while the commit of a claim waits until what is returned is dropped.
fn hold_claims(place: &Place) -> Held {
    place.sql(
        "CREATE FUNCTION wait() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER commit_waits AFTER UPDATE ON build DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
             WHEN (NEW.attempt > OLD.attempt) EXECUTE FUNCTION wait()",
    );
    place.hold("SELECT pg_advisory_xact_lock(7)")
}

/// I-33: a claim whose answer was lost is given back, and uses no attempt.
#[test]
fn a_claim_without_an_answer_uses_no_attempt() {
    let Some(place) = Place::new() else { return };
    let (links, data) = (place.links(), [DataDir::new(), DataDir::new()]);
    let options = ["--role", "worker", "--lease", "25", "--max-attempts", "1"];
    let api = start(&place, &data[0], &["--role", "api"]);
    let worker = TestCloud::start_with(&data[1], &[&options[..], &QUICK[..]].concat(), &links.variables());
    let held = hold_claims(&place);
    let id = api.build(&context("x"));
    place.wait_for_waiting("COMMIT");
    links.database.stall();
    drop(held);
    api.wait_for(&id, "building");
    worker
        .runner
        .wait_for_log("claiming a build: the database cannot be reached: it does not answer");
    links.database.mend();
    api.wait_for(&id, "success");
    assert_eq!(place.sql("SELECT attempt, given_back FROM build"), "2|1");
}

/// I-33: a stop waits until such a claim is given back.
#[test]
fn a_stop_gives_a_claim_without_an_answer_back() {
    let Some(place) = Place::new() else { return };
    let (links, data) = (place.links(), [DataDir::new(), DataDir::new()]);
    // No other claim takes the build.
    let options = ["--role", "worker", "--lease", "300"];
    let api = start(&place, &data[0], &["--role", "api"]);
    let worker = TestCloud::start_with(&data[1], &[&options[..], &QUICK[..]].concat(), &links.variables());
    let held = hold_claims(&place);
    let id = api.build(&context("x"));
    place.wait_for_waiting("COMMIT");
    links.database.stall();
    drop(held);
    api.wait_for(&id, "building");
    worker.runner.wait_for_log("giving a claim back: ");
    begin_stop(&worker);
    links.database.mend();
    wait_for_end(worker);
    assert_eq!(state(&place), GIVEN_BACK);
}

/// I-33: a worker that is stopped while it claims a build gives it back.
#[test]
fn a_stop_during_a_claim_gives_the_build_back() {
    let Some(place) = Place::new() else { return };
    let data = [DataDir::new(), DataDir::new()];
    let api = start(&place, &data[0], &["--role", "api"]);
    let worker = start(&place, &data[1], &[&["--role", "worker"], &QUICK[..]].concat());
    let held = hold_claims(&place);
    api.build(&context("x"));
    place.wait_for_waiting("COMMIT");
    begin_stop(&worker);
    drop(held);
    wait_for_end(worker);
    assert_eq!(state(&place), GIVEN_BACK);
}

/// I-33: so does one that is stopped while the database restarts, and it records what has ended.
#[test]
fn a_stop_waits_for_a_restart_of_the_database() {
    let Some((place, mut postgres, _store)) = Place::with_own_servers() else {
        return;
    };
    for (ends, words, expected) in [
        (true, "recording its end: ", "success|1|f"),
        (false, "giving it back: ", GIVEN_BACK),
    ] {
        let (data, gate) = (DataDir::new(), DataDir::new());
        let cloud = start(&place, &data, &shell(&[], GATED, gate.path()));
        let id = cloud.build(&context(words));
        cloud.wait_for(&id, "building");
        until("the command was to run", || {
            cloud
                .log(&id)
                .iter()
                .any(|line| line.contains("running the builder command"))
        });
        postgres.crash();
        if ends {
            fs::write(gate.path().join("go"), "").expect("the folder is writable");
            data.wait_for_empty_scratch();
        }
        begin_stop(&cloud);
        cloud.runner.wait_for_log(words);
        postgres.start_again();
        wait_for_end(cloud);
        assert_eq!(state(&place), expected);
    }
}

/// I-33: so does one that is stopped while it renews its leases.
#[test]
fn a_stop_during_a_renewal_gives_the_build_back() {
    let Some(place) = Place::new() else { return };
    let (data, gate) = ([DataDir::new(), DataDir::new()], DataDir::new());
    let options = ["--role", "worker", "--lease", "9", "--build-grace", "0.1"];
    let api = start(&place, &data[0], &["--role", "api"]);
    let worker = start(&place, &data[1], &shell(&options, GATED, gate.path()));
    let id = api.build(&context("x"));
    api.wait_for(&id, "building");
    let held = place.hold("SELECT id FROM build FOR SHARE");
    place.wait_for_waiting("UPDATE build SET lease = clock_timestamp()");
    begin_stop(&worker);
    drop(held);
    wait_for_end(worker);
    assert_eq!(state(&place), GIVEN_BACK);
}

/// I-33: a renewal that comes after a build was given back changes nothing.
#[test]
fn a_late_renewal_takes_no_build_back() {
    let Some(place) = Place::new() else { return };
    let (data, gate) = ([DataDir::new(), DataDir::new()], DataDir::new());
    let options = ["--role", "worker", "--lease", "6", "--build-grace", "0.1"];
    let api = start(&place, &data[0], &["--role", "api"]);
    let worker = start(&place, &data[1], &shell(&options, GATED, gate.path()));
    let id = api.build(&context("x"));
    api.wait_for(&id, "building");
    let held = place.hold("SELECT id FROM build FOR SHARE");
    begin_stop(&worker);
    place.wait_for_waiting("UPDATE build SET lease = NULL");
    let late = "SELECT COUNT(*) FROM pg_stat_activity AS one JOIN pg_stat_activity AS other ON one.query_start > other.query_start \
                WHERE one.query LIKE 'UPDATE build SET lease = clock%' AND one.wait_event_type = 'Lock' \
                AND other.query LIKE 'UPDATE build SET lease = NULL%' AND other.wait_event_type = 'Lock' \
                AND one.datname = current_database() AND other.datname = current_database()";
    until("a renewal was to wait too", || place.sql(late) != "0");
    drop(held);
    wait_for_end(worker);
    let sessions = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'UPDATE build%' \
                    AND state <> 'idle'";
    until("the renewal was to end", || place.sql(sessions) == "0");
    assert_eq!(state(&place), GIVEN_BACK);
}

/// I-33: a worker that is stopped while it fetches an archive or stores an image does not wait for
/// the store, and gives the build back.
#[test]
fn a_stop_does_not_wait_for_the_store() {
    let Some(place) = Place::new() else { return };
    let data = [DataDir::new(), DataDir::new(), DataDir::new(), DataDir::new()];
    let (links, gate) = (place.links(), DataDir::new());
    let options = ["--role", "worker", "--build-grace", "0.1"];
    let api = start(&place, &data[0], &["--role", "api"]);
    let upload = api.upload(&context("x"));
    let builder = start(&place, &data[1], &[&["--role", "worker"], &QUICK[..]].concat());
    let first = id_of(&api.create(&upload).json());
    api.wait_for(&first, "success");
    drop(builder);
    let start = |data: &DataDir| TestCloud::start_with(data, &shell(&options, GATED, gate.path()), &links.variables());
    // The archive is known, so that only the worker needs the store.
    let worker = start(&data[2]);
    links.store.stall();
    let other = json!({"uploadId": upload, "region": "local", "buildfilePath": "bot.py"});
    let fetched = id_of(&api.post("/v1/builds", &other).json());
    api.wait_for(&fetched, "building");
    begin_stop(&worker);
    wait_for_end(worker);
    assert_eq!(state(&place), GIVEN_BACK);
    links.store.mend();
    let worker = start(&data[3]);
    until("the command was to run", || {
        api.log(&fetched)
            .iter()
            .any(|line| line.contains("running the builder command"))
    });
    links.store.stall();
    fs::write(gate.path().join("go"), "").expect("the folder is writable");
    until("the image was to be there", || {
        api.log(&fetched)
            .iter()
            .any(|line| line.contains("the image is bot.img"))
    });
    begin_stop(&worker);
    wait_for_end(worker);
    assert_eq!(state(&place), GIVEN_BACK);
}

/// I-23: a clock of the database that is a year ahead for a moment deletes nothing that is kept for
/// long.
#[test]
fn a_step_of_the_clock_deletes_no_build() {
    let Some(place) = Place::new() else { return };
    let data = DataDir::new();
    // Such sweeps come often.
    let cloud = start(&place, &data, &[&["--keep-archives", "0.1"], &QUICK[..]].concat());
    let id = cloud.build(&context("x"));
    cloud.wait_for(&id, "success");
    place.sql(
        "CREATE OR REPLACE FUNCTION now_ms() RETURNS BIGINT LANGUAGE sql VOLATILE AS \
         $$ SELECT (extract(epoch FROM clock_timestamp() + INTERVAL '1 year') * 1000)::BIGINT $$",
    );
    let before = sweeps(&cloud);
    until("two sweeps were to begin after it", || sweeps(&cloud) >= before + 3);
    cloud.status(&id);
    let image = format!("images/{id}/1/bot.img");
    assert!(place.objects("images/").contains(&image), "it was to be kept");
}

/// A store takes an empty image, too.
#[test]
fn an_empty_image_is_stored() {
    let Some(place) = Place::new() else { return };
    let data = DataDir::new();
    let cloud = start(&place, &data, &["--", "sh", "-c", r#": > "$BUILD_OUT/i""#]);
    let id = cloud.build(&context("x"));
    assert_eq!(cloud.wait_for(&id, "success")["imageSizeBytes"], 0);
    assert_eq!(place.object(&format!("images/{id}/1/i")), Some(Vec::new()));
}

/// An image that cannot be read fails its build, which does not hold a slot for ever.
#[test]
fn an_image_that_changes_fails_its_build() {
    let Some(place) = Place::new() else { return };
    let (links, data, gate) = (place.links(), [DataDir::new(), DataDir::new()], DataDir::new());
    // More than what the sockets of the link hold.
    let script = r#"while [ ! -e "$0/go" ]; do sleep 0.02; done; truncate -s 64M "$BUILD_OUT/i""#;
    let api = start(&place, &data[0], &["--role", "api"]);
    let _worker = TestCloud::start_with(
        &data[1],
        &shell(&["--role", "worker"], script, gate.path()),
        &links.variables(),
    );
    let id = api.build(&context("x"));
    until("the command was to run", || {
        api.log(&id)
            .iter()
            .any(|line| line.contains("running the builder command"))
    });
    links.store.stall();
    fs::write(gate.path().join("go"), "").expect("the folder is writable");
    until("the image was to be there", || {
        api.log(&id).iter().any(|line| line.contains("the image is i"))
    });
    let image = data[1].path().join(format!("worker/{id}-1/i"));
    let image = OpenOptions::new().write(true).open(image).expect("it is kept");
    image.set_len(0).expect("it is ours");
    links.store.mend();
    let failed = api.wait_for(&id, "failed");
    let error = failed["errorMessage"].as_str().expect("a reason");
    assert!(error.starts_with("image: reading it"), "{error}");
}
