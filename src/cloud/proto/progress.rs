//! Progress of an upload: a bar for terminals, or one line per 10 %.
//!
//! In: bytes done and in total, elapsed time, terminal columns. Out: text that fits the columns.

use std::time::Duration;

/// Widest bar in columns.
const BAR: usize = 30;
/// Narrowest bar in columns; below this there is none.
const BAR_LEAST: usize = 10;

/// Formats percentage, bar, sizes, rate and remaining time, cut to the terminal's width.
pub fn bar(done: u64, total: u64, elapsed: Duration, columns: usize) -> String {
    let percent = format!("{:>3} %", percent(done, total));
    let tail = tail(done, total, elapsed);
    let rest = columns.saturating_sub(percent.len() + tail.len() + 5);
    let text = match rest {
        BAR_LEAST.. => {
            let width = rest.min(BAR);
            let full = (done.min(total) as u128 * width as u128)
                .checked_div(total.into())
                .map_or(width, |full| full as usize);
            let (full, empty) = ("#".repeat(full), " ".repeat(width - full));
            format!("{percent} [{full}{empty}] {tail}")
        }
        _ => format!("{percent} {tail}"),
    };
    text.chars().take(columns).collect()
}

/// The last reported tenth.
#[derive(Debug, Default)]
pub struct ProgressLines(u64);

impl ProgressLines {
    /// Returns a line when another tenth is done.
    pub fn line(&mut self, done: u64, total: u64, elapsed: Duration) -> Option<String> {
        let tenth = percent(done, total) / 10;
        if tenth <= self.0 {
            return None;
        }
        self.0 = tenth;
        Some(format!("{} % {}", tenth * 10, tail(done, total, elapsed)))
    }
}

/// An empty upload is complete.
fn percent(done: u64, total: u64) -> u64 {
    let hundred = u128::from(done.min(total)) * 100;
    hundred.checked_div(total.into()).map_or(100, |percent| percent as u64)
}

/// Formats sizes, and rate and remaining time once known.
fn tail(done: u64, total: u64, elapsed: Duration) -> String {
    let sizes = format!("{} of {}", size(done), size(total));
    let seconds = elapsed.as_secs_f64();
    if done == 0 || seconds <= 0.0 {
        return sizes;
    }
    let rate = done as f64 / seconds;
    let left = total.saturating_sub(done) as f64 / rate;
    // Float to integer conversion saturates.
    let (rate, left) = (size(rate as u64), left.ceil() as u64);
    match left {
        0 => format!("{sizes}, {rate}/s"),
        1..60 => format!("{sizes}, {rate}/s, {left} s left"),
        60..3600 => format!("{sizes}, {rate}/s, {}:{:02} min left", left / 60, left % 60),
        _ => format!("{sizes}, {rate}/s, {}:{:02} h left", left / 3600, left / 60 % 60),
    }
}

/// Formats a size with a binary unit.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 3] = ["KiB", "MiB", "GiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // Avoids `1024.0` after rounding.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// I-27: the bar fits the columns and has percentage, rate and remaining time.
    #[test]
    fn the_bar_shows_percentage_rate_and_remaining_time() {
        let text = bar(5 << 20, 20 << 20, SECOND * 2, 100);
        assert_eq!(
            text,
            " 25 % [#######                       ] 5.0 MiB of 20.0 MiB, 2.5 MiB/s, 6 s left"
        );
        assert_eq!(
            bar(0, 0, Duration::ZERO, 60),
            format!("100 % [{}] 0 B of 0 B", "#".repeat(30))
        );
        for columns in 0..120 {
            for (done, total) in [(0, 1), (1, 1), (u64::MAX, u64::MAX), (1, u64::MAX), (7, 3)] {
                let text = bar(done, total, SECOND / 3, columns);
                assert!(text.chars().count() <= columns, "{text}");
            }
        }
        assert_eq!(bar(1, 2, SECOND, 30), " 50 % 1 B of 2 B, 1 B/s, 1 s l");
    }

    /// I-27: each tenth is reported once.
    #[test]
    fn each_tenth_is_reported_once() {
        let mut lines = ProgressLines::default();
        let message: Vec<String> = (0..=1000)
            .filter_map(|done| lines.line(done, 1000, SECOND * 65))
            .collect();
        assert_eq!(message.len(), 10);
        assert_eq!(message[0], "10 % 100 B of 1000 B, 1 B/s, 9:45 min left");
        assert_eq!(message[9], "100 % 1000 B of 1000 B, 15 B/s");
        let mut lines = ProgressLines::default();
        assert_eq!(lines.line(9, 100, SECOND), None);
        assert!(
            lines
                .line(59, 100, SECOND)
                .is_some_and(|line| line.starts_with("50 % "))
        );
        assert_eq!(lines.line(59, 100, SECOND), None);
        assert!(
            lines
                .line(100, 100, SECOND * 4000)
                .is_some_and(|line| line.starts_with("100 % "))
        );
    }

    #[test]
    fn sizes_have_units_of_1024() {
        let expected = ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "500.0 MiB", "3.0 GiB"];
        assert_eq!(
            [0, 1023, 1024, 1536, 1_048_575, 524_288_000, 3 << 30].map(size),
            expected
        );
    }
}
