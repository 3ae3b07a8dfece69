//! Moves the data directory of a service on one machine to a database and an object store.
//!
//! In: a data directory that no service uses and whose builds have ended. Out: its keys, uploads,
//! archives, builds, logs and images, in the database and in the store. The directory keeps what it
//! has. What is there already stays, so an import that failed may be repeated. An object comes
//! before the record that names it.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_postgres::types::ToSql;

use super::ScaleError;
use super::database::{Database, DatabaseError, Statements as _};
use super::logs::LogError;
use super::migrate;
use super::records::{PinnedArchive, SharedRecords, SharedUpload, int};
use super::store::{ObjectStore, StoreError};
use crate::ServeError;
use crate::config::TransferConfig;
use crate::io::archives::{ArchiveDir, ArchiveStore as _};
use crate::io::keys::{self, KeysError};
use crate::io::records::{OpenRecordsError, RecordError, Records as _, SqliteRecords};
use crate::limits::SWEEP_STEP;
use crate::proto::build::{Build, ImageLocation};
use crate::proto::grant::archive_key;
use crate::proto::scale::object_keys::image_key;
use crate::proto::sweep::UploadUsage;

/// Bytes of a piece of a log.
const LOG_PIECE_BYTES: u64 = 256 * 1024;

/// Why an import or an export ended early.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error("{}: there is no service's data here", .0.display())]
    NoData(PathBuf),
    #[error("{}: there are records of builds here already; name another directory", .0.display())]
    HasData(PathBuf),
    #[error("{0} builds have not ended: let the service run them until they have")]
    Unfinished(u64),
    #[error(transparent)]
    DataDir(#[from] Box<ServeError>),
    #[error(transparent)]
    Open(#[from] OpenRecordsError),
    #[error(transparent)]
    Records(#[from] RecordError),
    #[error(transparent)]
    Keys(#[from] KeysError),
    #[error("{}: {source}", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Scale(#[from] ScaleError),
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Where everything goes to.
struct Import<'c> {
    data_dir: &'c Path,
    from: SqliteRecords,
    archives: ArchiveDir,
    records: Arc<SharedRecords>,
    store: ObjectStore,
}

/// Imports a data directory. Returns text for the user.
///
/// # Errors
/// [`TransferError`]; what was imported stays.
pub async fn import(config: &TransferConfig) -> Result<String, TransferError> {
    let data_dir = &*config.data_dir;
    if !SqliteRecords::is_in(data_dir) {
        return Err(TransferError::NoData(config.data_dir.clone()));
    }
    let _lock = crate::io::take(data_dir).map_err(Box::new)?;
    let database = Database::open(&config.database).await?;
    migrate::check(&database).await.map_err(ScaleError::from)?;
    let import = Import {
        data_dir,
        from: SqliteRecords::open(data_dir)?,
        archives: ArchiveDir::open(data_dir).map_err(file_error(data_dir))?,
        records: Arc::new(SharedRecords { database }),
        store: ObjectStore::new(config.store.clone(), config.credentials.clone()),
    };
    let unfinished = import.from.unfinished()?.len();
    if unfinished > 0 {
        return Err(TransferError::Unfinished(unfinished as u64));
    }
    import.store.check().await?;
    let keys = keys::stored(data_dir)?;
    for key in &keys {
        import.records.insert_key(key).await?;
    }
    let uploads = import.uploads().await?;
    let builds = import.builds().await?;
    Ok(format!(
        "imported {} keys, {uploads} uploads, {builds} builds\n",
        keys.len()
    ))
}

impl Import<'_> {
    async fn uploads(&self) -> Result<usize, TransferError> {
        let (mut after, mut count) = (None, 0);
        loop {
            let some = self.from.upload_usages(after, SWEEP_STEP)?;
            let Some(last) = some.last() else {
                return Ok(count);
            };
            after = Some(last.id);
            for usage in &some {
                self.upload(usage).await?;
            }
            count += some.len();
        }
    }

    async fn upload(&self, usage: &UploadUsage) -> Result<(), TransferError> {
        let Some(record) = self.from.upload(usage.id)? else {
            return Ok(());
        };
        let path = self.archives.path(&record.org, record.id);
        let info = self.archives.head(&record).map_err(file_error(&path))?;
        let mut archive = None;
        if let Some(info) = info {
            let file = File::open(&path).map_err(file_error(&path))?;
            let key = archive_key(&record.org, record.id);
            let etag = self.store.put(&key, file, info.size).await?;
            // The archive of an upload without builds may still be replaced.
            archive = record.sealed.then_some(PinnedArchive { info, etag });
        }
        let upload = SharedUpload { record, archive };
        Ok(self.records.import_upload(&upload, usage.ended_ms).await?)
    }

    async fn builds(&self) -> Result<usize, TransferError> {
        let (mut after, mut count) = (0, 0);
        loop {
            let some = self.from.builds_after(after, SWEEP_STEP)?;
            let Some((last, _)) = some.last() else {
                return Ok(count);
            };
            after = *last;
            for (_, build) in &some {
                self.build(build).await?;
            }
            count += some.len();
        }
    }

    async fn build(&self, build: &Build) -> Result<(), TransferError> {
        if let Some(ImageLocation::Stored(name)) = build.image.as_ref().map(|image| &image.location) {
            let path = self.data_dir.join("images").join(build.id.to_string()).join(name);
            if let Some((file, size)) = open(&path)? {
                self.store.put(&image_key(build, name), file, size).await?;
            }
        }
        self.records.import_build(build).await?;
        let path = self.data_dir.join("logs").join(format!("{}.log", build.id));
        let Some((mut file, _)) = open(&path)? else {
            return Ok(());
        };
        let mut start = 0;
        loop {
            let mut piece = Vec::new();
            let read = file.by_ref().take(LOG_PIECE_BYTES).read_to_end(&mut piece);
            if read.map_err(file_error(&path))? == 0 {
                return Ok(());
            }
            self.records.import_log(build.id, start, &piece).await?;
            start += piece.len() as u64;
        }
    }
}

/// Opens a file and returns its size. `None`: the sweep or somebody has deleted it.
fn open(path: &Path) -> Result<Option<(File, u64)>, TransferError> {
    let opened = File::open(path).and_then(|file| {
        let size = file.metadata()?.len();
        Ok((file, size))
    });
    match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some).map_err(file_error(path)),
    }
}

pub(super) fn file_error(path: &Path) -> impl FnOnce(io::Error) -> TransferError {
    move |source| TransferError::File {
        path: path.to_owned(),
        source,
    }
}

/// The statement of an import that nothing else uses.
impl SharedRecords {
    /// Inserts an upload of another service, unless it is there.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn import_upload(&self, upload: &SharedUpload, ended_ms: Option<u64>) -> Result<(), DatabaseError> {
        let session = self.database.session().await?;
        let sql = "INSERT INTO upload (id, org, region, expires_ms, ended_ms, key, etag, size, md5, sha256) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING";
        let (of, archive) = (&upload.record, upload.archive.as_ref());
        let (id, expires_ms, ended_ms) = (of.id.to_string(), int(of.expires_ms), ended_ms.map(int));
        let key = of.key.as_ref().map(|key| &key[..]);
        let etag = archive.map(|archive| &archive.etag);
        let size = archive.map(|archive| int(archive.info.size));
        let md5 = archive.map(|archive| &archive.info.md5[..]);
        let sha256 = archive.map(|archive| &archive.info.sha256[..]);
        let values: [&(dyn ToSql + Sync); 10] = [
            &id,
            &of.org.as_str(),
            &of.region.as_str(),
            &expires_ms,
            &ended_ms,
            &key,
            &etag,
            &size,
            &md5,
            &sha256,
        ];
        session.execute(sql, &values).await?;
        Ok(())
    }
}
