//! `edge-runner doctor`: what the state of a machine means for a runner with this configuration.
//!
//! In: facts, as values: addresses, routes, limits, the clock, answers. Out: [`Finding`]s, each with a verdict and words that
//! say what was found and what to do. No word of them is secret, and a peer's own words are never repeated.

#[cfg(feature = "tls")]
pub mod certificate;
pub mod machine;
pub mod messaging;
pub mod network;
pub mod providers;
pub mod rooms;

use std::fmt;

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Good,
    /// It works, and could work better.
    Doubtful,
    /// It keeps callers out.
    Broken,
}

/// One check: what was looked at, what was found, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub verdict: Verdict,
    pub what: &'static str,
    pub words: String,
}

impl Finding {
    pub fn good(what: &'static str, words: impl Into<String>) -> Self {
        Finding::new(Verdict::Good, what, words)
    }

    pub fn doubtful(what: &'static str, words: impl Into<String>) -> Self {
        Finding::new(Verdict::Doubtful, what, words)
    }

    pub fn broken(what: &'static str, words: impl Into<String>) -> Self {
        Finding::new(Verdict::Broken, what, words)
    }

    fn new(verdict: Verdict, what: &'static str, words: impl Into<String>) -> Self {
        Finding {
            verdict,
            what,
            words: words.into(),
        }
    }
}

/// Every check, in the order in which they are told.
#[derive(Clone, Debug, Default)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    /// Counts what keeps callers out.
    pub fn broken(&self) -> usize {
        let broken = |finding: &&Finding| finding.verdict == Verdict::Broken;
        self.0.iter().filter(broken).count()
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Finding { verdict, what, words } in &self.0 {
            let mark = match verdict {
                Verdict::Good => "ok",
                Verdict::Doubtful => "look",
                Verdict::Broken => "FAIL",
            };
            writeln!(f, "{mark:<6}{what:<12}{words}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_one_line_each_and_the_broken_ones_are_counted() {
        let findings = Findings(vec![
            Finding::good("clock", "right"),
            Finding::doubtful("memory", "little"),
            Finding::broken("http port", "taken"),
        ]);
        assert_eq!(findings.broken(), 1);
        assert_eq!(
            findings.to_string(),
            "ok    clock       right\nlook  memory      little\nFAIL  http port   taken\n"
        );
    }
}
