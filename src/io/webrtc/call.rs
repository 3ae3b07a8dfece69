//! Drives a call over WebRTC.
//!
//! In: the target. Out: the conversation at its end, with the connection closed. The socket is
//! bound to the address from which this machine reaches the runner, which is the only candidate;
//! there is no STUN and no TURN.

mod offer;

use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{UdpSocket, lookup_host};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use edge_runner_http::common::random;

use crate::config::Secret;
use crate::io::call::{CallConfig, CallRun, RunCall, dial};
use crate::proto::caller::rtvi_messages;
use crate::proto::caller::{CallConversation, CallPlan, ConversationOutput};
use crate::proto::webrtc::call_peer::{CallerPeer, PeerOutput};

/// From the answer to the connection.
const CONNECTED_WITHIN: Duration = Duration::from_secs(15);
/// How long the closing packets may take.
const CLOSED_WITHIN: Duration = Duration::from_millis(300);
/// Bytes of a datagram.
const DATAGRAM_BYTES_MAX: usize = 2_048;

/// Returns how a call is made.
pub const fn row() -> Option<RunCall> {
    Some(|task, plan| Box::pin(run(task, plan)))
}

async fn run(task: &mut CallRun<'_>, plan: CallPlan) -> Result<CallConversation, String> {
    let config = task.config;
    let call = task.open(connect(config)).await?;
    let mut conversation = task.conversation(plan, true);
    call.talk(&mut conversation, task).await;
    Ok(conversation)
}

/// A connected call.
struct WebRtcCall {
    peer: Box<CallerPeer>,
    socket: UdpSocket,
    local: SocketAddr,
    /// Outputs of the connection that belong to the conversation.
    early: Vec<PeerOutput>,
    /// The session of WHIP, and the key.
    resource: Option<String>,
    key: Option<Secret>,
}

/// Sends the offer, and connects.
///
/// # Errors
/// A sentence for the user.
async fn connect(config: &CallConfig) -> Result<WebRtcCall, String> {
    let socket = bind(config).await?;
    let local = socket.local_addr().map_err(|error| format!("a UDP socket: {error}"))?;
    let seed = u64::from_le_bytes(random());
    let mut peer = Box::new(CallerPeer::new(local, seed, now())?);
    let answer = offer::send(config, peer.offer()).await?;
    peer.handle_answer(&answer.sdp, now())?;
    let mut call = WebRtcCall {
        peer,
        socket,
        local,
        early: Vec::new(),
        resource: answer.resource,
        key: config.api_key.clone(),
    };
    let deadline = Instant::now() + CONNECTED_WITHIN;
    match timeout_at(deadline, call.wait_for_connection()).await {
        Ok(true) => Ok(call),
        Ok(false) => Err("the runner closed the connection before it was up".into()),
        Err(_) => Err(format!(
            "the offer was answered, but there was no connection within {} s: no UDP passes between {local} and the runner",
            CONNECTED_WITHIN.as_secs()
        )),
    }
}

/// Binds a socket to the address that leads to the runner.
async fn bind(config: &CallConfig) -> Result<UdpSocket, String> {
    let (host, port) = dial::authority(&config.target)?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let found = lookup_host((bare, port)).await;
    let addresses: Vec<SocketAddr> = found.map_err(|error| format!("looking up {host}: {error}"))?.collect();
    // Most runners listen on IPv4 alone.
    let remote = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
    let remote = *remote.ok_or_else(|| format!("{host} has no address"))?;
    let any: SocketAddr = match remote {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let failed = |error: std::io::Error| format!("a UDP socket towards {host}: {error}");
    let probe = UdpSocket::bind(any).await.map_err(failed)?;
    probe.connect(remote).await.map_err(failed)?;
    let local = probe.local_addr().map_err(failed)?.ip();
    UdpSocket::bind((local, 0)).await.map_err(failed)
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

impl WebRtcCall {
    /// Returns whether the connection came up.
    async fn wait_for_connection(&mut self) -> bool {
        loop {
            match self.next_output(None).await {
                PeerOutput::Connected => return true,
                PeerOutput::Closed | PeerOutput::Lost => return false,
                PeerOutput::Timeout(_) | PeerOutput::Transmit { .. } => {}
                early => self.early.push(early),
            }
        }
    }

    /// Returns the next output that is not for the network; a timeout if `until` comes first.
    async fn next_output(&mut self, until: Option<std::time::Instant>) -> PeerOutput {
        let mut datagram = [0; DATAGRAM_BYTES_MAX];
        loop {
            let at = match self.peer.poll_output() {
                PeerOutput::Transmit { destination, contents } => {
                    // A datagram that cannot be sent is one that is lost.
                    let _ = self.socket.try_send_to(&contents, destination);
                    continue;
                }
                PeerOutput::Timeout(at) => at,
                output => return output,
            };
            let until_passed = async {
                match until {
                    Some(until) => sleep_until(Instant::from_std(until)).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                () = until_passed => return PeerOutput::Timeout(at),
                () = sleep_until(Instant::from_std(at)) => self.peer.handle_timeout(now()),
                received = self.socket.recv_from(&mut datagram) => match received {
                    Ok((length, source)) => self.peer.handle_datagram(source, self.local, &datagram[..length], now()),
                    // An ICMP message about an earlier datagram.
                    Err(error) => log::debug!("receiving: {error}"),
                },
            }
        }
    }

    /// Runs a conversation to its end.
    async fn talk(mut self, conversation: &mut CallConversation, task: &mut CallRun<'_>) {
        for output in std::mem::take(&mut self.early) {
            self.handle_output(output, conversation);
        }
        loop {
            let deadline = loop {
                let output = conversation.poll_output();
                if let Some(message) = output.message() {
                    self.peer.send_message(message);
                }
                match output {
                    ConversationOutput::Timeout(at) => break at,
                    ConversationOutput::Observed(at, observation) => task.observe(at, &observation),
                    ConversationOutput::Audio(pcm) => {
                        self.peer.send_audio(&pcm, now());
                        self.peer.handle_timeout(now());
                    }
                    ConversationOutput::HangUp => self.peer.close(),
                    _ => {}
                }
            };
            if conversation.is_over() {
                return self.close().await;
            }
            let output = tokio::select! {
                biased;
                () = task.stopped() => {
                    conversation.handle_stop(now());
                    continue;
                }
                output = self.next_output(Some(deadline)) => output,
            };
            self.handle_output(output, conversation);
            conversation.handle_timeout(now());
        }
    }

    fn handle_output(&mut self, output: PeerOutput, conversation: &mut CallConversation) {
        let now = now();
        match output {
            PeerOutput::ChannelOpen => self.peer.send_message(rtvi_messages::client_ready()),
            PeerOutput::Message(text) => conversation.handle_message(&text, now),
            PeerOutput::Audio(pcm) => {
                conversation.handle_audio(&pcm, crate::proto::caller::RATE_HZ, now);
            }
            PeerOutput::Closed => conversation.handle_end(Ok(String::new()), now),
            PeerOutput::Lost => conversation.handle_end(Err("the runner no longer answers".into()), now),
            PeerOutput::Timeout(_) | PeerOutput::Transmit { .. } | PeerOutput::Connected => {}
        }
    }

    /// Sends the closing packets, and ends the session of WHIP.
    async fn close(mut self) {
        let packets = async {
            loop {
                self.next_output(None).await;
            }
        };
        let _ = timeout(CLOSED_WITHIN, packets).await;
        if let Some(resource) = self.resource.take() {
            offer::delete(resource, self.key.as_ref()).await;
        }
    }
}
