//! [`TestCloud`]: the cloud service of the real binary on a free port, with a data directory.
//!
//! In: options and a builder command. Out: replies. The keys exist for the tests only. An upload
//! and a build are one call each ([`TestCloud::upload`], [`TestCloud::build`]); [`archive`] creates
//! an archive to upload.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use edge_runner_cloud::proto::tar;
use serde_json::{Value, json};

use super::http::{self, Reply};
use super::runner::{PATIENCE, RunOutput, TestRunner, folder};
use super::scale::Place;

/// A private key of organization `default`.
pub const KEY: &str = "sk_test_0123456789abcdef";
/// A private key of organization `other`.
pub const OTHER: &str = "sk_other_0123456789abcdef";
/// A public key of organization `default`.
pub const PUBLIC: &str = "pk_test_0123456789abcdef";

/// A data directory, removed on drop. With the variable [`SHARED`] its service keeps records and
/// archives in a database and a bucket, which are its own.
pub struct DataDir {
    path: PathBuf,
    place: OnceLock<Option<Place>>,
}

/// Set to run tests against the service on several machines.
const SHARED: &str = "EDGE_RUNNER_CLOUD_SHARED";

impl DataDir {
    pub fn new() -> DataDir {
        DataDir {
            path: folder(),
            place: OnceLock::new(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the database and the bucket, if the service has them.
    pub fn place(&self) -> Option<&Place> {
        std::env::var_os(SHARED)?;
        self.place.get_or_init(Place::new).as_ref()
    }

    /// Returns the variables of a service on this directory.
    fn variables(&self) -> Vec<(&str, &str)> {
        self.place().map(Place::variables).unwrap_or_default()
    }

    /// Returns options of [`TestCloud::start`] for the regions of this text, which others may
    /// replace.
    pub fn regions(&self, text: &str) -> Vec<String> {
        let file = self.path.join("regions.json");
        std::fs::write(&file, text).expect("the folder is writable");
        let file = file.to_str().expect("folders of tests are UTF-8");
        match self.place() {
            None => vec!["--regions".to_owned(), file.to_owned()],
            Some(place) => {
                place.run(&["migrate", "--regions", file]);
                Vec::new()
            }
        }
    }

    /// Returns options by which a killed service's builds run again soon.
    pub fn short_lease(&self) -> &'static [&'static str] {
        match self.place() {
            None => &[],
            Some(_) => &["--lease", "2"],
        }
    }

    /// Runs `cloud keys` for the service.
    pub fn keys(&self, args: &[&str]) -> RunOutput {
        let keys = [&["cloud", "keys"], args].concat();
        match self.place() {
            None => {
                let path = self.path.to_str().expect("folders of tests are UTF-8");
                TestRunner::run(&[&keys[..], &["--data-dir", path]].concat())
            }
            Some(place) => TestRunner::run_with(&keys, &place.variables()),
        }
    }

    /// Returns the archive of an upload as it is stored, by its key.
    pub fn stored_archive(&self, key: &str) -> Option<Vec<u8>> {
        match self.place() {
            None => std::fs::read(self.path.join("archives").join(key)).ok(),
            Some(place) => place.object(key),
        }
    }

    /// Tells whether a build has a stored log and a stored image, in this order.
    pub fn has_stored(&self, build: &str) -> (bool, bool) {
        let Some(place) = self.place() else {
            let path = |name: String| self.path.join(name).exists();
            return (path(format!("logs/{build}.log")), path(format!("images/{build}")));
        };
        let rows = place.sql(&format!("SELECT COUNT(*) FROM build_log WHERE build = '{build}'"));
        (rows != "0", !place.objects(&format!("images/{build}/")).is_empty())
    }

    /// Returns the log of a build as it is stored.
    pub fn stored_log(&self, id: &str) -> String {
        let Some(place) = self.place() else {
            return std::fs::read_to_string(self.path.join(format!("logs/{id}.log"))).expect("a log");
        };
        let hex = place.sql(&format!(
            "SELECT string_agg(encode(data, 'hex'), '' ORDER BY start) FROM build_log WHERE build = '{id}'"
        ));
        let bytes = data_encoding::HEXLOWER.decode(hex.as_bytes()).expect("hex");
        String::from_utf8(bytes).expect("logs are UTF-8")
    }

    /// Waits until the scratch folder is empty, which is after a build's result.
    pub fn wait_for_empty_scratch(&self) {
        let began = Instant::now();
        loop {
            let left = std::fs::read_dir(self.path.join("scratch")).map_or(Vec::new(), |left| left.flatten().collect());
            if left.is_empty() {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "scratch was to be removed: {left:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

pub struct TestCloud {
    pub runner: TestRunner,
}

impl TestCloud {
    /// Starts the service on a data directory with the keys of this module. `args` may end with
    /// `--` and a command. `--min-free 0` comes first, so that tests run on disks of any size.
    pub fn start(data: &DataDir, args: &[&str]) -> TestCloud {
        TestCloud::start_with(data, args, &[])
    }

    /// Starts the service with further variables.
    pub fn start_with(data: &DataDir, args: &[&str], variables: &[(&str, &str)]) -> TestCloud {
        TestCloud::start_through(&[], data, args, variables)
    }

    /// Starts it by way of a wrapper command that executes it.
    pub fn start_through(wrapper: &[&str], data: &DataDir, args: &[&str], variables: &[(&str, &str)]) -> TestCloud {
        let path = data.path().to_str().expect("folders of tests are UTF-8");
        let mut all = vec!["cloud", "serve", "--port", "0", "--data-dir", path, "--min-free", "0"];
        all.extend(args);
        let private = format!("{KEY},other={OTHER}");
        let mut env = vec![("CLOUD_PRIVATE_KEYS", &*private), ("CLOUD_PUBLIC_KEYS", PUBLIC)];
        env.extend(data.variables());
        env.extend(variables);
        TestCloud {
            runner: TestRunner::start_bare_through(wrapper, &all, &env),
        }
    }

    /// Waits until the service has at most so many KiB of files in its memory; returns how many it
    /// has then.
    pub fn wait_for_unmapping(&self, kib_max: u64) -> u64 {
        let began = Instant::now();
        loop {
            match self.runner.file_kib() {
                kib if kib <= kib_max => return kib,
                kib => assert!(began.elapsed() < PATIENCE, "{kib} KiB stay mapped, not {kib_max}"),
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts the service with a file size limit in blocks of 512 bytes, which acts like a full
    /// disk for larger files.
    pub fn start_small(data: &DataDir, args: &[&str], blocks: u32) -> TestCloud {
        let path = data.path().to_str().expect("folders of tests are UTF-8");
        let mut all = vec!["cloud", "serve", "--port", "0", "--data-dir", path, "--min-free", "0"];
        all.extend(args);
        TestCloud {
            runner: TestRunner::start_small(&all, &[("CLOUD_PRIVATE_KEYS", KEY)], blocks),
        }
    }

    /// Sends `GET` with the private key.
    pub fn get(&self, target: &str) -> Reply {
        self.request("GET", target, KEY, b"")
    }

    /// Downloads a stored image, from the object store if the service has one.
    pub fn image(&self, target: &str) -> Reply {
        let reply = self.get(target);
        match reply.status {
            302 => http::follow(reply.header("location").expect("a link")),
            _ => reply,
        }
    }

    /// Sends a JSON `POST` with the private key.
    pub fn post(&self, target: &str, body: &Value) -> Reply {
        self.request("POST", target, KEY, body.to_string().as_bytes())
    }

    /// Sends a request with any key.
    pub fn request(&self, method: &str, target: &str, key: &str, body: &[u8]) -> Reply {
        let key = format!("Authorization: Bearer {key}");
        let headers = [&*key, "Content-Type: application/json"];
        http::request(self.runner.addr, method, target, &headers, body).expect("the service answers")
    }

    /// Requests a grant.
    pub fn grant(&self) -> Value {
        let reply = self.post("/v1/builds/upload-url", &json!({}));
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    /// Uploads an archive with a grant.
    pub fn send(&self, grant: &Value, archive: &[u8]) -> Reply {
        let (kind, body) = form(grant, archive);
        let (addr, path) = self.upload_target(grant);
        http::request(addr, "POST", &path, &[&kind], &body).expect("the service answers")
    }

    /// Returns where the uploads of a grant go.
    pub fn upload_target(&self, grant: &Value) -> (SocketAddr, String) {
        let target = grant["uploadUrl"].as_str().expect("a URL");
        let mut parts = target.splitn(4, '/').skip(2);
        let (host, path) = (parts.next().expect("a host"), parts.next().expect("a path"));
        // The host is that of the grant request, perhaps to an earlier run, or of an object store.
        let addr = match path {
            "build-contexts" => self.runner.addr,
            _ => host.parse().expect("the address of a store"),
        };
        (addr, format!("/{path}"))
    }

    /// Uploads an archive and returns the upload's id.
    pub fn upload(&self, archive: &[u8]) -> String {
        let grant = self.grant();
        let reply = self.send(&grant, archive);
        assert!([200, 204].contains(&reply.status), "{}", reply.text());
        grant["uploadId"].as_str().expect("an identifier").to_owned()
    }

    /// Requests a build of an upload with the build file `Dockerfile`.
    pub fn create(&self, upload: &str) -> Reply {
        self.post("/v1/builds", &json!({"uploadId": upload, "region": "local"}))
    }

    /// Uploads an archive and creates a build; returns its id.
    pub fn build(&self, archive: &[u8]) -> String {
        let reply = self.create(&self.upload(archive));
        assert_eq!(reply.status, 201, "{}", reply.text());
        reply.json()["build"]["id"].as_str().expect("an identifier").to_owned()
    }

    /// Returns a build.
    pub fn status(&self, id: &str) -> Value {
        let reply = self.get(&format!("/v1/builds/{id}"));
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["build"].clone()
    }

    /// Waits until a build has this status and returns it. Another final status fails the test.
    pub fn wait_for(&self, id: &str, status: &str) -> Value {
        let began = Instant::now();
        loop {
            let build = self.status(id);
            let now = build["status"].as_str().expect("a status");
            if now == status {
                return build;
            }
            let goes_on = matches!(now, "pending" | "building");
            assert!(goes_on && began.elapsed() < PATIENCE, "{status} was to come: {build:#}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a build has ended and returns it.
    pub fn ended(&self, id: &str) -> Value {
        let began = Instant::now();
        loop {
            let build = self.status(id);
            if build.get("completedAt").is_some() {
                return build;
            }
            assert!(began.elapsed() < PATIENCE, "it was to end: {build:#}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the log of a build.
    pub fn log(&self, id: &str) -> Vec<String> {
        let reply = self.get(&format!("/v1/builds/{id}/logs?limit=10000"));
        assert_eq!(reply.status, 200, "{}", reply.text());
        let lines = reply.json()["logs"].as_array().expect("lines").clone();
        lines
            .iter()
            .map(|line| line.as_str().expect("text").to_owned())
            .collect()
    }
}

/// Returns a gzipped tar archive of text files.
pub fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    gzip(&tar_archive(files))
}

/// Returns a tar archive of text files.
pub fn tar_archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut plain = Vec::new();
    for (name, text) in files {
        plain.extend(tar::write::header(name.as_bytes(), text.len() as u64, 0o644));
        plain.extend(text.as_bytes());
        plain.resize(plain.len().next_multiple_of(512), 0);
    }
    plain.resize((plain.len() + 1024).next_multiple_of(10_240), 0);
    plain
}

/// Returns a gzip member.
pub fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(plain).expect("memory");
    packer.finish().expect("memory")
}

/// Returns the header and body of an upload, with the fields in the order of the grant.
pub fn form(grant: &Value, archive: &[u8]) -> (String, Vec<u8>) {
    let boundary = "----of-a-test-0123456789";
    let mut body = Vec::new();
    for (name, value) in grant["uploadFields"].as_object().expect("fields") {
        let value = value.as_str().expect("text");
        let part = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        body.extend(part.as_bytes());
    }
    let last = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"context.tar.gz\"\r\nContent-Type: \
         application/gzip\r\n\r\n"
    );
    body.extend(last.as_bytes());
    body.extend(archive);
    body.extend(format!("\r\n--{boundary}--\r\n").as_bytes());
    (format!("Content-Type: multipart/form-data; boundary={boundary}"), body)
}
