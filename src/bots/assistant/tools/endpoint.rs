//! The HTTP endpoint that runs functions: GET declares them, POST runs one.
//!
//! In: calls. Out: the declaration, and one output per call. Each call is a request of its own;
//! dropping an [`EndpointTools`] drops its requests.

use serde_json::Value;
use tokio::task::JoinSet;

use super::{ToolsError, ToolsEvent};
use crate::bot::SessionId;
use crate::config::ToolsEndpoint;
use crate::io::rest::{ResponseLimits, RestError, send_with};
use crate::io::trace;
use crate::limits::{FUNCTION_OUTPUT_BYTES_MAX, FUNCTION_WITHIN, TOOLS_DECLARE_WITHIN, TOOLS_FUNCTIONS_BYTES_MAX};
use crate::logging;
use crate::proto::assistant::report::FunctionCall;
use crate::proto::assistant::tools::{answer, declaration, failed};
use crate::proto::http::traceparent::TRACEPARENT;
use crate::proto::server::rest::RestRequest;

/// Bytes of an answer beside its output.
const ENVELOPE_BYTES: usize = 1024;

/// The endpoint in one session.
pub struct EndpointTools {
    endpoint: ToolsEndpoint,
    session_id: SessionId,
    requests: JoinSet<Result<ToolsEvent, ToolsError>>,
}

impl EndpointTools {
    /// Asks the endpoint for its declaration.
    pub fn new(endpoint: ToolsEndpoint, session_id: SessionId) -> Self {
        let mut requests = JoinSet::new();
        let request = endpoint.declaration_request();
        requests.spawn(logging::in_session(
            session_id.clone(),
            declare(request, trace_headers()),
        ));
        EndpointTools {
            endpoint,
            session_id,
            requests,
        }
    }

    pub fn call(&mut self, call: &FunctionCall) {
        let request = self.endpoint.call_request(call, &self.session_id);
        let (call_id, headers) = (call.call_id.clone(), trace_headers());
        let run = async move {
            let output = run(request, headers).await;
            Ok(ToolsEvent::Output { call_id, output })
        };
        self.requests.spawn(logging::in_session(self.session_id.clone(), run));
    }

    /// Cancel safe.
    pub async fn recv(&mut self) -> Result<ToolsEvent, ToolsError> {
        loop {
            match self.requests.join_next().await {
                Some(Ok(event)) => return event,
                // A panic, which is logged; the engine gives the call up in time.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }
}

/// Returns the header of the trace; a request runs in a task of its own, which does not know it.
fn trace_headers() -> Vec<(&'static str, String)> {
    let trace = trace::current();
    let header = trace.map(|trace| (TRACEPARENT, trace.as_str().to_owned()));
    header.into_iter().collect()
}

async fn declare(request: RestRequest, headers: Vec<(&'static str, String)>) -> Result<ToolsEvent, ToolsError> {
    let limits = ResponseLimits {
        timeout: TOOLS_DECLARE_WITHIN,
        body_bytes_max: TOOLS_FUNCTIONS_BYTES_MAX,
    };
    let declared = match send_with(&request, &headers, limits).await {
        Ok(answer) if answer.status == 200 => declaration(&answer.body).map_err(ToolsError::Declaration),
        Ok(answer) => Err(ToolsError::Status(answer.status)),
        Err(error) => Err(ToolsError::NotReached(error.to_string())),
    };
    declared.map(ToolsEvent::Declared)
}

async fn run(request: RestRequest, headers: Vec<(&'static str, String)>) -> Value {
    let limits = ResponseLimits {
        timeout: FUNCTION_WITHIN,
        body_bytes_max: FUNCTION_OUTPUT_BYTES_MAX + ENVELOPE_BYTES,
    };
    match send_with(&request, &headers, limits).await {
        Ok(response) if (200..300).contains(&response.status) => match answer(&response.body) {
            Some((_, output)) => output,
            None => {
                log::warn!("a function failed: its endpoint answers without an `output`, or not in JSON");
                failed("the endpoint gave no output")
            }
        },
        Ok(response) => {
            log::warn!(
                "a function failed: its endpoint answers with status {}",
                response.status
            );
            failed(&format!("the endpoint answered with status {}", response.status))
        }
        Err(error) => {
            log::warn!("a function failed: {error}");
            failed(match error {
                RestError::TooLong { .. } => "the result is too long",
                RestError::Timeout { .. } => "no result in time",
                _ => "the endpoint was not reached",
            })
        }
    }
}
