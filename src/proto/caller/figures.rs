//! Percentiles over the calls of one run.
//!
//! In: durations. Out: a line of text and a JSON object, in seconds. The percentile is the nearest
//! rank: the smallest value that at least that share of all values does not exceed.

use std::time::Duration;

use serde_json::{Value, json};

use crate::sorting;

/// The reported percentiles.
const PERCENTILES: [(&str, usize); 4] = [("p50", 50), ("p90", 90), ("p99", 99), ("max", 100)];

/// Returns the percentiles of some durations, in seconds; `None` without any.
pub fn percentiles(values: &[Duration]) -> Option<[(&'static str, f64); 4]> {
    let mut sorted = values.to_vec();
    sorting::sort(&mut sorted);
    let last = sorted.len().checked_sub(1)?;
    Some(PERCENTILES.map(|(name, percent)| {
        let rank = (sorted.len() * percent).div_ceil(100);
        (name, sorted[rank.saturating_sub(1).min(last)].as_secs_f64())
    }))
}

/// Returns the line of a figure.
pub fn line(name: &str, values: &[Duration]) -> String {
    match percentiles(values) {
        None => format!("{name}: none"),
        Some(of) => {
            let of = of.map(|(percentile, seconds)| format!("{percentile} {seconds:.3} s"));
            format!("{name}: {} ({} values)", of.join(", "), values.len())
        }
    }
}

/// Returns the JSON of a figure; null without values.
pub fn object(values: &[Duration]) -> Value {
    percentiles(values).map_or(Value::Null, |of| {
        let members = of.map(|(name, seconds)| (name.to_owned(), json!(seconds)));
        Value::Object(members.into_iter().collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_rank_counts() {
        let values: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(
            line("connected", &values),
            "connected: p50 0.100 s, p90 0.180 s, p99 0.198 s, max 0.200 s (200 values)"
        );
        let one = [Duration::from_secs(2)];
        assert_eq!(object(&one), json!({"p50": 2.0, "p90": 2.0, "p99": 2.0, "max": 2.0}));
        assert_eq!((line("a", &[]), object(&[])), ("a: none".to_owned(), Value::Null));
    }
}
