//! Storage of keys and of the signing secret.
//!
//! In: the data directory, and keys from variables. Out: owners of keys according to the current
//! `keys.json`, and the changes of `cloud keys`, which use a lock of their own and work while the
//! service runs. Only `first-keys.json` contains keys in clear; it is created when there is no key
//! at all. Files have mode 0600. Damaged files are errors that name the path, and stay as they are.
//! Source: decisions I-03, I-05.

use std::cell::OnceCell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data_encoding::BASE64URL_NOPAD;
use serde_json::json;

use super::reloading_file::{ReloadError, ReloadingFile};
use crate::config::KeysTask;
use crate::limits::KEY_BYTES;
use crate::proto::build::Org;
use crate::proto::keys::EnvKey;
use crate::proto::keys::{self, KeyFileError, KeyHolder, KeyKind, KeyNameError, KeySet, Sha256Digest, StoredKey};
use edge_runner_http::common::{random, unix_time_ms};
use edge_runner_http::store::{Store, StoreLock, StoredFile};
use edge_runner_proto::config::Secret;
use edge_runner_proto::server::key::bearer;
use hyper::header::{self, HeaderMap};

/// Digests of keys.
const KEYS: &str = "keys.json";
/// Lock for changes of the keys.
const LOCK: &str = "keys.lock";
/// The two keys that a service created for itself.
const FIRST: &str = "first-keys.json";
/// The secret from which daily signing keys are derived.
const SECRET: &str = "store.secret";

/// Why the keys or the signing secret cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("{}: there is no such data directory", .0.display())]
    NoDataDir(PathBuf),
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    /// Another process holds the lock for too long.
    #[error("{}: another process changes the keys, and does not finish", .0.display())]
    Locked(PathBuf),
    #[error("{}: {source}", .path.display())]
    Invalid { path: PathBuf, source: KeyFileError },
    #[error(transparent)]
    Reload(#[from] ReloadError),
    #[error(transparent)]
    Name(#[from] KeyNameError),
    /// No key has the id to revoke.
    #[error(transparent)]
    Unknown(KeyFileError),
    #[error(
        "{}: it is damaged: 43 characters of base64url are to be in it; without the file a new one is made, and grants end",
        .0.display()
    )]
    DamagedSecret(PathBuf),
}

/// The keys of a running service.
pub struct KeyStore {
    file: ReloadingFile<KeySet>,
    /// The keys of variables alone, for use while the file is unusable.
    variables: KeySet,
}

impl KeyStore {
    /// Combines keys from variables with those of the data directory.
    pub fn new(folder: &Path, variables: Vec<EnvKey>) -> KeyStore {
        KeyStore {
            variables: KeySet::new(&variables, &[]),
            file: ReloadingFile::new(folder.join(KEYS), move |text| {
                let kept = text.map_or(Ok(Vec::new()), keys::parse_file)?;
                Ok(KeySet::new(&variables, &kept))
            }),
        }
    }

    /// Returns the owner of a key.
    ///
    /// # Errors
    /// [`ReloadError`] if the file is unusable and no variable has the key.
    pub fn find(&self, key: &str) -> Result<Option<KeyHolder>, ReloadError> {
        self.snapshot().find(key)
    }

    /// Tells whether the key with this digest still opens the private surface of an organization.
    ///
    /// # Errors
    /// [`ReloadError`] if the file is unusable and no variable has the key.
    pub fn grants_access(&self, hash: &Sha256Digest, org: &Org) -> Result<bool, ReloadError> {
        match self.file.load() {
            Ok(set) => Ok(set.grants_access(hash, org)),
            Err(reason) => match self.variables.grants_access(hash, org) {
                true => Ok(true),
                false => Err(reason),
            },
        }
    }

    /// Returns a view of the keys for one request, which reads the file at most once.
    pub fn snapshot(&self) -> KeySnapshot<'_> {
        KeySnapshot(KeySource::File {
            keys: self,
            seen: OnceCell::new(),
        })
    }

    /// Creates two keys if there is none. Returns the file that contains them.
    ///
    /// # Errors
    /// [`KeysError`].
    pub fn create_first_keys(&self, folder: &Path, org: &Org) -> Result<Option<PathBuf>, KeysError> {
        let set = self.file.load()?;
        if !set.is_empty() {
            return Ok(None);
        }
        let file = KeyFile::open(folder)?;
        let _lock = file.lock()?;
        let mut kept = file.read()?;
        let mut make = |kind| add(&mut kept, kind, org, Some("first".into()));
        let (private, public) = (make(KeyKind::Private)?, make(KeyKind::Public)?);
        // This file first: a digest without its key is useless.
        let first = format!(
            "{:#}\n",
            json!({"private": private.expose(), "public": public.expose()})
        );
        file.write(FIRST, first.as_bytes())?;
        file.write(KEYS, keys::encode_file(&kept).as_bytes())?;
        Ok(Some(file.store.path(FIRST)))
    }
}

/// The keys as of the first lookup.
pub struct KeySnapshot<'k>(KeySource<'k>);

enum KeySource<'k> {
    File {
        keys: &'k KeyStore,
        seen: OnceCell<Result<Arc<KeySet>, ReloadError>>,
    },
    /// Those that a request may have.
    Known(KeySet),
}

impl KeySnapshot<'_> {
    /// Returns a view of these keys alone.
    pub fn of(known: KeySet) -> KeySnapshot<'static> {
        KeySnapshot(KeySource::Known(known))
    }

    /// Returns the owner of a key.
    ///
    /// # Errors
    /// [`ReloadError`] if the file is unusable and no variable has the key.
    pub fn find(&self, key: &str) -> Result<Option<KeyHolder>, ReloadError> {
        // A key of another length cannot match.
        if !KEY_BYTES.contains(&key.len()) {
            return Ok(None);
        }
        let (keys, seen) = match &self.0 {
            KeySource::File { keys, seen } => (keys, seen),
            KeySource::Known(known) => return Ok(known.find(key).cloned()),
        };
        match seen.get_or_init(|| keys.file.load()) {
            Ok(set) => Ok(set.find(key).cloned()),
            Err(reason) => keys
                .variables
                .find(key)
                .cloned()
                .map(Some)
                .ok_or_else(|| reason.clone()),
        }
    }
}

/// Generates a key and adds its entry.
fn add(kept: &mut Vec<StoredKey>, kind: KeyKind, org: &Org, name: Option<String>) -> Result<Secret, KeysError> {
    loop {
        let key = kind.generate(random());
        let new = StoredKey::new(&key, kind, org.clone(), name.clone(), unix_time_ms());
        // Retries if the short id is taken.
        if keys::add(kept, new).map_err(|source| invalid(KEYS.into(), source))? {
            return Ok(key);
        }
    }
}

/// Performs a `cloud keys` command on a data directory and returns its output.
///
/// # Errors
/// [`KeysError`].
pub fn edit(data_dir: &Path, task: &KeysTask) -> Result<String, KeysError> {
    // A typo in the path must not create a directory.
    if !matches!(task, KeysTask::Create { .. }) && !data_dir.is_dir() {
        return Err(KeysError::NoDataDir(data_dir.to_owned()));
    }
    let file = KeyFile::open(data_dir)?;
    match task {
        KeysTask::Create { kind, org, name } => {
            name.as_deref().map_or(Ok(()), keys::validate_name)?;
            let _lock = file.lock()?;
            let mut kept = file.read()?;
            let key = add(&mut kept, *kind, org, name.clone())?;
            file.write(KEYS, keys::encode_file(&kept).as_bytes())?;
            Ok(format!("{}\n", key.expose()))
        }
        KeysTask::List { json } => {
            let kept = file.read()?;
            match json {
                true => {
                    let shown: Vec<_> = kept.iter().map(StoredKey::json).collect();
                    Ok(format!("{}\n", json!({"keys": shown})))
                }
                false => Ok(kept.iter().map(line).collect()),
            }
        }
        KeysTask::Revoke(id) => {
            let _lock = file.lock()?;
            let mut kept = file.read()?;
            let gone = keys::revoke(&mut kept, id).map_err(KeysError::Unknown)?;
            file.write(KEYS, keys::encode_file(&kept).as_bytes())?;
            Ok(format!("revoked {}", line(&gone)))
        }
    }
}

/// Returns the keys of a data directory.
///
/// # Errors
/// [`KeysError`].
pub fn stored(data_dir: &Path) -> Result<Vec<StoredKey>, KeysError> {
    KeyFile::open(data_dir)?.read()
}

/// Writes keys to a data directory that has none.
///
/// # Errors
/// [`KeysError`], also for more keys than the file may have.
pub fn store(data_dir: &Path, all: &[StoredKey]) -> Result<(), KeysError> {
    let file = KeyFile::open(data_dir)?;
    let _lock = file.lock()?;
    let mut kept = file.read()?;
    for key in all {
        keys::add(&mut kept, key.clone()).map_err(|source| invalid(file.store.path(KEYS), source))?;
    }
    file.write(KEYS, keys::encode_file(&kept).as_bytes())
}

/// Returns the key in the only `Authorization` header.
pub fn key_in(headers: &HeaderMap) -> Option<&str> {
    let mut authorizations = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(only), None) = (authorizations.next(), authorizations.next()) else {
        return None;
    };
    bearer(only.as_bytes()).and_then(|key| std::str::from_utf8(key).ok())
}

/// Formats a key as a line of a table.
pub(super) fn line(kept: &StoredKey) -> String {
    let json = kept.json();
    let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
    let columns = [text("id"), text("type"), text("org"), text("createdAt"), text("name")];
    format!("{}\n", columns.join("  ").trim_end())
}

/// `keys.json` in its data directory.
struct KeyFile {
    store: Store,
}

impl KeyFile {
    fn open(folder: &Path) -> Result<KeyFile, KeysError> {
        let store = Store::open(folder).map_err(|source| KeysError::Io {
            path: folder.to_owned(),
            source,
        })?;
        Ok(KeyFile { store })
    }

    /// Returns an I/O error of a file in the data directory.
    fn io_error(&self, name: &str, source: io::Error) -> KeysError {
        let path = self.store.path(name);
        KeysError::Io { path, source }
    }

    fn lock(&self) -> Result<StoreLock, KeysError> {
        self.store.lock_named(LOCK).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => KeysError::Locked(self.store.path(LOCK)),
            _ => self.io_error(LOCK, error),
        })
    }

    fn read(&self) -> Result<Vec<StoredKey>, KeysError> {
        match self.store.read(KEYS).map_err(|error| self.io_error(KEYS, error))? {
            Some(StoredFile { text, .. }) => {
                keys::parse_file(&text).map_err(|source| invalid(self.store.path(KEYS), source))
            }
            None => Ok(Vec::new()),
        }
    }

    fn write(&self, name: &str, text: &[u8]) -> Result<(), KeysError> {
        self.store.write(name, text).map_err(|error| self.io_error(name, error))
    }
}

fn invalid(path: PathBuf, source: KeyFileError) -> KeysError {
    KeysError::Invalid { path, source }
}

/// Reads or creates the secret for daily signing keys. The caller holds the lock of the data
/// directory.
///
/// # Errors
/// [`KeysError`].
pub fn store_secret(folder: &Path) -> Result<[u8; 32], KeysError> {
    let file = KeyFile::open(folder)?;
    let found = file.store.read(SECRET).map_err(|error| file.io_error(SECRET, error))?;
    let Some(found) = found else {
        let secret: [u8; 32] = random();
        file.write(SECRET, format!("{}\n", BASE64URL_NOPAD.encode(&secret)).as_bytes())?;
        return Ok(secret);
    };
    if found.exposed_mode.is_some() {
        let closed = file.store.restrict_to_owner(SECRET);
        closed.map_err(|error| file.io_error(SECRET, error))?;
        log::warn!(
            "{}: others could read this; they no longer can",
            file.store.path(SECRET).display()
        );
    }
    let secret = BASE64URL_NOPAD.decode(found.text.trim_ascii()).ok();
    let secret = secret.and_then(|bytes| bytes.try_into().ok());
    secret.ok_or_else(|| KeysError::DamagedSecret(file.store.path(SECRET)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use serde_json::Value;

    use super::*;
    use edge_runner_http::testing::TempDir;

    fn org() -> Org {
        Org::parse("acme").expect("a name")
    }

    fn edit_in(folder: &TempDir, task: KeysTask) -> Result<String, String> {
        edit(&folder.0, &task).map_err(|error| error.to_string())
    }

    fn create(folder: &TempDir, kind: KeyKind) -> String {
        let name = Some("laptop".into());
        let task = KeysTask::Create { kind, org: org(), name };
        edit_in(folder, task).expect("a key").trim_end().to_owned()
    }

    /// I-03: a running service sees created and revoked keys.
    #[test]
    fn a_running_service_sees_new_and_revoked_keys() {
        let folder = TempDir::new();
        let keys = KeyStore::new(&folder.0, Vec::new());
        let key = create(&folder, KeyKind::Private);
        let holder = keys.find(&key).expect("readable").expect("known");
        assert_eq!((holder.kind, &holder.org), (KeyKind::Private, &org()));
        assert_eq!(keys.grants_access(&holder.hash, &org()), Ok(true));
        assert_eq!(
            keys.grants_access(&holder.hash, &Org::parse("other").expect("a name")),
            Ok(false)
        );
        let listed: Value = serde_json::from_str(&edit_in(&folder, KeysTask::List { json: true }).expect("a list"))
            .expect("one object");
        let id = listed["keys"][0]["id"].as_str().expect("an id").to_owned();
        assert_eq!(listed["keys"][0]["name"], "laptop");
        let lines = edit_in(&folder, KeysTask::List { json: false }).expect("lines");
        assert!(
            lines.starts_with(&format!("{id}  private  acme  20")) && lines.ends_with("Z  laptop\n"),
            "{lines}"
        );
        let message = edit_in(&folder, KeysTask::Revoke(id.clone())).expect("it is there");
        assert!(message.starts_with(&format!("revoked {id}")), "{message}");
        assert_eq!(keys.find(&key), Ok(None));
        assert_eq!(keys.grants_access(&holder.hash, &org()), Ok(false));
        assert!(edit_in(&folder, KeysTask::Revoke(id)).is_err());
        assert_eq!(edit_in(&folder, KeysTask::List { json: false }), Ok(String::new()));
    }

    /// A request sees one state of the keys.
    #[test]
    fn a_request_reads_the_keys_once() {
        let folder = TempDir::new();
        let keys = KeyStore::new(&folder.0, Vec::new());
        let key = create(&folder, KeyKind::Private);
        let once = keys.snapshot();
        assert!(once.find(&key).expect("readable").is_some());
        fs::write(folder.path(KEYS), "{").expect("written");
        assert!(once.find(&key).expect("it was readable").is_some());
        assert!(keys.find(&key).is_err());
    }

    /// I-03: the first two keys are created once, and only their digests are stored in `keys.json`.
    #[test]
    fn the_first_keys_are_made_once() {
        let folder = TempDir::new();
        let keys = KeyStore::new(&folder.0, Vec::new());
        let path = keys
            .create_first_keys(&folder.0, &org())
            .expect("made")
            .expect("none was there");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        let first: Value = serde_json::from_slice(&fs::read(&path).expect("there")).expect("JSON");
        for kind in KeyKind::ALL {
            let key = first[kind.name()].as_str().expect("a key");
            assert_eq!(keys.find(key).expect("readable").expect("known").kind, kind);
            assert!(!fs::read_to_string(folder.path(KEYS)).expect("there").contains(key));
        }
        assert_eq!(fs::metadata(folder.path(KEYS)).expect("there").mode() & 0o777, 0o600);
        assert_eq!(keys.create_first_keys(&folder.0, &org()).expect("readable"), None);
    }

    /// I-03: keys from variables work while the file is damaged, and other keys are an internal
    /// error, not 401.
    #[test]
    fn a_damaged_file_is_not_changed() {
        let folder = TempDir::new();
        let said = EnvKey {
            kind: KeyKind::Private,
            org: org(),
            key: Secret::new("0123456789abcdef"),
        };
        let keys = KeyStore::new(&folder.0, vec![said]);
        assert_eq!(keys.create_first_keys(&folder.0, &org()).expect("readable"), None);
        fs::write(folder.path(KEYS), "{").expect("written");
        assert!(keys.find("0123456789abcdef").expect("a variable's").is_some());
        assert!(
            keys.find("fedcba9876543210")
                .expect_err("unknown")
                .to_string()
                .contains("keys.json")
        );
        assert!(edit_in(&folder, KeysTask::List { json: true }).is_err());
        assert_eq!(fs::read(folder.path(KEYS)).expect("there"), b"{");
    }

    /// I-05: the secret is created once with mode 0600; a damaged one is an error.
    #[test]
    fn the_secret_is_created_once() {
        let folder = TempDir::new();
        let secret = store_secret(&folder.0).expect("made");
        assert_ne!(secret, [0; 32]);
        assert_eq!(store_secret(&folder.0).expect("readable"), secret);
        let path = folder.path(SECRET);
        let mode = || fs::metadata(&path).expect("there").mode() & 0o777;
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("ours");
        assert_eq!(store_secret(&folder.0).expect("readable"), secret);
        assert_eq!(mode(), 0o600);
        fs::write(&path, "short").expect("written");
        let damaged = store_secret(&folder.0).expect_err("damaged");
        assert!(damaged.to_string().contains("store.secret"));
    }
}
