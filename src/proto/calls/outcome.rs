//! How calls end: those whose session ended, and those that became no session.
//!
//! In: the reason of a session, the refusal of an admission, or the word of a provider about a call
//! that the runner dialled.
//! Out: the label in JSON and in queries, a sentence, and who ended the call.

use std::fmt;

use serde::Deserialize;

use crate::event::LeaveReason;
use crate::refusal::SessionRefusal;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// Its session ended, for this reason.
    Ended(LeaveReason),
    /// Its bot takes no calls of this telephone.
    Refused,
    /// Every place of the runner was taken.
    Full,
    /// Every place of its bot was taken.
    BotFull,
    /// Its source had its share of the places.
    Share,
    /// The runner took no new calls, since it was to stop.
    Stopping,
    /// The media server found no runner for its room.
    NotTaken,
    /// Its provider made no room for it, or did not connect it.
    ProviderFailed,
    /// The dialled number was busy.
    Busy,
    /// The dialled call was not answered in the time of the provider.
    NoAnswer,
    /// The provider did not reach the dialled number.
    Unreachable,
    /// The dialled call was ended at the provider before it was answered.
    Canceled,
    /// The provider did not dial.
    NotDialled,
    /// The provider reported neither an answer nor an end of the dialled call.
    Unreported,
}

/// Outcomes of calls that became no session.
const MISSED: [CallOutcome; 13] = [
    CallOutcome::Refused,
    CallOutcome::Full,
    CallOutcome::BotFull,
    CallOutcome::Share,
    CallOutcome::Stopping,
    CallOutcome::NotTaken,
    CallOutcome::ProviderFailed,
    CallOutcome::Busy,
    CallOutcome::NoAnswer,
    CallOutcome::Unreachable,
    CallOutcome::Canceled,
    CallOutcome::NotDialled,
    CallOutcome::Unreported,
];

impl CallOutcome {
    /// How dialled calls end that become no session.
    pub const DIALLED: [CallOutcome; 8] = [
        CallOutcome::NotDialled,
        CallOutcome::Busy,
        CallOutcome::NoAnswer,
        CallOutcome::Unreachable,
        CallOutcome::Canceled,
        CallOutcome::Ended(LeaveReason::NeverConnected),
        CallOutcome::Unreported,
        CallOutcome::Ended(LeaveReason::Shutdown),
    ];

    /// How calls end that become no session and that the runner did not dial. A caller can ask for
    /// them often.
    pub const REFUSALS: [CallOutcome; 7] = [
        CallOutcome::Refused,
        CallOutcome::Full,
        CallOutcome::BotFull,
        CallOutcome::Share,
        CallOutcome::Stopping,
        CallOutcome::NotTaken,
        CallOutcome::ProviderFailed,
    ];

    /// Returns how a call ends that an admission turns away; `None` for an error of the request
    /// itself.
    pub const fn of_refusal(refusal: &SessionRefusal) -> Option<Self> {
        match refusal {
            SessionRefusal::CallerNotAllowed(_) => Some(CallOutcome::Refused),
            SessionRefusal::Full => Some(CallOutcome::Full),
            SessionRefusal::BotFull(_) => Some(CallOutcome::BotFull),
            SessionRefusal::SourceQuota => Some(CallOutcome::Share),
            SessionRefusal::Stopping => Some(CallOutcome::Stopping),
            SessionRefusal::BadSdp(_)
            | SessionRefusal::UnknownConnection
            | SessionRefusal::OtherReplica(_)
            | SessionRefusal::NoCandidate(_)
            | SessionRefusal::AnswerTooLong(_)
            | SessionRefusal::Internal(_) => None,
        }
    }

    /// Finds an outcome by its label.
    pub fn of_label(label: &str) -> Option<Self> {
        let mut all = LeaveReason::ALL.into_iter().map(CallOutcome::Ended).chain(MISSED);
        all.find(|outcome| outcome.label() == label)
    }

    /// Reads the status by which a provider reports the end of a dialled call; `None` for one that
    /// is no end. A call that was answered has a session, or never became one.
    pub fn of_dialled(status: &str) -> Option<Self> {
        match status {
            "queued" | "initiated" | "ringing" | "in-progress" | "answered" => None,
            "completed" => Some(CallOutcome::Ended(LeaveReason::NeverConnected)),
            "busy" => Some(CallOutcome::Busy),
            "no-answer" => Some(CallOutcome::NoAnswer),
            "canceled" | "cancel" => Some(CallOutcome::Canceled),
            // `failed`, and what else a provider says, such as `timeout`.
            _ => Some(CallOutcome::Unreachable),
        }
    }

    /// Returns the name in JSON and in queries.
    pub const fn label(self) -> &'static str {
        match self {
            CallOutcome::Ended(reason) => reason.label(),
            CallOutcome::Refused => "refused",
            CallOutcome::Full => "full",
            CallOutcome::BotFull => "bot_full",
            CallOutcome::Share => "share",
            CallOutcome::Stopping => "stopping",
            CallOutcome::NotTaken => "not_taken",
            CallOutcome::ProviderFailed => "provider_failed",
            CallOutcome::Busy => "busy",
            CallOutcome::NoAnswer => "no_answer",
            CallOutcome::Unreachable => "unreachable",
            CallOutcome::Canceled => "canceled",
            CallOutcome::NotDialled => "not_dialled",
            CallOutcome::Unreported => "unreported",
        }
    }

    /// Returns who ended the call.
    pub const fn ended_by(self) -> &'static str {
        match self {
            CallOutcome::Ended(reason) => match reason {
                LeaveReason::Left | LeaveReason::Vanished | LeaveReason::NeverConnected => "caller",
                LeaveReason::Replaced | LeaveReason::Stalled | LeaveReason::Protocol => "caller",
                LeaveReason::BotEnded | LeaveReason::BotFailed => "bot",
                LeaveReason::Shutdown | LeaveReason::Limit => "runner",
                LeaveReason::Operator => "operator",
                LeaveReason::Failed => "transport",
            },
            CallOutcome::Refused | CallOutcome::Full | CallOutcome::BotFull => "runner",
            CallOutcome::Share | CallOutcome::Stopping | CallOutcome::NotTaken => "runner",
            CallOutcome::Busy | CallOutcome::NoAnswer => "caller",
            CallOutcome::Unreachable | CallOutcome::NotDialled | CallOutcome::Unreported => "transport",
            CallOutcome::ProviderFailed => "transport",
            CallOutcome::Canceled => "operator",
        }
    }

    /// Returns whether the call was turned away: it is one of [`CallOutcome::REFUSALS`].
    pub fn is_refusal(self) -> bool {
        CallOutcome::REFUSALS.contains(&self)
    }

    /// Returns whether the bot or the transport failed.
    pub const fn is_failure(self) -> bool {
        matches!(
            self,
            CallOutcome::ProviderFailed
                | CallOutcome::Unreachable
                | CallOutcome::NotDialled
                | CallOutcome::Unreported
                | CallOutcome::Ended(LeaveReason::BotFailed | LeaveReason::Failed)
        )
    }
}

/// The member of the row of a call that says how it ended.
#[derive(Debug, Deserialize)]
pub(super) struct EndedRow {
    outcome: Option<String>,
}

impl EndedRow {
    /// Returns whether the call was turned away.
    pub(super) fn is_refusal(&self) -> bool {
        let outcome = self.outcome.as_deref().and_then(CallOutcome::of_label);
        outcome.is_some_and(CallOutcome::is_refusal)
    }
}

impl From<LeaveReason> for CallOutcome {
    fn from(reason: LeaveReason) -> Self {
        CallOutcome::Ended(reason)
    }
}

impl fmt::Display for CallOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CallOutcome::Ended(reason) => return reason.fmt(f),
            CallOutcome::Refused => "this number may not call the bot",
            CallOutcome::Full => "every session of the runner was taken",
            CallOutcome::BotFull => "every session of the bot was taken",
            CallOutcome::Share => "its address had its share of the sessions",
            CallOutcome::Stopping => "the runner took no new calls, since it was to stop",
            CallOutcome::NotTaken => "no runner took its room",
            CallOutcome::ProviderFailed => "its provider did not connect it",
            CallOutcome::Busy => "the number was busy",
            CallOutcome::NoAnswer => "not answered",
            CallOutcome::Unreachable => "the number was not reached",
            CallOutcome::Canceled => "canceled before it was answered",
            CallOutcome::NotDialled => "the provider did not dial",
            CallOutcome::Unreported => "the provider reported neither an answer nor an end",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_a_label_of_its_own() {
        for outcome in LeaveReason::ALL.into_iter().map(CallOutcome::Ended).chain(MISSED) {
            assert_eq!(CallOutcome::of_label(outcome.label()), Some(outcome));
        }
        assert_eq!(CallOutcome::of_label("good"), None);
    }

    /// Errors of an admission end a call, and errors of its request are none.
    #[test]
    fn refusals_of_an_admission_are_outcomes() {
        let name = || "sales".to_owned();
        let refusals = [
            SessionRefusal::CallerNotAllowed(name()),
            SessionRefusal::Full,
            SessionRefusal::BotFull(name()),
            SessionRefusal::SourceQuota,
            SessionRefusal::Stopping,
        ];
        let outcomes = refusals.each_ref().map(CallOutcome::of_refusal);
        // An admission knows neither of other runners nor of providers.
        let unknown = [CallOutcome::NotTaken, CallOutcome::ProviderFailed].map(Some);
        let others = CallOutcome::REFUSALS.map(Some);
        assert_eq!(
            outcomes[..],
            others
                .into_iter()
                .filter(|of| !unknown.contains(of))
                .collect::<Vec<_>>()
        );
        for error in [SessionRefusal::BadSdp(name()), SessionRefusal::UnknownConnection] {
            assert_eq!(CallOutcome::of_refusal(&error), None);
        }
    }

    #[test]
    fn every_reason_has_someone_who_ended_the_call() {
        for reason in LeaveReason::ALL {
            let by = CallOutcome::Ended(reason).ended_by();
            assert_eq!(
                reason.is_by_runner(),
                ["bot", "runner", "operator"].contains(&by),
                "{reason}: {by}"
            );
        }
    }

    /// The final words of providers, those of calls that go on, and none.
    #[test]
    fn words_of_providers_have_a_meaning() {
        for (word, outcome) in [
            ("completed", Some(CallOutcome::Ended(LeaveReason::NeverConnected))),
            ("busy", Some(CallOutcome::Busy)),
            ("no-answer", Some(CallOutcome::NoAnswer)),
            ("failed", Some(CallOutcome::Unreachable)),
            ("timeout", Some(CallOutcome::Unreachable)),
            ("canceled", Some(CallOutcome::Canceled)),
            ("cancel", Some(CallOutcome::Canceled)),
            ("ringing", None),
            ("in-progress", None),
            ("", Some(CallOutcome::Unreachable)),
        ] {
            assert_eq!(CallOutcome::of_dialled(word), outcome, "{word}");
            assert!(outcome.is_none_or(|outcome| CallOutcome::DIALLED.contains(&outcome)));
        }
    }
}
