//! The media sockets of calls that the runner dialled.
//!
//! In: the provider's call of a socket. Out: the session that `POST /calls` named, the data of the
//! call for its bot, and who answered, once that is reported.

use std::sync::{Arc, Mutex};

use edge_runner_http::common::lock;
use serde_json::Value;
use tokio::sync::Notify;

use crate::bot::SessionId;
use crate::proto::answered_by::AnsweredBy;
use crate::proto::telephony::dial::ledger::DialLedger;

/// The dialled calls of a runner.
pub struct DialledCalls {
    pub ledger: Mutex<DialLedger>,
    /// Signals a report.
    pub reported: Notify,
}

/// A session that is a dialled call.
pub struct DialledSession {
    calls: Arc<DialledCalls>,
    id: SessionId,
}

impl DialledSession {
    /// Returns the session of a media socket; `key` is that of the provider's call.
    pub fn claim(calls: &Arc<DialledCalls>, key: &str) -> Option<Self> {
        let id = lock(&calls.ledger).claim(key)?;
        Some(DialledSession {
            calls: calls.clone(),
            id,
        })
    }

    /// Returns the id of the session.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Completes the data of the call for its bot.
    pub fn complete(&self, call_data: &mut Value) {
        if let Some(call) = lock(&self.calls.ledger).begin(&self.id) {
            call.complete(call_data);
        }
    }

    /// Waits until it is reported who answered, after the start of the bot. Cancel safe.
    pub async fn answered_by(&self) -> AnsweredBy {
        loop {
            let reported = self.calls.reported.notified();
            tokio::pin!(reported);
            reported.as_mut().enable();
            if let Some(by) = lock(&self.calls.ledger).take_answered_by(&self.id) {
                return by;
            }
            reported.await;
        }
    }
}
