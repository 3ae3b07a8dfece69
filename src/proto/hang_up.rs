//! The attempts to hang up a call: at a telephony provider, or in a room of a LiveKit server.
//!
//! In: the API, then the response of each request or the reason why there is none. Out: whether the
//! call is over, and when to retry.

use std::fmt;
use std::time::Duration;

use crate::call_control::HangUpOutcome;

/// An API that hangs up a call.
pub trait HangUpApi: fmt::Debug + Send + Sync {
    /// Returns the name for the log.
    fn name(&self) -> &'static str;

    /// Returns the meaning of the status and body of a response.
    fn outcome(&self, status: u16, body: &[u8]) -> HangUpOutcome;
}

/// The attempts to hang up a call.
#[derive(Debug)]
pub struct HangUpAttempts {
    api: &'static dyn HangUpApi,
    pauses: &'static [Duration],
    tries: usize,
}

/// The result of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub enum HangUpStep {
    /// The call is over; the text is for the log.
    Over(&'static str),
    /// Retry after this pause; the text is for the log.
    Again { pause: Duration, why: String },
    /// The call was not hung up, for this reason.
    Failed(String),
}

impl HangUpAttempts {
    /// Creates the series of attempts, with these pauses between them.
    pub fn new(api: &'static dyn HangUpApi, pauses: &'static [Duration]) -> Self {
        HangUpAttempts { api, pauses, tries: 0 }
    }

    /// Handles the status and the body of a response.
    pub fn handle_answer(&mut self, status: u16, body: &[u8]) -> HangUpStep {
        match self.api.outcome(status, body) {
            HangUpOutcome::Done => HangUpStep::Over("the call was hung up"),
            HangUpOutcome::AlreadyOver => HangUpStep::Over("the provider knows of no such call, so it is over"),
            HangUpOutcome::Refused(why) => HangUpStep::Failed(why),
            HangUpOutcome::Retry(why) => self.again(why),
        }
    }

    /// Handles a missing response. `is_passing` states whether a retry may succeed.
    pub fn handle_failure(&mut self, why: String, is_passing: bool) -> HangUpStep {
        match is_passing {
            true => self.again(why),
            false => HangUpStep::Failed(why),
        }
    }

    fn again(&mut self, why: String) -> HangUpStep {
        self.tries += 1;
        match self.pauses.get(self.tries - 1) {
            Some(pause) => HangUpStep::Again { pause: *pause, why },
            None => HangUpStep::Failed(format!("{why}, {} times", self.tries)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::livekit::room_service::RoomHangUp;
    use crate::telephony::PROVIDERS;
    use crate::telephony::named::TWILIO;

    /// The log names the API as options and statuses do.
    #[test]
    fn an_api_has_the_name_of_its_transport() {
        assert_eq!(HangUpApi::name(TWILIO), "twilio");
        assert_eq!(RoomHangUp.name(), "livekit");
    }

    /// Temporary failures are retried after each pause; others are reported at once.
    #[test]
    fn retries_temporary_failures() {
        const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(1)];
        let mut hang_up = HangUpAttempts::new(PROVIDERS[0], &PAUSES);
        for pause in PAUSES {
            let why = "connecting".to_owned();
            let next = hang_up.handle_failure(why.clone(), true);
            assert_eq!(next, HangUpStep::Again { pause, why });
        }
        let last = hang_up.handle_answer(503, b"");
        assert_eq!(last, HangUpStep::Failed("status 503, 3 times".into()));
        let mut hang_up = HangUpAttempts::new(PROVIDERS[0], &PAUSES);
        let failed = hang_up.handle_failure("no certificates".into(), false);
        assert_eq!(failed, HangUpStep::Failed("no certificates".into()));
        assert_eq!(
            hang_up.handle_answer(200, b""),
            HangUpStep::Over("the call was hung up")
        );
    }
}
