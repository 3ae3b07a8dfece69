//! The schema of the database, and its changes from release to release.
//!
//! In: a database. Out: one with the present schema, or an error that says what to do. Each step is
//! a file and one transaction, under a lock, so that several callers follow each other. Steps only
//! add to the schema, so that replicas of the release before go on meanwhile; a replica serves with
//! its own version and with the next one. A step waits for what replicas do with its tables.

use std::time::Duration;

use tokio::time::sleep;

use super::database::{Database, DatabaseError, Statements};

/// The steps; the first one makes version 1.
const STEPS: [&str; 2] = [include_str!("migrations/1.sql"), include_str!("migrations/2.sql")];

/// The version of this release.
pub const VERSION: i32 = STEPS.len() as i32;

/// The advisory lock of a migration.
const LOCK: i64 = 0x4552_4343_0000;

/// How long a step waits for a table. Requests wait behind it, and those that have another table of
/// the step form a deadlock with it, for which PostgreSQL looks after a second: until then the step
/// has ended, so that no request fails.
const TABLE_WAIT: &str = "SET LOCAL lock_timeout = '500ms'";

/// How often a step is tried, and the time between two tries.
const TRIES: u32 = 60;
const AGAIN: Duration = Duration::from_secs(1);

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(
        "the database has no records of builds, or those of an older release: run `edge-runner cloud migrate` first"
    )]
    Old,
    #[error("the database is of version {found}, which a later release made; this one knows {VERSION}")]
    Later { found: i32 },
}

/// Returns the version of the schema; 0 in an empty database.
///
/// # Errors
/// [`DatabaseError`].
async fn version(client: &impl Statements) -> Result<i32, DatabaseError> {
    let exists = client.query_one("SELECT to_regclass('schema_version') IS NOT NULL", &[]);
    if !exists.await?.try_get::<_, bool>(0)? {
        return Ok(0);
    }
    let row = client.query_opt("SELECT version FROM schema_version", &[]).await?;
    Ok(row.map_or(Ok(0), |row| row.try_get(0))?)
}

/// Checks that this release can use the database.
///
/// # Errors
/// [`SchemaError`].
pub async fn check(database: &Database) -> Result<(), SchemaError> {
    let session = database.session().await?;
    match version(&session).await? {
        found if found < VERSION => Err(SchemaError::Old),
        found if found > VERSION + 1 => Err(SchemaError::Later { found }),
        _ => Ok(()),
    }
}

/// Brings the schema to the version of this release. Returns the version before.
///
/// # Errors
/// [`SchemaError`]; the steps that were done stay done.
pub async fn migrate(database: &Database) -> Result<i32, SchemaError> {
    let mut session = database.session().await?;
    // Another caller may hold the lock for as long as its steps take.
    session.without_limit().await?;
    let (mut before, mut tries) = (None, 0);
    loop {
        let tx = session.transaction().await?;
        tx.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
        let found = version(&tx).await?;
        let before = *before.get_or_insert(found);
        let step = usize::try_from(found).ok().and_then(|found| STEPS.get(found));
        let Some(step) = step else {
            tx.commit().await?;
            session.close();
            return if found > VERSION {
                Err(SchemaError::Later { found })
            } else {
                Ok(before)
            };
        };
        let next = found + 1;
        let sql = format!(
            "{TABLE_WAIT}; CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL); DELETE FROM schema_version; \
             INSERT INTO schema_version VALUES ({next}); {step}"
        );
        let done = match tx.batch_execute(&sql).await {
            Ok(()) => tx.commit().await,
            failed => failed,
        };
        tries += 1;
        match done {
            Err(DatabaseError::Unavailable(reason)) if tries < TRIES => {
                log::warn!("the step to version {next}: {reason}; retrying");
                sleep(AGAIN).await;
            }
            done => done?,
        }
    }
}
