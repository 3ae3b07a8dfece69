//! The parts of a service on several machines, its clients, and a history of its builds.
//!
//! Two replicas of the API behind a balancer and two workers, each of which a test stops and starts
//! again. A client sends a request again until it is answered.

use std::fs;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{context, id_of, start, until};
use crate::cloud::builds::shell;
use crate::support::cloud::{self, DataDir, KEY, TestCloud};
use crate::support::http;
use crate::support::runner::{PATIENCE, wait_for_file};
use crate::support::scale::Place;

pub const LEASE: Duration = Duration::from_secs(2);

/// Two replicas of the API and two workers.
pub struct Parts<'p> {
    place: &'p Place,
    data: [DataDir; 4],
    /// The API keeps its addresses, which the balancer knows.
    addresses: [SocketAddr; 2],
    pub apis: [TestCloud; 2],
    pub workers: [TestCloud; 2],
}

impl<'p> Parts<'p> {
    pub fn start(place: &'p Place, addresses: [SocketAddr; 2]) -> Self {
        let data: [DataDir; 4] = std::array::from_fn(|_| DataDir::new());
        Parts {
            apis: [0, 1].map(|at| start_api(place, &data[at], addresses[at])),
            workers: [2, 3].map(|at| start_worker(place, &data[at])),
            place,
            data,
            addresses,
        }
    }

    /// Starts a replica of the API that has ended, at its address.
    pub fn start_api_again(&mut self, at: usize) {
        self.apis[at] = start_api(self.place, &self.data[at], self.addresses[at]);
    }

    /// Returns when a worker has a build that goes on until the worker is started again.
    pub fn hold_a_build(&self, at: usize) {
        let folder = self.data[2 + at].path();
        let _ = fs::remove_file(folder.join("held"));
        fs::write(folder.join("hold"), "").expect("the folder is writable");
        wait_for_file(&folder.join("held"));
    }

    /// Starts a worker that has ended.
    pub fn start_worker_again(&mut self, at: usize) {
        let _ = fs::remove_file(self.data[2 + at].path().join("hold"));
        self.workers[at] = start_worker(self.place, &self.data[2 + at]);
    }
}

fn start_api(place: &Place, data: &DataDir, addr: SocketAddr) -> TestCloud {
    start(place, data, &["--role", "api", "--port", &addr.port().to_string()])
}

fn start_worker(place: &Place, data: &DataDir) -> TestCloud {
    let lease = LEASE.as_secs().to_string();
    let options = ["--role", "worker", "--lease", &lease, "--max-attempts", "9"];
    start(place, data, &shell(&options, BUILDER, data.path()))
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
    for key in images.lines() {
        // A listing has a thousand keys at most.
        let objects = place.objects(key);
        assert_eq!(objects, [key], "the image is there");
    }
}
