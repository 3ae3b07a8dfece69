//! Faults of every part while builds are made.
//!
//! 40 builds and 8 faults; more by the environment, as in `tests/check.sh cloud-chaos`.

use std::env;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{context, id_of, kill, start, until};
use crate::support::cloud::{self, DataDir, KEY, TestCloud};
use crate::support::http;
use crate::support::runner::PATIENCE;
use crate::support::scale::{Place, Server, free_address, start_balancer};

/// Variables with the numbers of builds and faults, and their defaults.
const BUILDS: (&str, usize) = ("EDGE_RUNNER_CHAOS_BUILDS", 40);
const FAULTS: (&str, usize) = ("EDGE_RUNNER_CHAOS_FAULTS", 8);

const LEASE: Duration = Duration::from_secs(2);

/// What happens to a part.
#[derive(Clone, Copy, Debug)]
enum Fault {
    KillApi(usize),
    KillWorker(usize),
    /// The worker stands still until its lease has passed and the next fault has happened.
    Freeze(usize),
    CrashDatabase,
    CrashStore,
}

/// The faults, again from the first one after the last.
const CYCLE: [Fault; 8] = [
    Fault::KillWorker(0),
    Fault::KillApi(0),
    Fault::Freeze(1),
    Fault::CrashDatabase,
    Fault::CrashStore,
    Fault::KillApi(1),
    Fault::KillWorker(1),
    Fault::KillWorker(0),
];

fn number((variable, standard): (&str, usize)) -> usize {
    match env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is a number")),
        Err(_) => standard,
    }
}

/// The parts of a service on several machines.
struct Parts<'p> {
    place: &'p Place,
    postgres: &'p mut Server,
    store: &'p mut Server,
    data: [DataDir; 4],
    /// The API keeps its addresses, which the balancer knows.
    addresses: [SocketAddr; 2],
    apis: [TestCloud; 2],
    workers: [TestCloud; 2],
    /// The worker that stands still, and since when.
    frozen: Option<(usize, Instant)>,
}

impl<'p> Parts<'p> {
    fn start(place: &'p Place, postgres: &'p mut Server, store: &'p mut Server, addresses: [SocketAddr; 2]) -> Self {
        let data: [DataDir; 4] = std::array::from_fn(|_| DataDir::new());
        Parts {
            apis: [0, 1].map(|at| start_api(place, &data[at], addresses[at])),
            workers: [2, 3].map(|at| start_worker(place, &data[at])),
            place,
            postgres,
            store,
            data,
            addresses,
            frozen: None,
        }
    }

    fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::KillApi(at) => {
                kill(&mut self.apis[at]);
                self.apis[at] = start_api(self.place, &self.data[at], self.addresses[at]);
            }
            Fault::KillWorker(at) => {
                kill(&mut self.workers[at]);
                self.workers[at] = start_worker(self.place, &self.data[2 + at]);
            }
            Fault::Freeze(at) => {
                self.workers[at].runner.signal("STOP");
                self.frozen = Some((at, Instant::now()));
                return;
            }
            Fault::CrashDatabase => {
                self.postgres.crash();
                self.postgres.start_again();
            }
            Fault::CrashStore => {
                self.store.crash();
                self.store.start_again();
            }
        }
        self.thaw();
    }

    /// Lets a worker go on that stands still, after others have taken its builds.
    fn thaw(&mut self) {
        let Some((at, since)) = self.frozen.take() else { return };
        until("the lease was to pass", || since.elapsed() > LEASE);
        let left = "SELECT COUNT(*) FROM build WHERE lease < clock_timestamp()";
        until("the builds of the stopped worker were to be taken", || {
            self.place.sql(left) == "0"
        });
        self.workers[at].runner.signal("CONT");
    }
}

fn start_api(place: &Place, data: &DataDir, addr: SocketAddr) -> TestCloud {
    start(place, data, &["--role", "api", "--port", &addr.port().to_string()])
}

fn start_worker(place: &Place, data: &DataDir) -> TestCloud {
    let lease = LEASE.as_secs().to_string();
    let options = ["--role", "worker", "--lease", &lease, "--max-attempts", "9"];
    let command = ["--", "sh", "-c", r#"sleep 0.3; cp bot.py "$BUILD_OUT/image""#];
    start(place, data, &[&options[..], &command].concat())
}

/// I-33: builds of two clients through a balancer, two replicas of the API and two workers, and
/// faults while they work: kills of each, a worker that is stopped past its lease, a crash of the
/// database and of the store. Each build ends once, and keeps its end; the clients see no errors
/// but those that ask them to try again.
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
    let mut parts = Parts::start(&place, &mut postgres, &mut store, addresses);
    let created = AtomicUsize::new(0);
    let client = |first: usize| {
        let numbers = (first..builds).step_by(2);
        let made = numbers.map(|n| {
            let id = make(balancer.addr, n);
            created.fetch_add(1, Ordering::Relaxed);
            id
        });
        made.collect::<Vec<String>>()
    };
    let ids: Vec<String> = thread::scope(|scope| {
        let clients = [scope.spawn(|| client(0)), scope.spawn(|| client(1))];
        for (n, fault) in CYCLE.into_iter().cycle().take(faults).enumerate() {
            let due = builds * (n + 1) / (faults + 1);
            until("builds were to be created", || {
                created.load(Ordering::Relaxed) >= due || clients.iter().any(|client| client.is_finished())
            });
            parts.inject(fault);
        }
        parts.thaw();
        clients
            .into_iter()
            .flat_map(|client| client.join().expect("no failure"))
            .collect()
    });
    for (n, id) in ids.iter().enumerate() {
        let done = parts.apis[n % 2].wait_for(id, "success");
        assert_eq!(done, parts.apis[(n + 1) % 2].status(id));
    }
    assert_history(&place, builds);
}

/// Writes each change of a status or an attempt to a table.
fn note_changes(place: &Place) {
    place.sql(
        "CREATE TABLE history (at SERIAL, id TEXT, status TEXT, attempt INTEGER);
         CREATE FUNCTION note() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
             IF OLD.status <> NEW.status OR OLD.attempt <> NEW.attempt THEN
                 INSERT INTO history (id, status, attempt) VALUES (NEW.id, NEW.status, NEW.attempt);
             END IF; RETURN NEW; END $$;
         CREATE TRIGGER noted AFTER UPDATE ON build FOR EACH ROW EXECUTE FUNCTION note()",
    );
}

/// Asserts what the records and the store have at the end.
fn assert_history(place: &Place, builds: usize) {
    assert_eq!(
        place.sql("SELECT COUNT(*) FROM build"),
        builds.to_string(),
        "a repeated request makes no second build"
    );
    let ends = "SELECT COUNT(*), COUNT(DISTINCT id) FROM history WHERE status IN ('success', 'failed', 'timeout')";
    assert_eq!(place.sql(ends), format!("{builds}|{builds}"));
    let after = "SELECT COUNT(*) FROM history h JOIN history e USING (id) WHERE e.status = 'success' AND h.at > e.at";
    assert_eq!(place.sql(after), "0", "nothing changes after the end");
    let back = "SELECT COUNT(*) FROM history h JOIN history e USING (id) WHERE h.at > e.at AND h.attempt < e.attempt";
    assert_eq!(place.sql(back), "0", "attempts only grow");
    assert_eq!(place.sql("SELECT COUNT(*) FROM build WHERE lease IS NOT NULL"), "0");
    let again = place.sql("SELECT COUNT(*) FROM build WHERE attempt > 1");
    assert_ne!(again, "0", "a fault met a build");
    let images = place.sql("SELECT 'images/' || id || '/' || attempt || '/' || image_name FROM build");
    for key in images.lines() {
        // A listing has a thousand keys at most.
        let objects = place.objects(key);
        assert_eq!(objects, [key], "the image is there");
    }
}

/// Uploads a context and creates a build of it; returns its id.
fn make(balancer: SocketAddr, n: usize) -> String {
    let grant = call(balancer, "/v1/builds/upload-url", &json!({}));
    let (kind, body) = cloud::form(&grant, &context(&format!("bot {n}")));
    let target = grant["uploadUrl"].as_str().expect("a URL").replace("http://", "");
    let (host, path) = target.split_once('/').expect("a path");
    let host: SocketAddr = host.parse().expect("an address");
    until("an upload was to succeed", || {
        let sent = http::request(host, "POST", &format!("/{path}"), &[&kind], &body);
        sent.is_ok_and(|sent| sent.status / 100 == 2)
    });
    let wanted = json!({"uploadId": grant["uploadId"], "region": "local"});
    id_of(&call(balancer, "/v1/builds", &wanted))
}

/// Sends a request until it is answered. The balancer says by 502 that a replica was killed in the
/// middle of its answer; 429 is an organization whose builds have to begin first.
fn call(balancer: SocketAddr, path: &str, body: &Value) -> Value {
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < PATIENCE, "{path} was to be answered");
        let key = format!("Authorization: Bearer {KEY}");
        match http::request(balancer, "POST", path, &[&key], body.to_string().as_bytes()) {
            Ok(reply) if [200, 201].contains(&reply.status) => return reply.json(),
            Ok(reply) => assert!(
                [429, 502, 503].contains(&reply.status),
                "{} {}",
                reply.status,
                reply.text()
            ),
            Err(_) => {}
        }
        thread::sleep(Duration::from_millis(20));
    }
}
