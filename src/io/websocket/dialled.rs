//! The media sockets of calls that the runner dialled, and the calls that get none.
//!
//! In: the provider's call of a socket. Out: the session that `POST /calls` named, the data of the
//! call for its bot, and who answered, once that is reported. A call that becomes no session is
//! reported to the observer of sessions, and ended at its provider if it goes on there.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use edge_runner_http::common::lock;
use serde_json::{Map, Value};
use tokio::sync::Notify;

use crate::bot::SessionId;
use crate::config::Transport;
use crate::io::observer::MissedCall;
use crate::io::sessions::Sessions;
use crate::io::{rest, tasks};
use crate::proto::answered_by::AnsweredBy;
use crate::proto::bots::{BotChoice, UnknownBot};
use crate::proto::telephony::dial::ledger::{ANSWERED_WITHIN, DialLedger, OngoingCall, UnansweredCall};
use crate::proto::telephony::{Provider, hangup};

/// The dialled calls of a runner.
pub struct DialledCalls {
    pub ledger: Mutex<DialLedger>,
    /// Signals a report.
    pub reported: Notify,
    pub sessions: Sessions,
    pub provider: &'static Provider,
}

/// Time that the hang-ups of calls that ring have while the runner stops: several connections with
/// TLS at once on a slow board, within [`SHUTDOWN_GRACE`](crate::limits::SHUTDOWN_GRACE).
const HANG_UP_AT_SHUTDOWN: Duration = Duration::from_secs(2);

impl DialledCalls {
    /// Reports calls that became no session.
    pub fn note_unanswered(&self, unanswered: impl IntoIterator<Item = UnansweredCall>) {
        for unanswered in unanswered {
            let UnansweredCall {
                id,
                call,
                bot,
                outcome,
                provider_error,
                after,
                ongoing,
            } = unanswered;
            if let Some(ongoing) = ongoing {
                self.hang_up(&ongoing);
            }
            log::info!("the dialled call {id} became no session: {outcome}");
            let bots = self.sessions.bots();
            let bot = bots.choose(BotChoice::named(bot.as_deref()));
            let bot = bot.unwrap_or_else(|UnknownBot| bots.default());
            let mut call_data = Value::Object(Map::new());
            call.complete(&mut call_data);
            self.sessions.note_missed(MissedCall {
                id,
                transport: Some(Transport::Telephony(self.provider)),
                bot: bot.row().name().cloned(),
                call_data: &call_data,
                source: None,
                trace: None,
                outcome,
                provider_error: provider_error.as_deref(),
                lasted: after,
            });
        }
    }

    /// Ends a call at its provider. A runner that stops waits for it, but only for a while.
    pub fn hang_up(&self, ongoing: &OngoingCall) {
        let provider = self.provider;
        let end = match ongoing.is_answered {
            true => hangup::request,
            false => hangup::cancel,
        };
        let Some(request) = end(provider, &ongoing.call_id, &self.sessions.config().telephony.settings) else {
            log::warn!(
                "{}: a dialled call was not hung up: its id makes no path",
                provider.name
            );
            return;
        };
        let slot = self.sessions.hang_ups().try_acquire();
        let mut stopping = self.sessions.shutdown().clone();
        tokio::spawn(async move {
            tokio::select! {
                () = rest::hang_up(provider, request) => {}
                () = async {
                    stopping.wait().await;
                    tokio::time::sleep(HANG_UP_AT_SHUTDOWN).await;
                } => log::warn!(
                    "a dialled call was perhaps not hung up: the runner stops, and its provider has not answered"
                ),
            }
            drop(slot);
        });
    }

    /// Waits until a call that was just dialled is reported or not at all.
    pub async fn wait_for_answer(self: Arc<Self>) {
        tokio::time::sleep(ANSWERED_WITHIN).await;
        let silent = lock(&self.ledger).handle_timeout(tasks::now());
        self.note_unanswered(silent);
    }
}

/// A session that is a dialled call.
pub struct DialledSession {
    calls: Arc<DialledCalls>,
    id: SessionId,
    bot: Option<String>,
}

impl DialledSession {
    /// Returns the session of a media socket; `key` is that of the provider's call.
    pub fn claim(calls: &Arc<DialledCalls>, key: &str) -> Option<Self> {
        let (id, bot) = lock(&calls.ledger).claim(key)?;
        Some(DialledSession {
            calls: calls.clone(),
            id,
            bot,
        })
    }

    /// Returns the id of the session.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Returns the choice of its bot: the one that the request to dial named.
    pub fn bot_choice(&self) -> BotChoice<'_> {
        BotChoice::named(self.bot.as_deref())
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

impl Drop for DialledSession {
    /// Reports the call of a socket that ended before its bot began.
    fn drop(&mut self) {
        let unanswered = lock(&self.calls.ledger).handle_media_end(&self.id, tasks::now());
        self.calls.note_unanswered(unanswered);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bot::{self, Shutdown};
    use crate::io::observer::{ObserveSessions, ObservedSession, SessionObserver};
    use crate::io::tasks::SlotPool;
    use crate::proto::telephony::PROVIDERS;
    use crate::proto::telephony::dial::{DialOutcome, OutboundRequest};

    /// Keeps the calls that became no session.
    #[derive(Default)]
    struct Missed(Mutex<Vec<Value>>);

    impl ObserveSessions for Missed {
        fn begin(self: Arc<Self>, _: ObservedSession<'_>) -> Box<dyn SessionObserver> {
            unreachable!("there is no session")
        }

        fn missed(&self, call: MissedCall<'_>) {
            let seconds = call.lasted.as_secs();
            lock(&self.0).push(json!([&*call.id, call.outcome.label(), call.call_data["to"], seconds]));
        }
    }

    /// The provider takes a call, and reports nothing of it.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_never_reported_is_missed_in_time() {
        let idle_bot = bot::erase(|_| async { Ok(()) });
        let (_stop, shutdown) = Shutdown::channel();
        let sessions = Sessions::new(Arc::default(), idle_bot, SlotPool::new(1), shutdown);
        let missed = Arc::new(Missed::default());
        sessions.observe(missed.clone());
        let calls = Arc::new(DialledCalls {
            ledger: Mutex::new(DialLedger::new("twilio")),
            reported: Notify::new(),
            sessions,
            provider: PROVIDERS[0],
        });
        let json = br#"{"to": "+15550001111"}"#;
        let request = OutboundRequest::parse(json, "+15550002222").expect("a request");
        {
            let mut ledger = lock(&calls.ledger);
            ledger
                .admit(None, json, request, "1".into(), tasks::now())
                .expect("it is dialled");
            ledger.finish("1", &DialOutcome::Placed("CA01".into()), tasks::now());
        }
        let waiting = tokio::spawn(calls.clone().wait_for_answer());
        tokio::time::sleep(ANSWERED_WITHIN - Duration::from_millis(10)).await;
        assert!(lock(&missed.0).is_empty());
        waiting.await.expect("no panic");
        let seconds = ANSWERED_WITHIN.as_secs();
        assert_eq!(*lock(&missed.0), [json!(["1", "unreported", "+15550001111", seconds])]);
    }
}
