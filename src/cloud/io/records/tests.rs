//! Tests of the database, including truncated journals and full disks.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::proto::build::{BuildChange, Image, ImageLocation, Slug};

/// A folder that is removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "records-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("the system's folder for such things is writable");
        Folder(path)
    }

    fn db(&self) -> PathBuf {
        self.0.join("builds.db")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(folder: &Folder) -> SqliteRecords {
    SqliteRecords::open(&folder.0).unwrap_or_else(|error| panic!("{error}"))
}

fn id(n: u32) -> Uuid {
    let mut random = [0; 16];
    random[12..].copy_from_slice(&n.to_be_bytes());
    Uuid::v4(random)
}

fn name(text: &str) -> Slug {
    Slug::parse(text).expect("a name")
}

/// SHA-256 of the archives and of the key that uploaded them.
const ARCHIVE: Sha256Digest = [7; 32];
const KEY: Sha256Digest = [8; 32];

fn info(n: u32) -> ArchiveInfo {
    ArchiveInfo {
        size: u64::from(n),
        md5: [7; 16],
        sha256: ARCHIVE,
        inode: u64::MAX - 1,
        modified_ns: -1,
    }
}

fn upload(n: u32, org: &str) -> UploadRecord {
    UploadRecord {
        id: id(n),
        org: name(org),
        region: name("us-west"),
        expires_ms: 900,
        sealed: false,
        key: Some(KEY),
        info: None,
    }
}

/// A build of upload `n`, created at `now_ms`.
fn build(n: u32, org: &str, file: &str, now_ms: u64) -> Build {
    Build::new(
        id(1000 + n),
        &upload(n, org),
        &info(n),
        file.into(),
        "http://h:1".into(),
        now_ms,
    )
}

fn insert(records: &SqliteRecords, n: u32, org: &str, file: &str, now_ms: u64) -> Build {
    records.insert_upload(&upload(n, org)).expect("there is space");
    records.set_archive(id(n), &info(n)).expect("there is space");
    let build = build(n, org, file, now_ms);
    records.insert_build(&build).expect("there is space");
    build
}

fn change(records: &SqliteRecords, build: &Build, to: BuildChange) -> Build {
    let next = build.change(to, build.updated_ms + 10).expect("it may");
    assert!(records.update_build(build.status, &next).expect("there is space"));
    next
}

fn image(location: ImageLocation) -> BuildChange {
    BuildChange::Succeed(Image { location, size: 5 })
}

const ALL: BuildFilter = BuildFilter {
    status: None,
    region: None,
    hash: None,
    key: KEY,
    limit: 100,
    offset: 0,
};

fn ids(builds: &[Build]) -> Vec<Uuid> {
    builds.iter().map(|build| build.id).collect()
}

/// Records read back unchanged in every state, also after reopening.
#[test]
fn records_round_trip() {
    let folder = Folder::new();
    let records = open(&folder);
    let mut unused = upload(1, "o");
    records.insert_upload(&unused).expect("there is space");
    assert_eq!(records.upload(id(1)).expect("read"), Some(unused.clone()));
    records.set_archive(id(1), &info(1)).expect("there is space");
    unused.info = Some(info(1));
    assert_eq!(records.upload(id(1)).expect("read"), Some(unused.clone()));

    let mut builds = vec![insert(&records, 2, "o", "Dockerfile", 50)];
    for n in 3..8 {
        let waits = insert(&records, n, "o", "a/\u{e9} '\"; --", 60);
        let runs = change(&records, &waits, BuildChange::Start);
        builds.push(match n {
            3 => runs,
            4 => change(&records, &runs, image(ImageLocation::Uri("r/i:1".into()))),
            5 => change(&records, &runs, image(ImageLocation::Stored("i.tar".into()))),
            6 => change(&records, &runs, BuildChange::Fail("build: no\n".into())),
            _ => change(&records, &runs, BuildChange::TimeOut("build: late".into())),
        });
    }
    drop(records);
    let records = open(&folder);
    assert_eq!(records.upload(id(1)).expect("read"), Some(unused));
    for build in &builds {
        assert_eq!(records.build(&name("o"), build.id).expect("read").as_ref(), Some(build));
        assert_eq!(records.build(&name("p"), build.id).expect("read"), None);
        assert!(records.has_build(build.id).expect("read"));
        assert!(records.upload(build.upload).expect("read").expect("its upload").sealed);
    }
    assert!(!records.has_build(id(1)).expect("read"));
    assert_eq!(ids(&records.unfinished().expect("read")), ids(&builds[..2]));
}

/// A build and the seal of its upload are written together or not at all.
#[test]
fn a_build_without_an_upload_is_rejected() {
    let folder = Folder::new();
    let records = open(&folder);
    let build = build(1, "o", "f", 0);
    assert!(matches!(records.insert_build(&build), Err(RecordError::Broken(_))));
    assert!(!records.has_build(build.id).expect("read"));
    // A duplicate id is rejected and the first build stays.
    let first = insert(&records, 1, "o", "f", 0);
    assert!(records.insert_build(&first).is_err());
    assert_eq!(records.list(&name("o"), &ALL).expect("read").1, 1);
}

/// An update needs the expected status.
#[test]
fn an_update_expects_a_status() {
    let folder = Folder::new();
    let records = open(&folder);
    let waits = insert(&records, 1, "o", "f", 0);
    let runs = change(&records, &waits, BuildChange::Start);
    let late = waits.change(BuildChange::Fail("x".into()), 5).expect("it may");
    assert!(
        !records
            .update_build(BuildStatus::Pending, &late)
            .expect("there is space")
    );
    assert_eq!(records.build(&name("o"), waits.id).expect("read"), Some(runs));
}

/// `GET /builds`: newest first in order of insertion, with filters, pages and the total.
#[test]
fn builds_are_listed_newest_first() {
    let folder = Folder::new();
    let records = open(&folder);
    let all: Vec<Build> = (1..=5)
        .map(|n| insert(&records, n, "o", "f", 1000 - u64::from(n)))
        .collect();
    insert(&records, 6, "p", "f", 0);
    let mut newest = ids(&all);
    newest.reverse();
    let list = |of: BuildFilter| {
        let (page, total) = records.list(&name("o"), &of).expect("read");
        (ids(&page), total)
    };
    assert_eq!(list(ALL), (newest.clone(), 5));
    let page = BuildFilter { limit: 2, ..ALL };
    assert_eq!(list(page.clone()), (newest[..2].to_vec(), 5));
    assert_eq!(
        list(BuildFilter {
            offset: 4,
            ..page.clone()
        }),
        (newest[4..].to_vec(), 5)
    );
    assert_eq!(
        list(BuildFilter {
            offset: u64::MAX,
            ..page
        }),
        (vec![], 5)
    );

    let runs = change(&records, &all[1], BuildChange::Start);
    change(&records, &runs, image(ImageLocation::Uri("u".into())));
    let of = |status| BuildFilter {
        status: Some(status),
        ..ALL
    };
    assert_eq!(list(of(BuildStatus::Success)), (vec![all[1].id], 1));
    assert_eq!(list(of(BuildStatus::Pending)).1, 4);
    assert_eq!(list(of(BuildStatus::Timeout)), (vec![], 0));
    let of = |region: &str, hash: &str| BuildFilter {
        region: Some(region.into()),
        hash: Some(hash.into()),
        ..ALL
    };
    assert_eq!(list(of("us-west", "0707070707070707")).1, 5);
    assert_eq!(list(of("us-east", "0707070707070707")), (vec![], 0));
    assert_eq!(list(of("us-west", "' OR 1=1 --")), (vec![], 0));
}

/// I-16: a cache hit has the same organization, archive, region and build file; the newest wins.
#[test]
fn successes_are_cache_hits() {
    let folder = Folder::new();
    let records = open(&folder);
    let hit = |org: &str, region: &str, file: &str| {
        let found = records.find_success(&name(org), &ARCHIVE, region, file).expect("read");
        found.map(|build| build.id)
    };
    let mut last = None;
    for n in 1..=3 {
        let waits = insert(&records, n, "o", "f", 0);
        assert_eq!(hit("o", "us-west", "f"), last);
        let runs = change(&records, &waits, BuildChange::Start);
        assert_eq!(hit("o", "us-west", "f"), last);
        change(&records, &runs, image(ImageLocation::Uri("u".into())));
        last = Some(waits.id);
        assert_eq!(hit("o", "us-west", "f"), last);
    }
    for (n, end) in [
        (4, BuildChange::Fail("x".into())),
        (5, BuildChange::TimeOut("x".into())),
    ] {
        let runs = change(&records, &insert(&records, n, "o", "f", 0), BuildChange::Start);
        change(&records, &runs, end);
    }
    assert_eq!(hit("o", "us-west", "f"), last);
    assert_eq!(hit("p", "us-west", "f"), None);
    assert_eq!(hit("o", "us-east", "f"), None);
    assert_eq!(hit("o", "us-west", "F"), None);
    records
        .delete_builds(&[last.expect("three succeeded")])
        .expect("there is space");
    assert_eq!(hit("o", "us-west", "f"), Some(id(1002)));
}

/// Archives with the same short hash are distinguished by SHA-256. The short hash finds builds of
/// archives that the requesting key has uploaded.
#[test]
fn a_short_hash_does_not_identify_an_archive() {
    let folder = Folder::new();
    let records = open(&folder);
    let (forged, other): (Sha256Digest, Sha256Digest) = ([9; 32], [10; 32]);
    let put = |n: u32, sha256: Sha256Digest, key: Sha256Digest| {
        let upload = UploadRecord {
            key: Some(key),
            ..upload(n, "o")
        };
        let info = ArchiveInfo { sha256, ..info(n) };
        records.insert_upload(&upload).expect("there is space");
        records.set_archive(id(n), &info).expect("there is space");
        Build::new(id(1000 + n), &upload, &info, "f".into(), "http://h:1".into(), 0)
    };
    let make = |build: Build| {
        records.insert_build(&build).expect("there is space");
        let runs = change(&records, &build, BuildChange::Start);
        change(&records, &runs, image(ImageLocation::Uri("u".into()))).id
    };
    let cached = |sha256: &Sha256Digest| {
        let hit = records.find_success(&name("o"), sha256, "us-west", "f").expect("read");
        hit.map(|build| build.id)
    };
    let found = |key: Sha256Digest| {
        let hash = Some("0707070707070707".to_owned());
        let (page, total) = records
            .list(&name("o"), &BuildFilter { hash, key, ..ALL })
            .expect("read");
        assert_eq!(page.len() as u64, total);
        ids(&page)
    };
    let first = make(put(1, forged, other));
    assert_eq!((cached(&forged), cached(&ARCHIVE)), (Some(first), None));
    assert_eq!((found(other), found(KEY)), (vec![first], vec![]));
    let second = make(put(2, ARCHIVE, KEY));
    assert_eq!((cached(&forged), cached(&ARCHIVE)), (Some(first), Some(second)));
    assert_eq!((found(other), found(KEY)), (vec![first], vec![second]));
    // The other key uploads the same archive.
    put(3, ARCHIVE, other);
    assert_eq!((found(other), found(KEY)), (vec![second, first], vec![second]));
    // An upload of another organization has no effect.
    records
        .insert_upload(&UploadRecord {
            key: Some(KEY),
            ..upload(4, "p")
        })
        .expect("there is space");
    records
        .set_archive(
            id(4),
            &ArchiveInfo {
                sha256: forged,
                ..info(4)
            },
        )
        .expect("there is space");
    assert_eq!(found(KEY), [second]);
    assert_eq!(
        records.list(&name("o"), &ALL).expect("read").1,
        2,
        "without a hash all are listed"
    );
}

/// A database of version 1 is migrated once; missing values match nothing.
#[test]
fn an_older_database_is_migrated() {
    let folder = Folder::new();
    let old = rusqlite::Connection::open(folder.db()).expect("a file");
    old.execute_batch(include_str!("version-1.sql")).expect("a database");
    for (n, size) in [
        (1, "119, X'07', 1, 2"),
        (2, "NULL, NULL, NULL, NULL"),
        (3, "5, X'07', 1, 2"),
    ] {
        let row = format!(
            "INSERT INTO upload VALUES ('{}', 'o', 'us-west', 900, {}, NULL, {size})",
            id(n),
            n % 2
        );
        old.execute_batch(&row.replace("X'07'", "X'07070707070707070707070707070707'"))
            .expect("a row");
    }
    for (n, status, ended) in [
        (1, "success", "20, 'u', NULL, 5, NULL"),
        (3, "pending", "NULL, NULL, NULL, NULL, NULL"),
    ] {
        let row = format!(
            "INSERT INTO build VALUES ({n}, '{}', 'o', '{}', 'us-west', '0707070707070707', 'f', 119, 'http://h:1', '{status}', 1, \
             10, 20, 10, {ended})",
            id(1000 + n),
            id(n)
        );
        old.execute_batch(&row).expect("a row");
    }
    drop(old);
    for _ in 0..2 {
        let records = open(&folder);
        assert_eq!(records.ask("PRAGMA user_version"), 2);
        let (all, total) = records.list(&name("o"), &ALL).expect("read");
        assert_eq!((ids(&all), total), (vec![id(1003), id(1001)], 2));
        assert_eq!(
            (all[1].sha256, all[1].key, all[1].status),
            (None, None, BuildStatus::Success)
        );
        assert_eq!(all[1].image.as_ref().map(|image| image.size), Some(5));
        assert_eq!(
            records
                .find_success(&name("o"), &ARCHIVE, "us-west", "f")
                .expect("read"),
            None
        );
        let hash = Some("0707070707070707".to_owned());
        assert_eq!(
            records.list(&name("o"), &BuildFilter { hash, ..ALL }).expect("read").1,
            0
        );
        assert_eq!(ids(&records.unfinished().expect("read")), [id(1003)]);
        for n in 1..=3 {
            let known = records.upload(id(n)).expect("read").expect("it was granted");
            assert_eq!((known.info, known.key, known.sealed), (None, None, n % 2 == 1));
        }
        assert!(
            records
                .upload_usage(id(1))
                .expect("read")
                .expect("it is held")
                .has_archive
        );
    }
    // The migrated database works like a new one.
    let records = open(&folder);
    let waits = insert(&records, 4, "o", "f", 0);
    let runs = change(&records, &waits, BuildChange::Start);
    change(&records, &runs, image(ImageLocation::Uri("u".into())));
    let hit = records
        .find_success(&name("o"), &ARCHIVE, "us-west", "f")
        .expect("read");
    assert_eq!(hit.map(|build| build.id), Some(waits.id));
}

/// I-23: queries and deletions of the sweep.
#[test]
fn the_sweep_queries_uploads_and_builds() {
    let folder = Folder::new();
    let records = open(&folder);
    records.insert_upload(&upload(1, "o")).expect("there is space");
    let waits = insert(&records, 2, "o", "f", 0);
    let held = |n| records.upload_usage(id(n)).expect("read");
    let unused = UploadUsage {
        id: id(1),
        org: name("o"),
        expires_ms: 900,
        has_archive: false,
        unfinished: 0,
        ended_ms: None,
    };
    let used = UploadUsage {
        id: id(2),
        has_archive: true,
        unfinished: 1,
        ..unused.clone()
    };
    assert_eq!(held(1), Some(unused.clone()));
    assert_eq!(held(2), Some(used.clone()));
    let runs = change(&records, &waits, BuildChange::Start);
    assert_eq!(held(2), Some(used.clone()));
    assert_eq!(records.builds_ended_until(u64::MAX, 9).expect("read"), []);
    records.delete_builds(&[runs.id]).expect("there is space");
    assert!(
        records.has_build(runs.id).expect("read"),
        "one that runs is not forgotten"
    );
    change(&records, &runs, BuildChange::Fail("x".into()));
    let ended = UploadUsage {
        unfinished: 0,
        ended_ms: Some(20),
        ..used
    };
    assert_eq!(held(2), Some(ended.clone()));
    assert_eq!(records.upload_usages(None, 1).expect("read"), [unused]);
    assert_eq!(records.upload_usages(Some(id(1)), 9).expect("read"), [ended]);
    assert_eq!(records.upload_usages(Some(id(2)), 9).expect("read"), []);

    assert_eq!(records.builds_ended_until(19, 9).expect("read"), []);
    assert_eq!(records.builds_ended_until(20, 9).expect("read"), [runs.id]);
    assert_eq!(records.builds_ended_until(20, 0).expect("read"), []);
    records.delete_builds(&[runs.id]).expect("there is space");
    records.delete_upload(id(2)).expect("there is space");
    assert!(!records.has_build(runs.id).expect("read"));
    assert_eq!(held(2), None);
}

/// I-21: a failed write for lack of space changes nothing; reads work, and writes do again once
/// there is space.
#[test]
fn a_full_disk_leaves_no_partial_change() {
    let folder = Folder::new();
    let records = open(&folder);
    let pages = records.ask("PRAGMA page_count");
    records.ask(&format!("PRAGMA max_page_count = {}", pages + 6));
    let long = "f".repeat(255);
    let mut kept = 0;
    let refused = loop {
        let granted = records.insert_upload(&upload(kept, "o"));
        let inserted = granted.and_then(|()| records.insert_build(&build(kept, "o", &long, 0)));
        match inserted {
            Ok(()) => kept += 1,
            Err(error) => break error,
        }
        assert!(kept < 10_000, "the limit holds");
    };
    assert!(matches!(refused, RecordError::Full), "{refused}");
    assert!(kept > 5);
    let whole = |kept: u32| {
        let (_, total) = records.list(&name("o"), &ALL).expect("read");
        assert_eq!(total, u64::from(kept));
        for n in 0..kept {
            assert!(records.upload(id(n)).expect("read").expect("it was kept").sealed);
        }
        let next = records.upload(id(kept)).expect("read");
        assert!(next.is_none_or(|upload| !upload.sealed));
    };
    whole(kept);
    // An error leaves no open transaction.
    let granted = records.insert_upload(&upload(kept, "o"));
    assert!(
        granted
            .and_then(|()| records.insert_build(&build(kept, "o", &long, 0)))
            .is_err()
    );
    whole(kept);

    records.ask("PRAGMA max_page_count = 100000");
    let _ = records.insert_upload(&upload(kept, "o"));
    records
        .insert_build(&build(kept, "o", &long, 0))
        .expect("there is space");
    whole(kept + 1);
}

/// A truncated journal gives a consistent earlier state, and a longer one never a state with less.
#[test]
fn every_truncated_journal_is_consistent() {
    let folder = Folder::new();
    let records = open(&folder);
    for n in 1..=6 {
        let waits = insert(&records, n, "o", "f", 0);
        change(&records, &waits, BuildChange::Start);
    }
    let db = fs::read(folder.db()).expect("the database");
    let journal = fs::read(folder.0.join("builds.db-wal")).expect("the journal");
    assert!(journal.len() > 50_000, "{} bytes", journal.len());
    let mut before = HashSet::new();
    for cut in (0..=journal.len()).step_by(5003).chain([journal.len()]) {
        let copy = Folder::new();
        fs::write(copy.db(), &db).expect("a copy");
        fs::write(copy.0.join("builds.db-wal"), &journal[..cut]).expect("a copy");
        let records = open(&copy);
        let (builds, total) = records.list(&name("o"), &ALL).expect("read");
        assert_eq!(builds.len() as u64, total);
        let mut now = HashSet::new();
        for build in builds {
            let upload = records.upload(build.upload).expect("read").expect("its upload");
            assert!(
                upload.sealed && upload.info == Some(info(build.size as u32)),
                "{upload:?}"
            );
            now.insert(build.id);
        }
        assert!(now.is_superset(&before), "at byte {cut}");
        before = now;
    }
    assert_eq!(before.len(), 6);
}

/// A damaged or foreign file is an error that names it, and stays unchanged.
#[test]
fn foreign_and_damaged_files_are_not_changed() {
    let garbage: Vec<u8> = (0..20_000_u32).map(|n| (n * 7 % 251) as u8).collect();
    let message = |folder: &Folder| {
        let before = fs::read(folder.db()).expect("the file");
        let Err(error) = SqliteRecords::open(&folder.0) else {
            panic!("it was opened");
        };
        assert_eq!(fs::read(folder.db()).expect("the file"), before, "{error}");
        assert!(error.to_string().contains("builds.db"), "{error}");
        error
    };
    let folder = Folder::new();
    fs::write(folder.db(), &garbage).expect("a file");
    assert!(matches!(message(&folder), OpenRecordsError::Damaged { .. }));

    let make = || {
        let folder = Folder::new();
        let records = open(&folder);
        for n in 0..60 {
            records.insert_upload(&upload(n, "o")).expect("there is space");
        }
        drop(records);
        folder
    };
    // Overwritten pages in the middle.
    let folder = make();
    let mut bytes = fs::read(folder.db()).expect("the file");
    let len = bytes.len();
    bytes[4096..len - 4096].fill(0x5a);
    fs::write(folder.db(), &bytes).expect("a file");
    assert!(matches!(message(&folder), OpenRecordsError::Damaged { .. }));
    // A truncated file.
    let folder = make();
    let bytes = fs::read(folder.db()).expect("the file");
    fs::write(folder.db(), &bytes[..bytes.len() / 2]).expect("a file");
    assert!(matches!(message(&folder), OpenRecordsError::Damaged { .. }));

    let folder = make();
    open(&folder).ask("PRAGMA application_id = 7");
    assert!(matches!(message(&folder), OpenRecordsError::Foreign { .. }));
    let folder = make();
    open(&folder).ask("PRAGMA user_version = 3");
    assert!(matches!(message(&folder), OpenRecordsError::Later { version: 3, .. }));

    let folder = Folder::new();
    fs::create_dir(folder.db()).expect("a folder");
    assert!(matches!(
        SqliteRecords::open(&folder.0),
        Err(OpenRecordsError::Io { .. })
    ));
}

/// An empty file, from a kill before the tables were created, is valid.
#[test]
fn an_empty_file_is_initialized() {
    let folder = Folder::new();
    fs::write(folder.db(), b"").expect("a file");
    insert(&open(&folder), 1, "o", "f", 0);
}

/// Files have mode 0600.
#[test]
fn files_are_readable_by_their_owner_only() {
    let folder = Folder::new();
    let records = open(&folder);
    records.insert_upload(&upload(1, "o")).expect("there is space");
    let mode = |path: &Path| fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    for name in ["builds.db", "builds.db-wal", "builds.db-shm"] {
        assert_eq!(mode(&folder.0.join(name)), 0o600, "{name}");
    }
    drop(records);
    // After an orderly close the main file is complete. The empty journal files stay, for a start
    // on a full disk.
    let size = |name: &str| fs::metadata(folder.0.join(name)).expect("a file").len();
    assert_eq!(size("builds.db-wal"), 0);
    assert!(size("builds.db-shm") > 0);
    fs::remove_file(folder.0.join("builds.db-wal")).expect("it is there");
    fs::remove_file(folder.0.join("builds.db-shm")).expect("it is there");
    assert!(open(&folder).upload(id(1)).expect("read").is_some());
}

/// Concurrent readers and writers see complete changes only.
#[test]
fn threads_share_the_records() {
    let folder = Folder::new();
    let records = open(&folder);
    std::thread::scope(|threads| {
        for t in 0..4 {
            let records = &records;
            threads.spawn(move || {
                for n in 0..20 {
                    let waits = insert(records, t * 100 + n, "o", "f", 0);
                    change(records, &waits, BuildChange::Start);
                }
            });
        }
        let records = &records;
        threads.spawn(move || {
            let mut seen = 0;
            while seen < 80 {
                let (page, total) = records.list(&name("o"), &ALL).expect("read");
                assert_eq!(page.len() as u64, total);
                assert!(total >= seen, "{total} after {seen}");
                seen = total;
                for build in page.iter().filter(|build| build.status == BuildStatus::Building) {
                    assert!(build.started_ms.is_some() && build.attempt == 1);
                }
            }
        });
    });
    assert_eq!(records.unfinished().expect("read").len(), 80);
}

/// Lookups of single records do not wait for lists and sweeps.
#[test]
fn single_records_are_read_during_a_scan() {
    let folder = Folder::new();
    let records = open(&folder);
    let made = insert(&records, 1, "o", "f", 10);
    records.during_scan(|| {
        assert_eq!(records.build(&name("o"), made.id).expect("read"), Some(made.clone()));
        assert!(records.upload(id(1)).expect("read").is_some());
        assert_eq!(
            records
                .find_success(&name("o"), &ARCHIVE, "us-west", "f")
                .expect("read"),
            None
        );
        assert!(records.has_build(made.id).expect("read") && records.upload_usage(id(1)).expect("read").is_some());
        assert!(change(&records, &made, BuildChange::Start).started_ms.is_some());
    });
}
