//! Faults of every part while builds are made.
//!
//! 40 builds and 8 faults; more by the environment, as in `tests/check.sh cloud-chaos`.

use std::collections::HashSet;
use std::env;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use super::parts::{Client, LEASE, Parts, assert_history, note_changes};
use super::{kill, start, until};
use crate::support::cloud::DataDir;
use crate::support::scale::{Place, Server, free_address, start_balancer};

/// Variables with the numbers of builds and faults, and their defaults.
const BUILDS: (&str, usize) = ("EDGE_RUNNER_CHAOS_BUILDS", 40);
const FAULTS: (&str, usize) = ("EDGE_RUNNER_CHAOS_FAULTS", 8);

/// What happens to a part. Replicas of the API are 0 and 1 where workers are 2 and 3.
#[derive(Clone, Copy, Debug)]
enum Fault {
    KillApi(usize),
    KillWorker(usize),
    CrashDatabase,
    /// The database ends the sessions of all parts, as before its restart in order.
    EndSessions,
    CrashStore,
    /// One that lasts until its lease has passed and the next fault has happened.
    Lasting(LastingFault),
}

#[derive(Clone, Copy, Debug)]
enum LastingFault {
    /// The worker stands still.
    Freeze(usize),
    /// The links of a part are cut.
    Cut(usize),
    /// What a part sends to the database is acknowledged, and not answered.
    StallDatabase(usize),
    StallStore(usize),
}

use Fault::{CrashDatabase, CrashStore, EndSessions, KillApi, KillWorker, Lasting};
use LastingFault::{Cut, Freeze, StallDatabase, StallStore};

/// The faults, again from the first one after the last. A part whose links have failed is not the
/// next to be started, since it would find no database.
const CYCLE: [Fault; 13] = [
    KillWorker(0),
    Lasting(Cut(3)),
    KillApi(0),
    Lasting(Freeze(1)),
    CrashDatabase,
    Lasting(StallDatabase(0)),
    EndSessions,
    CrashStore,
    KillApi(1),
    Lasting(StallDatabase(2)),
    KillWorker(1),
    Lasting(StallStore(3)),
    Lasting(Cut(1)),
];

fn number((variable, standard): (&str, usize)) -> usize {
    match env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is a number")),
        Err(_) => standard,
    }
}

/// The parts, and the servers that they share.
struct Service<'p> {
    parts: Parts,
    place: &'p Place,
    postgres: &'p mut Server,
    store: &'p mut Server,
    /// What lasts, and since when.
    lasting: Option<(LastingFault, Instant)>,
}

impl Service<'_> {
    fn inject(&mut self, fault: Fault) {
        match fault {
            KillApi(at) => {
                kill(&mut self.parts.apis[at]);
                self.parts.start_api_again(at);
            }
            KillWorker(at) => {
                kill(&mut self.parts.workers[at]);
                self.parts.start_worker_again(at);
            }
            CrashDatabase => {
                self.postgres.crash();
                self.postgres.start_again();
            }
            EndSessions => {
                let ended = self.place.sql(
                    "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'edge-runner'",
                );
                assert_ne!(ended, "0", "the parts have sessions");
            }
            CrashStore => {
                self.store.crash();
                self.store.start_again();
            }
            Lasting(fault) => match fault {
                Freeze(at) => self.parts.workers[at].runner.signal("STOP"),
                Cut(at) => {
                    self.parts.links(at).database.cut();
                    self.parts.links(at).store.cut();
                }
                StallDatabase(at) => self.parts.links(at).database.stall(),
                StallStore(at) => self.parts.links(at).store.stall(),
            },
        }
        self.end_lasting();
        if let Lasting(fault) = fault {
            self.lasting = Some((fault, Instant::now()));
        }
    }

    /// Ends what lasts, after others have taken the builds of the worker.
    fn end_lasting(&mut self) {
        let Some((fault, since)) = self.lasting.take() else {
            return;
        };
        until("the lease was to pass", || since.elapsed() > LEASE);
        let left = "SELECT COUNT(*) FROM build WHERE lease < clock_timestamp()";
        until("the builds of the worker were to be taken", || {
            self.place.sql(left) == "0"
        });
        match fault {
            Freeze(at) => self.parts.workers[at].runner.signal("CONT"),
            Cut(at) | StallDatabase(at) | StallStore(at) => {
                self.parts.links(at).database.mend();
                self.parts.links(at).store.mend();
            }
        }
    }
}

/// I-33: builds of two clients through a balancer, two replicas of the API and two workers, whose
/// clocks are an hour ahead and an hour behind, and faults while they work: kills of each, a worker
/// that is stopped past its lease, a crash of the database and of the store, sessions that the
/// database ends, links that are cut or stand still. Each build ends once, and keeps its end; the
/// clients see no errors but those that ask them to try again. A grant is good after all of that,
/// each object has a record, and a sweep leaves nothing.
#[test]
fn faults_lose_no_build_and_end_none_twice() {
    let Some((place, mut postgres, mut store)) = Place::with_own_servers() else {
        return;
    };
    let addresses = [free_address(), free_address()];
    let Some(balancer) = start_balancer(addresses) else {
        return;
    };
    let (builds, faults) = (number(BUILDS), number(FAULTS));
    note_changes(&place);
    let mut service = Service {
        parts: Parts::start(&place, addresses, "9"),
        place: &place,
        postgres: &mut postgres,
        store: &mut store,
        lasting: None,
    };
    let (client, created) = (Client::new(balancer.addr), AtomicUsize::new(0));
    let early = client.grant();
    let make = |first: usize| {
        let numbers = (first..builds).step_by(2);
        let made = numbers.map(|n| {
            let id = client.build(&client.grant(), n);
            created.fetch_add(1, Ordering::Relaxed);
            id
        });
        made.collect::<Vec<String>>()
    };
    let mut ids: Vec<String> = thread::scope(|scope| {
        let clients = [scope.spawn(|| make(0)), scope.spawn(|| make(1))];
        for (n, fault) in CYCLE.into_iter().cycle().take(faults).enumerate() {
            let due = builds * (n + 1) / (faults + 1);
            until("builds were to be created", || {
                created.load(Ordering::Relaxed) >= due || clients.iter().any(|client| client.is_finished())
            });
            service.inject(fault);
        }
        service.end_lasting();
        clients
            .into_iter()
            .flat_map(|client| client.join().expect("no failure"))
            .collect()
    });
    ids.push(client.build(&early, builds));
    for (n, id) in ids.iter().enumerate() {
        let done = service.parts.apis[n % 2].wait_for(id, "success");
        assert_eq!(done, service.parts.apis[(n + 1) % 2].status(id));
    }
    assert_history(&place, builds + 1);
    drop(service.parts);
    assert_swept(&place);
}

/// Asserts that each object has a record, that a sweep leaves neither, and that no session is left.
fn assert_swept(place: &Place) {
    let named = place.sql(
        "SELECT org || '/' || id || '.tar.gz' FROM upload UNION ALL \
         SELECT 'images/' || id || '/' || run || '/image' FROM build, generate_series(1, attempt) AS run",
    );
    let named: HashSet<&str> = named.lines().collect();
    let mut orphans = place.objects("");
    orphans.retain(|key| !named.contains(&**key));
    assert!(orphans.is_empty(), "{orphans:?}");
    let (data, keep) = (DataDir::new(), ["--keep-builds", "0.1", "--keep-archives", "0.1"]);
    let sweeper = start(place, &data, &[&["--role", "api"], &keep[..]].concat());
    until("the objects were to be swept", || place.objects("").is_empty());
    let left = "SELECT (SELECT COUNT(*) FROM build) + (SELECT COUNT(*) FROM build_log)";
    until("the records were to be swept", || place.sql(left) == "0");
    drop(sweeper);
    let sessions = "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'edge-runner'";
    until("the sessions were to end", || place.sql(sessions) == "0");
}
