//! Devices behind one address: neighbours leave each other alone, and one that was reset gets its place back.
//!
//! A NAT gives all of them the same address; each offer names the address of the device itself. They
//! answer checks and make none, as the voice firmware does. Source: the embedded fact sheet, section 5.

use std::time::Duration;

use super::super::*;
use super::device::device;
use super::pair::{ms, secs};
use super::world::World;
use crate::limits::{INQUIRY_CHECKS, INQUIRY_INTERVAL, PEER_FREED_AFTER, PEER_LOST_AFTER};
use crate::testing::client::TestClient;

const NAT: &str = "192.0.2.77";
const HOST: &str = "10.0.0.5";
const NEIGHBOUR: &str = "10.0.0.6";

/// A device that talks; or it pushes to talk, and says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    Talks,
    Waits,
}

const HABITS: [Habit; 2] = [Habit::Talks, Habit::Waits];

fn at_port(world: &World, port: u16) -> TestClient {
    device(&format!("{NAT}:{port}"), world.now)
}

/// Lets a device connect from that port of the NAT; returns its session.
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

/// Nothing passes between the device and the runner for so long.
fn gap(world: &mut World, number: u64, time: Duration) {
    world.away.insert(number);
    world.run(time);
    world.away.remove(&number);
}

/// Asserts that a session is as if nothing had been, and hears its device.
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

/// The finding of the review: nothing passes for 1.5 s, and a neighbour connects meanwhile. Also for
/// every longer gap up to the limit, wherever in it the neighbour comes.
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

/// The other finding: a device that pushes to talk says nothing for minutes, and answers every check.
/// Neighbours come and go.
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
    // Nor do offers that name the device's own address, as long as it is there.
    for port in 7_000..7_005 {
        connects(&mut world, HOST, port, Habit::Waits);
        world.run(secs(3));
    }
    assert_undisturbed(&mut world, number, Habit::Waits);
}

/// A device that was reset is connected at once; its old session goes when it has been silent for as
/// long as makes a caller lost, wherever the new one connected in that time. A neighbour's stays.
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

/// Where the offers name no address, nobody can tell a device that was reset from a neighbour: the
/// old session has its time, and is given up with it.
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

/// Inquires whether a device is there, and returns what was found, and after which time.
fn inquire(world: &mut World, number: u64) -> (ProbeOutcome, Duration) {
    let (now, began, found) = (world.now, world.time(), world.lives[&number].found.len());
    world.life(number).session.handle_probe(now);
    world.touch(number);
    assert!(world.run_until(secs(3), |world| world.lives[&number].found.len() > found));
    let (at, found) = world.lives[&number].found[found];
    (found, at - began)
}

/// An inquiry that a full runner makes for an offer: a device that was reset has lost its place
/// early enough for its next connection to be there 2 s after the offer, however it lived before.
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
            assert!(took <= INQUIRY_INTERVAL * (INQUIRY_CHECKS + 1), "{took:?}");
            assert!(took <= ms(1_800) || away < INQUIRY_INTERVAL, "{took:?}");
            // The next one who asks need not wait.
            assert_eq!(inquire(&mut world, number), (ProbeOutcome::Silent, Duration::ZERO));
        }
    }
}

/// A device that is there is found within a round trip; in a gap of 1.5 s as soon as that is over,
/// whenever in it the inquiry came.
#[test]
fn a_probe_detects_a_present_device() {
    for habit in HABITS {
        let mut world = World::new(true);
        let number = connects(&mut world, HOST, 5_000, habit);
        world.run(ms(4_700));
        let (found, took) = inquire(&mut world, number);
        assert_eq!(found, ProbeOutcome::Present);
        assert!(took <= INQUIRY_INTERVAL, "{habit:?}: {took:?}");
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

/// Some devices all have the same credentials. Who knows them can offer a session that names a
/// device's address, and the device answers its checks: that is no reason to end the device's own.
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

/// A rival that is no neighbour's: of another network, or of a session that is no device's.
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
