//! Selection, order and modes of the files in a build context.
//!
//! In: the text of an ignore file, extra patterns, and relative paths as bytes. Out: whether a path
//! is excluded, the order of entries, their modes. An ignore file replaces the built-in and extra
//! patterns, including those for secrets. There is no negation or anchoring: a pattern is matched
//! against each component and the whole path. Source: `docs/spec/cloud-protocol.md` 5; the
//! published client, version 1.4.0.

use std::cmp::Ordering;

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

/// Exclusion rules of a context.
pub struct IgnoreRules(Vec<Pattern>);

impl IgnoreRules {
    /// Parses the ignore file. `further` patterns apply only without one.
    pub fn new(ignore: Option<&str>, further: &[String]) -> IgnoreRules {
        let read: fn(&str) -> Option<Pattern> = |line| {
            let line = clean(line);
            (!line.is_empty()).then(|| Pattern::new(line))
        };
        IgnoreRules(match ignore {
            Some(text) => {
                let lines = text.split(['\n', '\r']).map(|line| line.trim_matches(is_space));
                lines.filter(|line| !line.starts_with('#')).filter_map(read).collect()
            }
            None => {
                let further = further.iter().map(String::as_str).filter_map(read);
                BUILT_IN.iter().copied().map(Pattern::new).chain(further).collect()
            }
        })
    }

    /// Tells whether a path relative to the root is excluded. An excluded directory is not entered.
    pub fn excludes(&self, path: &[u8]) -> bool {
        let whole: Vec<u32> = code_points(path).collect();
        let slash = u32::from('/');
        self.0.iter().any(|pattern| {
            whole.split(|&point| point == slash).any(|part| pattern.matches(part)) || pattern.matches(&whole)
        })
    }
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
        IgnoreRules::new(ignore, &further).excludes(path.as_bytes())
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

    /// C-075: an ignore file replaces all other patterns.
    #[test]
    fn an_ignore_file_replaces_every_other_pattern() {
        let file = "# a comment\n\n  ./data/  \r\n*.tmp\rdocs/*.md\n!keep.tmp\n/abs\n**/gone\n\u{1f}sp aced\u{a0}\n";
        for path in [
            "data",
            "a/data/b",
            "x.tmp",
            "keep.tmp",
            "docs/a.md",
            "docs/a/b.md",
            "a/b/gone",
            "sp aced",
        ] {
            assert!(left_out(Some(file), &[], path), "{path}");
        }
        for path in [".env", "a.md", "abs", "x/docs/a.md", "gone", "further"] {
            assert!(!left_out(Some(file), &["further"], path), "{path}");
        }
        assert!(!left_out(Some(""), &["a"], "a") && !left_out(Some("./\n/\n.//\n"), &[], "."));
        assert!(left_out(Some("././a"), &[], "./a"));
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
