//! Tests with signatures that OpenSSH 9.2 made: `ssh-keygen -Y sign -n edge-runner`.

use super::*;

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGiFKd5xIz8ybgns7ob6ljuGCc25aaaAJML2S3EQT2Ss a maintainer";
const OTHER: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEyJsDIBkfLB8gNQnOssdMQtuT5tIvmSm7ajm9oHNV5k other";
const ECDSA: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBMVj7BLG+iT5FBWY6X4iKPTvuyhpG8oRjPpcPwoaBQPSjscVKQ5f1jBaZqcTBszd+LL5RD3RN6EzfM84jXcEcoY= e";
const FINGERPRINT: &str = "SHA256:xhkMtt6DfTAV18lMkOFuop69f/LHVUURWXZ4IUifFko";
const MESSAGE: &[u8] = b"message\n";

/// Signatures of `MESSAGE` by `KEY`.
const BY_SHA512: &str = "-----BEGIN SSH SIGNATURE-----
U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAgaIUp3nEjPzJuCezuhvqWO4YJzb
lppoAkwvZLcRBPZKwAAAALZWRnZS1ydW5uZXIAAAAAAAAABnNoYTUxMgAAAFMAAAALc3No
LWVkMjU1MTkAAABA1XUBemta4278PyUxk7N4uJ7JgHElDArpAsX+yK1Jx3rK6nc0Em92Wc
pCSrL4+vlZtAGnoa8ALInE5+rU7tTYBw==
-----END SSH SIGNATURE-----
";
const BY_SHA256: &str = "-----BEGIN SSH SIGNATURE-----
U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAgaIUp3nEjPzJuCezuhvqWO4YJzb
lppoAkwvZLcRBPZKwAAAALZWRnZS1ydW5uZXIAAAAAAAAABnNoYTI1NgAAAFMAAAALc3No
LWVkMjU1MTkAAABAuyOCJC+iaoN5Z/3SplK80pxaUOL1jzgFxX2SQVz0rlq6bdlpH3jiAk
usLhRZFDJgPGAs9WM9e93Wo0RUAjWfBw==
-----END SSH SIGNATURE-----
";
/// With the namespace `git`.
const FOR_GIT: &str = "-----BEGIN SSH SIGNATURE-----
U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAgaIUp3nEjPzJuCezuhvqWO4YJzb
lppoAkwvZLcRBPZKwAAAADZ2l0AAAAAAAAAAZzaGE1MTIAAABTAAAAC3NzaC1lZDI1NTE5
AAAAQEvYl7zk2tVnOYLPs+usx23KZn+LI3nObMZptyBP5WN8aciBcDGFtuTf+njQhcLTo9
r5VDheTbFIWhMZCssScg4=
-----END SSH SIGNATURE-----
";
/// By `ECDSA`.
const BY_ECDSA: &str = "-----BEGIN SSH SIGNATURE-----
U1NIU0lHAAAAAQAAAGgAAAATZWNkc2Etc2hhMi1uaXN0cDI1NgAAAAhuaXN0cDI1NgAAAE
EExWPsEsb6JPkUFZjpfiIo9O+7KGkbyhGM+lw/ChoFA9KOxxUpDl/WMFpmpxMGzN34svlE
PdE3oTN8zziNdwRyhgAAAAtlZGdlLXJ1bm5lcgAAAAAAAAAGc2hhNTEyAAAAZQAAABNlY2
RzYS1zaGEyLW5pc3RwMjU2AAAASgAAACEAhW7jJEGMmrzXsGST9A8ym8ttvZcy0XQ1UmQq
c5+bQnIAAAAhAN+l6DqDvP/3TAzCViOQphj8tS94Y0CLS1DPNmzs/Un4
-----END SSH SIGNATURE-----
";

fn verified(keys: &str, signature: &str, message: &[u8]) -> Result<String, ReleaseSignatureError> {
    signer(keys, signature.as_bytes(), message)
}

#[test]
fn signatures_of_ssh_keygen_are_verified() {
    for signature in [BY_SHA512, BY_SHA256] {
        for keys in [KEY, &format!("# a comment\n\n{ECDSA}\n{OTHER}\n{KEY}\n")] {
            assert_eq!(verified(keys, signature, MESSAGE), Ok(FINGERPRINT.to_owned()));
        }
        assert_eq!(verified(KEY, signature, b"message"), Err(ReleaseSignatureError::Wrong));
        assert_eq!(
            verified(OTHER, signature, MESSAGE),
            Err(ReleaseSignatureError::OtherKey)
        );
    }
    // Windows line ends, and none at the end.
    let edited = BY_SHA512.trim_end().replace('\n', "\r\n");
    assert_eq!(verified(KEY, &edited, MESSAGE), Ok(FINGERPRINT.to_owned()));
}

#[test]
fn another_purpose_and_another_kind_are_refused() {
    assert_eq!(
        verified(KEY, FOR_GIT, MESSAGE),
        Err(ReleaseSignatureError::OtherNamespace)
    );
    assert_eq!(verified(KEY, BY_ECDSA, MESSAGE), Err(ReleaseSignatureError::Malformed));
    for keys in [
        "",
        "a key",
        ECDSA,
        "ssh-ed25519",
        "ssh-ed25519 AAAA",
        "ssh-ed25519 ????",
        &KEY.replace("ssh-ed25519 ", ""),
        &KEY.replace("ssh-ed25519 ", "ssh-rsa "),
    ] {
        assert_eq!(
            verified(keys, BY_SHA512, MESSAGE),
            Err(ReleaseSignatureError::NoKey),
            "{keys}"
        );
    }
}

/// No byte of the signature can be changed, and none can be left out.
#[test]
fn a_changed_signature_is_refused() {
    let blob = unarmored(BY_SHA512.as_bytes()).expect("a signature");
    let armored = |blob: &[u8]| format!("{BEGIN}\n{}\n{END}\n", BASE64.encode(blob));
    assert!(verified(KEY, &armored(&blob), MESSAGE).is_ok());
    for at in 0..blob.len() {
        for bit in [1, 0x80] {
            let mut changed = blob.clone();
            changed[at] ^= bit;
            assert!(verified(KEY, &armored(&changed), MESSAGE).is_err(), "byte {at}");
        }
        assert!(verified(KEY, &armored(&blob[..at]), MESSAGE).is_err(), "{at} bytes");
    }
    let longer = [&blob[..], &[0]].concat();
    assert_eq!(
        verified(KEY, &armored(&longer), MESSAGE),
        Err(ReleaseSignatureError::Malformed)
    );
    for text in ["", BEGIN, END, "<html>", &BY_SHA512[1..], &format!("{BEGIN}{END}")] {
        assert_eq!(
            verified(KEY, text, MESSAGE),
            Err(ReleaseSignatureError::Malformed),
            "{text}"
        );
    }
}
