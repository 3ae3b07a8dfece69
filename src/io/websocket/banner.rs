//! What the text on stdout says about telephone calls.

use crate::config::{Config, ListenAddresses, Transport};
use crate::io::module::BannerRow;
use crate::proto::telephony::Provider;
use crate::proto::telephony::proof::is_protected;

/// Returns the URLs to enter at the provider, and how its calls are authenticated.
pub fn rows(config: &Config, _: &ListenAddresses) -> Vec<BannerRow> {
    let provider = config.transport.and_then(Transport::provider);
    let mut rows = provider.map_or_else(Vec::new, |provider| provider_rows(provider, config));
    if config.telephony.unverified_calls {
        rows.push(("Unverified", "calls are accepted without proof of their origin".into()));
    }
    rows
}

fn provider_rows(provider: &Provider, config: &Config) -> Vec<BannerRow> {
    let telephony = &config.telephony;
    // `--proxy` is optional for a provider that takes no markup.
    let host = config.proxy.as_deref().unwrap_or("PUBLIC-HOST");
    let are_signed = provider.verifies(&telephony.settings) && telephony.verify_webhooks;
    let calls = match (is_protected(provider, telephony), config.ws_tokens) {
        (true, _) if provider.signs_upgrades => "need a token from the webhook, or a signature",
        (true, _) => "need a token from the webhook",
        (false, true) if are_signed => "need a token",
        (false, true) => "need a token, which the webhook issues to anyone",
        (false, false) => "open to anyone who knows the address",
    };
    let signatures = match (provider.signs(), are_signed) {
        (false, _) => "",
        (_, true) => ", signed by the provider",
        (_, false) => ", signatures are not verified",
    };
    let mut rows = vec![
        ("Webhook", format!("https://{host}/{signatures}")),
        ("Media", format!("wss://{host}/ws")),
        ("Calls", calls.into()),
    ];
    if !provider.hangs_up(&telephony.settings) {
        rows.push(("Hang-up", "none: the credentials are not set".into()));
    }
    rows
}
