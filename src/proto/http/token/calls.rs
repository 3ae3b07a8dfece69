//! Maps telephone calls to the serial numbers of their tokens, so that a repeated webhook gets no
//! second one.
//!
//! In: a call, the signed webhook that named it, and the serial numbers. Out: the [`IssuedToken`].
//! A known webhook, whether retried by the provider or replayed from a capture, gets the same
//! number again. Another webhook of the same call shares the number until it is used or expired,
//! and then gets a new one, since a call may return to its bot. The webhooks of a provider that
//! signs neither a time nor a nonce are equal at each return: after a transfer by the runner, the
//! next webhook of the call gets a new number, known or not. Past `REMEMBERED_CALLS_MAX`, the
//! oldest entry is dropped.

use std::collections::{HashMap, VecDeque};

use super::call_key::CallKey;
use super::serials::{SerialState, Serials};
use crate::limits::TOKEN_LIFE;

/// Calls and signed webhooks whose token is remembered: some 4,000 calls, a day of three a minute,
/// in 1 MB. Only signed webhooks are remembered, so that others cannot fill it.
const REMEMBERED_CALLS_MAX: usize = 8 * 1024;

/// Time in which a call may return that was transferred, in seconds: a long talk with a person.
const RETURNS_WITHIN_S: u64 = 3_600;
/// Transferred calls that may return.
const RETURNING_CALLS_MAX: usize = 256;

/// A number that was issued to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IssuedToken {
    pub call: CallKey,
    pub serial: u64,
    /// Time at which the token expires.
    pub expires: u64,
}

/// The key of a remembered number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum CallTokenKey {
    Call(CallKey),
    Webhook([u8; 16]),
}

/// The numbers of the last calls.
#[derive(Debug, Default)]
pub(super) struct CallTokens {
    issued: HashMap<CallTokenKey, IssuedToken>,
    order: VecDeque<CallTokenKey>,
    /// The transferred calls, each with the time until which it may return.
    returning: VecDeque<(CallKey, u64)>,
}

impl CallTokens {
    /// Returns the number for the call of a webhook: a new one, or that of this call or webhook.
    pub fn issue(&mut self, call: CallKey, webhook: [u8; 16], serials: &mut Serials, second: u64) -> IssuedToken {
        let returns = self.take_return(call, second);
        if let Some(issued) = self.issued.get(&CallTokenKey::Webhook(webhook))
            && !(returns && issued.call == call)
        {
            return *issued;
        }
        let is_good = |last: &&IssuedToken| second < last.expires && serials.state(last.serial) == SerialState::Fresh;
        let issued = match self.issued.get(&CallTokenKey::Call(call)).filter(is_good) {
            Some(last) => *last,
            None => {
                let expires = second + TOKEN_LIFE.as_secs();
                let serial = serials.issue(expires);
                IssuedToken { call, serial, expires }
            }
        };
        self.remember(CallTokenKey::Call(call), issued);
        self.remember(CallTokenKey::Webhook(webhook), issued);
        issued
    }

    /// Lets a call return once that the runner transferred.
    pub fn expect_return(&mut self, call: CallKey, second: u64) {
        self.forget_return(call);
        if self.returning.len() == RETURNING_CALLS_MAX {
            self.returning.pop_front();
        }
        self.returning.push_back((call, second + RETURNS_WITHIN_S));
    }

    /// Takes the end of a call, which does not return.
    pub fn forget_return(&mut self, call: CallKey) {
        self.returning.retain(|(returning, _)| *returning != call);
    }

    fn take_return(&mut self, call: CallKey, second: u64) -> bool {
        let is_due = |(returning, until): &(CallKey, u64)| *returning == call && second < *until;
        let returns = self.returning.iter().any(is_due);
        self.forget_return(call);
        returns
    }

    fn remember(&mut self, key: CallTokenKey, issued: IssuedToken) {
        if self.issued.insert(key, issued).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > REMEMBERED_CALLS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.issued.remove(&oldest);
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        assert_eq!(self.issued.len(), self.order.len());
        self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telephony::named::TWILIO;

    fn key(n: u32) -> CallKey {
        CallKey::of(TWILIO, &n.to_string())
    }

    fn webhook(n: u32) -> [u8; 16] {
        u128::from(n).to_be_bytes()
    }

    /// A provider that retries before the socket opened gets a valid token, with the same signature
    /// or a new one.
    #[test]
    fn a_retry_shares_the_number_of_its_call() {
        let (mut calls, mut serials) = (CallTokens::default(), Serials::default());
        let first = calls.issue(key(1), webhook(1), &mut serials, 0);
        assert_eq!(calls.issue(key(1), webhook(1), &mut serials, 5), first);
        assert_eq!(calls.issue(key(1), webhook(2), &mut serials, 5), first);
        let other = calls.issue(key(2), webhook(3), &mut serials, 5);
        assert!(other.serial != first.serial && other.expires == first.expires + 5);
    }

    /// Once the number of a call is used, no known webhook yields another one. A new webhook does,
    /// since a call may return to its bot.
    #[test]
    fn a_replayed_webhook_yields_no_second_number() {
        let (mut calls, mut serials) = (CallTokens::default(), Serials::default());
        let first = calls.issue(key(1), webhook(1), &mut serials, 0);
        assert_eq!(calls.issue(key(1), webhook(2), &mut serials, 0), first);
        serials.redeem(first.serial);
        for seen in [webhook(1), webhook(2)] {
            for second in [0, 299, 300, 86_400] {
                serials.expire(second);
                assert_eq!(calls.issue(key(1), seen, &mut serials, second), first);
            }
        }
        let back = calls.issue(key(1), webhook(4), &mut serials, 10);
        assert_ne!(back.serial, first.serial);
        assert_eq!(calls.issue(key(1), webhook(1), &mut serials, 10), first);
        // A captured webhook with the name of another call yields the number of its own.
        assert_eq!(calls.issue(key(7), webhook(1), &mut serials, 10), first);
    }

    /// After a transfer, one webhook of the call gets a new number, also a known one; its retries
    /// get the same. That ends after an hour, and with the call.
    #[test]
    fn a_transferred_call_returns_once() {
        let (mut calls, mut serials) = (CallTokens::default(), Serials::default());
        let first = calls.issue(key(1), webhook(1), &mut serials, 0);
        serials.redeem(first.serial);
        assert_eq!(calls.issue(key(1), webhook(1), &mut serials, 5), first);
        calls.expect_return(key(1), 10);
        let other = calls.issue(key(2), webhook(9), &mut serials, 10);
        serials.redeem(other.serial);
        assert_eq!(calls.issue(key(2), webhook(9), &mut serials, 10), other, "another call");
        let back = calls.issue(key(1), webhook(1), &mut serials, 700);
        assert_eq!((back.serial, back.expires), (other.serial + 1, 1_000));
        assert_eq!(calls.issue(key(1), webhook(1), &mut serials, 701), back);
        serials.redeem(back.serial);
        assert_eq!(calls.issue(key(1), webhook(1), &mut serials, 702), back, "once");

        calls.expect_return(key(1), 800);
        let signed_again = calls.issue(key(1), webhook(2), &mut serials, 801);
        assert_eq!(signed_again.serial, back.serial + 1);
        assert_eq!(
            calls.issue(key(1), webhook(1), &mut serials, 802),
            back,
            "it has returned"
        );

        calls.expect_return(key(1), 1_000);
        calls.forget_return(key(1));
        assert_eq!(
            calls.issue(key(1), webhook(1), &mut serials, 1_001),
            back,
            "it has ended"
        );
        calls.expect_return(key(1), 2_000);
        let late = 2_000 + RETURNS_WITHIN_S;
        assert_eq!(calls.issue(key(1), webhook(1), &mut serials, late), back, "too late");

        calls.expect_return(key(1), 2_000);
        calls.expect_return(key(1), 2_000);
        for n in 10..10 + RETURNING_CALLS_MAX as u32 {
            calls.expect_return(key(n), 2_000);
        }
        assert_eq!(calls.returning.len(), RETURNING_CALLS_MAX);
        assert_eq!(
            calls.issue(key(1), webhook(1), &mut serials, 2_001),
            back,
            "the oldest was dropped"
        );
    }

    /// An unused number expires too, and a new webhook then gets a valid one.
    #[test]
    fn an_expired_number_is_not_shared() {
        let (mut calls, mut serials) = (CallTokens::default(), Serials::default());
        let first = calls.issue(key(1), webhook(1), &mut serials, 0);
        assert_eq!(calls.issue(key(1), webhook(2), &mut serials, 299), first);
        let later = calls.issue(key(1), webhook(3), &mut serials, 300);
        assert_eq!((later.serial, later.expires), (first.serial + 1, 600));
    }

    /// The oldest entry is dropped, which only calls of the provider can cause.
    #[test]
    fn the_number_of_entries_is_limited() {
        let (mut calls, mut serials) = (CallTokens::default(), Serials::default());
        let first = calls.issue(key(0), webhook(0), &mut serials, 0);
        let last = REMEMBERED_CALLS_MAX as u32 / 2;
        for n in 1..last {
            calls.issue(key(n), webhook(n), &mut serials, 0);
        }
        serials.redeem(first.serial);
        assert_eq!(calls.issue(key(0), webhook(0), &mut serials, 0), first);
        calls.issue(key(last), webhook(last), &mut serials, 0);
        assert_ne!(calls.issue(key(0), webhook(0), &mut serials, 0), first);
        assert_eq!(calls.len(), REMEMBERED_CALLS_MAX);
    }
}
