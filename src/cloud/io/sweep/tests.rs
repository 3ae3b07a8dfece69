//! Tests of the sweep, on a real database and files, at chosen times.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::*;
use crate::io::archives::ArchiveDir;
use crate::io::records::SqliteRecords;
use crate::proto::build::{Build, BuildChange, BuildStatus, UploadRecord};
use edge_runner_http::common::random;

/// A sweeper on a temporary folder. Archives are kept for 100 s, builds for 1000 s.
struct Fixture {
    sweep: Sweeper,
    folder: PathBuf,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// When grants expire.
const T0: u64 = 1_795_262_400_000;

fn fixture() -> Fixture {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("sweep-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).expect("the system's folder for such things is writable");
    let sweep = Sweeper {
        records: Arc::new(SqliteRecords::open(&folder).unwrap_or_else(|error| panic!("{error}"))),
        archives: Arc::new(ArchiveDir::open(&folder).expect("the folder is writable")),
        upload_locks: Arc::default(),
        data_dir: folder.clone(),
        retention: Retention {
            archives: Some(Duration::from_secs(100)),
            builds: Some(Duration::from_secs(1000)),
        },
        metrics: Arc::default(),
    };
    Fixture { sweep, folder }
}

impl Fixture {
    fn archive(&self, id: Uuid) -> PathBuf {
        self.folder.join(format!("archives/o/{id}.tar.gz"))
    }

    /// Inserts an upload, with its archive if `has_archive`.
    fn upload(&self, has_archive: bool) -> UploadRecord {
        let mut upload = UploadRecord {
            id: Uuid::v4(random()),
            org: Slug::parse("o").expect("a name"),
            region: Slug::parse("r").expect("a name"),
            expires_ms: T0,
            sealed: false,
            key: None,
            info: None,
        };
        self.sweep.records.insert_upload(&upload).expect("there is space");
        if has_archive {
            fs::create_dir_all(self.folder.join("archives/o")).expect("the folder is writable");
            fs::write(self.archive(upload.id), "archive").expect("the folder is writable");
            let info = self
                .sweep
                .archives
                .head(&upload)
                .expect("it is there")
                .expect("it is there");
            self.sweep
                .records
                .set_archive(upload.id, &info)
                .expect("there is space");
            upload.info = Some(info);
        }
        upload
    }

    /// Inserts a build of it with a log and an image.
    fn build(&self, of: &UploadRecord) -> Build {
        let info = of.info.expect("it came");
        let build = Build::new(
            Uuid::v4(random()),
            of,
            &info,
            "f".into(),
            "http://h".into(),
            T0 - 60_000,
        );
        self.sweep.records.insert_build(&build).expect("there is space");
        let (log, images) = (self.sweep.log(build.id), self.sweep.images(build.id));
        fs::create_dir_all(self.folder.join("logs")).expect("the folder is writable");
        fs::write(log, "log").expect("the folder is writable");
        fs::create_dir_all(&images).expect("the folder is writable");
        fs::write(images.join("i"), "image").expect("the folder is writable");
        build
    }

    fn end(&self, build: &Build, at_ms: u64) {
        let ended = build
            .change(BuildChange::Fail("build: no".into()), at_ms)
            .expect("it waits");
        assert!(
            self.sweep
                .records
                .update_build(BuildStatus::Pending, &ended)
                .expect("there is space")
        );
    }

    fn sweep(&self, now_ms: u64) -> (usize, usize, usize) {
        let retention = self.sweep.retention;
        let due = Due { retention, now_ms };
        let swept = self.sweep.once(false, due).expect("the records are there");
        (swept.archives, swept.builds, swept.orphans)
    }

    fn knows(&self, upload: &UploadRecord) -> bool {
        self.sweep.records.upload(upload.id).expect("read").is_some()
    }
}

/// I-23: the archive is deleted first, then the build with its log and image; neither too early.
#[test]
fn archives_and_builds_are_deleted_when_due() {
    let fixture = fixture();
    let upload = fixture.upload(true);
    let build = fixture.build(&upload);
    // A pending build protects its archive at any time.
    assert_eq!(fixture.sweep(u64::MAX >> 1), (0, 0, 0));
    fixture.end(&build, T0 + 5_000);
    assert_eq!(fixture.sweep(T0 + 104_999), (0, 0, 0));
    assert!(fixture.archive(upload.id).exists());
    assert_eq!(fixture.sweep(T0 + 105_000), (1, 0, 0));
    assert!(!fixture.archive(upload.id).exists() && !fixture.knows(&upload));
    assert_eq!(fixture.sweep(T0 + 1_004_999), (0, 0, 0));
    assert!(fixture.sweep.log(build.id).exists() && fixture.sweep.images(build.id).exists());
    assert_eq!(fixture.sweep(T0 + 1_005_000), (0, 1, 0));
    assert!(!fixture.sweep.log(build.id).exists() && !fixture.sweep.images(build.id).exists());
    assert!(!fixture.sweep.records.has_build(build.id).expect("read"));
}

/// An unused grant leaves no record; a valid one keeps its seal after its archive is deleted.
#[test]
fn unused_uploads_are_deleted_after_their_grant() {
    let fixture = fixture();
    let (unused, sealed) = (fixture.upload(false), fixture.upload(true));
    let build = fixture.build(&sealed);
    fixture.end(&build, T0 - 50_000);
    let brief = Retention {
        archives: Some(Duration::from_secs(1)),
        ..fixture.sweep.retention
    };
    let mut fixture = fixture;
    fixture.sweep.retention = brief;
    assert_eq!(fixture.sweep(T0 - 49_000), (1, 0, 0));
    assert!(!fixture.archive(sealed.id).exists() && fixture.knows(&sealed) && fixture.knows(&unused));
    assert_eq!(fixture.sweep(T0 - 48_000), (0, 0, 0));
    fixture.sweep.retention.archives = None;
    assert_eq!(fixture.sweep(T0 + 299_999), (0, 0, 0));
    assert!(fixture.knows(&unused));
    assert_eq!(fixture.sweep(T0 + 300_000), (0, 0, 0));
    assert!(!fixture.knows(&unused));
}

/// An archive without recorded facts is kept, and a locked upload is skipped.
#[tokio::test]
async fn existing_and_locked_uploads_are_not_deleted() {
    let fixture = fixture();
    let upload = fixture.upload(false);
    fs::create_dir_all(fixture.folder.join("archives/o")).expect("the folder is writable");
    fs::write(fixture.archive(upload.id), "archive").expect("the folder is writable");
    let mut fixture = fixture;
    fixture.sweep.retention.archives = None;
    fixture.sweep(T0 + 10_000_000);
    assert!(fixture.knows(&upload));
    fixture.sweep.retention.archives = Some(Duration::from_secs(100));
    let turn = fixture.sweep.upload_locks.lock(upload.id).await;
    assert_eq!(fixture.sweep(T0 + 100_000), (0, 0, 0));
    drop(turn);
    assert_eq!(fixture.sweep(T0 + 100_000), (1, 0, 0));
    assert!(!fixture.knows(&upload));
}

/// More than one step of a sweep.
#[test]
fn a_sweep_deletes_more_than_one_step() {
    let fixture = fixture();
    let uploads: Vec<UploadRecord> = (0..SWEEP_STEP + 3).map(|_| fixture.upload(false)).collect();
    fixture.sweep(T0 + 100_000);
    assert!(!uploads.iter().any(|upload| fixture.knows(upload)));
}
