//! One request to a STUN or TURN server, with its retransmissions.
//!
//! In: the message and `now`. Out: when to send it and when to give up. Over UDP it is sent 4 times
//! within 3.5 s and given up after 5 s. Over a stream it is sent once, with the same timeout.
//! Source: RFC 8489 section 6.2.1, with fewer retransmissions, because callers try again later.

use std::time::Instant;

use turn_client_proto::types::stun::message::TransactionId;

use crate::limits::{STUN_LAST_WAIT, STUN_RETRANSMIT, STUN_TRANSMISSIONS};

/// A pending request.
#[derive(Debug)]
pub struct StunRequest {
    id: TransactionId,
    message: Vec<u8>,
    transmissions: u32,
    next_at: Instant,
    over_stream: bool,
}

/// The next step for a request.
#[derive(Debug, PartialEq, Eq)]
pub enum StunRequestStep {
    Send,
    Wait(Instant),
    /// The request timed out.
    GivenUp,
}

impl StunRequest {
    pub fn new(id: TransactionId, message: Vec<u8>, over_stream: bool, now: Instant) -> Self {
        StunRequest {
            id,
            message,
            transmissions: 0,
            next_at: now,
            over_stream,
        }
    }

    pub fn id(&self) -> TransactionId {
        self.id
    }

    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// Returns the next step. [`StunRequestStep::Send`] counts as sent.
    pub fn poll(&mut self, now: Instant) -> StunRequestStep {
        if now < self.next_at {
            return StunRequestStep::Wait(self.next_at);
        }
        if self.transmissions == STUN_TRANSMISSIONS {
            return StunRequestStep::GivenUp;
        }
        let first = self.transmissions == 0;
        let wait = STUN_RETRANSMIT * (1 << self.transmissions);
        self.transmissions += 1;
        let last = self.transmissions == STUN_TRANSMISSIONS;
        self.next_at = now + if last { STUN_LAST_WAIT } else { wait };
        if self.over_stream && !first {
            return self.poll(now);
        }
        StunRequestStep::Send
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Advances to each deadline. Returns the send times and the timeout in milliseconds.
    fn life(over_stream: bool) -> (Vec<u128>, u128) {
        let start = Instant::now();
        let mut now = start;
        let mut round = StunRequest::new(7.into(), vec![1], over_stream, now);
        let mut sent = Vec::new();
        loop {
            match round.poll(now) {
                StunRequestStep::Send => sent.push((now - start).as_millis()),
                StunRequestStep::Wait(at) => {
                    assert!(at > now && at - now <= Duration::from_secs(2));
                    now = at;
                }
                StunRequestStep::GivenUp => return (sent, (now - start).as_millis()),
            }
        }
    }

    /// Each delay doubles, and the timeout is 5 s. A stream needs no retransmission but has the
    /// same timeout.
    #[test]
    fn requests_are_repeated_and_time_out() {
        assert_eq!(life(false), (vec![0, 500, 1500, 3500], 5000));
        assert_eq!(life(true), (vec![0], 5000));
    }
}
