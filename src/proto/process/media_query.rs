//! The query of `media_url`: what a program asks of its media when it connects.
//!
//! In: the query of the request, such as `live=1&rate=8000`. Out: a [`MediaQuery`]. Other names are
//! ignored.

use std::fmt;

use crate::limits::RATES_HZ;

/// What a program asks of its media.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediaQuery {
    /// The rate of the caller's speech in Hz; `None` means that of the session.
    pub rate_hz: Option<u32>,
    /// Whether the program reads from now on, and wants no speech from before.
    pub is_live: bool,
}

/// A rate that no speech has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidRate(String);

impl fmt::Display for InvalidRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (RATES_HZ.start(), RATES_HZ.end());
        write!(f, "`rate` of media_url takes {from} to {to}, not `{}`", self.0)
    }
}

impl std::error::Error for InvalidRate {}

impl MediaQuery {
    /// Parses the query of a request.
    ///
    /// # Errors
    /// [`InvalidRate`] for a rate that is no number from 8000 to 48000.
    pub fn parse(query: &str) -> Result<Self, InvalidRate> {
        let mut asked = MediaQuery::default();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "rate" => {
                    let rate_hz = value.parse().ok().filter(|rate_hz| RATES_HZ.contains(rate_hz));
                    asked.rate_hz = Some(rate_hz.ok_or_else(|| InvalidRate(value.chars().take(16).collect()))?);
                }
                "live" => asked.is_live = value == "1",
                _ => {}
            }
        }
        Ok(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_a_program_asks_for() {
        let parsed = |query| MediaQuery::parse(query).expect("a valid query");
        assert_eq!(parsed(""), MediaQuery::default());
        assert_eq!(parsed("live=0&color=red&rate"), MediaQuery::default());
        let asked = MediaQuery {
            rate_hz: Some(8_000),
            is_live: true,
        };
        assert_eq!(parsed("live=1&rate=8000"), asked);
        for wrong in ["7999", "48001", "", "16k"] {
            let refused = MediaQuery::parse(&format!("rate={wrong}")).expect_err("no rate");
            assert!(refused.to_string().contains("8000 to 48000"), "{refused}");
        }
    }
}
