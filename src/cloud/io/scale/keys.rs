//! Keys in the database: the changes of `cloud keys --database`, and their statements.

use serde_json::json;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::ScaleError;
use super::database::{Database, DatabaseError, Statements as _};
use super::migrate;
use super::records::{SharedRecords, digest, int, number, parsed};
use crate::config::KeysTask;
use crate::io::keys::line;
use crate::proto::build::Slug;
use crate::proto::keys::{self, KeyFileError, KeyKind, Sha256Digest, StoredKey};
use crate::proto::scale::database_url::DatabaseUrl;
use edge_runner_http::common::random;

/// Keys that `cloud keys list` shows.
const KEYS_SHOWN_MAX: i64 = 10_000;

/// Performs a `cloud keys` command and returns its output.
///
/// # Errors
/// [`ScaleError`].
pub async fn edit(url: &DatabaseUrl, task: &KeysTask) -> Result<String, ScaleError> {
    let database = Database::open(url).await?;
    migrate::check(&database).await?;
    let records = SharedRecords { database };
    match task {
        KeysTask::Create { kind, org, name } => {
            name.as_deref().map_or(Ok(()), keys::validate_name)?;
            loop {
                let key = kind.generate(random());
                let stored = StoredKey::new(&key, *kind, org.clone(), name.clone(), 0);
                // Retries if the short id is taken.
                if records.insert_key(&stored).await? {
                    return Ok(format!("{}\n", key.expose()));
                }
            }
        }
        KeysTask::List { json: in_json } => {
            let stored = records.keys().await?;
            match in_json {
                true => {
                    let shown: Vec<_> = stored.iter().map(StoredKey::json).collect();
                    Ok(format!("{}\n", json!({"keys": shown})))
                }
                false => Ok(stored.iter().map(line).collect()),
            }
        }
        KeysTask::Revoke(id) => match records.delete_key(id).await? {
            Some(gone) => Ok(format!("revoked {}", line(&gone))),
            None => Err(ScaleError::UnknownKey(KeyFileError::unknown(id))),
        },
    }
}

/// The statements of keys.
impl SharedRecords {
    /// Returns a key by its digest.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn key(&self, sha256: &Sha256Digest) -> Result<Option<StoredKey>, DatabaseError> {
        let session = self.database.session().await?;
        let sql = "SELECT id, type, org, name, created_ms, sha256 FROM api_key WHERE sha256 = $1";
        let row = session.query_opt(sql, &[&&sha256[..]]).await?;
        row.map(|row| key_of(&row)).transpose()
    }

    /// Inserts a key; without a time, with that of the database. Returns `false` if its id is
    /// taken.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn insert_key(&self, key: &StoredKey) -> Result<bool, DatabaseError> {
        let session = self.database.session().await?;
        let sql = "INSERT INTO api_key (sha256, id, type, org, name, created_ms) VALUES ($1, $2, $3, $4, $5, COALESCE(NULLIF($6::BIGINT, 0), now_ms())) \
                   ON CONFLICT DO NOTHING";
        let (sha256, created_ms) = (&key.hash[..], int(key.created_ms));
        let values: [&(dyn ToSql + Sync); 6] = [
            &sha256,
            &key.id,
            &key.kind.name(),
            &key.org.as_str(),
            &key.name,
            &created_ms,
        ];
        let inserted = session.execute(sql, &values).await?;
        Ok(inserted == 1)
    }

    /// Returns the keys, oldest first.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn keys(&self) -> Result<Vec<StoredKey>, DatabaseError> {
        let session = self.database.session().await?;
        let sql = "SELECT id, type, org, name, created_ms, sha256 FROM api_key ORDER BY created_ms, id LIMIT $1";
        let rows = session.query(sql, &[&KEYS_SHOWN_MAX]).await?;
        rows.iter().map(key_of).collect()
    }

    /// Deletes the key with this id, and returns it.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn delete_key(&self, id: &str) -> Result<Option<StoredKey>, DatabaseError> {
        let session = self.database.session().await?;
        let sql = "DELETE FROM api_key WHERE id = $1 RETURNING id, type, org, name, created_ms, sha256";
        let row = session.query_opt(sql, &[&id]).await?;
        row.map(|row| key_of(&row)).transpose()
    }
}

fn key_of(row: &Row) -> Result<StoredKey, DatabaseError> {
    Ok(StoredKey {
        id: row.try_get("id")?,
        kind: parsed(row, "type", KeyKind::from_name)?,
        org: parsed(row, "org", Slug::parse)?,
        name: row.try_get("name")?,
        created_ms: number(row, "created_ms")?,
        hash: digest(row, "sha256")?,
    })
}
