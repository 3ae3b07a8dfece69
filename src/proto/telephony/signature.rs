//! Whether a webhook comes from the provider that it claims to come from.
//!
//! In: the request as the provider saw it, that is its public URL, the headers, the raw body, and
//! the time in Unix seconds. Out: a [`Standing`], with a [`Fingerprint`] by which a webhook is
//! known when it comes again, or what is [`Wrong`] in words that name the URL of the computation
//! without its query, since a `--proxy` that is not the host the provider calls is the usual fault.
//! Signatures are compared in constant time. Refuses: missing, malformed, foreign and, where the
//! provider dates them, old signatures. Without a credential, or with verification turned off,
//! nothing is checked, and that is told. Provider d signs nothing. Source: the fact sheet on
//! telephony, section 9, and the validators that the providers publish.

use std::fmt;

use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};
use hmac::{Hmac, KeyInit, Mac};
use ring::signature::{ED25519, UnparsedPublicKey};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::Provider;
use crate::config::{Secret, Telephony};
use crate::form;
use crate::limits::{SIGNATURE_AGE_MAX_S, SIGNATURES_MAX};

const A_SIGNATURE: &str = "x-twilio-signature";
const A_SETTINGS: &str = "x-twilio-webhooks-signature-settings";
const B_SIGNATURE: &str = "telnyx-signature-ed25519";
const B_TIMESTAMP: &str = "telnyx-timestamp";
const C_SIGNATURE: &str = "x-plivo-signature-v3";
const C_MAIN_SIGNATURE: &str = "x-plivo-signature-ma-v3";
const C_NONCE: &str = "x-plivo-signature-v3-nonce";

/// A webhook as the provider sent it.
#[derive(Clone, Copy)]
pub struct Webhook<'r> {
    /// `https://{proxy}{path}[?query]`: what the provider calls, not what the runner is bound to.
    pub url: &'r str,
    /// Looks a header up by its name in lower case.
    pub header: &'r dyn Fn(&str) -> Option<&'r str>,
    pub body: &'r [u8],
}

/// Names what was signed: who sends a webhook once more, in whatever form, cannot change it.
pub type Fingerprint = [u8; 16];

/// How much a request that was not refused is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Verified(Fingerprint),
    /// There is nothing to verify with, or nobody wants it.
    NotChecked,
}

/// Why a request does not count as the provider's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    Missing {
        header: &'static str,
    },
    Malformed {
        header: &'static str,
    },
    /// The signature is not the one of this request. The URL is without its query.
    Foreign {
        header: &'static str,
        url: String,
    },
    /// The signature does not cover the URL, so only key or body can be at fault.
    ForeignBody {
        header: &'static str,
    },
    /// The account's own token did not sign this, and the request says that another key did.
    OtherKey,
    Stale {
        off_s: u64,
    },
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Missing { header } => write!(f, "no {header} header"),
            Wrong::Malformed { header } => write!(f, "the {header} header cannot be read"),
            Wrong::Foreign { header, url } => write!(
                f,
                "{header} is not the signature of this request to {url}; is that the address that the provider calls \
                 (`--proxy`), and the token that of the account?"
            ),
            Wrong::ForeignBody { header } => write!(
                f,
                "{header} is not the signature of this body; is the public key that of the account?"
            ),
            Wrong::OtherKey => write!(f, "signed with a key of its own ({A_SETTINGS}), which is not supported"),
            Wrong::Stale { off_s } => write!(
                f,
                "signed {off_s} s away from this machine's clock, {SIGNATURE_AGE_MAX_S} s are allowed"
            ),
        }
    }
}

impl std::error::Error for Wrong {}

/// Verifies a webhook (a POST) of the provider.
///
/// # Errors
/// [`Wrong`] when there is a credential to verify with, and the request does not pass. The answer is 403.
pub fn verify(
    provider: Provider,
    telephony: &Telephony,
    webhook: &Webhook<'_>,
    now_unix_s: u64,
) -> Result<Standing, Wrong> {
    if !telephony.verify_webhooks {
        return Ok(Standing::NotChecked);
    }
    match provider {
        Provider::A => match &telephony.a {
            Some(account) => a(&account.token, webhook),
            None => Ok(Standing::NotChecked),
        },
        Provider::B => match &telephony.b_public_key {
            Some(key) => b(key, webhook, now_unix_s),
            None => Ok(Standing::NotChecked),
        },
        Provider::C => match &telephony.c {
            Some(account) => c(&account.token, webhook),
            None => Ok(Standing::NotChecked),
        },
        Provider::D => Ok(Standing::NotChecked),
    }
}

/// Verifies the upgrade of a media socket, which only provider a signs. `url` is the one of the markup (`wss://…`), and
/// `header` looks up as in [`Webhook`]. A socket without the header is not checked: other providers come to the same path.
///
/// # Errors
/// [`Wrong`] when the header is there, a token to verify it too, and they do not fit.
pub fn verify_upgrade<'r>(
    telephony: &Telephony,
    url: &str,
    header: &dyn Fn(&str) -> Option<&'r str>,
) -> Result<Standing, Wrong> {
    let (Some(account), Some(_), true) = (&telephony.a, header(A_SIGNATURE), telephony.verify_webhooks) else {
        return Ok(Standing::NotChecked);
    };
    let bare = url.trim_end_matches('/');
    a_signed(&account.token, &[bare.to_owned(), format!("{bare}/")], "", header).map_err(|wrong| {
        // A token may follow in the path, and no log shows it.
        let host = url.match_indices('/').nth(2).map_or(url, |(end, _)| &url[..end]);
        wrong.at(&format!("{host}/ws"))
    })
}

impl Wrong {
    fn at(self, place: &str) -> Self {
        match self {
            Wrong::Foreign { header, .. } => Wrong::Foreign {
                header,
                url: place.to_owned(),
            },
            other => other,
        }
    }
}

/// Names a request by its signature: of one message and one key there is one.
fn verified(signature: &[u8]) -> Standing {
    let mut fingerprint = [0; 16];
    fingerprint.copy_from_slice(&Sha256::digest(signature)[..16]);
    Standing::Verified(fingerprint)
}

/// Provider a: HMAC-SHA1 over the URL and the sorted parameters of a form, or over the URL alone when that has the hash of
/// the body in its query.
fn a(token: &Secret, webhook: &Webhook<'_>) -> Result<Standing, Wrong> {
    let (place, query) = split_query(webhook.url);
    let hash = form::pairs(query.unwrap_or_default().as_bytes());
    let parameters = match form::value(&hash, "bodySHA256") {
        Some(hash) if !is_form(webhook) => {
            let told = HEXLOWER_PERMISSIVE.decode(hash.as_bytes()).unwrap_or_default();
            if told != Sha256::digest(webhook.body).as_slice() {
                return Err(Wrong::ForeignBody { header: A_SIGNATURE });
            }
            String::new()
        }
        _ => {
            // Distinct pairs in the order of their names, then of their values.
            let mut pairs = form::pairs(webhook.body);
            pairs.sort_unstable();
            pairs.dedup();
            concatenated(&pairs)
        }
    };
    a_signed(token, &with_and_without_port(webhook.url), &parameters, webhook.header).map_err(|wrong| wrong.at(place))
}

fn a_signed<'r>(
    token: &Secret,
    urls: &[String],
    parameters: &str,
    header: &dyn Fn(&str) -> Option<&'r str>,
) -> Result<Standing, Wrong> {
    let text = header(A_SIGNATURE).ok_or(Wrong::Missing { header: A_SIGNATURE })?;
    let signature = base64(A_SIGNATURE, text)?;
    let fits = |url: &String| {
        let mut mac = Hmac::<Sha1>::new_from_slice(token.expose().as_bytes()).expect("HMAC takes keys of any length");
        mac.update(url.as_bytes());
        mac.update(parameters.as_bytes());
        mac.verify_slice(&signature).is_ok()
    };
    if urls.iter().any(fits) {
        return Ok(verified(&signature));
    }
    if header(A_SETTINGS).is_some() {
        return Err(Wrong::OtherKey);
    }
    Err(Wrong::Foreign {
        header: A_SIGNATURE,
        url: String::new(),
    })
}

/// Provider b: Ed25519 over time and body.
fn b(key: &[u8; 32], webhook: &Webhook<'_>, now_unix_s: u64) -> Result<Standing, Wrong> {
    let text = (webhook.header)(B_SIGNATURE).ok_or(Wrong::Missing { header: B_SIGNATURE })?;
    let signature = base64(B_SIGNATURE, text)?;
    let timestamp = (webhook.header)(B_TIMESTAMP).ok_or(Wrong::Missing { header: B_TIMESTAMP })?;
    let signed_s: u64 = timestamp
        .parse()
        .map_err(|_| Wrong::Malformed { header: B_TIMESTAMP })?;
    let message = [timestamp.as_bytes(), b"|", webhook.body].concat();
    UnparsedPublicKey::new(&ED25519, key)
        .verify(&message, &signature)
        .map_err(|_| Wrong::ForeignBody { header: B_SIGNATURE })?;
    let off_s = now_unix_s.abs_diff(signed_s);
    if off_s > SIGNATURE_AGE_MAX_S {
        return Err(Wrong::Stale { off_s });
    }
    Ok(verified(&signature))
}

/// Provider c: HMAC-SHA256 over the URL with its query sorted, the sorted parameters of the form, and a nonce.
fn c(token: &Secret, webhook: &Webhook<'_>) -> Result<Standing, Wrong> {
    let nonce = (webhook.header)(C_NONCE).ok_or(Wrong::Missing { header: C_NONCE })?;
    let lists = [C_SIGNATURE, C_MAIN_SIGNATURE].map(webhook.header);
    if lists == [None, None] {
        return Err(Wrong::Missing { header: C_SIGNATURE });
    }
    let (place, query) = split_query(webhook.url);
    let message = format!("{}.{nonce}", c_base(place, query, webhook.body));
    let fitting = |text: &str| {
        let mut mac = Hmac::<Sha256>::new_from_slice(token.expose().as_bytes()).expect("HMAC takes keys of any length");
        mac.update(message.as_bytes());
        let signature = base64(C_SIGNATURE, text).ok()?;
        mac.verify_slice(&signature).is_ok().then_some(signature)
    };
    let mut signatures = lists
        .into_iter()
        .flatten()
        .flat_map(|list| list.split(',').take(SIGNATURES_MAX));
    if let Some(signature) = signatures.find_map(fitting) {
        return Ok(verified(&signature));
    }
    Err(Wrong::Foreign {
        header: C_SIGNATURE,
        url: place.to_owned(),
    })
}

/// What provider c signs of a POST, but for the nonce. The `?` is there whenever anything follows; the `.` parts a query from
/// parameters.
fn c_base(place: &str, query: Option<&str>, body: &[u8]) -> String {
    let mut base = place.to_owned();
    let mut query = form::pairs(query.unwrap_or_default().as_bytes());
    let mut parameters = form::pairs(body);
    query.sort_unstable();
    parameters.sort_unstable();
    if !query.is_empty() || !parameters.is_empty() {
        base.push('?');
    }
    let pairs: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    base += &pairs.join("&");
    if !query.is_empty() && !parameters.is_empty() {
        base.push('.');
    }
    for (name, value) in &parameters {
        base += name;
        base += value;
    }
    base
}

fn concatenated(pairs: &[(String, String)]) -> String {
    pairs.iter().flat_map(|(name, value)| [name.as_str(), value]).collect()
}

fn is_form(webhook: &Webhook<'_>) -> bool {
    (webhook.header)("content-type").is_some_and(|kind| {
        kind.split(';')
            .next()
            .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded"))
    })
}

fn base64(header: &'static str, text: &str) -> Result<Vec<u8>, Wrong> {
    BASE64
        .decode(text.trim().as_bytes())
        .map_err(|_| Wrong::Malformed { header })
}

/// Splits a URL into what is before the query, and the query. Requests have no fragment.
fn split_query(url: &str) -> (&str, Option<&str>) {
    match url.split_once('?') {
        Some((place, query)) => (place, Some(query)),
        None => (url, None),
    }
}

/// Returns a URL as it is, without a port, and with the default one: provider a leaves it out or not, as it pleases.
fn with_and_without_port(url: &str) -> [String; 3] {
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = match authority.rsplit_once(':') {
        // The colons of an IPv6 address are inside its brackets.
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let port = if matches!(scheme, "http" | "ws") { 80 } else { 443 };
    [
        url.to_owned(),
        format!("{scheme}://{host}{path}"),
        format!("{scheme}://{host}:{port}{path}"),
    ]
}

#[cfg(test)]
mod tests;
