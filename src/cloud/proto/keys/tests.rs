//! Tests of keys and the key file.

use super::*;

const KEY: &str = "0123456789abcdef";

fn org(name: &str) -> Org {
    Org::parse(name).expect("a name")
}

fn kept(random: u8, name: Option<&str>) -> (Secret, StoredKey) {
    let key = KeyKind::Private.generate([random; 32]);
    let kept = StoredKey::new(
        &key,
        KeyKind::Private,
        org("acme"),
        name.map(str::to_owned),
        1_795_252_806_429,
    );
    (key, kept)
}

/// I-03: a generated key has 43 base64url characters and is found by its digest.
#[test]
fn a_key_is_found_by_its_hash() {
    let (key, kept) = kept(0xff, None);
    assert_eq!(key.expose(), format!("sk_{}8", "_".repeat(42)));
    assert_eq!(
        KeyKind::Public.generate([0; 32]).expose(),
        format!("pk_{}", "A".repeat(43))
    );
    let said = [EnvKey {
        kind: KeyKind::Public,
        org: org("acme"),
        key: Secret::new(KEY),
    }];
    let set = KeySet::new(&said, std::slice::from_ref(&kept));
    let holder = set.find(key.expose()).expect("it was kept");
    assert_eq!((holder.kind, holder.org.as_str()), (KeyKind::Private, "acme"));
    assert_eq!(holder.tag(), kept.id);
    let holder = set.find(KEY).expect("the variable has it");
    assert_eq!((holder.kind, holder.org.as_str()), (KeyKind::Public, "acme"));
    // The first digits of the SHA-256 of `0123456789abcdef`, from sha256sum.
    assert_eq!(holder.tag(), "9f9f5111");
    for other in ["", "0123456789abcdeF", "0123456789abcdef0", &"x".repeat(257), &kept.id] {
        assert_eq!(set.find(other), None, "{other}");
    }
    assert!(KeySet::default().is_empty() && !set.is_empty());
}

/// I-03, I-22: the file reads back unchanged and contains no key; the listing has no digest either.
#[test]
fn the_file_is_reloaded() {
    let (key, one) = kept(1, Some("the \"CI\" of J\u{f6}rg"));
    let (_, two) = kept(2, None);
    let keys = vec![one.clone(), two];
    let text = encode_file(&keys);
    assert!(!text.contains(key.expose()));
    assert_eq!(parse_file(text.as_bytes()), Ok(keys));
    assert_eq!(parse_file(br#"{"keys":[]}"#), Ok(Vec::new()));
    assert_eq!(
        one.json(),
        json!({
            "id": one.id,
            "type": "private",
            "org": "acme",
            "name": "the \"CI\" of J\u{f6}rg",
            "createdAt": "2026-11-21T09:20:06.429Z",
        })
    );
}

#[test]
fn a_damaged_file_is_rejected_with_the_entry() {
    let (_, good) = kept(1, None);
    let text = encode_file(&[good]);
    for (from, to, says) in [
        ("private", "secret", "key 1 of it: `type`"),
        ("acme", "a/b", "key 1 of it: `org`"),
        ("2026-11", "2026-13", "key 1 of it: `createdAt`"),
        ("\"sha256\": \"", "\"sha256\": \"00", "key 1 of it: `sha256`"),
        ("\"id\": \"", "\"id\": \"0", "key 1 of it: `id`"),
        ("\"keys\"", "\"key\"", "`keys` is missing"),
        ("]", "", "it must be"),
    ] {
        let damaged = text.replacen(from, to, 1);
        assert_ne!(damaged, text, "{from}");
        let reason = parse_file(damaged.as_bytes()).expect_err(says).to_string();
        assert!(reason.contains(says), "{reason}");
    }
}

/// The cap, a duplicate id, and revocation.
#[test]
fn keys_are_added_and_revoked() {
    let (_, one) = kept(1, None);
    let mut keys = Vec::new();
    assert_eq!(add(&mut keys, one.clone()), Ok(true));
    assert_eq!(add(&mut keys, one.clone()), Ok(false));
    assert_eq!(revoke(&mut keys, &one.id), Ok(one.clone()));
    assert_eq!(
        revoke(&mut keys, "no\nsuch"),
        Err(KeyFileError::Unknown("nosuch".into()))
    );
    let mut full = vec![one.clone(); KEYS_MAX];
    assert_eq!(add(&mut full, one.clone()), Err(KeyFileError::Full));
    full.pop();
    assert_eq!(add(&mut full, kept(2, None).1), Ok(true));
    assert!(parse_file(encode_file(&full).as_bytes()).is_ok());
    full.push(one);
    assert_eq!(parse_file(encode_file(&full).as_bytes()), Err(KeyFileError::Full));
}

#[test]
fn key_names_are_validated() {
    assert_eq!(validate_name("J\u{f6}rg's laptop"), Ok(()));
    assert_eq!(validate_name(&"\u{f6}".repeat(KEY_NAME_CHARS_MAX)), Ok(()));
    for name in ["", "a\nb", &"x".repeat(KEY_NAME_CHARS_MAX + 1)] {
        assert!(validate_name(name).is_err(), "{name}");
    }
}
