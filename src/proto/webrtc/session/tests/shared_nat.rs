//! Devices behind one address do not disturb each other, and a reset one is served again.
//!
//! Their NAT gives all of them one address, and each offer names the device's own. They answer
//! checks and send none, as the firmware does. Source: `docs/spec/devices.md` 5, 9.

use std::time::Duration;

use super::super::*;
use super::device::device;
use super::pair::{ms, secs};
use super::world::World;
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

fn at_port(world: &World, port: u16) -> TestClient {
    device(&format!("{NAT}:{port}"), world.now)
}

/// Connects a device from a port of the NAT. Returns its session.
fn connects(world: &mut World, host: &str, port: u16, habit: Habit) -> u64 {
    let mut client = at_port(world, port);
    if habit == Habit::Talks {
        client.beep(440.0, 100, world.now);
    }
    let number = world.device_calls_from(host, client);
    assert!(world.run_until(secs(5), |world| world.lives[&number].joined().is_some()));
    world.open_audio(number);
    number
}

/// Drops all packets between the device and the runner for a time.
fn gap(world: &mut World, number: u64, time: Duration) {
    world.away.insert(number);
    world.run(time);
    world.away.remove(&number);
}

/// Asserts that a session is unchanged and hears its device.
fn assert_undisturbed(world: &mut World, number: u64, habit: Habit) {
    world.run(secs(1));
    let (frames, heard) = (world.lives[&number].frames, world.clients[&number].heard.len());
    world.run(secs(2));
    let life = &world.lives[&number];
    assert_eq!((life.left(), life.gone), (None, false), "{habit:?}");
    assert!(world.clients[&number].heard.len() - heard >= 98);
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
            let mut world = World::new(true);
            let number = connects(&mut world, HOST, 5_000, habit);
            world.run(secs(4));
            world.away.insert(number);
            world.run(ms(neighbour_after));
            let neighbour = connects(&mut world, NEIGHBOUR, 6_000, Habit::Talks);
            let left = ms(gap) - (world.time() - secs(4)).min(ms(gap)).min(ms(neighbour_after + 200));
            world.run(left);
            world.away.remove(&number);
            assert_undisturbed(&mut world, number, habit);
            assert_undisturbed(&mut world, neighbour, Habit::Talks);
        }
    }
}

/// A push-to-talk device is silent for minutes but answers checks, while other devices come and go.
#[test]
fn another_device_replaces_no_silent_session() {
    let mut world = World::new(true);
    let number = connects(&mut world, HOST, 5_000, Habit::Talks);
    world.run(secs(3));
    world.client(number).mute();
    for port in 6_000..6_020 {
        world.run(ms(3_300));
        let neighbour = connects(&mut world, NEIGHBOUR, port, Habit::Talks);
        world.clients.remove(&neighbour);
        let now = world.now;
        world.life(number).session.handle_probe(now);
        assert_eq!(world.lives[&number].left(), None);
    }
    assert_undisturbed(&mut world, number, Habit::Waits);
    // Nor do offers with the device's own address, while it is present.
    for port in 7_000..7_005 {
        connects(&mut world, HOST, port, Habit::Waits);
        world.run(secs(3));
    }
    assert_undisturbed(&mut world, number, Habit::Waits);
}

/// A reset device connects at once. Its old session ends after the silence that counts as lost,
/// whenever the new one connected. Other devices' sessions continue.
#[test]
fn a_device_at_another_port_replaces_itself() {
    for away in [ms(100), secs(3), secs(5)] {
        let mut world = World::new(true);
        let old = connects(&mut world, HOST, 5_000, Habit::Talks);
        let neighbour = connects(&mut world, NEIGHBOUR, 6_000, Habit::Waits);
        world.run(secs(4));
        world.clients.remove(&old);
        let vanished = world.time();
        world.run(away);
        let began = world.time();
        let new = connects(&mut world, HOST, 5_001, Habit::Talks);
        assert!(world.time() - began < ms(300), "{:?}", world.time() - began);
        assert!(world.run_until(secs(7), |world| world.lives[&old].left().is_some()));
        let (reason, at) = world.lives[&old].left().expect("left");
        assert_eq!(reason, LeaveReason::Replaced);
        assert!(at - vanished <= PEER_LOST_AFTER + ms(50), "{:?}", at - vanished);
        assert_undisturbed(&mut world, new, Habit::Talks);
        assert_undisturbed(&mut world, neighbour, Habit::Waits);
    }
}

/// Without addresses in the offers, a reset device cannot be told from another: the old session
/// ends by its timeout.
#[test]
fn an_ambiguous_device_replaces_no_session() {
    let mut world = World::new(true);
    let old = connects(&mut world, "0.0.0.0", 5_000, Habit::Talks);
    world.run(secs(1));
    world.clients.remove(&old);
    let vanished = world.time();
    world.run(secs(2));
    let new = connects(&mut world, "0.0.0.0", 5_001, Habit::Talks);
    world.run(PEER_FREED_AFTER);
    let (reason, at) = world.lives[&old].left().expect("left");
    assert_eq!(reason, LeaveReason::Vanished);
    assert!(at - vanished >= PEER_FREED_AFTER - ms(50));
    assert_undisturbed(&mut world, new, Habit::Talks);
}

/// Probes a device. Returns the outcome and its delay.
fn inquire(world: &mut World, number: u64) -> (ProbeOutcome, Duration) {
    let (now, began, found) = (world.now, world.time(), world.lives[&number].found.len());
    world.life(number).session.handle_probe(now);
    world.touch(number);
    assert!(world.run_until(secs(3), |world| world.lives[&number].found.len() > found));
    let (at, found) = world.lives[&number].found[found];
    (found, at - began)
}

/// A full runner probes for an offer: a reset device's session ends early enough for it to be
/// connected 2 s after the offer.
#[test]
fn a_probe_detects_a_reset_device() {
    for habit in HABITS {
        for away in [ms(1), ms(300), secs(3)] {
            let mut world = World::new(true);
            let number = connects(&mut world, HOST, 5_000, habit);
            world.run(secs(4));
            world.clients.remove(&number);
            world.run(away);
            let (found, took) = inquire(&mut world, number);
            assert_eq!(found, ProbeOutcome::Silent, "{habit:?}, {away:?}");
            assert!(took <= PROBE_INTERVAL * (PROBE_CHECKS + 1), "{took:?}");
            assert!(took <= ms(1_800) || away < PROBE_INTERVAL, "{took:?}");
            // A second probe has its outcome at once.
            assert_eq!(inquire(&mut world, number), (ProbeOutcome::Silent, Duration::ZERO));
        }
    }
}

/// A present device is found within a round trip, or right after an outage of 1.5 s.
#[test]
fn a_probe_detects_a_present_device() {
    for habit in HABITS {
        let mut world = World::new(true);
        let number = connects(&mut world, HOST, 5_000, habit);
        world.run(ms(4_700));
        let (found, took) = inquire(&mut world, number);
        assert_eq!(found, ProbeOutcome::Present);
        assert!(took <= PROBE_INTERVAL, "{habit:?}: {took:?}");
        for inquiry_after in [0, 100, 700, 1_400] {
            world.run(ms(2_345));
            gap(&mut world, number, ms(inquiry_after));
            world.away.insert(number);
            let now = world.now;
            let found = world.lives[&number].found.len();
            world.life(number).session.handle_probe(now);
            world.touch(number);
            world.run(ms(1_500 - inquiry_after));
            world.away.remove(&number);
            world.run(ms(260));
            let found: Vec<ProbeOutcome> = world.lives[&number].found[found..]
                .iter()
                .map(|(_, found)| *found)
                .collect();
            assert_eq!(found, [ProbeOutcome::Present], "{habit:?}, {inquiry_after} ms");
        }
        assert_undisturbed(&mut world, number, habit);
    }
}

/// Some devices share credentials. A client that knows them can name a device's address in its
/// offer and have its checks answered, which must not end the device's own session.
#[test]
fn known_credentials_do_not_end_a_devices_session() {
    for habit in HABITS {
        let mut world = World::new(true);
        let number = connects(&mut world, HOST, 5_000, habit);
        world.run(secs(2));
        let rival = CompetingSession::AtAddress;
        for _ in 0..20 {
            let now = world.now;
            world.life(number).session.handle_competitor(rival, now);
            world.touch(number);
            world.run(secs(1));
        }
        assert_undisturbed(&mut world, number, habit);
    }
}

/// Notices from another network, or of a session without a device, have no effect.
#[test]
fn sessions_on_other_networks_replace_nothing() {
    let mut world = World::new(true);
    let number = connects(&mut world, HOST, 5_000, Habit::Talks);
    world.run(secs(1));
    let own = world.lives[&number].session.device().expect("a device");
    assert_eq!(own.host, HOST.parse().ok());
    world.clients.remove(&number);
    let now = world.now;
    let elsewhere = DeviceIdentity {
        address: "192.0.2.78:5000".parse().expect("an address"),
        ..own
    };
    world
        .life(number)
        .session
        .handle_competitor(CompetingSession::Device(elsewhere), now);
    world.run(secs(20));
    assert_eq!(world.lives[&number].left(), None);
}
