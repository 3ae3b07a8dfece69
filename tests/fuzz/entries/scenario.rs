//! Properties of the files of `edge-runner call --scenario`.
//!
//! In: the text of a file. It is read, or refused in a sentence that names a line of it; what is
//! read is within the limits.

use std::time::Duration;

use edge_runner_proto::caller::{CALL_SECONDS_MAX, STEPS_MAX, Scenario, StepSource};

const FILE: &str = "a.toml";
/// Longer than each sentence, with the longest name that it repeats.
const SENTENCE_BYTES_MAX: usize = 2_000;

/// A file.
pub fn scenario(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.matches('\n').count() + 1;
    let scenario = match Scenario::parse(FILE, &text) {
        Ok(scenario) => scenario,
        Err(error) => {
            let place = error.strip_prefix("a.toml:").and_then(|rest| rest.split_once(": "));
            let (line, sentence) = place.expect("a place");
            let line: usize = line.parse().expect("a line");
            assert!((1..=lines).contains(&line), "{error}");
            assert!(!sentence.is_empty() && error.len() <= SENTENCE_BYTES_MAX, "{error}");
            assert!(!error.contains(char::is_control), "{error:?}");
            return;
        }
    };
    let longest = Duration::from_secs(CALL_SECONDS_MAX);
    assert!(scenario.longest.is_none_or(|time| time <= longest));
    assert!((1..=STEPS_MAX).contains(&scenario.steps.len()));
    assert!(scenario.steps.is_sorted_by_key(|step| step.line));
    for step in &scenario.steps {
        assert!((1..=lines).contains(&step.line));
        let check = &step.check;
        for time in [Some(check.within), check.latency, check.silence].into_iter().flatten() {
            assert!(time <= longest);
        }
        assert!(check.latency.is_none() || step.action.as_ref().is_some_and(StepSource::is_sound));
    }
    let last = scenario.steps.len() - 1;
    assert!(scenario.steps[..last].iter().all(|step| step.check.end.is_none()));
}
