//! A new release beside the one before: migrations, and replicas that are replaced one by one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::parts::{Client, Parts, assert_history, note_changes};
use super::{start, until};
use crate::support::cloud::{DataDir, TestCloud};
use crate::support::http;
use crate::support::runner::TestRunner;
use crate::support::scale::{Place, free_address, start_balancer};

/// Clients that each have one build at a time.
const CLIENTS: usize = 4;

/// What a later release may do to the schema: it only adds, and waits as a migration does.
const NEXT_SCHEMA: &str = "BEGIN; SET LOCAL lock_timeout = '500ms'; ALTER TABLE build ADD COLUMN later TEXT; ALTER TABLE upload ADD COLUMN later TEXT NOT NULL DEFAULT 'x'; \
     CREATE INDEX build_later ON build (later); CREATE TABLE later (id TEXT); UPDATE schema_version SET version = version + 1; COMMIT";

/// Ends the clients, also where the test fails.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Stops a replica in order.
fn stop(replica: &mut TestCloud) {
    replica.runner.signal("TERM");
    let ended = replica.runner.wait();
    assert!(ended.success(), "{ended}: {}", replica.runner.log());
}

/// A rolling upgrade as docs/cloud.md has it, while builds are granted, uploaded, created and
/// followed through a balancer: the migration, then each worker and each replica of the API in
/// turn. No client is refused, no build is lost or uses an attempt, and none ends twice. A grant of
/// a replica that is gone is good at those that came after it.
#[test]
fn a_rolling_upgrade_under_load_loses_nothing() {
    let Some(place) = Place::new() else { return };
    let addresses = [free_address(), free_address()];
    let Some(balancer) = start_balancer(addresses) else {
        return;
    };
    note_changes(&place);
    let mut parts = Parts::start(&place, addresses, "1");
    let client = Client::new(balancer.addr);
    let (created, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    until("the balancer was to find a replica", || {
        http::get(balancer.addr, "/readyz").status == 200
    });
    let early = client.grant();
    thread::scope(|scope| {
        let _over = Over(&is_over);
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let n = created.fetch_add(1, Ordering::Relaxed);
                    client.follow(&client.build(&client.grant(), n));
                }
            });
        }
        let more = || {
            let before = created.load(Ordering::Relaxed);
            until("builds were to go on", || {
                created.load(Ordering::Relaxed) > before + CLIENTS
            });
        };
        more();
        let migrated = place.run(&["migrate"]);
        assert!(migrated.contains("version 2 already"), "{migrated}");
        until("the schema was to be the next one", || place.succeeds(NEXT_SCHEMA));
        for at in [0, 1] {
            more();
            parts.hold_a_build(at);
            stop(&mut parts.workers[at]);
            parts.start_worker_again(at);
        }
        // The balancer finds a replica by a check each second.
        let is_used = |api: &TestCloud| drop(api.runner.wait_for_log("POST /v1/builds 201"));
        for api in &parts.apis {
            is_used(api);
        }
        for at in [0, 1] {
            stop(&mut parts.apis[at]);
            more();
            parts.start_api_again(at);
            is_used(&parts.apis[at]);
        }
        more();
    });
    let last = created.load(Ordering::Relaxed);
    client.follow(&client.build(&early, last));
    assert_history(&place, last + 1);
    let again = client.again();
    assert!(
        again.is_empty(),
        "the balancer was to give requests to the other replica: {again:?}"
    );
}

/// Migrations that begin at once follow each other: one makes the schema, the others find it.
#[test]
fn migrations_follow_each_other() {
    let Some(place) = Place::unmigrated() else { return };
    let said: Vec<String> = thread::scope(|scope| {
        let runs: Vec<_> = (0..4).map(|_| scope.spawn(|| place.run(&["migrate"]))).collect();
        runs.into_iter().map(|run| run.join().expect("no failure")).collect()
    });
    // Each step is a transaction, so that others may find the database between two of them.
    let with = |words: &str| said.iter().filter(|said| said.contains(words)).count();
    let later = with("had version 1, and has 2 now") + with("has version 2 already");
    assert_eq!((with("has version 2 now"), later), (1, 3), "{said:?}");
    assert_eq!(place.sql("SELECT version FROM schema_version"), "2");
    drop(start(&place, &DataDir::new(), &["--role", "api"]));
}

/// A migration does not hold up what has a table for longer than it waits, and is tried again.
#[test]
fn a_migration_waits_for_its_tables() {
    let Some(place) = Place::unmigrated() else { return };
    place.sql("CREATE TABLE schema_version (version INTEGER NOT NULL)");
    let hold = "BEGIN; LOCK TABLE schema_version IN SHARE MODE; SELECT pg_sleep(2); COMMIT";
    let held =
        "SELECT COUNT(*) FROM pg_locks WHERE relation = 'schema_version'::REGCLASS AND mode = 'ShareLock' AND granted";
    thread::scope(|scope| {
        scope.spawn(|| place.sql(hold));
        until("the table was to be held", || place.sql(held) == "1");
        let migrated = place.run(&["migrate"]);
        assert!(migrated.contains("version 2 now"), "{migrated}");
    });
}

/// A replica serves with the schema of the next release, and says by `/readyz` when it has to be
/// replaced: with that of the release after, and with an older one. A migration of its own release
/// leaves a later schema alone.
#[test]
fn a_replica_serves_with_the_schema_of_the_next_release() {
    let Some(place) = Place::new() else { return };
    let data = DataDir::new();
    let cloud = start(&place, &data, &["--role", "api"]);
    let ready = || {
        let reply = http::get(cloud.runner.addr, "/readyz");
        (reply.status, reply.json()["reason"].as_str().map(str::to_owned))
    };
    place.sql(NEXT_SCHEMA);
    cloud.build(&super::context("x"));
    let set = |version: u32| place.sql(&format!("UPDATE schema_version SET version = {version}"));
    for (version, wanted) in [(4, (503, Some("schema"))), (1, (503, Some("schema"))), (3, (200, None))] {
        set(version);
        until("it was to say what it needs", || {
            let (status, reason) = ready();
            (status, reason.as_deref()) == wanted
        });
    }
    let refused = TestRunner::run_with(&["cloud", "migrate"], &place.variables());
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("which a later release made"),
        "{}",
        refused.stderr
    );
    assert_eq!(place.sql("SELECT version FROM schema_version"), "3");
}

/// The schema of the release before becomes that of this one beside a replica, with what it has.
#[test]
fn a_migration_keeps_what_the_release_before_wrote() {
    let Some(place) = Place::new() else { return };
    let data = [DataDir::new(), DataDir::new()];
    let api = start(&place, &data[0], &["--role", "api"]);
    let id = api.build(&super::context("x"));
    // Version 2 only adds these.
    place.sql(
        "ALTER TABLE build DROP COLUMN given_back, DROP COLUMN log_size; DELETE FROM setting; \
         UPDATE schema_version SET version = 1",
    );
    let migrated = place.run(&["migrate"]);
    assert!(migrated.contains("had version 1, and has 2 now"), "{migrated}");
    let _worker = start(&place, &data[1], &[&["--role", "worker"], &super::QUICK[..]].concat());
    api.wait_for(&id, "success");
}
