//! Judges the services of `--bot cascade`.
//!
//! In: a service, its host and model, and what it offers. Out: a finding, without the words of the
//! service.

use serde_json::{Map, Value};

use crate::assistant::services::failure::ServiceFailure;
use crate::doctor::Finding;

/// What a service offers.
#[derive(Clone, Debug, PartialEq)]
pub enum ServiceOffer {
    /// The programs of a Wyoming server: the data of its `info`.
    Programs(Map<String, Value>),
    /// The list of models of an HTTP service, as JSON.
    Models(Vec<u8>),
    /// It answers, and has no such list.
    Unknown,
}

/// What the answer of a service means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OfferVerdict<'a> {
    Failed(&'a ServiceFailure),
    /// It answers, and has no list of models.
    Unlisted,
    /// A Wyoming server with such programs.
    Offered,
    /// A Wyoming server without such programs.
    OtherKind,
    HasModel,
    LacksModel,
    /// What it answers is no list of models.
    NoModels,
}

/// Judges the answer of a service. `program` is the kind of its programs in Wyoming.
pub fn verdict<'a>(
    program: &str,
    model: Option<&str>,
    answer: &'a Result<ServiceOffer, ServiceFailure>,
) -> OfferVerdict<'a> {
    match answer {
        Err(failure) => OfferVerdict::Failed(failure),
        Ok(ServiceOffer::Unknown) => OfferVerdict::Unlisted,
        Ok(ServiceOffer::Programs(info)) => {
            let programs = info.get(program).and_then(Value::as_array);
            match programs.is_some_and(|programs| !programs.is_empty()) {
                true => OfferVerdict::Offered,
                false => OfferVerdict::OtherKind,
            }
        }
        Ok(ServiceOffer::Models(body)) => match models(body) {
            Some(models) if models.iter().any(|known| is_model(known, model.unwrap_or_default())) => {
                OfferVerdict::HasModel
            }
            Some(_) => OfferVerdict::LacksModel,
            None => OfferVerdict::NoModels,
        },
    }
}

/// Returns the finding about the answer of a service. `what` is its name.
pub fn judge(
    what: &'static str,
    program: &str,
    address: &str,
    model: Option<&str>,
    answer: &Result<ServiceOffer, ServiceFailure>,
) -> Finding {
    let name = model.unwrap_or_default();
    match verdict(program, model, answer) {
        OfferVerdict::Failed(failure) => {
            let advice = advice(failure).map_or_else(String::new, |advice| format!("; {advice}"));
            Finding::error(what, format!("{address}: {failure}{advice}"))
        }
        OfferVerdict::Unlisted => Finding::warning(
            what,
            format!("{address} answers, and has no list of models: whether the model works shows in a call"),
        ),
        OfferVerdict::Offered => Finding::ok(what, format!("{address} offers it over Wyoming")),
        OfferVerdict::OtherKind => Finding::error(
            what,
            format!("{address} is a Wyoming server of another kind; check the port"),
        ),
        OfferVerdict::HasModel => Finding::ok(what, format!("{address} has the model {name}")),
        OfferVerdict::LacksModel => Finding::warning(
            what,
            format!("{address} does not list the model {name}; check its name"),
        ),
        OfferVerdict::NoModels => Finding::error(
            what,
            format!("{address} answers without a list of models; check the URL"),
        ),
    }
}

/// Returns what to do about a failure; `None` where its text says it.
fn advice(failure: &ServiceFailure) -> Option<&'static str> {
    Some(match failure {
        ServiceFailure::NoRoute(_) | ServiceFailure::TimedOut(_) => {
            "start the service, or correct the host and port of its URL; in a container, it must listen on 0.0.0.0"
        }
        ServiceFailure::RefusedKey => "set its _API_KEY, or the file of its _API_KEY_FILE",
        ServiceFailure::UnknownModel | ServiceFailure::Rejected(_) => "check the path of its URL and its _MODEL",
        ServiceFailure::CutShort | ServiceFailure::Malformed(_) => "check that its URL names this kind of service",
        ServiceFailure::Fault | ServiceFailure::Empty => "see its log",
        ServiceFailure::NoQuota
        | ServiceFailure::Forbidden
        | ServiceFailure::RefusedContent
        | ServiceFailure::TooLong
        | ServiceFailure::Busy(_)
        | ServiceFailure::UnsupportedRate(_)
        | ServiceFailure::Certificate(_)
        | ServiceFailure::Unsendable(_) => return None,
    })
}

fn models(body: &[u8]) -> Option<Vec<String>> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let ids = body.get("data")?.as_array()?.iter();
    Some(ids.filter_map(|model| Some(model["id"].as_str()?.to_owned())).collect())
}

/// Ollama adds `:latest` to a name without a tag.
fn is_model(known: &str, model: &str) -> bool {
    known == model || known.strip_suffix(":latest") == Some(model)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::FindingLevel;

    fn level(program: &str, model: &str, answer: Result<ServiceOffer, ServiceFailure>) -> FindingLevel {
        judge("chat model", program, "nas", Some(model), &answer).level
    }

    #[test]
    fn models_are_looked_up_by_name() {
        let list = |ids: &[&str]| {
            let data: Vec<Value> = ids.iter().map(|id| json!({"id": id})).collect();
            Ok(ServiceOffer::Models(json!({"data": data}).to_string().into_bytes()))
        };
        assert_eq!(level("", "m", list(&["a", "m"])), FindingLevel::Ok);
        assert_eq!(level("", "m", list(&["m:latest"])), FindingLevel::Ok);
        assert_eq!(level("", "m", list(&["m:8b"])), FindingLevel::Warning);
        assert_eq!(level("", "m", Ok(ServiceOffer::Unknown)), FindingLevel::Warning);
        assert_eq!(
            level("", "m", Ok(ServiceOffer::Models(b"<html>".to_vec()))),
            FindingLevel::Error
        );
        assert_eq!(level("", "m", Err(ServiceFailure::RefusedKey)), FindingLevel::Error);
    }

    /// A failure says where, with the port, and what to do.
    #[test]
    fn a_service_that_is_not_there_has_an_address_and_advice() {
        let refused = ServiceFailure::NoRoute("connecting to 127.0.0.1: Connection refused".into());
        let finding = judge("recogniser", "asr", "127.0.0.1:10300", None, &Err(refused));
        assert_eq!(finding.level, FindingLevel::Error);
        let text = finding.text;
        assert!(
            text.starts_with("127.0.0.1:10300: connecting") && text.contains("; start the service"),
            "{text}"
        );
    }

    #[test]
    fn a_wyoming_server_must_be_of_the_right_kind() {
        let info = json!({"asr": [{"name": "faster-whisper"}], "tts": []});
        let info = || Ok(ServiceOffer::Programs(info.as_object().expect("an object").clone()));
        assert_eq!(level("asr", "", info()), FindingLevel::Ok);
        assert_eq!(level("tts", "", info()), FindingLevel::Error);
        assert_eq!(level("handle", "", info()), FindingLevel::Error);
    }
}
