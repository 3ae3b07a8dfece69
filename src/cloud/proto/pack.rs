//! Selection, order and modes of the files in a build context.
//!
//! In: the bytes of an ignore file, extra patterns, and relative paths as bytes. Out: whether a
//! path is excluded, the order of entries, their modes. An ignore file replaces the built-in
//! patterns, including those for secrets. A pattern excludes what it matches for Docker and what it
//! matches for the published client, against each component and the whole path; `!` takes back what
//! it matches for Docker. Rejects ignore files that are not UTF-8, whose patterns would match
//! nothing. Source: `docs/spec/cloud-protocol.md` 5; the published client, version 1.4.0.

use std::cmp::Ordering;
use std::fmt;

use super::glob::docker::{DockerPattern, Reach};
use super::glob::{Pattern, code_points};

/// Name of the ignore file in the root of the context.
pub const IGNORE_FILE: &str = ".dockerignore";

/// Exclusions without an ignore file.
const BUILT_IN: [&str; 44] = [
    // Version control.
    ".git",
    ".gitignore",
    ".gitattributes",
    // Environment and secrets.
    ".env",
    ".env.*",
    "*.pem",
    "*.key",
    // Python, its environments and tools.
    "__pycache__",
    "*.pyc",
    "*.pyo",
    "*.pyd",
    "*.so",
    ".Python",
    ".venv",
    "venv",
    "ENV",
    "env",
    ".pytest_cache",
    ".coverage",
    "htmlcov",
    ".tox",
    ".nox",
    ".mypy_cache",
    ".ruff_cache",
    // Editors.
    ".vscode",
    ".idea",
    "*.swp",
    "*.swo",
    // Build output.
    "dist",
    "build",
    "*.egg-info",
    "*.egg",
    ".eggs",
    "node_modules",
    // Hosting services and developer tools.
    ".github",
    ".claude",
    ".codex",
    ".cursor",
    "pcc-deploy.toml",
    ".ipynb_checkpoints",
    ".cache",
    // Operating systems.
    ".DS_Store",
    "Thumbs.db",
    "*.log",
];

/// Why an ignore file or a pattern cannot be used. Packing without it could send secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IgnoreError {
    Utf16,
    /// The first line, from 1 on, that is not UTF-8.
    NotUtf8(usize),
    /// The first line with a zero byte, which no name of a file has.
    ZeroByte(usize),
    /// A line that begins with `!` and continues with no pattern of Docker's.
    Exception(String),
}

impl fmt::Display for IgnoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IgnoreError::Utf16 => f.write_str("it is UTF-16, so its patterns would match nothing; save it as UTF-8"),
            IgnoreError::NotUtf8(line) => write!(f, "line {line} is not UTF-8; save the file as UTF-8"),
            IgnoreError::ZeroByte(line) => {
                write!(f, "line {line} has a zero byte, as UTF-16 has; save the file as UTF-8")
            }
            IgnoreError::Exception(line) => write!(f, "`{line}` has no valid pattern after its `!`"),
        }
    }
}

/// Returns the text of an ignore file.
///
/// # Errors
/// [`IgnoreError`] for other encodings than UTF-8.
pub fn decode(bytes: &[u8]) -> Result<&str, IgnoreError> {
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(IgnoreError::Utf16);
    }
    let line = |end: usize| 1 + bytes[..end].iter().filter(|&&byte| byte == b'\n').count();
    let text = std::str::from_utf8(bytes).map_err(|error| IgnoreError::NotUtf8(line(error.valid_up_to())))?;
    match text.find('\0') {
        None => Ok(text),
        Some(at) => Err(IgnoreError::ZeroByte(line(at))),
    }
}

/// Exclusion rules of a context.
pub struct IgnoreRules(Vec<IgnoreRule>);

struct IgnoreRule {
    /// The pattern as written. `None` for a built-in one.
    written: Option<String>,
    kind: RuleKind,
}

enum RuleKind {
    /// `docker` is `None` where Docker knows no such rule or rejects the pattern.
    Exclude {
        client: Pattern,
        docker: Option<DockerPattern>,
        is_from_file: bool,
    },
    /// A pattern after `!`.
    Include(DockerPattern),
}

/// What the rules say of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathVerdict {
    pub is_excluded: bool,
    /// Whether an exception may include something in this folder.
    pub may_include_inside: bool,
}

/// What each rule has done.
#[derive(Default)]
pub struct RuleUses(Vec<RuleUse>);

#[derive(Clone, Default)]
struct RuleUse {
    has_matched: bool,
    /// The first path that this rule excludes and Docker keeps.
    wider: Option<Vec<u8>>,
}

impl IgnoreRules {
    /// Parses the text of the ignore file, and `further` patterns, which exclude in any case.
    ///
    /// # Errors
    /// [`IgnoreError::Exception`] for a `!` without a pattern, and for any `!` in `further`.
    pub fn new(ignore: Option<&str>, further: &[String]) -> Result<IgnoreRules, IgnoreError> {
        let mut rules = Vec::new();
        match ignore {
            Some(text) => {
                for line in text.split(['\n', '\r']) {
                    // Joined files have a byte order mark at the start of each.
                    let line = line.trim_start_matches('\u{feff}').trim_matches(is_space);
                    if line.starts_with('#') {
                        continue;
                    }
                    match line.strip_prefix('!') {
                        None => rules.extend(exclusion(line, true)),
                        Some(pattern) => rules.push(exception(line, pattern)?),
                    }
                }
            }
            None => rules.extend(BUILT_IN.iter().map(|name| IgnoreRule {
                written: None,
                kind: RuleKind::Exclude {
                    client: Pattern::new(name),
                    docker: None,
                    is_from_file: false,
                },
            })),
        }
        for pattern in further {
            if pattern.trim_matches(is_space).starts_with('!') {
                return Err(IgnoreError::Exception(pattern.clone()));
            }
            rules.extend(exclusion(pattern, false));
        }
        Ok(IgnoreRules(rules))
    }

    /// Judges a path relative to the root.
    pub fn judge(&self, path: &[u8], uses: &mut RuleUses) -> PathVerdict {
        uses.0.resize(self.0.len(), RuleUse::default());
        let points: Vec<u32> = code_points(path).collect();
        // The index of the rule that excludes the path.
        let mut excluded_by = None;
        let (mut excluded_by_docker, mut may_include_inside) = (false, false);
        for (index, rule) in self.0.iter().enumerate() {
            match &rule.kind {
                RuleKind::Exclude {
                    client,
                    docker,
                    is_from_file,
                } => {
                    let for_docker = docker.as_ref().is_some_and(|it| it.reach(&points) == Reach::Covers);
                    if for_docker || covers(client, &points) {
                        excluded_by = Some(index);
                        excluded_by_docker |= for_docker || !is_from_file;
                        uses.0[index].has_matched = true;
                    }
                }
                RuleKind::Include(pattern) => match pattern.reach(&points) {
                    Reach::Covers => {
                        (excluded_by, excluded_by_docker) = (None, false);
                        may_include_inside = true;
                        uses.0[index].has_matched = true;
                    }
                    Reach::Inside => may_include_inside = true,
                    Reach::Misses => {}
                },
            }
        }
        if let Some(index) = excluded_by.filter(|_| !excluded_by_docker) {
            uses.0[index].wider.get_or_insert_with(|| path.to_vec());
        }
        PathVerdict {
            is_excluded: excluded_by.is_some(),
            may_include_inside,
        }
    }

    /// Tells whether a path relative to the root is excluded.
    pub fn excludes(&self, path: &[u8]) -> bool {
        self.judge(path, &mut RuleUses::default()).is_excluded
    }

    /// Returns the written patterns that matched nothing.
    pub fn unused(&self, uses: &RuleUses) -> Vec<&str> {
        let has_matched = |index: usize| uses.0.get(index).is_some_and(|one| one.has_matched);
        let unused = self.0.iter().enumerate().filter(|(index, _)| !has_matched(*index));
        unused.filter_map(|(_, rule)| rule.written.as_deref()).collect()
    }

    /// Returns the patterns that exclude what Docker keeps, each with the first such path.
    pub fn wider<'u>(&self, uses: &'u RuleUses) -> Vec<(&str, &'u [u8])> {
        let pairs = self.0.iter().zip(&uses.0);
        pairs
            .filter_map(|(rule, found)| Some((rule.written.as_deref()?, found.wider.as_deref()?)))
            .collect()
    }
}

/// Parses a pattern that excludes. `None` for an empty one.
fn exclusion(written: &str, is_from_file: bool) -> Option<IgnoreRule> {
    let pattern = clean(written);
    (!pattern.is_empty()).then(|| IgnoreRule {
        written: Some(written.to_owned()),
        kind: RuleKind::Exclude {
            client: Pattern::new(pattern),
            docker: DockerPattern::new(written.trim_matches(is_space)),
            is_from_file,
        },
    })
}

fn exception(line: &str, pattern: &str) -> Result<IgnoreRule, IgnoreError> {
    let pattern = pattern.trim_matches(is_space);
    match DockerPattern::new(pattern).filter(|_| !pattern.is_empty()) {
        None => Err(IgnoreError::Exception(line.to_owned())),
        Some(parsed) => Ok(IgnoreRule {
            written: Some(line.to_owned()),
            kind: RuleKind::Include(parsed),
        }),
    }
}

/// Tells whether the published client leaves out this path or a folder that it is in.
fn covers(pattern: &Pattern, path: &[u32]) -> bool {
    let slash = u32::from('/');
    let ends = path.iter().enumerate().filter(|&(_, &point)| point == slash);
    path.split(|&point| point == slash).any(|part| pattern.matches(part))
        || pattern.matches(path)
        || ends.into_iter().any(|(end, _)| pattern.matches(&path[..end]))
}

/// Strips white space, a leading `./` and trailing slashes from a pattern.
fn clean(line: &str) -> &str {
    let line = line.trim_matches(is_space);
    line.strip_prefix("./").unwrap_or(line).trim_end_matches('/')
}

/// White space as in Python: Unicode's, and four ASCII separators.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Orders entries by whole path, so `a-b` comes before `a/b`.
pub fn order(one: &[u8], other: &[u8]) -> Ordering {
    code_points(one).cmp(code_points(other))
}

/// Returns the mode of an entry.
pub fn mode(is_executable: bool) -> u32 {
    if is_executable { 0o755 } else { 0o644 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_out(ignore: Option<&str>, further: &[&str], path: &str) -> bool {
        let further: Vec<String> = further.iter().map(|&text| text.to_owned()).collect();
        let rules = IgnoreRules::new(ignore, &further).expect("valid patterns");
        rules.excludes(path.as_bytes())
    }

    /// C-075: the built-in patterns exclude secrets and build output.
    #[test]
    fn the_built_in_patterns_exclude_secrets_and_build_output() {
        for path in [
            ".git/config",
            ".env",
            "deep/down/.env.production",
            "certs/server.key",
            "a/__pycache__/b.txt",
            "x.pyc",
            "node_modules/x",
            "build",
            "server.log",
        ] {
            assert!(left_out(None, &[], path), "{path}");
        }
        for path in [
            "Dockerfile",
            ".dockerignore",
            "env.py",
            "builder/x",
            "src/main.rs",
            ".envrc",
        ] {
            assert!(!left_out(None, &[], path), "{path}");
        }
        assert!(left_out(None, &["./data/", "#x"], "data/a") && left_out(None, &["./data/", "#x"], "a/#x"));
        assert!(!left_out(None, &["", "  ", "./"], "a"));
    }

    /// C-075: an ignore file replaces the built-in patterns, not those of `--exclude`.
    #[test]
    fn an_ignore_file_replaces_the_built_in_patterns() {
        let file = "# a comment\n\n  ./data/  \r\n*.tmp\rdocs/*.md\n/abs\n**/gone\n\u{1f}sp aced\u{a0}\n";
        for path in [
            "data",
            "a/data/b",
            "x.tmp",
            "docs/a.md",
            "docs/a/b.md",
            "abs/x",
            "gone",
            "a/b/gone",
            "sp aced",
            "further",
        ] {
            assert!(left_out(Some(file), &["further"], path), "{path}");
        }
        for path in [".env", "a.md", "x/abs", "x/docs/a.md", "# a comment"] {
            assert!(!left_out(Some(file), &["further"], path), "{path}");
        }
        assert!(!left_out(Some("./\n/\n.//\n"), &[], "."));
        assert!(left_out(Some("././a"), &[], "./a"));
    }

    /// A byte order mark, at the start or where files were joined, is no part of a pattern.
    #[test]
    fn a_byte_order_mark_is_no_part_of_a_pattern() {
        let text = decode(b"\xef\xbb\xbfone\r\n\xef\xbb\xbf!two\n\xef\xbb\xbf#three").expect("UTF-8");
        assert!(left_out(Some(text), &[], "one") && !left_out(Some(text), &[], "#three"));
    }

    #[test]
    fn an_ignore_file_that_is_not_utf_8_is_rejected() {
        let utf_16 = |mark: &[u8], at: usize| {
            let mut bytes = mark.to_vec();
            for byte in b"secret\r\n" {
                bytes.extend(if at == 0 { [*byte, 0] } else { [0, *byte] });
            }
            bytes
        };
        for (bytes, expected) in [
            (utf_16(b"\xff\xfe", 0), IgnoreError::Utf16),
            (utf_16(b"\xfe\xff", 1), IgnoreError::Utf16),
            (utf_16(b"", 0), IgnoreError::ZeroByte(1)),
            (utf_16(b"", 1), IgnoreError::ZeroByte(1)),
            (b"a\n# f\xfcr\nb".to_vec(), IgnoreError::NotUtf8(2)),
        ] {
            let error = decode(&bytes).expect_err("another encoding");
            assert_eq!(error, expected, "{bytes:?}");
            assert!(error.to_string().contains("UTF-8"), "{error}");
        }
    }

    /// Exceptions have Docker's meaning: the last rule that matches a path decides.
    #[test]
    fn exceptions_take_back_what_they_match() {
        let file = "*\n!Dockerfile\n! src/\nsrc/deep\n!src/deep/x.log\n*.key\n";
        for path in ["Dockerfile", "src", "src/app.py", "src/lib/a", "src/deep/x.log"] {
            assert!(!left_out(Some(file), &[], path), "{path}");
        }
        for path in [
            "README.md",
            "a/Dockerfile",
            "a/src",
            "src/deep",
            "src/deep/y",
            "src/lib/a.key",
        ] {
            assert!(left_out(Some(file), &[], path), "{path}");
        }
        assert!(left_out(Some(file), &["app.py"], "src/app.py"));
        let rules = IgnoreRules::new(Some(file), &[]).expect("valid patterns");
        let may_include_inside = |path: &[u8]| rules.judge(path, &mut RuleUses::default()).may_include_inside;
        assert!(may_include_inside(b"src") && may_include_inside(b"src/deep") && !may_include_inside(b"other"));
        for bad in ["!", "! ", "!a[", "!a\\"] {
            let error = IgnoreRules::new(Some(bad), &[]).err();
            assert_eq!(error, Some(IgnoreError::Exception(bad.trim().to_owned())));
        }
        assert!(IgnoreRules::new(None, &["!a".to_owned()]).is_err());
    }

    /// Patterns without effect, and those that exclude what Docker keeps, are known afterwards.
    #[test]
    fn unused_and_wider_patterns_are_known() {
        let further = ["typo".to_owned(), "x".to_owned()];
        let rules = IgnoreRules::new(Some("/a\n*.log\nnone\n!b.log\n!c\n"), &further).expect("valid patterns");
        let mut uses = RuleUses::default();
        for path in ["a", "b.log", "d/b.log", "d/e.log", "x", "d/x"] {
            rules.judge(path.as_bytes(), &mut uses);
        }
        assert_eq!(rules.unused(&uses), ["none", "!c", "typo"]);
        assert_eq!(rules.wider(&uses), [("*.log", &b"d/b.log"[..])]);
        let built_in = IgnoreRules::new(None, &[]).expect("valid patterns");
        assert!(built_in.unused(&RuleUses::default()).is_empty());
    }

    #[test]
    fn entries_are_ordered_by_code_points() {
        let mut paths: [&[u8]; 7] = [
            b"a/b",
            b"a",
            b"\xff",
            b"a-b",
            b"B",
            "\u{1f600}".as_bytes(),
            "\u{fb00}".as_bytes(),
        ];
        paths.sort_by(|one, other| order(one, other));
        // A byte of invalid UTF-8 sorts as U+DC00 plus its value, as in Python.
        let sorted: [&[u8]; 7] = [
            b"B",
            b"a",
            b"a-b",
            b"a/b",
            b"\xff",
            "\u{fb00}".as_bytes(),
            "\u{1f600}".as_bytes(),
        ];
        assert_eq!(paths, sorted);
        assert_eq!((mode(true), mode(false)), (0o755, 0o644));
    }
}
