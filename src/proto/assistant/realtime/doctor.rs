//! Judges the service of `--bot realtime`.
//!
//! In: the settings, and what became of a connection. Out: a finding, without the words of the
//! service.

use crate::assistant::config::RealtimeConfig;
use crate::assistant::realtime::{ErrorNames, classify, of_failure};
use crate::assistant::report::ConnectFailure;
use crate::doctor::Finding;

const WHAT: &str = "realtime";

/// What the service did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceAnswer {
    /// It opened a session.
    Session,
    NotConnected(ConnectFailure),
    Failed(ErrorNames),
    Closed(Option<u16>),
    /// It accepted the connection, and opened no session.
    Silent,
}

/// Judges an answer.
pub fn judge(realtime: &RealtimeConfig, answer: &ServiceAnswer) -> Finding {
    let (host, model) = (realtime.url.host(), &realtime.model);
    let why = match answer {
        ServiceAnswer::Session => return Finding::ok(WHAT, format!("{host} opens sessions with the model {model}")),
        ServiceAnswer::NotConnected(failure) => match (failure, of_failure(failure)) {
            (ConnectFailure::Refused { status, .. }, Some(class)) => {
                format!("it refuses connections with status {status}: {}", class.words())
            }
            (ConnectFailure::Unreachable(why), _) => why.clone(),
            _ => "no answer; check the address, and firewalls on the way".to_owned(),
        },
        ServiceAnswer::Failed(names) => {
            let class = classify(names.code.as_deref(), names.kind.as_deref(), true);
            class.words().to_owned()
        }
        ServiceAnswer::Closed(Some(code)) => format!("it closes the connection with code {code}"),
        ServiceAnswer::Closed(None) => "it closes the connection".to_owned(),
        ServiceAnswer::Silent => "it accepts connections and opens no session; is REALTIME_URL that of a \
                                  speech-to-speech service?"
            .to_owned(),
    };
    Finding::error(WHAT, format!("{host}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assistant::service_url::ServiceUrl;
    use crate::doctor::FindingLevel;

    #[test]
    fn failures_get_advice_without_words_of_the_service() {
        let realtime = RealtimeConfig {
            url: ServiceUrl::parse("wss://speech.example.net/v1?key=hunter2").expect("a URL"),
            model: "m".to_owned(),
            ..RealtimeConfig::default()
        };
        let ok = judge(&realtime, &ServiceAnswer::Session);
        assert_eq!(
            (ok.level, ok.text.as_str()),
            (FindingLevel::Ok, "speech.example.net opens sessions with the model m")
        );
        let refused = ConnectFailure::Refused {
            status: 401,
            code: Some("what was said".to_owned()),
        };
        for (answer, words) in [
            (ServiceAnswer::NotConnected(refused), "does not accept the key"),
            (ServiceAnswer::NotConnected(ConnectFailure::TimedOut), "firewalls"),
            (ServiceAnswer::Failed(ErrorNames::default()), "REALTIME_DIALECT"),
            (ServiceAnswer::Closed(Some(4000)), "code 4000"),
            (ServiceAnswer::Silent, "REALTIME_URL"),
        ] {
            let finding = judge(&realtime, &answer);
            assert_eq!(finding.level, FindingLevel::Error);
            assert!(finding.text.contains(words), "{finding:?}");
            assert!(
                !finding.text.contains("hunter2") && !finding.text.contains("was said"),
                "{finding:?}"
            );
        }
    }
}
