//! API keys: format, hashes, and the file `keys.json`.
//!
//! In: keys from variables, the text of `keys.json`, random bytes. Out: a [`KeySet`], which stores
//! the SHA-256 of each key only, and the new text of the file. Lookup by hash leaks nothing useful
//! through timing. Source: decision I-03.

use std::collections::HashMap;
use std::fmt;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::limits::{KEY_BYTES, KEY_NAME_CHARS_MAX, KEYS_MAX};
use crate::proto::name::Org;
use edge_runner_proto::config::Secret;
use edge_runner_proto::time;

/// Bytes of the prefix (`sk_` or `pk_`), and base64url characters after it (256 bits).
const PREFIX_BYTES: usize = 3;
const KEY_CHARS: usize = 43;

/// The API surface that a key opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    Private,
    Public,
}

impl KeyKind {
    pub const ALL: [KeyKind; 2] = [KeyKind::Private, KeyKind::Public];

    /// Returns the name in options and in `keys.json`.
    pub fn name(self) -> &'static str {
        match self {
            KeyKind::Private => "private",
            KeyKind::Public => "public",
        }
    }

    /// Returns the kind with this name.
    pub fn from_name(name: &str) -> Option<KeyKind> {
        KeyKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the prefix of generated keys.
    fn prefix(self) -> &'static str {
        match self {
            KeyKind::Private => "sk_",
            KeyKind::Public => "pk_",
        }
    }

    /// Generates a key of 256 random bits.
    pub fn generate(self, random: [u8; 32]) -> Secret {
        Secret::new(format!("{}{}", self.prefix(), BASE64URL_NOPAD.encode(&random)))
    }
}

/// Tells whether a text contains something that looks like a generated key.
pub fn contains_key(text: &str) -> bool {
    let is_key = |at: usize| {
        let rest = text.as_bytes().get(at + PREFIX_BYTES..at + PREFIX_BYTES + KEY_CHARS);
        rest.is_some_and(|rest| {
            rest.iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte))
        })
    };
    let mut prefixes = KeyKind::ALL
        .into_iter()
        .flat_map(|kind| text.match_indices(kind.prefix()));
    prefixes.any(|(at, _)| is_key(at))
}

/// A SHA-256 digest.
pub type Sha256Digest = [u8; 32];

/// Returns the digest under which a key is stored.
pub fn hash(key: &str) -> Sha256Digest {
    Sha256::digest(key).into()
}

/// The owner of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHolder {
    pub org: Org,
    pub kind: KeyKind,
    /// The digest of the key.
    pub hash: Sha256Digest,
}

impl KeyHolder {
    /// Returns the first 8 hex digits of the digest, which identify the key in the log.
    pub fn tag(&self) -> String {
        HEXLOWER.encode(&self.hash[..4])
    }
}

/// A key from an environment variable.
#[derive(Clone, Debug)]
pub struct EnvKey {
    pub kind: KeyKind,
    pub org: Org,
    pub key: Secret,
}

/// The valid keys.
#[derive(Debug, Default)]
pub struct KeySet {
    by_hash: HashMap<Sha256Digest, KeyHolder>,
}

impl KeySet {
    /// Combines the keys of variables and of the file.
    pub fn new(variables: &[EnvKey], file: &[StoredKey]) -> KeySet {
        let kept = file.iter().map(|kept| (kept.hash, &kept.org, kept.kind));
        let said = variables
            .iter()
            .map(|said| (hash(said.key.expose()), &said.org, said.kind));
        let by_hash = kept.chain(said).map(|(hash, org, kind)| {
            let org = org.clone();
            (hash, KeyHolder { org, kind, hash })
        });
        KeySet {
            by_hash: by_hash.collect(),
        }
    }

    /// Returns the owner of a key.
    pub fn find(&self, key: &str) -> Option<&KeyHolder> {
        // A key of another length cannot match and is not hashed.
        KEY_BYTES.contains(&key.len()).then(|| self.by_hash.get(&hash(key)))?
    }

    /// Tells whether the key with this digest opens the private surface of an organization.
    pub fn grants_access(&self, hash: &Sha256Digest, org: &Org) -> bool {
        let holder = self.by_hash.get(hash);
        holder.is_some_and(|holder| holder.kind == KeyKind::Private && holder.org == *org)
    }

    /// Tells whether there is no valid key.
    pub fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }
}

/// A key in `keys.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKey {
    /// The first 8 hex digits of the digest, as in the log and in `keys revoke`.
    pub id: String,
    pub kind: KeyKind,
    pub org: Org,
    /// Display name.
    pub name: Option<String>,
    pub created_ms: u64,
    pub hash: Sha256Digest,
}

impl StoredKey {
    /// Creates the entry of a new key.
    pub fn new(key: &Secret, kind: KeyKind, org: Org, name: Option<String>, created_ms: u64) -> StoredKey {
        let hash = hash(key.expose());
        StoredKey {
            id: HEXLOWER.encode(&hash[..4]),
            kind,
            org,
            name,
            created_ms,
            hash,
        }
    }

    /// Returns the public part as JSON.
    pub fn json(&self) -> Value {
        let mut json = json!({
            "id": self.id,
            "type": self.kind.name(),
            "org": self.org.as_str(),
            "createdAt": time::iso_ms(self.created_ms),
        });
        if let Some(name) = &self.name {
            json["name"] = name.as_str().into();
        }
        json
    }

    fn parse(entry: &Value) -> Result<StoredKey, KeyEntryError> {
        let text = |name: &str| entry.get(name).and_then(Value::as_str);
        let hash = text("sha256").and_then(|hex| HEXLOWER.decode(hex.as_bytes()).ok());
        let hash: Sha256Digest = hash
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or(KeyEntryError::Sha256)?;
        let id = HEXLOWER.encode(&hash[..4]);
        if text("id") != Some(&id) {
            return Err(KeyEntryError::Id);
        }
        Ok(StoredKey {
            id,
            kind: text("type").and_then(KeyKind::from_name).ok_or(KeyEntryError::Type)?,
            org: text("org").and_then(Org::parse).ok_or(KeyEntryError::Org)?,
            name: text("name").map(str::to_owned),
            created_ms: text("createdAt")
                .and_then(time::parse_iso)
                .ok_or(KeyEntryError::CreatedAt)?,
            hash,
        })
    }
}

/// Checks the display name of a key.
///
/// # Errors
/// [`KeyNameError`].
pub fn validate_name(name: &str) -> Result<(), KeyNameError> {
    let count = name.chars().count();
    match (1..=KEY_NAME_CHARS_MAX).contains(&count) && !name.chars().any(char::is_control) {
        true => Ok(()),
        false => Err(KeyNameError),
    }
}

/// The display name of a key has the wrong length or contains control characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyNameError;

impl fmt::Display for KeyNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the name of a key has 1 to {KEY_NAME_CHARS_MAX} characters, none of them for control"
        )
    }
}

impl std::error::Error for KeyNameError {}

/// Why an entry of `keys.json` is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEntryError {
    Sha256,
    Id,
    Type,
    Org,
    CreatedAt,
}

impl fmt::Display for KeyEntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyEntryError::Sha256 => "`sha256` must be 64 hex digits in lower case",
            KeyEntryError::Id => "`id` must be the first 8 digits of `sha256`",
            KeyEntryError::Type => "`type` must be `private` or `public`",
            KeyEntryError::Org => "`org` is not an organization name",
            KeyEntryError::CreatedAt => "`createdAt` is not a date",
        })
    }
}

impl std::error::Error for KeyEntryError {}

/// Why `keys.json` is invalid or cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFileError {
    Json(String),
    Entry {
        at: usize,
        source: KeyEntryError,
    },
    /// It already has [`KEYS_MAX`] keys.
    Full,
    /// No key has this id.
    Unknown(String),
}

impl KeyFileError {
    /// Returns the error about an id that no key has.
    pub fn unknown(id: &str) -> KeyFileError {
        KeyFileError::Unknown(id.chars().filter(|letter| !letter.is_control()).take(20).collect())
    }
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyFileError::Json(reason) => write!(f, "it must be `{{\"keys\":[...]}}`: {reason}"),
            KeyFileError::Entry { at, source } => write!(f, "key {} of it: {source}", at + 1),
            KeyFileError::Full => write!(f, "it has {KEYS_MAX} keys, and takes no more; revoke some"),
            KeyFileError::Unknown(id) => {
                write!(f, "no key has the id `{id}`; `edge-runner cloud keys list` shows them")
            }
        }
    }
}

impl std::error::Error for KeyFileError {}

/// Parses `keys.json`.
///
/// # Errors
/// [`KeyFileError`] names the invalid entry.
pub fn parse_file(text: &[u8]) -> Result<Vec<StoredKey>, KeyFileError> {
    let json: Value = serde_json::from_slice(text).map_err(|error| KeyFileError::Json(error.to_string()))?;
    let keys = json
        .get("keys")
        .and_then(Value::as_array)
        .ok_or_else(|| KeyFileError::Json("`keys` is missing or not an array".into()))?;
    if keys.len() > KEYS_MAX {
        return Err(KeyFileError::Full);
    }
    let read = |(at, entry)| StoredKey::parse(entry).map_err(|source| KeyFileError::Entry { at, source });
    keys.iter().enumerate().map(read).collect()
}

/// Formats `keys.json`.
pub fn encode_file(keys: &[StoredKey]) -> String {
    let keys: Vec<Value> = keys
        .iter()
        .map(|kept| {
            let mut json = kept.json();
            json["sha256"] = HEXLOWER.encode(&kept.hash).into();
            json
        })
        .collect();
    format!("{:#}\n", json!({"keys": keys}))
}

/// Adds a key. Returns `false` if another key has the same id.
///
/// # Errors
/// [`KeyFileError::Full`].
pub fn add(keys: &mut Vec<StoredKey>, kept: StoredKey) -> Result<bool, KeyFileError> {
    if keys.len() >= KEYS_MAX {
        return Err(KeyFileError::Full);
    }
    let is_new = keys.iter().all(|other| other.id != kept.id);
    if is_new {
        keys.push(kept);
    }
    Ok(is_new)
}

/// Removes a key.
///
/// # Errors
/// [`KeyFileError::Unknown`].
pub fn revoke(keys: &mut Vec<StoredKey>, id: &str) -> Result<StoredKey, KeyFileError> {
    match keys.iter().position(|kept| kept.id == id) {
        Some(at) => Ok(keys.remove(at)),
        None => Err(KeyFileError::unknown(id)),
    }
}

#[cfg(test)]
mod tests;
