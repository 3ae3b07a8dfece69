//! Resuming a connection to a room on a new WebSocket.
//!
//! The participants, the published track and the subscriptions are kept. After the server has
//! accepted the resume, it is told of them, and what was held meanwhile is sent. Descriptions,
//! candidates and pings of the earlier socket are not repeated: an ICE restart replaces them.
//! Source: `docs/spec/livekit.md` 4.1.

use std::collections::VecDeque;
use std::time::Instant;

use log::debug;
use serde_json::json;

use super::{ServerOffers, SignalClient, SignalOutput, SignalPhase};
use crate::limits::ROOM_HELD_REQUESTS_MAX;
use crate::livekit::roster::{Roster, RosterUpdate};
use crate::livekit::wire::{
    ClientConfiguration, ReconnectResponse, RoomIceServer, SessionDescription, SignalRequestKind, SignalTarget,
    SyncState, TrackInfo, TrackPublishedResponse, TrickleRequest, UpdateSubscription,
};
use crate::webrtc::gather::server::{ServerUse, parse_servers};
use crate::webrtc::ice::IceServer;

/// `ClientConfiguration.force_relay` of a server that wants media to go through a relay.
const ENABLED: i32 = 2;

/// What a resume repeats.
#[derive(Default)]
pub(super) struct ResumableState {
    pub offer: Option<SessionDescription>,
    pub answer: Option<SessionDescription>,
    /// The client id of the published track.
    pub cid: String,
    /// Requests from while there was no connection.
    held: VecDeque<SignalRequestKind>,
}

impl ResumableState {
    /// Holds a request that is not bound to the lost socket.
    pub fn hold(&mut self, request: SignalRequestKind) {
        match request {
            SignalRequestKind::Offer(_)
            | SignalRequestKind::Answer(_)
            | SignalRequestKind::Trickle(_)
            | SignalRequestKind::Ping(_)
            | SignalRequestKind::SyncState(_) => return,
            _ => {}
        }
        if self.held.len() == ROOM_HELD_REQUESTS_MAX {
            debug!("a request is dropped: {ROOM_HELD_REQUESTS_MAX} wait for the connection");
            self.held.pop_front();
        }
        self.held.push_back(request);
    }
}

impl ServerOffers {
    /// Reads the TURN servers of a join or of the answer to a resume. STUN servers are of no use:
    /// the server learns the address of this end from its checks.
    pub(super) fn new(servers: &[RoomIceServer], configuration: Option<ClientConfiguration>) -> Self {
        let some = |text: &String| (!text.is_empty()).then(|| text.clone());
        let list: Vec<IceServer> = servers
            .iter()
            .map(|server| IceServer {
                urls: server.urls.clone(),
                username: some(&server.username),
                credential: some(&server.credential),
            })
            .collect();
        let mut relays = parse_servers(&list);
        relays.retain(|server| match &server.usage {
            ServerUse::Turn { .. } => true,
            ServerUse::Stun => false,
            ServerUse::Unusable(why) => {
                debug!("an ICE server of the room is not used: {why}");
                false
            }
        });
        ServerOffers {
            relays,
            force_relay: configuration.is_some_and(|configuration| configuration.force_relay == ENABLED),
        }
    }
}

impl SignalClient {
    /// Keeps the state of the room while there is no socket. Outputs of the lost one are dropped.
    pub fn suspend(&mut self) {
        self.phase = match std::mem::replace(&mut self.phase, SignalPhase::Closed) {
            SignalPhase::Joined(roster) | SignalPhase::Resuming(roster) | SignalPhase::Suspended(roster) => {
                SignalPhase::Suspended(roster)
            }
            SignalPhase::AwaitingJoin | SignalPhase::Closed => SignalPhase::Closed,
        };
        self.pending_ping = None;
        self.answer_due = false;
        self.early_candidates.clear();
    }

    /// Returns whether [`SignalClient::resume`] is possible.
    pub fn can_resume(&self) -> bool {
        self.own_track.is_some() && self.roster().is_some()
    }

    /// Continues on a new WebSocket, whose first message answers the resume.
    pub fn resume(&mut self, now: Instant) {
        self.suspend();
        self.outputs.retain(|output| !matches!(output, SignalOutput::Send(_)));
        if let SignalPhase::Suspended(roster) = std::mem::replace(&mut self.phase, SignalPhase::Closed) {
            self.phase = SignalPhase::Resuming(roster);
        }
        self.last_received = now;
    }

    /// Handles the server's consent to a resume.
    pub(super) fn handle_resumed(&mut self, answer: ReconnectResponse, now: Instant) {
        let SignalPhase::Resuming(mut roster) = std::mem::replace(&mut self.phase, SignalPhase::Closed) else {
            return;
        };
        let mut update = RosterUpdate::default();
        roster.handle_resumed(&mut update);
        let track_sids = roster.subscribed_tracks();
        self.phase = SignalPhase::Joined(roster);
        self.next_ping = now + self.ping_interval;
        let track = TrackInfo {
            sid: self.own_track.clone().unwrap_or_default(),
            ..TrackInfo::default()
        };
        let state = SyncState {
            answer: self.resumable.answer.clone(),
            subscription: Some(UpdateSubscription {
                subscribe: !track_sids.is_empty(),
                track_sids,
            }),
            publish_tracks: vec![TrackPublishedResponse {
                cid: self.resumable.cid.clone(),
                track: Some(track),
            }],
            offer: self.resumable.offer.clone(),
        };
        self.send(SignalRequestKind::SyncState(Box::new(state)));
        self.push_changes(update);
        self.outputs.push_back(SignalOutput::Resumed(ServerOffers::new(
            &answer.ice_servers,
            answer.client_configuration,
        )));
        for request in std::mem::take(&mut self.resumable.held) {
            self.send(request);
        }
    }

    /// Sends a candidate of this end, in SDP syntax without `a=`.
    pub fn trickle(&mut self, target: SignalTarget, candidate: &str) {
        let init = json!({"candidate": candidate, "sdpMid": "0", "sdpMLineIndex": 0});
        self.send(SignalRequestKind::Trickle(TrickleRequest {
            candidate_init: init.to_string(),
            target: target as i32,
            last: false,
        }));
    }

    pub(super) fn roster(&self) -> Option<&Roster> {
        match &self.phase {
            SignalPhase::Joined(roster) | SignalPhase::Suspended(roster) | SignalPhase::Resuming(roster) => {
                Some(roster)
            }
            SignalPhase::AwaitingJoin | SignalPhase::Closed => None,
        }
    }
}
