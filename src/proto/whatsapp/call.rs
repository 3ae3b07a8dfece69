//! One call, from its offer to its end, as the requests that it takes.
//!
//! `PreAccepting -> Preparing -> Accepting -> Live -> Ending -> Over`. In: what the API answers, what becomes of the session,
//! webhooks, and `now`. Out, by [`WhatsAppCall::poll_output`]: requests, of which one is under way at a time, and what the session is to
//! do. The bot begins once the answer is at the provider, so that it is ready when the call is picked up; the call is picked up
//! when the connection is secured, or after [`SECURED_WITHIN`]; audio leaves after that, since the app takes the first packet
//! for the pick-up. A call ends with one `reject` or one `terminate`, each of which is repeated only where it is not known to
//! have been done. Source: the provider's calling API reference; the times are ours.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::graph::{CallAction, GraphOutcome};
use crate::event::LeaveReason;

/// How long the pick-up waits for DTLS: the phone rings meanwhile, and gives up after 30 s at the earliest.
pub const SECURED_WITHIN: Duration = Duration::from_secs(3);
/// Pauses before the second and the third `terminate`: all three fit the time that a stopping runner has.
pub const TERMINATE_PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(1)];

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutput {
    /// Send this request, in the place of one that is under way.
    Ask(CallAction),
    /// Begin the session, with its bot.
    Begin,
    /// Let audio out to the caller.
    Open,
    /// End the session.
    End(LeaveReason),
    /// Nothing is left to do; what is under way is of no interest any more.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallState {
    /// The answer is on its way to the provider.
    PreAccepting,
    /// The session connects.
    Preparing {
        accept_at: Instant,
    },
    Accepting,
    Live,
    Ending {
        action: CallAction,
        /// Pauses that were used.
        pauses: usize,
        again: Option<Instant>,
    },
    Over,
}

/// One call.
#[derive(Debug)]
pub struct WhatsAppCall {
    state: CallState,
    outputs: VecDeque<CallOutput>,
}

impl WhatsAppCall {
    /// Begins to answer a call.
    pub fn answer() -> Self {
        WhatsAppCall {
            state: CallState::PreAccepting,
            outputs: VecDeque::from([CallOutput::Ask(CallAction::PreAccept)]),
        }
    }

    /// Begins to decline a call.
    pub fn decline() -> Self {
        let mut call = WhatsAppCall {
            state: CallState::Over,
            outputs: VecDeque::new(),
        };
        call.end_with(CallAction::Reject);
        call
    }

    /// Takes the answer to the request that is under way.
    pub fn handle_answer(&mut self, verdict: &GraphOutcome, now: Instant) {
        match self.state {
            CallState::PreAccepting => match verdict {
                GraphOutcome::Done => {
                    self.outputs.push_back(CallOutput::Begin);
                    self.state = CallState::Preparing {
                        accept_at: now + SECURED_WITHIN,
                    };
                }
                // The phone rings on, and may be answered by another app of the account.
                GraphOutcome::Refused(_) | GraphOutcome::Unclear(_) => self.over(),
            },
            CallState::Accepting => match verdict {
                GraphOutcome::Done => {
                    self.outputs.push_back(CallOutput::Open);
                    self.state = CallState::Live;
                }
                GraphOutcome::Refused(failure) if failure.is_duplicate() => {
                    self.outputs.push_back(CallOutput::End(LeaveReason::Failed));
                    self.over();
                }
                GraphOutcome::Refused(_) => {
                    self.outputs.push_back(CallOutput::End(LeaveReason::Failed));
                    self.end_with(CallAction::Reject);
                }
                GraphOutcome::Unclear(_) => {
                    self.outputs.push_back(CallOutput::End(LeaveReason::Failed));
                    self.end_with(CallAction::Terminate);
                }
            },
            CallState::Ending {
                action,
                pauses,
                again: None,
            } => match (verdict, action) {
                (GraphOutcome::Done, _) => self.over(),
                (_, CallAction::Reject) => self.end_with(CallAction::Terminate),
                (GraphOutcome::Unclear(_), _) if pauses < TERMINATE_PAUSES.len() => {
                    self.state = CallState::Ending {
                        action,
                        pauses: pauses + 1,
                        again: Some(now + TERMINATE_PAUSES[pauses]),
                    };
                }
                _ => self.over(),
            },
            CallState::Preparing { .. } | CallState::Live | CallState::Ending { .. } | CallState::Over => {}
        }
    }

    /// The session's connection is secured.
    pub fn handle_secured(&mut self) {
        if let CallState::Preparing { .. } = self.state {
            self.accept();
        }
    }

    /// The session is over on this side: the bot ended, nothing was heard of the caller, or the runner stops.
    pub fn handle_session_end(&mut self) {
        match self.state {
            CallState::Preparing { .. } => self.end_with(CallAction::Reject),
            // Whether the call was picked up is not known, and `terminate` ends it either way.
            CallState::Accepting | CallState::Live => self.end_with(CallAction::Terminate),
            CallState::PreAccepting | CallState::Ending { .. } | CallState::Over => {}
        }
    }

    /// The runner stops. A session that runs tells its end by itself.
    pub fn handle_stop(&mut self) {
        if let CallState::PreAccepting = self.state {
            self.end_with(CallAction::Reject);
        }
    }

    /// A webhook tells that the call is over: nothing is left to be asked for.
    pub fn handle_terminated(&mut self) {
        if let CallState::Preparing { .. } | CallState::Accepting | CallState::Live = self.state {
            self.outputs.push_back(CallOutput::End(LeaveReason::Left));
        }
        self.over();
    }

    /// Tells whether no session will come of the call any more.
    pub fn is_ending(&self) -> bool {
        matches!(self.state, CallState::Ending { .. } | CallState::Over)
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        match self.state {
            CallState::Preparing { accept_at } if now >= accept_at => self.accept(),
            CallState::Ending {
                action,
                pauses,
                again: Some(at),
            } if now >= at => {
                self.state = CallState::Ending {
                    action,
                    pauses,
                    again: None,
                };
                self.outputs.push_back(CallOutput::Ask(action));
            }
            _ => {}
        }
    }

    /// Returns the next thing to do.
    pub fn poll_output(&mut self) -> Option<CallOutput> {
        self.outputs.pop_front()
    }

    /// Returns when [`WhatsAppCall::handle_timeout`] is wanted.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            CallState::Preparing { accept_at } => Some(accept_at),
            CallState::Ending { again, .. } => again,
            _ => None,
        }
    }

    fn accept(&mut self) {
        self.state = CallState::Accepting;
        self.outputs.push_back(CallOutput::Ask(CallAction::Accept));
    }

    fn end_with(&mut self, action: CallAction) {
        self.state = CallState::Ending {
            action,
            pauses: 0,
            again: None,
        };
        self.outputs.push_back(CallOutput::Ask(action));
    }

    fn over(&mut self) {
        if self.state != CallState::Over {
            self.state = CallState::Over;
            self.outputs.push_back(CallOutput::Over);
        }
    }
}

#[cfg(test)]
mod tests;
