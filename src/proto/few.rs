//! Sorting of a few things.
//!
//! The library's sorts are made for long lists, and each type that they sort costs six kilobytes of code. The runner's lists
//! are addresses of interfaces, names in a certificate, files of a bot: a dozen, and a hundred bytes of code will do. Not for
//! lists whose length a peer chooses: the time grows with its square.

/// Sorts in place, and keeps the order of equals.
pub fn sort<T: Ord>(items: &mut [T]) {
    sort_by(items, |one, other| one < other);
}

/// Sorts in place by what `is_before` says of two, and keeps the order of those of which neither is before the other.
pub fn sort_by<T>(items: &mut [T], is_before: impl Fn(&T, &T) -> bool) {
    for end in 1..items.len() {
        let mut at = end;
        while at > 0 && is_before(&items[at], &items[at - 1]) {
            items.swap(at, at - 1);
            at -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_keep_their_order() {
        let mut words = ["bb", "a", "cc", "b", "aa", ""];
        sort_by(&mut words, |one, other| one.len() < other.len());
        assert_eq!(words, ["", "a", "b", "bb", "cc", "aa"]);
        sort(&mut words);
        assert_eq!(words, ["", "a", "aa", "b", "bb", "cc"]);
        sort::<u8>(&mut []);
    }
}
