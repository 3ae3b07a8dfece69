//! The check of the services that the form of the setup page names.
//!
//! In: the JSON of `POST /check`, and what the services answered to the requests of the doctor.
//! Out: the services to ask, within limits, and a [`ServiceReport`] for each: at which field
//! something is to be done, and what, in words of the page. A report has no key and no text of a
//! service. An address can be one of the board itself, where a recogniser or a voice may run.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

use super::change::FieldState;
use super::fields::{self, FieldGroup};
use super::form::known_variables;
use super::{SetupError, SetupState};
use crate::assistant::cascade::doctor::{OfferVerdict, ServiceOffer, verdict};
use crate::assistant::config::RealtimeConfig;
use crate::assistant::options::{OPENAI_MODEL, URL_DEFAULT};
use crate::assistant::realtime::doctor::ServiceAnswer;
use crate::assistant::realtime::{classify, of_failure};
use crate::assistant::report::{ConnectFailure, ErrorClass};
use crate::assistant::service_url::{ServiceUrl, ServiceVendor};
use crate::assistant::services::endpoint::{ServiceAccess, ServiceEndpoint, ServiceEndpointError};
use crate::assistant::services::failure::ServiceFailure;
use crate::secret::Secret;

/// A service of the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SetupService {
    Recognizer,
    Chat,
    Voice,
    Realtime,
}

/// The fields of a service of the bot `cascade`.
#[derive(Debug)]
struct CascadeFields {
    /// What it is, for the page.
    what: &'static str,
    /// The kind of its programs in Wyoming.
    program: &'static str,
    url: &'static str,
    model: &'static str,
    key: &'static str,
    example: &'static str,
}

const RECOGNIZER: CascadeFields = CascadeFields {
    what: "recogniser",
    program: "asr",
    url: "CASCADE_STT_URL",
    model: "CASCADE_STT_MODEL",
    key: "CASCADE_STT_API_KEY",
    example: "tcp://192.168.1.20:10300",
};
const CHAT: CascadeFields = CascadeFields {
    what: "chat model",
    program: "handle",
    url: "CASCADE_LLM_URL",
    model: "CASCADE_LLM_MODEL",
    key: "CASCADE_LLM_API_KEY",
    example: "http://192.168.1.20:11434/v1",
};
const VOICE: CascadeFields = CascadeFields {
    what: "voice",
    program: "tts",
    url: "CASCADE_TTS_URL",
    model: "CASCADE_TTS_MODEL",
    key: "CASCADE_TTS_API_KEY",
    example: "tcp://192.168.1.20:10200",
};
const VOICE_NAME: &str = "CASCADE_TTS_VOICE";

const REALTIME_URL: &str = "REALTIME_URL";
const REALTIME_MODEL: &str = "REALTIME_MODEL";
const REALTIME_KEY: &str = "REALTIME_API_KEY";
const OPENAI_KEY: &str = "OPENAI_API_KEY";

const NO_ENCRYPTION: &str = "A key is sent to the Internet over https:// only. Change the address, or remove the key.";

/// The body of `POST /check`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckForm {
    services: BTreeSet<SetupService>,
    variables: BTreeMap<String, String>,
}

/// A service to ask.
#[derive(Clone, Debug)]
pub enum ServiceCheck {
    Offer(OfferCheck),
    Session(Box<SessionCheck>),
}

/// A service of the bot `cascade`, which is asked what it offers.
#[derive(Clone, Debug)]
pub struct OfferCheck {
    service: SetupService,
    fields: &'static CascadeFields,
    pub access: ServiceAccess,
    model: Option<String>,
}

/// The service of the bot `realtime`, of which a session is opened.
#[derive(Clone, Debug)]
pub struct SessionCheck {
    pub config: RealtimeConfig,
}

/// What the page shows of a service.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ServiceReport {
    pub service: SetupService,
    pub state: ReportState,
    /// The variable of the field that it is about.
    pub variable: &'static str,
    pub text: String,
}

/// What a report means for the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReportState {
    Ok,
    /// It does not work now. It can be saved, since the service may come later.
    Failed,
    /// A field is empty or wrong, so that the form cannot be saved.
    Wrong,
}

/// Returns for each service of a form how to ask it, or what is wrong with its fields. `stored` are
/// the settings of a runner: the form does not have those of them that never leave it.
///
/// # Errors
/// [`SetupError`] for a body that is not such a form, or has other variables.
pub fn plan(json: &[u8], stored: &[FieldState]) -> Result<Vec<Result<ServiceCheck, ServiceReport>>, SetupError> {
    let mut form: CheckForm = serde_json::from_slice(json).map_err(|_| SetupError::Json)?;
    let known = fields::variables(&[FieldGroup::Realtime, FieldGroup::Cascade]);
    let is_asked_for = |state: &&FieldState| state.is_hidden() && known.contains(&state.field.name);
    for state in stored.iter().filter(is_asked_for) {
        // A key goes to no other address than the one that it was stored with.
        let is_same = |url: &str| {
            let kept = stored.iter().find(|other| other.field.name == url);
            let kept = kept.and_then(|other| other.value.as_ref()).map(Secret::expose);
            form.variables.get(url).is_none_or(|url| Some(&**url) == kept)
        };
        let may_be_sent = state.field.sent_to.is_none_or(is_same);
        if let Some(value) = state.value.as_ref().filter(|_| may_be_sent) {
            let name = state.field.name.to_owned();
            form.variables.entry(name).or_insert_with(|| value.expose().to_owned());
        }
    }
    let values = FieldValues(known_variables(&form.variables, &known).map_err(SetupError::Form)?);
    let plan = |service: SetupService| {
        let check = match service {
            SetupService::Recognizer => offer(service, &RECOGNIZER, &values),
            SetupService::Chat => offer(service, &CHAT, &values),
            SetupService::Voice => offer(service, &VOICE, &values),
            SetupService::Realtime => session(&values),
        };
        check.map_err(|(variable, text)| ServiceReport {
            service,
            state: ReportState::Wrong,
            variable,
            text,
        })
    };
    Ok(form.services.into_iter().map(plan).collect())
}

/// Returns how many services are asked.
pub fn to_ask(planned: &[Result<ServiceCheck, ServiceReport>]) -> usize {
    planned.iter().filter(|check| check.is_ok()).count()
}

/// The check of services by the setup page of a board.
impl SetupState {
    /// Takes the fields of services from an address; returns how to ask each of them, or what is
    /// wrong with its fields. [`handle_checked`](Self::handle_checked) follows for those to ask.
    ///
    /// # Errors
    /// [`SetupError`] for a body that is not such a form, one while another address has its draft,
    /// one after the end of the setup, or when too many services are asked.
    pub fn handle_check(
        &mut self,
        json: &[u8],
        (source, now): (IpAddr, Instant),
    ) -> Result<Vec<Result<ServiceCheck, ServiceReport>>, SetupError> {
        if self.closed {
            return Err(SetupError::Closed);
        }
        self.since(source, now)?;
        let planned = plan(json, &[])?;
        self.asked.begin(to_ask(&planned), now).map_err(SetupError::Busy)?;
        Ok(planned)
    }
}

/// The values of the form by their variables.
struct FieldValues(Vec<(&'static str, String)>);

impl FieldValues {
    fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| &**value)
    }
}

/// A field, and what is wrong with it.
type WrongField = (&'static str, String);

/// Reads the fields of a service of the bot `cascade`, as the runner does at its start.
fn offer(
    service: SetupService,
    fields: &'static CascadeFields,
    values: &FieldValues,
) -> Result<ServiceCheck, WrongField> {
    let what = fields.what;
    let url = values
        .get(fields.url)
        .ok_or_else(|| (fields.url, format!("Enter the address of the {what}.")))?;
    let example = fields.example;
    let endpoint = ServiceEndpoint::parse(url).map_err(|error| {
        let text = match error {
            ServiceEndpointError::Port => format!("Add the port of the {what}, as in {example}."),
            _ => format!("This is no address of a service. One looks like {example} or http://192.168.1.20:8000/v1."),
        };
        (fields.url, text)
    })?;
    let (key, model) = (values.get(fields.key), values.get(fields.model));
    let vendor = endpoint.vendor();
    if key.is_none() && matches!(vendor, ServiceVendor::OpenAi | ServiceVendor::Azure) {
        return Err((fields.key, format!("{} needs a key.", endpoint.address())));
    }
    if model.is_none() && matches!(endpoint, ServiceEndpoint::Http(_)) {
        return Err((fields.model, "Enter the name of its model.".to_owned()));
    }
    if fields.url == VOICE.url && vendor == ServiceVendor::OpenAi && values.get(VOICE_NAME).is_none() {
        return Err((VOICE_NAME, "Enter the name of a voice.".to_owned()));
    }
    let access = ServiceAccess::new(endpoint, key.map(Secret::new)).map_err(|error| match error {
        ServiceEndpointError::UselessKey => {
            let text = "Leave this empty: a service with a tcp:// address takes no key.";
            (fields.key, text.to_owned())
        }
        _ => (fields.url, NO_ENCRYPTION.to_owned()),
    })?;
    Ok(ServiceCheck::Offer(OfferCheck {
        service,
        fields,
        access,
        model: model.map(str::to_owned),
    }))
}

/// Reads the fields of the bot `realtime`, as the runner does at its start.
fn session(values: &FieldValues) -> Result<ServiceCheck, WrongField> {
    let url = ServiceUrl::parse(values.get(REALTIME_URL).unwrap_or(URL_DEFAULT)).map_err(|_| {
        let text = "This is no address of a service. One looks like https://api.openai.com/v1 or \
                    http://192.168.1.20:8080/v1.";
        (REALTIME_URL, text.to_owned())
    })?;
    let vendor = url.vendor();
    let is_openai = vendor == ServiceVendor::OpenAi;
    let key = values
        .get(REALTIME_KEY)
        .or_else(|| values.get(OPENAI_KEY).filter(|_| is_openai));
    if key.is_none() && vendor != ServiceVendor::Other {
        return Err((key_field(vendor), format!("Enter your key of {}.", url.host())));
    }
    if key.is_some() && !url.may_carry_key() {
        return Err((REALTIME_URL, NO_ENCRYPTION.to_owned()));
    }
    let model = values.get(REALTIME_MODEL).or(url.model());
    let model = model.or(is_openai.then_some(OPENAI_MODEL)).map(str::to_owned);
    let model = model.ok_or_else(|| {
        let text = "Enter the name of its speech-to-speech model.";
        (REALTIME_MODEL, text.to_owned())
    })?;
    let config = RealtimeConfig {
        key: key.map(Secret::new),
        dialect: vendor.dialect(),
        url: url.with_model(&model),
        model,
        ..RealtimeConfig::default()
    };
    Ok(ServiceCheck::Session(Box::new(SessionCheck { config })))
}

/// Returns the field for the key of a service of the bot `realtime`.
fn key_field(vendor: ServiceVendor) -> &'static str {
    match vendor {
        ServiceVendor::OpenAi => OPENAI_KEY,
        _ => REALTIME_KEY,
    }
}

impl OfferCheck {
    /// Returns what the page shows of the answer.
    pub fn report(&self, answer: &Result<ServiceOffer, ServiceFailure>) -> ServiceReport {
        let OfferCheck { fields, access, .. } = self;
        let (address, what) = (access.endpoint().address(), fields.what);
        let model = self.model.as_deref().unwrap_or_default();
        let (state, variable, text) = match verdict(fields.program, self.model.as_deref(), answer) {
            OfferVerdict::Offered => (ReportState::Ok, fields.url, format!("{address} offers a {what}.")),
            OfferVerdict::HasModel => (
                ReportState::Ok,
                fields.url,
                format!("{address} answers, and has the model {model}."),
            ),
            OfferVerdict::Unlisted => (
                ReportState::Ok,
                fields.url,
                format!("{address} answers. It lists no models, so the first call shows whether {model} works."),
            ),
            OfferVerdict::LacksModel => (
                ReportState::Failed,
                fields.model,
                format!("{address} answers, and does not have {model}. Check the name, or load the model there first."),
            ),
            OfferVerdict::OtherKind => (
                ReportState::Failed,
                fields.url,
                format!("{address} answers, and is no {what}. Each program has its own port: check the number."),
            ),
            OfferVerdict::NoModels => (ReportState::Failed, fields.url, other_protocol(address, what)),
            OfferVerdict::Failed(failure) => {
                let has_key = access.header().is_some();
                let (variable, text) = match failure {
                    ServiceFailure::NoRoute(why) => (fields.url, no_answer(address, Some(why))),
                    ServiceFailure::TimedOut(_) => (fields.url, no_answer(address, None)),
                    ServiceFailure::RefusedKey => (fields.key, refused_key(address, has_key)),
                    ServiceFailure::Forbidden => (
                        fields.key,
                        format!("{address} forbids it: check with the service what the key may be used for."),
                    ),
                    ServiceFailure::NoQuota => (fields.key, no_credit(address)),
                    ServiceFailure::Fault | ServiceFailure::Busy(_) => (fields.url, fault(address)),
                    ServiceFailure::Certificate(_) => (fields.url, untrusted(address)),
                    ServiceFailure::Unsendable(_) => (
                        fields.key,
                        "The key has a character that none has. Copy it again.".to_owned(),
                    ),
                    ServiceFailure::UnknownModel | ServiceFailure::Rejected(_) => (
                        fields.url,
                        format!("{address} does not know this path. Most addresses end in /v1."),
                    ),
                    ServiceFailure::RefusedContent
                    | ServiceFailure::TooLong
                    | ServiceFailure::Empty
                    | ServiceFailure::UnsupportedRate(_)
                    | ServiceFailure::CutShort
                    | ServiceFailure::Malformed(_) => (fields.url, other_protocol(address, what)),
                };
                (ReportState::Failed, variable, text)
            }
        };
        ServiceReport {
            service: self.service,
            state,
            variable,
            text,
        }
    }
}

impl SessionCheck {
    /// Returns what the page shows of the answer.
    pub fn report(&self, answer: &ServiceAnswer) -> ServiceReport {
        let (url, model) = (&self.config.url, &self.config.model);
        let (host, vendor) = (url.host(), url.vendor());
        let address = match vendor {
            // Its address is in no field.
            ServiceVendor::OpenAi => OPENAI_KEY,
            _ => REALTIME_URL,
        };
        let class = match answer {
            ServiceAnswer::NotConnected(failure) => of_failure(failure),
            ServiceAnswer::Failed(names) => Some(classify(names.code.as_deref(), names.kind.as_deref(), true)),
            _ => None,
        };
        let (variable, text) = match (answer, class) {
            (ServiceAnswer::Session, _) => (
                address,
                format!("{host} answers, and opens sessions with the model {model}."),
            ),
            (_, Some(ErrorClass::Auth)) => (key_field(vendor), refused_key(host, self.config.key.is_some())),
            (_, Some(ErrorClass::Quota)) => (key_field(vendor), no_credit(host)),
            (_, Some(ErrorClass::Protocol)) => (
                REALTIME_MODEL,
                format!("{host} does not accept this. Check address, model and voice."),
            ),
            (_, Some(_)) => (address, fault(host)),
            (ServiceAnswer::NotConnected(ConnectFailure::Unreachable(why)), _) => (address, no_answer(host, Some(why))),
            (ServiceAnswer::NotConnected(_), _) => (address, no_answer(host, None)),
            _ => (address, other_protocol(host, "speech-to-speech service")),
        };
        let state = match answer {
            ServiceAnswer::Session => ReportState::Ok,
            _ => ReportState::Failed,
        };
        ServiceReport {
            service: SetupService::Realtime,
            state,
            variable,
            text,
        }
    }
}

fn no_answer(address: &str, why: Option<&str>) -> String {
    let why = why.map_or_else(String::new, |why| format!(" The board reports: {why}."));
    format!(
        "{address} does not answer. Is it switched on, in this network, and its program started? On another machine the \
         program must accept other devices, mostly by listening on 0.0.0.0.{why}"
    )
}

fn refused_key(address: &str, has_key: bool) -> String {
    match has_key {
        true => format!("{address} does not accept this key. Copy it again as a whole."),
        false => format!("{address} asks for a key. Enter it."),
    }
}

fn no_credit(address: &str) -> String {
    format!("{address} accepts the key, whose account has no credit or has reached its limit. Add credit there.")
}

fn fault(address: &str) -> String {
    format!("{address} has a fault or too many requests at this moment. Try again in a minute.")
}

fn untrusted(address: &str) -> String {
    format!(
        "The certificate of {address} is not trusted by this board. Use the name that is in it, or, in your own network, \
         an address with http://."
    )
}

fn other_protocol(address: &str, what: &str) -> String {
    format!("{address} answers, and not as a {what}. Check the port and the end of the address.")
}

#[cfg(test)]
mod tests;
