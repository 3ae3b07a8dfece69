//! Shell patterns with the semantics of Python's `fnmatch`, which the published client uses.
//!
//! In: a pattern, and text as [`code_points`]. Out: whether the pattern matches the whole text. `*`
//! matches any text including `/` and line feeds, `?` one character, `[...]` one of a set. There is
//! no escape character; a `[` without `]` is literal. The cost is at most the product of both
//! lengths. Source: CPython 3.11, `fnmatch.translate` and its tests.

pub mod docker;

/// Base of the surrogates that stand for bytes of invalid UTF-8, as in Python's file names.
const ESCAPED: u32 = 0xDC00;

/// Returns the code points of a name.
pub fn code_points(text: &[u8]) -> impl Iterator<Item = u32> {
    text.utf8_chunks().flat_map(|chunk| {
        let invalid = chunk.invalid().iter().map(|byte| ESCAPED + u32::from(*byte));
        chunk.valid().chars().map(u32::from).chain(invalid)
    })
}

/// A parsed pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<GlobToken>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum GlobToken {
    /// `*`.
    Star,
    Any,
    One(u32),
    Set(CharSet),
}

/// A character set as inclusive ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CharSet {
    negated: bool,
    ranges: Vec<(u32, u32)>,
}

impl CharSet {
    fn has(&self, point: u32) -> bool {
        let within = |&(least, most): &(u32, u32)| (least..=most).contains(&point);
        self.ranges.iter().any(within) != self.negated
    }
}

impl Pattern {
    /// Parses a pattern. Every text is a valid pattern.
    pub fn new(text: &str) -> Pattern {
        let text: Vec<u32> = text.chars().map(u32::from).collect();
        let mut parts = Vec::new();
        let mut rest = &text[..];
        // Without an end for one `[`, there is none for those behind it.
        let mut has_end = true;
        while let Some((&first, after)) = rest.split_first() {
            rest = after;
            parts.push(match char::from_u32(first) {
                Some('*') if parts.last() == Some(&GlobToken::Star) => continue,
                Some('*') => GlobToken::Star,
                Some('?') => GlobToken::Any,
                Some('[') => match has_end.then(|| set_end(after)).flatten() {
                    Some(end) => {
                        rest = &after[end + 1..];
                        set(&after[..end])
                    }
                    None => {
                        has_end = false;
                        GlobToken::One(first)
                    }
                },
                _ => GlobToken::One(first),
            });
        }
        Pattern(parts)
    }

    /// Tells whether the pattern matches the whole text.
    pub fn matches(&self, text: &[u32]) -> bool {
        let (mut part, mut at) = (0, 0);
        // Backtracking point: the token after the last star, and the end of the star's match.
        let mut again: Option<(usize, usize)> = None;
        loop {
            match self.0.get(part) {
                Some(GlobToken::Star) => {
                    part += 1;
                    again = Some((part, at));
                    continue;
                }
                Some(one) if text.get(at).is_some_and(|point| one.is(*point)) => {
                    (part, at) = (part + 1, at + 1);
                    continue;
                }
                None if at == text.len() => return true,
                _ => {}
            }
            match again {
                Some((behind, end)) if end < text.len() => {
                    again = Some((behind, end + 1));
                    (part, at) = (behind, end + 1);
                }
                _ => return false,
            }
        }
    }
}

impl GlobToken {
    fn is(&self, point: u32) -> bool {
        match self {
            GlobToken::Star => false,
            GlobToken::Any => true,
            GlobToken::One(own) => *own == point,
            GlobToken::Set(set) => set.has(point),
        }
    }
}

const BANG: u32 = '!' as u32;
const HYPHEN: u32 = '-' as u32;
const CLOSE: u32 = ']' as u32;

/// Returns the index of the closing `]`. A `]` at the start, or after a leading `!`, is a member.
fn set_end(text: &[u32]) -> Option<usize> {
    let mut from = usize::from(text.first() == Some(&BANG));
    from += usize::from(text.get(from) == Some(&CLOSE));
    text.get(from..)?
        .iter()
        .position(|&point| point == CLOSE)
        .map(|at| from + at)
}

/// Parses the content of the brackets. A hyphen forms a range unless it is first, last, or follows
/// the end of a range. A reversed range is dropped with its ends, and what then comes first decides
/// about negation.
fn set(text: &[u32]) -> GlobToken {
    let mut chunks: Vec<Vec<u32>> = Vec::new();
    let mut start = 0;
    let mut from = 1 + usize::from(text.first() == Some(&BANG));
    while let Some(at) = text
        .get(from..)
        .and_then(|rest| rest.iter().position(|&point| point == HYPHEN))
    {
        let hyphen = from + at;
        chunks.push(text[start..hyphen].to_vec());
        start = hyphen + 1;
        from = hyphen + 3;
    }
    match (&text[start..], chunks.last_mut()) {
        ([], Some(last)) => last.push(HYPHEN),
        (rest, _) => chunks.push(rest.to_vec()),
    }
    for second in (1..chunks.len()).rev() {
        let ends = (chunks[second - 1].last().copied(), chunks[second].first().copied());
        if let (Some(one), Some(other)) = ends
            && one > other
        {
            let tail = chunks.remove(second);
            let first = &mut chunks[second - 1];
            first.pop();
            first.extend(&tail[1..]);
        }
    }
    let negated = chunks[0].first() == Some(&BANG);
    if negated {
        chunks[0].remove(0);
        // In `[z-a!-c]` the remaining hyphen has nothing before it.
        if chunks[0].is_empty() && chunks.len() > 1 {
            chunks[0].push(HYPHEN);
            chunks.insert(1, Vec::new());
        }
    }
    let mut ranges: Vec<(u32, u32)> = chunks.iter().flatten().map(|&point| (point, point)).collect();
    let ends = chunks
        .windows(2)
        .filter_map(|pair| Some((*pair[0].last()?, *pair[1].first()?)));
    ranges.extend(ends);
    GlobToken::Set(CharSet { negated, ranges })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(text: &str, pattern: &str) -> bool {
        let code_points: Vec<u32> = code_points(text.as_bytes()).collect();
        Pattern::new(pattern).matches(&code_points)
    }

    /// Expected results are those of CPython 3.11.
    #[test]
    fn patterns_match_like_python() {
        for (text, pattern, expected) in [
            ("abc", "abc", true),
            ("abc", "?*?", true),
            ("abc", "???*", true),
            ("abc", "*???", true),
            ("abc", "???", true),
            ("abc", "*", true),
            ("abc", "ab[cd]", true),
            ("abc", "ab[!de]", true),
            ("abc", "ab[de]", false),
            ("a", "??", false),
            ("a", "b", false),
            ("", "", true),
            ("", "*", true),
            ("", "?", false),
            ("a", "", false),
            ("\\", "[\\]", true),
            ("a", "[!\\]", true),
            ("\\", "[!\\]", false),
            ("foo\nbar", "foo*", true),
            ("foo\nbar\n", "foo*", true),
            ("\nfoo", "foo*", false),
            ("\n", "*", true),
            ("a/b/c", "a*c", true),
            ("a/b", "a?b", true),
            (".env", ".env.*", false),
            (".env.local", ".env.*", true),
            (".ENV", ".env", false),
            ("[", "[", true),
            ("[a", "[a", true),
            ("[]", "[]", true),
            ("]", "[]]", true),
            ("a", "[]]", false),
            ("]", "[!]]", false),
            ("a", "[!]]", true),
            ("[!]", "[!]", true),
            ("^", "[^a]", true),
            ("b", "[^a]", false),
            ("a", "[^a]", true),
            ("!", "[a!]", true),
            ("b", "[a-c]", true),
            ("-", "[a-c]", false),
            ("-", "[-a]", true),
            ("-", "[a-]", true),
            ("-", "[!-a]", false),
            ("b", "[!-a]", true),
            ("-", "[a-b-c]", true),
            ("c", "[a-b-c]", true),
            ("b", "[z-a]", false),
            ("z", "[z-a]", false),
            ("b", "[!z-a]", true),
            ("b", "[z-ab-c]", true),
            ("a", "[z-ab-c]", false),
            ("x", "[z-a!]", true),
            ("x", "[z-a!x]", false),
            ("y", "[z-a!x]", true),
            ("b", "[a-cz-y]", true),
            ("z", "[a-cz-y]", false),
            ("-", "[z-a!-c]", false),
            ("b", "[z-a!-c]", true),
            ("&", "[&&~|]", true),
            ("]", "[--]]", false),
            ("-]", "[--]]", true),
            ("\u{e9}", "?", true),
            ("\u{e9}", "[\u{e0}-\u{ff}]", true),
            ("\u{1f600}", "[!a]", true),
            ("aab", "*ab", true),
            ("mississippi", "m*iss*p?", true),
            ("mississippi", "m*iss*q?", false),
        ] {
            assert_eq!(matches(text, pattern), expected, "{text:?} {pattern:?}");
        }
    }

    /// A byte of invalid UTF-8 counts as one character that only wildcards match.
    #[test]
    fn invalid_utf_8_matches_wildcards() {
        let name: Vec<u32> = code_points(b"a\xff\xe2\x82z").collect();
        assert_eq!(name, [0x61, 0xDCFF, 0xDCE2, 0xDC82, 0x7a]);
        assert!(Pattern::new("a???z").matches(&name) && Pattern::new("a[!b]*").matches(&name));
        assert!(!Pattern::new("a\u{fffd}*").matches(&name));
    }

    /// Patterns with many stars, which take a naive matcher exponential time.
    #[test]
    fn many_stars_take_polynomial_time() {
        let text: Vec<u32> = code_points("a".repeat(4096).as_bytes()).collect();
        assert!(!Pattern::new(&"*a".repeat(500)).matches(&[]));
        assert!(!Pattern::new(&("*a".repeat(500) + "b")).matches(&text));
        assert!(Pattern::new(&"*a".repeat(500)).matches(&text));
    }
}
