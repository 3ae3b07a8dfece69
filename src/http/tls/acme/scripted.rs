//! Test support: orders at a directory that answers by a script, without a network.
//!
//! In: the answers, one after another, whatever is asked. Out: an [`Ordered`]. Time passes at once.
//! Built for the tests of this crate, and with the feature `testing` for those of dependent crates.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HeaderValue, LOCATION, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use tokio_rustls::rustls::crypto::ring;

use super::http::{bound_pause, check_urls};
use super::{AcmeTls, lock, order};
use crate::testing::TempDir;
use edge_runner_proto::config::{AcmeConfig, Tls, TlsSettings};
use edge_runner_proto::limits::ACME_ORDER_WITHIN;
use edge_runner_proto::server::acme::{OrderFailure, covers};

/// The directory of the script.
pub const DIRECTORY: &str = "https://ca.example.net/directory";

/// One answer of the directory.
#[derive(Clone, Debug)]
pub struct DirectoryAnswer {
    pub status: u16,
    /// The header `Retry-After`, if it can be one.
    pub retry_after: String,
    pub body: Vec<u8>,
}

/// What an order came to.
#[derive(Debug)]
pub struct Ordered {
    /// The certificate and its key, or why there is none; `None` if the time was over.
    pub result: Option<Result<String, OrderFailure>>,
    /// Names whose validation the TLS listener answered.
    pub validated: Vec<String>,
    /// Answers that were taken.
    pub asked: usize,
    /// Whether a certificate is served, which is for all names.
    pub serves: bool,
    /// Whether the account was stored.
    pub has_account: bool,
}

#[derive(Clone)]
struct ScriptedClient {
    answers: Arc<Mutex<VecDeque<DirectoryAnswer>>>,
    refused: Arc<Mutex<Option<Duration>>>,
}

impl HttpClient for ScriptedClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let answer = match request.method() {
            // Nonces, of which every answer has one.
            &Method::HEAD => Some(DirectoryAnswer {
                status: 200,
                retry_after: String::new(),
                body: Vec::new(),
            }),
            _ => lock(&self.answers).pop_front(),
        };
        let refused = self.refused.clone();
        Box::pin(async move {
            let answer = answer.ok_or_else(|| Error::Other("the script is over".into()))?;
            let mut response = Response::new(Bytes::from(answer.body));
            *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
            let headers = response.headers_mut();
            headers.insert("replay-nonce", HeaderValue::from_static("n"));
            headers.insert(LOCATION, HeaderValue::from_static("https://ca.example.net/1"));
            if let Ok(value) = HeaderValue::from_str(&answer.retry_after) {
                headers.insert(RETRY_AFTER, value);
            }
            check_urls(&response).map_err(|why| Error::Other(why.into()))?;
            bound_pause(&mut response, &refused, SystemTime::now());
            Ok(BytesResponse::from(response.map(Full::new)))
        })
    }
}

/// Orders a certificate for names, in a state folder of its own.
pub fn order(names: &[&str], answers: impl IntoIterator<Item = DirectoryAnswer>) -> Ordered {
    let folder = TempDir::new();
    let settings = TlsSettings {
        tls: Tls::Acme,
        acme: AcmeConfig {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            directory: DIRECTORY.into(),
            ..AcmeConfig::default()
        },
        host_names: Vec::new(),
        state_dir: Some(folder.0.clone()),
        ca_url: String::new(),
    };
    let acme = AcmeTls::open(&settings, Arc::new(ring::default_provider()));
    let acme = Arc::new(acme.expect("the folder can be used"));
    let answers: VecDeque<_> = answers.into_iter().collect();
    let count = answers.len();
    let client = ScriptedClient {
        answers: Arc::new(Mutex::new(answers)),
        refused: Arc::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let runtime = runtime.expect("a runtime without I/O");
    let result = runtime.block_on(async {
        let ordering = order::perform_with(&acme, client.clone(), &client.refused);
        let ordered = tokio::time::timeout(ACME_ORDER_WITHIN, ordering).await.ok();
        if let Some(Ok(text)) = &ordered {
            acme.accept(text.clone()).await;
        }
        ordered
    });
    let own = &acme.config.names;
    let current = acme.current();
    assert!(current.as_ref().is_none_or(|pair| covers(&pair.certificate, own)));
    let validated = lock(&acme.validations).keys().cloned().collect();
    let has_account = lock(&acme.account).credentials.is_some();
    Ordered {
        result,
        validated,
        asked: count - lock(&client.answers).len(),
        serves: current.is_some(),
        has_account,
    }
}
