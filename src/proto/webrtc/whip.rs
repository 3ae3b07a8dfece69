//! WHIP, WHEP and the calls endpoint of OpenAI's realtime API: one POST opens a session, which
//! becomes an HTTP resource.
//!
//! - [`path`]: routes; [`offer`]: accepted offers; [`call`]: bodies and keys of the calls endpoint
//! - [`answer`]: headers, and data for the bot; [`fragment`]: PATCH bodies; [`resource`]: the state
//!   of a resource
//! - [`events`]: the `oai-events` channel
//!
//! In: paths, headers and SDP. Out: values for `io`, and the text of answers. [`WhipError`] rejects
//! what no bot could use. Unlike RFC 9725, which has servers answer `recvonly`, `sendrecv` is
//! answered with `sendrecv`, so that the bot can speak to the client. Sources: RFC 9725,
//! draft-ietf-wish-whep-04, RFC 8840, RFC 8288, `docs/spec/whip.md` 1.

pub mod answer;
pub mod call;
pub mod events;
pub mod fragment;
pub mod offer;
pub mod path;
pub mod resource;

use std::fmt;
use std::net::IpAddr;

use serde_json::Value;

use crate::limits::{OFFER_SDP_BYTES_MAX, REGISTERED_UNUSED};
use crate::refusal::SessionRefusal;

/// The content type of a POST.
pub const SDP: &str = "application/sdp";
/// The content type of a PATCH.
pub const FRAGMENT: &str = "application/trickle-ice-sdpfrag";

/// An offer for a session with a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct WhipOffer {
    pub sdp: String,
    /// Data for the bot.
    pub call_data: Value,
}

/// A request to a session's resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceRequest {
    /// Tests whether the resource exists.
    Get,
    Patch {
        if_match: Option<Vec<u8>>,
        body: Vec<u8>,
        /// The address of the client, unless a proxy hides it.
        source: Option<IpAddr>,
    },
    Delete,
}

/// The response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceResponse {
    NoContent,
    /// ICE was restarted: the fragment with the new credentials, and its entity tag.
    Restarted {
        fragment: String,
        etag: String,
    },
}

/// Why a request was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhipError {
    /// The body must have one of these types.
    UnsupportedType(&'static str),
    TooLong,
    NotUtf8,
    /// The form, or the JSON in it, is invalid.
    BadForm(&'static str),
    /// The offer is readable but leaves the bot without audio.
    UnsupportedOffer(&'static str),
    /// The body of a PATCH is invalid.
    BadFragment(&'static str),
    /// The entity tag names another ICE session.
    StaleEtag,
    /// A single-use key was used before.
    SpentKey,
    /// The offer cannot be answered.
    Offer(SessionRefusal),
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

impl From<SessionRefusal> for WhipError {
    fn from(refusal: SessionRefusal) -> Self {
        WhipError::Offer(refusal)
    }
}

/// Returns the type of a `Content-Type` value, without parameters.
pub fn media_type(content_type: &[u8]) -> &[u8] {
    content_type
        .split(|byte| *byte == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii()
}

/// Returns the text of a body.
///
/// # Errors
/// [`WhipError::TooLong`], [`WhipError::NotUtf8`].
pub fn sdp_text(body: &[u8]) -> Result<&str, WhipError> {
    if body.len() > OFFER_SDP_BYTES_MAX {
        return Err(WhipError::TooLong);
    }
    std::str::from_utf8(body).map_err(|_| WhipError::NotUtf8)
}
