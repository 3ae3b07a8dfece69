//! Checks the credentials of telephony providers with requests that only read and cost nothing.
//!
//! In: the configuration; later the status of the response. Out: requests that change nothing, and
//! findings. Only the status is used. Source: the providers' API references ("Fetch an account",
//! "Retrieve user balance", "Retrieve an account").

use crate::config::Config;
use crate::doctor::Finding;
use crate::server::rest::RestRequest;
use crate::telephony::Provider;
use crate::telephony::proof::is_protected;
use crate::telephony::settings::Holds;
use crate::telephony::settings::Settings;
use crate::transport::Transport;

/// Returns the name of a provider's check: the one that people know.
pub fn what(provider: &'static Provider) -> &'static str {
    Transport::Telephony(provider).common_name()
}

/// Returns the request that tests the credentials; `None` if none are configured.
pub fn request(provider: &Provider, settings: &Settings) -> Option<RestRequest> {
    provider.protocol.probe(settings)
}

/// Evaluates a provider's response by its status.
pub fn answer(provider: &'static Provider, status: u16) -> Finding {
    let what = what(provider);
    match status {
        200..=299 => Finding::ok(what, "the provider accepts the credentials"),
        401 => Finding::error(
            what,
            "the provider rejects the credentials (401): the id or the key is wrong; calls are not hung up",
        ),
        // A key with restricted permissions may still hang up.
        403 => Finding::warning(
            what,
            "these credentials cannot read the account (403): the key has few permissions, or is wrong",
        ),
        404 => Finding::error(
            what,
            "the provider does not know the account (404): its id or the base URL of the API is wrong",
        ),
        300..=399 => Finding::error(
            what,
            format!("status {status}, a redirect: the base URL of the API is wrong"),
        ),
        429 | 500..=599 => Finding::warning(what, format!("the provider failed (status {status}); try again later")),
        _ => Finding::warning(what, format!("status {status}: the credentials could not be verified")),
    }
}

/// Reports missing credentials and their effect; `None` if the provider is not served.
pub fn missing(provider: &'static Provider, config: &Config) -> Option<Finding> {
    if config.transport != Some(Transport::Telephony(provider)) {
        return None;
    }
    let telephony = &config.telephony;
    let doubt = |text: String| Some(Finding::warning(what(provider), text));
    let hangs_up = provider.hangs_up(&telephony.settings);
    let is_protected = is_protected(provider, telephony);
    if !provider.signs() {
        let ends = match provider.hangs_up_with {
            [] => ", and its calls end with their WebSocket",
            _ if hangs_up => "",
            _ => ", and without credentials its calls are not hung up",
        };
        return doubt(format!(
            "this provider signs nothing{ends}: {OPEN}. Start without -t, with --api-key and `--ws-auth \
             token`, and let your own server get the URL of each call from /start; or require HTTP Basic in a proxy"
        ));
    }
    match (hangs_up, is_protected) {
        (false, false) => doubt(format!(
            "no credentials: calls work, but the runner does not hang up, and webhooks are not verified: {OPEN}"
        )),
        (false, true) => doubt("no key: calls work, but the runner does not hang up".to_owned()),
        (true, _) if !provider.verifies(&telephony.settings) => {
            let key = match provider.setting(|holds| holds == Holds::PublicKey) {
                Some(_) => "public key",
                None => "key",
            };
            doubt(format!("no {key}: webhooks are not verified, and {OPEN}"))
        }
        (true, false) => doubt(format!(
            "--no-verify-webhooks or --unverified-calls is set: calls are not verified, and {OPEN}"
        )),
        (true, true) => None,
    }
}

/// The consequence of unverified calls.
const OPEN: &str = "/ws is open to anyone who knows the address";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::FindingLevel;
    use crate::server::rest::RestMethod;
    use crate::telephony::named::{EXOTEL, PLIVO, TELNYX, TWILIO};
    use crate::telephony::settings::{Settings, Telephony};
    use crate::transport::Transport;

    fn telephony() -> Telephony {
        Telephony {
            settings: Settings::from([
                ("TELCO_A_ACCOUNT_SID", "AC01"),
                ("TELCO_A_AUTH_TOKEN", "a-token"),
                ("TELCO_B_API_KEY", "b-key"),
                ("TELCO_C_AUTH_ID", "MA01"),
                ("TELCO_C_AUTH_TOKEN", "c-token"),
            ]),
            ..Telephony::default()
        }
    }

    /// The requests have no effect: GET, without a body.
    #[test]
    fn only_reads_from_every_provider() {
        for (provider, url, authorization) in [
            (
                TWILIO,
                "https://api.twilio.com/2010-04-01/Accounts/AC01.json",
                "Basic QUMwMTphLXRva2Vu",
            ),
            (TELNYX, "https://api.telnyx.com/v2/balance", "Bearer b-key"),
            (
                PLIVO,
                "https://api.plivo.com/v1/Account/MA01/",
                "Basic TUEwMTpjLXRva2Vu",
            ),
        ] {
            let request = request(provider, &telephony().settings).expect("a request");
            assert_eq!((request.method, request.url.as_str()), (RestMethod::Get, url));
            assert_eq!(request.authorization.expect("credentials").expose(), authorization);
            assert!(request.body.is_none());
        }
        assert_eq!(request(EXOTEL, &telephony().settings), None);
        for provider in [TWILIO, TELNYX, PLIVO] {
            assert_eq!(request(provider, &Settings::default()), None);
        }
    }

    #[test]
    fn evaluates_responses() {
        for (status, verdict) in [
            (200, FindingLevel::Ok),
            (302, FindingLevel::Error),
            (401, FindingLevel::Error),
            (403, FindingLevel::Warning),
            (404, FindingLevel::Error),
            (418, FindingLevel::Warning),
            (429, FindingLevel::Warning),
            (503, FindingLevel::Warning),
        ] {
            assert_eq!(answer(TWILIO, status).level, verdict, "{status}");
        }
    }

    /// A provider whose calls need no proof causes a warning, whatever the reason.
    #[test]
    fn warns_of_a_provider_whose_calls_are_not_verified() {
        let with = |telephony| Config {
            transport: Some(Transport::Telephony(TWILIO)),
            telephony,
            ..Config::default()
        };
        assert_eq!(missing(TWILIO, &with(telephony())), None);
        let off = Telephony {
            verify_webhooks: false,
            ..telephony()
        };
        let switched = Telephony {
            unverified_calls: true,
            ..telephony()
        };
        for open in [off, switched, Telephony::default()] {
            let found = missing(TWILIO, &with(open)).expect("words");
            assert_eq!(found.level, FindingLevel::Warning);
            assert!(found.text.contains(OPEN), "{}", found.text);
        }
    }

    /// Missing settings are reported only for the provider of `-t`.
    #[test]
    fn reports_missing_settings_of_the_selected_provider() {
        let of = |transport: Option<Transport>| Config {
            transport,
            ..Config::default()
        };
        let served = missing(TWILIO, &of(Some(Transport::Telephony(TWILIO)))).expect("words");
        assert_eq!(served.level, FindingLevel::Warning);
        assert!(served.text.contains("does not hang up"));
        assert_eq!(missing(TWILIO, &of(None)), None);
        assert_eq!(missing(TWILIO, &of(Some(Transport::Telephony(TELNYX)))), None);
        let config = Config {
            telephony: telephony(),
            ..of(Some(Transport::Telephony(TELNYX)))
        };
        assert!(missing(TELNYX, &config).expect("words").text.contains("public key"));
        assert_eq!(missing(TWILIO, &config), None);
        let none = missing(EXOTEL, &of(Some(Transport::Telephony(EXOTEL)))).expect("words");
        assert_eq!(none.level, FindingLevel::Warning);
        assert!(none.text.contains("anyone") && none.text.contains("--ws-auth token"));
    }
}
