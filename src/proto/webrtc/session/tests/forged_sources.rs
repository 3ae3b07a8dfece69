//! A client that forges source addresses can neither end, move nor degrade other sessions.
//!
//! The forger has a session of its own, so its checks are signed correctly. It sends them from
//! other clients' addresses at any time and through restarts, but cannot read what is sent there.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::super::*;
use super::device::device;
use super::pair::{ms, secs};
use super::rig::{Rig, WAY};
use crate::limits::{CHECKED_ADDRESSES_MAX, CHECKED_UNPROVEN_MAX, PEER_LOST_AFTER};
use crate::testing::client::TestClient;

const VICTIM: &str = "192.0.2.9:5000";
const FORGER: &str = "198.51.100.66:6666";

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn client(rig: &Rig, at: &str) -> TestClient {
    TestClient::at(at, rig.now)
}

/// A talking victim, and a forger with its own call.
fn victim_and_forger() -> (Rig, u64, u64) {
    let mut rig = Rig::new(false);
    let victim = rig.connected(client(&rig, VICTIM));
    let forger = rig.connected(client(&rig, FORGER));
    let now = rig.now;
    for number in [victim, forger] {
        rig.client(number).beep(440.0, 100, now);
    }
    rig.run(secs(1));
    (rig, victim, forger)
}

/// Advances the time while the forger acts every 100 ms, and asserts that the victim's audio
/// continues both ways.
fn assert_undisturbed(rig: &mut Rig, victim: u64, time: Duration, mut each_100_ms: impl FnMut(&mut Rig, u64)) {
    let frames = rig.lives[&victim].frames;
    let received = rig.clients[&victim].received.len();
    let turns = time.as_millis() as u64 / 100;
    for turn in 0..turns {
        each_100_ms(rig, turn);
        rig.run(ms(100));
    }
    let wanted = turns as usize * 5;
    let frames = rig.lives[&victim].frames - frames;
    let received = rig.clients[&victim].received.len() - received;
    assert!(
        frames + 2 >= wanted && received + 2 >= wanted,
        "{frames} frames, {received} packets of {wanted}"
    );
    let life = &rig.lives[&victim];
    assert_eq!(
        (life.left(), life.at(&SessionEvent::Lost), life.gone),
        (None, None, false)
    );
}

/// Asserts that a session sent an address only STUN, whose first byte is 0 or 1.
fn assert_sent_no_sound(rig: &Rig, session: u64, destination: &str) {
    let destination = address(destination);
    let mut sent = rig.lives[&session].sent.iter();
    assert!(sent.all(|(to, first)| *to != destination || *first < 4));
}

/// A check for the forger's session, from the victim's address and port, while the victim talks.
#[test]
fn a_forged_check_ends_no_session() {
    let (mut rig, victim, forger) = victim_and_forger();
    assert_undisturbed(&mut rig, victim, secs(40), |rig, _| {
        let check = rig.checks[&forger].clone();
        rig.forge(address(VICTIM), &check);
    });
    let forgers = &rig.lives[&forger];
    assert!(forgers.proven.iter().all(|(_, proven)| *proven == address(FORGER)));
    assert!(
        forgers.sent.iter().any(|(to, _)| *to == address(VICTIM)),
        "it was answered"
    );
    // Audio moves only to validated addresses, so neither stream moves.
    assert_sent_no_sound(&rig, forger, VICTIM);
    assert_sent_no_sound(&rig, victim, FORGER);
}

/// A check with the victim's fragment but without its password moves nothing.
#[test]
fn a_check_without_the_password_moves_no_audio() {
    let (mut rig, victim, forger) = victim_and_forger();
    let mut check = rig.checks[&victim].clone();
    // Changing the transaction id invalidates the signature.
    check[12] ^= 1;
    let sent = rig.lives[&victim].sent.len();
    assert_undisturbed(&mut rig, victim, secs(10), |rig, _| {
        rig.forge(address(FORGER), &check);
        rig.forge(address(VICTIM), &check);
    });
    assert!(
        rig.lives[&victim].sent[sent..]
            .iter()
            .all(|(to, _)| *to == address(VICTIM))
    );
    assert_eq!(rig.lives[&forger].left(), None);
}

/// An answer validates only the address that was checked, even if the forger replays its own answer
/// from the victim's address at the right moment.
#[test]
fn an_answer_validates_only_the_checked_address() {
    let (mut rig, victim, forger) = victim_and_forger();
    assert_undisturbed(&mut rig, victim, secs(20), |rig, _| {
        let (check, answer) = (rig.checks[&forger].clone(), rig.answers[&forger].clone());
        rig.forge(address(VICTIM), &check);
        rig.forge(address(VICTIM), &answer);
    });
    let mut proven = rig.lives[&forger].proven.iter();
    assert!(proven.all(|(_, proven)| *proven == address(FORGER)));
}

/// The forger's checks arrive from the victim's address first, and continue. The victim connects as
/// fast as without them.
#[test]
fn an_early_forger_keeps_no_client_out() {
    let connected_after = |forges: bool| {
        let mut rig = Rig::new(false);
        let forger = rig.connected(client(&rig, FORGER));
        if forges {
            let check = rig.checks[&forger].clone();
            rig.forge(address(VICTIM), &check);
            rig.run(ms(20));
        }
        let began = rig.time();
        let victim = rig.call(client(&rig, VICTIM));
        while rig.lives[&victim].joined().is_none() {
            if forges {
                let check = rig.checks[&forger].clone();
                rig.forge(address(VICTIM), &check);
            }
            rig.run(ms(1));
            assert!(rig.time() < secs(5));
        }
        rig.connect(victim);
        let now = rig.now;
        rig.client(victim).beep(440.0, 100, now);
        rig.run(secs(1));
        assert_undisturbed(&mut rig, victim, secs(2), |_, _| {});
        rig.lives[&victim].joined().expect("joined") - began
    };
    let (alone, with_forger) = (connected_after(false), connected_after(true));
    assert!(
        with_forger <= alone + ms(1),
        "{alone:?} alone, {with_forger:?} with a forger"
    );
}

/// ICE restarts and new connections allow no further unanswered addresses, which are counted per
/// session. The forger's own address answers and remains valid.
#[test]
fn restarts_allow_no_further_addresses() {
    let (mut rig, victim, forger) = victim_and_forger();
    let (mut port, mut answered) = (10_000, 0);
    for round in 0..20 {
        if round % 5 == 4 {
            let anew = client(&rig, FORGER);
            rig.restart(forger, anew);
            rig.connect(forger);
        } else {
            rig.restart_ice(forger);
            rig.run(ms(200));
        }
        let check = rig.checks[&forger].clone();
        let sent = rig.lives[&forger].sent.len();
        for _ in 0..2 * CHECKED_ADDRESSES_MAX {
            port += 1;
            rig.forge(SocketAddr::new(address(VICTIM).ip(), port), &check);
        }
        let check = rig.checks[&forger].clone();
        rig.forge(address(VICTIM), &check);
        let sent = &rig.lives[&forger].sent[sent..];
        // A check starts with 0, an answer with 1.
        answered += sent
            .iter()
            .filter(|(to, first)| *first == 1 && to.port() > 10_000)
            .count();
    }
    assert!(
        (CHECKED_UNPROVEN_MAX / 2..=CHECKED_UNPROVEN_MAX).contains(&answered),
        "{answered}"
    );
    assert_undisturbed(&mut rig, victim, secs(5), |_, _| {});
    rig.restart_ice(forger);
    rig.run(secs(1));
    rig.client(forger).send("still here");
    rig.run(secs(1));
    let mut events = rig.lives[&forger].events.iter();
    assert!(events.any(|(_, event)| *event == SessionEvent::Message("still here".into())));
}

fn a_device(rig: &Rig, at: &str) -> TestClient {
    let mut device = device(at, rig.now);
    device.beep(440.0, 100, rig.now);
    device
}

fn device_connects(rig: &mut Rig, at: &str) -> u64 {
    let device = a_device(rig, at);
    let number = rig.device_calls(device);
    assert!(rig.run_until(secs(5), |rig| rig.lives[&number].joined().is_some()));
    rig.open_audio(number);
    rig.run(ms(500));
    number
}

/// A device that returns at the same port is connected after its handshake, which ends the old
/// session.
#[test]
fn a_device_at_the_same_port_replaces_its_session_at_once() {
    let mut rig = Rig::new(true);
    let old = device_connects(&mut rig, VICTIM);
    let received = rig.clients[&old].received.len();
    assert!(received > 20);
    rig.clients.remove(&old);
    let began = rig.time();
    let device = a_device(&rig, VICTIM);
    let new = rig.device_calls(device);
    assert!(rig.run_until(secs(1), |rig| rig.lives[&old].left().is_some()));
    let (reason, at) = rig.lives[&old].left().expect("left");
    assert_eq!(reason, LeaveReason::Replaced);
    assert_eq!(rig.lives[&new].joined(), Some(at));
    // Two handshakes of four flights each, and the interval between two checks.
    assert!(at - began <= 12 * WAY + ms(100), "{:?}", at - began);
    rig.run(secs(1));
    assert!(rig.lives[&old].gone && rig.lives[&new].left().is_none());
    assert!(rig.clients[&new].received.len() > 40);
    assert_eq!(rig.routes.len(), (1, 1));
}

/// A device with another's forged address does not replace its session, however silent that is.
#[test]
fn a_silent_device_is_replaced_by_itself_alone() {
    let mut rig = Rig::new(true);
    let neighbour = device_connects(&mut rig, VICTIM);
    let earlier = device_connects(&mut rig, "198.51.100.66:6000");
    rig.client(neighbour).mute();
    rig.run(secs(4));
    let forger = device(FORGER, rig.now);
    let forger = rig.device_calls(forger);
    assert!(rig.run_until(secs(1), |rig| rig.checks.contains_key(&forger)));
    let check = rig.checks[&forger].clone();
    while rig.lives[&forger].joined().is_none() {
        rig.forge(address(VICTIM), &check);
        rig.run(ms(1));
        assert!(rig.time() < secs(20));
    }
    rig.run(ms(500));
    assert_eq!(rig.lives[&neighbour].left(), None);
    assert_eq!(rig.lives[&earlier].left(), None, "it speaks");
}

/// Two callers behind a gateway share one socket: each is heard in its own session, through an ICE
/// restart, too.
#[test]
fn callers_may_share_a_socket() {
    let mut rig = Rig::new(false);
    let one = rig.connected(client(&rig, VICTIM));
    let two = rig.connected(client(&rig, VICTIM));
    let now = rig.now;
    for number in [one, two] {
        rig.client(number).beep(440.0, 100, now);
    }
    rig.run(secs(1));
    assert_undisturbed(&mut rig, one, secs(10), |_, _| {});
    rig.restart_ice(two);
    rig.run(secs(1));
    assert_undisturbed(&mut rig, one, secs(35), |_, _| {});
    assert_undisturbed(&mut rig, two, secs(1), |_, _| {});
}

/// A caller that returns to the same port with a new session is heard at once. The old session ends
/// when its caller stays silent, despite packets of others.
#[test]
fn a_caller_who_comes_back_to_the_same_port_frees_the_old_session() {
    let mut rig = Rig::new(false);
    let old = rig.connected(client(&rig, VICTIM));
    let now = rig.now;
    rig.client(old).beep(440.0, 100, now);
    rig.run(secs(1));
    rig.clients.remove(&old);
    let began = rig.time();
    let new = rig.connected(client(&rig, VICTIM));
    assert!(rig.lives[&new].joined().expect("joined") - began < ms(300));
    let now = rig.now;
    rig.client(new).beep(440.0, 100, now);
    rig.run(secs(1));
    assert_undisturbed(&mut rig, new, secs(7), |_, _| {});
    let (reason, at) = rig.lives[&old].left().expect("it has left");
    assert_eq!(reason, LeaveReason::Replaced);
    assert!(at - began <= PEER_LOST_AFTER + ms(100), "{:?}", at - began);
    assert_eq!(rig.routes.len(), (1, 1));
}

/// Unsigned packets from the caller's address do not keep its session alive.
#[test]
fn a_forger_keeps_no_session_alive() {
    let (mut rig, victim, _) = victim_and_forger();
    rig.clients.remove(&victim);
    let gone = rig.time();
    let mut sound = vec![128, 111, 0, 1, 0, 0, 0, 2, 0, 0, 0, 6];
    sound.extend([7; 60]);
    let mut record = vec![23, 254, 253, 0, 1, 0, 0, 0, 0, 0, 9, 0, 16];
    record.extend([7; 16]);
    while rig.lives[&victim].left().is_none() {
        rig.forge(address(VICTIM), &sound);
        rig.forge(address(VICTIM), &record);
        rig.run(ms(500));
        assert!(rig.time() - gone < secs(31));
    }
    let lost = rig.lives[&victim].at(&SessionEvent::Lost).expect("it was noticed");
    assert!(lost - gone <= PEER_LOST_AFTER + ms(50));
    assert_eq!(rig.lives[&victim].at(&SessionEvent::Restored), None);
}

/// For ten minutes a device reboots every few seconds, at the same port and others, beside another
/// device and a browser behind the same NAT: it always reconnects, disturbs no session, and leaves
/// nothing behind.
#[test]
fn frequent_reboots_disturb_no_session() {
    let mut rig = Rig::new(true);
    let began = Instant::now();
    let neighbours = [
        device_connects(&mut rig, "192.0.2.57:40000"),
        device_connects(&mut rig, "192.0.2.58:49152"),
        rig.connected(client(&rig, "192.0.2.9:5000")),
    ];
    let now = rig.now;
    rig.client(neighbours[2]).beep(440.0, 100, now);
    rig.run(secs(2));
    let before = neighbours.map(|number| (rig.lives[&number].frames, rig.clients[&number].received.len()));
    let from = rig.time();
    let mut last_port = 0;
    let (mut device, mut reboots, mut slowest) = (None::<u64>, 0u64, Duration::ZERO);
    while rig.time() - from < secs(600) {
        reboots += 1;
        if let Some(device) = device {
            rig.clients.remove(&device);
            // One to two seconds to boot.
            rig.run(ms(1_000 + reboots * 377 % 1_000));
        }
        let port = if reboots.is_multiple_of(3) {
            50_000 + reboots
        } else {
            49_152
        };
        let former_port = std::mem::replace(&mut last_port, port);
        let at = format!("192.0.2.57:{port}");
        let offered = rig.time();
        let fresh = a_device(&rig, &at);
        let number = rig.device_calls(fresh);
        let old = device.replace(number);
        let joined = rig.run_until(secs(1), |rig| rig.lives[&number].joined().is_some());
        let life = &rig.lives[&number];
        assert!(joined, "reboot {reboots} at {at}: {:?} {:?}", life.sent, life.proven);
        slowest = slowest.max(rig.time() - offered);
        rig.run(ms(500));
        if let Some(old) = old {
            // At the same port it is recognized at once, at another by silence.
            let patience = if port == former_port { secs(1) } else { PEER_LOST_AFTER };
            assert!(rig.run_until(patience, |rig| rig.lives[&old].gone), "reboot {reboots}");
            let (reason, _) = rig.lives[&old].left().expect("the old session has ended");
            assert_eq!(reason, LeaveReason::Replaced, "reboot {reboots}");
            rig.lives.remove(&old);
        }
        assert_eq!((rig.living(), rig.routes.len().0), (4, 4), "reboot {reboots}");
        rig.run(ms(reboots * 977 % 6_000));
    }
    let seconds = (rig.time() - from).as_secs() as usize;
    for (number, (frames, received)) in neighbours.into_iter().zip(before) {
        let life = &rig.lives[&number];
        assert_eq!((life.left(), life.at(&SessionEvent::Lost)), (None, None));
        let (frames, received) = (life.frames - frames, rig.clients[&number].received.len() - received);
        assert!(
            frames.min(received) + 100 >= seconds * 50,
            "{frames} frames, {received} packets in {seconds} s"
        );
    }
    assert!(reboots > 70);
    assert_eq!(rig.routes.len(), (4, 4));
    println!(
        "{reboots} reboots, the slowest connected after {slowest:?}; {:?} of real time",
        began.elapsed()
    );
    // All sessions end and are removed.
    rig.clients.clear();
    rig.run(secs(40));
    assert_eq!((rig.living(), rig.routes.len()), (0, (0, 0)));
}
