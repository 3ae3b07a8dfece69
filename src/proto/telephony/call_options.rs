//! The options of `edge-runner call` for a call as a telephony provider makes it.
//!
//! In: the options, the target and the variables. Out: the webhook with which the call begins.
//! Rejects numbers without `--proxy`, and `--proxy` for other targets. No error contains a
//! credential.

use super::PROVIDERS;
use super::dial::is_number;
use super::options::{TelephonyOptions, telephony};
use crate::caller::provider_webhook::WebhookCall;
use crate::caller::target::CallTarget;
use crate::options::env::Variables;
use crate::options::{CALLS, Expected, Flag, FlagKind, UsageError, flag, hosts, put};
use crate::transport::Transport;

/// What `-t` takes for such a call, for the help.
pub const PHONE_TRANSPORT: &str = "the name of a telephony provider, as which the caller then acts";

/// Returns the options of an example of such a call.
pub fn phone_example() -> String {
    format!(
        "-t {} --proxy bots.example.net --to +15550001111 --wav hello.wav",
        PROVIDERS[0].vendor()
    )
}

/// The typed options.
#[derive(Debug, Default)]
pub struct PhoneCallOptions {
    proxy: Option<String>,
    from: Option<String>,
    to: Option<String>,
}

impl<T: AsMut<PhoneCallOptions>> Flag<T> {
    /// The options of a call as a provider makes it.
    pub const PHONE_CALL: &'static [Flag<T>] = &[
        flag(
            "--proxy",
            FlagKind::Value("HOST", |args: &mut T, text| put(&mut args.as_mut().proxy, text)),
            CALLS,
            "Call as the telephony provider does, by the webhook of a runner with this public host name, its `--proxy`. It \
             is signed if the credentials of the provider are in the environment or in .env, as for the runner.",
        ),
        flag(
            "--from",
            FlagKind::Value("NUMBER", |args: &mut T, text| {
                put(&mut args.as_mut().from, telephone_number(text)?)
            }),
            CALLS,
            "The number of the caller, with `--proxy`.",
        ),
        flag(
            "--to",
            FlagKind::Value("NUMBER", |args: &mut T, text| {
                put(&mut args.as_mut().to, telephone_number(text)?)
            }),
            CALLS,
            "The number that is called, with `--proxy`.",
        ),
    ];
}

fn telephone_number(text: String) -> Result<String, Expected> {
    match is_number(&text) {
        true => Ok(text),
        false => Err("a number such as +15550001111".into()),
    }
}

/// Returns the webhook with which the call begins.
///
/// # Errors
/// [`UsageError`] that names the option or the variable.
pub fn webhook_call(
    options: &PhoneCallOptions,
    target: &CallTarget,
    variables: &Variables,
) -> Result<Option<WebhookCall>, UsageError> {
    let combination = |text: &str| UsageError::Combination(text.to_owned());
    let Some(proxy) = &options.proxy else {
        return match options.from.is_some() || options.to.is_some() {
            true => Err(combination(
                "`--from` and `--to` need the public name of the runner: `--proxy HOST`",
            )),
            false => Ok(None),
        };
    };
    let CallTarget::Started {
        transport: Transport::Telephony(provider),
        ..
    } = target
    else {
        return Err(combination(&format!(
            "`--proxy` needs a telephony provider that calls the webhook: `http://HOST:PORT` and `-t {}`",
            PROVIDERS[0].vendor()
        )));
    };
    let (host, _) = hosts::proxy(proxy)?;
    // A half of an account signs nothing; the refusal of the runner says what is missing.
    let telephony = telephony(&TelephonyOptions::default(), &[provider], variables, &mut Vec::new())?;
    Ok(Some(WebhookCall {
        host,
        numbers: [&options.from, &options.to].map(|number| number.clone().unwrap_or_default()),
        settings: telephony.settings,
    }))
}
