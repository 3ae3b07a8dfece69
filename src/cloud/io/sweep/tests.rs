//! Tests of sweeps, on real records and files, at times of the test's choice.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::*;
use crate::io::archives::ArchiveDir;
use crate::io::records::SqliteRecords;
use crate::proto::build::{Build, BuildChange, BuildStatus, UploadRecord};
use edge_runner_http::common::random;

/// A sweep on a folder that is deleted with the test. ArchiveStore are kept for 100 s, builds for 1000 s.
struct Stand {
    sweep: Sweeper,
    folder: PathBuf,
}

impl Drop for Stand {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// When grants end.
const T0: u64 = 1_795_262_400_000;

fn stand() -> Stand {
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
    };
    Stand { sweep, folder }
}

impl Stand {
    fn archive(&self, id: Uuid) -> PathBuf {
        self.folder.join(format!("archives/o/{id}.tar.gz"))
    }

    /// Retention an upload, with its archive if it `has_archive`.
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

    /// Retention a build of it with a log and an image.
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
        let swept = self.sweep.once(false, now_ms).expect("the records are there");
        (swept.archives, swept.builds, swept.orphans)
    }

    fn knows(&self, upload: &UploadRecord) -> bool {
        self.sweep.records.upload(upload.id).expect("read").is_some()
    }
}

/// I-23: the archive goes after its build, the build with its log and image after that; never before.
#[test]
fn each_thing_goes_at_its_time() {
    let stand = stand();
    let upload = stand.upload(true);
    let build = stand.build(&upload);
    // However late it is: a build waits.
    assert_eq!(stand.sweep(u64::MAX >> 1), (0, 0, 0));
    stand.end(&build, T0 + 5_000);
    assert_eq!(stand.sweep(T0 + 104_999), (0, 0, 0));
    assert!(stand.archive(upload.id).exists());
    assert_eq!(stand.sweep(T0 + 105_000), (1, 0, 0));
    assert!(!stand.archive(upload.id).exists() && !stand.knows(&upload));
    assert_eq!(stand.sweep(T0 + 1_004_999), (0, 0, 0));
    assert!(stand.sweep.log(build.id).exists() && stand.sweep.images(build.id).exists());
    assert_eq!(stand.sweep(T0 + 1_005_000), (0, 1, 0));
    assert!(!stand.sweep.log(build.id).exists() && !stand.sweep.images(build.id).exists());
    assert!(!stand.sweep.records.has_build(build.id).expect("read"));
}

/// A grant that was never used leaves no record; one that is still good retention its seal although the archive is gone.
#[test]
fn records_of_uploads_go_with_their_grants() {
    let stand = stand();
    let (unused, sealed) = (stand.upload(false), stand.upload(true));
    let build = stand.build(&sealed);
    stand.end(&build, T0 - 50_000);
    let brief = Retention {
        archives: Some(Duration::from_secs(1)),
        ..stand.sweep.retention
    };
    let mut stand = stand;
    stand.sweep.retention = brief;
    assert_eq!(stand.sweep(T0 - 49_000), (1, 0, 0));
    assert!(!stand.archive(sealed.id).exists() && stand.knows(&sealed) && stand.knows(&unused));
    assert_eq!(stand.sweep(T0 - 48_000), (0, 0, 0));
    stand.sweep.retention.archives = None;
    assert_eq!(stand.sweep(T0 + 299_999), (0, 0, 0));
    assert!(stand.knows(&unused));
    assert_eq!(stand.sweep(T0 + 300_000), (0, 0, 0));
    assert!(!stand.knows(&unused));
}

/// An archive whose record was cut off by a kill is no empty upload, and one that somebody has at this moment waits for its turn.
#[tokio::test]
async fn what_is_there_or_in_use_is_not_taken_for_empty() {
    let stand = stand();
    let upload = stand.upload(false);
    fs::create_dir_all(stand.folder.join("archives/o")).expect("the folder is writable");
    fs::write(stand.archive(upload.id), "archive").expect("the folder is writable");
    let mut stand = stand;
    stand.sweep.retention.archives = None;
    stand.sweep(T0 + 10_000_000);
    assert!(stand.knows(&upload));
    stand.sweep.retention.archives = Some(Duration::from_secs(100));
    let turn = stand.sweep.upload_locks.lock(upload.id).await;
    assert_eq!(stand.sweep(T0 + 100_000), (0, 0, 0));
    drop(turn);
    assert_eq!(stand.sweep(T0 + 100_000), (1, 0, 0));
    assert!(!stand.knows(&upload));
}

/// More than one step of a sweep takes.
#[test]
fn a_sweep_takes_all_that_is_due() {
    let stand = stand();
    let uploads: Vec<UploadRecord> = (0..SWEEP_STEP + 3).map(|_| stand.upload(false)).collect();
    stand.sweep(T0 + 100_000);
    assert!(!uploads.iter().any(|upload| stand.knows(upload)));
}
