//! Evaluates whether the runner in service is registered at its LiveKit server.
//!
//! In: its answer to `GET /status`, and the Unix time. Out: a finding if it has no registration.
//! Of the answer, which may be another program's, only known words and a number are used.

use serde_json::Value;

use super::Finding;

/// The name of the check.
pub const WHAT: &str = "worker";

/// Returns the finding about a runner that is not registered; `None` if it is, or if the answer is
/// not that of a runner with `--register`.
pub fn of_running(status: &[u8], now_s: u64) -> Option<Finding> {
    let status: Value = serde_json::from_slice(status).ok()?;
    let worker = status.get("worker")?;
    let since_s = worker.get("not_registered_since")?.as_u64()?;
    let why = match worker.get("state")?.as_str()? {
        "refused" => "the server refuses it",
        "connecting" => "it is connecting",
        _ => return None,
    };
    let passed_s = now_s.saturating_sub(since_s);
    Some(Finding::error(
        WHAT,
        format!(
            "the runner in service has not been registered for {passed_s} s: {why}; the last WARN line of its log says why"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::FindingLevel;

    fn found(worker: Value) -> Option<Finding> {
        of_running(
            json!({"status": "connecting", "worker": worker}).to_string().as_bytes(),
            1_074,
        )
    }

    #[test]
    fn a_runner_without_a_registration_is_reported() {
        for (state, words) in [("refused", "the server refuses it"), ("connecting", "it is connecting")] {
            let finding = found(json!({"state": state, "not_registered_since": 1_000})).expect("a finding");
            assert_eq!((finding.level, finding.what), (FindingLevel::Error, "worker"));
            assert!(
                finding.text.contains("for 74 s: ") && finding.text.contains(words),
                "{}",
                finding.text
            );
        }
    }

    #[test]
    fn other_answers_are_no_finding() {
        assert_eq!(found(json!({"state": "registered", "since": 1_000})), None);
        assert_eq!(found(json!({"state": "draining", "not_registered_since": 1})), None);
        assert_eq!(found(json!({"state": "an odd\nword", "not_registered_since": 1})), None);
        assert_eq!(found(json!({"state": "refused", "not_registered_since": "1"})), None);
        assert_eq!(found(Value::Null), None);
        for other in ["", "not JSON", "[]", "{}"] {
            assert_eq!(of_running(other.as_bytes(), 1), None, "{other}");
        }
    }
}
