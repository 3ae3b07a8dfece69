//! Records that several machines share, in PostgreSQL.
//!
//! In and out: values of [`crate::proto`]. Every time is that of the database's clock. A change is
//! durable when its call returns; one that fails as unavailable may have happened, so each can be
//! repeated. Writes of a run name its `attempt`, so that a worker that lost its lease changes
//! nothing. Isolation is READ COMMITTED: rows are locked where two could meet. The statements of
//! logs, keys, the sweep and an import are those of [`SharedRecords`] too, beside what uses them.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::database::{Database, DatabaseError, Statements};
use crate::io::build_log::OWN;
use crate::proto::build::{
    ArchiveInfo, Build, BuildChange, BuildFilter, BuildRequest, BuildStatus, Image, ImageLocation, Org, Slug,
    UploadRecord,
};
use crate::proto::metrics::{COUNTED_BUILDS_MAX, QueueState};
use crate::proto::queue;
use crate::proto::scale::lease::{self, Claim, GIVEN_BACK_MAX};
use edge_runner_proto::uuid::Uuid;

/// The channel that announces builds to workers.
pub const CHANNEL: &str = "edge_runner_builds";

/// The columns of [`build_of`] and [`upload_of`].
macro_rules! build_columns {
    () => {
        "id, org, upload, region, hash, file, size, base, status, attempt, created_ms, updated_ms, started_ms, completed_ms, \
         image_uri, image_name, image_size, error, sha256, key"
    };
}
macro_rules! upload_columns {
    () => {
        "id, org, region, expires_ms, key, etag, size, md5, sha256"
    };
}

/// An archive as the first build of its upload found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedArchive {
    pub info: ArchiveInfo,
    /// The store's own name of the content.
    pub etag: String,
}

/// An upload, with the archive that its builds use.
#[derive(Clone, Debug)]
pub struct SharedUpload {
    pub record: UploadRecord,
    pub archive: Option<PinnedArchive>,
}

/// What became of a request for a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Creation {
    Made(Build),
    /// A success with the same archive.
    Cached(Build),
    /// A build of the same upload that has not ended.
    Waiting(Build),
    /// The organization has as many waiting builds as allowed.
    Full,
    /// The upload was deleted meanwhile.
    Gone,
}

/// A claim whose answer was lost. It may have happened.
#[derive(Clone, Debug)]
pub struct UncertainClaim {
    pub id: Uuid,
    pub attempt: u32,
    /// The lease, which no other claim has.
    pub lease: String,
}

/// What became of the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedEnd {
    /// It is recorded, perhaps by an earlier call.
    Recorded,
    /// The build is not this run's any more.
    Lost,
}

/// The records.
pub struct SharedRecords {
    pub database: Database,
}

/// Numbers as PostgreSQL has them.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn attempt_of(attempt: u32) -> i32 {
    i32::try_from(attempt).unwrap_or(i32::MAX)
}

async fn now_ms(client: &impl Statements) -> Result<u64, DatabaseError> {
    let now: i64 = client.query_one("SELECT now_ms()", &[]).await?.try_get(0)?;
    Ok(now.cast_unsigned())
}

impl SharedRecords {
    /// Inserts the upload of a new grant, and sets when it expires.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn insert_upload(&self, upload: &mut UploadRecord, grant_ms: u64) -> Result<(), DatabaseError> {
        let session = self.database.session().await?;
        let sql = "INSERT INTO upload (id, org, region, key, expires_ms) VALUES ($1, $2, $3, $4, now_ms() + $5) RETURNING expires_ms";
        let key = upload.key.as_ref().map(|key| &key[..]);
        let (id, grant_ms) = (upload.id.to_string(), int(grant_ms));
        let row = session
            .query_one(
                sql,
                &[&id, &upload.org.as_str(), &upload.region.as_str(), &key, &grant_ms],
            )
            .await?;
        upload.expires_ms = number(&row, "expires_ms")?;
        Ok(())
    }

    /// Returns an upload.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn upload(&self, id: Uuid) -> Result<Option<SharedUpload>, DatabaseError> {
        let session = self.database.session().await?;
        let sql = concat!("SELECT ", upload_columns!(), " FROM upload WHERE id = $1");
        let row = session.query_opt(sql, &[&id.to_string()]).await?;
        row.map(|row| upload_of(&row)).transpose()
    }

    /// Creates a build of an upload, whose archive is `archive` unless an earlier build has used
    /// another. Requests of one organization follow each other, so that its cap is exact.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn create(
        &self,
        id: Uuid,
        wanted: &BuildRequest,
        org: &Org,
        archive: PinnedArchive,
        base: String,
        pending_max: usize,
    ) -> Result<Creation, DatabaseError> {
        let mut session = self.database.session().await?;
        let tx = session.transaction().await?;
        let upload_id = wanted.upload.to_string();
        tx.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
            &[&org.as_str()],
        )
        .await?;
        let sql = concat!("SELECT ", upload_columns!(), " FROM upload WHERE id = $1 FOR UPDATE");
        let Some(row) = tx.query_opt(sql, &[&upload_id]).await? else {
            return Ok(Creation::Gone);
        };
        let upload = upload_of(&row)?;
        let is_first = upload.archive.is_none();
        let archive = upload.archive.unwrap_or(archive);
        let sql = concat!(
            "SELECT ",
            build_columns!(),
            " FROM build WHERE status = 'success' AND sha256 = $1 AND org = $2 AND region = $3 AND file = $4 \
             ORDER BY seq DESC LIMIT 1"
        );
        let sha256 = &archive.info.sha256[..];
        let found = tx
            .query_opt(sql, &[&sha256, &org.as_str(), &wanted.region, &wanted.file])
            .await?;
        if let Some(row) = found {
            // The key that uploaded it finds the build by its hash from now on.
            if is_first {
                pin(&tx, &upload_id, &archive).await?;
                tx.commit().await?;
            }
            return build_of(&row).map(Creation::Cached);
        }
        let sql = concat!(
            "SELECT ",
            build_columns!(),
            " FROM build WHERE upload = $1 AND file = $2 AND status IN ('pending', 'building')"
        );
        if let Some(row) = tx.query_opt(sql, &[&upload_id, &wanted.file]).await? {
            return build_of(&row).map(Creation::Waiting);
        }
        let sql = "SELECT COUNT(*) FROM build WHERE org = $1 AND status = 'pending'";
        let pending: i64 = tx.query_one(sql, &[&org.as_str()]).await?.try_get(0)?;
        if pending >= i64::try_from(pending_max).unwrap_or(i64::MAX) {
            return Ok(Creation::Full);
        }
        let now_ms = now_ms(&tx).await?;
        let build = Build::new(id, &upload.record, &archive.info, wanted.file.clone(), base, now_ms);
        if is_first {
            pin(&tx, &upload_id, &archive).await?;
        }
        insert_build(&tx, &build).await?;
        tx.execute("SELECT pg_notify($1, '')", &[&CHANNEL]).await?;
        tx.commit().await?;
        Ok(Creation::Made(build))
    }

    /// Returns a build.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn build(&self, org: &Org, id: Uuid) -> Result<Option<Build>, DatabaseError> {
        let session = self.database.session().await?;
        let sql = concat!("SELECT ", build_columns!(), " FROM build WHERE id = $1 AND org = $2");
        let row = session.query_opt(sql, &[&id.to_string(), &org.as_str()]).await?;
        row.map(|row| build_of(&row)).transpose()
    }

    /// Returns a page, newest first, and the total number. A hash matches builds of archives that
    /// the requesting key has uploaded.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn list(&self, org: &Org, of: &BuildFilter) -> Result<(Vec<Build>, u64), DatabaseError> {
        const CHOSEN: &str = "FROM build WHERE org = $1 AND ($2::TEXT IS NULL OR status = $2) AND ($3::TEXT IS NULL OR region = $3) \
             AND ($4::TEXT IS NULL OR hash = $4 AND (key = $5 OR sha256 IN (SELECT sha256 FROM upload WHERE org = $1 AND key = $5)))";
        // PostgreSQL takes no NUL, so no record has one.
        let mut texts = [&of.region, &of.hash].into_iter().flatten();
        if texts.any(|text| text.contains('\0')) {
            return Ok((Vec::new(), 0));
        }
        let session = self.database.session().await?;
        let status = of.status.map(BuildStatus::name);
        let (org, key) = (org.as_str(), &of.key[..]);
        let chosen: [&(dyn ToSql + Sync); 5] = [&org, &status, &of.region, &of.hash, &key];
        let total = session
            .query_one(&format!("SELECT COUNT(*) {CHOSEN}"), &chosen)
            .await?
            .try_get::<_, i64>(0)?;
        let limit = i64::try_from(of.limit).unwrap_or(i64::MAX);
        let offset = int(of.offset);
        let page: Vec<&(dyn ToSql + Sync)> = chosen.into_iter().chain([&limit as _, &offset as _]).collect();
        let sql = format!(
            "SELECT {} {CHOSEN} ORDER BY seq DESC LIMIT $6 OFFSET $7",
            build_columns!()
        );
        let rows = session.query(&sql, &page).await?;
        let builds: Result<Vec<Build>, DatabaseError> = rows.iter().map(build_of).collect();
        Ok((builds?, total.cast_unsigned()))
    }

    /// Counts the unfinished builds, [`COUNTED_BUILDS_MAX`] at most.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn queue(&self) -> Result<QueueState, DatabaseError> {
        let session = self.database.session().await?;
        let sql = "SELECT COUNT(*) FILTER (WHERE status = 'pending') AS pending, \
                   COUNT(*) FILTER (WHERE status = 'building') AS building, \
                   GREATEST(now_ms() - MIN(created_ms) FILTER (WHERE status = 'pending'), 0) AS oldest_ms \
                   FROM (SELECT status, created_ms FROM build WHERE status IN ('pending', 'building') ORDER BY seq LIMIT $1) \
                   AS unfinished";
        let row = session.query_one(sql, &[&i64::from(COUNTED_BUILDS_MAX)]).await?;
        Ok(QueueState {
            pending: number(&row, "pending")?,
            building: number(&row, "building")?,
            oldest: Duration::from_millis(number(&row, "oldest_ms")?),
        })
    }

    /// Claims the oldest build that waits or whose lease has passed.
    ///
    /// # Errors
    /// [`DatabaseError`]; `uncertain` is set if the claim may have happened.
    pub async fn claim(
        &self,
        attempts_max: u32,
        lease: Duration,
        uncertain: &mut Option<UncertainClaim>,
    ) -> Result<Option<Claim>, DatabaseError> {
        let mut session = self.database.session().await?;
        let tx = session.transaction().await?;
        let sql = concat!(
            "SELECT ",
            build_columns!(),
            ", given_back FROM build WHERE status IN ('pending', 'building') AND (lease IS NULL OR lease < clock_timestamp()) \
             ORDER BY seq LIMIT 1 FOR UPDATE SKIP LOCKED"
        );
        let Some(row) = tx.query_opt(sql, &[]).await? else {
            return Ok(None);
        };
        let build = build_of(&row)?;
        let now_ms = now_ms(&tx).await?;
        let broken = |error: crate::proto::build::InvalidTransition| DatabaseError::Broken(error.to_string());
        let given_back = row.try_get::<_, i32>("given_back")?.cast_unsigned();
        let claim = lease::claim(&build, given_back, attempts_max, now_ms).map_err(broken)?;
        match &claim {
            Claim::Run { build: next, .. } => {
                let sql = "UPDATE build SET status = $2, attempt = $3, updated_ms = $4, started_ms = $5, \
                           lease = clock_timestamp() + make_interval(secs => $6) WHERE id = $1 RETURNING lease::TEXT";
                let (id, attempt) = (next.id.to_string(), attempt_of(next.attempt));
                let (updated_ms, started_ms) = (int(next.updated_ms), next.started_ms.map(int));
                let secs = lease.as_secs_f64();
                let row = tx
                    .query_one(
                        sql,
                        &[&id, &next.status.name(), &attempt, &updated_ms, &started_ms, &secs],
                    )
                    .await?;
                *uncertain = Some(UncertainClaim {
                    id: next.id,
                    attempt: next.attempt,
                    lease: row.try_get(0)?,
                });
            }
            Claim::Exhausted(ended) => {
                let sql = "INSERT INTO build_log (build, start, data) \
                           SELECT $1::TEXT, COALESCE(MAX(start + length(data)), 0), $2 FROM build_log WHERE build = $1";
                let line = format!("{OWN}{}\n", queue::EXHAUSTED);
                tx.execute(sql, &[&ended.id.to_string(), &line.as_bytes()]).await?;
                update_end(&tx, ended).await?;
            }
        }
        tx.commit().await?;
        *uncertain = None;
        Ok(Some(claim))
    }

    /// Renews the leases of runs, given by build and attempt. Returns the builds that are still
    /// theirs: one that was given back is not.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn renew(&self, runs: &[(Uuid, u32)], lease: Duration) -> Result<Vec<Uuid>, DatabaseError> {
        let session = self.database.session().await?;
        let sql = "UPDATE build SET lease = clock_timestamp() + make_interval(secs => $3) \
                   FROM unnest($1::TEXT[], $2::INTEGER[]) AS held (id, attempt) \
                   WHERE build.id = held.id AND build.attempt = held.attempt AND status = 'building' AND lease IS NOT NULL \
                   RETURNING build.id";
        let ids: Vec<String> = runs.iter().map(|(id, _)| id.to_string()).collect();
        let attempts: Vec<i32> = runs.iter().map(|(_, attempt)| attempt_of(*attempt)).collect();
        let rows = session.query(sql, &[&ids, &attempts, &lease.as_secs_f64()]).await?;
        rows.iter().map(|row| parsed(row, "id", Uuid::parse)).collect()
    }

    /// Gives a build of a run that was interrupted back, so that another worker takes it at once.
    /// Without `counts` the attempt is given back too, up to [`GIVEN_BACK_MAX`]. With a lease it
    /// has to be this one.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn give_back(
        &self,
        id: Uuid,
        attempt: u32,
        counts: bool,
        lease: Option<&str>,
    ) -> Result<(), DatabaseError> {
        let session = self.database.session().await?;
        // A repeated call finds no lease.
        let sql = "UPDATE build SET lease = NULL, given_back = LEAST(given_back + $3, $4) \
                   WHERE id = $1 AND attempt = $2 AND status = 'building' AND lease IS NOT NULL \
                   AND ($5::TEXT IS NULL OR lease::TEXT = $5)";
        let (id, attempt) = (id.to_string(), attempt_of(attempt));
        let (more, max) = (i32::from(!counts), attempt_of(GIVEN_BACK_MAX));
        session.execute(sql, &[&id, &attempt, &more, &max, &lease]).await?;
        session.execute("SELECT pg_notify($1, '')", &[&CHANNEL]).await?;
        Ok(())
    }

    /// Records the end of a run.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn record(&self, run: &Build, change: &BuildChange) -> Result<RecordedEnd, DatabaseError> {
        let mut session = self.database.session().await?;
        let tx = session.transaction().await?;
        let sql = concat!(
            "SELECT ",
            build_columns!(),
            " FROM build WHERE id = $1 AND attempt = $2 FOR UPDATE"
        );
        let row = tx
            .query_opt(sql, &[&run.id.to_string(), &attempt_of(run.attempt)])
            .await?;
        let Some(row) = row else {
            return Ok(RecordedEnd::Lost);
        };
        let now_ms = now_ms(&tx).await?;
        // Only this run ends this attempt, so an end that is there is that of an earlier call.
        if let Ok(ended) = build_of(&row)?.change(change.clone(), now_ms) {
            update_end(&tx, &ended).await?;
            tx.commit().await?;
        }
        Ok(RecordedEnd::Recorded)
    }

    /// Returns the time of the database.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn now_ms(&self) -> Result<u64, DatabaseError> {
        let session = self.database.session().await?;
        now_ms(&session).await
    }

    /// Returns a setting.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn setting(&self, name: &str) -> Result<Option<String>, DatabaseError> {
        let session = self.database.session().await?;
        let row = session
            .query_opt("SELECT value FROM setting WHERE name = $1", &[&name])
            .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Sets a setting.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn set(&self, name: &str, value: &str) -> Result<(), DatabaseError> {
        let session = self.database.session().await?;
        let sql = "INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2";
        session.execute(sql, &[&name, &value]).await?;
        Ok(())
    }

    /// Returns up to `max` builds that were inserted after the one with this number, oldest first,
    /// and the number of each.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn builds_after(&self, after: i64, max: usize) -> Result<Vec<(i64, Build)>, DatabaseError> {
        let session = self.database.session().await?;
        let sql = concat!(
            "SELECT seq, ",
            build_columns!(),
            " FROM build WHERE seq > $1 ORDER BY seq LIMIT $2"
        );
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let rows = session.query(sql, &[&after, &max]).await?;
        rows.iter()
            .map(|row| Ok((row.try_get("seq")?, build_of(row)?)))
            .collect()
    }

    /// Inserts a build of another service, unless it is there.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn import_build(&self, build: &Build) -> Result<(), DatabaseError> {
        let session = self.database.session().await?;
        insert_build(&session, build).await
    }

    /// Returns up to `max` builds that ended at `until_ms` or earlier, in any order.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn builds_ended_until(&self, until_ms: u64, max: usize) -> Result<Vec<Build>, DatabaseError> {
        let session = self.database.session().await?;
        let sql = concat!(
            "SELECT ",
            build_columns!(),
            " FROM build WHERE completed_ms <= $1 LIMIT $2"
        );
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let rows = session.query(sql, &[&int(until_ms), &max]).await?;
        rows.iter().map(build_of).collect()
    }
}

/// Records the archive of an upload.
async fn pin(tx: &impl Statements, upload: &str, archive: &PinnedArchive) -> Result<(), DatabaseError> {
    let sql = "UPDATE upload SET etag = $2, size = $3, md5 = $4, sha256 = $5 WHERE id = $1";
    let (size, md5, sha256) = (int(archive.info.size), &archive.info.md5[..], &archive.info.sha256[..]);
    tx.execute(sql, &[&upload, &archive.etag, &size, &md5, &sha256]).await?;
    Ok(())
}

/// Inserts a build that is not there.
async fn insert_build(client: &impl Statements, build: &Build) -> Result<(), DatabaseError> {
    let sql = concat!(
        "INSERT INTO build (",
        build_columns!(),
        ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20) \
         ON CONFLICT (id) DO NOTHING"
    );
    let (id, upload, size) = (build.id.to_string(), build.upload.to_string(), int(build.size));
    let (created_ms, updated_ms) = (int(build.created_ms), int(build.updated_ms));
    let (started_ms, completed_ms) = (build.started_ms.map(int), build.completed_ms.map(int));
    let (uri, name, image_size) = image_columns(build);
    let sha256 = build.sha256.as_ref().map(|sha256| &sha256[..]);
    let key = build.key.as_ref().map(|key| &key[..]);
    let values: [&(dyn ToSql + Sync); 20] = [
        &id,
        &build.org.as_str(),
        &upload,
        &build.region.as_str(),
        &build.hash,
        &build.file,
        &size,
        &build.base,
        &build.status.name(),
        &attempt_of(build.attempt),
        &created_ms,
        &updated_ms,
        &started_ms,
        &completed_ms,
        &uri,
        &name,
        &image_size,
        &error_column(build),
        &sha256,
        &key,
    ];
    client.execute(sql, &values).await?;
    Ok(())
}

/// Returns where the image is, its name if the service keeps it, and its size.
fn image_columns(build: &Build) -> (Option<&String>, Option<&String>, Option<i64>) {
    let (uri, name) = match build.image.as_ref().map(|image| &image.location) {
        None => (None, None),
        Some(ImageLocation::Uri(uri)) => (Some(uri), None),
        Some(ImageLocation::Stored(name)) => (None, Some(name)),
    };
    (uri, name, build.image.as_ref().map(|image| int(image.size)))
}

/// Returns why a build failed, without the NUL that a command may print and PostgreSQL refuses.
fn error_column(build: &Build) -> Option<String> {
    build.error.as_ref().map(|error| error.replace('\0', "\u{fffd}"))
}

/// Writes the end of a build, which the caller has locked.
async fn update_end(tx: &impl Statements, ended: &Build) -> Result<(), DatabaseError> {
    let sql = "UPDATE build SET status = $2, updated_ms = $3, completed_ms = $4, image_uri = $5, image_name = $6, \
               image_size = $7, error = $8, lease = NULL WHERE id = $1";
    let (uri, name, size) = image_columns(ended);
    let (updated_ms, completed_ms) = (int(ended.updated_ms), ended.completed_ms.map(int));
    let id = ended.id.to_string();
    let values: [&(dyn ToSql + Sync); 8] = [
        &id,
        &ended.status.name(),
        &updated_ms,
        &completed_ms,
        &uri,
        &name,
        &size,
        &error_column(ended),
    ];
    tx.execute(sql, &values).await?;
    let sql = "UPDATE upload SET ended_ms = GREATEST(ended_ms, $2) WHERE id = $1";
    tx.execute(sql, &[&ended.upload.to_string(), &completed_ms]).await?;
    Ok(())
}

/// Reads the columns of `build_columns`.
fn build_of(row: &Row) -> Result<Build, DatabaseError> {
    let location = match (row.try_get("image_uri")?, row.try_get("image_name")?) {
        (Some(uri), _) => Some(ImageLocation::Uri(uri)),
        (None, Some(name)) => Some(ImageLocation::Stored(name)),
        (None, None) => None,
    };
    let size = optional_number(row, "image_size")?;
    Ok(Build {
        id: parsed(row, "id", Uuid::parse)?,
        org: parsed(row, "org", Slug::parse)?,
        upload: parsed(row, "upload", Uuid::parse)?,
        region: parsed(row, "region", Slug::parse)?,
        hash: row.try_get("hash")?,
        file: row.try_get("file")?,
        size: number(row, "size")?,
        base: row.try_get("base")?,
        status: parsed(row, "status", BuildStatus::from_name)?,
        attempt: row.try_get::<_, i32>("attempt")?.cast_unsigned(),
        created_ms: number(row, "created_ms")?,
        updated_ms: number(row, "updated_ms")?,
        started_ms: optional_number(row, "started_ms")?,
        completed_ms: optional_number(row, "completed_ms")?,
        image: location.zip(size).map(|(location, size)| Image { location, size }),
        error: row.try_get("error")?,
        sha256: optional_digest(row, "sha256")?,
        key: optional_digest(row, "key")?,
    })
}

/// Reads the columns of `upload_columns`.
fn upload_of(row: &Row) -> Result<SharedUpload, DatabaseError> {
    let archive = match row.try_get::<_, Option<String>>("etag")? {
        None => None,
        Some(etag) => Some(PinnedArchive {
            etag,
            info: ArchiveInfo {
                size: number(row, "size")?,
                md5: digest(row, "md5")?,
                sha256: digest(row, "sha256")?,
                inode: 0,
                modified_ns: 0,
            },
        }),
    };
    Ok(SharedUpload {
        record: UploadRecord {
            id: parsed(row, "id", Uuid::parse)?,
            org: parsed(row, "org", Slug::parse)?,
            region: parsed(row, "region", Slug::parse)?,
            expires_ms: number(row, "expires_ms")?,
            sealed: archive.is_some(),
            key: optional_digest(row, "key")?,
            info: archive.as_ref().map(|archive| archive.info),
        },
        archive,
    })
}

pub(super) fn number(row: &Row, column: &str) -> Result<u64, DatabaseError> {
    Ok(row.try_get::<_, i64>(column)?.cast_unsigned())
}

pub(super) fn optional_number(row: &Row, column: &str) -> Result<Option<u64>, DatabaseError> {
    Ok(row.try_get::<_, Option<i64>>(column)?.map(i64::cast_unsigned))
}

/// Parses a text column. An invalid text was not written by this program.
pub(super) fn parsed<T>(row: &Row, column: &str, read: fn(&str) -> Option<T>) -> Result<T, DatabaseError> {
    let text: &str = row.try_get(column)?;
    read(text).ok_or_else(|| foreign(column))
}

pub(super) fn digest<const BYTES: usize>(row: &Row, column: &str) -> Result<[u8; BYTES], DatabaseError> {
    optional_digest(row, column)?.ok_or_else(|| foreign(column))
}

fn optional_digest<const BYTES: usize>(row: &Row, column: &str) -> Result<Option<[u8; BYTES]>, DatabaseError> {
    let bytes: Option<&[u8]> = row.try_get(column)?;
    bytes
        .map(|bytes| bytes.try_into().map_err(|_| foreign(column)))
        .transpose()
}

fn foreign(column: &str) -> DatabaseError {
    DatabaseError::Broken(format!(
        "the column `{column}` has a value that this program does not write"
    ))
}
