//! One order: account, validations, certificate.
//!
//! In: the account and the names of an [`AcmeTls`]. Out: PEM of the certificate, its chain and a
//! new key, or an [`OrderFailure`]. A validation is answered by the TLS listener with a certificate
//! made here (RFC 8737 section 3). Source: RFC 8555 section 7.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, ChallengeType, Error, HttpClient, Identifier, NewAccount,
    NewOrder, Order, OrderStatus, RetryPolicy,
};
use log::debug;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::sign::CertifiedKey;

use super::http::DirectoryClient;
use super::{AcmeTls, lock};
use edge_runner_proto::limits::ACME_ORDER_WITHIN;
use edge_runner_proto::server::acme::{OrderFailure, Problem};

/// How often the directory is asked about an order.
const POLLING: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(1.5)
    .timeout(ACME_ORDER_WITHIN);

/// Orders one certificate.
pub async fn perform(acme: &Arc<AcmeTls>) -> Result<String, OrderFailure> {
    let retry_after = Arc::<Mutex<_>>::default();
    let client = DirectoryClient {
        trust: acme.trust.clone(),
        retry_after: retry_after.clone(),
    };
    perform_with(acme, client, &retry_after).await
}

/// Orders one certificate with a client that keeps the pause of the last refusal in `retry_after`.
pub async fn perform_with(
    acme: &Arc<AcmeTls>,
    client: impl HttpClient,
    retry_after: &Mutex<Option<Duration>>,
) -> Result<String, OrderFailure> {
    let ordered = order(acme, Box::new(client)).await;
    ordered.map_err(|mut failure| {
        // Only a refusal that ended the order counts; nonces are refused in between.
        failure.retry_after = *lock(retry_after);
        failure
    })
}

async fn order(acme: &Arc<AcmeTls>, client: Box<dyn HttpClient>) -> Result<String, OrderFailure> {
    let failed = |error| failure(acme, error, None);
    let account = account(acme, client).await?;
    let names: Vec<Identifier> = acme.config.names.iter().cloned().map(Identifier::Dns).collect();
    let mut order = match account.new_order(&NewOrder::new(&names)).await {
        Err(Error::Api(problem)) if is_unknown_account(&problem) => {
            forget_account(acme).await;
            return Err(failed(Error::Api(problem)));
        }
        ordered => ordered.map_err(failed)?,
    };
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(failed)?;
        // A name stays validated for some weeks.
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let name = authorization.identifier().to_string();
        // Each answer has a key of its own, and the TLS listener serves it to anybody.
        if !acme.config.names.iter().any(|own| own.eq_ignore_ascii_case(&name)) {
            return Err(OrderFailure::refused(format!(
                "{name}: the directory validates a name that was not ordered: choose another with --acme-directory"
            )));
        }
        let Some(mut challenge) = authorization.challenge(ChallengeType::TlsAlpn01) else {
            return Err(OrderFailure::refused(format!(
                "{name}: the directory offers no validation by `tls-alpn-01`, and the runner knows no other: choose another \
                 directory with --acme-directory"
            )));
        };
        let answer = answer(acme, &name, challenge.key_authorization().digest().as_ref());
        let answer = answer.map_err(|error| OrderFailure::refused(format!("{name}: making the answer: {error}")))?;
        debug!("the directory validates {name}");
        lock(&acme.validations).insert(name, answer);
        match challenge.set_ready().await {
            // The state of the order tells how the validation goes.
            Err(Error::Json(error)) if is_of_empty(&error) => debug!("the directory accepts without a body"),
            ready => ready.map_err(failed)?,
        }
    }
    let ready = order.poll_ready(&POLLING).await;
    if !matches!(ready, Ok(OrderStatus::Ready)) {
        return Err(refusal(acme, &mut order, ready.err()).await);
    }
    let made = || -> Result<_, rcgen::Error> {
        let mut request = CertificateParams::new(acme.config.names.clone())?;
        request.distinguished_name = DistinguishedName::new();
        let key = KeyPair::generate()?;
        Ok((request.serialize_request(&key)?, key))
    };
    let (request, key) = made().map_err(|error| OrderFailure::refused(format!("making the request: {error}")))?;
    order.finalize_csr(request.der()).await.map_err(failed)?;
    let chain = order.poll_certificate(&POLLING).await.map_err(failed)?;
    Ok(format!("{}\n{}", chain.trim_end(), key.serialize_pem()))
}

/// Returns the stored account, or makes one and stores it.
async fn account(acme: &Arc<AcmeTls>, client: Box<dyn HttpClient>) -> Result<Account, OrderFailure> {
    let failed = |error| failure(acme, error, None);
    let (stored, email) = {
        let account = lock(&acme.account);
        (account.credentials.clone(), account.email.clone())
    };
    let wanted = acme.config.email.clone();
    let contact: Vec<String> = wanted.iter().map(|email| format!("mailto:{email}")).collect();
    let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
    let stored = stored.and_then(|stored| serde_json::from_value::<AccountCredentials>(stored).ok());
    let builder = Account::builder_with_http(client);
    let (account, credentials) = match stored {
        Some(credentials) => {
            let account = builder.from_credentials(credentials).await.map_err(failed)?;
            if email == wanted {
                return Ok(account);
            }
            match account.update_contacts(&contact).await {
                Err(Error::Api(problem)) if is_unknown_account(&problem) => {
                    forget_account(acme).await;
                    return Err(failed(Error::Api(problem)));
                }
                updated => updated.map_err(failed)?,
            }
            (account, None)
        }
        None => {
            let new = NewAccount {
                contact: &contact,
                terms_of_service_agreed: true,
                only_return_existing: false,
            };
            let made = builder.create(&new, acme.config.directory.clone(), None).await;
            let (account, credentials) = made.map_err(failed)?;
            let credentials = serde_json::to_value(credentials).map_err(|error| failed(error.into()))?;
            (account, Some(credentials))
        }
    };
    let kept = acme.blocking(move |acme| {
        let mut state = lock(&acme.account);
        state.credentials = credentials.or(state.credentials.take());
        state.email = wanted;
        acme.files.write_account(&state)
    });
    // An order whose account is lost counts towards limits for nothing.
    match kept.await {
        Some(Ok(())) => Ok(account),
        Some(Err(error)) => Err(OrderFailure::refused(format!(
            "the account cannot be kept: {error}; see --state-dir"
        ))),
        None => Err(OrderFailure::refused("the account cannot be kept".into())),
    }
}

fn is_unknown_account(problem: &instant_acme::Problem) -> bool {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    kind.ends_with(":accountDoesNotExist")
}

/// Makes the next order use a new account: the directory has lost the stored one.
async fn forget_account(acme: &Arc<AcmeTls>) {
    acme.blocking(|acme| {
        let mut state = lock(&acme.account);
        state.credentials = None;
        acme.files.keep_account(&state);
    })
    .await;
}

/// Makes the certificate that answers a validation.
fn answer(
    acme: &AcmeTls,
    name: &str,
    digest: &[u8],
) -> Result<Arc<CertifiedKey>, Box<dyn std::error::Error + Send + Sync>> {
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    let der = params.self_signed(&key)?.der().clone();
    let key = PrivateKeyDer::try_from(key.serialize_der())?;
    // `from_der` rejects the critical extension, which is the answer.
    let key = acme.provider.key_provider.load_private_key(key)?;
    Ok(Arc::new(CertifiedKey::new(vec![der], key)))
}

/// Returns why an order did not become ready: the error of its first invalid validation, else that
/// of the order.
async fn refusal(acme: &AcmeTls, order: &mut Order, error: Option<Error>) -> OrderFailure {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        if authorization.refresh().await.is_err() {
            break;
        }
        let name = authorization.identifier().to_string();
        let mut errors = authorization
            .challenges
            .iter()
            .filter_map(|challenge| challenge.error.clone());
        if let Some(problem) = errors.next() {
            return failure(acme, Error::Api(problem), Some(&name));
        }
    }
    failure(acme, error.unwrap_or(Error::Str("the order is invalid")), None)
}

/// Tells whether an empty text was parsed.
fn is_of_empty(error: &serde_json::Error) -> bool {
    error.is_eof() && (error.line(), error.column()) == (1, 0)
}

/// Describes an error of `instant-acme`.
fn failure(acme: &AcmeTls, error: Error, name: Option<&str>) -> OrderFailure {
    let problem = match error {
        Error::Api(problem) => problem,
        // The text of the HTTP client names the host and says what to do.
        Error::Other(error) => return OrderFailure::unreachable(format!("{error}")),
        Error::Json(error) if is_of_empty(&error) => {
            return OrderFailure::unreachable(format!(
                "{} answered without a body where ACME has one: ask its operator, or choose another directory with \
                 --acme-directory",
                acme.config.directory
            ));
        }
        Error::Json(error) => {
            return OrderFailure::unreachable(format!(
                "{} answered what is not ACME ({error}): is it the URL of an ACME directory?",
                acme.config.directory
            ));
        }
        error @ Error::Timeout(_) => {
            return OrderFailure::refused(format!("the directory: {error}"));
        }
        error => return OrderFailure::unreachable(format!("{}: {error}", acme.config.directory)),
    };
    let sub = problem.subproblems.first();
    let about = sub.and_then(|sub| match &sub.identifier {
        Some(Identifier::Dns(name)) => Some(name.as_str()),
        _ => None,
    });
    let only = acme.config.names.first().filter(|_| acme.config.names.len() == 1);
    let detail = sub.and_then(|sub| sub.detail.as_deref()).or(problem.detail.as_deref());
    let described = Problem {
        kind: problem.r#type.as_deref().unwrap_or("no type"),
        detail: detail.unwrap_or("no detail"),
        status: problem.status.unwrap_or_default(),
        name: name.or(about).or(only.map(String::as_str)),
    };
    OrderFailure::of_problem(&described, acme.port_or_default())
}
