//! Suggestions for mistyped names: the nearest known name.
//!
//! In: the given text and the known names. Out: the nearest name, if it is near enough. The
//! distance counts insertions, deletions, substitutions and swaps of neighbours (optimal string
//! alignment).

/// One edit is allowed per this many characters of a name.
const CHARS_PER_EDIT: usize = 3;

/// Returns the known name that is nearest to `given`, the first of several at the same distance. It
/// differs by at most one edit, or by one edit per three characters of `given`.
pub fn nearest<'n>(given: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let chars = given.trim_start_matches('-').chars().count();
    let edits_max = (chars / CHARS_PER_EDIT).max(1);
    // A difference in length is a number of edits, so that a long text is compared with no name.
    let length = given.chars().count();
    let lengths = length.saturating_sub(edits_max)..=length + edits_max;
    let near = known.into_iter().filter(|name| lengths.contains(&name.chars().count()));
    let distances = near.map(|name| (edit_distance(given, name), name));
    let (edits, name) = distances.min_by_key(|(edits, _)| *edits)?;
    (edits <= edits_max && edits < chars).then_some(name)
}

/// Returns the number of edits between two texts.
pub fn edit_distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=other.len()).collect();
    for i in 1..=one.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let substituted = above[j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut least = substituted.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_each_kind_of_edit_once() {
        for (one, other, edits) in [
            ("", "", 0),
            ("", "ab", 2),
            ("ab", "", 2),
            ("port", "port", 0),
            ("prt", "port", 1),
            ("ports", "port", 1),
            ("part", "port", 1),
            ("prot", "port", 1),
            ("é", "e", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(edit_distance(one, other), edits, "{one} {other}");
            assert_eq!(edit_distance(other, one), edits, "{other} {one}");
        }
    }

    #[test]
    fn suggests_near_names_and_no_others() {
        let bots = ["parrot", "echo"];
        assert_eq!(nearest("parot", bots), Some("parrot"));
        assert_eq!(nearest("ecoh", bots), Some("echo"));
        assert_eq!(nearest("cat", bots), None);
        assert_eq!(nearest("", bots), None);
        assert_eq!(nearest("x", ["y"]), None);
        assert_eq!(nearest("parrot", []), None);
        for long in ["-".repeat(1_000_000), "parrot".repeat(100_000)] {
            assert_eq!(nearest(&long, std::iter::repeat_n("parrot", 200)), None);
        }
        assert_eq!(
            nearest("RUNNER_HOTS", ["RUNNER_BOT", "RUNNER_HOST"]),
            Some("RUNNER_HOST")
        );
    }
}
