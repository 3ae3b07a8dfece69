//! Keep-alive of a TURN allocation: a refresh every 25 s, beside those of the client library.
//!
//! It keeps NAT bindings open and detects a server that is gone (no answer) or restarted (an
//! error). In: every response of the server, since challenges carry the nonce, and `now`. Out:
//! messages, and whether the allocation is lost. Sources: RFC 8656 section 8, RFC 8489 section 9.2.

use std::time::Instant;

use turn_client_proto::stun::auth::{LongTermClientAuth, LongTermClientValidation};
use turn_client_proto::types::TurnCredentials;
use turn_client_proto::types::attribute::Lifetime;
use turn_client_proto::types::message::REFRESH;
use turn_client_proto::types::stun::message::{Message, MessageClass, MessageWriteVec};
use turn_client_proto::types::stun::prelude::{MessageWrite, MessageWriteExt};

use crate::limits::{STUN_KEEP_ALIVE, STUN_UNANSWERED_MAX};
use crate::webrtc::gather::stun_request::{StunRequest, StunRequestStep};

/// The lifetime that the client library requests; a different one would shorten it.
const LIFETIME_S: u32 = 1800;
/// The most consecutive stale-nonce errors. A correct server sends one.
const STALE_MAX: u32 = 4;

/// The keep-alive of one allocation.
#[derive(Debug)]
pub struct KeepAlive {
    auth: LongTermClientAuth,
    over_stream: bool,
    /// When the next refresh is due; `None` before the allocation exists.
    next_at: Option<Instant>,
    request: Option<StunRequest>,
    unanswered: u32,
    stale_nonces: u32,
    is_refused: bool,
}

impl KeepAlive {
    pub fn new(credentials: &TurnCredentials, over_stream: bool) -> Self {
        let mut auth = LongTermClientAuth::new();
        auth.set_credentials(credentials.clone().into());
        KeepAlive {
            auth,
            over_stream,
            next_at: None,
            request: None,
            unanswered: 0,
            stale_nonces: 0,
            is_refused: false,
        }
    }

    /// Starts when the allocation exists.
    pub fn start(&mut self, now: Instant) {
        self.next_at = Some(now + STUN_KEEP_ALIVE);
    }

    /// Handles a response. Returns whether it answers a keep-alive.
    pub fn handle_response(&mut self, message: &Message<'_>, now: Instant) -> bool {
        // All challenges count, including those for requests of the client library.
        let validated = self.auth.validate_incoming_message(message);
        let ours = self
            .request
            .as_ref()
            .is_some_and(|round| round.id() == message.transaction_id());
        if !ours {
            return false;
        }
        self.request = None;
        if matches!(validated, Ok(LongTermClientValidation::ResendRequest(_))) && self.stale_nonces < STALE_MAX {
            self.stale_nonces += 1;
            self.request = self.refresh(now);
            return true;
        }
        self.stale_nonces = 0;
        if message.has_class(MessageClass::Success) && validated.is_ok() {
            self.unanswered = 0;
            self.next_at = Some(now + STUN_KEEP_ALIVE);
        } else {
            self.is_refused = true;
        }
        true
    }

    /// Returns whether the server no longer knows the allocation.
    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Returns whether the server has been silent for too long.
    pub fn is_silent(&self) -> bool {
        self.unanswered >= STUN_UNANSWERED_MAX
    }

    /// Returns the next message if one is due.
    pub fn poll(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.request.is_none() && self.next_at.is_some_and(|at| at <= now) {
            self.request = self.refresh(now);
        }
        let round = self.request.as_mut()?;
        match round.poll(now) {
            StunRequestStep::Send => Some(round.message().to_vec()),
            StunRequestStep::Wait(at) => {
                self.next_at = Some(at);
                None
            }
            StunRequestStep::GivenUp => {
                self.unanswered += 1;
                self.request = None;
                self.next_at = Some(now);
                if self.is_silent() { None } else { self.poll(now) }
            }
        }
    }

    /// Returns when [`KeepAlive::poll`] is due.
    pub fn next_at(&self) -> Instant {
        self.next_at
            .expect("the allocation is there, so a sign of life is planned")
    }

    fn refresh(&mut self, now: Instant) -> Option<StunRequest> {
        let mut message = Message::builder_request(REFRESH, MessageWriteVec::new());
        message.add_attribute(&Lifetime::new(LIFETIME_S)).ok()?;
        let id = message.transaction_id();
        let message = self.auth.sign_outgoing_message(message).ok()?;
        Some(StunRequest::new(id, message.finish(), self.over_stream, now))
    }
}
