//! One HTTP request to a service, and its answer while it arrives.
//!
//! In: the address with its key, and the body. Out: the type of the answer, then its body in
//! pieces, within the time limits. Errors of the service become a [`ServiceFailure`]; their bodies
//! are read for names and numbers alone. Source: RFC 9112.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::{AnswerClock, FirstByteTimeout, connect_failure};
use crate::io::rest::{self, RequestUrl};
use crate::io::trace;
use crate::limits::{ASSISTANT_REFUSAL_BYTES_MAX, REST_HEAD_BYTES_MAX, SERVICE_CONNECT_WITHIN};
use crate::proto::assistant::services::endpoint::{HttpBase, ServiceAccess};
use crate::proto::assistant::services::failure::{ServiceFailure, ServiceStep};
use crate::proto::assistant::services::progress::ServiceProgress;
use crate::proto::http::traceparent::TRACEPARENT;

/// A request to post.
pub(super) struct HttpPost {
    pub base: HttpBase,
    pub access: ServiceAccess,
    /// Below the base, such as `chat/completions`.
    pub path: &'static str,
    pub content_type: String,
    pub body: Vec<u8>,
    pub first_byte_timeout: FirstByteTimeout,
}

/// An answer with a status of success.
pub(super) struct HttpAnswer {
    /// In lower case, without parameters.
    pub content_type: String,
    pub clock: AnswerClock,
    body: Incoming,
    /// Moves the bytes while the body is read. `None` once it has ended.
    connection: Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
}

/// Sends a request, and reads the head of its answer.
pub(super) async fn post(mut request: HttpPost) -> Result<HttpAnswer, ServiceFailure> {
    let target = RequestUrl::of(&request.base.url(request.path)).map_err(connect_failure)?;
    let message = message(&mut request, &target)?;
    let opened = timeout(SERVICE_CONNECT_WITHIN, rest::open(&target, None)).await;
    let stream = opened
        .map_err(|_| ServiceFailure::TimedOut(ServiceStep::Connect))?
        .map_err(connect_failure)?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(REST_HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| broken(&error))?;
    let clock = AnswerClock::start(request.first_byte_timeout);
    let mut connection: Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>> = Box::pin(connection);
    let mut is_over = false;
    let answer = {
        let mut answer = std::pin::pin!(sender.send_request(message));
        let head = async {
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                _ = &mut connection => is_over = true,
            }
            answer.await
        };
        clock.within(head).await?.map_err(|error| broken(&error))?
    };
    let (head, body) = answer.into_parts();
    let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type
        .and_then(|value| value.split(';').next())
        .unwrap_or_default();
    let mut answer = HttpAnswer {
        content_type: content_type.trim().to_ascii_lowercase(),
        clock,
        body,
        connection: (!is_over).then_some(connection),
    };
    match head.status.as_u16() {
        200..=299 => Ok(answer),
        status => {
            let body = answer.collect(ASSISTANT_REFUSAL_BYTES_MAX).await.unwrap_or_default();
            let wait = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
            Err(ServiceFailure::of_status(status, &body).with_wait(wait("retry-after"), wait("retry-after-ms")))
        }
    }
}

fn message(request: &mut HttpPost, target: &RequestUrl) -> Result<Request<Full<Bytes>>, ServiceFailure> {
    let text = |text: &str, why| HeaderValue::try_from(text).map_err(|_| ServiceFailure::Unsendable(why));
    let mut message = Request::new(Full::from(Bytes::from(std::mem::take(&mut request.body))));
    *message.method_mut() = Method::POST;
    *message.uri_mut() = target.path.clone();
    let headers = message.headers_mut();
    headers.insert(HOST, text(&target.authority, "no header can hold its host")?);
    headers.insert(USER_AGENT, HeaderValue::from_static(rest::USER_AGENT_NAME));
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    headers.insert(
        CONTENT_TYPE,
        text(&request.content_type, "no header can hold its type")?,
    );
    if let Some(trace) = trace::current() {
        headers.insert(TRACEPARENT, text(trace.as_str(), "no header can hold its trace")?);
    }
    if let Some((name, secret)) = request.access.header() {
        let mut value = text(
            secret.expose(),
            "no header can hold its key; is there a line break in it?",
        )?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(message)
}

impl HttpAnswer {
    /// Returns the next piece of the body, `None` at its end. It does not count as progress: a
    /// comment may be all that it holds. Before the answer begins, it is a sign of life.
    pub async fn next_piece(&mut self) -> Result<Option<Bytes>, ServiceFailure> {
        loop {
            let HttpAnswer {
                clock,
                body,
                connection,
                ..
            } = self;
            let mut is_over = false;
            let frame = async {
                if let Some(connection) = connection {
                    tokio::select! {
                        biased;
                        frame = body.frame() => return frame,
                        _ = connection => is_over = true,
                    }
                }
                // What the connection has read is still there.
                body.frame().await
            };
            let frame = clock.within(frame).await?;
            if is_over {
                self.connection = None;
            }
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(broken(&error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.clock.handle_sign_of_life();
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Returns the whole body.
    pub async fn collect(&mut self, bytes_max: usize) -> Result<Vec<u8>, ServiceFailure> {
        let mut whole = Vec::new();
        while let Some(piece) = self.next_piece().await? {
            self.clock.handle_progress(match piece.is_empty() {
                true => ServiceProgress::None,
                false => ServiceProgress::Working,
            });
            if whole.len() + piece.len() > bytes_max {
                return Err(ServiceFailure::Malformed("an answer that is too long"));
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole)
    }

    /// Returns why a successful answer of another type is none.
    pub async fn unexpected(mut self, why: &'static str) -> ServiceFailure {
        let body = self.collect(ASSISTANT_REFUSAL_BYTES_MAX).await.unwrap_or_default();
        match serde_json::from_slice::<serde_json::Value>(&body) {
            Ok(answer) if answer.get("error").is_some_and(|error| !error.is_null()) => {
                ServiceFailure::of_error(&answer["error"])
            }
            _ => ServiceFailure::Malformed(why),
        }
    }
}

/// Classifies a failure of an open connection.
fn broken(error: &hyper::Error) -> ServiceFailure {
    log::debug!("the connection to a service: {error}");
    match error.is_parse() {
        true => ServiceFailure::Malformed("no valid HTTP response"),
        false => ServiceFailure::CutShort,
    }
}
