//! The parts of a service on several machines, its clients, and a history of its builds.
//!
//! Two replicas of the API behind a balancer and two workers, each of which a test stops and starts
//! again. Their clocks are an hour ahead and an hour behind, and each has links of its own to the
//! database and the store. A client sends a request again until it is answered.

use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{context, id_of, until};
use crate::cloud::builds::shell;
use crate::support::cloud::{self, DataDir, KEY, TestCloud};
use crate::support::http;
use crate::support::runner::{PATIENCE, wait_for_file};
use crate::support::scale::{Links, Place};
use crate::support::skip;

pub const LEASE: Duration = Duration::from_secs(2);

/// The clocks of the replicas of the API and of the workers, for libfaketime.
const CLOCKS: [&str; 4] = ["+1h", "-1h", "+1h", "-1h"];

/// Two replicas of the API and two workers.
pub struct Parts {
    machines: [Machine; 4],
    pub apis: [TestCloud; 2],
    pub workers: [TestCloud; 2],
}

/// Where a replica runs.
struct Machine {
    data: DataDir,
    links: Links,
    /// Variables of its clock.
    clock: Vec<(&'static str, String)>,
    /// The API keeps its address, which the balancer knows.
    addr: Option<SocketAddr>,
    /// Option of a worker.
    attempts_max: &'static str,
}

impl Machine {
    fn start(&self) -> TestCloud {
        let lease = LEASE.as_secs().to_string();
        let port = self.addr.map(|addr| addr.port().to_string());
        let options = match &port {
            Some(port) => vec!["--role", "api", "--port", port],
            None => {
                let options = [
                    "--role",
                    "worker",
                    "--lease",
                    &lease,
                    "--max-attempts",
                    self.attempts_max,
                ];
                shell(&options, BUILDER, self.data.path())
            }
        };
        let mut variables = self.links.variables();
        variables.extend(self.clock.iter().map(|(name, value)| (*name, value.as_str())));
        TestCloud::start_with(&self.data, &options, &variables)
    }
}

impl Parts {
    pub fn start(place: &Place, addresses: [SocketAddr; 2], attempts_max: &'static str) -> Self {
        let library = skip::faketime("replicas whose clocks are an hour apart");
        let clock = |at: usize| match &library {
            None => Vec::new(),
            Some(library) => vec![
                ("LD_PRELOAD", library.clone()),
                ("FAKETIME", CLOCKS[at].to_owned()),
                ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ],
        };
        let machines: [Machine; 4] = std::array::from_fn(|at| Machine {
            data: DataDir::new(),
            links: place.links(),
            clock: clock(at),
            addr: addresses.get(at).copied(),
            attempts_max,
        });
        let parts = Parts {
            apis: [0, 1].map(|at| machines[at].start()),
            workers: [2, 3].map(|at| machines[at].start()),
            machines,
        };
        if library.is_some() {
            for api in &parts.apis {
                api.runner.wait_for_log("signed by the time of the store");
            }
        }
        parts
    }

    /// Returns the links of a replica of the API, or of a worker by 2 and 3.
    pub fn links(&self, at: usize) -> &Links {
        &self.machines[at].links
    }

    /// Starts a replica of the API that has ended, at its address.
    pub fn start_api_again(&mut self, at: usize) {
        remove_clock(&self.apis[at]);
        self.apis[at] = self.machines[at].start();
    }

    /// Returns when a worker has a build that goes on until the worker is started again.
    pub fn hold_a_build(&self, at: usize) {
        let folder = self.machines[2 + at].data.path();
        let _ = fs::remove_file(folder.join("held"));
        fs::write(folder.join("hold"), "").expect("the folder is writable");
        wait_for_file(&folder.join("held"));
    }

    /// Starts a worker that has ended.
    pub fn start_worker_again(&mut self, at: usize) {
        let machine = &self.machines[2 + at];
        remove_clock(&self.workers[at]);
        let _ = fs::remove_file(machine.data.path().join("hold"));
        self.workers[at] = machine.start();
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.apis.iter().chain(&self.workers).for_each(remove_clock);
    }
}

/// Removes what libfaketime leaves of a process that is killed.
fn remove_clock(of: &TestCloud) {
    let pid = of.runner.pid();
    for file in [format!("faketime_shm_{pid}"), format!("sem.faketime_sem_{pid}")] {
        let _ = fs::remove_file(Path::new("/dev/shm").join(file));
    }
}

/// Builds for a moment, and for as long as there is a file `hold` in the data directory of the
/// worker. It says by `held` that it waits.
const BUILDER: &str = r#"sleep 0.3; while [ -e "$0/hold" ]; do : > "$0/held"; sleep 0.02; done
    cp bot.py "$BUILD_OUT/image""#;

/// A client of the balancer.
pub struct Client {
    balancer: SocketAddr,
    /// Requests that were to be sent again, other than those above the cap of an organization.
    again: Mutex<Vec<String>>,
}

impl Client {
    pub fn new(balancer: SocketAddr) -> Client {
        Client {
            balancer,
            again: Mutex::default(),
        }
    }

    /// Returns why requests were to be sent again.
    pub fn again(&self) -> Vec<String> {
        self.again.lock().expect("no holder panics").clone()
    }

    /// Requests a grant.
    pub fn grant(&self) -> Value {
        self.call("POST", "/v1/builds/upload-url", &json!({}))
    }

    /// Uploads a context of its own with a grant, and creates a build of it; returns its id.
    pub fn build(&self, grant: &Value, n: usize) -> String {
        let (kind, body) = cloud::form(grant, &context(&format!("bot {n}")));
        let target = grant["uploadUrl"].as_str().expect("a URL").replace("http://", "");
        let (host, path) = target.split_once('/').expect("a path");
        let host: SocketAddr = host.parse().expect("an address");
        until("an upload was to succeed", || {
            let sent = http::request(host, "POST", &format!("/{path}"), &[&kind], &body);
            sent.is_ok_and(|sent| sent.status / 100 == 2)
        });
        let wanted = json!({"uploadId": grant["uploadId"], "region": "local"});
        id_of(&self.call("POST", "/v1/builds", &wanted))
    }

    /// Asks for a build until it has ended with success. Neither its status nor its time goes back,
    /// whichever replica answers.
    pub fn follow(&self, id: &str) {
        const ORDER: [&str; 3] = ["pending", "building", "success"];
        let (began, mut before) = (Instant::now(), (0, String::new()));
        while ORDER[before.0] != "success" {
            let build = self.call("GET", &format!("/v1/builds/{id}"), &Value::Null)["build"].clone();
            let place = ORDER.iter().position(|status| build["status"] == *status);
            let updated = build["updatedAt"].as_str().expect("a time").to_owned();
            let now = (place.unwrap_or_else(|| panic!("it fails: {build:#}")), updated);
            assert!(now.0 >= before.0 && now.1 >= before.1, "{before:?}, then {build:#}");
            assert!(began.elapsed() < PATIENCE, "it was to end: {build:#}");
            before = now;
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sends a request until it is answered. 502 says that a replica was killed in the middle of
    /// its answer, 503 that the database or the store is away; 429 is an organization whose builds
    /// have to begin first.
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let began = Instant::now();
        let key = format!("Authorization: Bearer {KEY}");
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        loop {
            assert!(began.elapsed() < PATIENCE, "{path} was to be answered");
            let again = match http::request(self.balancer, method, path, &[&key], body.as_bytes()) {
                Ok(reply) if [200, 201].contains(&reply.status) => return reply.json(),
                Ok(reply) if reply.status == 429 => None,
                Ok(reply) if [502, 503].contains(&reply.status) => Some(format!("{} {}", reply.status, reply.text())),
                Ok(reply) => panic!("{} {}", reply.status, reply.text()),
                Err(error) => Some(error.to_string()),
            };
            let mut noted = self.again.lock().expect("no holder panics");
            noted.extend(again.map(|again| format!("{method} {path}: {again}")));
            drop(noted);
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Writes each change of a status or an attempt to a table.
pub fn note_changes(place: &Place) {
    place.sql(
        "CREATE TABLE history (at SERIAL, id TEXT, status TEXT, attempt INTEGER);
         CREATE FUNCTION note() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
             IF OLD.status <> NEW.status OR OLD.attempt <> NEW.attempt THEN
                 INSERT INTO history (id, status, attempt) VALUES (NEW.id, NEW.status, NEW.attempt);
             END IF; RETURN NEW; END $$;
         CREATE TRIGGER noted AFTER UPDATE ON build FOR EACH ROW EXECUTE FUNCTION note()",
    );
}

/// Asserts what the records and the store have at the end of so many builds.
pub fn assert_history(place: &Place, builds: usize) {
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
    assert_ne!(again, "0", "no run was interrupted, so that nothing is proved");
    let images = place.sql("SELECT 'images/' || id || '/' || attempt || '/' || image_name FROM build");
    let objects: HashSet<String> = place.objects("").into_iter().collect();
    for key in images.lines() {
        assert!(objects.contains(key), "{key} is not there");
    }
}
