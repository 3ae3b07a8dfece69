//! Properties of what the cloud service and its client read beside uploads: answers of an object
//! store, and ignore files.
//!
//! In: the XML of a store, or the text of a file.

use edge_runner_cloud::proto::pack::{IgnoreRules, RuleUses, decode};
use edge_runner_cloud::proto::scale::listing;

/// Paths of a folder that is packed.
const PATHS: [&str; 6] = [
    "Dockerfile",
    "src",
    "src/app/main.py",
    "src/app/a b[1].txt",
    ".env",
    "secrets/key",
];

/// A listing or an error of a store: no more text than it has, and a code that can be logged.
pub fn store(bytes: &[u8]) {
    let xml = String::from_utf8_lossy(bytes);
    let keys = listing::keys(&xml);
    assert!(keys.iter().map(String::len).sum::<usize>() <= xml.len());
    if let Some(code) = listing::error_code(&xml) {
        assert!(code.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    }
}

/// An ignore file is refused, or judges each path alike at any time; without exceptions a folder
/// that is left out has nothing that is taken.
pub fn ignore_file(bytes: &[u8]) {
    let Ok(text) = decode(bytes) else { return };
    let Ok(rules) = IgnoreRules::new(Some(text), &[]) else {
        return;
    };
    let mut uses = RuleUses::default();
    for path in PATHS {
        let verdict = rules.judge(path.as_bytes(), &mut uses);
        assert_eq!(rules.excludes(path.as_bytes()), verdict.is_excluded);
    }
    let lines = text.split(['\n', '\r']).count();
    assert!(rules.unused(&uses).len() <= lines && rules.wider(&uses).len() <= lines);
    let has_exceptions = text.contains('!');
    if !has_exceptions && rules.excludes(b"src") {
        assert!(rules.excludes(b"src/app/main.py"), "{text:?}");
    }
    // What is excluded by an option as well stays so, whatever the file takes back.
    if let Ok(stricter) = IgnoreRules::new(Some(text), &[".env".to_owned()]) {
        assert!(stricter.excludes(b".env"));
    }
}
