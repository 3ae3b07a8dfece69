//! What is known of the call that a request begins, for the record of one that is turned away.
//!
//! In: what the route says, and what a handler learns. Out: one [`CallAttempt`] for the observer of
//! the sessions, when the request is answered with the refusal of an admission, or its provider has
//! failed. The router reports it, whatever the handler is: a new handler has nothing to report.

use std::sync::Mutex;

use edge_runner_http::common::{PeerInfo, lock};
use serde_json::Value;

use super::app::{RunnerApp, new_session_id};
use super::error::HttpError;
use crate::bot::SessionId;
use crate::config::Transport;
use crate::io::sessions::CallAttempt;
use crate::proto::calls::CallOutcome;
use crate::proto::http::route::Route;
use crate::proto::http::traceparent::Traceparent;

/// The call of one request.
pub struct RequestedCall {
    /// Requests of operators begin no call.
    is_call: bool,
    facts: Mutex<CallFacts>,
}

/// What is known of a call.
#[derive(Default)]
pub struct CallFacts {
    /// The session that it becomes; `None` for a request that is the only one of its call.
    pub id: Option<SessionId>,
    pub transport: Option<Transport>,
    /// The name of the bot that the request asks for.
    pub bot: Option<String>,
    /// Its numbers, as for a bot.
    pub call_data: Value,
    /// How it ends, if the answer does not say it.
    pub outcome: Option<CallOutcome>,
    /// Why its provider did not connect it.
    pub provider_error: Option<String>,
    pub trace: Option<Traceparent>,
}

impl RequestedCall {
    /// Returns the call of a request, as far as its route tells.
    pub fn of(app: &RunnerApp, route: &Route<'_>) -> Self {
        let of_feature = |feature| Transport::of_feature(feature, app.config.transport);
        let transport = route.feature().and_then(of_feature);
        RequestedCall {
            is_call: !route.is_for_operator(),
            facts: Mutex::new(CallFacts {
                transport,
                ..CallFacts::default()
            }),
        }
    }

    /// Replaces what is known.
    pub fn set(&self, facts: CallFacts) {
        *lock(&self.facts) = facts;
    }

    /// Changes what is known.
    pub fn update(&self, change: impl FnOnce(&mut CallFacts)) {
        change(&mut lock(&self.facts));
    }

    /// Notes that the provider does not connect the call.
    pub fn handle_provider_error(&self, why: String) {
        self.update(|facts| {
            facts.outcome = Some(CallOutcome::ProviderFailed);
            facts.provider_error = Some(why);
        });
    }

    /// Reports the call, if the error turns it away.
    pub fn note(self, app: &RunnerApp, peer: PeerInfo, error: &HttpError) {
        let facts = self.facts.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        let refusal = error.offer_error();
        let outcome = facts.outcome.or(refusal.and_then(CallOutcome::of_refusal));
        let Some(outcome) = outcome.filter(|_| self.is_call) else {
            return;
        };
        let call = CallAttempt {
            id: facts.id.unwrap_or_else(new_session_id),
            transport: facts.transport,
            source: peer.requester().source,
            call_data: &facts.call_data,
            trace: facts.trace,
        };
        let bot = refusal.and_then(|refusal| refusal.bot()).or(facts.bot.as_deref());
        app.sessions
            .note_turned_away(call, bot, outcome, facts.provider_error.as_deref());
    }
}
