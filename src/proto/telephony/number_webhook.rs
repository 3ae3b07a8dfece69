//! A number with the webhook that its calls are to have, and the steps to set it.
//!
//! In: the number, the URL, and what the provider says of the webhook it has. Out: steps, and words
//! for the operator, for the files of the providers.

use serde_json::Value;

use crate::server::rest::RestRequest;

/// The name of an application that is made for a number without one.
pub(super) const APPLICATION: &str = "edge-runner";
/// Characters of a provider's URL or name that a step shows.
const SHOWN_CHARS_MAX: usize = 200;

/// A number, and the webhook that its calls are to have.
#[derive(Clone, Copy)]
pub struct NumberWebhook<'n> {
    /// In the form of E.164.
    pub number: &'n str,
    pub url: &'n str,
}

impl NumberWebhook<'_> {
    /// Returns the digits of the number.
    pub(super) fn digits(&self) -> &str {
        self.number.trim_start_matches('+')
    }

    /// Returns whether a provider calls this webhook already.
    pub(super) fn is(&self, url: &Value, method: &Value) -> bool {
        let is_post = method
            .as_str()
            .is_some_and(|method| method.eq_ignore_ascii_case("post"));
        url == self.url && is_post
    }

    /// Says what a change of the webhook does. All but the new URL are words of the provider.
    pub(super) fn change(&self, what: &str, url: &Value, method: &Value) -> String {
        let value = |value: &Value| match value.as_str() {
            Some(text) if !text.is_empty() => shown(text),
            _ => "none".to_owned(),
        };
        format!(
            "the webhook of {}: {} ({}) becomes {} (POST)",
            shown(what),
            value(url),
            value(method).to_uppercase(),
            self.url
        )
    }
}

/// Returns a text of a provider as a terminal shows it.
fn shown(text: &str) -> String {
    let letters = text.chars().filter(|letter| !letter.is_control());
    letters.take(SHOWN_CHARS_MAX).collect()
}

/// The next step.
#[derive(Debug, PartialEq, Eq)]
pub enum SetUpStep {
    /// A question without effects.
    Ask(RestRequest),
    /// A change, and what it does.
    Change {
        what: String,
        request: RestRequest,
    },
    /// The number has the webhook.
    Done,
    Failed(String),
}

/// Returns the step for a number that the account does not have.
pub(super) fn no_number() -> SetUpStep {
    SetUpStep::Failed("the account has no such number".to_owned())
}
