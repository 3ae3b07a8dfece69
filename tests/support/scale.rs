//! What replicas of the cloud service share: a real PostgreSQL and a real object store, each
//! started once for all tests, and for each test a database and a bucket of its own.
//!
//! The programs are searched in `PATH`, where Debian puts PostgreSQL, and where Go puts what it
//! builds. Without one of them the tests are skipped.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use edge_runner_cloud::proto::scale::sigv4::{StoreCredentials, StoreRequest};
use edge_runner_proto::config::SecretBytes;

use super::http;
use super::link::Link;
use super::ports::free_port;
use super::runner::{PATIENCE, TestRunner, folder};
use super::skip;

pub const KEY_ID: &str = "AKIATESTS";
pub const KEY_SECRET: &str = "secret-of-the-store-of-tests";

/// Names the store, which takes the arguments and variables of versitygw. tests/peers/cloud has
/// others.
const STORE_VARIABLE: &str = "EDGE_RUNNER_STORE";

/// The command that fetches one.
const STORE: &str = "go install github.com/versity/versitygw/cmd/versitygw@v1.8.0";

/// A database and a bucket.
pub struct Place {
    pub database: String,
    pub bucket: String,
    postgres: SocketAddr,
    store: SocketAddr,
    variables: HashMap<&'static str, String>,
}

/// The links of one replica to its database and its store. Clients reach the store without them.
pub struct Links {
    pub database: Link,
    pub store: Link,
    variables: HashMap<&'static str, String>,
}

impl Links {
    /// Returns the variables of the replica.
    pub fn variables(&self) -> Vec<(&str, &str)> {
        pairs(&self.variables)
    }
}

fn pairs<'v>(variables: &'v HashMap<&'static str, String>) -> Vec<(&'v str, &'v str)> {
    variables.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

/// A server of the tests, killed on drop.
pub struct Server {
    command: Command,
    child: Child,
    pub addr: SocketAddr,
    folder: PathBuf,
    /// Whether it takes requests.
    is_ready: fn(SocketAddr) -> bool,
}

impl Server {
    /// Starts a program that ends with this thread, and waits until it is ready.
    fn start(mut command: Command, addr: SocketAddr, folder: PathBuf, is_ready: fn(SocketAddr) -> bool) -> Server {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("the program runs");
        let server = Server {
            command,
            child,
            addr,
            folder,
            is_ready,
        };
        server.wait();
        server
    }

    fn wait(&self) {
        let began = Instant::now();
        while !(self.is_ready)(self.addr) {
            assert!(began.elapsed() < PATIENCE, "{:?} was to be ready", self.command);
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends the program without order, as a crash does. This signal is PostgreSQL's `immediate`
    /// shutdown, which ends its other processes too.
    pub fn crash(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::QUIT).expect("it lives");
        self.child.wait().expect("it ends");
    }

    /// Starts the program again.
    pub fn start_again(&mut self) {
        self.child = self.command.spawn().expect("the program runs");
        self.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// An open transaction, rolled back on drop.
pub struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        // psql ends with its input.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The servers of all tests.
struct Servers {
    postgres: SocketAddr,
    store: SocketAddr,
}

impl Place {
    /// Makes a database with the schema and a bucket. `None`: a program is missing, and the test is
    /// skipped.
    pub fn new() -> Option<Place> {
        let servers = servers()?;
        Some(Place::at(servers.postgres, servers.store))
    }

    /// The same without the schema.
    pub fn unmigrated() -> Option<Place> {
        let servers = servers()?;
        Some(Place::empty(servers.postgres, servers.store))
    }

    /// The same as [`Place::new`] with servers of its own, which the test may stop: PostgreSQL and
    /// the store.
    pub fn with_own_servers() -> Option<(Place, Server, Server)> {
        servers()?;
        let (postgres, store) = (start_postgres()?, start_store()?);
        Some((Place::at(postgres.addr, store.addr), postgres, store))
    }

    fn at(postgres: SocketAddr, store: SocketAddr) -> Place {
        let place = Place::empty(postgres, store);
        let migrated = place.run(&["migrate"]);
        assert!(migrated.contains("version 2 now"), "{migrated}");
        place
    }

    /// Makes a database without a schema, and a bucket.
    fn empty(postgres: SocketAddr, store: SocketAddr) -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // The store may be another process's, and have buckets of an earlier one.
        let bucket = format!("bucket-{}-{count}", std::process::id());
        let database = format!("cloud{count}");
        let made = sql(postgres, "postgres", &format!("CREATE DATABASE {database}"));
        assert!(made.status.success(), "{made:?}");
        signed(store, "PUT", &format!("/{bucket}"), &[], b"");
        Place {
            variables: variables(&database, &bucket, (postgres, store), store),
            database,
            bucket,
            postgres,
            store,
        }
    }

    /// Restores a back-up of this place: `pg_dump` of the database into a new one, then the objects
    /// into a new bucket, as docs/cloud.md says.
    pub fn restored(&self) -> Place {
        let place = Place::empty(self.postgres, self.store);
        let dump = folder().join("cloud.dump");
        let dump = dump.to_str().expect("folders of tests are UTF-8");
        for (name, database, args) in [
            ("pg_dump", &self.database, &["--format=custom", "--file", dump][..]),
            ("pg_restore", &place.database, &["--exit-on-error", "--no-owner", dump]),
        ] {
            let mut command = Command::new(program(name).expect("it comes with PostgreSQL"));
            command.args(connection(self.postgres, database)).args(args);
            let ran = command.output().expect("it runs");
            assert!(ran.status.success(), "{ran:?}");
        }
        for key in self.objects("") {
            let object = signed(self.store, "GET", &format!("/{}/{key}", self.bucket), &[], b"");
            place.put(&key, &object.body);
        }
        place
    }

    /// Returns the URL of uploads.
    pub fn upload_url(&self) -> String {
        format!("http://{}/{}", self.store, self.bucket)
    }

    /// Puts an object into the bucket, without the rules of a grant.
    pub fn put(&self, key: &str, content: &[u8]) {
        signed(self.store, "PUT", &format!("/{}/{key}", self.bucket), &[], content);
    }

    /// Returns an object, if it is there.
    pub fn object(&self, key: &str) -> Option<Vec<u8>> {
        let path = format!("/{}/{key}", self.bucket);
        let reply = signed_try(self.store, "GET", &path, &[], b"").expect("the store answers");
        match reply.status {
            404 => None,
            status => {
                assert_eq!(status, 200, "{key}: {}", reply.text());
                Some(reply.body)
            }
        }
    }

    /// Returns the variables of a replica.
    pub fn variables(&self) -> Vec<(&str, &str)> {
        pairs(&self.variables)
    }

    /// Makes links of a replica to the database and the store.
    pub fn links(&self) -> Links {
        let (database, store) = (Link::to(self.postgres), Link::to(self.store));
        let reached = (database.addr, store.addr);
        Links {
            variables: variables(&self.database, &self.bucket, reached, self.store),
            database,
            store,
        }
    }

    /// Runs a command of `edge-runner cloud` that ends with success, and returns its output.
    pub fn run(&self, args: &[&str]) -> String {
        let ran = TestRunner::run_with(&[&["cloud"], args].concat(), &self.variables());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stdout
    }

    /// Runs SQL, and returns whether it succeeds.
    pub fn succeeds(&self, statement: &str) -> bool {
        sql(self.postgres, &self.database, statement).status.success()
    }

    /// Runs SQL and returns its rows, with `|` between columns.
    pub fn sql(&self, statement: &str) -> String {
        let ran = sql(self.postgres, &self.database, statement);
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8_lossy(&ran.stdout).trim().to_owned()
    }

    /// Runs SQL in a transaction, and returns while that is open.
    pub fn hold(&self, statement: &str) -> Held {
        let mut command = Command::new(program("psql").expect("it comes with PostgreSQL"));
        command
            .args(["-X", "-At", "-v", "ON_ERROR_STOP=1"])
            .args(connection(self.postgres, &self.database));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut psql = command.spawn().expect("psql runs");
        let input = psql.stdin.as_mut().expect("it is piped");
        write!(input, "BEGIN; {statement};\n\\echo held\n").expect("psql reads");
        let output = BufReader::new(psql.stdout.take().expect("it is piped"));
        let held = output.lines().map_while(Result::ok).any(|line| line == "held");
        assert!(held, "{statement}");
        Held(psql)
    }

    /// Waits until a session waits for a lock with a statement that begins so.
    pub fn wait_for_waiting(&self, statement: &str) {
        let waiting = format!(
            "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' \
             AND query LIKE '{statement}%'"
        );
        let began = Instant::now();
        while self.sql(&waiting) == "0" {
            assert!(began.elapsed() < PATIENCE, "{statement} was to wait");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the keys of objects that begin with a prefix.
    pub fn objects(&self, prefix: &str) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        loop {
            let after = found.last().cloned().unwrap_or_default();
            let query = [("marker", &*after), ("prefix", prefix)];
            let reply = signed(self.store, "GET", &format!("/{}", self.bucket), &query, b"");
            let keys = edge_runner_cloud::proto::scale::listing::keys(&reply.text()).expect("a listing");
            if keys.is_empty() {
                return found;
            }
            found.extend(keys);
        }
    }
}

/// Returns the variables of a replica that reaches PostgreSQL and the store at these addresses, and
/// whose clients reach the store at `public`.
fn variables(
    database: &str,
    bucket: &str,
    (postgres, store): (SocketAddr, SocketAddr),
    public: SocketAddr,
) -> HashMap<&'static str, String> {
    HashMap::from([
        ("CLOUD_DATABASE", format!("postgres://cloud@{postgres}/{database}")),
        (
            "CLOUD_STORE",
            format!("s3://{bucket}?endpoint=http://{store}&public=http://{public}"),
        ),
        ("AWS_ACCESS_KEY_ID", KEY_ID.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", KEY_SECRET.to_owned()),
    ])
}

fn sql(postgres: SocketAddr, database: &str, statement: &str) -> Output {
    let psql = program("psql").expect("it comes with PostgreSQL");
    let mut command = Command::new(psql);
    command
        .args(["-X", "-At", "-v", "ON_ERROR_STOP=1"])
        .args(connection(postgres, database));
    command.args(["-c", statement]).output().expect("psql runs")
}

/// Returns the options of PostgreSQL's programs for a database.
fn connection(postgres: SocketAddr, database: &str) -> [String; 8] {
    let (host, port) = (postgres.ip().to_string(), postgres.port().to_string());
    ["-U", "cloud", "-h", &host, "-p", &port, "-d", database].map(str::to_owned)
}

/// Sends a signed request, which has to succeed.
fn signed(store: SocketAddr, method: &str, path: &str, query: &[(&str, &str)], body: &[u8]) -> http::Reply {
    let reply = signed_try(store, method, path, query, body).expect("the store answers");
    assert!(
        (200..300).contains(&reply.status),
        "{method} {path}: {} {}",
        reply.status,
        reply.text()
    );
    reply
}

/// Sends a signed request.
fn signed_try(
    store: SocketAddr,
    method: &str,
    path: &str,
    query: &[(&str, &str)],
    body: &[u8],
) -> io::Result<http::Reply> {
    let credentials = StoreCredentials {
        id: KEY_ID.into(),
        secret: SecretBytes::new(KEY_SECRET),
        token: None,
    };
    let host = store.to_string();
    let request = StoreRequest {
        method,
        host: &host,
        path,
        query,
    };
    let target = match request.encoded_query() {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    };
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("after 1970");
    let headers: Vec<String> = request
        .headers(&credentials, "us-east-1", now.as_millis() as u64)
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    http::request(store, method, &target, &headers, body)
}

/// Starts the servers, once.
fn servers() -> Option<&'static Servers> {
    static SERVERS: OnceLock<Option<Servers>> = OnceLock::new();
    let start = || {
        let (sender, receiver) = std::sync::mpsc::channel();
        // The servers end with the thread that started them, and this one lives as long as the
        // process.
        thread::spawn(move || {
            let started = start_postgres().and_then(|postgres| Some((postgres, start_store()?)));
            let found = started.as_ref().map(|(postgres, store)| Servers {
                postgres: postgres.addr,
                store: store.addr,
            });
            let is_there = found.is_some();
            sender.send(found).expect("it is waited for");
            if is_there {
                loop {
                    thread::park();
                }
            }
        });
        receiver.recv().expect("the thread answers")
    };
    let found = SERVERS.get_or_init(start).as_ref();
    if found.is_none() {
        skip::lacks_package(
            "the cloud service on several machines",
            &format!("apt-get install postgresql; {STORE}"),
        );
    }
    found
}

/// Finds a program in `PATH`, among those of PostgreSQL, or among those that Go has built.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    // Where Debian has servers, which is not in everybody's `PATH`.
    folders.push("/usr/sbin".into());
    folders.extend(versions.map(|version| version.path().join("bin")));
    folders.push(home.join("go/bin"));
    folders
        .into_iter()
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Returns an address on loopback, which is this process's until it ends.
pub fn free_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}

/// Returns a command for a user other than root, as whom PostgreSQL does not run.
fn as_other_user(program: &Path, is_root: bool) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if is_root {
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    }
    command.arg(program);
    command
}

fn start_postgres() -> Option<Server> {
    let (initdb, postgres) = (program("initdb")?, program("postgres")?);
    let (folder, addr) = (folder(), free_address());
    let is_root = rustix::process::getuid().is_root();
    if is_root {
        std::os::unix::fs::chown(&folder, Some(65534), Some(65534)).expect("root may");
    }
    let data = folder.join("data");
    let mut made = as_other_user(&initdb, is_root);
    made.args(["-A", "trust", "-U", "cloud", "-N", "--locale=C", "-E", "UTF8", "-D"])
        .arg(&data);
    let made = made.output().expect("initdb runs");
    assert!(made.status.success(), "{made:?}");
    let mut command = as_other_user(&postgres, is_root);
    command.args([
        "-c",
        "listen_addresses=127.0.0.1",
        "-c",
        "unix_socket_directories=",
        "-c",
        "fsync=off",
    ]);
    command.args(["-p", &addr.port().to_string(), "-D"]).arg(&data);
    // It listens before it takes sessions.
    Some(Server::start(command, addr, folder, |addr| {
        sql(addr, "postgres", "SELECT 1").status.success()
    }))
}

/// Starts HAProxy with the file of the documents in front of replicas of the API. `None`: it is
/// missing, and the test is skipped.
pub fn start_balancer(replicas: [SocketAddr; 2]) -> Option<Server> {
    let Some(haproxy) = program("haproxy") else {
        skip::lacks_package("replicas behind a balancer", "apt-get install haproxy");
        return None;
    };
    let addr = free_address();
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(haproxy);
    command.args(["-db", "-f"]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cloud/haproxy.cfg"));
    command.env("BALANCER_BIND", addr.to_string());
    for (name, replica) in ["REPLICA_A", "REPLICA_B"].iter().zip(replicas) {
        command.env(name, replica.to_string());
    }
    Some(Server::start(command, addr, folder(), |addr| {
        TcpStream::connect(addr).is_ok()
    }))
}

fn start_store() -> Option<Server> {
    let program = match std::env::var_os(STORE_VARIABLE) {
        Some(program) => PathBuf::from(program),
        None => program("versitygw")?,
    };
    let (folder, addr) = (folder(), free_address());
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command.args(["--port", &addr.to_string(), "posix"]).arg(&folder);
    command
        .env("ROOT_ACCESS_KEY", KEY_ID)
        .env("ROOT_SECRET_KEY", KEY_SECRET);
    // Some listen before their parts have found each other.
    Some(Server::start(command, addr, folder, |addr| {
        signed_try(addr, "GET", "/", &[], b"").is_ok_and(|reply| reply.status == 200)
    }))
}
