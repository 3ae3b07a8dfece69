//! Devices behind one address do not disturb each other, and a reset one is served again.
//!
//! Their NAT gives all of them one address, and each offer names the device's own. They answer
//! checks and send none, as the firmware does. Source: `docs/spec/devices.md` 5, 9.

use std::time::Duration;

use super::super::*;
use super::device::device;
use super::pair::{ms, secs};
use super::rig::Rig;
use crate::limits::{PEER_FREED_AFTER, PEER_LOST_AFTER, PROBE_CHECKS, PROBE_INTERVAL};
use crate::testing::client::TestClient;

const NAT: &str = "192.0.2.77";
const HOST: &str = "10.0.0.5";
const NEIGHBOUR: &str = "10.0.0.6";

/// A device that talks, or that is silent until its button is pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    Talks,
    Waits,
}

const HABITS: [Habit; 2] = [Habit::Talks, Habit::Waits];

fn at_port(rig: &Rig, port: u16) -> TestClient {
    device(&format!("{NAT}:{port}"), rig.now)
}

/// Connects a device from a port of the NAT. Returns its session.
fn connects(rig: &mut Rig, host: &str, port: u16, habit: Habit) -> u64 {
    let mut client = at_port(rig, port);
    if habit == Habit::Talks {
        client.beep(440.0, 100, rig.now);
    }
    let number = rig.device_calls_from(host, client);
    assert!(rig.run_until(secs(5), |rig| rig.lives[&number].joined().is_some()));
    rig.open_audio(number);
    number
}

/// Drops all packets between the device and the runner for a time.
fn gap(rig: &mut Rig, number: u64, time: Duration) {
    rig.away.insert(number);
    rig.run(time);
    rig.away.remove(&number);
}

/// Asserts that a session is unchanged and hears its device.
fn assert_undisturbed(rig: &mut Rig, number: u64, habit: Habit) {
    rig.run(secs(1));
    let (frames, received) = (rig.lives[&number].frames, rig.clients[&number].received.len());
    rig.run(secs(2));
    let life = &rig.lives[&number];
    assert_eq!((life.left(), life.gone), (None, false), "{habit:?}");
    assert!(rig.clients[&number].received.len() - received >= 98);
    assert!(
        habit == Habit::Waits || life.frames - frames >= 98,
        "{}",
        life.frames - frames
    );
}

/// Packets are lost for 1.5 s, and for longer up to the limit, while another device connects.
#[test]
fn another_device_replaces_no_session_in_an_outage() {
    for habit in HABITS {
        for (gap, neighbour_after) in [
            (1_500, 1_250),
            (2_000, 100),
            (5_000, 4_500),
            (8_000, 7_000),
            (20_000, 1),
            (28_000, 14_000),
        ] {
            let mut rig = Rig::new(true);
            let number = connects(&mut rig, HOST, 5_000, habit);
            rig.run(secs(4));
            rig.away.insert(number);
            rig.run(ms(neighbour_after));
            let neighbour = connects(&mut rig, NEIGHBOUR, 6_000, Habit::Talks);
            let left = ms(gap) - (rig.time() - secs(4)).min(ms(gap)).min(ms(neighbour_after + 200));
            rig.run(left);
            rig.away.remove(&number);
            assert_undisturbed(&mut rig, number, habit);
            assert_undisturbed(&mut rig, neighbour, Habit::Talks);
        }
    }
}

/// A push-to-talk device is silent for minutes but answers checks, while other devices come and go.
#[test]
fn another_device_replaces_no_silent_session() {
    let mut rig = Rig::new(true);
    let number = connects(&mut rig, HOST, 5_000, Habit::Talks);
    rig.run(secs(3));
    rig.client(number).mute();
    for port in 6_000..6_020 {
        rig.run(ms(3_300));
        let neighbour = connects(&mut rig, NEIGHBOUR, port, Habit::Talks);
        rig.clients.remove(&neighbour);
        let now = rig.now;
        rig.life(number).session.handle_probe(now);
        assert_eq!(rig.lives[&number].left(), None);
    }
    assert_undisturbed(&mut rig, number, Habit::Waits);
    // Nor do offers with the device's own address, while it is present.
    for port in 7_000..7_005 {
        connects(&mut rig, HOST, port, Habit::Waits);
        rig.run(secs(3));
    }
    assert_undisturbed(&mut rig, number, Habit::Waits);
}

/// A reset device connects at once. Its old session ends after the silence that counts as lost,
/// whenever the new one connected. Other devices' sessions continue.
#[test]
fn a_device_at_another_port_replaces_itself() {
    for away in [ms(100), secs(3), secs(5)] {
        let mut rig = Rig::new(true);
        let old = connects(&mut rig, HOST, 5_000, Habit::Talks);
        let neighbour = connects(&mut rig, NEIGHBOUR, 6_000, Habit::Waits);
        rig.run(secs(4));
        rig.clients.remove(&old);
        let vanished = rig.time();
        rig.run(away);
        let began = rig.time();
        let new = connects(&mut rig, HOST, 5_001, Habit::Talks);
        assert!(rig.time() - began < ms(300), "{:?}", rig.time() - began);
        assert!(rig.run_until(secs(7), |rig| rig.lives[&old].left().is_some()));
        let (reason, at) = rig.lives[&old].left().expect("left");
        assert_eq!(reason, LeaveReason::Replaced);
        assert!(at - vanished <= PEER_LOST_AFTER + ms(50), "{:?}", at - vanished);
        assert_undisturbed(&mut rig, new, Habit::Talks);
        assert_undisturbed(&mut rig, neighbour, Habit::Waits);
    }
}

/// Without addresses in the offers, a reset device cannot be told from another: the old session
/// ends by its timeout.
#[test]
fn an_ambiguous_device_replaces_no_session() {
    let mut rig = Rig::new(true);
    let old = connects(&mut rig, "0.0.0.0", 5_000, Habit::Talks);
    rig.run(secs(1));
    rig.clients.remove(&old);
    let vanished = rig.time();
    rig.run(secs(2));
    let new = connects(&mut rig, "0.0.0.0", 5_001, Habit::Talks);
    rig.run(PEER_FREED_AFTER);
    let (reason, at) = rig.lives[&old].left().expect("left");
    assert_eq!(reason, LeaveReason::Vanished);
    assert!(at - vanished >= PEER_FREED_AFTER - ms(50));
    assert_undisturbed(&mut rig, new, Habit::Talks);
}

/// Probes a device. Returns the outcome and its delay.
fn inquire(rig: &mut Rig, number: u64) -> (ProbeOutcome, Duration) {
    let (now, began, found) = (rig.now, rig.time(), rig.lives[&number].found.len());
    rig.life(number).session.handle_probe(now);
    rig.touch(number);
    assert!(rig.run_until(secs(3), |rig| rig.lives[&number].found.len() > found));
    let (at, found) = rig.lives[&number].found[found];
    (found, at - began)
}

/// A full runner probes for an offer: a reset device's session ends early enough for it to be
/// connected 2 s after the offer.
#[test]
fn a_probe_detects_a_reset_device() {
    for habit in HABITS {
        for away in [ms(1), ms(300), secs(3)] {
            let mut rig = Rig::new(true);
            let number = connects(&mut rig, HOST, 5_000, habit);
            rig.run(secs(4));
            rig.clients.remove(&number);
            rig.run(away);
            let (found, took) = inquire(&mut rig, number);
            assert_eq!(found, ProbeOutcome::Silent, "{habit:?}, {away:?}");
            assert!(took <= PROBE_INTERVAL * (PROBE_CHECKS + 1), "{took:?}");
            assert!(took <= ms(1_800) || away < PROBE_INTERVAL, "{took:?}");
            // A second probe has its outcome at once.
            assert_eq!(inquire(&mut rig, number), (ProbeOutcome::Silent, Duration::ZERO));
        }
    }
}

/// A present device is found within a round trip, or right after an outage of 1.5 s.
#[test]
fn a_probe_detects_a_present_device() {
    for habit in HABITS {
        let mut rig = Rig::new(true);
        let number = connects(&mut rig, HOST, 5_000, habit);
        rig.run(ms(4_700));
        let (found, took) = inquire(&mut rig, number);
        assert_eq!(found, ProbeOutcome::Present);
        assert!(took <= PROBE_INTERVAL, "{habit:?}: {took:?}");
        for inquiry_after in [0, 100, 700, 1_400] {
            rig.run(ms(2_345));
            gap(&mut rig, number, ms(inquiry_after));
            rig.away.insert(number);
            let now = rig.now;
            let found = rig.lives[&number].found.len();
            rig.life(number).session.handle_probe(now);
            rig.touch(number);
            rig.run(ms(1_500 - inquiry_after));
            rig.away.remove(&number);
            rig.run(ms(260));
            let found: Vec<ProbeOutcome> = rig.lives[&number].found[found..]
                .iter()
                .map(|(_, found)| *found)
                .collect();
            assert_eq!(found, [ProbeOutcome::Present], "{habit:?}, {inquiry_after} ms");
        }
        assert_undisturbed(&mut rig, number, habit);
    }
}

/// Some devices share credentials. A client that knows them can name a device's address in its
/// offer and have its checks answered, which must not end the device's own session.
#[test]
fn known_credentials_do_not_end_a_devices_session() {
    for habit in HABITS {
        let mut rig = Rig::new(true);
        let number = connects(&mut rig, HOST, 5_000, habit);
        rig.run(secs(2));
        let rival = CompetingSession::AtAddress;
        for _ in 0..20 {
            let now = rig.now;
            rig.life(number).session.handle_competitor(rival, now);
            rig.touch(number);
            rig.run(secs(1));
        }
        assert_undisturbed(&mut rig, number, habit);
    }
}

/// Notices from another network, or of a session without a device, have no effect.
#[test]
fn sessions_on_other_networks_replace_nothing() {
    let mut rig = Rig::new(true);
    let number = connects(&mut rig, HOST, 5_000, Habit::Talks);
    rig.run(secs(1));
    let own = rig.lives[&number].session.device().expect("a device");
    assert_eq!(own.host, HOST.parse().ok());
    rig.clients.remove(&number);
    let now = rig.now;
    let elsewhere = DeviceIdentity {
        address: "192.0.2.78:5000".parse().expect("an address"),
        ..own
    };
    rig.life(number)
        .session
        .handle_competitor(CompetingSession::Device(elsewhere), now);
    rig.run(secs(20));
    assert_eq!(rig.lives[&number].left(), None);
}
