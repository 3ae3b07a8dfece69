//! What the simulated server does with dials and requests, as the fields of [`Simulation`] say.

use super::*;

impl Simulation {
    pub(super) fn handle_dial(&mut self, dial: DialRequest) {
        let resumes = dial.url.contains("&reconnect=1&sid=PA_own");
        self.dials.push((self.time(), dial));
        match self.dial_result {
            DialResult::Open | DialResult::Silent => {
                self.is_open = true;
                let local: Vec<SocketAddr> = vec![ours()];
                let local = LocalAddresses {
                    publisher: local.clone(),
                    subscriber: local,
                };
                self.seeds += 1;
                self.session
                    .handle_open(local, self.seeds.wrapping_mul(0x9e37_79b9_7f4a_7c15), self.now);
                match self.dial_result {
                    DialResult::Open if resumes => self.answer_resume(),
                    DialResult::Open => self.send_join(),
                    _ => {}
                }
            }
            DialResult::Refused(status) => self.session.handle_refused(status, "no", self.now),
            DialResult::Unreachable => self.session.handle_unreachable("connection refused".into(), self.now),
            DialResult::NoAnswer => {}
        }
    }

    /// Answers a resume.
    fn answer_resume(&mut self) {
        match self.resume_answer {
            ResumeAnswer::Resumes if self.server_side.is_some() => {}
            ResumeAnswer::Joins => return self.send_join(),
            ResumeAnswer::Closes => {
                self.is_open = false;
                return self.session.handle_socket_closed();
            }
            _ => {
                return self.send(ServerMessage::Leave(LeaveRequest {
                    reason: 6,
                    action: 2,
                    ..LeaveRequest::default()
                }));
            }
        }
        self.send(ServerMessage::Reconnect(ReconnectResponse {
            ice_servers: self.ice_servers.clone(),
            client_configuration: self.client_configuration(),
            last_message_seq: 0,
        }));
        let own_track = TrackInfo {
            sid: "TR_own".into(),
            muted: self.mutes_bot,
            ..TrackInfo::default()
        };
        let mut participants = vec![ParticipantInfo {
            tracks: vec![own_track],
            ..self.own_info()
        }];
        let others = self.participants.iter();
        participants.extend(others.map(|participant| participant.info(participant.state)));
        self.send(ServerMessage::Update(ParticipantUpdate { participants }));
        let Some(server_side) = &mut self.server_side else {
            return;
        };
        let sdp = server_side.subscriber.offer_restart();
        server_side.offer_id += 1;
        let id = server_side.offer_id;
        self.send_description(SignalTarget::Subscriber, "offer", &sdp, id);
    }

    fn own_info(&self) -> ParticipantInfo {
        let joins = self.dials.iter().filter(|(_, dial)| !dial.url.contains("reconnect=1"));
        ParticipantInfo {
            sid: format!("PA_own{}", joins.count()),
            identity: "Agent-1".into(),
            joined_at_ms: 1_000,
            ..ParticipantInfo::default()
        }
    }

    fn client_configuration(&self) -> Option<ClientConfiguration> {
        Some(ClientConfiguration {
            force_relay: if self.force_relay { 2 } else { 0 },
        })
    }

    /// Admits the session.
    fn send_join(&mut self) {
        self.in_flight.clear();
        self.timestamps.push(Vec::new());
        self.server_side = Some(ServerSide {
            publisher: None,
            subscriber: Server::new(self.kind(), self.now),
            mids: BTreeMap::new(),
            wanted: Vec::new(),
            offer_id: 0,
        });
        let join = JoinResponse {
            participant: Some(self.own_info()),
            ice_servers: self.ice_servers.clone(),
            client_configuration: self.client_configuration(),
            other_participants: self
                .participants
                .iter()
                .map(|participant| participant.info(participant.state))
                .collect(),
            server_version: "1.13.5".into(),
            subscriber_primary: true,
            ping_timeout: 15,
            ping_interval: 5,
            fast_publish: self.fast_publish,
            ..JoinResponse::default()
        };
        self.send(ServerMessage::Join(Box::new(join)));
        self.offer();
    }

    /// Admits the session some time after its dial, from outside a drain.
    pub fn send_late_join(&mut self) {
        self.send_join();
        self.drain();
    }

    /// Sends a message to the session.
    pub fn send(&mut self, message: ServerMessage) {
        let bytes = SignalResponse { message: Some(message) }.encode_to_vec();
        self.send_bytes(&bytes);
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.session.handle_binary(Bytes::copy_from_slice(bytes), self.now);
        // The session may be in the middle of a drain, which continues.
    }

    /// Sends a message from outside a drain.
    pub fn send_and_drain(&mut self, message: ServerMessage) {
        self.send(message);
        self.drain();
    }

    fn offer(&mut self) {
        let Some(server_side) = &mut self.server_side else {
            return;
        };
        if server_side.subscriber.pending.is_some() {
            return;
        }
        let wanted = std::mem::take(&mut server_side.wanted);
        let names: Vec<String> = wanted
            .iter()
            .map(|track| format!("{}|{track}", track.replace("TR_", "PA_")))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (sdp, mids) = server_side.subscriber.offer(&names);
        server_side.mids.extend(wanted.into_iter().zip(mids));
        server_side.offer_id += 1;
        let id = server_side.offer_id;
        self.send_description(SignalTarget::Subscriber, "offer", &sdp, id);
    }

    fn kind(&self) -> Kind {
        Kind {
            lite: self.lite,
            tcp: self.offers_tcp,
            no_udp: !self.offers_udp,
            ..Kind::default()
        }
    }

    /// Sends a description, with its candidates in it or after it.
    fn send_description(&mut self, target: SignalTarget, kind: &str, sdp: &str, id: u32) {
        let is_candidate = |line: &&str| line.starts_with("a=candidate:") || line.starts_with("a=end-of-candidates");
        let trickled: Vec<&str> = sdp.lines().filter(is_candidate).filter(|_| self.lite).collect();
        let kept = sdp.lines().filter(|line| !trickled.contains(line));
        let description = SessionDescription {
            kind: kind.into(),
            sdp: kept.map(|line| format!("{line}\r\n")).collect(),
            id,
            ..SessionDescription::default()
        };
        self.send(match target {
            SignalTarget::Publisher => ServerMessage::Answer(description),
            SignalTarget::Subscriber => ServerMessage::Offer(description),
        });
        for line in trickled {
            let candidate = line.trim_start_matches("a=");
            let init = serde_json::json!({"candidate": candidate, "sdpMid": "0", "sdpMLineIndex": 0});
            self.send(ServerMessage::Trickle(wire::TrickleRequest {
                candidate_init: init.to_string(),
                target: target as i32,
                last: false,
            }));
        }
    }

    /// Handles a request of the session.
    pub(super) fn handle_request(&mut self, bytes: &[u8]) {
        let request = SignalRequest::decode(bytes).expect("a request");
        let request = request.message.expect("something is asked");
        self.requests.push((self.time(), request.clone()));
        if !self.answers {
            return;
        }
        let kind = self.kind();
        let Some(server_side) = &mut self.server_side else {
            return;
        };
        match request {
            SignalRequestKind::AddTrack(track) if self.accepts_track => {
                let info = TrackInfo {
                    sid: "TR_own".into(),
                    ..TrackInfo::default()
                };
                self.send(ServerMessage::TrackPublished(TrackPublishedResponse {
                    cid: track.cid,
                    track: Some(info),
                }));
                if self.subscribes {
                    self.send(track_subscribed());
                }
            }
            SignalRequestKind::Offer(offer) => {
                // A later offer restarts ICE.
                let new = || Server::new(kind, self.now);
                let sdp = server_side.publisher.get_or_insert_with(new).answer(&offer.sdp);
                self.send_description(SignalTarget::Publisher, "answer", &sdp, offer.id);
            }
            SignalRequestKind::Answer(answer) => {
                assert_eq!(answer.id, server_side.offer_id);
                server_side.subscriber.accept(&answer.sdp);
                if !server_side.wanted.is_empty() {
                    self.offer();
                }
            }
            SignalRequestKind::Subscription(subscription) => {
                assert!(subscription.subscribe);
                server_side.wanted.extend(subscription.track_sids);
                self.offer();
            }
            SignalRequestKind::UpdateMetadata(update) => self.send(ServerMessage::Request(wire::RequestResponse {
                request_id: update.request_id,
                reason: self.update_reason,
                update_metadata: Some(update),
                ..wire::RequestResponse::default()
            })),
            SignalRequestKind::Ping(ping) => self.send(ServerMessage::Pong(Pong {
                last_ping_timestamp: ping.timestamp,
                timestamp: ping.timestamp + 1,
            })),
            _ => {}
        }
    }
}
