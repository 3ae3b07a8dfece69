//! Asks a service what it offers, for `edge-runner doctor`: `describe` of Wyoming, or the list of
//! models over HTTP. Neither costs anything.

use tokio::time::timeout;

use super::connect_failure;
use super::wyoming_stream::WyomingStream;
use crate::io::rest::{ResponseLimits, send_within};
use crate::limits::{DOCTOR_RESOLVE, WYOMING_DATA_BYTES_MAX};
use crate::proto::assistant::cascade::doctor::ServiceOffer;
use crate::proto::assistant::services::endpoint::{ServiceAccess, ServiceEndpoint};
use crate::proto::assistant::services::failure::{ServiceFailure, ServiceStep};
use crate::proto::assistant::services::wyoming::write_event;
use crate::proto::server::rest::{RestMethod, RestRequest};

/// Asks a service.
///
/// # Errors
/// [`ServiceFailure`] if it is not reached, or refuses.
pub async fn examine(access: &ServiceAccess) -> Result<ServiceOffer, ServiceFailure> {
    let asked = async {
        match access.endpoint() {
            ServiceEndpoint::Wyoming(server) => {
                let mut stream = WyomingStream::connect(server).await?;
                write_event(&mut stream.unsent, "describe", &serde_json::json!({}), &[]);
                loop {
                    let event = stream.next_event().await?;
                    if event.kind == "info" {
                        return Ok(ServiceOffer::Programs(event.data));
                    }
                }
            }
            ServiceEndpoint::Http(base) => models(access, base.url("models")).await,
        }
    };
    let answer = timeout(2 * DOCTOR_RESOLVE, asked).await;
    answer.unwrap_or(Err(ServiceFailure::TimedOut(ServiceStep::Begin)))
}

async fn models(access: &ServiceAccess, url: String) -> Result<ServiceOffer, ServiceFailure> {
    let authorization = match access.header() {
        Some(("authorization", key)) => Some(key),
        None => None,
        // A key in another header is sent with requests that cost money only.
        Some(_) => return Ok(ServiceOffer::Unknown),
    };
    let request = RestRequest {
        method: RestMethod::Get,
        url,
        authorization,
        body: None,
    };
    let limits = ResponseLimits {
        timeout: 2 * DOCTOR_RESOLVE,
        body_bytes_max: WYOMING_DATA_BYTES_MAX,
    };
    let answer = send_within(&request, limits).await.map_err(connect_failure)?;
    match answer.status {
        200 => Ok(ServiceOffer::Models(answer.body.to_vec())),
        404 | 405 => Ok(ServiceOffer::Unknown),
        status => Err(ServiceFailure::of_status(status, &answer.body)),
    }
}
