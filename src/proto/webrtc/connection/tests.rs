//! One connection to a str0m client in virtual time, datagram by datagram.

use std::collections::VecDeque;
use std::time::Duration;

use str0m::change::SdpAnswer;
use str0m::media::{Direction, MediaKind};
use str0m::net::{Protocol, Receive};

use super::*;
use crate::limits::{DTLS_RETRANSMIT, EARLY_RECORDS_MAX};
use crate::webrtc::crypto;
use crate::webrtc::packet_kind::PacketKind;

struct Client(Rtc);

impl Client {
    fn handle(&mut self, input: Input<'_>) {
        if self.0.accepts(&input) {
            self.0.handle_input(input).expect("an input that the client takes");
        }
    }

    fn drain(&mut self) -> Vec<Vec<u8>> {
        let mut leaving = Vec::new();
        loop {
            match self.0.poll_output().expect("no fault of the peer") {
                str0m::Output::Timeout(_) => return leaving,
                str0m::Output::Transmit(transmit) => leaving.push(transmit.contents.into()),
                str0m::Output::Event(_) => {}
            }
        }
    }
}

/// Returns a client and the connection that answered its offer.
fn pair(now: Instant) -> (Client, PeerConnection, SocketAddr, SocketAddr) {
    let client_address: SocketAddr = "192.0.2.1:1000".parse().expect("an address");
    let address: SocketAddr = "192.0.2.2:2000".parse().expect("an address");
    let common = ConnectionContext::default();
    let cert = crypto::certificate().expect("a certificate");
    let config = common.default_rtc_config(cert.clone());
    let mut rtc = config.build(now);
    rtc.add_local_candidate(Candidate::host(client_address, Protocol::Udp).expect("a candidate"));
    let mut change = rtc.sdp_api();
    change.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
    let (offer, pending) = change.apply().expect("an offer");
    let setup = ConnectionSetup {
        context: &common,
        local: &[address],
        tcp: &[],
        gathered: &crate::webrtc::gather::NOTHING,
        embedded: None,
        device: None,
        seed: 1,
        secret: IceSecret([1; 32]),
    };
    let (peer, answer) = PeerConnection::accept(&offer.to_sdp_string(), &setup, now).expect("an answer");
    let answer = SdpAnswer::from_sdp_string(&answer).expect("an answer that can be read");
    rtc.sdp_api()
        .accept_answer(pending, answer)
        .expect("an answer that fits");
    (Client(rtc), peer, client_address, address)
}

/// Returns the packets that the connection sends; `None` once it is connected.
fn drain(peer: &mut PeerConnection) -> Option<Vec<Vec<u8>>> {
    let mut leaving = Vec::new();
    loop {
        match peer.poll_output() {
            ConnectionOutput::Timeout(_) => return Some(leaving),
            ConnectionOutput::Transmit(mut transmit) => leaving.push(transmit.contents().to_vec()),
            ConnectionOutput::Connected => return None,
            _ => {}
        }
    }
}

/// Delays the client's answers to checks, so that its ClientHello arrives before them. The
/// handshake must not wait for a retransmission.
#[test]
fn an_early_client_hello_is_kept() {
    let start = Instant::now();
    let (mut client, mut peer, client_address, address) = pair(start);
    let mut now = start;
    let mut held = Vec::new();
    let mut hello_came = false;
    let mut to_peer = VecDeque::from(client.drain());
    loop {
        assert!(
            now < start + DTLS_RETRANSMIT / 2,
            "the handshake waited for a second ClientHello"
        );
        match to_peer.pop_front() {
            Some(datagram) if datagram.starts_with(&[0x01, 0x01]) && !hello_came => {
                held.push(datagram);
                continue;
            }
            Some(datagram) => {
                hello_came |= datagram[0] == 22;
                peer.handle_packet(&ReceivedPacket::from_datagram(client_address, address, &datagram), now);
                if hello_came {
                    to_peer.extend(held.drain(..));
                }
            }
            None => {
                now += Duration::from_millis(1);
                client.handle(Input::Timeout(now));
                to_peer.extend(client.drain());
                peer.handle_timeout(now);
            }
        }
        let Some(to_client) = drain(&mut peer) else {
            assert!(hello_came, "the case did not occur");
            return;
        };
        for datagram in to_client {
            let receive = Receive::new(Protocol::Udp, address, client_address, &datagram).expect("a datagram");
            client.handle(Input::Receive(now, receive));
            to_peer.extend(client.drain());
        }
    }
}

/// Only the capped number of DTLS records is kept, and only from addresses that sent checks.
#[test]
fn early_records_are_capped() {
    let now = Instant::now();
    let (mut client, mut peer, client_address, address) = pair(now);
    peer.handle_packet(&ReceivedPacket::from_datagram(client_address, address, &[22; 64]), now);
    assert!(peer.early_records.is_empty(), "records of other senders are dropped");
    client.handle(Input::Timeout(now));
    for check in client
        .drain()
        .iter()
        .filter(|datagram| PacketKind::from_packet(datagram) == PacketKind::Check)
    {
        let packet = ReceivedPacket::from_datagram(client_address, address, check);
        assert_eq!(peer.handle_packet(&packet, now), PacketTrust::Authenticated);
    }
    peer.handle_packet(
        &ReceivedPacket::from_datagram(client_address, address, &[0x80; 64]),
        now,
    );
    assert!(peer.early_records.is_empty(), "RTP before the handshake means nothing");
    for count in 1..=EARLY_RECORDS_MAX + 1 {
        peer.handle_packet(&ReceivedPacket::from_datagram(client_address, address, &[22; 64]), now);
        assert!(drain(&mut peer).is_some());
        assert_eq!(peer.early_records.len(), count.min(EARLY_RECORDS_MAX));
    }
}
