//! Verifies webhooks and upgrades as far as the configuration allows.
//!
//! In: the request, and the settings. Out: the [`SignatureStatus`], or the error.

use super::provider::Provider;
use super::settings::Telephony;
use super::signature::{SignatureError, SignatureStatus, WebhookRequest};

/// Verifies a webhook (a POST) of the provider.
///
/// # Errors
/// Returns a [`SignatureError`] if there is a credential and the request does not pass. The
/// response is 403.
pub fn verify(
    provider: &Provider,
    telephony: &Telephony,
    webhook: &WebhookRequest<'_>,
    now_unix_s: u64,
) -> Result<SignatureStatus, SignatureError> {
    match telephony.verify_webhooks {
        true => provider.protocol.verify(&telephony.settings, webhook, now_unix_s),
        false => Ok(SignatureStatus::NotChecked),
    }
}

/// Verifies the upgrade of a media socket, and returns the provider that signed it. `url` is that
/// of the markup (`wss://...`), and `header` looks up as in [`WebhookRequest`]. Providers share the
/// path, so an invalid signature is ignored, except for that of the `known` provider, whose URL is
/// certain.
///
/// # Errors
/// Returns a [`SignatureError`] if the known provider's signature is invalid.
pub fn verify_upgrade<'r>(
    providers: &[&'static Provider],
    known: Option<&Provider>,
    telephony: &Telephony,
    url: &str,
    header: &dyn Fn(&str) -> Option<&'r str>,
) -> Result<Option<&'static Provider>, SignatureError> {
    if !telephony.verify_webhooks {
        return Ok(None);
    }
    for provider in providers.iter().filter(|provider| provider.signs_upgrades) {
        match provider.protocol.verify_upgrade(&telephony.settings, url, header) {
            Ok(SignatureStatus::Verified(_)) => return Ok(Some(provider)),
            Err(wrong) if known == Some(provider) => return Err(wrong),
            Ok(SignatureStatus::NotChecked) | Err(_) => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
