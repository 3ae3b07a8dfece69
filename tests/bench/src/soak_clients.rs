//! The clients of the soak: eight seats that always have a caller, and visitors that come and go.
//!
//! In: a runner and the end of the run. Out: how often each action was done; an error when a caller
//! was disturbed, such as a call without an echo. Callers on seats leave with or without a close.
//! Visitors interrupt handshakes, never connect, start sessions that stay unused, and send garbage
//! to every port. The actions follow a generator with a fixed seed, so that all runs have the same
//! mixture.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::call::Call;
use crate::http::Connection;
use crate::phone::{self, Phone};
use crate::plain::Plain;
use crate::rows::runtime;

/// How often each action was done.
pub type Tally = BTreeMap<&'static str, u32>;

/// The runner under test, and the end of the run.
pub struct SoakRun<'a> {
    pub addr: SocketAddr,
    pub speech: &'a [Vec<u8>],
    pub end: Instant,
    /// Ends all clients early after an error.
    pub over: AtomicBool,
}

impl SoakRun<'_> {
    fn is_open(&self) -> bool {
        Instant::now() < self.end && !self.over.load(Ordering::Relaxed)
    }
}

/// A random number generator (xorshift).
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Dice {
        // Zero is a fixed point of the generator.
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }
}

/// The client on a seat.
#[derive(Clone, Copy)]
pub enum Seat {
    WebRtc,
    Plain,
    Phone,
}

/// The seats, all of which are always taken.
pub const SEATS: [Seat; 8] = [
    Seat::WebRtc,
    Seat::WebRtc,
    Seat::WebRtc,
    Seat::Plain,
    Seat::Plain,
    Seat::Plain,
    Seat::Phone,
    Seat::Phone,
];

/// Runs calls on one seat until the end, a new one every 5 to 40 s. One in three vanishes without a
/// close.
pub fn run_seat(soak: &SoakRun<'_>, seat: Seat, seed: u64) -> Result<Tally> {
    let runtime = runtime()?;
    let (mut dice, mut tally) = (Dice::new(seed), Tally::new());
    // Every call is long enough for an echo.
    while soak.is_open() && Instant::now() + Duration::from_secs(1) < soak.end {
        let now = Instant::now();
        let until = soak.end.min(now + Duration::from_secs(5 + dice.below(35)));
        let vanishes = dice.below(3) == 0;
        let (name, received) = runtime.block_on(async {
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(match seat {
                Seat::WebRtc => {
                    let mut call = Call::begin(&mut Connection::open(soak.addr)?).await?;
                    let mut received = 0;
                    call.talk(soak.speech, Instant::now(), until, |_| received += 1).await?;
                    if !vanishes {
                        call.leave()?;
                    }
                    ("talks over WebRTC", received)
                }
                Seat::Plain => {
                    let mut plain = Plain::begin(soak.addr).await?;
                    let received = plain.talk(Instant::now(), until).await?;
                    if !vanishes {
                        plain.leave().await?;
                    }
                    ("talks on /ws-client", received)
                }
                Seat::Phone => {
                    let mut phone = Phone::begin(soak.addr, seed as usize).await?;
                    let messages = (until - now).as_millis() / phone::PTIME.as_millis();
                    let (_, received) = phone.talk(messages as u32, Instant::now()).await?;
                    if !vanishes {
                        phone.leave().await?;
                    }
                    ("talks by telephone", received.len() as u32)
                }
            })
        })?;
        // At least half: the last call may be very short, and other rows measure loss.
        let said = (until - now).as_millis() / phone::PTIME.as_millis();
        if u128::from(received) < said.saturating_sub(50) / 2 {
            return Err(format!("{name}: {said} messages were said, and {received} came back").into());
        }
        *tally.entry(name).or_default() += 1;
    }
    Ok(tally)
}

/// Does another action every half second until the end. Each round of ten does every action once,
/// in random order, so that the load of past visitors hardly varies.
pub fn run_visitor(soak: &SoakRun<'_>, seed: u64) -> Result<Tally> {
    let runtime = runtime()?;
    let (mut dice, mut tally) = (Dice::new(seed), Tally::new());
    // Connections that stay silent; their number is limited.
    let mut held = Vec::new();
    let mut order: Vec<u64> = Vec::new();
    while soak.is_open() {
        if order.is_empty() {
            let (factor, first) = ([1, 3, 7, 9][dice.below(4) as usize], dice.below(10));
            order.extend((0..10).map(|nth| (factor * nth + first) % 10));
        }
        let done = match order.pop().unwrap_or_default() {
            0 => send_foreign_packets(soak, &mut dice)?,
            1 => refused(soak, &mut dice)?,
            2 => datagrams(&runtime, soak, &mut dice)?,
            3 => {
                let mut stream = TcpStream::connect(soak.addr)?;
                let head = b"POST /start HTTP/1.1\r\nHost: localhost\r\n";
                stream.write_all(&head[..dice.below(head.len() as u64) as usize])?;
                held.push(stream);
                if held.len() > 8 {
                    held.remove(0);
                }
                "connections left hanging"
            }
            visit => runtime.block_on(session(soak, visit))?,
        };
        *tally.entry(done).or_default() += 1;
        thread::sleep(Duration::from_millis(200 + dice.below(600)));
    }
    Ok(tally)
}

/// A short session.
async fn session(soak: &SoakRun<'_>, visit: u64) -> Result<&'static str> {
    let (now, moment) = (Instant::now(), Duration::from_millis(300));
    Ok(match visit {
        4 => {
            Call::offer(&mut Connection::open(soak.addr)?).await?;
            "offers never followed"
        }
        5 => {
            Call::begin(&mut Connection::open(soak.addr)?).await?;
            "calls cut"
        }
        6 => {
            let mut call = Call::begin(&mut Connection::open(soak.addr)?).await?;
            call.talk(soak.speech, now, now + moment, |_| {}).await?;
            call.leave()?;
            "short calls"
        }
        7 => {
            let mut plain = Plain::begin(soak.addr).await?;
            plain.talk(now, now + moment).await?;
            plain.babble().await?;
            plain.leave().await?;
            "plain clients that babble"
        }
        8 => {
            Plain::begin(soak.addr).await?;
            "plain clients cut"
        }
        _ => {
            let mut phone = Phone::begin(soak.addr, 0).await?;
            phone.talk(10, now).await?;
            "telephones cut"
        }
    })
}

/// Sends bytes that are no request, or an incomplete request followed by other bytes.
fn send_foreign_packets(soak: &SoakRun<'_>, dice: &mut Dice) -> Result<&'static str> {
    const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                           Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let mut bytes = match dice.below(4) {
        0 => Vec::new(),
        1 => b"POST /start HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n{".to_vec(),
        path => {
            let path = ["/ws", "/ws-client"][path as usize - 2];
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}").into_bytes()
        }
    };
    bytes.extend((0..200).map(|_| dice.below(256) as u8));
    let mut stream = TcpStream::connect(soak.addr)?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    // The runner may close before it has read everything.
    let _ = stream.write_all(&bytes);
    while matches!(stream.read(&mut bytes), Ok(1..)) {}
    Ok("foreign packets")
}

/// A well-formed request that the runner rejects.
fn refused(soak: &SoakRun<'_>, dice: &mut Dice) -> Result<&'static str> {
    let (method, path, body, wanted) = match dice.below(5) {
        0 => (
            "POST",
            "/start",
            r#"{"transport": "webrtc", "body": {"name": "a visitor"}}"#,
            200,
        ),
        1 => ("POST", "/start", r#"{"transport": 7}"#, 422),
        2 => ("POST", "/api/offer", r#"{"type": "offer", "sdp": "v=0"}"#, 400),
        3 => ("PATCH", "/api/offer", r#"{"pc_id": "unknown", "candidates": []}"#, 404),
        _ => ("GET", "/client/../../etc/passwd", "", 404),
    };
    let (status, answer) = Connection::open(soak.addr)?.request(method, path, body.as_bytes())?;
    if status != wanted {
        return Err(format!("{method} {path}: {status} {}", String::from_utf8_lossy(&answer)).into());
    }
    Ok(if wanted == 200 {
        "sessions never used"
    } else {
        "refused requests"
    })
}

/// Sends datagrams of no session to the media port.
fn datagrams(runtime: &tokio::runtime::Runtime, soak: &SoakRun<'_>, dice: &mut Dice) -> Result<&'static str> {
    let call = runtime.block_on(Call::offer(&mut Connection::open(soak.addr)?))?;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    for _ in 0..50 {
        // First bytes: 0 to 3 for STUN, 20 to 63 for DTLS, 128 to 191 for RTP.
        let first = [0, 22, 128][dice.below(3) as usize];
        let mut bytes = vec![first];
        bytes.extend((0..dice.below(200)).map(|_| dice.below(256) as u8));
        socket.send_to(&bytes, call.remote)?;
    }
    Ok("bursts of datagrams")
}
