//! Replaces `io::websocket::dialled` in a build without `telephony`: no call is dialled.

use serde_json::Value;

use crate::bot::SessionId;
use crate::proto::telephony::dial::AnsweredBy;

/// No session.
pub enum DialledSession {}

impl DialledSession {
    /// Is not called.
    pub fn id(&self) -> &SessionId {
        match *self {}
    }

    /// Is not called.
    pub fn complete(&self, _call_data: &mut Value) {
        match *self {}
    }

    /// Is not called.
    pub async fn answered_by(&self) -> AnsweredBy {
        match *self {}
    }
}
