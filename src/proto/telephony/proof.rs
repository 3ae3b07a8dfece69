//! Proof that a call on a media socket comes from its provider.
//!
//! In: the [`Proof`] of the upgrade, the credentials, and the call that the handshake names. Out:
//! acceptance, or a [`ProofError`] with texts for the close and the log. A provider whose webhooks
//! are verified is protected. Its calls need the token of a verified webhook for the same call, the
//! provider's signature on the upgrade, or a token that an API key's holder requested. Calls of
//! other providers need nothing; `--ws-auth token` is for them. A call whose id says that it is
//! simulated is controlled by messages on its socket, and never by requests to its provider.

use super::TelephonyCall;
use super::provider::Provider;
use super::settings::Telephony;
pub use crate::http::token::CallKey;

impl CallKey {
    /// Returns the key of a call with the provider's id.
    pub fn of(provider: &Provider, call_id: &str) -> CallKey {
        CallKey::new(provider.wire_name(), call_id)
    }
}

/// The start of the ids of simulated calls; no provider makes such ids.
pub const SIMULATED: &str = "simulated-";

/// The credential of a media socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Proof {
    #[default]
    Missing,
    /// The provider signed the upgrade.
    Signature(&'static Provider),
    /// The token of a verified webhook for the call with this [`CallKey`].
    Webhook(String),
    /// A token that an API key's holder requested.
    ApiKey,
}

/// A rejected call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofError {
    /// The provider signs, and the socket has no signed credential.
    Missing(&'static Provider),
    /// The token belongs to another call.
    OtherCall(&'static Provider),
}

impl ProofError {
    /// Returns the reason of the close frame, of at most 123 bytes.
    pub fn reason(self) -> &'static str {
        match self {
            ProofError::Missing(_) => {
                "no proof that the provider makes this call: the URL lacks the token of its webhook"
            }
            ProofError::OtherCall(_) => "the token in the URL was made for another call",
        }
    }

    /// Returns advice for the log; `host` is the public name of the runner.
    pub fn advice(self, host: Option<&str>) -> String {
        match self {
            ProofError::Missing(provider) => format!(
                "a call of {} came without proof that the provider makes it. Enter https://{}/ as the number's webhook (-t {}), \
                 so that this runner makes its markup, with a token; or see --unverified-calls",
                provider.wire_name(),
                host.unwrap_or("PUBLIC-HOST"),
                provider.wire_name(),
            ),
            ProofError::OtherCall(provider) => format!(
                "a call of {} came with a token that was made for another call",
                provider.wire_name()
            ),
        }
    }
}

impl Proof {
    /// Returns whether the socket has a credential.
    pub fn is_authorised(&self) -> bool {
        *self != Proof::Missing
    }

    /// Returns whether a call is a simulated one: its id says so, and its caller holds the
    /// API key, or the runner has none.
    pub fn is_simulation(&self, call: &TelephonyCall, has_api_key: bool) -> bool {
        call.call_id.starts_with(SIMULATED) && (!has_api_key || *self == Proof::ApiKey)
    }

    /// Checks whether the proof admits a call.
    ///
    /// # Errors
    /// Returns a [`ProofError`] if the call is not admitted.
    pub fn admit(&self, call: &TelephonyCall, telephony: &Telephony) -> Result<(), ProofError> {
        let provider = call.provider;
        match self {
            Proof::ApiKey => Ok(()),
            Proof::Webhook(key) if *key == CallKey::of(provider, &call.call_id).to_string() => Ok(()),
            Proof::Webhook(_) => Err(ProofError::OtherCall(provider)),
            Proof::Signature(signed) if *signed == provider => Ok(()),
            Proof::Signature(_) | Proof::Missing if is_protected(provider, telephony) => {
                Err(ProofError::Missing(provider))
            }
            Proof::Signature(_) | Proof::Missing => Ok(()),
        }
    }
}

/// Returns whether calls of a provider need proof: its webhooks are verified, and the configuration
/// does not allow unverified calls.
pub fn is_protected(provider: &Provider, telephony: &Telephony) -> bool {
    provider.verifies(&telephony.settings) && telephony.verify_webhooks && !telephony.unverified_calls
}

/// Returns whether calls of any of these providers need proof.
pub fn protects_any(providers: &[&Provider], telephony: &Telephony) -> bool {
    providers.iter().any(|provider| is_protected(provider, telephony))
}

#[cfg(test)]
mod tests;
