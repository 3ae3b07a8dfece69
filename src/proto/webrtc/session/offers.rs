//! The offers of a session: the first, of a client or a call; later ones; and those after a
//! restart.
//!
//! In: SDP and a [`ConnectionSetup`]. Out: the session and the answer's SDP. A client that restarts
//! gets a new connection in the same session, which keeps the bot, its audio and waiting messages.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Liveness, MediaGate, RtviGate, WebRtcPhase, WebRtcSession};
use crate::audio::receiver::AudioReceiver;
use crate::audio::sender::AudioSender;
use crate::limits::{CONNECT_WITHIN, PEER_FREED_AFTER};
use crate::webrtc::connection::{ConnectionSetup, NegotiationError, PeerConnection};
use crate::webrtc::outbox::Outbox;

/// How long a call may take to be picked up; the phone gives up after 60 s.
pub(super) const CALL_HELD_WITHIN: Duration = Duration::from_secs(60);
/// The silence after which a call ends. The server answers checks every few seconds and does not
/// resume calls.
pub(super) const CALL_FREED_AFTER: Duration = Duration::from_secs(15);

impl WebRtcSession {
    /// Answers an offer. Returns the session and the answer's SDP.
    ///
    /// # Errors
    /// As [`PeerConnection::accept`].
    pub fn accept(
        offer: &str,
        setup: &ConnectionSetup<'_>,
        now: Instant,
    ) -> Result<(WebRtcSession, String), NegotiationError> {
        let (peer, answer) = PeerConnection::accept(offer, setup, now)?;
        Ok((WebRtcSession::new(peer, setup, now), answer))
    }

    fn new(peer: PeerConnection, setup: &ConnectionSetup<'_>, now: Instant) -> WebRtcSession {
        let (device, codec) = (peer.is_device(), peer.codec());
        WebRtcSession {
            connection: peer,
            phase: WebRtcPhase::Connecting {
                until: now + CONNECT_WITHIN,
            },
            has_joined: false,
            is_lost: false,
            resume_pending: false,
            hold_pending: None,
            liveness: Liveness::new(now),
            is_contested: false,
            audio_receiver: AudioReceiver::new(codec),
            audio_sender: AudioSender::new(codec, device, setup.context.encoder_settings),
            outbox: Outbox::new(device),
            rtvi_gate: RtviGate::default(),
            realtime_events: None,
            pending_event: None,
            commands: VecDeque::new(),
            bot_queue_empty: true,
            media_gate: MediaGate::Open,
            end_after_silence: PEER_FREED_AFTER,
            is_call: false,
            was_audible: false,
            is_evicted: false,
            early_end: None,
        }
    }

    /// Answers the offer of a call. The session connects but sends no audio until
    /// [`WebRtcSession::open`].
    ///
    /// # Errors
    /// As [`PeerConnection::accept_call`].
    pub fn accept_call(
        offer: &str,
        setup: &ConnectionSetup<'_>,
        now: Instant,
    ) -> Result<(WebRtcSession, String), NegotiationError> {
        let (peer, answer) = PeerConnection::accept_call(offer, setup, now)?;
        let session = WebRtcSession {
            phase: WebRtcPhase::Connecting {
                until: now + CALL_HELD_WITHIN,
            },
            media_gate: MediaGate::Held { is_secured: false },
            end_after_silence: CALL_FREED_AFTER,
            is_call: true,
            ..WebRtcSession::new(peer, setup, now)
        };
        Ok((session, answer))
    }

    /// Handles the pick-up of a call: audio may be sent. A pending connection gets its full time
    /// from now on.
    pub fn open(&mut self, now: Instant) {
        let MediaGate::Held { is_secured } = std::mem::replace(&mut self.media_gate, MediaGate::Open) else {
            return;
        };
        if is_secured {
            self.handle_connected(now);
        } else if let WebRtcPhase::Connecting { until } = &mut self.phase {
            *until = now + CONNECT_WITHIN;
        }
    }

    /// Returns whether ICE and DTLS are up.
    pub fn is_secured(&self) -> bool {
        self.has_joined || self.media_gate == MediaGate::Held { is_secured: true }
    }

    /// Answers a later offer on the same connection.
    ///
    /// # Errors
    /// As [`PeerConnection::renegotiate`], and [`NegotiationError::Ended`].
    pub fn renegotiate(&mut self, offer: &str) -> Result<String, NegotiationError> {
        if self.is_ending() {
            return Err(NegotiationError::Ended);
        }
        let was_on_hold = self.connection.is_on_hold();
        let answer = self.connection.renegotiate(offer)?;
        self.handle_hold(was_on_hold);
        Ok(answer)
    }

    /// Notes whether an offer has put the call on hold, or taken it up again.
    fn handle_hold(&mut self, was_on_hold: bool) {
        let is_on_hold = self.connection.is_on_hold();
        if is_on_hold != was_on_hold {
            self.hold_pending = Some(is_on_hold);
        }
    }

    /// Answers an offer of a client that discarded its connection: creates a new one for the same
    /// bot.
    ///
    /// # Errors
    /// As [`PeerConnection::accept`], and [`NegotiationError::Ended`]; the old connection is kept
    /// then.
    pub fn restart(
        &mut self,
        offer: &str,
        setup: &ConnectionSetup<'_>,
        now: Instant,
    ) -> Result<String, NegotiationError> {
        if self.is_ending() {
            return Err(NegotiationError::Ended);
        }
        let (peer, answer) = PeerConnection::accept(offer, setup, now)?;
        // The client no longer has the old connection, so no goodbye is sent.
        let former = std::mem::replace(&mut self.connection, peer);
        self.handle_hold(former.is_on_hold());
        self.connection.take_over(former);
        self.audio_receiver.handle_restart();
        self.audio_receiver.set_codec(self.connection.codec());
        self.audio_sender.set_codec(self.connection.codec(), now);
        self.outbox.handle_close();
        if let WebRtcPhase::Connecting { .. } | WebRtcPhase::Live = self.phase {
            self.phase = WebRtcPhase::Connecting {
                until: now + CONNECT_WITHIN,
            };
        }
        self.liveness = Liveness::new(now);
        self.is_contested = false;
        Ok(answer)
    }
}
