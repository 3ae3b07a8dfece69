//! The SQLite implementation of [`Records`]: one file, one writing and two reading connections.
//!
//! The write-ahead log lets readers run beside the writer, and a commit costs one sync. Files have
//! mode 0600. A statement that fails for lack of space changes nothing. Source: sqlite.org,
//! "Write-Ahead Logging", "PRAGMA Statements", "Result and Error Codes".

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rusqlite::types::Value;
use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension as _, Row, Transaction, TransactionBehavior, ffi, params,
};

use rustix::io::Errno;

use super::{OpenRecordsError, RecordError, Records};
use crate::proto::build::{
    ArchiveInfo, Build, BuildFilter, BuildStatus, Image, ImageLocation, Org, Slug, UploadRecord,
};
use crate::proto::keys::Sha256Digest;
use crate::proto::metrics::{BackendFailure, BackendMetrics, COUNTED_BUILDS_MAX, QueueState};
use crate::proto::sweep::UploadUsage;
use edge_runner_http::common::lock;
use edge_runner_proto::uuid::Uuid;

/// File name in the data directory.
const FILE: &str = "builds.db";
/// Application id and version of the database; the schema sets both.
const APPLICATION: i64 = 1_163_019_075;
const VERSION: i64 = 2;
const SCHEMA: &str = include_str!("schema.sql");
/// Migration from version 1.
const FROM_1: &str = include_str!("from-1.sql");

/// 512 KiB of page cache per connection; a checkpoint every 256 pages; the WAL file is cut to 1
/// MiB. No memory map, which would turn I/O errors into signals.
const PRAGMAS: &str = "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 256; PRAGMA journal_size_limit = 1048576;
    PRAGMA cache_size = -512; PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0;";

const BUILD: &str =
    "id, org, upload, region, hash, file, size, base, status, attempt, created_ms, updated_ms, started_ms,
    completed_ms, image_uri, image_name, image_size, error, sha256, key";
const UPLOAD: &str = "id, org, region, expires_ms, sealed, size, md5, inode, modified_ns, sha256, key";
const USAGE: &str =
    "id, org, expires_ms, size IS NOT NULL, ended_ms, (SELECT COUNT(*) FROM build WHERE build.upload = upload.id
    AND status IN ('pending', 'building'))";

/// The database. A panic while a connection is locked rolls its transaction back, so the connection
/// stays usable.
pub struct SqliteRecords {
    writer: Mutex<Connection>,
    reader: Mutex<Connection>,
    /// For queries over many records, so that lookups of single ones do not wait for them.
    scanner: Mutex<Connection>,
    metrics: BackendMetrics,
}

impl SqliteRecords {
    /// Opens the database of a data directory, or creates it.
    ///
    /// # Errors
    /// [`OpenRecordsError`] tells what is wrong and what to do.
    pub fn open(folder: &Path) -> Result<SqliteRecords, OpenRecordsError> {
        let path = folder.join(FILE);
        make(folder, &path).map_err(|error| OpenRecordsError::Io {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        let open = |flags| {
            let connection = Connection::open_with_flags(&path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
            connection.execute_batch(PRAGMAS)?;
            persist(&connection);
            Ok(connection)
        };
        let map_error = |error: rusqlite::Error| open_error(&path, &error);
        let writer: Connection = open(OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(map_error)?;
        prepare(&writer, &path)?;
        // Readers write to the index of the WAL.
        let reader = || -> Result<Mutex<Connection>, OpenRecordsError> {
            let reader: Connection = open(OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(map_error)?;
            reader.execute_batch("PRAGMA query_only = 1").map_err(map_error)?;
            Ok(Mutex::new(reader))
        };
        Ok(SqliteRecords {
            writer: Mutex::new(writer),
            reader: reader()?,
            scanner: reader()?,
            metrics: BackendMetrics::default(),
        })
    }

    /// Tells whether a folder has such a database.
    pub fn is_in(folder: &Path) -> bool {
        folder.join(FILE).is_file()
    }

    /// Returns up to `max` builds that were inserted after the one with this number, oldest first,
    /// and the number of each.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn builds_after(&self, after: i64, max: usize) -> Result<Vec<(i64, Build)>, RecordError> {
        let sql = format!("SELECT {BUILD}, seq FROM build WHERE seq > ? ORDER BY seq LIMIT ?");
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        self.scan(|of| all(of, &sql, [after, max], |row| Ok((row.get("seq")?, build_of(row)?))))
    }

    /// Returns how long operations took, and how many failed.
    pub fn metrics(&self) -> &BackendMetrics {
        &self.metrics
    }

    /// Counts the unfinished builds, [`COUNTED_BUILDS_MAX`] at most.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn queue(&self, now_ms: u64) -> Result<QueueState, RecordError> {
        let sql = "SELECT COUNT(*) FILTER (WHERE status = 'pending'), COUNT(*) FILTER (WHERE status = 'building'),
            MIN(created_ms) FILTER (WHERE status = 'pending')
            FROM (SELECT status, created_ms FROM build WHERE status IN ('pending', 'building') LIMIT ?)";
        self.scan(|of| {
            of.query_row(sql, [COUNTED_BUILDS_MAX], |row| {
                let oldest_ms = optional_number(row, 2)?.map_or(0, |created_ms| now_ms.saturating_sub(created_ms));
                Ok(QueueState {
                    pending: number(row, 0)?,
                    building: number(row, 1)?,
                    oldest: Duration::from_millis(oldest_ms),
                })
            })
        })
    }

    /// Inserts an upload of another service, and when the last of its builds ended.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn import_upload(&self, upload: &UploadRecord, ended_ms: Option<u64>) -> Result<(), RecordError> {
        self.write(|tx| {
            insert_upload(tx, upload)?;
            let sql = "UPDATE upload SET ended_ms = ? WHERE id = ?";
            tx.execute(sql, params![ended_ms.map(int), upload.id.to_string()])
        })
        .map(drop)
    }

    /// Inserts a build of another service, whose upload may have been deleted.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn import_build(&self, build: &Build) -> Result<(), RecordError> {
        self.write(|tx| insert_build(tx, build)).map(drop)
    }

    /// Runs a query on the writer and returns its integer.
    #[cfg(test)]
    pub(in crate::io) fn ask(&self, sql: &str) -> i64 {
        lock(&self.writer)
            .query_row(sql, [], |row| row.get(0))
            .optional()
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
            .unwrap_or(0)
    }

    /// Runs a change as a transaction.
    fn write<T>(&self, change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T, RecordError> {
        let (began, mut connection) = (Instant::now(), lock(&self.writer));
        let done = (|| {
            // Dropping a transaction rolls it back.
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let changed = change(&transaction)?;
            transaction.commit()?;
            Ok(changed)
        })();
        self.counted(began, done.map_err(|error| record_error(&connection, &error)))
    }

    /// Runs a query for single records.
    fn read<T>(&self, look: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, RecordError> {
        self.read_with(&self.reader, look)
    }

    /// Runs a query over many records.
    fn scan<T>(&self, look: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, RecordError> {
        self.read_with(&self.scanner, look)
    }

    fn read_with<T>(
        &self,
        connection: &Mutex<Connection>,
        look: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, RecordError> {
        let (began, connection) = (Instant::now(), lock(connection));
        let done = look(&connection).map_err(|error| record_error(&connection, &error));
        self.counted(began, done)
    }

    /// Adds an operation to the metrics.
    fn counted<T>(&self, began: Instant, done: Result<T, RecordError>) -> Result<T, RecordError> {
        self.metrics.took(began.elapsed());
        match &done {
            Ok(_) => {}
            Err(RecordError::Full) => self.metrics.failed(BackendFailure::Full),
            Err(RecordError::Broken(_)) => self.metrics.failed(BackendFailure::Broken),
        }
        done
    }

    /// Runs a closure while the scanning connection is in use.
    #[cfg(test)]
    pub(super) fn during_scan(&self, act: impl FnOnce()) {
        let walked = self.scan(|_| {
            act();
            Ok(())
        });
        walked.expect("nothing was asked");
    }
}

/// Creates an empty file with mode 0600, which SQLite copies to its other files.
fn make(folder: &Path, path: &Path) -> io::Result<()> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made {
        Ok(_) => File::open(folder)?.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Keeps the WAL files when the last connection closes: on a full disk they could not be created
/// again. Failure is harmless.
fn persist(connection: &Connection) {
    let mut on: std::ffi::c_int = 1;
    // SAFETY: the handle is that of a live connection, the name is NUL-terminated, and the call
    // reads and writes one integer of ours.
    unsafe {
        ffi::sqlite3_file_control(
            connection.handle(),
            c"main".as_ptr(),
            ffi::SQLITE_FCNTL_PERSIST_WAL,
            std::ptr::from_mut(&mut on).cast(),
        );
    }
}

/// Checks identity, version and integrity of the database, and creates the tables of an empty one.
fn prepare(connection: &Connection, path: &Path) -> Result<(), OpenRecordsError> {
    let map_error = |error: rusqlite::Error| open_error(path, &error);
    let number = |pragma: &str| {
        connection
            .query_row(pragma, [], |row| row.get::<_, i64>(0))
            .map_err(map_error)
    };
    let application = number("PRAGMA application_id")?;
    let version = number("PRAGMA user_version")?;
    let tables = number("SELECT COUNT(*) FROM sqlite_schema")?;
    let path = || path.to_owned();
    let is_empty = (application, version, tables) == (0, 0, 0);
    if !is_empty && application != APPLICATION {
        return Err(OpenRecordsError::Foreign { path: path() });
    }
    if version > VERSION {
        return Err(OpenRecordsError::Later { path: path(), version });
    }
    let mode: String = connection
        .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
        .map_err(map_error)?;
    if mode != "wal" {
        let reason = format!(
            "the journal is of the kind `{mode}`; the file system of the data directory has to know shared memory"
        );
        return Err(OpenRecordsError::Io { path: path(), reason });
    }
    if is_empty {
        let made = format!("BEGIN IMMEDIATE; {SCHEMA}; COMMIT;");
        return connection.execute_batch(&made).map_err(map_error);
    }
    let found: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(map_error)?;
    if found != "ok" {
        return Err(OpenRecordsError::Damaged {
            path: path(),
            reason: found,
        });
    }
    if version < VERSION {
        let changed = format!("BEGIN IMMEDIATE; {FROM_1}; COMMIT;");
        connection.execute_batch(&changed).map_err(map_error)?;
    }
    Ok(())
}

fn open_error(path: &Path, error: &rusqlite::Error) -> OpenRecordsError {
    let path = path.to_owned();
    let reason = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => OpenRecordsError::Damaged { path, reason },
        _ => OpenRecordsError::Io { path, reason },
    }
}

fn record_error(connection: &Connection, error: &rusqlite::Error) -> RecordError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => RecordError::Full,
        // SQLite maps ENOSPC to "full" for the main file and the WAL only, and EDQUOT never.
        Some(ErrorCode::SystemIoFailure) if [Errno::NOSPC, Errno::DQUOT].contains(&system_error(connection)) => {
            RecordError::Full
        }
        _ => RecordError::Broken(error.to_string()),
    }
}

/// Returns the last system error of a connection.
fn system_error(connection: &Connection) -> Errno {
    // SAFETY: the handle is that of a live connection, and the call reads one integer.
    Errno::from_raw_os_error(unsafe { ffi::sqlite3_system_errno(connection.handle()) })
}

impl Records for SqliteRecords {
    fn insert_upload(&self, upload: &UploadRecord) -> Result<(), RecordError> {
        self.write(|tx| insert_upload(tx, upload)).map(drop)
    }

    fn upload(&self, id: Uuid) -> Result<Option<UploadRecord>, RecordError> {
        let sql = format!("SELECT {UPLOAD} FROM upload WHERE id = ?");
        self.read(|of| of.query_row(&sql, [id.to_string()], upload_of).optional())
    }

    fn set_archive(&self, id: Uuid, info: &ArchiveInfo) -> Result<(), RecordError> {
        self.write(|tx| {
            tx.execute(
                "UPDATE upload SET size = ?, md5 = ?, sha256 = ?, inode = ?, modified_ns = ? WHERE id = ?",
                params![
                    int(info.size),
                    info.md5,
                    info.sha256,
                    info.inode.cast_signed(),
                    info.modified_ns,
                    id.to_string()
                ],
            )
        })
        .map(drop)
    }

    fn insert_build(&self, build: &Build) -> Result<(), RecordError> {
        self.write(|tx| {
            insert_build(tx, build)?;
            tx.execute("UPDATE upload SET sealed = 1 WHERE id = ?", [build.upload.to_string()])
                .and_then(|sealed| match sealed {
                    1 => Ok(()),
                    _ => Err(rusqlite::Error::StatementChangedRows(sealed)),
                })
        })
    }

    fn build(&self, org: &Org, id: Uuid) -> Result<Option<Build>, RecordError> {
        let sql = format!("SELECT {BUILD} FROM build WHERE id = ? AND org = ?");
        self.read(|of| {
            of.query_row(&sql, params![id.to_string(), org.as_str()], build_of)
                .optional()
        })
    }

    fn list(&self, org: &Org, of: &BuildFilter) -> Result<(Vec<Build>, u64), RecordError> {
        let mut chosen = "FROM build WHERE org = ?".to_owned();
        let mut named: Vec<Value> = vec![org.as_str().to_owned().into()];
        let status = of.status.map(|status| status.name().to_owned());
        for (column, value) in [
            ("status", status),
            ("region", of.region.clone()),
            ("hash", of.hash.clone()),
        ] {
            if let Some(value) = value {
                chosen.push_str(&format!(" AND {column} = ?"));
                named.push(value.into());
            }
        }
        if of.hash.is_some() {
            chosen.push_str(" AND (key = ? OR sha256 IN (SELECT sha256 FROM upload WHERE org = ? AND key = ?))");
            let key = of.key.to_vec();
            named.extend([key.clone().into(), org.as_str().to_owned().into(), key.into()]);
        }
        self.scan(|connection| {
            // Count and page are from the same snapshot.
            let tx = connection.unchecked_transaction()?;
            let total: i64 = tx.query_row(
                &format!("SELECT COUNT(*) {chosen}"),
                rusqlite::params_from_iter(&named),
                |row| row.get(0),
            )?;
            named.push(i64::try_from(of.limit).unwrap_or(i64::MAX).into());
            named.push(int(of.offset).into());
            let sql = format!("SELECT {BUILD} {chosen} ORDER BY seq DESC LIMIT ? OFFSET ?");
            let page = all(&tx, &sql, rusqlite::params_from_iter(&named), build_of)?;
            Ok((page, total.cast_unsigned()))
        })
    }

    fn find_success(
        &self,
        org: &Org,
        archive: &Sha256Digest,
        region: &str,
        file: &str,
    ) -> Result<Option<Build>, RecordError> {
        let sql = format!(
            "SELECT {BUILD} FROM build WHERE status = 'success' AND sha256 = ? AND org = ? AND region = ? AND file = ?
             ORDER BY seq DESC LIMIT 1"
        );
        self.read(|of| {
            of.query_row(&sql, params![archive, org.as_str(), region, file], build_of)
                .optional()
        })
    }

    fn update_build(&self, expected: BuildStatus, next: &Build) -> Result<bool, RecordError> {
        let image = ImageColumns::of(next.image.as_ref());
        self.write(|tx| {
            let changed = tx.execute(
                "UPDATE build SET status = ?, attempt = ?, updated_ms = ?, started_ms = ?, completed_ms = ?, image_uri = ?,
                 image_name = ?, image_size = ?, error = ? WHERE id = ? AND status = ?",
                params![
                    next.status.name(),
                    next.attempt,
                    int(next.updated_ms),
                    next.started_ms.map(int),
                    next.completed_ms.map(int),
                    image.uri,
                    image.name,
                    image.size,
                    next.error,
                    next.id.to_string(),
                    expected.name(),
                ],
            )?;
            if let (1, Some(completed_ms)) = (changed, next.completed_ms) {
                tx.execute(
                    "UPDATE upload SET ended_ms = MAX(?, COALESCE(ended_ms, 0)) WHERE id = ?",
                    params![int(completed_ms), next.upload.to_string()],
                )?;
            }
            Ok(changed == 1)
        })
    }

    fn unfinished(&self) -> Result<Vec<Build>, RecordError> {
        let sql = format!("SELECT {BUILD} FROM build WHERE status IN ('pending', 'building') ORDER BY seq");
        self.scan(|of| all(of, &sql, [], build_of))
    }

    fn builds_ended_until(&self, until_ms: u64, max: usize) -> Result<Vec<Uuid>, RecordError> {
        let sql = "SELECT id FROM build WHERE completed_ms IS NOT NULL AND completed_ms <= ? LIMIT ?";
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        self.scan(|of| all(of, sql, [int(until_ms), max], |row| uuid(row, 0)))
    }

    fn delete_builds(&self, ids: &[Uuid]) -> Result<(), RecordError> {
        self.write(|tx| {
            let mut delete = tx.prepare("DELETE FROM build WHERE id = ? AND completed_ms IS NOT NULL")?;
            ids.iter().try_for_each(|id| delete.execute([id.to_string()]).map(drop))
        })
    }

    fn has_build(&self, id: Uuid) -> Result<bool, RecordError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM build WHERE id = ?)";
        self.read(|of| of.query_row(sql, [id.to_string()], |row| row.get(0)))
    }

    fn upload_usages(&self, after: Option<Uuid>, max: usize) -> Result<Vec<UploadUsage>, RecordError> {
        let sql = format!("SELECT {USAGE} FROM upload WHERE id > ? ORDER BY id LIMIT ?");
        // The empty text sorts before every id.
        let after = after.map(|id| id.to_string()).unwrap_or_default();
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        self.scan(|of| all(of, &sql, params![after, max], usage_of))
    }

    fn upload_usage(&self, id: Uuid) -> Result<Option<UploadUsage>, RecordError> {
        let sql = format!("SELECT {USAGE} FROM upload WHERE id = ?");
        self.read(|of| of.query_row(&sql, [id.to_string()], usage_of).optional())
    }

    fn delete_upload(&self, id: Uuid) -> Result<(), RecordError> {
        self.write(|tx| tx.execute("DELETE FROM upload WHERE id = ?", [id.to_string()]))
            .map(drop)
    }
}

fn insert_upload(tx: &Transaction<'_>, upload: &UploadRecord) -> rusqlite::Result<usize> {
    let info = upload.info.as_ref();
    tx.execute(
        &format!("INSERT INTO upload ({UPLOAD}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
        params![
            upload.id.to_string(),
            upload.org.as_str(),
            upload.region.as_str(),
            int(upload.expires_ms),
            upload.sealed,
            info.map(|info| int(info.size)),
            info.map(|info| info.md5),
            info.map(|info| info.inode.cast_signed()),
            info.map(|info| info.modified_ns),
            info.map(|info| info.sha256),
            upload.key,
        ],
    )
}

fn insert_build(tx: &Transaction<'_>, build: &Build) -> rusqlite::Result<usize> {
    tx.execute(
        &format!("INSERT INTO build ({BUILD}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
        rusqlite::params_from_iter(values(build)),
    )
}

/// Returns all rows of a query.
fn all<T>(
    of: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
    read: fn(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    of.prepare(sql)?.query_map(params, read)?.collect()
}

/// Converts to SQLite's signed integers.
fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The columns of an image.
struct ImageColumns {
    uri: Option<String>,
    name: Option<String>,
    size: Option<i64>,
}

impl ImageColumns {
    fn of(image: Option<&Image>) -> ImageColumns {
        let (uri, name) = match image.map(|image| image.location.clone()) {
            None => (None, None),
            Some(ImageLocation::Uri(uri)) => (Some(uri), None),
            Some(ImageLocation::Stored(name)) => (None, Some(name)),
        };
        let size = image.map(|image| int(image.size));
        ImageColumns { uri, name, size }
    }
}

/// Returns the values of [`BUILD`].
fn values(build: &Build) -> [Value; 20] {
    let image = ImageColumns::of(build.image.as_ref());
    [
        build.id.to_string().into(),
        build.org.to_string().into(),
        build.upload.to_string().into(),
        build.region.to_string().into(),
        build.hash.clone().into(),
        build.file.clone().into(),
        int(build.size).into(),
        build.base.clone().into(),
        build.status.name().to_owned().into(),
        i64::from(build.attempt).into(),
        int(build.created_ms).into(),
        int(build.updated_ms).into(),
        build.started_ms.map(int).into(),
        build.completed_ms.map(int).into(),
        image.uri.into(),
        image.name.into(),
        image.size.into(),
        build.error.clone().into(),
        build.sha256.map(Vec::from).into(),
        build.key.map(Vec::from).into(),
    ]
}

/// Reads the columns of [`BUILD`].
fn build_of(row: &Row<'_>) -> rusqlite::Result<Build> {
    let location = match (row.get(14)?, row.get(15)?) {
        (Some(uri), _) => Some(ImageLocation::Uri(uri)),
        (None, Some(name)) => Some(ImageLocation::Stored(name)),
        (None, None) => None,
    };
    let size = optional_number(row, 16)?;
    Ok(Build {
        id: uuid(row, 0)?,
        org: name(row, 1)?,
        upload: uuid(row, 2)?,
        region: name(row, 3)?,
        hash: row.get(4)?,
        file: row.get(5)?,
        size: number(row, 6)?,
        base: row.get(7)?,
        status: parse_column(row, 8, BuildStatus::from_name)?,
        attempt: row.get(9)?,
        created_ms: number(row, 10)?,
        updated_ms: number(row, 11)?,
        started_ms: optional_number(row, 12)?,
        completed_ms: optional_number(row, 13)?,
        image: location.zip(size).map(|(location, size)| Image { location, size }),
        error: row.get(17)?,
        sha256: row.get(18)?,
        key: row.get(19)?,
    })
}

/// Reads the columns of [`UPLOAD`].
fn upload_of(row: &Row<'_>) -> rusqlite::Result<UploadRecord> {
    let info = match (optional_number(row, 5)?, row.get(9)?) {
        (None, _) | (_, None) => None,
        (Some(size), Some(sha256)) => Some(ArchiveInfo {
            size,
            md5: row.get(6)?,
            sha256,
            inode: row.get::<_, i64>(7)?.cast_unsigned(),
            modified_ns: row.get(8)?,
        }),
    };
    Ok(UploadRecord {
        id: uuid(row, 0)?,
        org: name(row, 1)?,
        region: name(row, 2)?,
        expires_ms: number(row, 3)?,
        sealed: row.get(4)?,
        key: row.get(10)?,
        info,
    })
}

/// Reads the columns of [`USAGE`].
fn usage_of(row: &Row<'_>) -> rusqlite::Result<UploadUsage> {
    Ok(UploadUsage {
        id: uuid(row, 0)?,
        org: name(row, 1)?,
        expires_ms: number(row, 2)?,
        has_archive: row.get(3)?,
        ended_ms: optional_number(row, 4)?,
        unfinished: number(row, 5)?,
    })
}

fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::cast_unsigned)
}

fn optional_number(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(i64::cast_unsigned))
}

fn uuid(row: &Row<'_>, column: usize) -> rusqlite::Result<Uuid> {
    parse_column(row, column, Uuid::parse)
}

fn name(row: &Row<'_>, column: usize) -> rusqlite::Result<Slug> {
    parse_column(row, column, Slug::parse)
}

/// Parses a text column. An invalid text was not written by this program.
fn parse_column<T>(row: &Row<'_>, column: usize, read: fn(&str) -> Option<T>) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    let name = || row.as_ref().column_name(column).map_or("?", |name| name).to_owned();
    read(&text).ok_or_else(|| rusqlite::Error::InvalidColumnName(format!("{} with the value `{text}`", name())))
}
