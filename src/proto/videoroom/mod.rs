//! The hosted video room: what is asked of the provider's REST API, and what its answers mean.
//!
//! The media protocol of that provider is closed, so a bot enters a room through the vendor's own library; the runner makes
//! room and token, and hands them over. Source: the rooms fact sheet, part A.

use serde_json::{Map, Value};

/// What a `/start` asks of a new room and of its token, as it came.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    pub room: Map<String, Value>,
    pub token: Map<String, Value>,
}
