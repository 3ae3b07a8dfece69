//! Calls between two str0m peers that use these providers, in virtual time, with visible datagrams.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use str0m::change::SdpOffer;
use str0m::channel::ChannelId;
use str0m::crypto::dtls::{
    DtlsCert, DtlsImplError, DtlsInstance, DtlsOutput, DtlsProvider, DtlsVersion, KeyingMaterial, ProtocolVersion,
    SrtpProfile,
};
use str0m::crypto::{CryptoError, CryptoProvider};
use str0m::media::{Direction, MediaKind, MediaTime, Mid};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Event, Input, Output, Rtc, RtcConfig};

use super::*;

/// One end of a call and its observations.
pub(super) struct Peer {
    rtc: Rtc,
    address: SocketAddr,
    wake: Instant,
    mid: Option<Mid>,
    channel: Option<ChannelId>,
    /// Removes the empty header extension from sent packets.
    pub strip: bool,
    pub connected: bool,
    pub received: Vec<Vec<u8>>,
    pub read: Vec<Vec<u8>>,
    pub sent: Vec<Vec<u8>>,
}

impl Peer {
    fn new(config: RtcConfig, address: &str, now: Instant) -> Self {
        let mut rtc = config.build(now);
        let address = address.parse().expect("an address");
        rtc.add_local_candidate(Candidate::host(address, "udp").expect("a candidate"));
        Peer {
            rtc,
            address,
            wake: now,
            mid: None,
            channel: None,
            strip: false,
            connected: false,
            received: Vec::new(),
            read: Vec::new(),
            sent: Vec::new(),
        }
    }

    fn drain(&mut self, wire: &mut VecDeque<(SocketAddr, SocketAddr, Vec<u8>)>) {
        loop {
            match self.rtc.poll_output().expect("no fault of the peer") {
                Output::Timeout(at) => {
                    self.wake = at;
                    return;
                }
                Output::Transmit(transmit) => {
                    let mut datagram = Vec::from(transmit.contents);
                    let datagram = if self.strip {
                        strip_empty_extension(&mut datagram)
                    } else {
                        &mut datagram
                    };
                    self.sent.push(datagram.to_vec());
                    wire.push_back((transmit.source, transmit.destination, datagram.to_vec()));
                }
                Output::Event(Event::Connected) => self.connected = true,
                Output::Event(Event::MediaAdded(media)) => self.mid = Some(media.mid),
                Output::Event(Event::ChannelOpen(id, _)) => self.channel = Some(id),
                Output::Event(Event::MediaData(media)) => self.received.push(media.data.to_vec()),
                Output::Event(Event::ChannelData(message)) => self.read.push(message.data.to_vec()),
                Output::Event(_) => {}
            }
        }
    }

    fn say(&mut self, now: Instant, rtp_time: u64, payload: &[u8]) {
        let mid = self.mid.expect("media is negotiated");
        let writer = self.rtc.writer(mid).expect("audio may be sent");
        let pt = writer.payload_params().next().expect("opus").pt();
        writer
            .write(
                pt,
                now,
                MediaTime::new(rtp_time, str0m::media::Frequency::FORTY_EIGHT_KHZ),
                payload,
            )
            .expect("a packet");
    }
}

/// The settings of one end: Opus without header extensions.
pub(super) fn end(provider: CryptoProvider) -> RtcConfig {
    Rtc::builder()
        .set_crypto_provider(Arc::new(provider))
        .clear_codecs()
        .enable_opus(true, false)
        .clear_extension_map()
}

/// A caller (DTLS server, like a microcontroller) and an answerer (DTLS client).
pub(super) struct Call {
    pub peers: [Peer; 2],
    now: Instant,
    wire: VecDeque<(SocketAddr, SocketAddr, Vec<u8>)>,
    /// Replaces a datagram on its way by others. The first argument is whether it is the caller's.
    pub rewrite: Option<Box<Rewrite>>,
    /// Hides header extensions that str0m cannot read.
    pub hides_extensions: bool,
}

pub(super) type Rewrite = dyn FnMut(bool, Vec<u8>) -> Vec<Vec<u8>>;

impl Call {
    pub fn new(caller: RtcConfig, answerer: RtcConfig) -> Self {
        let now = Instant::now();
        let mut peers = [
            Peer::new(caller, "192.0.2.1:1000", now),
            Peer::new(answerer, "192.0.2.2:2000", now),
        ];
        let [left, right] = &mut peers;
        let mut change = left.rtc.sdp_api();
        left.mid = Some(change.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None));
        change.add_channel("talk".to_owned());
        let (offer, pending) = change.apply().expect("something to offer");
        let offer = offer.to_sdp_string().replace("a=setup:actpass", "a=setup:passive");
        let offer = SdpOffer::from_sdp_string(&offer).expect("still an offer");
        let answer = right.rtc.sdp_api().accept_offer(offer).expect("an answer");
        left.rtc
            .sdp_api()
            .accept_answer(pending, answer)
            .expect("an accepted answer");
        Call {
            peers,
            now,
            wire: VecDeque::new(),
            rewrite: None,
            hides_extensions: true,
        }
    }

    /// Advances the time and carries datagrams until `done` or `limit`.
    pub fn run(&mut self, limit: Duration, done: impl Fn(&[Peer; 2]) -> bool) -> bool {
        let end = self.now + limit;
        let caller = self.peers[0].address;
        for peer in &mut self.peers {
            peer.rtc.handle_input(Input::Timeout(self.now)).expect("time passes");
            peer.drain(&mut self.wire);
        }
        while !done(&self.peers) {
            if let Some((source, destination, datagram)) = self.wire.pop_front() {
                let Some(peer) = self.peers.iter_mut().find(|peer| peer.address == destination) else {
                    continue;
                };
                let datagrams = match &mut self.rewrite {
                    Some(rewrite) => rewrite(source == caller, datagram),
                    None => vec![datagram],
                };
                for datagram in datagrams {
                    let mut handle = |contents: &[u8]| {
                        let received =
                            Receive::new(Protocol::Udp, source, destination, contents).expect("a known protocol");
                        peer.rtc
                            .handle_input(Input::Receive(self.now, received))
                            .expect("a datagram is no fault");
                    };
                    match BarePacket::new(&datagram).filter(|_| self.hides_extensions) {
                        Some(bare) => bare.handle(handle),
                        None => handle(&datagram),
                    }
                    peer.drain(&mut self.wire);
                }
                continue;
            }
            self.now = self
                .peers
                .iter()
                .map(|peer| peer.wake)
                .min()
                .expect("two peers")
                .max(self.now);
            if self.now > end {
                self.now = end;
                return false;
            }
            for peer in &mut self.peers {
                peer.rtc.handle_input(Input::Timeout(self.now)).expect("time passes");
                peer.drain(&mut self.wire);
            }
        }
        true
    }

    pub fn connect(&mut self) {
        let up = self.run(Duration::from_secs(10), |peers| {
            peers.iter().all(|peer| peer.connected && peer.channel.is_some())
        });
        assert!(up, "both ends connect within 10 s");
    }

    /// Sends `packets` from both ends, 20 ms apart, and one message each.
    pub fn talk(&mut self, packets: u8) {
        for n in 0..packets {
            for peer in &mut self.peers {
                peer.say(self.now, u64::from(n) * 960, &[n; 100]);
            }
            self.run(Duration::from_millis(20), |_| false);
        }
        for peer in &mut self.peers {
            let id = peer.channel.expect("an open channel");
            peer.rtc
                .channel(id)
                .expect("an open channel")
                .write(false, b"hello")
                .expect("room for a message");
        }
        self.run(Duration::from_secs(1), |_| false);
    }
}

pub(super) fn spoken(packets: u8) -> Vec<Vec<u8>> {
    (0..packets).map(|n| vec![n; 100]).collect()
}

pub(super) type Keys = Arc<Mutex<Option<Vec<u8>>>>;

/// Wraps `provider`: exposes its SRTP keys and replaces the negotiated profile by `profile`.
///
/// dimpl prefers AES-256-GCM and cannot be configured. Its keying material is the longest, so its
/// start serves the other profiles.
pub(super) fn with_profile(provider: CryptoProvider, profile: SrtpProfile) -> (CryptoProvider, Keys) {
    let keys = Keys::default();
    let backend = Tap {
        inner: provider.dtls_provider,
        profile,
        keys: keys.clone(),
    };
    (
        CryptoProvider {
            dtls_provider: Box::leak(Box::new(backend)),
            ..provider
        },
        keys,
    )
}

#[derive(Debug)]
struct Tap<T> {
    inner: T,
    profile: SrtpProfile,
    keys: Keys,
}

impl DtlsProvider for Tap<&'static dyn DtlsProvider> {
    fn generate_certificate(&self) -> Option<DtlsCert> {
        self.inner.generate_certificate()
    }

    fn new_dtls(
        &self,
        cert: &DtlsCert,
        now: Instant,
        version: DtlsVersion,
        mtu: Option<usize>,
    ) -> Result<Box<dyn DtlsInstance>, CryptoError> {
        let inner = self.inner.new_dtls(cert, now, version, mtu)?;
        Ok(Box::new(Tap {
            inner,
            profile: self.profile,
            keys: self.keys.clone(),
        }))
    }
}

impl DtlsInstance for Tap<Box<dyn DtlsInstance>> {
    fn set_active(&mut self, active: bool) {
        self.inner.set_active(active);
    }

    fn handle_packet(&mut self, packet: &[u8]) -> Result<(), DtlsImplError> {
        self.inner.handle_packet(packet)
    }

    fn poll_output<'a>(&mut self, buf: &'a mut [u8]) -> DtlsOutput<'a> {
        match self.inner.poll_output(buf) {
            DtlsOutput::KeyingMaterial(material, _) => {
                let part = &material[..self.profile.keying_material_len()];
                *self.keys.lock().expect("no test thread failed here") = Some(part.to_vec());
                DtlsOutput::KeyingMaterial(KeyingMaterial::new(part), self.profile)
            }
            output => output,
        }
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), DtlsImplError> {
        self.inner.handle_timeout(now)
    }

    fn send_application_data(&mut self, data: &[u8]) -> Result<usize, DtlsImplError> {
        self.inner.send_application_data(data)
    }

    fn is_active(&self) -> bool {
        self.inner.is_active()
    }

    fn protocol_version(&self) -> Option<ProtocolVersion> {
        self.inner.protocol_version()
    }

    fn close(&mut self) -> Result<(), DtlsImplError> {
        self.inner.close()
    }
}

pub(super) const PROFILES: [SrtpProfile; 3] = [
    SrtpProfile::AES128_CM_SHA1_80,
    SrtpProfile::AEAD_AES_128_GCM,
    SrtpProfile::AEAD_AES_256_GCM,
];

#[test]
fn two_peers_shake_hands_and_hear_each_other() {
    let mut call = Call::new(end(provider()), end(provider()));
    call.connect();
    call.talk(20);
    for peer in &call.peers {
        assert_eq!(peer.received, spoken(20));
        assert_eq!(peer.read, [b"hello"]);
    }
}

#[test]
fn every_srtp_profile_carries_speech_both_ways() {
    for profile in PROFILES {
        let [caller, answerer] = [(); 2].map(|()| end(with_profile(provider(), profile).0));
        let mut call = Call::new(caller, answerer);
        call.connect();
        call.talk(20);
        for peer in &call.peers {
            assert_eq!(peer.received, spoken(20), "{profile}");
        }
    }
}
