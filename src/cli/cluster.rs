//! The options of a replica behind a balancer.
//!
//! In: `--cluster-key-file`, `--replica-name` and the text of that file. Out: a [`ClusterConfig`],
//! or `None` without the key. No error contains the key.

use super::flags::LowArgs;
use super::{Env, UsageError};
use crate::config::{ClusterConfig, Secret};
use crate::limits::{CLUSTER_KEY_BYTES, REPLICA_NAME_BYTES_MAX};
use crate::proto::http::cluster::{ClusterKey, is_replica_name};

/// Resolves the options of a replica.
///
/// # Errors
/// [`UsageError`] for a file that cannot be read, a weak key, an invalid name, and a name without a
/// key.
pub(super) fn cluster(args: &LowArgs, env: &Env<'_>) -> Result<Option<ClusterConfig>, UsageError> {
    let name = args.replica_name.as_deref();
    let Some(file) = &args.cluster_key_file else {
        return match name {
            None => Ok(None),
            Some(_) => Err(UsageError::Combination(
                "`--replica-name` names a replica of a cluster, which needs `--cluster-key-file FILE`".into(),
            )),
        };
    };
    if let Some(name) = name.filter(|name| !is_replica_name(name)) {
        let wants = format!("1 to {REPLICA_NAME_BYTES_MAX} letters, digits, `-` and `_`");
        return Err(UsageError::value("--replica-name", name, wants));
    }
    let text = env.read_text(file).map_err(|error| {
        UsageError::Combination(format!("`--cluster-key-file`: reading the file that it names: {error}"))
    })?;
    let key = text.lines().next().unwrap_or_default().trim();
    if !CLUSTER_KEY_BYTES.contains(&key.len()) || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(UsageError::redacted(
            "--cluster-key-file",
            format!(
                "a file whose first line has {} to {} visible ASCII characters; `openssl rand -hex 32` makes one",
                CLUSTER_KEY_BYTES.start(),
                CLUSTER_KEY_BYTES.end()
            ),
        ));
    }
    Ok(Some(ClusterConfig {
        key: ClusterKey::new(Secret::new(key)),
        key_file: file.into(),
        replica_name: name.map(str::to_owned),
    }))
}
