//! WebRTC sessions with callers over loopback.

use std::net::Ipv4Addr;

use super::*;
use crate::limits::{PEER_FREED_AFTER, PEER_LOST_AFTER, PROBE_CHECKS, PROBE_INTERVAL};
use crate::proto::testing::device::{as_device, device};

/// A whole session: the bot sees the caller join, speak and leave, and answers.
#[tokio::test]
async fn a_whole_session_runs() {
    let mut rig = Rig::new(2);
    let mut caller = Caller::new().await;
    caller.call(&mut rig, json!({})).await;
    assert_eq!(rig.reported().await, "Joined");
    caller.client.send("hello");
    caller.client.speak(440.0, tasks::now());
    caller
        .until(|client| !client.read.is_empty() && client.received.len() > 60)
        .await;
    assert_eq!(caller.client.texts(), ["you said hello"]);
    let reported = rig.until_reported("a second of audio").await;
    assert_eq!(reported, ["message hello"]);
    caller.client.rtc.close().expect("closing");
    caller.flush().await;
    rig.until_reported("left: caller left").await;
    rig.empty().await;
}

/// A caller that vanishes is detected and freed by timeouts alone.
#[tokio::test]
async fn a_vanished_caller_is_freed() {
    let mut rig = Rig::new(2);
    let mut caller = Caller::new().await;
    caller.call(&mut rig, json!({})).await;
    rig.until_reported("Joined").await;
    tokio::time::pause();
    let vanished = tasks::now();
    rig.until_reported("Lost").await;
    assert!(tasks::now() - vanished <= PEER_LOST_AFTER + Duration::from_millis(50));
    rig.until_reported("left: caller vanished").await;
    assert!(tasks::now() - vanished <= PEER_FREED_AFTER + Duration::from_millis(50));
    rig.empty().await;
}

/// A known connection is renegotiated under its id, or restarted under a new one with the same bot.
/// The former id stays valid, because the answer may be lost. A restart does not revive an unknown
/// connection. Source: `docs/spec/signalling.md`.
#[tokio::test]
async fn a_known_connection_keeps_its_bot() {
    let mut rig = Rig::new(2);
    let mut caller = Caller::new().await;
    let first = caller.call(&mut rig, json!({})).await;
    rig.until_reported("Joined").await;

    let sdp = caller.client.change(|api| {
        api.ice_restart(true);
    });
    let again = rig
        .offer(known(sdp, &first.pc_id, false), json!({ "do": "fail" }))
        .await;
    let again = again.expect("an answer");
    assert_eq!(again.pc_id, first.pc_id);
    caller.client.accept(&again.sdp);
    caller.client.send("renegotiated");
    caller.until(|client| client.read.len() == 1).await;
    rig.until_reported("message renegotiated").await;

    // The answers to the first two restarts are lost, so the client repeats the id it has.
    let mut names = Vec::new();
    for _ in 0..3 {
        caller = Caller::new().await;
        let offer = known(caller.client.offer(), &first.pc_id, true);
        let answer = rig.offer(offer, json!({ "do": "fail" })).await.expect("an answer");
        assert!(answer.pc_id != first.pc_id && !names.contains(&answer.pc_id));
        caller.client.accept(&answer.sdp);
        names.push(answer.pc_id);
    }
    caller.connect().await;
    caller.client.send("restarted");
    caller.until(|client| client.read.len() == 1).await;
    let reported = rig.until_reported("message restarted").await;
    assert!(!reported.iter().any(|reported| reported == "Joined"), "{reported:?}");
    assert_eq!(rig.engine.sessions().count(), 1);
    assert!(rig.knows(&first.pc_id).await && rig.knows(&names[2]).await);
    assert!(!rig.knows(&names[0]).await && !rig.knows(&names[1]).await);

    caller.client.rtc.close().expect("closing");
    caller.flush().await;
    rig.until_reported("left: caller left").await;
    rig.empty().await;
    // A restart does not bring back a bot that has hung up.
    let sdp = Caller::new().await.client.offer();
    let late = rig.offer(known(sdp, &names[2], true), json!({})).await;
    assert_eq!(late.err(), Some(SessionRefusal::UnknownConnection));
}

/// A bot that panics during a call ends that call, its caller is told, and the other call goes on.
#[tokio::test]
async fn a_panic_ends_one_call() {
    let mut rig = Rig::new(2);
    let (mut one, mut two) = (Caller::new().await, Caller::new().await);
    one.call(&mut rig, json!({})).await;
    two.call(&mut rig, json!({ "do": "obey" })).await;
    two.client.send("panic");
    two.until(|client| client.closed.is_some()).await;
    assert!(two.client.texts()[0].contains("peerLeft"), "{:?}", two.client.texts());
    one.client.send("still here?");
    one.until(|client| client.read.len() == 1).await;
    assert_eq!(one.client.texts(), ["you said still here?"]);
    rig.stop.set();
    one.until(|client| client.closed.is_some()).await;
    rig.empty().await;
}

/// A peer that fills its inbox faster than it is read blocks neither deadlines nor shutdown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_does_not_delay_deadlines() {
    let mut rig = Rig::new(1);
    let mut caller = Caller::new().await;
    caller.call(&mut rig, json!({})).await;
    rig.until_reported("Joined").await;
    let source = caller.client.address;
    let (port, over) = (rig.engine.shared.sockets.port.clone(), Arc::new(AtomicBool::new(false)));
    let flooding = {
        let over = over.clone();
        std::thread::spawn(move || {
            // A DTLS record takes the longest to be rejected.
            let mut record = vec![23, 254, 253, 0, 1, 0, 0, 0, 1, 0, 0, 4, 0];
            record.resize(13 + 1_024, 7);
            let mut arena = bytes::BytesMut::new();
            for number in 0u32.. {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                record[7..11].copy_from_slice(&number.to_be_bytes());
                port.inject(source, &record, &mut arena);
            }
        })
    };
    caller.client.received.clear();
    caller.until(|client| client.received.len() > 100).await;
    rig.stop.set();
    rig.until_reported("left: runner stopped").await;
    rig.empty().await;
    over.store(true, Ordering::Relaxed);
    flooding.join().expect("no panic");
}

async fn device_caller() -> Caller {
    device_caller_at(Ipv4Addr::LOCALHOST).await
}

async fn device_caller_at(address: Ipv4Addr) -> Caller {
    let mut caller = Caller::at(address).await;
    caller.client = device(&caller.client.address.to_string(), tasks::now());
    caller
}

async fn device_calls(rig: &mut Rig, caller: &mut Caller) {
    let offer = new(as_device(caller.client.offer()));
    let answer = rig.offer(offer, json!({})).await.expect("an answer");
    caller.client.accept(&answer.sdp);
    caller
        .until(|client| client.connected && client.received.len() > 5)
        .await;
}

/// A device that returns after a reset replaces its own silent session, and no other.
#[tokio::test]
async fn a_reset_device_replaces_its_own_session() {
    let mut rig = Rig::with(config(Some(Ipv4Addr::LOCALHOST)), 4);
    let (mut live, mut reset) = (device_caller().await, device_caller().await);
    device_calls(&mut rig, &mut live).await;
    device_calls(&mut rig, &mut reset).await;
    assert_eq!(rig.engine.sessions().count(), 2);
    // Both devices share an address; one has lost power, and the other one speaks.
    live.client.speak(440.0, tasks::now());
    let mut back = device_caller().await;
    device_calls(&mut rig, &mut back).await;
    back.client.speak(440.0, tasks::now());
    let silent = tasks::now() + PEER_LOST_AFTER + Duration::from_secs(1);
    tokio::join!(
        live.until(|_| tasks::now() > silent),
        back.until(|_| tasks::now() > silent)
    );
    rig.until_reported("left: replaced by a new session of the same device")
        .await;
    assert_eq!(rig.engine.sessions().count(), 2);
    rig.stop.set();
    rig.empty().await;
}

/// A full runner checks the sessions of the offer's own device only. The one without an answer
/// loses its slot, and its bot has its time to end.
#[tokio::test]
async fn a_reset_device_gets_its_slot_on_a_full_runner() {
    let mut rig = Rig::with(config(Some(Ipv4Addr::LOCALHOST)), 2);
    let (mut live, mut reset) = (device_caller().await, device_caller().await);
    device_calls(&mut rig, &mut live).await;
    device_calls(&mut rig, &mut reset).await;
    live.client.mute();
    let mut back = device_caller().await;
    let offer = new(as_device(back.client.offer()));
    let began = tasks::now();
    let answer = tokio::select! {
        answer = rig.offer(offer, json!({})) => answer.expect("a free slot"),
        () = live.until(|_| false) => unreachable!("it goes on for ever"),
    };
    back.client.accept(&answer.sdp);
    tokio::select! {
        () = back.until(|client| client.connected) => {}
        () = live.until(|_| false) => unreachable!("it goes on for ever"),
    }
    let took = tasks::now() - began;
    assert!(took >= PROBE_INTERVAL * PROBE_CHECKS, "{took:?}");
    rig.until_reported("left: replaced by a new session of the same device")
        .await;
    assert_eq!(rig.engine.sessions().count(), 2);
    // All of them are alive now, so no session loses its slot.
    let another = new(as_device(device_caller().await.client.offer()));
    tokio::select! {
        refused = rig.offer(another, json!({})) => assert_eq!(refused.err(), Some(SessionRefusal::Full)),
        () = async { tokio::join!(live.until(|_| false), back.until(|_| false)); } => unreachable!("they go on for ever"),
    }
    rig.stop.set();
    rig.empty().await;
}

/// Only a device waits for a slot, and only if a session may be its own.
#[tokio::test]
async fn only_a_device_waits_for_a_slot() {
    let mut rig = Rig::with(config(Some(Ipv4Addr::LOCALHOST)), 1);
    let mut reset = device_caller().await;
    device_calls(&mut rig, &mut reset).await;
    let browser = TestClient::at("127.0.0.1:9", tasks::now()).offer();
    let neighbour = as_device(TestClient::at("127.0.0.2:9", tasks::now()).offer());
    let began = tasks::now();
    for offer in [browser, neighbour] {
        assert_eq!(rig.offer(new(offer), json!({})).await.err(), Some(SessionRefusal::Full));
    }
    assert!(tasks::now() - began < PROBE_INTERVAL * PROBE_CHECKS);
    rig.stop.set();
    rig.empty().await;
}

/// A device that returns from the same port replaces its session at once, even an active one.
#[tokio::test]
async fn a_reset_device_at_the_same_port_replaces_its_session_at_once() {
    let mut rig = Rig::with(config(Some(Ipv4Addr::LOCALHOST)), 4);
    let mut caller = device_caller().await;
    device_calls(&mut rig, &mut caller).await;
    caller.client = device(&caller.client.address.to_string(), tasks::now());
    device_calls(&mut rig, &mut caller).await;
    rig.until_reported("left: replaced by a new session of the same device")
        .await;
    caller.until(|client| client.received.len() > 60).await;
    assert_eq!(rig.engine.sessions().count(), 1);
    rig.stop.set();
    rig.empty().await;
}
