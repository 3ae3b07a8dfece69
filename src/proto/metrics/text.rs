//! Writes the Prometheus text format: a help line and a type line per family, and a line per
//! sample.
//!
//! In: names, help and label values, which are constants that need no escaping, and numbers. Out:
//! text of format version 0.0.4. Source: Prometheus documentation, "Exposition formats".

use std::fmt::{Display, Write as _};
use std::time::Duration;

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
}

/// A text in progress.
pub struct MetricsText {
    text: String,
    name: &'static str,
}

impl Default for MetricsText {
    fn default() -> Self {
        MetricsText {
            // The whole text takes about 16 KiB.
            text: String::with_capacity(20 * 1024),
            name: "",
        }
    }
}

impl MetricsText {
    /// Starts a family; its samples follow.
    pub fn family(&mut self, name: &'static str, kind: MetricKind, help: &str) {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        self.head(name, kind, help);
    }

    /// Adds a sample to the family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.line("", labels, value);
    }

    /// Adds a histogram; `counts` are those of each bucket, the last one without a bound.
    pub fn histogram<const N: usize, const M: usize>(
        &mut self,
        name: &'static str,
        help: &str,
        bounds: &[Duration; N],
        counts: &[u64; M],
        sum: Duration,
    ) {
        self.head(name, "histogram", help);
        let mut below = 0;
        for (at, count) in counts.iter().enumerate() {
            below += count;
            match bounds.get(at) {
                Some(bound) => self.line("_bucket", &[("le", &bound.as_secs_f64().to_string())], below),
                None => self.line("_bucket", &[("le", "+Inf")], below),
            }
        }
        self.line("_sum", &[], sum.as_secs_f64());
        self.line("_count", &[], below);
    }

    pub fn into_string(self) -> String {
        self.text
    }

    fn head(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        // Writing to a `String` cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        for (at, (label, word)) in labels.iter().enumerate() {
            let begin = if at == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{begin}{label}=\"{word}\"");
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_families_and_histograms() {
        let mut text = MetricsText::default();
        text.family("a_total", MetricKind::Counter, "Things.");
        text.sample(&[("x", "1"), ("y", "2")], 7);
        text.family("b_seconds", MetricKind::Gauge, "Time.");
        text.sample(&[], 0.25);
        let bounds = [Duration::from_millis(5), Duration::from_secs(1)];
        text.histogram(
            "c_seconds",
            "Delays.",
            &bounds,
            &[1, 0, 2],
            Duration::from_millis(4_005),
        );
        assert_eq!(
            text.into_string(),
            "# HELP a_total Things.\n# TYPE a_total counter\na_total{x=\"1\",y=\"2\"} 7\n\
             # HELP b_seconds Time.\n# TYPE b_seconds gauge\nb_seconds 0.25\n\
             # HELP c_seconds Delays.\n# TYPE c_seconds histogram\n\
             c_seconds_bucket{le=\"0.005\"} 1\nc_seconds_bucket{le=\"1\"} 1\nc_seconds_bucket{le=\"+Inf\"} 3\n\
             c_seconds_sum 4.005\nc_seconds_count 3\n"
        );
    }
}
