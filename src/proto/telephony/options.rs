//! Reads the configuration of the telephony providers: accounts, keys and base URLs of their APIs,
//! and the public host name of the runner, which they connect to.
//!
//! In: options, and variables by the tables of the providers. Out: a [`Telephony`] and warnings.
//! Every credential is optional: without one, calls work but are not hung up. A base URL is
//! `http://` or `https://`, a host, and optionally a port and a path; trailing slashes are removed.
//! Rejects base URLs of any other form, a public key that is not 32 bytes in base64, and
//! credentials with characters that a header cannot contain. No message contains a credential.

use data_encoding::BASE64;

use super::dial::is_number;
use super::settings::{Holds, Setting, Settings, Telephony};
use super::{PROVIDERS, Provider};
use crate::features::Feature;
use crate::options::env::Variables;
use crate::options::hosts::{self, is_local_name};
use crate::options::values::{all_names, base, credential, found, wrong};
use crate::options::{Flag, FlagKind, ROOMS_AND_CALLS, UsageError, flag, put};

/// The typed options.
#[derive(Debug, Default)]
pub struct TelephonyOptions {
    pub proxy: Option<String>,
    pub no_verify_webhooks: bool,
    pub unverified_calls: bool,
    pub dial_out: Option<String>,
}

const fn telephony_flag<T>(long: &'static str, kind: FlagKind<T>, help: &'static str) -> Flag<T> {
    flag(long, kind, ROOMS_AND_CALLS, help).needs(&[Feature::Telephony])
}

impl<T: AsMut<TelephonyOptions>> Flag<T> {
    /// The options of telephone calls.
    pub const TELEPHONY: &'static [Flag<T>] = &[
        flag(
            "--proxy",
            FlagKind::Value("HOST", |args: &mut T, text| put(&mut args.as_mut().proxy, text)),
            ROOMS_AND_CALLS,
            "Public host name of this server, which telephony providers connect to. [default with -t PROVIDER: the \
             first --acme-name, if there is one]",
        )
        .short('x'),
        telephony_flag(
            "--no-verify-webhooks",
            FlagKind::Switch(|args: &mut T| args.as_mut().no_verify_webhooks = true),
            "Do not verify the signatures of telephony webhooks. By default they are verified if a credential for \
             that is set.",
        ),
        telephony_flag(
            "--unverified-calls",
            FlagKind::Switch(|args: &mut T| args.as_mut().unverified_calls = true),
            "Accept calls on /ws without proof that they come from their provider. Without this option, when webhooks \
             are verified, a call needs the token from its webhook or the provider's signature.",
        ),
        telephony_flag(
            "--dial-out",
            FlagKind::Value("NUMBER", |args: &mut T, text| match is_number(&text) {
                true => put(&mut args.as_mut().dial_out, text),
                false => Err("a number of your account, such as +15550001111".into()),
            }),
            "Let clients with the API key dial calls from this number by POST /calls. Needs `-t` of a provider that dials, \
             its credentials, `--proxy` and an API key.",
        ),
    ];
}

/// Reads the settings of these providers.
///
/// # Errors
/// [`UsageError`] that names the variable.
pub fn telephony(
    options: &TelephonyOptions,
    providers: &[&Provider],
    variables: &Variables,
    warnings: &mut Vec<String>,
) -> Result<Telephony, UsageError> {
    let mut settings = Settings::default();
    for provider in providers {
        credentials(provider, variables, &mut settings, warnings)?;
    }
    for setting in providers.iter().flat_map(|provider| provider.settings) {
        if let Holds::Base(_) = setting.holds
            && let Some(url) = base(variables, setting.name, warnings)?
        {
            settings.set(setting.name, url);
        }
    }
    Ok(Telephony {
        settings,
        verify_webhooks: !options.no_verify_webhooks,
        unverified_calls: options.unverified_calls,
        dial_from: options.dial_out.clone(),
    })
}

/// Resolves `--proxy`. A runner that has a certificate of a public name is reached by it.
///
/// # Errors
/// [`UsageError`] for a name that is none, and if markup of the provider needs one.
pub fn proxy(
    options: &TelephonyOptions,
    provider: Option<&Provider>,
    public_names: &[String],
    warnings: &mut Vec<String>,
) -> Result<Option<String>, UsageError> {
    if let Some(text) = &options.proxy {
        let (host, warning) = hosts::proxy(text)?;
        warnings.extend(warning);
        return Ok(Some(host));
    }
    match provider.filter(|provider| provider.takes_markup) {
        Some(provider) => match public_names.first() {
            Some(name) => Ok(Some(name.clone())),
            None => Err(UsageError::Combination(format!(
                "`-t {}` needs `--proxy HOST`, the public host name that the provider connects to, or `--tls acme`; for \
                 simulated calls alone, `--proxy localhost`",
                provider.vendor()
            ))),
        },
        None => Ok(None),
    }
}

/// Returns the `-t` options of the providers that need markup with a public host.
pub fn needs_proxy(providers: &[&Provider]) -> String {
    let with_markup = providers.iter().filter(|provider| provider.takes_markup);
    let words: Vec<String> = with_markup
        .map(|provider| format!("`-t {}`", provider.vendor()))
        .collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => "none".to_owned(),
    }
}

/// Warns of settings of the runner that block the calls of a provider.
pub fn warn_about_calls(provider: &Provider, allowed_origins: &[String], ws_tokens: bool, warnings: &mut Vec<String>) {
    let name = provider.vendor();
    if !allowed_origins.is_empty() {
        warnings.push(format!(
            "`-t {name}` with `--allowed-origins`: telephony providers send no Origin header, so their webhooks and calls \
             are refused"
        ));
    }
    if !provider.takes_markup && ws_tokens {
        warnings.push(format!(
            "`-t {name}` with `--ws-auth token`: every call needs a URL with a new token, but only `/start` and `POST /` \
             issue tokens, and the provider uses neither"
        ));
    }
}

/// Checks what `--dial-out` needs.
///
/// # Errors
/// [`UsageError`] that says what is missing.
pub fn check_dial_out(
    telephony: &Telephony,
    provider: Option<&Provider>,
    proxy: Option<&str>,
    has_api_key: bool,
) -> Result<(), UsageError> {
    if telephony.dial_from.is_none() {
        return Ok(());
    }
    let needs = match provider.filter(|provider| provider.protocol.dials()) {
        None => {
            let dials = PROVIDERS.iter().filter(|provider| provider.protocol.dials());
            let names: Vec<String> = dials.map(|provider| format!("`-t {}`", provider.vendor())).collect();
            names.join(" or ")
        }
        Some(provider) if !provider.hangs_up(&telephony.settings) => {
            let names: Vec<String> = provider.hangs_up_with.iter().map(|name| all_names(name)).collect();
            names.join(" and ")
        }
        Some(_) if proxy.is_none_or(is_local_name) => "the public name of the runner: `--proxy HOST`".to_owned(),
        Some(_) if !has_api_key => {
            "an API key: set `--api-key-file FILE`, or `auto` for one that the runner makes".to_owned()
        }
        Some(_) => return Ok(()),
    };
    Err(UsageError::Combination(format!("`--dial-out` needs {needs}")))
}

/// Reads the credentials of a provider. An account needs both its id and its token: one without the
/// other is ignored, with a warning.
fn credentials(
    provider: &Provider,
    variables: &Variables,
    settings: &mut Settings,
    warnings: &mut Vec<String>,
) -> Result<(), UsageError> {
    for setting in provider.settings {
        let value = match setting.holds {
            Holds::AccountId => account_id(variables, setting.name)?,
            Holds::Secret => credential(variables, setting.name)?,
            Holds::PublicKey => public_key(variables, setting.name)?,
            Holds::Base(_) => None,
        };
        if let Some(value) = value {
            settings.set(setting.name, value);
        }
    }
    let setting = |kind| provider.setting(|holds| holds == kind);
    let (Some(id), Some(token)) = (setting(Holds::AccountId), setting(Holds::Secret)) else {
        return Ok(());
    };
    let is_set = |setting: &Setting| settings.get(setting.name).is_some();
    let (present, missing) = match (is_set(id), is_set(token)) {
        (true, false) => (id.name, token.name),
        (false, true) => (token.name, id.name),
        (true, true) | (false, false) => return Ok(()),
    };
    settings.unset(present);
    warnings.push(format!(
        "{} is set but {} is not: {} calls are not hung up when their session ends, and webhooks are not verified",
        found(variables, present),
        all_names(missing),
        provider.vendor_name()
    ));
    Ok(())
}

fn account_id(variables: &Variables, name: &'static str) -> Result<Option<String>, UsageError> {
    let id = credential(variables, name)?;
    if id.as_deref().is_some_and(|id| id.contains([':', '/'])) {
        return Err(wrong(variables, name, "an account id without `:` and `/`"));
    }
    Ok(id)
}

fn public_key(variables: &Variables, name: &'static str) -> Result<Option<String>, UsageError> {
    let Some(text) = variables.get(name) else {
        return Ok(None);
    };
    match BASE64.decode(text.as_bytes()) {
        Ok(key) if key.len() == 32 => Ok(Some(text.to_owned())),
        _ => Err(wrong(
            variables,
            name,
            "the provider's Ed25519 public key: 32 bytes in base64",
        )),
    }
}

#[cfg(test)]
mod tests;
