//! WHIP, WHEP and the calls endpoint of a realtime service: a session by one POST, which then is a resource of HTTP.
//!
//! - [`path`]: the routes; [`offer`]: which offers each of them takes; [`call`]: bodies of the calls endpoint and its keys
//! - [`answer`]: headers and the data of the bot; [`fragment`]: bodies of PATCH; [`resource`]: what a live session remembers
//! - [`events`]: the few events of the channel that is called `oai-events`
//!
//! In: paths, headers as bytes, SDP. Out: values for `io` to act upon, text of answers. Refuses, by [`WhipError`]: what no bot
//! could be reached by. Sources: RFC 9725, draft-ietf-wish-whep-04, RFC 8840, RFC 8288.
//!
//! One deviation is meant. RFC 9725 has a server answer `recvonly`, so that nothing ever comes back. Here the answer is the
//! mirror image of the offer: `sendrecv` is answered with `sendrecv`, or no bot could speak to who posted it.

pub mod answer;
pub mod call;
pub mod events;
pub mod fragment;
pub mod offer;
pub mod path;
pub mod resource;

use std::fmt;

use serde_json::Value;

use crate::limits::{OFFER_SDP_BYTES_MAX, REGISTERED_UNUSED};
use crate::webrtc::offer::OfferError;

/// What the body of a POST holds.
pub const SDP: &str = "application/sdp";
/// What the body of a PATCH holds.
pub const FRAGMENT: &str = "application/trickle-ice-sdpfrag";

/// An offer that asks for a session with a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct WhipOffer {
    pub sdp: String,
    /// For the bot.
    pub call_data: Value,
}

/// What a request wants of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceRequest {
    /// Nothing but to know that it is there.
    Get,
    Patch {
        if_match: Option<Vec<u8>>,
        body: Vec<u8>,
    },
    Delete,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceResponse {
    NoContent,
    /// ICE began anew: the fragment that tells how to reach this end, and its entity tag.
    Restarted {
        fragment: String,
        etag: String,
    },
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhipError {
    /// The body is of another type than these.
    UnsupportedType(&'static str),
    TooLong,
    NotUtf8,
    /// What is wrong with a form, or with the JSON in it.
    BadForm(&'static str),
    /// The offer can be read, and no bot would hear or be heard.
    UnsupportedOffer(&'static str),
    /// What is wrong with the body of a PATCH.
    BadFragment(&'static str),
    /// The entity tag is that of another ICE session.
    StaleEtag,
    /// A key that was good for one session.
    SpentKey,
    /// What the engine says.
    Offer(OfferError),
}

impl fmt::Display for WhipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhipError::UnsupportedType(wanted) => write!(f, "the body has to be {wanted}"),
            WhipError::TooLong => write!(f, "the SDP is larger than {OFFER_SDP_BYTES_MAX} bytes"),
            WhipError::NotUtf8 => f.write_str("the body is no UTF-8"),
            WhipError::BadForm(why) | WhipError::UnsupportedOffer(why) | WhipError::BadFragment(why) => {
                f.write_str(why)
            }
            WhipError::StaleEtag => {
                f.write_str("`If-Match` names an earlier ICE session; the current one's ETag came with the last answer")
            }
            WhipError::SpentKey => write!(
                f,
                "this key was used, or is older than {} s: it is good for one session; client_secrets makes another",
                REGISTERED_UNUSED.as_secs()
            ),
            WhipError::Offer(refusal) => refusal.fmt(f),
        }
    }
}

impl std::error::Error for WhipError {}

impl From<OfferError> for WhipError {
    fn from(refusal: OfferError) -> Self {
        WhipError::Offer(refusal)
    }
}

/// Returns the type in the value of `Content-Type`, without its parameters.
pub fn media_type(content_type: &[u8]) -> &[u8] {
    content_type
        .split(|byte| *byte == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii()
}

/// Takes the text of a body.
///
/// # Errors
/// [`WhipError::TooLong`], [`WhipError::NotText`].
pub fn sdp_text(body: &[u8]) -> Result<&str, WhipError> {
    if body.len() > OFFER_SDP_BYTES_MAX {
        return Err(WhipError::TooLong);
    }
    std::str::from_utf8(body).map_err(|_| WhipError::NotUtf8)
}
