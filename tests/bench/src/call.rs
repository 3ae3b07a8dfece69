//! One caller: a str0m peer with its own loopback UDP socket, driven by the task that creates it.
//!
//! In: the HTTP address of the runner, Opus packets. Out: the times to the answer and to the
//! connection, and every packet that came back, with its time. Its offer has the sections of a
//! browser: one audio section and a data channel `chat`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use edge_runner_proto::webrtc::crypto;
use serde_json::json;
use str0m::change::SdpAnswer;
use str0m::media::{Direction, MediaKind, Mid};
use str0m::net::{Protocol, Receive};
use str0m::rtp::{ExtensionMap, RtpPacket, RtpWrite};
use str0m::{Candidate, Event, Input, Output, Rtc};
use tokio::net::UdpSocket;
use tokio::time::sleep_until;

use crate::Result;
use crate::http::Connection;

const PTIME: Duration = Duration::from_millis(20);
/// The same in ticks of the RTP clock.
const PTIME_TICKS: u32 = 960;
/// Time limit of a handshake.
const PATIENCE: Duration = Duration::from_secs(15);
const OFFER: &str = "/api/offer";
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A packet that came back.
pub struct Heard {
    pub at: Instant,
    pub packet: RtpPacket,
}

pub struct Call {
    rtc: Rtc,
    socket: UdpSocket,
    /// The same socket: the one of tokio refuses to send before its first wait.
    sender: std::net::UdpSocket,
    local: SocketAddr,
    /// The address of the runner, from the first candidate of its answer.
    pub remote: SocketAddr,
    /// The ICE credentials of the runner.
    pub remote_ufrag: String,
    pub remote_pwd: String,
    mid: Mid,
    connected: Option<Instant>,
    channel_open: bool,
    sequence: u64,
    timestamp: u32,
    began: Instant,
    /// Time from sending the offer to receiving the answer.
    pub answered_in: Duration,
    /// Time from sending the offer to the end of ICE and DTLS.
    pub connected_in: Duration,
}

impl Call {
    /// Offers a call over `http` and waits until it is connected and its channel is open.
    pub async fn begin(http: &mut Connection) -> Result<Call> {
        Self::begin_at(http, OFFER).await
    }

    /// Offers to this path.
    pub async fn begin_at(http: &mut Connection, path: &str) -> Result<Call> {
        let mut call = Call::offer_at(http, path).await?;
        while !call.channel_open {
            call.turn(call.began + PATIENCE, |_| {}).await?;
            if call.began.elapsed() > PATIENCE {
                return Err("the call was answered, but not connected".into());
            }
        }
        call.connected_in = call.connected.ok_or("a channel without a connection")? - call.began;
        Ok(call)
    }

    /// Only offers a call: it reads the answer and sends no datagram.
    pub async fn offer(http: &mut Connection) -> Result<Call> {
        Self::offer_at(http, OFFER).await
    }

    async fn offer_at(http: &mut Connection, path: &str) -> Result<Call> {
        let sender = std::net::UdpSocket::bind(LOOPBACK)?;
        sender.set_nonblocking(true)?;
        let socket = UdpSocket::from_std(sender.try_clone()?)?;
        let local = socket.local_addr()?;
        let mut rtc = Rtc::builder()
            .set_crypto_provider(Arc::new(crypto::provider()))
            .set_dtls_cert(crypto::certificate()?.clone())
            .set_rtp_mode(true)
            .clear_codecs()
            .enable_opus(true, false)
            .set_extension_map(ExtensionMap::empty())
            .build(Instant::now());
        rtc.add_local_candidate(Candidate::host(local, Protocol::Udp)?);
        let mut change = rtc.sdp_api();
        let mid = change.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        change.add_channel("chat".to_owned());
        let (offer, pending) = change.apply().ok_or("nothing to offer")?;
        let body = json!({"sdp": offer.to_sdp_string(), "type": "offer"}).to_string();

        let began = Instant::now();
        let (status, answer) = http.request("POST", path, body.as_bytes())?;
        let answered_in = began.elapsed();
        if status != 200 {
            return Err(format!("the offer was answered {status}: {}", String::from_utf8_lossy(&answer)).into());
        }
        let answer: serde_json::Value = serde_json::from_slice(&answer)?;
        let sdp = answer["sdp"].as_str().ok_or("an answer without SDP")?;
        rtc.sdp_api().accept_answer(pending, SdpAnswer::from_sdp_string(sdp)?)?;
        Ok(Call {
            rtc,
            socket,
            sender,
            local,
            remote: candidate(sdp)?,
            remote_ufrag: credential(sdp, "a=ice-ufrag:")?,
            remote_pwd: credential(sdp, "a=ice-pwd:")?,
            mid,
            connected: None,
            channel_open: false,
            sequence: 1,
            timestamp: 0,
            began,
            answered_in,
            connected_in: Duration::ZERO,
        })
    }

    /// Sends the given packets in turn, one every 20 ms from `first` until `end`, and passes on
    /// what comes back. Returns the time of each packet sent.
    pub async fn talk(
        &mut self,
        packets: &[Vec<u8>],
        first: Instant,
        end: Instant,
        mut heard: impl FnMut(Heard),
    ) -> Result<Vec<Instant>> {
        let mut sent = Vec::new();
        let mut next = first;
        while next < end {
            self.turn(next, &mut heard).await?;
            let now = Instant::now();
            if now >= next {
                self.say(&packets[sent.len() % packets.len()], now)?;
                sent.push(now);
                next += PTIME;
                self.drain(&mut heard)?;
            }
        }
        Ok(sent)
    }

    /// Only receives until `end`.
    pub async fn listen(&mut self, end: Instant, mut heard: impl FnMut(Heard)) -> Result<()> {
        while Instant::now() < end {
            self.turn(end, &mut heard).await?;
        }
        Ok(())
    }

    /// Returns the ICE user fragment of the caller.
    pub fn local_ufrag(&mut self) -> String {
        self.rtc.direct_api().local_ice_credentials().ufrag
    }

    /// Hangs up with a close.
    pub fn leave(mut self) -> Result<()> {
        self.rtc.close()?;
        self.drain(&mut |_| {})?;
        Ok(())
    }

    fn say(&mut self, payload: &[u8], now: Instant) -> Result<()> {
        let media = self.rtc.media(self.mid).ok_or("audio was not negotiated")?;
        let pt = *media.remote_pts().first().ok_or("Opus was not negotiated")?;
        let write = RtpWrite::new(pt, self.sequence.into(), self.timestamp, now, payload);
        self.sequence += 1;
        self.timestamp = self.timestamp.wrapping_add(PTIME_TICKS);
        let mut api = self.rtc.direct_api();
        let stream = api.stream_tx_by_mid(self.mid, None).ok_or("audio was not negotiated")?;
        stream.write_rtp(write);
        self.rtc.handle_input(Input::Timeout(now))?;
        Ok(())
    }

    /// Waits for a datagram, the deadline of the connection or `until`, whichever is first.
    async fn turn(&mut self, until: Instant, mut heard: impl FnMut(Heard)) -> Result<()> {
        let wake = self.drain(&mut heard)?.min(until);
        let mut datagram = [0; 2_048];
        tokio::select! {
            biased;
            received = self.socket.recv_from(&mut datagram) => {
                let at = Instant::now();
                let (length, source) = received?;
                let receive = Receive::new(Protocol::Udp, source, self.local, &datagram[..length])?;
                self.rtc.handle_input(Input::Receive(at, receive))?;
            }
            () = sleep_until(wake.into()) => {
                self.rtc.handle_input(Input::Timeout(Instant::now()))?;
            }
        }
        self.drain(&mut heard)?;
        Ok(())
    }

    /// Sends pending datagrams, and returns the next deadline of the connection.
    fn drain(&mut self, heard: &mut impl FnMut(Heard)) -> Result<Instant> {
        loop {
            match self.rtc.poll_output()? {
                Output::Timeout(at) => return Ok(at),
                Output::Transmit(transmit) => {
                    // A full socket buffer loses the datagram, which the figures show.
                    let _ = self.sender.send_to(&transmit.contents, transmit.destination);
                }
                Output::Event(Event::Connected) => self.connected = Some(Instant::now()),
                Output::Event(Event::ChannelOpen(..)) => self.channel_open = true,
                Output::Event(Event::RtpPacket(packet)) => heard(Heard {
                    at: packet.timestamp,
                    packet,
                }),
                Output::Event(_) => {}
            }
        }
    }
}

/// Returns an ICE credential of the runner.
fn credential(sdp: &str, begin: &str) -> Result<String> {
    let found = sdp.lines().find_map(|line| line.strip_prefix(begin));
    Ok(found.ok_or("an answer without ICE credentials")?.trim().to_owned())
}

/// Returns the address of the first candidate in an answer.
fn candidate(sdp: &str) -> Result<SocketAddr> {
    let line = sdp.lines().find(|line| line.starts_with("a=candidate:"));
    let mut words = line.ok_or("an answer without candidates")?.split(' ').skip(4);
    let mut word = || words.next().ok_or("a candidate without an address");
    Ok(SocketAddr::new(word()?.parse()?, word()?.parse()?))
}
