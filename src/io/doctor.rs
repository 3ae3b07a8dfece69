//! `edge-runner doctor`: looks for what keeps callers out, and says in words what to do about it.
//!
//! In: the configuration that a runner would serve with. Out: [`Findings`], one line per check, for people.

use std::fmt;
use std::sync::Arc;

use crate::config::Config;

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

/// Every check, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    /// Counts what keeps callers out.
    pub fn broken(&self) -> usize {
        self.0
            .iter()
            .filter(|finding| finding.verdict == Verdict::Broken)
            .count()
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

/// Makes every check.
pub async fn examine(_config: Arc<Config>) -> Findings {
    Findings::default()
}
