//! The state machine of one call, as the sequence of its requests.
//!
//! `PreAccepting -> Preparing -> Accepting -> Live -> Ending -> Over`. In: answers of the API,
//! events of the session, webhooks, and `now`. Out, by [`WhatsAppCall::poll_output`]: requests, one
//! at a time, and commands to the session. The bot starts after the pre-accept, so that it is ready
//! at the pick-up; the call is accepted once DTLS is up, or after [`SECURED_WITHIN`]; audio flows
//! after that, since the app takes the first packet for the pick-up. A call ends with one `reject`
//! or one `terminate`, repeated only if the outcome is unknown. Source: `docs/spec/whatsapp.md` 4
//! and 6.3; the times are choices of this project.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::graph::{CallAction, GraphOutcome};
use crate::event::LeaveReason;

/// How long the accept waits for DTLS. The phone rings meanwhile, for at least 30 s.
pub const SECURED_WITHIN: Duration = Duration::from_secs(3);
/// Pauses before the second and the third `terminate`. All three fit the shutdown time of the
/// runner.
pub const TERMINATE_PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(1)];

/// An output of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutput {
    /// Send this request. It replaces a pending one.
    Ask(CallAction),
    /// Begin the session with its bot.
    Begin,
    /// Let audio flow to the caller.
    Open,
    /// End the session.
    End(LeaveReason),
    /// Nothing is left to do. A pending request is irrelevant.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallState {
    /// The pre-accept is pending.
    PreAccepting,
    /// The session connects.
    Preparing {
        accept_at: Instant,
    },
    Accepting,
    Live,
    Ending {
        action: CallAction,
        /// The number of pauses used.
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
    /// Creates a call that will be answered.
    pub fn answer() -> Self {
        WhatsAppCall {
            state: CallState::PreAccepting,
            outputs: VecDeque::from([CallOutput::Ask(CallAction::PreAccept)]),
        }
    }

    /// Creates a call that will be declined.
    pub fn decline() -> Self {
        let mut call = WhatsAppCall {
            state: CallState::Over,
            outputs: VecDeque::new(),
        };
        call.end_with(CallAction::Reject);
        call
    }

    /// Handles the outcome of the pending request.
    pub fn handle_answer(&mut self, verdict: &GraphOutcome, now: Instant) {
        match self.state {
            CallState::PreAccepting => match verdict {
                GraphOutcome::Done => {
                    self.outputs.push_back(CallOutput::Begin);
                    self.state = CallState::Preparing {
                        accept_at: now + SECURED_WITHIN,
                    };
                }
                // The phone keeps ringing, and another app of the account may answer.
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

    /// Handles the completed DTLS handshake.
    pub fn handle_secured(&mut self) {
        if let CallState::Preparing { .. } = self.state {
            self.accept();
        }
    }

    /// Handles the end of the session: the bot ended, the caller fell silent, or the runner stops.
    pub fn handle_session_end(&mut self) {
        match self.state {
            CallState::Preparing { .. } => self.end_with(CallAction::Reject),
            // Whether the call was picked up is unknown. `terminate` ends it either way.
            CallState::Accepting | CallState::Live => self.end_with(CallAction::Terminate),
            CallState::PreAccepting | CallState::Ending { .. } | CallState::Over => {}
        }
    }

    /// Handles the shutdown of the runner. A running session reports its own end.
    pub fn handle_stop(&mut self) {
        if let CallState::PreAccepting = self.state {
            self.end_with(CallAction::Reject);
        }
    }

    /// Handles a webhook that ends the call. No request follows.
    pub fn handle_terminated(&mut self) {
        if let CallState::Preparing { .. } | CallState::Accepting | CallState::Live = self.state {
            self.outputs.push_back(CallOutput::End(LeaveReason::Left));
        }
        self.over();
    }

    /// Tells whether no session can follow any more.
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

    /// Returns the next output.
    pub fn poll_output(&mut self) -> Option<CallOutput> {
        self.outputs.pop_front()
    }

    /// Returns when [`WhatsAppCall::handle_timeout`] is due.
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
