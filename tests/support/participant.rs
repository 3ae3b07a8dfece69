//! [`TestParticipant`]: a participant of a LiveKit room, for a test that plays the caller.
//!
//! In: a URL and a token; a tone, messages. Out: the audio, messages and participants that it sees.
//! The server subscribes it to everybody. It uses the library's own peer connections, against the
//! test server.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use edge_runner_proto::audio::opus::{Decoder, Encoder, EncoderSettings};
use edge_runner_proto::livekit::wire::{
    AddTrackRequest, DataPacket, DataValue, LeaveRequest, ServerMessage, SessionDescription, SignalRequest,
    SignalRequestKind, SignalResponse, SignalTarget, TrackSource, UserPacket,
};
use edge_runner_proto::webrtc::connection::{
    AudioLevel, ConnectionContext, ConnectionOutput, PeerConnection, ReceivedPacket, SfuSetup,
};
use futures_util::{SinkExt as _, StreamExt as _};
use prost::Message as _;
use tokio::net::{TcpStream, UdpSocket};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::runner::PATIENCE;
use super::sound::{FRAME, RATE_HZ, Speech};

static COMMON: LazyLock<ConnectionContext> = LazyLock::new(ConnectionContext::default);

/// What a participant has observed.
#[derive(Default)]
pub struct Observed {
    pub received: Vec<i16>,
    pub texts: Vec<String>,
    /// Identities of the other active participants.
    pub others: BTreeSet<String>,
    pub connected: BTreeSet<&'static str>,
    pub is_over: bool,
}

enum Order {
    Talk(Option<Speech>),
    Say(String),
    Leave,
}

/// A participant.
pub struct TestParticipant {
    seen: Arc<Mutex<Observed>>,
    orders: mpsc::UnboundedSender<Order>,
}

impl TestParticipant {
    /// Joins a room.
    pub fn join(runtime: &Handle, url: &str, token: &str) -> Self {
        let seen = Arc::new(Mutex::new(Observed::default()));
        let (orders, ordered) = mpsc::unbounded_channel();
        let (url, token, shared) = (url.to_owned(), token.to_owned(), seen.clone());
        runtime.spawn(async move {
            let connection = RoomConnection::open(&url, &token, shared.clone()).await;
            connection.run(ordered).await;
            lock(&shared).is_over = true;
        });
        TestParticipant { seen, orders }
    }

    /// Speaks from now on; `None` is silence.
    pub fn talk(&self, speech: Option<Speech>) {
        let _ = self.orders.send(Order::Talk(speech));
    }

    pub fn say(&self, text: &str) {
        let _ = self.orders.send(Order::Say(text.to_owned()));
    }

    pub fn leave(&self) {
        let _ = self.orders.send(Order::Leave);
        self.wait_for("its end", |seen| seen.is_over);
    }

    /// Forgets the received audio.
    pub fn clear_audio(&self) {
        lock(&self.seen).received.clear();
    }

    /// Waits until `done`, or fails the test.
    pub fn wait_for(&self, wanted: &str, done: impl Fn(&Observed) -> bool) {
        let start = Instant::now();
        while !done(&lock(&self.seen)) {
            let seen = lock(&self.seen);
            assert!(
                start.elapsed() < PATIENCE,
                "no {wanted}; others {:?}, up {:?}, {} samples heard",
                seen.others,
                seen.connected,
                seen.received.len()
            );
            drop(seen);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn lock(seen: &Mutex<Observed>) -> MutexGuard<'_, Observed> {
    seen.lock().expect("no holder panics")
}

/// One peer connection with its socket.
struct Transport {
    peer: PeerConnection,
    socket: UdpSocket,
    local: SocketAddr,
    decoders: BTreeMap<Arc<str>, Decoder>,
}

struct RoomConnection {
    socket: WebSocketStream<TcpStream>,
    publisher: Option<Transport>,
    subscriber: Option<Transport>,
    seen: Arc<Mutex<Observed>>,
    encoder: Encoder,
    speech: Option<Speech>,
    frames: usize,
    /// Since when it has sent audio.
    since: Option<Instant>,
    unsent: Vec<String>,
}

impl RoomConnection {
    async fn open(url: &str, token: &str, seen: Arc<Mutex<Observed>>) -> Self {
        let address = url.strip_prefix("ws://").expect("a WebSocket without TLS");
        let stream = TcpStream::connect(address).await.expect("the server listens");
        let mut request = format!("{url}/rtc?protocol=15&auto_subscribe=1")
            .into_client_request()
            .expect("a URL");
        let bearer = format!("Bearer {token}").parse().expect("a header");
        request.headers_mut().insert("authorization", bearer);
        let (socket, _) = client_async(request, stream).await.expect("the server lets it in");
        RoomConnection {
            socket,
            publisher: None,
            subscriber: None,
            seen,
            encoder: Encoder::new(RATE_HZ, EncoderSettings::default()).expect("a rate of Opus"),
            speech: None,
            frames: 0,
            since: None,
            unsent: Vec::new(),
        }
    }

    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut tick = tokio::time::interval(Duration::from_millis(5));
        loop {
            self.flush();
            tokio::select! {
                message = self.socket.next() => match message {
                    Some(Ok(Message::Binary(bytes))) => {
                        let response = SignalResponse::decode(bytes).expect("a message of the server");
                        if self.handle_message(response.message).await {
                            return;
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                },
                order = orders.recv() => match order {
                    Some(Order::Talk(speech)) => self.speech = speech,
                    Some(Order::Say(text)) => self.unsent.push(text),
                    Some(Order::Leave) | None => {
                        self.send(SignalRequestKind::Leave(LeaveRequest { reason: 1, ..LeaveRequest::default() })).await;
                        let _ = self.socket.close(None).await;
                        return;
                    }
                },
                datagram = recv_from(&self.publisher) => handle_datagram(&mut self.publisher, datagram),
                datagram = recv_from(&self.subscriber) => handle_datagram(&mut self.subscriber, datagram),
                _ = tick.tick() => self.tick(),
            }
        }
    }

    async fn send(&mut self, request: SignalRequestKind) {
        let bytes = SignalRequest { message: Some(request) }.encode_to_vec();
        let _ = self.socket.send(Message::Binary(bytes.into())).await;
    }

    /// Handles a message of the server. Returns `true` for the last one.
    async fn handle_message(&mut self, message: Option<ServerMessage>) -> bool {
        match message {
            Some(ServerMessage::Join(join)) => {
                let others = join.other_participants.into_iter().filter(|other| other.state == 2);
                lock(&self.seen).others.extend(others.map(|other| other.identity));
                let (socket, local) = socket().await;
                let (peer, offer) =
                    PeerConnection::publisher(&setup(&[local]), "microphone", Instant::now()).expect("an offer");
                self.publisher = Some(Transport::new(peer, socket, local));
                self.send(SignalRequestKind::AddTrack(AddTrackRequest {
                    cid: "microphone".into(),
                    name: "microphone".into(),
                    source: TrackSource::Microphone as i32,
                    disable_red: true,
                    ..AddTrackRequest::default()
                }))
                .await;
                self.send(SignalRequestKind::Offer(description("offer", offer, 1)))
                    .await;
            }
            Some(ServerMessage::Answer(answer)) => {
                let transport = self.publisher.as_mut().expect("an offer was made");
                transport
                    .peer
                    .handle_answer(&answer.sdp, Instant::now())
                    .expect("an answer");
            }
            Some(ServerMessage::Offer(offer)) => {
                let mids = &offer.mid_to_track_id;
                let answer = match &mut self.subscriber {
                    Some(transport) => transport.peer.answer_server_offer(&offer.sdp, mids).expect("an offer"),
                    None => {
                        let (socket, local) = socket().await;
                        let (peer, answer) =
                            PeerConnection::subscriber(&setup(&[local]), &offer.sdp, mids, Instant::now())
                                .expect("an offer");
                        self.subscriber = Some(Transport::new(peer, socket, local));
                        answer
                    }
                };
                self.send(SignalRequestKind::Answer(description("answer", answer, offer.id)))
                    .await;
            }
            Some(ServerMessage::Trickle(trickle)) => {
                let init: serde_json::Value = serde_json::from_str(&trickle.candidate_init).expect("JSON");
                let transport = match trickle.target == SignalTarget::Publisher as i32 {
                    true => &mut self.publisher,
                    false => &mut self.subscriber,
                };
                if let (Some(transport), Some(candidate)) = (transport, init["candidate"].as_str()) {
                    transport.peer.add_remote_candidate(candidate);
                }
            }
            Some(ServerMessage::Update(update)) => {
                let mut seen = lock(&self.seen);
                for who in update.participants {
                    match who.state {
                        2 => seen.others.insert(who.identity),
                        3 => seen.others.remove(&who.identity),
                        // Not active yet, so messages to it would be lost.
                        _ => false,
                    };
                }
            }
            Some(ServerMessage::Leave(_)) => return true,
            _ => {}
        }
        false
    }

    fn tick(&mut self) {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        if let Some(transport) = &mut self.publisher {
            while since + Duration::from_millis(20) * self.frames as u32 <= now {
                let pcm = self
                    .speech
                    .map_or([0; FRAME], |speech| speech.frame(self.frames * FRAME));
                let mut packet = [0; 400];
                let bytes = self.encoder.encode(&pcm, &mut packet).expect("a frame of Opus");
                let level = if self.speech.is_some() { 15 } else { 127 };
                let ticks = self.frames as u64 * 960;
                let level = AudioLevel {
                    dbov_below: level,
                    is_speech: level < 127,
                };
                transport.peer.send_audio(&packet[..bytes], ticks, Some(level), now);
                self.frames += 1;
            }
            self.unsent
                .retain(|text| !transport.peer.send_message(text_packet(text)));
            transport.peer.handle_timeout(now);
        }
        if let Some(transport) = &mut self.subscriber {
            transport.peer.handle_timeout(now);
        }
    }

    /// Polls both connections.
    fn flush(&mut self) {
        for (name, transport) in [("publisher", &mut self.publisher), ("subscriber", &mut self.subscriber)] {
            let Some(transport) = transport else { continue };
            loop {
                match transport.peer.poll_output() {
                    ConnectionOutput::Timeout(_) => break,
                    ConnectionOutput::Transmit(mut transmit) => {
                        let destination = transmit.destination;
                        let _ = transport.socket.try_send_to(transmit.contents(), destination);
                    }
                    ConnectionOutput::Connected => drop(lock(&self.seen).connected.insert(name)),
                    ConnectionOutput::Audio {
                        track: Some(track),
                        packet,
                    } => {
                        let decoder = transport.decoders.entry(track);
                        let decoder = decoder.or_insert_with(|| Decoder::new(RATE_HZ).expect("a rate of Opus"));
                        let pcm = decoder.decode(&packet.payload).expect("Opus");
                        lock(&self.seen).received.extend_from_slice(pcm);
                    }
                    ConnectionOutput::Data(bytes) => {
                        let packet = DataPacket::decode(&bytes[..]).expect("a data packet");
                        if let Some(DataValue::User(user)) = packet.value {
                            let text = String::from_utf8(user.payload.into()).expect("a text");
                            lock(&self.seen).texts.push(text);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

impl Transport {
    fn new(peer: PeerConnection, socket: UdpSocket, local: SocketAddr) -> Self {
        Transport {
            peer,
            socket,
            local,
            decoders: BTreeMap::new(),
        }
    }
}

async fn socket() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
    let local = socket.local_addr().expect("an address");
    (socket, local)
}

fn setup(local: &[SocketAddr]) -> SfuSetup<'_> {
    SfuSetup {
        common: &COMMON,
        local,
        relay_only: false,
        seed: 0x1234_5678_9abc_def0,
    }
}

fn description(kind: &str, sdp: String, id: u32) -> SessionDescription {
    SessionDescription {
        kind: kind.into(),
        sdp,
        id,
        ..SessionDescription::default()
    }
}

fn text_packet(text: &str) -> Vec<u8> {
    let user = UserPacket {
        payload: text.as_bytes().to_vec().into(),
        ..UserPacket::default()
    };
    DataPacket {
        value: Some(DataValue::User(user)),
        ..DataPacket::default()
    }
    .encode_to_vec()
}

type Datagram = (Vec<u8>, SocketAddr);

async fn recv_from(transport: &Option<Transport>) -> Datagram {
    match transport {
        Some(transport) => receive(&transport.socket).await,
        None => std::future::pending().await,
    }
}

async fn receive(socket: &UdpSocket) -> Datagram {
    let mut bytes = [0; 2048];
    loop {
        if let Ok((length, source)) = socket.recv_from(&mut bytes).await {
            return (bytes[..length].to_vec(), source);
        }
    }
}

fn handle_datagram(transport: &mut Option<Transport>, (bytes, source): Datagram) {
    if let Some(transport) = transport {
        let packet = ReceivedPacket::from_datagram(source, transport.local, &bytes);
        transport.peer.handle_packet(&packet, Instant::now());
    }
}
