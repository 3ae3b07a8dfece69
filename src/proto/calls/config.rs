//! The settings of the records of calls.

use std::path::PathBuf;

use serde_json::Value;

use crate::secret::SecretBytes;
use crate::transport::Transport;

/// What is kept of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallsConfig {
    /// Calls that are kept after their end; 0 keeps no records.
    pub kept: usize,
    /// Whether the texts of both sides are kept.
    pub has_texts: bool,
    /// Folder to which the records of ended calls are written.
    pub dir: Option<PathBuf>,
    /// Folder to which the sound of calls is written.
    pub record: Option<PathBuf>,
    /// Where events of calls are posted.
    pub events: Option<EventsConfig>,
    /// Whether operators may listen to live calls.
    pub listen_in: bool,
}

/// The receiver of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventsConfig {
    pub url: String,
    /// The key of the signatures.
    pub secret: SecretBytes,
}

impl CallsConfig {
    /// The default of `--calls-kept`.
    pub const KEPT_DEFAULT: usize = 200;

    /// Returns the folders with what is kept of calls.
    pub fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        self.dir.iter().chain(&self.record)
    }

    /// Returns whether the sound of any session is recorded or listened to.
    pub fn taps_sound(&self) -> bool {
        self.record.is_some() || self.listen_in
    }

    /// Returns whether the sound of a session is recorded.
    pub fn records(&self, transport: Option<Transport>, body: &Value) -> bool {
        self.record.is_some() && may_tap(transport, body)
    }

    /// Returns whether operators may listen to a session.
    pub fn allows_listening(&self, transport: Option<Transport>, body: &Value) -> bool {
        self.listen_in && may_tap(transport, body)
    }
}

/// Returns whether the sound of a session may be recorded and listened to. Its `body` can say
/// `"record": false`, which declines both. The parameters of a telephone call are texts: `false`,
/// `no`, `off` and `0` decline. No
/// sound of a Daily room passes the runner.
fn may_tap(transport: Option<Transport>, body: &Value) -> bool {
    let is_declined = match &body["record"] {
        Value::Bool(wish) => !wish,
        Value::Number(wish) => wish.as_f64() == Some(0.0),
        Value::String(wish) => {
            let wish = wish.trim();
            ["false", "no", "off", "0"]
                .iter()
                .any(|no| no.eq_ignore_ascii_case(wish))
        }
        _ => false,
    };
    let has_sound = transport.is_some_and(Transport::has_media);
    has_sound && !is_declined
}

impl Default for CallsConfig {
    fn default() -> Self {
        CallsConfig {
            kept: CallsConfig::KEPT_DEFAULT,
            has_texts: true,
            dir: None,
            record: None,
            events: None,
            listen_in: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_session_can_decline_to_be_recorded_and_listened_to() {
        let config = CallsConfig {
            record: Some("folder".into()),
            listen_in: true,
            ..CallsConfig::default()
        };
        let web = Some(Transport::WebRtc);
        for body in [
            json!({}),
            json!({"record": true}),
            json!({"record": 1}),
            json!({"record": "yes"}),
            json!({"record": ""}),
            json!(null),
            json!("x"),
        ] {
            assert!(
                config.records(web, &body) && config.allows_listening(web, &body),
                "{body}"
            );
            let off = CallsConfig::default();
            assert!(!off.records(web, &body) && !off.allows_listening(web, &body));
            for silent in [None, Some(Transport::Videoroom)] {
                assert!(!config.records(silent, &body) && !config.allows_listening(silent, &body));
            }
        }
        for body in [
            json!({"record": false}),
            json!({"record": 0}),
            json!({"record": "false"}),
            json!({"record": "No"}),
            json!({"record": " off "}),
            json!({"record": "0"}),
        ] {
            assert!(
                !config.records(web, &body) && !config.allows_listening(web, &body),
                "{body}"
            );
        }
    }
}
