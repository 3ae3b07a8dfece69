//! Moves what several machines share to the data directory of a service on one machine.
//!
//! In: a database and an object store whose builds have ended. Out: a data directory with their
//! keys, uploads, archives, builds, logs, images and regions. Database and store keep what they
//! have. The directory must not have records of builds, so an export that failed begins again in
//! another one. The content of an archive that was built is compared with its record.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::ScaleError;
use super::database::Database;
use super::import::{TransferError, file_error};
use super::records::{SharedRecords, SharedUpload};
use super::service::REGIONS;
use super::store::{ObjectStore, StoreError};
use super::{logs, migrate};
use crate::config::TransferConfig;
use crate::io::archives::ArchiveDir;
use crate::io::keys;
use crate::io::records::SqliteRecords;
use crate::limits::SWEEP_STEP;
use crate::proto::build::{Build, ImageLocation};
use crate::proto::grant::archive_key;
use crate::proto::scale::object_keys::image_key;

/// File of regions in the data directory, for `--regions`.
const REGIONS_FILE: &str = "regions.json";

/// Where everything goes to.
struct Export<'c> {
    data_dir: &'c Path,
    to: SqliteRecords,
    archives: ArchiveDir,
    records: SharedRecords,
    store: ObjectStore,
}

/// Exports to a data directory. Returns text for the user.
///
/// # Errors
/// [`TransferError`]; the directory keeps what was exported.
pub async fn export(config: &TransferConfig) -> Result<String, TransferError> {
    let data_dir = &*config.data_dir;
    if SqliteRecords::is_in(data_dir) {
        return Err(TransferError::HasData(config.data_dir.clone()));
    }
    let database = Database::open(&config.database).await?;
    migrate::check(&database).await.map_err(ScaleError::from)?;
    let records = SharedRecords { database };
    let queue = records.queue().await?;
    let unfinished = queue.pending + queue.building;
    if unfinished > 0 {
        return Err(TransferError::Unfinished(unfinished));
    }
    let store = ObjectStore::new(config.store.clone(), config.credentials.clone());
    store.check().await?;
    let _lock = crate::io::take(data_dir).map_err(Box::new)?;
    let export = Export {
        data_dir,
        archives: ArchiveDir::open(data_dir).map_err(file_error(data_dir))?,
        to: SqliteRecords::open(data_dir)?,
        records,
        store,
    };
    let keys = export.records.keys().await?;
    keys::store(data_dir, &keys)?;
    let uploads = export.uploads().await?;
    let builds = export.builds().await?;
    let mut text = format!("exported {} keys, {uploads} uploads, {builds} builds\n", keys.len());
    if let Some(regions) = export.records.setting(REGIONS).await? {
        let path = data_dir.join(REGIONS_FILE);
        fs::write(&path, regions).map_err(file_error(&path))?;
        text.push_str(&format!("the regions are in {}, for --regions\n", path.display()));
    }
    Ok(text)
}

impl Export<'_> {
    async fn uploads(&self) -> Result<usize, TransferError> {
        let (mut after, mut count) = (None, 0);
        loop {
            let some = self.records.upload_usages(after, SWEEP_STEP).await?;
            let Some(last) = some.last() else {
                return Ok(count);
            };
            after = Some(last.id);
            for usage in &some {
                if let Some(upload) = self.records.upload(usage.id).await? {
                    self.upload(upload, usage.ended_ms).await?;
                    count += 1;
                }
            }
        }
    }

    async fn upload(&self, upload: SharedUpload, ended_ms: Option<u64>) -> Result<(), TransferError> {
        let SharedUpload { mut record, archive } = upload;
        let path = self.archives.path(&record.org, record.id);
        let mut part = self.archives.create().map_err(file_error(&path))?;
        let key = archive_key(&record.org, record.id);
        let mut sink = |piece: Bytes| part.write(&piece);
        let found = self.store.fetch(&key, None, &mut sink).await?;
        record.info = match found {
            // The sweep has deleted it, or nothing was uploaded.
            None => None,
            Some(_) => {
                let info = part.sync().map_err(file_error(&path))?;
                if archive.is_some_and(|archive| archive.info.sha256 != info.sha256) {
                    return Err(StoreError::Changed.into());
                }
                self.archives
                    .commit(part, &record.org, record.id)
                    .map_err(file_error(&path))?;
                Some(info)
            }
        };
        Ok(self.to.import_upload(&record, ended_ms)?)
    }

    async fn builds(&self) -> Result<usize, TransferError> {
        let (mut after, mut count) = (0, 0);
        loop {
            let some = self.records.builds_after(after, SWEEP_STEP).await?;
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
        let (_, log) = logs::read(&self.records, &self.store, build.id, 0, u64::MAX).await?;
        if !log.is_empty() {
            let path = self.data_dir.join("logs").join(format!("{}.log", build.id));
            create(&path)
                .and_then(|mut file| file.write_all(&log))
                .map_err(file_error(&path))?;
        }
        if let Some(ImageLocation::Stored(name)) = build.image.as_ref().map(|image| &image.location) {
            let path = self.data_dir.join("images").join(build.id.to_string()).join(name);
            self.image(build, name, path).await?;
        }
        // The record comes after the files that it names.
        Ok(self.to.import_build(build)?)
    }

    async fn image(&self, build: &Build, name: &str, path: PathBuf) -> Result<(), TransferError> {
        let mut file = create(&path).map_err(file_error(&path))?;
        let mut sink = |piece: Bytes| file.write_all(&piece);
        let found = self.store.fetch(&image_key(build, name), None, &mut sink).await?;
        // The sweep has deleted it.
        if found.is_none() {
            fs::remove_file(&path).map_err(file_error(&path))?;
        }
        Ok(())
    }
}

/// Creates a file that only its owner reads, and its folder.
fn create(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}
