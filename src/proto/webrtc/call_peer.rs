//! The WebRTC connection of a caller, which makes the offer.
//!
//! In: the answer, datagrams, frames of the caller's voice, messages, and `now`. Out, through
//! [`CallerPeer::poll_output`]: datagrams, the bot's audio as PCM at 16 kHz, messages of the bot,
//! and the state of the connection. One Opus section in both directions, and a data channel `chat`,
//! as Pipecat's client for browsers opens it; candidates are those of one UDP socket, without
//! STUN and TURN. Sources: RFC 8829, RFC 7587, `docs/spec/signalling.md` 3 and 4.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use str0m::channel::ChannelId;
use str0m::media::{Direction, MediaKind, Mid};
use str0m::net::{Protocol, Receive};
use str0m::rtp::{RtpPacket, RtpWrite};
use str0m::{Candidate, Event, IceConnectionState, Input, Output, Rtc};

use crate::audio::codec::Codec;
use crate::audio::encoder::SpeechEncoder;
use crate::audio::opus::EncoderSettings;
use crate::audio::receiver::AudioReceiver;
use crate::caller::RATE_HZ;
use crate::webrtc::connection::{ConnectionContext, PendingOffer, apply_answer};
use crate::webrtc::sdp::SdpDescription;
use crate::webrtc::{crypto, sdp};

/// The label of the message channel.
const LABEL: &str = "chat";
/// Ticks of one frame, at the clock of Opus.
const FRAME_TICKS: u32 = 960;
/// Messages that wait for the channel.
const WAITING_MESSAGES_MAX: usize = 1_000;

/// An output of the connection.
pub enum PeerOutput {
    /// Nothing more to do until [`CallerPeer::handle_timeout`] at this time.
    Timeout(Instant),
    /// A datagram for the network.
    Transmit { destination: SocketAddr, contents: Vec<u8> },
    /// Audio may flow.
    Connected,
    /// The message channel is open.
    ChannelOpen,
    /// A message of the bot.
    Message(String),
    /// 20 ms or more of the bot's audio, at 16 kHz.
    Audio(Vec<i16>),
    /// The other side closed the connection.
    Closed,
    /// The other side no longer answers.
    Lost,
}

/// One connection.
pub struct CallerPeer {
    rtc: Rtc,
    mid: Mid,
    offer: String,
    /// The offer that has no answer yet.
    pending_offer: Option<PendingOffer>,
    channel: Option<ChannelId>,
    waiting: VecDeque<String>,
    encoder: SpeechEncoder,
    receiver: AudioReceiver,
    outputs: VecDeque<PeerOutput>,
    is_connected: bool,
    is_closed: bool,
    sequence: u64,
    timestamp: u32,
}

impl CallerPeer {
    /// Creates a connection with this address as its candidate. `seed` has random bits.
    ///
    /// # Errors
    /// A sentence about what this machine cannot do.
    pub fn new(local: SocketAddr, seed: u64, now: Instant) -> Result<CallerPeer, String> {
        let cert = crypto::certificate().map_err(|error| format!("making a certificate: {error}"))?;
        let mut rtc = ConnectionContext::default().default_rtc_config(cert.clone()).build(now);
        let candidate = Candidate::host(local, Protocol::Udp).map_err(|error| format!("{local}: {error}"))?;
        rtc.add_local_candidate(candidate);
        let mut change = rtc.sdp_api();
        let mid = change.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        change.add_channel(LABEL.to_owned());
        let (offer, pending) = change.apply().ok_or("there is nothing to offer")?;
        let encoder = SpeechEncoder::new(Codec::Opus, RATE_HZ, EncoderSettings::default(), false);
        let mut receiver = AudioReceiver::new(Codec::Opus);
        receiver.set_rate(RATE_HZ);
        Ok(CallerPeer {
            rtc,
            mid,
            offer: offer.to_sdp_string(),
            pending_offer: Some((offer, pending)),
            channel: None,
            waiting: VecDeque::new(),
            encoder: encoder.map_err(|error| format!("making an Opus encoder: {error}"))?,
            receiver,
            outputs: VecDeque::new(),
            is_connected: false,
            is_closed: false,
            // A stream must start with a roll-over counter of 0, so the upper bits stay clear.
            sequence: seed & 0x7fff,
            timestamp: (seed >> 32) as u32,
        })
    }

    /// Returns the offer.
    pub fn offer(&self) -> &str {
        &self.offer
    }

    /// Handles the answer.
    ///
    /// # Errors
    /// A sentence about what is wrong with it.
    pub fn handle_answer(&mut self, answer: &str, now: Instant) -> Result<(), String> {
        let unusable = |why: String| format!("its answer cannot be used: {why}");
        let prepared = sdp::prepare_sfu_description(answer).map_err(|error| unusable(error.to_string()))?;
        let answer = SdpDescription::parse(&prepared.sdp);
        let layout = SdpDescription::parse(&self.offer).layout();
        answer.check(&layout, |_| false).map_err(unusable)?;
        if answer.sections.len() > layout.len() {
            return Err(unusable("it has more sections than the offer".to_owned()));
        }
        let Some((audio, _)) = answer.first_with(Codec::Opus) else {
            return Err(unusable("it does not take audio with Opus".to_owned()));
        };
        let cert = crypto::certificate().map_err(|error| format!("making a certificate: {error}"))?;
        let config = ConnectionContext::default().default_rtc_config(cert.clone());
        let offer = self.pending_offer.take().ok_or("there was an answer already")?;
        apply_answer(&mut self.rtc, config, offer, &answer, Some(prepared.dtls_role), now).map_err(unusable)?;
        for source in audio.media_sources() {
            let mut api = self.rtc.direct_api();
            api.expect_stream_rx(source.into(), None, self.mid, None)
                .suppress_nack(true);
        }
        for candidate in &prepared.candidates {
            match Candidate::from_sdp_string(candidate) {
                Ok(candidate) => self.rtc.add_remote_candidate(candidate),
                Err(error) => log::debug!("remote candidate ignored: {error}"),
            }
        }
        Ok(())
    }

    /// Handles a datagram. Those of others are ignored.
    pub fn handle_datagram(&mut self, source: SocketAddr, local: SocketAddr, contents: &[u8], now: Instant) {
        if let Ok(receive) = Receive::new(Protocol::Udp, source, local, contents) {
            let input = Input::Receive(now, receive);
            if self.rtc.accepts(&input)
                && let Err(error) = self.rtc.handle_input(input)
            {
                log::debug!("datagram refused: {error}");
            }
        }
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        if let Err(error) = self.rtc.handle_input(Input::Timeout(now)) {
            log::debug!("timeout: {error}");
        }
        self.receiver.handle_timeout(now);
        self.take_frames();
    }

    /// Sends 20 ms at 16 kHz.
    pub fn send_audio(&mut self, pcm: &[i16], now: Instant) {
        let media = self.rtc.media(self.mid);
        let Some(payload_type) = media.and_then(|media| media.remote_pts().first().copied()) else {
            return;
        };
        self.timestamp = self.timestamp.wrapping_add(FRAME_TICKS);
        let is_silent = pcm.iter().all(|sample| *sample == 0);
        let payload = match self.encoder.encode(pcm, is_silent) {
            Ok(payload) => payload,
            Err(error) => return log::warn!("20 ms were not encoded: {error}"),
        };
        if let Some(stream) = self.rtc.direct_api().stream_tx_by_mid(self.mid, None) {
            self.sequence += 1;
            let write = RtpWrite::new(payload_type, self.sequence.into(), self.timestamp, now, payload);
            stream.write_rtp(write);
        }
    }

    /// Sends a message, once the channel is open.
    pub fn send_message(&mut self, text: String) {
        if self.waiting.len() < WAITING_MESSAGES_MAX {
            self.waiting.push_back(text);
        }
        self.send_waiting();
    }

    fn send_waiting(&mut self) {
        let Some(mut channel) = self.channel.and_then(|id| self.rtc.channel(id)) else {
            return;
        };
        while let Some(text) = self.waiting.front() {
            match channel.write(false, text.as_bytes()) {
                Ok(true) => drop(self.waiting.pop_front()),
                // Its buffer is full.
                Ok(false) => return,
                Err(error) => {
                    log::debug!("message dropped: {error}");
                    self.waiting.pop_front();
                }
            }
        }
    }

    /// Closes the connection. The closing packets are in the outputs that follow.
    pub fn close(&mut self) {
        self.is_closed = true;
        if let Err(error) = self.rtc.close() {
            log::debug!("closing: {error}");
            self.rtc.disconnect();
        }
    }

    /// Returns the next output.
    pub fn poll_output(&mut self) -> PeerOutput {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return output;
            }
            match self.rtc.poll_output() {
                Ok(Output::Timeout(at)) => {
                    let frames = self.receiver.poll_timeout();
                    return PeerOutput::Timeout(frames.map_or(at, |frames| frames.min(at)));
                }
                Ok(Output::Transmit(transmit)) => {
                    return PeerOutput::Transmit {
                        destination: transmit.destination,
                        contents: transmit.contents.to_vec(),
                    };
                }
                Ok(Output::Event(event)) => self.handle_event(event),
                Err(error) => {
                    log::debug!("connection: {error}");
                    self.end(PeerOutput::Lost);
                    self.rtc.disconnect();
                }
            }
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Connected if !self.is_connected => {
                self.is_connected = true;
                self.outputs.push_back(PeerOutput::Connected);
            }
            Event::RtpPacket(packet) => self.handle_rtp(&packet),
            Event::ChannelOpen(id, _) if self.channel.is_none() => {
                self.channel = Some(id);
                self.outputs.push_back(PeerOutput::ChannelOpen);
                self.send_waiting();
            }
            Event::ChannelBufferedAmountLow(_) => self.send_waiting(),
            Event::ChannelData(data) => {
                if let Ok(text) = String::from_utf8(data.data) {
                    self.outputs.push_back(PeerOutput::Message(text));
                }
            }
            Event::ChannelClose(id) if self.channel == Some(id) => self.end(PeerOutput::Closed),
            Event::Closed => self.end(PeerOutput::Closed),
            Event::IceConnectionStateChange(IceConnectionState::Disconnected) => self.end(PeerOutput::Lost),
            _ => {}
        }
    }

    /// Reports the end once, unless this side closed the connection.
    fn end(&mut self, output: PeerOutput) {
        if !std::mem::replace(&mut self.is_closed, true) {
            self.outputs.push_back(output);
        }
    }

    fn handle_rtp(&mut self, packet: &RtpPacket) {
        let media = self.rtc.media(self.mid);
        let is_audio = media.is_some_and(|media| media.remote_pts().contains(&packet.header.payload_type));
        if is_audio {
            let (sequence, timestamp) = (*packet.seq_no, packet.time.numer());
            self.receiver
                .handle_payload(sequence, timestamp, &packet.payload, packet.timestamp);
            self.take_frames();
        }
    }

    fn take_frames(&mut self) {
        while self.receiver.poll_frame() {
            let (pcm, _) = self.receiver.take_frame();
            self.outputs.push_back(PeerOutput::Audio(pcm.to_vec()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn peer() -> CallerPeer {
        let local = (Ipv4Addr::LOCALHOST, 4_000).into();
        CallerPeer::new(local, 7, Instant::now()).expect("a connection")
    }

    #[test]
    fn the_offer_has_opus_a_channel_and_the_address_of_the_socket() {
        let peer = peer();
        let lines: Vec<&str> = peer.offer().lines().collect();
        let sections: Vec<&str> = lines.iter().copied().filter(|line| line.starts_with("m=")).collect();
        assert!(
            sections[0].starts_with("m=audio ") && sections[1].starts_with("m=application "),
            "{sections:?}"
        );
        assert_eq!(sections.len(), 2);
        assert!(lines.iter().any(|line| line.contains("opus/48000/2")));
        assert!(lines.contains(&"a=sendrecv"));
        assert!(
            lines
                .iter()
                .any(|line| line.starts_with("a=candidate:") && line.contains(" 127.0.0.1 4000 typ host"))
        );
    }

    /// The offer as its own answer.
    fn answer(peer: &CallerPeer) -> String {
        peer.offer().replace("a=setup:actpass", "a=setup:passive")
    }

    #[test]
    fn an_answer_is_taken_once() {
        let mut peer = peer();
        let answer = answer(&peer);
        assert_eq!(peer.handle_answer(&answer, Instant::now()), Ok(()));
        let second = peer.handle_answer(&answer, Instant::now());
        assert!(second.is_err_and(|error| error.contains("already")));
    }

    #[test]
    fn an_answer_that_cannot_be_used_is_refused_with_the_reason() {
        let mut peer = peer();
        let changed = |from: &str, to: &str| answer(&peer).replace(from, to);
        let answers = [
            ("hi".to_owned(), "`v=0`"),
            ("v=0\r\n".to_owned(), "no `m=` line"),
            (changed("opus/48000/2", "speex/48000/2"), "Opus"),
            (changed("a=ice-pwd", "a=x-pwd"), "a=ice-ufrag"),
            (changed("a=fingerprint", "a=x-fingerprint"), "a=fingerprint"),
        ];
        for (answer, reason) in answers {
            let error = peer.handle_answer(&answer, Instant::now()).expect_err(reason);
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn messages_wait_for_the_channel_up_to_a_limit() {
        let mut peer = peer();
        for _ in 0..=WAITING_MESSAGES_MAX {
            peer.send_message("a".into());
        }
        assert_eq!(peer.waiting.len(), WAITING_MESSAGES_MAX);
    }
}
