//! Properties of what the cloud service and its client read beside uploads: requests, the files of
//! regions and keys, answers of an object store, and ignore files.
//!
//! In: the body or the query of a request, the XML of a store, or the text of a file.

use edge_runner_cloud::proto::build::{BuildFilter, BuildRequest, build_file_problem};
use edge_runner_cloud::proto::keys;
use edge_runner_cloud::proto::log_query::LogQuery;
use edge_runner_cloud::proto::pack::{IgnoreRules, RuleUses, decode};
use edge_runner_cloud::proto::regions::{Regions, parse_grant_request};
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

/// Builds and lines of a log in one answer.
const BUILDS_PAGE_MAX: usize = 100;
const LOG_PAGE_MAX: usize = 10_000;

/// A listing or an error of a store: no more text than it has, and a code that can be logged.
pub fn store(bytes: &[u8]) {
    let xml = String::from_utf8_lossy(bytes);
    let keys = listing::keys(&xml).unwrap_or_default();
    assert!(keys.iter().map(String::len).sum::<usize>() <= xml.len());
    if let Some(code) = listing::error_code(&xml) {
        assert!(code.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    }
}

/// A request for a grant or a build, a query, or a file of the operator: what is accepted is
/// bounded, and a region of a grant is one of the file.
pub fn requests(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(Some(code)) = parse_grant_request(bytes) {
        assert!(code.len() <= bytes.len());
        if let Some(region) = Regions::default().find(&code) {
            assert_eq!(region.code.as_str(), code);
        }
    }
    if let Ok(regions) = Regions::parse(bytes) {
        let of_default = regions.default_region().code.as_str();
        assert!(regions.find(of_default).is_some());
        let shown = regions.json()["regions"].as_array().map_or(0, Vec::len);
        assert!((1..=bytes.len()).contains(&shown));
    }
    if let Ok(build) = BuildRequest::parse(bytes) {
        assert_eq!(build_file_problem(&build.file), None);
    }
    if let Ok(filter) = BuildFilter::parse(&text, [0; 32]) {
        assert!((1..=BUILDS_PAGE_MAX).contains(&filter.limit));
    }
    if let Ok(query) = LogQuery::parse(&text) {
        assert!((1..=LOG_PAGE_MAX).contains(&query.limit));
    }
    if let Ok(kept) = keys::parse_file(bytes) {
        assert_eq!(keys::parse_file(keys::encode_file(&kept).as_bytes()), Ok(kept));
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
