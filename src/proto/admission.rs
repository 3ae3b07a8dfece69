//! Who asks for a place, as far as admission sees it.

use crate::proto::source::SourceKey;

/// Who asks for something of which there is a limited amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// Where the request came from; behind a trusted proxy, where the proxy says that it came from.
    pub source: SourceKey,
    /// Whether it came with the API key, or with what an authorised request was given: the name of a session, or a token.
    pub is_authorised: bool,
}
