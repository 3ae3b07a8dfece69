//! The signature of a release, as `ssh-keygen -Y sign` makes it.
//!
//! In: public keys as lines of OpenSSH, the armored signature, and the signed bytes. Out: the
//! fingerprint of the key that signed. Rejects: keys that are not Ed25519, other namespaces, other
//! formats. Source: `PROTOCOL.sshsig` of OpenSSH; RFC 4251 section 5; RFC 8709 sections 4 and 6.

use std::fmt;

use data_encoding::{BASE64, BASE64_NOPAD};
use ring::digest::{Algorithm, SHA256, SHA512, digest};
use ring::signature::{ED25519, UnparsedPublicKey};

/// The namespace of signatures of releases: the argument `-n` of `ssh-keygen`.
const NAMESPACE: &[u8] = b"edge-runner";
/// The kind of the keys.
const ED25519_NAME: &[u8] = b"ssh-ed25519";
const KEY_BYTES: usize = 32;
const SIGNATURE_BYTES: usize = 64;
const MAGIC: &[u8] = b"SSHSIG";
const VERSION: [u8; 4] = [0, 0, 0, 1];
const BEGIN: &str = "-----BEGIN SSH SIGNATURE-----";
const END: &str = "-----END SSH SIGNATURE-----";

/// Why a release counts as unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseSignatureError {
    /// There is no Ed25519 key to verify with.
    NoKey,
    /// The file is no signature of `ssh-keygen`.
    Malformed,
    /// Another key signed.
    OtherKey,
    /// The signature is one for another purpose.
    OtherNamespace,
    /// The signed bytes are other ones.
    Wrong,
}

impl fmt::Display for ReleaseSignatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReleaseSignatureError::NoKey => {
                "the key that signs releases is no public key of ssh: `ssh-ed25519 AAAA...` is one, and no other kind is \
                 verified here"
            }
            ReleaseSignatureError::Malformed => {
                "SHA256SUMS.sig is no signature that `ssh-keygen -Y sign` made with an Ed25519 key"
            }
            ReleaseSignatureError::OtherKey => {
                "the signature of SHA256SUMS is that of another key: somebody else made this release"
            }
            ReleaseSignatureError::OtherNamespace => {
                "the signature of SHA256SUMS was made for another purpose than a release of edge-runner"
            }
            ReleaseSignatureError::Wrong => {
                "the signature of SHA256SUMS is wrong: somebody else made this release, or changed it"
            }
        })
    }
}

/// Returns the fingerprint of the key that signed the message, one of `keys`: lines as in a `.pub`
/// file, of which other lines are skipped.
///
/// # Errors
/// [`ReleaseSignatureError`] if none of them did.
pub fn signer(keys: &str, armored: &[u8], message: &[u8]) -> Result<String, ReleaseSignatureError> {
    let mut trusted = keys.lines().filter_map(key).peekable();
    if trusted.peek().is_none() {
        return Err(ReleaseSignatureError::NoKey);
    }
    let blob = unarmored(armored).ok_or(ReleaseSignatureError::Malformed)?;
    let signed = SignatureBlob::read(&blob).ok_or(ReleaseSignatureError::Malformed)?;
    let key = trusted.find(|key| *key == signed.key);
    let key = key.ok_or(ReleaseSignatureError::OtherKey)?;
    if signed.namespace != NAMESPACE {
        return Err(ReleaseSignatureError::OtherNamespace);
    }
    let mut statement = MAGIC.to_vec();
    let hash = digest(signed.algorithm, message);
    for part in [signed.namespace, signed.reserved, signed.algorithm_name, hash.as_ref()] {
        // Parts of a signature are shorter than their file.
        statement.extend_from_slice(&u32::try_from(part.len()).unwrap_or_default().to_be_bytes());
        statement.extend_from_slice(part);
    }
    let public = ed25519(&key, KEY_BYTES).ok_or(ReleaseSignatureError::NoKey)?;
    match UnparsedPublicKey::new(&ED25519, public).verify(&statement, signed.signature) {
        Ok(()) => Ok(format!(
            "SHA256:{}",
            BASE64_NOPAD.encode(digest(&SHA256, &key).as_ref())
        )),
        Err(_) => Err(ReleaseSignatureError::Wrong),
    }
}

/// Returns the blob of an Ed25519 key in a line.
fn key(line: &str) -> Option<Vec<u8>> {
    let mut words = line.split_whitespace();
    let kind = words.next()?;
    let blob = BASE64.decode(words.next()?.as_bytes()).ok()?;
    (kind.as_bytes() == ED25519_NAME && ed25519(&blob, KEY_BYTES).is_some()).then_some(blob)
}

/// Returns the bytes of a key, or of a signature, in a blob of that kind.
fn ed25519(mut blob: &[u8], length: usize) -> Option<&[u8]> {
    let (kind, bytes) = (string(&mut blob)?, string(&mut blob)?);
    (kind == ED25519_NAME && bytes.len() == length && blob.is_empty()).then_some(bytes)
}

/// Takes a `string` of ssh off the front of `bytes`.
fn string<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (found, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    *bytes = rest;
    Some(found)
}

/// Returns what is between the lines of the armor.
fn unarmored(text: &[u8]) -> Option<Vec<u8>> {
    let text = str::from_utf8(text)
        .ok()?
        .trim()
        .strip_prefix(BEGIN)?
        .strip_suffix(END)?;
    let body: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    BASE64.decode(&body).ok()
}

/// The fields of a signature.
struct SignatureBlob<'a> {
    key: &'a [u8],
    namespace: &'a [u8],
    reserved: &'a [u8],
    algorithm_name: &'a [u8],
    algorithm: &'static Algorithm,
    signature: &'a [u8],
}

impl<'a> SignatureBlob<'a> {
    fn read(blob: &'a [u8]) -> Option<Self> {
        let mut rest = blob.strip_prefix(MAGIC)?.strip_prefix(&VERSION)?;
        let [key, namespace, reserved, algorithm_name, signature] = [
            string(&mut rest)?,
            string(&mut rest)?,
            string(&mut rest)?,
            string(&mut rest)?,
            string(&mut rest)?,
        ];
        let algorithm = match algorithm_name {
            b"sha512" => &SHA512,
            b"sha256" => &SHA256,
            _ => return None,
        };
        rest.is_empty().then_some(SignatureBlob {
            key,
            namespace,
            reserved,
            algorithm_name,
            algorithm,
            signature: ed25519(signature, SIGNATURE_BYTES)?,
        })
    }
}

#[cfg(test)]
#[path = "signature/tests.rs"]
mod tests;
