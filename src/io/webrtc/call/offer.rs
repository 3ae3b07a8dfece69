//! The offer of a call: to the endpoint of the target, or to that of a session that `/start`
//! begins.
//!
//! In: the target, the key and the offer. Out: the answer, or a sentence about why there is none,
//! as those of [`dial`](crate::io::call::dial).

use crate::config::{Secret, Transport};
use crate::io::call::CallConfig;
use crate::io::call::dial::{bearer, post, refusal, shown, start};
use crate::io::rest;
use crate::proto::caller::target::{self, CallTarget};
use crate::proto::server::rest::{RestBody, RestMethod, RestRequest};

/// The content type of a description.
const SDP: &str = "application/sdp";

/// The answer to an offer.
pub struct AnsweredOffer {
    pub sdp: String,
    /// The session of WHIP, which ends with a DELETE.
    pub resource: Option<String>,
}

/// Sends an offer.
///
/// # Errors
/// A sentence for the user.
pub async fn send(config: &CallConfig, sdp: &str) -> Result<AnsweredOffer, String> {
    let key = config.api_key.as_ref();
    let url = match &config.target {
        CallTarget::Whip { url } => return offer_whip(url, sdp, key).await,
        CallTarget::Started {
            base,
            transport: Transport::WebRtc,
        } => match start(base, Transport::WebRtc, key).await? {
            Some(response) => target::started_offer(base, &response).map_err(|why| format!("{base}: {why}"))?,
            None => target::default_offer(base),
        },
        CallTarget::Offer { url } => url.clone(),
        _ => return Err("this target takes no offer".into()),
    };
    let response = post(&url, RestBody::json(&target::offer_body(sdp)), key).await?;
    if response.status != 200 {
        return Err(refusal(shown(&url), response.status, &response.body));
    }
    let sdp = target::answer(&response.body).map_err(|why| format!("{}: {why}", shown(&url)))?;
    Ok(AnsweredOffer { sdp, resource: None })
}

async fn offer_whip(url: &str, sdp: &str, key: Option<&Secret>) -> Result<AnsweredOffer, String> {
    let body = RestBody {
        content_type: SDP,
        bytes: sdp.as_bytes().to_vec(),
    };
    let response = post(url, body, key).await?;
    if response.status != 201 {
        return Err(refusal(shown(url), response.status, &response.body));
    }
    let sdp = String::from_utf8(response.body.to_vec());
    let location = response.location.as_deref();
    Ok(AnsweredOffer {
        sdp: sdp.map_err(|_| format!("{}: its answer is not text", shown(url)))?,
        resource: location.and_then(|location| target::resource_url(url, location)),
    })
}

/// Ends a session of WHIP. It would end by itself as well, so errors are only logged.
pub async fn delete(resource: String, key: Option<&Secret>) {
    let request = RestRequest {
        method: RestMethod::Delete,
        url: resource,
        authorization: key.map(bearer),
        body: None,
    };
    if let Err(error) = rest::send(&request).await {
        log::debug!("ending the session: {error}");
    }
}
