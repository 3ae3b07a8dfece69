//! Tests of the service, with a command that ends when and how the test says, and real records.

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
use edge_runner_proto::config::{Host, Tls};

/// A folder that is deleted with the test.
struct ArchiveDir(PathBuf);

impl ArchiveDir {
    fn new() -> ArchiveDir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("house-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("the system's folder for such things is writable");
        ArchiveDir(path)
    }
}

impl Drop for ArchiveDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// ArchiveStore of which the records say all, but for those of the organization `gone`.
struct Shelf;

impl ArchiveStore for Shelf {
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

/// A run that waits for the test.
struct Run {
    job: BuildJob,
    end: oneshot::Sender<RunOutcome>,
}

impl Run {
    /// The command ends so, and what it left is still being put away.
    fn know(&mut self, ran: RunOutcome) {
        std::mem::replace(&mut self.job.on_exit, Box::new(|| ()))();
        std::mem::replace(&mut self.job.on_outcome, Box::new(drop))(ran);
    }

    /// The command ends so.
    fn end(self, ran: RunOutcome) {
        (self.job.on_exit)();
        self.end.send(ran).expect("the house waits for it");
    }
}

struct Stand {
    service: Arc<BuildService>,
    records: Arc<SqliteRecords>,
    runs: mpsc::UnboundedReceiver<Run>,
    stop: ShutdownTrigger,
}

/// A service on what is in the folder: two commands at once, three builds waiting, three attempts.
async fn stand(folder: &ArchiveDir) -> Stand {
    stand_with(folder, Some(vec!["build".into()])).await
}

async fn stand_with(folder: &ArchiveDir, command: Option<Vec<OsString>>) -> Stand {
    let config = CloudConfig {
        data_dir: folder.0.clone(),
        host: Host::Localhost,
        port: 0,
        tls: Tls::Off,
        host_names: Vec::new(),
        public_url: None,
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
        Arc::new(Shelf),
        Arc::default(),
        stopped,
        runner,
    );
    service.recover().await.expect("the records are there");
    Stand {
        service,
        records,
        runs,
        stop,
    }
}

impl Stand {
    /// Ends the service as a kill would: whatever runs is forgotten, the records stay as they are.
    async fn kill(self) {
        self.stop.set();
        self.service.idle().await;
    }

    /// Retention an upload whose archive has a hash with this number in it.
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

    /// Makes a build that is no hit.
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

    /// Waits until a build is in this state.
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

/// C-007, C-046 to C-048: a build waits, runs, and succeeds; its run is given what it needs.
#[tokio::test(start_paused = true)]
async fn a_build_runs_and_succeeds() {
    let folder = ArchiveDir::new();
    let mut stand = stand(&folder).await;
    let id = stand.new_build("o", 1).await;
    let run = stand.run().await;
    let building = stand.get(id).await;
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
    // C-052: from the end of the command on, nobody is told that it builds.
    let done = stand.get(id).await;
    assert_eq!(done.status, BuildStatus::Success);
    assert!(done.image.is_some() && done.completed_ms.is_some());
    stand.service.idle().await;
}

/// C-049, C-050, C-091: other ends, each with its reason.
#[tokio::test(start_paused = true)]
async fn a_build_that_does_not_succeed_says_why() {
    let folder = ArchiveDir::new();
    let mut stand = stand(&folder).await;
    for (ran, status) in [
        (RunOutcome::Failed("build: exit status 1".into()), BuildStatus::Failed),
        (
            RunOutcome::TimedOut("build: 1200 s are over".into()),
            BuildStatus::Timeout,
        ),
    ] {
        let id = stand.new_build("o", 1).await;
        stand.run().await.end(ran);
        let build = stand.get(id).await;
        assert_eq!(build.status, status);
        assert!(build.error.expect("a reason").starts_with("build: "));
    }
    let id = stand.new_build("gone", 1).await;
    stand.service.idle().await;
    let build = stand.service.get(&name("gone"), id).await.expect("it is recorded");
    assert_eq!(build.status, BuildStatus::Failed);
    assert_eq!(
        build.error.as_deref(),
        Some("unpack: the archive is not there any more")
    );
}

/// `cloud.md` §2.3: uploads that are none, or another's, or for another region, or never came.
#[tokio::test(start_paused = true)]
async fn a_build_needs_an_upload_of_its_organization_and_region() {
    let folder = ArchiveDir::new();
    let stand = stand(&folder).await;
    let upload = stand.upload("o", 1);
    let refused = |made: Result<CreateResult, ApiError>| {
        let fault = made.expect_err("a refusal");
        assert_eq!((fault.status, fault.code), (400, "GENERIC_BAD_REQUEST"));
        fault.text
    };
    assert!(refused(stand.create("o", Uuid::v4([9; 16])).await).contains("uploadId"));
    assert!(refused(stand.create("p", upload).await).contains("uploadId"));
    let wanted = BuildRequest {
        upload,
        region: "us-east".into(),
        file: "f".into(),
    };
    let elsewhere = stand.service.create(name("o"), wanted, String::new()).await;
    assert!(refused(elsewhere).contains("us-west"));
    let id = Uuid::v4([8; 16]);
    let empty = UploadRecord {
        id,
        info: None,
        ..stand.records.upload(upload).expect("read").expect("it was granted")
    };
    stand.records.insert_upload(&empty).expect("there is space");
    assert!(refused(stand.create("o", id).await).contains("uploaded"));
    // And none of them sealed anything.
    assert!(!stand.records.upload(upload).expect("read").expect("it is there").sealed);
    assert_eq!(
        stand.service.get(&name("o"), id).await.map_err(|fault| fault.status),
        Err(404)
    );
}

/// Finding 11: two archives of one MD5 are two builds with one short hash, each with an image of
/// its own.
#[tokio::test(start_paused = true)]
async fn archives_of_one_short_hash_are_built_apart() {
    let folder = ArchiveDir::new();
    let mut stand = stand(&folder).await;
    let mut made = Vec::new();
    for (n, uri) in [(1, "registry/forged:1"), (2, "registry/honest:1")] {
        let upload = stand.upload_with("o", [7; 16], [n; 32]);
        let created = stand.create("o", upload).await.expect("there is room");
        assert!(!created.cached, "{uri}");
        stand.run().await.end(RunOutcome::Success(Image {
            location: ImageLocation::Uri(uri.into()),
            size: 9,
        }));
        made.push(stand.wait_for(created.build.id, BuildStatus::Success).await);
    }
    assert_eq!(made[0].hash, made[1].hash);
    for (n, build) in [1, 2].into_iter().zip(&made) {
        let again = stand.upload_with("o", [7; 16], [n; 32]);
        let hit = stand.create("o", again).await.expect("a hit");
        assert_eq!((hit.cached, &hit.build.image), (true, &build.image));
    }
}

/// I-16: a success is a hit for the same archive and build file; a build that runs or failed is none, nor one of another.
#[tokio::test(start_paused = true)]
async fn a_success_is_found_again() {
    let folder = ArchiveDir::new();
    let mut stand = stand(&folder).await;
    let failed = stand.new_build("o", 1).await;
    stand.run().await.end(RunOutcome::Failed("build: no".into()));
    stand.wait_for(failed, BuildStatus::Failed).await;
    let first = stand.new_build("o", 1).await;
    let run = stand.run().await;
    let second = stand.new_build("o", 1).await;
    run.end(success());
    stand.wait_for(first, BuildStatus::Success).await;
    let upload = stand.upload("o", 1);
    let hit = stand.create("o", upload).await.expect("a hit");
    assert_eq!((hit.build.id, hit.cached), (first, true));
    assert!(!stand.records.upload(upload).expect("read").expect("it is there").sealed);
    let wanted = BuildRequest {
        upload,
        region: "us-west".into(),
        file: "other".into(),
    };
    let other = stand
        .service
        .create(name("o"), wanted, String::new())
        .await
        .expect("a build");
    assert!(!other.cached);
    stand.new_build("p", 1).await;
    assert_ne!(first, second);
}

/// I-20, `--max-pending`: two run, three of an organization wait, the next is refused; hits are not, nor are others.
#[tokio::test(start_paused = true)]
async fn so_many_run_and_so_many_wait() {
    let folder = ArchiveDir::new();
    let mut stand = stand(&folder).await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(stand.new_build("o", n).await);
        if n < 2 {
            // They begin in tasks of their own; a place is free until then.
            let run = stand.run().await;
            assert_eq!(run.job.build.id, ids[usize::from(n)]);
            stand.keep(run);
        }
    }
    let full = stand.create("o", stand.upload("o", 9)).await.expect_err("three wait");
    assert_eq!((full.status, full.code), (429, "TOO_MANY_REQUESTS"));
    stand.new_build("p", 9).await;
    assert!(stand.runs.try_recv().is_err(), "two run");
}

impl Stand {
    /// Lets a run go on to the end of the test.
    fn keep(&self, run: Run) {
        std::mem::forget(run);
    }
}

/// I-20: ten builds, and never more than two at once; the oldest first.
#[tokio::test(start_paused = true)]
async fn ten_builds_run_two_at_a_time() {
    let folder = ArchiveDir::new();
    let mut stand = stand(&folder).await;
    let mut ids = Vec::new();
    let mut began = Vec::new();
    let mut running = Vec::new();
    for n in 0..10 {
        while stand.create_is_crowded("o", n, &mut ids).await {
            // An end gives a place on.
            if running.is_empty() {
                let run = stand.run().await;
                began.push(run.job.build.id);
                running.push(run);
            }
            running.remove(0).end(success());
            let run = stand.run().await;
            began.push(run.job.build.id);
            running.push(run);
            assert!(running.len() <= 2);
        }
    }
    while began.len() < 10 {
        while let Ok(run) = stand.runs.try_recv() {
            began.push(run.job.build.id);
            running.push(run);
        }
        assert!(running.len() <= 2, "{} run", running.len());
        match running.is_empty() {
            true => tokio::task::yield_now().await,
            false => running.remove(0).end(success()),
        }
    }
    for run in running {
        run.end(success());
    }
    stand.service.idle().await;
    // Two that run at once may be told in either order.
    for (at, pair) in ids.chunks(2).enumerate() {
        for id in pair {
            let place = began.iter().position(|began| began == id).expect("each ran");
            assert!(place.abs_diff(at * 2) <= 2, "{place} for {at}");
        }
    }
}

impl Stand {
    /// Makes a build; tells whether there was no room.
    async fn create_is_crowded(&self, of: &str, n: u8, ids: &mut Vec<Uuid>) -> bool {
        match self.create(of, self.upload(of, n)).await {
            Ok(created) => ids.push(created.build.id),
            Err(fault) if fault.status == 429 => return true,
            Err(fault) => panic!("{fault:?}"),
        }
        false
    }
}

/// C-052: whoever asks between the end of the command and the record waits; after two seconds that is over.
#[tokio::test(start_paused = true)]
async fn whoever_asks_waits_for_the_record() {
    let folder = ArchiveDir::new();
    let mut stand = stand(&folder).await;
    let id = stand.new_build("o", 1).await;
    let Run { job, end } = stand.run().await;
    let began = tasks::now();
    assert_eq!(stand.get(id).await.status, BuildStatus::Building);
    assert_eq!(tasks::now(), began, "a command that runs is not waited for");
    (job.on_exit)();
    assert_eq!(stand.get(id).await.status, BuildStatus::Building);
    assert_eq!(tasks::now() - began, RECONCILE_WITHIN);
    let asks = tokio::spawn({
        let service = stand.service.clone();
        async move { service.get(&name("o"), id).await }
    });
    tokio::task::yield_now().await;
    end.send(success()).expect("the house waits for it");
    let told = asks.await.expect("no panic").expect("it is recorded");
    assert_eq!(told.status, BuildStatus::Success);
}

/// The result is told as soon as it is recorded, while the scratch folder is removed, however often one asks; the place is given on
/// after it.
#[tokio::test(start_paused = true)]
async fn a_large_scratch_folder_holds_no_result_up() {
    let folder = ArchiveDir::new();
    let mut stand = stand(&folder).await;
    let id = stand.new_build("o", 1).await;
    let mut run = stand.run().await;
    run.know(success());
    let began = tasks::now();
    let build = stand.get(id).await;
    assert_eq!(build.status, BuildStatus::Success);
    assert_eq!(stand.get(id).await, build);
    assert_eq!(tasks::now(), began, "nobody waits for the folder");
    assert_eq!(stand.records.build(&name("o"), id).expect("read"), Some(build.clone()));
    assert_eq!(lock(&stand.service.queue).running(), 1);
    run.end
        .send(RunOutcome::Failed("it does not count".into()))
        .expect("the house waits for it");
    stand.service.idle().await;
    assert_eq!(stand.get(id).await, build);
}

/// I-21: where there is no space for the record of an end, the end is told all the same, and recorded once there is.
#[tokio::test(start_paused = true)]
async fn an_end_is_recorded_as_soon_as_there_is_space() {
    let folder = ArchiveDir::new();
    let mut stand = stand(&folder).await;
    let id = stand.new_build("o", 1).await;
    let run = stand.run().await;
    stand
        .records
        .ask("CREATE TRIGGER full BEFORE UPDATE ON build BEGIN SELECT RAISE(ABORT, 'no space'); END");
    run.end(success());
    assert_eq!(stand.get(id).await.status, BuildStatus::Success);
    let recorded = || {
        stand
            .records
            .build(&name("o"), id)
            .expect("read")
            .expect("it is there")
            .status
    };
    assert_eq!(recorded(), BuildStatus::Building);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(recorded(), BuildStatus::Building);
    stand.records.ask("DROP TRIGGER full");
    stand.service.idle().await;
    assert_eq!(recorded(), BuildStatus::Success);
}

/// I-21: a build that cannot be recorded is refused, takes no place, and runs nothing; nor does one begin that cannot be recorded.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_recorded_does_not_run() {
    let folder = ArchiveDir::new();
    let mut stand = stand(&folder).await;
    stand
        .records
        .ask("CREATE TRIGGER full BEFORE INSERT ON build BEGIN SELECT RAISE(ABORT, 'no space'); END");
    for n in 0..5 {
        let fault = stand.create("o", stand.upload("o", n)).await.expect_err("no space");
        assert_eq!((fault.status, fault.code), (500, "INTERNAL_SERVER_ERROR"));
    }
    stand.records.ask("DROP TRIGGER full");
    stand
        .records
        .ask("CREATE TRIGGER full BEFORE UPDATE ON build BEGIN SELECT RAISE(ABORT, 'no space'); END");
    let id = stand.new_build("o", 1).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(stand.get(id).await.status, BuildStatus::Pending);
    assert!(stand.runs.try_recv().is_err());
    stand.records.ask("DROP TRIGGER full");
    stand.run().await.end(success());
    assert_eq!(stand.get(id).await.status, BuildStatus::Success);
}

/// I-19: what a stop cut off runs again from its archive, up to three times; what waited waits again.
#[tokio::test(start_paused = true)]
async fn builds_go_on_after_a_stop() {
    let folder = ArchiveDir::new();
    let mut before = stand(&folder).await;
    let ids = [before.new_build("o", 1).await, before.new_build("o", 2).await];
    let runs = [before.run().await, before.run().await];
    let waiting = before.new_build("o", 3).await;
    let first = before.get(ids[0]).await;
    before.kill().await;
    drop(runs);

    let mut after = stand(&folder).await;
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

    let mut third = stand(&folder).await;
    let runs = [third.run().await, third.run().await];
    assert!(runs.iter().all(|run| run.job.build.attempt == 3));
    third.kill().await;
    drop(runs);

    let mut last = stand(&folder).await;
    for id in ids {
        let build = last.wait_for(id, BuildStatus::Failed).await;
        assert!(build.error.expect("a reason").starts_with("build: interrupted 3 times"));
    }
    let run = last.run().await;
    assert_eq!((run.job.build.id, run.job.build.attempt), (waiting, 1));
    run.end(success());
    last.wait_for(waiting, BuildStatus::Success).await;
}

/// A panic in a run fails its build, its scratch folder goes, and the place is free again.
#[tokio::test(start_paused = true)]
async fn a_panic_fails_one_build() {
    let folder = ArchiveDir::new();
    let mut stand = stand(&folder).await;
    for n in 0..4 {
        let id = stand.new_build("o", n).await;
        // The test's end of the run goes away, which the run does not expect.
        let run = stand.run().await;
        let scratch = run.job.scratch.clone();
        fs::create_dir_all(scratch.join("context")).expect("the folder is writable");
        drop(run);
        let build = stand.wait_for(id, BuildStatus::Failed).await;
        assert!(build.error.expect("a reason").starts_with("build: the service failed"));
        assert!(!scratch.exists());
    }
    let id = stand.new_build("o", 9).await;
    stand.run().await.end(success());
    stand.wait_for(id, BuildStatus::Success).await;
}

/// I-21: a build does not fail for its log, one that cannot even be opened.
#[tokio::test(start_paused = true)]
async fn a_build_needs_no_log() {
    let folder = ArchiveDir::new();
    fs::write(folder.0.join("logs"), "no folder").expect("the folder is writable");
    let mut stand = stand(&folder).await;
    let id = stand.new_build("o", 1).await;
    stand.run().await.end(success());
    stand.wait_for(id, BuildStatus::Success).await;
}

/// A client that goes away leaves no build behind that is recorded and never runs.
#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_stops_nothing() {
    let folder = ArchiveDir::new();
    let mut stand = stand(&folder).await;
    let upload = stand.upload("o", 1);
    let turn = stand.service.upload_locks.lock(upload).await;
    let made = tokio::time::timeout(Duration::from_secs(1), stand.create("o", upload)).await;
    assert!(made.is_err(), "somebody else has its turn");
    drop(turn);
    let run = stand.run().await;
    assert_eq!(run.job.build.upload, upload);
    run.end(success());
}

/// A service that is started without a command leaves what waits alone; with one it runs.
#[tokio::test(start_paused = true)]
async fn without_a_command_builds_wait() {
    let folder = ArchiveDir::new();
    let idle = stand_with(&folder, None).await;
    let id = idle.new_build("o", 1).await;
    idle.service.idle().await;
    assert_eq!(idle.get(id).await.status, BuildStatus::Pending);
    idle.kill().await;
    let mut stand = stand(&folder).await;
    stand.run().await.end(success());
    stand.wait_for(id, BuildStatus::Success).await;
}
