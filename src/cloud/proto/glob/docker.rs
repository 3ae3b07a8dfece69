//! Patterns of a `.dockerignore` as Docker reads them.
//!
//! In: a pattern, and a path relative to the root as code points. Out: a [`Reach`]. Patterns are
//! anchored to the root. `*` and `?` do not match `/`, `**/` matches any number of folders,
//! `[^...]` is a negated set, and `\` escapes. A pattern that matches a folder covers all in it.
//! The cost is at most the product of both lengths. Source: Docker's documentation, "Build
//! context", ".dockerignore files"; `github.com/moby/patternmatcher` 0.6.

use std::iter::Peekable;
use std::str::Chars;

use super::CharSet;

const SLASH: u32 = '/' as u32;

/// What a pattern has to do with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It matches the path or a folder that the path is in.
    Covers,
    /// It may match something in this folder.
    Inside,
    Misses,
}

/// A parsed pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DockerPattern(Vec<Token>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    One(u32),
    /// One character except `/`.
    Any,
    /// Any text without `/`.
    Star,
    /// Any text.
    Rest,
    /// Skips the next token, [`Token::Folders`], or does not.
    OptionalFolders,
    /// Any text that ends with `/`.
    Folders,
    Set(CharSet),
}

impl DockerPattern {
    /// Parses a pattern. `None` if Docker rejects it: a set that is not closed, is empty or has a
    /// reversed range, or a `\` at the end. A pattern without a name, such as `/`, matches nothing.
    pub fn new(text: &str) -> Option<DockerPattern> {
        let mut tokens = Vec::new();
        let text = clean(text);
        let mut rest = text.chars().peekable();
        while let Some(first) = rest.next() {
            match first {
                '*' if rest.next_if_eq(&'*').is_none() => tokens.push(Token::Star),
                '*' => {
                    rest.next_if_eq(&'/');
                    match rest.peek() {
                        None => tokens.push(Token::Rest),
                        Some(_) => tokens.extend([Token::OptionalFolders, Token::Folders]),
                    }
                }
                '?' => tokens.push(Token::Any),
                '[' => tokens.push(Token::Set(set(&mut rest)?)),
                '\\' => tokens.push(Token::One(rest.next()?.into())),
                _ => tokens.push(Token::One(first.into())),
            }
        }
        Some(DockerPattern(tokens))
    }

    /// Tells what the pattern has to do with a path.
    pub fn reach(&self, path: &[u32]) -> Reach {
        if self.0.is_empty() {
            return Reach::Misses;
        }
        // Whether each token may come next; the last place means that all have matched.
        let mut open = vec![false; self.0.len() + 1];
        open[0] = true;
        self.skip_optional(&mut open);
        for &point in path {
            if point == SLASH && open[self.0.len()] {
                return Reach::Covers;
            }
            open = self.step(&open, point);
            if !open.contains(&true) {
                return Reach::Misses;
            }
        }
        if open[self.0.len()] {
            return Reach::Covers;
        }
        match self.step(&open, SLASH).contains(&true) {
            true => Reach::Inside,
            false => Reach::Misses,
        }
    }

    fn step(&self, open: &[bool], point: u32) -> Vec<bool> {
        let mut next = vec![false; open.len()];
        for (at, token) in self.0.iter().enumerate().filter(|&(at, _)| open[at]) {
            match token {
                Token::One(own) => next[at + 1] |= *own == point,
                Token::Any => next[at + 1] |= point != SLASH,
                Token::Set(set) => next[at + 1] |= set.has(point),
                Token::Star => next[at] |= point != SLASH,
                Token::Rest => next[at] = true,
                Token::Folders => {
                    next[at] = true;
                    next[at + 1] |= point == SLASH;
                }
                Token::OptionalFolders => {}
            }
        }
        self.skip_optional(&mut next);
        next
    }

    /// Opens what follows tokens that match nothing as well.
    fn skip_optional(&self, open: &mut [bool]) {
        for (at, token) in self.0.iter().enumerate() {
            if open[at] && matches!(token, Token::Star | Token::Rest | Token::OptionalFolders) {
                open[at + 1] = true;
                if *token == Token::OptionalFolders {
                    open[at + 2] = true;
                }
            }
        }
    }
}

/// Cleans a pattern like Go's `filepath.Clean`, and removes the slash at its start.
fn clean(text: &str) -> String {
    let is_rooted = text.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if is_rooted => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// Parses a set up to its closing bracket.
fn set(rest: &mut Peekable<Chars<'_>>) -> Option<CharSet> {
    let negated = rest.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    loop {
        let least = match rest.next()? {
            ']' if ranges.is_empty() => return None,
            ']' => return Some(CharSet { negated, ranges }),
            '-' => return None,
            '\\' => rest.next()?,
            other => other,
        };
        let mut most = least;
        if rest.next_if_eq(&'-').is_some() {
            most = match rest.next()? {
                ']' | '-' => return None,
                '\\' => rest.next()?,
                other => other,
            };
        }
        if least > most {
            return None;
        }
        ranges.push((least.into(), most.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::code_points;
    use super::*;

    fn reach(pattern: &str, path: &str) -> Reach {
        let path: Vec<u32> = code_points(path.as_bytes()).collect();
        DockerPattern::new(pattern).expect("a pattern").reach(&path)
    }

    /// The rules of Docker's page, and those of its implementation that the page leaves out.
    #[test]
    fn patterns_match_like_docker() {
        use Reach::{Covers, Inside, Misses};
        for (pattern, path, expected) in [
            ("a", "a", Covers),
            ("a", "a/b/c", Covers),
            ("a", "b/a", Misses),
            ("a", "ab", Misses),
            ("/a/", "a", Covers),
            ("./a//b/", "a/b/c", Covers),
            ("a/../b", "b", Covers),
            ("/../b", "b", Covers),
            ("../b", "b", Misses),
            ("/", "a", Misses),
            (".", "a", Misses),
            ("*", "a/b", Covers),
            ("*.log", "x.log", Covers),
            ("*.log", "a/x.log", Misses),
            ("*/x", "a/x", Covers),
            ("*/x", "a/b/x", Misses),
            ("a?c", "abc", Covers),
            ("a?c", "a/c", Misses),
            ("**/*.log", "x.log", Covers),
            ("**/*.log", "a/b/x.log", Covers),
            ("**/x", "ax", Inside),
            ("**/x", "a", Inside),
            ("a/**", "a", Inside),
            ("a/**", "a/b/c", Covers),
            ("a/**/c", "a/c", Covers),
            ("a/**/c", "a/x/y/c", Covers),
            ("a/**/c", "a/xc", Inside),
            ("**", "a/b", Covers),
            ("a/b/c", "a", Inside),
            ("a/b/c", "a/b", Inside),
            ("a/b/c", "a/x", Misses),
            ("a/*/c", "a/x", Inside),
            ("[a-c]x", "bx", Covers),
            ("[^a-c]x", "bx", Misses),
            ("[^a-c]x", "dx", Covers),
            ("[!a]x", "!x", Covers),
            ("[\\]\\-]", "-", Covers),
            ("\\!a\\*", "!a*", Covers),
            ("\\*", "a", Misses),
        ] {
            assert_eq!(reach(pattern, path), expected, "{pattern:?} {path:?}");
        }
    }

    #[test]
    fn malformed_patterns_are_rejected() {
        for pattern in ["[", "a[b", "[]", "[^]", "[-a]", "[a-]", "[z-a]", "a\\", "[\\"] {
            assert_eq!(DockerPattern::new(pattern), None, "{pattern:?}");
        }
    }

    /// Patterns with many wildcards, which take a naive matcher exponential time.
    #[test]
    fn many_wildcards_take_polynomial_time() {
        let text = "a/".repeat(2048);
        assert_eq!(reach(&("**/*a".repeat(200) + "b"), &text), Reach::Inside);
    }
}
