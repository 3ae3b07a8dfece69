//! Writes all mutants of a file into one text, each behind a switch: mutant schemata (Untch, Offutt
//! and Harrold, 1993).
//!
//! In: a text and its [`Site`]s. Out: the text with insertions: `a < b` becomes
//! `(if on(7) { (a) <= (b) } else { a < b })`. One build then holds every mutant, and a mutant
//! costs a run of tests and no build. Only the original branch contains further switches, since one
//! mutant is on at a time.

use std::ops::Range;

use crate::find::{Place, Site};

/// The name of the module with the switch, which is added to the crate.
pub const SWITCH: &str = "mutant_switch";

/// A text with switches, and the bytes that each mutant takes in it.
pub struct Schemata {
    pub text: String,
    pub mutants: Vec<(u32, Range<usize>)>,
}

/// A text to insert: before or behind the original bytes of its site.
struct Insertion {
    at: usize,
    /// Orders insertions at the same byte: of nested sites, the outer one opens first and closes
    /// last. It is the longer one, or the one that was found first. What closes comes before what
    /// opens.
    order: (bool, isize, isize),
    text: String,
    /// Where the text of a mutant is within `text`.
    mutants: Vec<(u32, Range<usize>)>,
}

/// Writes the mutants of `sites` into `text`. `numbers` has the numbers of each site's mutants;
/// `None` leaves a mutant out.
pub fn write_mutants(text: &str, sites: &[Site], numbers: &[Vec<Option<u32>>]) -> Schemata {
    let mut insertions = Vec::new();
    for ((place, site), numbers) in (0_isize..).zip(sites).zip(numbers) {
        let mutants: Vec<(u32, &str)> = site
            .mutants
            .iter()
            .zip(numbers)
            .filter_map(|(mutant, number)| Some(((*number)?, mutant.text.as_str())))
            .collect();
        if !mutants.is_empty() {
            insertions.extend(of_site(place, site, &mutants));
        }
    }
    insertions.sort_by_key(|insertion| (insertion.at, insertion.order));
    let mut schemata = Schemata {
        text: String::new(),
        mutants: Vec::new(),
    };
    let mut from = 0;
    for insertion in insertions {
        schemata.text.push_str(&text[from..insertion.at]);
        from = insertion.at;
        let start = schemata.text.len();
        let shift = |range: Range<usize>| start + range.start..start + range.end;
        schemata.mutants.extend(
            insertion
                .mutants
                .into_iter()
                .map(|(number, range)| (number, shift(range))),
        );
        schemata.text.push_str(&insertion.text);
    }
    schemata.text.push_str(&text[from..]);
    schemata
}

fn of_site(place: isize, site: &Site, mutants: &[(u32, &str)]) -> Vec<Insertion> {
    let mut before = Text::default();
    let length = isize::try_from(site.bytes.len()).unwrap_or(isize::MAX);
    let behind = match site.place {
        Place::Expression => {
            before.plain("(");
            for (number, text) in mutants {
                before.mutant(*number, &format!("if crate::{SWITCH}::on({number}) {{ {text} }} else "));
            }
            before.plain("{ ");
            " })"
        }
        Place::Body => {
            for (number, text) in mutants {
                before.mutant(*number, &format!(" if crate::{SWITCH}::on({number}) {{ {text} }}"));
            }
            let opening = Insertion {
                at: site.bytes.start + 1,
                order: (true, -length, place),
                text: before.text,
                mutants: before.mutants,
            };
            return vec![opening];
        }
        Place::Guard => {
            for (number, text) in mutants {
                let test = format!("crate::{SWITCH}::on({number})");
                let text = if *text == "true" {
                    format!("{test} || ")
                } else {
                    format!("!{test} && ")
                };
                before.mutant(*number, &text);
            }
            before.plain("(");
            ")"
        }
        Place::Arm => {
            let (number, _) = mutants[0];
            before.mutant(number, &format!(" if !crate::{SWITCH}::on({number})"));
            let guard = Insertion {
                at: site.bytes.end,
                order: (false, length, -place),
                text: before.text,
                mutants: before.mutants,
            };
            return vec![guard];
        }
    };
    vec![
        Insertion {
            at: site.bytes.start,
            order: (true, -length, place),
            text: before.text,
            mutants: before.mutants,
        },
        Insertion {
            at: site.bytes.end,
            order: (false, length, -place),
            text: behind.to_owned(),
            mutants: Vec::new(),
        },
    ]
}

/// A text that remembers where its mutants are.
#[derive(Default)]
struct Text {
    text: String,
    mutants: Vec<(u32, Range<usize>)>,
}

impl Text {
    fn plain(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn mutant(&mut self, number: u32, text: &str) {
        let start = self.text.len();
        self.text.push_str(text);
        self.mutants.push((number, start..self.text.len()));
    }
}

/// The module with the switch. `MUTANT` selects a mutant by its number; `MUTANT_TRACE` names a file
/// to which each test appends its name, its duration in microseconds, and the mutants it reaches.
pub const SWITCH_SOURCE: &str = r#"//! Selects one mutant of the program.
#![allow(warnings)]

use std::cell::RefCell;
use std::io::Write;
use std::sync::LazyLock;
use std::time::Instant;

static ACTIVE: LazyLock<u32> =
    LazyLock::new(|| std::env::var("MUTANT").ok().and_then(|number| number.parse().ok()).unwrap_or(0));
static TRACE: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("MUTANT_TRACE").ok());

struct Reached {
    test: Option<String>,
    since: Instant,
    numbers: Vec<bool>,
}

impl Drop for Reached {
    fn drop(&mut self) {
        let (Some(path), Some(test)) = (TRACE.as_ref(), &self.test) else { return };
        let mut line = format!("{test} {}", self.since.elapsed().as_micros());
        for (number, _) in self.numbers.iter().enumerate().filter(|(_, reached)| **reached) {
            line.push_str(&format!(" {number}"));
        }
        line.push('\n');
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
}

thread_local! {
    static REACHED: RefCell<Reached> = RefCell::new(Reached {
        test: std::thread::current().name().map(str::to_owned),
        since: Instant::now(),
        numbers: vec![false; 1 << 16],
    });
}

pub fn on(number: u32) -> bool {
    if TRACE.is_some() {
        REACHED.with_borrow_mut(|reached| reached.numbers[number as usize] = true);
    }
    *ACTIVE == number
}
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::find;

    /// Returns the text with all mutants, numbered from 1, and the names of the mutants.
    fn written(text: &str) -> (String, Vec<String>) {
        let sites = find("f.rs", text).expect("the text is Rust");
        let mut next = 0;
        let mut number = || {
            next += 1;
            Some(next)
        };
        let numbers: Vec<_> = sites
            .iter()
            .map(|site| site.mutants.iter().map(|_| number()).collect())
            .collect();
        let names = sites
            .iter()
            .flat_map(|site| site.mutants.iter().map(|mutant| mutant.name.clone()))
            .collect();
        let schemata = write_mutants(text, &sites, &numbers);
        syn::parse_file(&schemata.text).expect("the result is Rust");
        for (number, range) in &schemata.mutants {
            assert!(
                schemata.text[range.clone()].contains(&format!("on({number})")),
                "{number}"
            );
        }
        (schemata.text.replace("crate::mutant_switch::", ""), names)
    }

    #[test]
    fn nested_expressions_are_switched_in_the_original_branch_only() {
        let (text, names) = written("fn f(a: T, b: T) -> T { a - b > c }");
        assert_eq!(
            text,
            "fn f(a: T, b: T) -> T { if on(1) { return Default::default(); } \
             (if on(2) { (a - b) == (c) } else if on(3) { (a - b) < (c) } else if on(4) { (a - b) >= (c) } else { \
             (if on(5) { (a) + (b) } else if on(6) { (a) / (b) } else { a - b }) > c }) }"
        );
        assert_eq!(names[1], "f.rs f: > becomes ==");
    }

    #[test]
    fn arms_are_left_out_and_guards_hold_or_fail() {
        let (text, names) = written("fn f(a: T) -> impl T { match a { 1 => x, n if g(n) => y, _ => z } }");
        assert_eq!(
            text,
            "fn f(a: T) -> impl T { match a { 1 if !on(1) => x, n if on(2) || !on(3) && (g(n)) => y, _ => z } }"
        );
        assert_eq!(
            names,
            [
                "f.rs f: without the arm 1",
                "f.rs f: the guard of n holds",
                "f.rs f: the guard of n fails"
            ]
        );
    }

    #[test]
    fn a_guard_that_is_an_operation_has_both_switches() {
        let (text, _) = written("fn f(a: T) -> impl T { match a { n if n == 1 => x, _ => y } }");
        assert_eq!(
            text,
            "fn f(a: T) -> impl T { match a { \
             n if on(1) || !on(2) && ((if on(3) { (n) != (1) } else { n == 1 })) => x, _ => y } }"
        );
    }

    #[test]
    fn an_arm_stays_where_the_others_do_not_cover_it() {
        assert_eq!(
            written("fn f(a: T) -> impl T { match a { A => x, B => z } }").1,
            [""; 0]
        );
    }

    #[test]
    fn assignments_and_negations() {
        let (text, names) = written("impl S { fn f(&mut self) { self.n += 1; g(!h); } }");
        assert_eq!(
            text,
            "impl S { fn f(&mut self) { if on(1) { return ; } \
             (if on(2) { self.n -= 1 } else if on(3) { self.n *= 1 } else { self.n += 1 }); \
             g((if on(4) { h } else { !h })); } }"
        );
        assert_eq!(names[1], "f.rs S::f: += becomes -=");
    }

    #[test]
    fn a_chain_with_let_keeps_its_ands() {
        let (text, _) = written("fn f() -> impl T { if let Some(a) = b && a != c && d {} }");
        assert_eq!(
            text,
            "fn f() -> impl T { if let Some(a) = b && (if on(1) { (a) == (c) } else { a != c }) && d {} }"
        );
    }

    #[test]
    fn constants_and_tests_have_no_switch() {
        let text = "const A: T = 1 + 2; const fn f() -> T { 1 + 2 } #[test] fn g() { h(1 + 2); } \
                    #[cfg(test)] mod tests { fn h() { g(1 + 2); } } fn i() -> impl T { [0; 1 + 2] }";
        assert_eq!(written(text), (text.to_owned(), Vec::new()));
    }

    #[test]
    fn the_same_mutant_twice_in_a_function_is_numbered() {
        let (_, names) = written("fn f() -> impl T { (a == b, c == d) }");
        assert_eq!(names, ["f.rs f: == becomes !=", "f.rs f: == becomes != (2)"]);
    }
}
