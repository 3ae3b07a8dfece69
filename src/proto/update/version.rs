//! The order of versions. Source: <https://semver.org>, sections 10 and 11.

use std::cmp::Ordering;

/// Returns whether a text has the form of a version: a digit, and then letters, digits, `.`, `+`
/// and `-`.
pub fn is_version(text: &str) -> bool {
    let is_usable = |byte: u8| byte.is_ascii_alphanumeric() || b".+-".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_digit()) && text.bytes().all(is_usable)
}

/// Compares two versions. What follows a `+` does not count.
pub fn compare(a: &str, b: &str) -> Ordering {
    let parts = |text: &str| -> (String, Option<String>) {
        let text = text.split('+').next().unwrap_or_default();
        match text.split_once('-') {
            Some((core, early)) => (core.to_owned(), Some(early.to_owned())),
            None => (text.to_owned(), None),
        }
    };
    let ((core_a, early_a), (core_b, early_b)) = (parts(a), parts(b));
    compare_lists(&core_a, &core_b).then_with(|| match (early_a, early_b) {
        (None, None) => Ordering::Equal,
        // What follows the first hyphen marks a version before the one without it.
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) => compare_lists(&a, &b),
    })
}

/// Compares lists with dots; of two that begin alike the shorter one comes first.
fn compare_lists(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.split('.'), b.split('.'));
    loop {
        let order = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(a), Some(b)) => compare_parts(a, b),
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// Compares numbers by value and before words, words by their characters.
fn compare_parts(a: &str, b: &str) -> Ordering {
    match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => a.cmp(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order in `tests/release/test_install.py`, and that of section 11.
    #[test]
    fn versions_have_the_order_of_semver() {
        let ascending = [
            "0.9.9",
            "0.10.0",
            "1.0.0-2",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.9",
            "1.0.0-alpha.10",
            "1.0.0-alpha.beta",
            "1.0.0-beta",
            "1.0.0-rc.1",
            "1.0.0",
            "1.0.0.1",
            "1.0.1",
            "1.10.0",
            "10.0.0",
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(compare(a, b), i.cmp(&j), "{a} and {b}");
            }
        }
        assert_eq!(compare("1.0.0+build", "1.0.0"), Ordering::Equal);
        assert_eq!(compare("1.0.0-rc+a-b", "1.0.0-rc+c"), Ordering::Equal);
    }

    #[test]
    fn a_version_has_no_other_characters() {
        for text in ["0.1.0", "1.0.0-rc.1+b2", "9"] {
            assert!(is_version(text), "{text}");
        }
        for text in ["", "v1.0.0", "1/2", "1.0 0", "../1", "1.0.0\n"] {
            assert!(!is_version(text), "{text}");
        }
    }
}
