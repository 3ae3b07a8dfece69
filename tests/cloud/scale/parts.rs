//! The parts of a service on several machines, its clients, and a history of its builds.
//!
//! Two replicas of the API behind a balancer and two workers, each of which a test stops and starts
//! again. A client sends a request again until it is answered.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{context, id_of, start, until};
use crate::support::cloud::{self, DataDir, KEY, TestCloud};
use crate::support::http;
use crate::support::runner::PATIENCE;
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

    /// Starts a worker that has ended.
    pub fn start_worker_again(&mut self, at: usize) {
        self.workers[at] = start_worker(self.place, &self.data[2 + at]);
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

/// A client of the balancer.
pub struct Client {
    balancer: SocketAddr,
}

impl Client {
    pub fn new(balancer: SocketAddr) -> Client {
        Client { balancer }
    }

    /// Requests a grant.
    pub fn grant(&self) -> Value {
        self.call("/v1/builds/upload-url", &json!({}))
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
        id_of(&self.call("/v1/builds", &wanted))
    }

    /// Sends a request until it is answered. 502 says that a replica was killed in the middle of
    /// its answer, 503 that the database or the store is away; 429 is an organization whose builds
    /// have to begin first.
    fn call(&self, path: &str, body: &Value) -> Value {
        let began = Instant::now();
        let key = format!("Authorization: Bearer {KEY}");
        loop {
            assert!(began.elapsed() < PATIENCE, "{path} was to be answered");
            match http::request(self.balancer, "POST", path, &[&key], body.to_string().as_bytes()) {
                Ok(reply) if [200, 201].contains(&reply.status) => return reply.json(),
                Ok(reply) if [429, 502, 503].contains(&reply.status) => {}
                Ok(reply) => panic!("{} {}", reply.status, reply.text()),
                Err(_) => {}
            }
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
