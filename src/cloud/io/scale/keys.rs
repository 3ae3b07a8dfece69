//! Keys in the database: the changes of `cloud keys --database`.

use serde_json::json;

use super::ScaleError;
use super::database::Database;
use super::migrate;
use super::records::SharedRecords;
use crate::config::KeysTask;
use crate::io::keys::line;
use crate::proto::keys::{self, KeyFileError, StoredKey};
use crate::proto::scale::database_url::DatabaseUrl;
use edge_runner_http::common::random;

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
