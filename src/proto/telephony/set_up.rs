//! Points a number of a provider at the runner's webhook, and proves that the webhook answers.
//!
//! In: the number, the public URL, credentials, and the responses of the provider so far. Out: the
//! next step: a question without effects, a change with words for the operator, or the end. The
//! test is the webhook of a call that does not exist, signed as the provider signs: its answer has
//! to be markup for the media socket of that URL. No step needs an earlier one to be remembered, so
//! a dry run stops at the first change. Source: `docs/spec/telephony.md` 14.

use super::hangup;
pub use super::number_webhook::{NumberWebhook, SetUpStep};
use super::provider::Provider;
use super::settings::Settings;
use super::webhook;
use crate::server::rest::{RestBody, encode_path_segment};
use crate::sorting;

/// Returns the step after these responses, each a status and a body.
pub fn next_step(
    provider: &Provider,
    target: NumberWebhook<'_>,
    answers: &[(u16, Vec<u8>)],
    settings: &Settings,
) -> SetUpStep {
    let mut found = Vec::new();
    for (status, body) in answers {
        match status {
            200..=299 => found.push(Some(serde_json::from_slice(body).unwrap_or_default())),
            404 => found.push(None),
            _ => return SetUpStep::Failed(hangup::refusal(*status, body)),
        }
    }
    match provider.protocol.set_up(target, &found, settings) {
        Some(SetUpStep::Done) if found.last() == Some(&None) => {
            SetUpStep::Failed("what is to be changed is not there".to_owned())
        }
        Some(step) => step,
        None => SetUpStep::Failed(format!("{} sets up no numbers by its API", provider.vendor_name())),
    }
}

/// The webhook of a call, as the provider sends it.
pub struct CallWebhook {
    /// Its body.
    pub body: RestBody,
    /// The headers that sign it; empty if only the provider can sign.
    pub headers: Vec<(&'static str, String)>,
}

impl CallWebhook {
    /// Returns the test of a webhook, that of a call that does not exist; `nonce` is of digits, and
    /// used once.
    pub fn test(provider: &Provider, target: NumberWebhook<'_>, settings: &Settings, nonce: &str) -> Self {
        let numbers = [target.number; 2];
        CallWebhook::new(
            provider,
            target.url,
            &format!("set-up-{nonce}"),
            numbers,
            settings,
            nonce,
        )
    }

    /// Returns the webhook of a call with this id, between the numbers of the caller and of the
    /// called, at a public URL.
    pub fn new(
        provider: &Provider,
        url: &str,
        call: &str,
        [from, to]: [&str; 2],
        settings: &Settings,
        nonce: &str,
    ) -> Self {
        let form = [(provider.call_field, call), ("From", from), ("To", to)];
        let mut form = form.map(|(name, value)| (name.to_owned(), value.to_owned()));
        sorting::sort(&mut form);
        let pairs: Vec<String> = form
            .iter()
            .map(|(name, value)| format!("{name}={}", encode_path_segment(value)))
            .collect();
        let signed = provider.protocol.sign(settings, url, &form, nonce);
        CallWebhook {
            body: RestBody::form(&pairs.join("&")),
            headers: signed.unwrap_or_default(),
        }
    }

    /// Returns what the answer of the webhook proves.
    ///
    /// # Errors
    /// Why calls of the number would not reach the bot.
    pub fn judge(&self, provider: &Provider, host: &str, status: u16, body: &[u8]) -> Result<&'static str, String> {
        let body = String::from_utf8_lossy(body);
        let has_markup = status == 200 && body.contains(&webhook::socket_url(host, None, None));
        let is_rejected = is_unsigned(status, &body);
        let vendor = provider.vendor();
        match (has_markup, is_rejected, self.headers.is_empty()) {
            (true, _, false) => Ok("answers a signed request with markup for its media"),
            (true, _, true) => Ok("answers with markup for its media, and verifies no signatures"),
            (false, true, true) => Ok("verifies signatures, so only the provider can try it"),
            (false, true, false) => Err(format!(
                "the runner rejects the signature: it needs the same credentials of {}, and `--proxy {host}`",
                provider.vendor_name()
            )),
            (false, false, _) => Err(format!(
                "no runner with `-t {vendor}` and `--proxy {host}` answers there: status {status}"
            )),
        }
    }
}

/// Returns whether an answer rejects the signature of a webhook.
pub fn is_unsigned(status: u16, body: &str) -> bool {
    status == 403 && body.contains("invalid signature")
}

#[cfg(test)]
mod tests;
