//! `edge-runner phone set-up`: points a number of a provider at this runner, and proves it.
//!
//! In: a [`PhoneSetUp`]. Out: lines for the operator, and requests to the runner and to the API of
//! the provider. The runner is tried first: a number is not pointed at what does not answer.
//! `proto::telephony::set_up` says what is asked, and what an answer proves.

use std::fmt;

use edge_runner_http::common::random;

use crate::config::Settings;
use crate::io::rest::{self, RestResponse};
use crate::proto::server::rest::{RestMethod, RestRequest};
use crate::proto::telephony::Provider;
use crate::proto::telephony::set_up::{CallWebhook, NumberWebhook, SetUpStep, next_step};

/// What is to be set up.
pub struct PhoneSetUp {
    pub provider: &'static Provider,
    pub number: String,
    /// The public host of the runner.
    pub host: String,
    pub settings: Settings,
    /// Where the runner is tried; `None` for its public name.
    pub runner: Option<String>,
    /// Whether nothing is changed.
    pub is_dry_run: bool,
}

impl fmt::Debug for PhoneSetUp {
    /// Omits the number and the credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PhoneSetUp")
            .field("provider", &self.provider)
            .field("is_dry_run", &self.is_dry_run)
            .finish_non_exhaustive()
    }
}

/// Sets a number up, and says each step.
///
/// # Errors
/// Why the number does not have the webhook.
pub async fn run(set_up: &PhoneSetUp, mut say: impl FnMut(&str)) -> Result<(), String> {
    let url = format!("https://{}/", set_up.host);
    let target = NumberWebhook {
        number: &set_up.number,
        url: &url,
    };
    match try_webhook(set_up, target).await {
        Ok(proof) => say(&format!("{url} {proof}")),
        Err(why) if set_up.is_dry_run => say(&format!("{url} would not serve the number yet: {why}")),
        Err(why) => return Err(format!("{url} was tried, and nothing was changed: {why}")),
    }
    let vendor = set_up.provider.vendor_name();
    let mut answers = Vec::new();
    loop {
        let request = match next_step(set_up.provider, target, &answers, &set_up.settings) {
            SetUpStep::Done => {
                say(&format!("{vendor} calls {url} for the number"));
                return Ok(());
            }
            SetUpStep::Failed(why) => return Err(format!("{vendor}: {why}")),
            SetUpStep::Change { what, .. } if set_up.is_dry_run => {
                say(&format!("would be changed: {what}"));
                return Ok(());
            }
            SetUpStep::Change { what, request } => {
                say(&what);
                request
            }
            SetUpStep::Ask(request) => request,
        };
        let RestResponse { status, body, .. } = rest::send(&request).await.map_err(|error| error.to_string())?;
        answers.push((status, body.to_vec()));
    }
}

/// Sends the runner the webhook of a call that does not exist; returns what its answer proves.
async fn try_webhook(set_up: &PhoneSetUp, target: NumberWebhook<'_>) -> Result<&'static str, String> {
    let nonce = u64::from_be_bytes(random()).to_string();
    let test = CallWebhook::test(set_up.provider, target, &set_up.settings, &nonce);
    let request = RestRequest {
        method: RestMethod::Post,
        url: set_up.runner.clone().unwrap_or_else(|| target.url.to_owned()),
        authorization: None,
        body: Some(test.body.clone()),
    };
    let answer = rest::send_with(&request, &test.headers, rest::STANDARD).await;
    let RestResponse { status, body, .. } = answer.map_err(|error| error.to_string())?;
    test.judge(set_up.provider, &set_up.host, status, &body)
}
