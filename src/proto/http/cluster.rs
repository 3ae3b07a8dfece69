//! What replicas behind a balancer share, and how each names the connections that it made.
//!
//! In: the key of `--cluster-key-file`, the name of `--replica-name`, random bytes. Out: keys for
//! one purpose each, ids of connections, and the replica that made such an id. The balancer routes
//! by the first part of an id. The second part names the process, so that a replica that was
//! restarted does not take the connections of its former process for its own. The third part is
//! random and signed: an id that no replica made is an unknown one. Source:
//! `docs/spec/decisions.md` D-22 to D-26.

pub mod sealed_id;
pub mod spent;

use std::fmt;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::limits::REPLICA_NAME_BYTES_MAX;
use crate::secret::Secret;

/// The signature of a connection's id. The 64 random bits beside it cannot be guessed either.
const TAG_BYTES: usize = 8;

/// The settings of a replica behind a balancer.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The key that all replicas have.
    pub key: ClusterKey,
    /// The file of the key, for `doctor`.
    pub key_file: PathBuf,
    /// The name of this replica; `None` means a random one.
    pub replica_name: Option<String>,
}

/// The key that all replicas have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterKey(Secret);

impl ClusterKey {
    /// Wraps a key, which is the same in all replicas.
    pub fn new(key: Secret) -> Self {
        ClusterKey(key)
    }

    /// Derives the key for one purpose, so that what was made for one is useless for another.
    pub fn derive(&self, purpose: &str) -> [u8; 32] {
        let mac = Hmac::<Sha256>::new_from_slice(self.0.expose().as_bytes()).expect("HMAC takes a key of any length");
        let mut key = [0; 32];
        key.copy_from_slice(&mac.chain_update(purpose).finalize().into_bytes());
        key
    }
}

/// One replica: its name, and its process.
#[derive(Clone)]
pub struct Replica {
    name: String,
    process: ProcessId,
    /// Signs the ids of connections.
    keyed: Hmac<Sha256>,
}

impl fmt::Debug for Replica {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The random id of a process, 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessId([u8; 8]);

impl ProcessId {
    pub fn new(random: [u8; 8]) -> Self {
        ProcessId(random)
    }

    /// Parses the form in which it is displayed.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = HEXLOWER.decode(text.as_bytes()).ok()?;
        bytes.try_into().ok().map(ProcessId)
    }

    pub fn as_bytes(&self) -> [u8; 8] {
        self.0
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl Replica {
    /// Creates the replica of this process. Without a name, it is called by its process.
    pub fn new(key: &ClusterKey, name: Option<&str>, random: [u8; 8]) -> Self {
        let process = ProcessId::new(random);
        let key = key.derive("edge-runner connection ids 1");
        Replica {
            name: name.map_or_else(|| process.to_string(), str::to_owned),
            process,
            keyed: Hmac::new_from_slice(&key).expect("HMAC takes a key of any length"),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// Returns the id of a new connection: `NAME.PROCESS.RANDOM`, the last in 16 hexadecimal digits
    /// and as many of a signature of the whole.
    pub fn connection_id(&self, random: [u8; 8]) -> String {
        let unsigned = format!("{}.{}.{}", self.name, self.process, HEXLOWER.encode(&random));
        let tag = self.tag(&unsigned).finalize().into_bytes();
        format!("{unsigned}{}", HEXLOWER.encode(&tag[..TAG_BYTES]))
    }

    /// Returns the name of the replica that made this id, if that was another process.
    pub fn other_maker<'i>(&self, connection_id: &'i str) -> Option<&'i str> {
        let (name, process) = parse_connection_id(connection_id)?;
        let (unsigned, tag) = connection_id.split_at(connection_id.len() - 2 * TAG_BYTES);
        let tag = HEXLOWER.decode(tag.as_bytes()).ok()?;
        self.tag(unsigned).verify_truncated_left(&tag).ok()?;
        (process != self.process).then_some(name)
    }

    fn tag(&self, unsigned: &str) -> Hmac<Sha256> {
        self.keyed.clone().chain_update(unsigned)
    }
}

/// Returns a warning about a key file with these permissions, if others may read it.
pub fn key_file_warning(file: &Path, mode: u32) -> Option<String> {
    const READ_BY_OTHERS: u32 = 0o004;
    (mode & READ_BY_OTHERS != 0).then(|| {
        let file = file.display();
        format!("every user of this machine may read the cluster key in {file}; `chmod 640 {file}` prevents it")
    })
}

/// Returns whether a word can be the name of a replica.
pub fn is_replica_name(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=REPLICA_NAME_BYTES_MAX).contains(&word.len()) && word.bytes().all(is_plain)
}

/// Returns the name and the process in the id of a connection that a replica made.
pub fn parse_connection_id(id: &str) -> Option<(&str, ProcessId)> {
    let mut parts = id.split('.');
    let (name, process, random) = (parts.next()?, parts.next()?, parts.next()?);
    let is_random = random.len() == 32 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    let process = ProcessId::parse(process)?;
    (parts.next().is_none() && is_random && is_replica_name(name)).then_some((name, process))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PC_ID_BYTES_MAX;

    fn replica(name: Option<&str>, process: u8) -> Replica {
        Replica::new(&ClusterKey::new(Secret::new("key")), name, [process; 8])
    }

    /// D-25: an id names its maker; a replica knows its own process from the former one.
    #[test]
    fn an_id_of_a_connection_names_its_maker() {
        let (a, b) = (replica(Some("a"), 1), replica(Some("b-2"), 2));
        let id = a.connection_id([7; 8]);
        assert!(
            id.starts_with("a.0101010101010101.0707070707070707") && id.len() == 51,
            "{id}"
        );
        assert_eq!((a.other_maker(&id), b.other_maker(&id)), (None, Some("a")));
        assert_eq!(replica(Some("a"), 3).other_maker(&id), Some("a"), "the former process");
        let unnamed = replica(None, 4);
        assert_eq!(unnamed.name(), "0404040404040404");
        assert_eq!(a.other_maker(&unnamed.connection_id([0; 8])), Some("0404040404040404"));
        let longest = "n".repeat(REPLICA_NAME_BYTES_MAX);
        let id = replica(Some(&longest), 5).connection_id([0; 8]);
        assert!(id.len() <= PC_ID_BYTES_MAX);
        assert_eq!(a.other_maker(&id), Some(&longest[..]));
    }

    /// What no replica with this key made is an unknown id.
    #[test]
    fn a_forged_id_has_no_maker() {
        let b = replica(Some("b"), 2);
        let id = replica(Some("a"), 1).connection_id([7; 8]);
        for at in 0..id.len() {
            let mut changed = id.as_bytes().to_vec();
            changed[at] = if changed[at] == b'1' { b'2' } else { b'1' };
            let changed = String::from_utf8(changed).expect("ASCII");
            assert_eq!(b.other_maker(&changed), None, "{changed}");
            assert_eq!(b.other_maker(&id[..at]), None);
        }
        let stranger = Replica::new(&ClusterKey::new(Secret::new("another key")), Some("c"), [3; 8]);
        assert_eq!(stranger.other_maker(&id), None);
        assert_eq!(b.other_maker(&id), Some("a"));
    }

    #[test]
    fn other_ids_have_no_maker() {
        let replica = replica(Some("a"), 1);
        let random = "07070707070707070707070707070707";
        for id in [
            "",
            random,
            "a.b.c",
            &format!("a.0101010101010102.{random}.x"),
            &format!("a.0101010101010102.{random}0"),
            &format!("a.010101010101010.{random}"),
            &format!("a.01010101010101GG.{random}"),
            &format!(".0101010101010102.{random}"),
            &format!("a b.0101010101010102.{random}"),
            &format!("{}.0101010101010102.{random}", "n".repeat(REPLICA_NAME_BYTES_MAX + 1)),
        ] {
            assert_eq!((replica.other_maker(id), parse_connection_id(id)), (None, None), "{id}");
        }
    }

    #[test]
    fn others_must_not_read_the_key() {
        let of = |mode| key_file_warning(Path::new("/etc/key"), mode);
        assert!(of(0o644).is_some_and(|text| text.contains("chmod 640 /etc/key")));
        for mode in [0o600, 0o640, 0o400, 0o660] {
            assert_eq!(of(mode), None, "{mode:o}");
        }
    }

    #[test]
    fn each_purpose_has_its_own_key() {
        let key = ClusterKey::new(Secret::new("k".repeat(32)));
        assert_ne!(key.derive("one"), key.derive("two"));
        assert_ne!(
            key.derive("one"),
            ClusterKey::new(Secret::new("l".repeat(32))).derive("one")
        );
        assert!(!format!("{key:?}").contains("kkk"), "the debug form omits it");
    }
}
