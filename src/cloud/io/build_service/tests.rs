//! Tests of the build service, with runs that the test ends, and a real database.

use std::fs;
use std::io::{self, Read};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::io::builder::{BuildJob, RunOutcome};
use crate::io::records::SqliteRecords;
use crate::proto::build::{ArchiveInfo, Image, ImageLocation, Slug, UploadRecord};
use edge_runner_http::shutdown::ShutdownTrigger;
use edge_runner_proto::config::{Host, MetricsAccess, Tls};

/// A folder that is removed with the test.
struct TempFolder(PathBuf);

impl TempFolder {
    fn new() -> TempFolder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "builds-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("the system's folder for such things is writable");
        TempFolder(path)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An archive store that answers from the records, except for the organization `gone`.
struct FakeArchives;

impl ArchiveStore for FakeArchives {
    fn head(&self, upload: &UploadRecord) -> io::Result<Option<ArchiveInfo>> {
        Ok(upload.info)
    }

    fn open(&self, org: &Org, _: Uuid) -> io::Result<Box<dyn Read + Send>> {
        match org.as_str() {
            "gone" => Err(io::ErrorKind::NotFound.into()),
            _ => Ok(Box::new(io::empty())),
        }
    }

    fn delete(&self, _: &Org, _: Uuid) -> io::Result<()> {
        Ok(())
    }
}

/// A run that the test controls.
struct Run {
    job: BuildJob,
    end: oneshot::Sender<RunOutcome>,
}

impl Run {
    /// Reports the outcome while the run is still cleaning up.
    fn know(&mut self, outcome: RunOutcome) {
        std::mem::replace(&mut self.job.on_exit, Box::new(|| ()))();
        std::mem::replace(&mut self.job.on_outcome, Box::new(drop))(outcome);
    }

    /// Ends the run with this outcome.
    fn end(self, outcome: RunOutcome) {
        (self.job.on_exit)();
        self.end.send(outcome).expect("the service waits for it");
    }
}

struct Fixture {
    service: Arc<BuildService>,
    records: Arc<SqliteRecords>,
    runs: mpsc::UnboundedReceiver<Run>,
    stop: ShutdownTrigger,
}

/// A service with two running builds, three waiting ones and three attempts at most.
async fn start(folder: &TempFolder) -> Fixture {
    start_with(folder, Some(vec!["build".into()])).await
}

async fn start_with(folder: &TempFolder, command: Option<Vec<OsString>>) -> Fixture {
    let config = CloudConfig {
        data_dir: folder.0.clone(),
        host: Host::Localhost,
        port: 0,
        tls: Tls::Off,
        host_names: Vec::new(),
        public_url: None,
        metrics: MetricsAccess::Local,
        regions: None,
        org: name("o"),
        grant_ttl: Duration::from_secs(900),
        context_max: 1 << 20,
        unpacked_max: 1 << 20,
        entries_max: 100,
        uploads_max: 32,
        builds_max: 2,
        pending_max: 3,
        build_timeout: Duration::from_secs(1200),
        build_grace: Duration::from_secs(10),
        attempts_max: 3,
        builder_env: vec![("TOKEN".into(), "t".into())],
        keep_archives: None,
        keep_builds: None,
        free_min: 0,
        command,
        keys: Vec::new(),
        store_key: None,
        shared: None,
        path: "/bin".into(),
        lang: None,
        verbosity: 0,
    };
    let records = Arc::new(SqliteRecords::open(&folder.0).unwrap_or_else(|error| panic!("{error}")));
    let (stop, stopped) = Shutdown::channel();
    let (begun, runs) = mpsc::unbounded_channel();
    let runner: BuildRunner = Arc::new(move |job, _, mut stop| {
        let begun = begun.clone();
        Box::pin(async move {
            let (end, ended) = oneshot::channel();
            let _ = begun.send(Run { job, end });
            tokio::select! {
                ran = ended => ran.expect("the test ends what it began"),
                () = stop.wait() => RunOutcome::Interrupted,
            }
        })
    });
    let service = BuildService::with_runner(
        &config,
        records.clone(),
        Arc::new(FakeArchives),
        Arc::default(),
        stopped,
        Arc::default(),
        runner,
    );
    service.recover().await.expect("the records are there");
    Fixture {
        service,
        records,
        runs,
        stop,
    }
}

impl BuildService {
    /// Waits until no command runs and every result is recorded.
    async fn idle(&self) {
        let _ = self.busy().wait_for(|busy| *busy == 0).await;
    }
}

impl Fixture {
    /// Ends the service like a kill; the records stay as they are.
    async fn kill(self) {
        self.stop.set();
        self.service.idle().await;
    }

    /// Inserts an upload whose archive has a hash derived from `n`.
    fn upload(&self, of: &str, n: u8) -> Uuid {
        self.upload_with(of, [n; 16], [n; 32])
    }

    fn upload_with(&self, of: &str, md5: [u8; 16], sha256: [u8; 32]) -> Uuid {
        let id = Uuid::v4(random());
        let upload = UploadRecord {
            id,
            org: name(of),
            region: name("us-west"),
            expires_ms: u64::MAX >> 1,
            sealed: false,
            key: None,
            info: Some(ArchiveInfo {
                size: 5,
                md5,
                sha256,
                inode: 1,
                modified_ns: 1,
            }),
        };
        self.records.insert_upload(&upload).expect("there is space");
        id
    }

    async fn create(&self, of: &str, upload: Uuid) -> Result<CreateResult, ApiError> {
        let wanted = BuildRequest {
            upload,
            region: "us-west".into(),
            file: "Dockerfile".into(),
        };
        self.service.create(name(of), wanted, "http://h:1".into()).await
    }

    /// Creates a build that is not in the cache.
    async fn new_build(&self, of: &str, n: u8) -> Uuid {
        let created = self.create(of, self.upload(of, n)).await.expect("there is room");
        assert!(!created.cached);
        assert_eq!(created.build.status, BuildStatus::Pending);
        created.build.id
    }

    async fn run(&mut self) -> Run {
        self.runs.recv().await.expect("a build begins")
    }

    async fn get(&self, id: Uuid) -> Build {
        self.service.get(&name("o"), id).await.expect("it is recorded")
    }

    /// Waits until a build has this status.
    async fn wait_for(&self, id: Uuid, status: BuildStatus) -> Build {
        loop {
            let build = self.get(id).await;
            if build.status == status {
                return build;
            }
            tokio::task::yield_now().await;
        }
    }
}

fn name(text: &str) -> Slug {
    Slug::parse(text).expect("a name")
}

fn success() -> RunOutcome {
    RunOutcome::Success(Image {
        location: ImageLocation::Uri("registry/bot:1".into()),
        size: 9,
    })
}

/// C-007, C-046 to C-048: a build waits, runs and succeeds, and its run gets the right job.
#[tokio::test(start_paused = true)]
async fn a_build_runs_and_succeeds() {
    let folder = TempFolder::new();
    let mut fixture = start(&folder).await;
    let id = fixture.new_build("o", 1).await;
    let run = fixture.run().await;
    let building = fixture.get(id).await;
    assert_eq!((building.status, building.attempt), (BuildStatus::Building, 1));
    assert_eq!(run.job.build, building);
    let data_dir = folder.0.canonicalize().expect("it is there");
    assert_eq!(run.job.scratch, data_dir.join(format!("scratch/{id}-1")));
    assert_eq!(run.job.images, folder.0.join(format!("images/{id}")));
    let env: Vec<_> = run
        .job
        .env
        .iter()
        .map(|(name, value)| (name.to_str(), value.to_str()))
        .collect();
    assert_eq!(env, [(Some("PATH"), Some("/bin")), (Some("TOKEN"), Some("t"))]);
    run.end(success());
    // C-052: once the command has exited, the build is not reported as building.
    let done = fixture.get(id).await;
    assert_eq!(done.status, BuildStatus::Success);
    assert!(done.image.is_some() && done.completed_ms.is_some());
    fixture.service.idle().await;
}

/// C-049, C-050, C-091: failures and timeouts have a reason.
#[tokio::test(start_paused = true)]
async fn failed_builds_have_an_error_message() {
    let folder = TempFolder::new();
    let mut fixture = start(&folder).await;
    for (outcome, status) in [
        (RunOutcome::Failed("build: exit status 1".into()), BuildStatus::Failed),
        (
            RunOutcome::TimedOut("build: 1200 s are over".into()),
            BuildStatus::Timeout,
        ),
    ] {
        let id = fixture.new_build("o", 1).await;
        fixture.run().await.end(outcome);
        let build = fixture.get(id).await;
        assert_eq!(build.status, status);
        assert!(build.error.expect("a reason").starts_with("build: "));
    }
    let id = fixture.new_build("gone", 1).await;
    fixture.service.idle().await;
    let build = fixture.service.get(&name("gone"), id).await.expect("it is recorded");
    assert_eq!(build.status, BuildStatus::Failed);
    assert_eq!(
        build.error.as_deref(),
        Some("unpack: the archive is not there any more")
    );
}

/// Uploads that are unknown, foreign, for another region, or without an archive are rejected.
#[tokio::test(start_paused = true)]
async fn a_build_needs_an_upload_of_its_organization_and_region() {
    let folder = TempFolder::new();
    let fixture = start(&folder).await;
    let upload = fixture.upload("o", 1);
    let refused = |made: Result<CreateResult, ApiError>| {
        let fault = made.expect_err("a refusal");
        assert_eq!((fault.status, fault.code), (400, "GENERIC_BAD_REQUEST"));
        fault.text
    };
    assert!(refused(fixture.create("o", Uuid::v4([9; 16])).await).contains("uploadId"));
    assert!(refused(fixture.create("p", upload).await).contains("uploadId"));
    let wanted = BuildRequest {
        upload,
        region: "us-east".into(),
        file: "f".into(),
    };
    let elsewhere = fixture.service.create(name("o"), wanted, String::new()).await;
    assert!(refused(elsewhere).contains("us-west"));
    let id = Uuid::v4([8; 16]);
    let empty = UploadRecord {
        id,
        info: None,
        ..fixture.records.upload(upload).expect("read").expect("it was granted")
    };
    fixture.records.insert_upload(&empty).expect("there is space");
    assert!(refused(fixture.create("o", id).await).contains("uploaded"));
    // A rejected build does not seal the upload.
    assert!(
        !fixture
            .records
            .upload(upload)
            .expect("read")
            .expect("it is there")
            .sealed
    );
    assert_eq!(
        fixture.service.get(&name("o"), id).await.map_err(|fault| fault.status),
        Err(404)
    );
}

/// Two archives with the same MD5 get separate builds and images.
#[tokio::test(start_paused = true)]
async fn archives_with_the_same_short_hash_are_built_separately() {
    let folder = TempFolder::new();
    let mut fixture = start(&folder).await;
    let mut made = Vec::new();
    for (n, uri) in [(1, "registry/forged:1"), (2, "registry/honest:1")] {
        let upload = fixture.upload_with("o", [7; 16], [n; 32]);
        let created = fixture.create("o", upload).await.expect("there is room");
        assert!(!created.cached, "{uri}");
        fixture.run().await.end(RunOutcome::Success(Image {
            location: ImageLocation::Uri(uri.into()),
            size: 9,
        }));
        made.push(fixture.wait_for(created.build.id, BuildStatus::Success).await);
    }
    assert_eq!(made[0].hash, made[1].hash);
    for (n, build) in [1, 2].into_iter().zip(&made) {
        let again = fixture.upload_with("o", [7; 16], [n; 32]);
        let hit = fixture.create("o", again).await.expect("a hit");
        assert_eq!((hit.cached, &hit.build.image), (true, &build.image));
    }
}

/// I-16: only a success with the same archive and build file is a cache hit.
#[tokio::test(start_paused = true)]
async fn a_success_is_a_cache_hit() {
    let folder = TempFolder::new();
    let mut fixture = start(&folder).await;
    let failed = fixture.new_build("o", 1).await;
    fixture.run().await.end(RunOutcome::Failed("build: no".into()));
    fixture.wait_for(failed, BuildStatus::Failed).await;
    let first = fixture.new_build("o", 1).await;
    let run = fixture.run().await;
    let second = fixture.new_build("o", 1).await;
    run.end(success());
    fixture.wait_for(first, BuildStatus::Success).await;
    let upload = fixture.upload("o", 1);
    let hit = fixture.create("o", upload).await.expect("a hit");
    assert_eq!((hit.build.id, hit.cached), (first, true));
    assert!(
        !fixture
            .records
            .upload(upload)
            .expect("read")
            .expect("it is there")
            .sealed
    );
    let wanted = BuildRequest {
        upload,
        region: "us-west".into(),
        file: "other".into(),
    };
    let other = fixture
        .service
        .create(name("o"), wanted, String::new())
        .await
        .expect("a build");
    assert!(!other.cached);
    fixture.new_build("p", 1).await;
    assert_ne!(first, second);
}

/// I-20, `--max-pending`: two run, three of an organization wait, the next is rejected; cache hits
/// and other organizations are not.
#[tokio::test(start_paused = true)]
async fn running_and_pending_builds_are_limited() {
    let folder = TempFolder::new();
    let mut fixture = start(&folder).await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(fixture.new_build("o", n).await);
        if n < 2 {
            // Runs start in tasks of their own, which takes a moment.
            let run = fixture.run().await;
            assert_eq!(run.job.build.id, ids[usize::from(n)]);
            fixture.keep(run);
        }
    }
    let full = fixture
        .create("o", fixture.upload("o", 9))
        .await
        .expect_err("three wait");
    assert_eq!((full.status, full.code), (429, "TOO_MANY_REQUESTS"));
    fixture.new_build("p", 9).await;
    assert!(fixture.runs.try_recv().is_err(), "two run");
}

impl Fixture {
    /// Keeps a run going until the end of the test.
    fn keep(&self, run: Run) {
        std::mem::forget(run);
    }
}

/// I-20: ten builds run in order, two at a time.
#[tokio::test(start_paused = true)]
async fn ten_builds_run_two_at_a_time() {
    let folder = TempFolder::new();
    let mut fixture = start(&folder).await;
    let (mut ids, mut began, mut running) = (Vec::new(), Vec::new(), Vec::new());
    let mut n = 0;
    while began.len() < 10 {
        while n < 10 && !fixture.create_is_rejected("o", n, &mut ids).await {
            n += 1;
        }
        // Only with both slots taken does the end of one run begin the next build.
        while running.len() < 2 && began.len() < 10 {
            let run = fixture.run().await;
            began.push(run.job.build.id);
            running.push(run);
        }
        assert!(fixture.runs.try_recv().is_err(), "three run");
        running.remove(0).end(success());
    }
    for run in running {
        run.end(success());
    }
    fixture.service.idle().await;
    // Two concurrent runs may be reported in either order.
    for (at, pair) in ids.chunks(2).enumerate() {
        for id in pair {
            let place = began.iter().position(|began| began == id).expect("each ran");
            assert!(place.abs_diff(at * 2) <= 2, "{place} for {at}");
        }
    }
}

impl Fixture {
    /// Creates a build; returns whether the queue was full.
    async fn create_is_rejected(&self, of: &str, n: u8, ids: &mut Vec<Uuid>) -> bool {
        match self.create(of, self.upload(of, n)).await {
            Ok(created) => ids.push(created.build.id),
            Err(fault) if fault.status == 429 => return true,
            Err(fault) => panic!("{fault:?}"),
        }
        false
    }
}

/// C-052: a read after the command's exit waits up to two seconds for the record.
#[tokio::test(start_paused = true)]
async fn reads_wait_for_the_record() {
    let folder = TempFolder::new();
    let mut fixture = start(&folder).await;
    let id = fixture.new_build("o", 1).await;
    let Run { job, end } = fixture.run().await;
    let began = tasks::now();
    assert_eq!(fixture.get(id).await.status, BuildStatus::Building);
    assert_eq!(tasks::now(), began, "a command that runs is not waited for");
    (job.on_exit)();
    assert_eq!(fixture.get(id).await.status, BuildStatus::Building);
    assert_eq!(tasks::now() - began, RECONCILE_WITHIN);
    let asks = tokio::spawn({
        let service = fixture.service.clone();
        async move { service.get(&name("o"), id).await }
    });
    tokio::task::yield_now().await;
    end.send(success()).expect("the service waits for it");
    let message = asks.await.expect("no panic").expect("it is recorded");
    assert_eq!(message.status, BuildStatus::Success);
}

/// The result is available while the scratch folder is still being removed; the slot is free
/// afterwards.
#[tokio::test(start_paused = true)]
async fn removing_scratch_does_not_delay_the_result() {
    let folder = TempFolder::new();
    let mut fixture = start(&folder).await;
    let id = fixture.new_build("o", 1).await;
    let mut run = fixture.run().await;
    run.know(success());
    let began = tasks::now();
    let build = fixture.get(id).await;
    assert_eq!(build.status, BuildStatus::Success);
    assert_eq!(fixture.get(id).await, build);
    assert_eq!(tasks::now(), began, "no read waits for the folder");
    assert_eq!(
        fixture.records.build(&name("o"), id).expect("read"),
        Some(build.clone())
    );
    assert_eq!(lock(&fixture.service.queue).running(), 1);
    run.end
        .send(RunOutcome::Failed("it does not count".into()))
        .expect("the service waits for it");
    fixture.service.idle().await;
    assert_eq!(fixture.get(id).await, build);
}

/// I-21: a result that cannot be recorded is reported all the same, and recorded once there is
/// space.
#[tokio::test(start_paused = true)]
async fn a_result_is_recorded_once_there_is_space() {
    let folder = TempFolder::new();
    let mut fixture = start(&folder).await;
    let id = fixture.new_build("o", 1).await;
    let run = fixture.run().await;
    fixture
        .records
        .ask("CREATE TRIGGER full BEFORE UPDATE ON build BEGIN SELECT RAISE(ABORT, 'no space'); END");
    run.end(success());
    assert_eq!(fixture.get(id).await.status, BuildStatus::Success);
    let recorded = || {
        fixture
            .records
            .build(&name("o"), id)
            .expect("read")
            .expect("it is there")
            .status
    };
    assert_eq!(recorded(), BuildStatus::Building);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(recorded(), BuildStatus::Building);
    fixture.records.ask("DROP TRIGGER full");
    fixture.service.idle().await;
    assert_eq!(recorded(), BuildStatus::Success);
}

/// I-21: a build that cannot be recorded is rejected and does not run.
#[tokio::test(start_paused = true)]
async fn a_build_that_cannot_be_recorded_does_not_run() {
    let folder = TempFolder::new();
    let mut fixture = start(&folder).await;
    fixture
        .records
        .ask("CREATE TRIGGER full BEFORE INSERT ON build BEGIN SELECT RAISE(ABORT, 'no space'); END");
    for n in 0..5 {
        let fault = fixture.create("o", fixture.upload("o", n)).await.expect_err("no space");
        assert_eq!((fault.status, fault.code), (500, "INTERNAL_SERVER_ERROR"));
    }
    fixture.records.ask("DROP TRIGGER full");
    fixture
        .records
        .ask("CREATE TRIGGER full BEFORE UPDATE ON build BEGIN SELECT RAISE(ABORT, 'no space'); END");
    let id = fixture.new_build("o", 1).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(fixture.get(id).await.status, BuildStatus::Pending);
    assert!(fixture.runs.try_recv().is_err());
    fixture.records.ask("DROP TRIGGER full");
    fixture.run().await.end(success());
    assert_eq!(fixture.get(id).await.status, BuildStatus::Success);
}

/// I-19: interrupted builds run again up to three times; pending ones wait again.
#[tokio::test(start_paused = true)]
async fn builds_resume_after_a_stop() {
    let folder = TempFolder::new();
    let mut before = start(&folder).await;
    let ids = [before.new_build("o", 1).await, before.new_build("o", 2).await];
    let runs = [before.run().await, before.run().await];
    let waiting = before.new_build("o", 3).await;
    let first = before.get(ids[0]).await;
    before.kill().await;
    drop(runs);

    let mut after = start(&folder).await;
    for _ in 0..2 {
        let run = after.run().await;
        let build = run.job.build.clone();
        assert!(ids.contains(&build.id));
        assert_eq!((build.status, build.attempt), (BuildStatus::Building, 2));
        assert!(run.job.scratch.ends_with(format!("{}-2", build.id)));
        if build.id == first.id {
            assert_eq!(build.started_ms, first.started_ms);
        }
        after.keep(run);
    }
    assert_eq!(after.get(waiting).await.status, BuildStatus::Pending);
    let log = fs::read_to_string(after.service.log_path(ids[0])).expect("its log");
    assert_eq!(log, "[service] interrupted, attempt 2 of 3\n");
    after.kill().await;

    let mut third = start(&folder).await;
    let runs = [third.run().await, third.run().await];
    assert!(runs.iter().all(|run| run.job.build.attempt == 3));
    third.kill().await;
    drop(runs);

    let mut last = start(&folder).await;
    for id in ids {
        let build = last.wait_for(id, BuildStatus::Failed).await;
        assert!(build.error.expect("a reason").starts_with("build: interrupted 3 times"));
    }
    let run = last.run().await;
    assert_eq!((run.job.build.id, run.job.build.attempt), (waiting, 1));
    run.end(success());
    last.wait_for(waiting, BuildStatus::Success).await;
}

/// A panic in a run fails its build and frees its slot.
#[tokio::test(start_paused = true)]
async fn a_panic_fails_one_build() {
    let folder = TempFolder::new();
    let mut fixture = start(&folder).await;
    for n in 0..4 {
        let id = fixture.new_build("o", n).await;
        // Dropping the test's end makes the run panic.
        let run = fixture.run().await;
        let scratch = run.job.scratch.clone();
        fs::create_dir_all(scratch.join("context")).expect("the folder is writable");
        drop(run);
        let build = fixture.wait_for(id, BuildStatus::Failed).await;
        assert!(build.error.expect("a reason").starts_with("build: the service failed"));
        assert!(!scratch.exists());
    }
    let id = fixture.new_build("o", 9).await;
    fixture.run().await.end(success());
    fixture.wait_for(id, BuildStatus::Success).await;
}

/// I-21: a build runs without a log if that cannot be opened.
#[tokio::test(start_paused = true)]
async fn a_build_needs_no_log() {
    let folder = TempFolder::new();
    fs::write(folder.0.join("logs"), "no folder").expect("the folder is writable");
    let mut fixture = start(&folder).await;
    let id = fixture.new_build("o", 1).await;
    fixture.run().await.end(success());
    fixture.wait_for(id, BuildStatus::Success).await;
}

/// A disconnecting client leaves no build that is recorded but never runs.
#[tokio::test(start_paused = true)]
async fn a_disconnect_does_not_abort_the_creation() {
    let folder = TempFolder::new();
    let mut fixture = start(&folder).await;
    let upload = fixture.upload("o", 1);
    let turn = fixture.service.upload_locks.lock(upload).await;
    let made = tokio::time::timeout(Duration::from_secs(1), fixture.create("o", upload)).await;
    assert!(made.is_err(), "another task holds the lock");
    drop(turn);
    let run = fixture.run().await;
    assert_eq!(run.job.build.upload, upload);
    run.end(success());
}

/// A service without a command leaves builds pending; with one they run.
#[tokio::test(start_paused = true)]
async fn without_a_command_builds_wait() {
    let folder = TempFolder::new();
    let idle = start_with(&folder, None).await;
    let id = idle.new_build("o", 1).await;
    idle.service.idle().await;
    assert_eq!(idle.get(id).await.status, BuildStatus::Pending);
    idle.kill().await;
    let mut fixture = start(&folder).await;
    fixture.run().await.end(success());
    fixture.wait_for(id, BuildStatus::Success).await;
}
