//! API keys: their text, the hashes that are kept, and whose a key is.
//!
//! In: the keys of variables, the text of `keys.json`, random bytes. Out: a [`KeySet`] that knows a key by its SHA-256 alone,
//! and the next text of the file. A key's text is looked at once, in the request that carries it, and is never kept: looking it up
//! takes a time that tells of a hash, which is of no use. Source: I-03.

use std::collections::HashMap;
use std::fmt;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::limits::{KEY_BYTES, KEY_NAME_CHARS_MAX, KEYS_MAX};
use crate::proto::name::Org;
use edge_runner_proto::config::Secret;
use edge_runner_proto::time;

/// Bytes of `sk_`, and characters of base64url that follow it: 256 bits.
const PREFIX_BYTES: usize = 3;
const KEY_CHARS: usize = 43;

/// Which surface a key opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Private,
    Public,
}

impl Kind {
    pub const ALL: [Kind; 2] = [Kind::Private, Kind::Public];

    /// Returns its word in options and in `keys.json`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Private => "private",
            Kind::Public => "public",
        }
    }

    /// Returns the kind of that word.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns how the keys begin that are made here.
    fn prefix(self) -> &'static str {
        match self {
            Kind::Private => "sk_",
            Kind::Public => "pk_",
        }
    }

    /// Makes a new key of 256 random bits.
    pub fn mint(self, random: [u8; 32]) -> Secret {
        Secret::new(format!("{}{}", self.prefix(), BASE64URL_NOPAD.encode(&random)))
    }
}

/// Tells whether a text has something in it that looks like a key that is made here.
pub fn holds_key(text: &str) -> bool {
    let is_key = |at: usize| {
        let rest = text.as_bytes().get(at + PREFIX_BYTES..at + PREFIX_BYTES + KEY_CHARS);
        rest.is_some_and(|rest| {
            rest.iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte))
        })
    };
    let mut prefixes = Kind::ALL.into_iter().flat_map(|kind| text.match_indices(kind.prefix()));
    prefixes.any(|(at, _)| is_key(at))
}

/// The SHA-256 of a key.
pub type Hash = [u8; 32];

/// Returns what is kept of a key.
pub fn hash(key: &str) -> Hash {
    Sha256::digest(key).into()
}

/// Whose key it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub org: Org,
    pub kind: Kind,
    /// What the key is known by.
    pub hash: Hash,
}

impl Holder {
    /// Returns the beginning of the hash, by which the log knows the key: 8 hex digits.
    pub fn tag(&self) -> String {
        HEXLOWER.encode(&self.hash[..4])
    }
}

/// A key that a variable holds.
#[derive(Clone, Debug)]
pub struct VariableKey {
    pub kind: Kind,
    pub org: Org,
    pub key: Secret,
}

/// The keys that open something.
#[derive(Debug, Default)]
pub struct KeySet {
    by_hash: HashMap<Hash, Holder>,
}

impl KeySet {
    /// Takes the keys of variables and those of the file.
    pub fn new(variables: &[VariableKey], file: &[Kept]) -> KeySet {
        let kept = file.iter().map(|kept| (kept.hash, &kept.org, kept.kind));
        let said = variables
            .iter()
            .map(|said| (hash(said.key.expose()), &said.org, said.kind));
        let by_hash = kept.chain(said).map(|(hash, org, kind)| {
            let org = org.clone();
            (hash, Holder { org, kind, hash })
        });
        KeySet {
            by_hash: by_hash.collect(),
        }
    }

    /// Returns whose key this is.
    pub fn find(&self, key: &str) -> Option<&Holder> {
        // What is no key by its length needs no hash.
        KEY_BYTES.contains(&key.len()).then(|| self.by_hash.get(&hash(key)))?
    }

    /// Tells whether the key of that hash still opens the private surface of an organization.
    pub fn opens(&self, hash: &Hash, org: &Org) -> bool {
        let holder = self.by_hash.get(hash);
        holder.is_some_and(|holder| holder.kind == Kind::Private && holder.org == *org)
    }

    /// Tells whether nobody could ask for anything.
    pub fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }
}

/// A key of `keys.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The beginning of the hash in hex, by which the log and `keys revoke` know it.
    pub id: String,
    pub kind: Kind,
    pub org: Org,
    /// What people call it.
    pub name: Option<String>,
    pub created_ms: u64,
    pub hash: Hash,
}

impl Kept {
    /// Takes what is kept of a new key.
    pub fn new(key: &Secret, kind: Kind, org: Org, name: Option<String>, created_ms: u64) -> Kept {
        let hash = hash(key.expose());
        Kept {
            id: HEXLOWER.encode(&hash[..4]),
            kind,
            org,
            name,
            created_ms,
            hash,
        }
    }

    /// Returns what people see of it.
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

    fn read(entry: &Value) -> Result<Kept, &'static str> {
        let text = |name: &str| entry.get(name).and_then(Value::as_str);
        let hash = text("sha256").and_then(|hex| HEXLOWER.decode(hex.as_bytes()).ok());
        let hash: Hash = hash
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or("`sha256` is to be 64 hex digits in lower case")?;
        let id = HEXLOWER.encode(&hash[..4]);
        if text("id") != Some(&id) {
            return Err("`id` is to be the first 8 digits of `sha256`");
        }
        Ok(Kept {
            id,
            kind: text("type")
                .and_then(Kind::from_name)
                .ok_or("`type` is to be `private` or `public`")?,
            org: text("org")
                .and_then(Org::parse)
                .ok_or("`org` is no name of an organization")?,
            name: text("name").map(str::to_owned),
            created_ms: text("createdAt")
                .and_then(time::parse_iso)
                .ok_or("`createdAt` is no date")?,
            hash,
        })
    }
}

/// Says what makes a text unfit to be the name of a key.
pub fn unfit_name(name: &str) -> Option<String> {
    let count = name.chars().count();
    let fits = (1..=KEY_NAME_CHARS_MAX).contains(&count) && !name.chars().any(char::is_control);
    (!fits).then(|| format!("the name of a key has 1 to {KEY_NAME_CHARS_MAX} characters, none of them for control"))
}

/// What is wrong with `keys.json`, or with a change of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileError {
    Json(String),
    Entry {
        at: usize,
        why: &'static str,
    },
    /// It has [`KEYS_MAX`] already.
    Full,
    /// No key has that id.
    Unknown(String),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Json(why) => write!(f, "it is to be `{{\"keys\":[...]}}`: {why}"),
            FileError::Entry { at, why } => write!(f, "key {} of it: {why}", at + 1),
            FileError::Full => write!(f, "it has {KEYS_MAX} keys, and takes no more; revoke some"),
            FileError::Unknown(id) => write!(f, "no key has the id `{id}`; `edge-runner cloud keys list` shows them"),
        }
    }
}

impl std::error::Error for FileError {}

/// Reads `keys.json`.
///
/// # Errors
/// [`FileError`] says which entry is wrong, and how.
pub fn read_file(text: &[u8]) -> Result<Vec<Kept>, FileError> {
    let json: Value = serde_json::from_slice(text).map_err(|error| FileError::Json(error.to_string()))?;
    let keys = json
        .get("keys")
        .and_then(Value::as_array)
        .ok_or_else(|| FileError::Json("`keys` is missing, or no array".into()))?;
    if keys.len() > KEYS_MAX {
        return Err(FileError::Full);
    }
    let read = |(at, entry)| Kept::read(entry).map_err(|why| FileError::Entry { at, why });
    keys.iter().enumerate().map(read).collect()
}

/// Writes `keys.json`.
pub fn write_file(keys: &[Kept]) -> String {
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

/// Adds a key to those that are kept; tells whether there was none with its id, so that another has to be made.
///
/// # Errors
/// [`FileError::Full`].
pub fn add(keys: &mut Vec<Kept>, kept: Kept) -> Result<bool, FileError> {
    if keys.len() >= KEYS_MAX {
        return Err(FileError::Full);
    }
    let is_new = keys.iter().all(|other| other.id != kept.id);
    if is_new {
        keys.push(kept);
    }
    Ok(is_new)
}

/// Takes a key away.
///
/// # Errors
/// [`FileError::Unknown`].
pub fn revoke(keys: &mut Vec<Kept>, id: &str) -> Result<Kept, FileError> {
    match keys.iter().position(|kept| kept.id == id) {
        Some(at) => Ok(keys.remove(at)),
        None => Err(FileError::Unknown(
            id.chars().filter(|letter| !letter.is_control()).take(20).collect(),
        )),
    }
}

#[cfg(test)]
mod tests;
