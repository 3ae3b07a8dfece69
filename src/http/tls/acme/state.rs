//! The files of `--tls acme`: the account with its failures, and the certificate with its key.
//!
//! Each directory has files of its own, named by a hash of its URL, so that `--acme-staging` does
//! not replace a certificate that browsers trust. Files are private to their owner. A damaged
//! account is renamed, and another is made.

use std::io;

use log::warn;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio_rustls::rustls::crypto::CryptoProvider;

use crate::store::{Store, StoreLock};
use crate::tls::pair::CertificatePair;
use edge_runner_proto::server::acme::Failures;

/// The account, and the failures since its last certificate.
#[derive(Debug, Default)]
pub struct AccountState {
    /// The credentials as `instant-acme` serializes them, with the key; `None` before the first
    /// order.
    pub credentials: Option<Value>,
    /// The contact address that the directory knows.
    pub email: Option<String>,
    pub failures: Failures,
}

/// The files of one directory.
pub struct StateFiles {
    store: Store,
    account: String,
    certificate: String,
}

/// Returns the names of the account file and the certificate file of a directory.
pub fn file_names(directory: &str) -> (String, String) {
    let digest = Sha256::digest(directory);
    let mark: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    (format!("acme-{mark}.json"), format!("acme-{mark}.pem"))
}

impl StateFiles {
    pub fn new(store: Store, directory: &str) -> StateFiles {
        let (account, certificate) = file_names(directory);
        StateFiles {
            store,
            account,
            certificate,
        }
    }

    /// Waits until no other runner orders.
    ///
    /// # Errors
    /// Returns the operating system's error, or [`io::ErrorKind::TimedOut`].
    pub fn lock(&self) -> io::Result<StoreLock> {
        self.store.lock_named("acme.lock")
    }

    /// Reads the account. A damaged file is renamed.
    pub fn read_account(&self, clock_s: u64) -> AccountState {
        let path = self.store.path(&self.account);
        let why = match self.store.read(&self.account) {
            Ok(None) => return AccountState::default(),
            Ok(Some(found)) => {
                if found.exposed_mode.is_some() {
                    self.restrict(&self.account);
                }
                match serde_json::from_slice(&found.text).map_err(|error| error.to_string()) {
                    Ok(state) => match parse(&state) {
                        Some(state) => return state,
                        None => "it is not of this program's making".to_owned(),
                    },
                    Err(why) => why,
                }
            }
            Err(error) => error.to_string(),
        };
        let moved = match self.store.quarantine(&self.account, clock_s) {
            Ok(aside) => format!("moved to {}", aside.display()),
            Err(error) => format!("not moved away ({error})"),
        };
        warn!(
            "the ACME account in {} is damaged ({why}) and was {moved}; another is made",
            path.display()
        );
        AccountState::default()
    }

    /// Writes the account.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn write_account(&self, state: &AccountState) -> io::Result<()> {
        let failures = &state.failures;
        let text = json!({
            "account": state.credentials,
            "email": state.email,
            "refused": failures.refused,
            "unreachable": failures.unreachable,
            "notBefore": failures.not_before_s,
            "askedByDirectory": failures.asked_by_directory,
        });
        self.store.write(&self.account, text.to_string().as_bytes())
    }

    /// Writes the account, and logs a failure.
    pub fn keep_account(&self, state: &AccountState) {
        if let Err(error) = self.write_account(state) {
            warn!("the ACME account cannot be kept: {error}; see --state-dir");
        }
    }

    /// Reads the certificate. A damaged one is not used.
    pub fn read_certificate(&self, provider: &CryptoProvider) -> Option<CertificatePair> {
        let why = match self.store.read(&self.certificate) {
            Ok(None) => return None,
            Ok(Some(found)) => {
                if found.exposed_mode.is_some() {
                    self.restrict(&self.certificate);
                }
                match CertificatePair::read(&found.text, &found.text, provider) {
                    Ok(pair) => return Some(pair),
                    Err(why) => why.to_string(),
                }
            }
            Err(error) => error.to_string(),
        };
        let path = self.store.path(&self.certificate);
        warn!(
            "{} is not used, and another certificate is ordered: {why}",
            path.display()
        );
        None
    }

    /// Writes the certificate with its chain and its key.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn write_certificate(&self, text: &[u8]) -> io::Result<()> {
        self.store.write(&self.certificate, text)
    }

    fn restrict(&self, name: &str) {
        let closed = self.store.restrict_to_owner(name);
        warn!(
            "others could read {}, which has a key; move it away for a new one if that may have happened{}",
            self.store.path(name).display(),
            closed.map_or_else(|error| format!(" (and its mode stays: {error})"), |()| String::new())
        );
    }
}

fn parse(value: &Value) -> Option<AccountState> {
    let number = |name: &str| value.get(name)?.as_u64();
    let credentials = value.get("account")?;
    Some(AccountState {
        credentials: (!credentials.is_null()).then(|| credentials.clone()),
        email: value.get("email")?.as_str().map(str::to_owned),
        failures: Failures {
            refused: u32::try_from(number("refused")?).ok()?,
            unreachable: u32::try_from(number("unreachable")?).ok()?,
            not_before_s: number("notBefore")?,
            asked_by_directory: value.get("askedByDirectory")?.as_bool()?,
        },
    })
}
