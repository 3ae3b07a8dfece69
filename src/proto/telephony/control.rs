//! Transfers of a call and keys sent to the caller, by the APIs of the providers.
//!
//! In: the call id from the handshake, a target or keys, and the credentials. Out: the request, or
//! the reason why there is none. Its response has the meaning of
//! [`hangup::outcome`]. Source: `docs/spec/telephony.md` 12.

use super::hangup;
use super::provider::Provider;
use super::settings::Settings;
use crate::call_control::{CallControlError, TransferTarget};
use crate::limits::{HANG_UP_ID_BYTES_MAX, KEYS_SENT_MAX};
use crate::server::rest::RestRequest;

/// What a provider offers instead of keys by its API.
const TONES_INSTEAD: &str = "play the tones of the keys as audio";

/// Returns the request that transfers a call. The runner must not hang up a transferred call.
///
/// # Errors
/// [`CallControlError`] if the provider cannot do it, or a credential or a valid id is missing.
pub fn transfer(
    provider: &Provider,
    call_id: &str,
    target: &TransferTarget,
    settings: &Settings,
) -> Result<RestRequest, CallControlError> {
    check_transfer(provider, target)?;
    let call = call(provider, call_id, settings)?;
    let request = provider.protocol.transfer(&call, target, settings);
    request.ok_or(CallControlError::CallId)
}

/// Checks whether a provider transfers calls to this target.
///
/// # Errors
/// [`CallControlError::NotOffered`] if it does not.
pub fn check_transfer(provider: &Provider, target: &TransferTarget) -> Result<(), CallControlError> {
    match provider.protocol.transfer_alternative(target) {
        Some(instead) => Err(CallControlError::NotOffered {
            provider: provider.name,
            instead,
        }),
        None => Ok(()),
    }
}

/// Checks keys, and whether a provider sends any.
///
/// # Errors
/// [`CallControlError::Keys`] or [`CallControlError::NotOffered`].
pub fn check_provider_keys(provider: &Provider, keys: &str) -> Result<(), CallControlError> {
    check_keys(keys)?;
    match provider.protocol.takes_keys() {
        true => Ok(()),
        false => Err(CallControlError::NotOffered {
            provider: provider.name,
            instead: TONES_INSTEAD,
        }),
    }
}

/// Returns the request that sends keys to the caller.
///
/// # Errors
/// [`CallControlError`] if the provider cannot do it, or a credential or a valid id is missing.
pub fn send_keys(
    provider: &Provider,
    call_id: &str,
    keys: &str,
    settings: &Settings,
) -> Result<RestRequest, CallControlError> {
    check_provider_keys(provider, keys)?;
    let call = call(provider, call_id, settings)?;
    let request = provider.protocol.send_keys(&call, keys, settings);
    request.ok_or(CallControlError::CallId)
}

/// Checks keys that are sent to a caller.
///
/// # Errors
/// [`CallControlError::Keys`] if they are none, too many, or no keys.
pub fn check_keys(keys: &str) -> Result<(), CallControlError> {
    let is_key = |key: char| matches!(key, '0'..='9' | '*' | '#' | 'A'..='D');
    match (1..=KEYS_SENT_MAX).contains(&keys.len()) && keys.chars().all(is_key) {
        true => Ok(()),
        false => Err(CallControlError::Keys),
    }
}

/// Returns the call's id as one path segment, if the credentials are set.
fn call(provider: &Provider, call_id: &str, settings: &Settings) -> Result<String, CallControlError> {
    if !provider.hangs_up(settings) {
        return Err(CallControlError::Credentials(provider.hangs_up_with));
    }
    hangup::segment_of(call_id)
        .filter(|_| call_id.len() <= HANG_UP_ID_BYTES_MAX)
        .ok_or(CallControlError::CallId)
}

#[cfg(test)]
mod tests;
