//! Patterns of shells, as Python's `fnmatch` reads them, since that decides what the published client leaves out.
//!
//! In: a pattern, and text as [`code_points`]. Out: whether they match as wholes. `*` is any text, with `/` and line breaks in it, `?`
//! one character, `[...]` one of a set; there is no escape, so a backslash is a backslash, and a `[` without its `]` is one too.
//! Matching takes at most the product of both lengths.
//! Source: CPython 3.11, `fnmatch.translate`, and its tests, some of which are below.

/// What bytes that are no UTF-8 count as, one by one: Python's file names have them as these surrogates.
const ESCAPED: u32 = 0xDC00;

/// Returns the characters of a name, as numbers.
pub fn code_points(text: &[u8]) -> impl Iterator<Item = u32> {
    text.utf8_chunks().flat_map(|chunk| {
        let invalid = chunk.invalid().iter().map(|byte| ESCAPED + u32::from(*byte));
        chunk.valid().chars().map(u32::from).chain(invalid)
    })
}

/// One pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<GlobToken>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum GlobToken {
    /// Any text.
    Star,
    Any,
    One(u32),
    Set(CharSet),
}

/// Characters, each range with both its ends.
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
    /// Reads a pattern; every text is one.
    pub fn new(text: &str) -> Pattern {
        let text: Vec<u32> = text.chars().map(u32::from).collect();
        let mut parts = Vec::new();
        let mut rest = &text[..];
        while let Some((&first, after)) = rest.split_first() {
            rest = after;
            parts.push(match char::from_u32(first) {
                Some('*') if parts.last() == Some(&GlobToken::Star) => continue,
                Some('*') => GlobToken::Star,
                Some('?') => GlobToken::Any,
                Some('[') => match set_end(after) {
                    Some(end) => {
                        rest = &after[end + 1..];
                        set(&after[..end])
                    }
                    None => GlobToken::One(first),
                },
                _ => GlobToken::One(first),
            });
        }
        Pattern(parts)
    }

    /// Tells whether the pattern is that of the whole text.
    pub fn matches(&self, text: &[u32]) -> bool {
        let (mut part, mut at) = (0, 0);
        // Behind the last star, and where its text ends: what is tried again with one character more.
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

/// Where the `]` of a set stands, behind its `[`. One that comes first, or first behind `!`, is a member.
fn set_end(text: &[u32]) -> Option<usize> {
    let mut from = usize::from(text.first() == Some(&BANG));
    from += usize::from(text.get(from) == Some(&CLOSE));
    text.get(from..)?
        .iter()
        .position(|&point| point == CLOSE)
        .map(|at| from + at)
}

/// Reads what stands between the brackets. A hyphen makes a range of the characters around it, unless it comes first or last, or
/// the one before it is the end of a range. A range whose ends are the wrong way around is nothing, and its ends are gone with
/// it: whatever then comes first decides whether the set is negated.
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
        // `[z-a!-c]`: the hyphen that is left has nothing before it.
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

    /// Text, pattern and answer; each was asked of CPython 3.11.
    #[test]
    fn patterns_match_what_python_s_do() {
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

    /// A byte that is no UTF-8 is one character, beyond every pattern but those that take any.
    #[test]
    fn names_that_are_no_utf_8_have_characters_too() {
        let name: Vec<u32> = code_points(b"a\xff\xe2\x82z").collect();
        assert_eq!(name, [0x61, 0xDCFF, 0xDCE2, 0xDC82, 0x7a]);
        assert!(Pattern::new("a???z").matches(&name) && Pattern::new("a[!b]*").matches(&name));
        assert!(!Pattern::new("a\u{fffd}*").matches(&name));
    }

    /// What took a naive matcher the age of the universe.
    #[test]
    fn many_stars_take_no_longer_than_few() {
        let text: Vec<u32> = code_points("a".repeat(4096).as_bytes()).collect();
        assert!(!Pattern::new(&"*a".repeat(500)).matches(&[]));
        assert!(!Pattern::new(&("*a".repeat(500) + "b")).matches(&text));
        assert!(Pattern::new(&"*a".repeat(500)).matches(&text));
    }
}
