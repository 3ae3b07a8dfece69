//! WebRTC sessions without callers: bots, slots and ends.

use std::sync::Mutex;

use super::*;
use crate::limits::{
    BOT_GRACE, BOT_GRACE_AT_SHUTDOWN, CONNECT_WITHIN, PENDING_OFFERS_MAX, PENDING_OFFERS_YIELD_AFTER, SHUTDOWN_GRACE,
};

/// Lets the paused clock run for a time.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Every WARN and ERROR line of this process.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Book;

impl log::Log for Book {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            LINES.lock().expect("whole").push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// Returns the lines that contain this word.
fn warned(word: &str) -> Vec<String> {
    let lines = LINES.lock().expect("whole");
    lines.iter().filter(|line| line.contains(word)).cloned().collect()
}

fn keep_lines() {
    if log::set_logger(&Book).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
}

/// A bot that panics or fails ends its own session with one WARN line; the other session goes on.
#[tokio::test(start_paused = true)]
async fn a_bot_that_fails_ends_its_own_session() {
    keep_lines();
    for way in ["panic", "fail"] {
        let mut rig = Rig::new(4);
        let mark = format!("{way}-7f3a");
        let bad = rig
            .session(json!({ "do": way, "mark": mark }))
            .await
            .expect("an answer");
        // A client that connects is told of the end, so the session waits for it.
        pass(Duration::from_secs(5)).await;
        let well = rig.session(json!({})).await.expect("an answer");
        pass(CONNECT_WITHIN - Duration::from_secs(2)).await;
        assert_eq!(rig.engine.sessions().count(), 1, "{way}");
        assert!(rig.knows(&well.pc_id).await && !rig.knows(&bad.pc_id).await);
        let lines = warned(&mark);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("session ended: the bot failed: "), "{lines:?}");
        rig.stop.set();
        assert_eq!(rig.reported().await, "left: runner stopped");
        rig.empty().await;
    }
}

/// Offers up to the cap start sessions, and the next is rejected with the reason. A slot is free
/// once its bot has ended.
#[tokio::test(start_paused = true)]
async fn a_slot_is_free_once_its_bot_has_ended() {
    let mut rig = Rig::new(2);
    rig.session(json!({ "do": "ignore" })).await.expect("an answer");
    rig.session(json!({})).await.expect("an answer");
    assert_eq!(rig.session(json!({})).await.err(), Some(SessionRefusal::Full));
    // The second session ends in time, and the first one's bot uses its grace period.
    pass(CONNECT_WITHIN + Duration::from_secs(1)).await;
    assert_eq!(rig.engine.sessions().count(), 1);
    rig.session(json!({})).await.expect("an answer");
    assert_eq!(rig.session(json!({})).await.err(), Some(SessionRefusal::Full));
    pass(CONNECT_WITHIN + Duration::from_secs(1)).await;
    rig.empty().await;
}

/// A pending offer gives its slot to a new one after a while: the new offer is answered at once,
/// the evicted bot is told, and the cap holds.
#[tokio::test(start_paused = true)]
async fn a_pending_offer_is_evicted() {
    let mut rig = Rig::new(2);
    let silent = rig.session(json!({})).await.expect("an answer");
    rig.session(json!({})).await.expect("an answer");
    pass(PENDING_OFFERS_YIELD_AFTER - Duration::from_millis(1)).await;
    assert_eq!(rig.session(json!({})).await.err(), Some(SessionRefusal::Full));
    pass(Duration::from_millis(1)).await;
    let newcomer = rig.session(json!({})).await.expect("the oldest gives way");
    assert_eq!(rig.reported().await, "left: never connected");
    assert_eq!(rig.engine.sessions().count(), 2);
    pass(Duration::from_secs(1)).await;
    assert!(!rig.knows(&silent.pc_id).await && rig.knows(&newcomer.pc_id).await);
    pass(CONNECT_WITHIN).await;
    rig.empty().await;
}

/// A rejected offer takes no slot and starts no bot.
#[tokio::test(start_paused = true)]
async fn a_rejected_offer_takes_no_slot() {
    let mut rig = Rig::new(1);
    for _ in 0..3 {
        let refused = rig.offer(new("v=0\r\n".into()), json!({})).await;
        assert!(matches!(refused, Err(SessionRefusal::BadSdp(_))), "{refused:?}");
    }
    rig.empty().await;
    assert!(rig.seen.try_recv().is_err());
    rig.session(json!({ "do": "return" })).await.expect("an answer");
    pass(Duration::from_secs(1)).await;
    rig.empty().await;
}

/// A rejected offer costs no pending session its slot.
#[tokio::test(start_paused = true)]
async fn a_rejected_offer_evicts_no_session() {
    let mut rig = Rig::new(1);
    let pending = rig.session(json!({})).await.expect("an answer");
    pass(PENDING_OFFERS_YIELD_AFTER).await;
    let refused = rig.offer(new("v=0\r\n".into()), json!({})).await;
    assert!(matches!(refused, Err(SessionRefusal::Full)), "{refused:?}");
    pass(Duration::from_secs(1)).await;
    assert!(rig.knows(&pending.pc_id).await);
    // An offer that is answered gets the slot.
    let newcomer = rig.session(json!({})).await.expect("the pending one is evicted");
    pass(Duration::from_secs(1)).await;
    assert!(!rig.knows(&pending.pc_id).await && rig.knows(&newcomer.pc_id).await);
    pass(CONNECT_WITHIN).await;
    rig.empty().await;
}

/// An offer for which there is no slot is refused as such: it is not negotiated, which costs more
/// than the rest of a request, so its SDP does not matter.
#[tokio::test(start_paused = true)]
async fn an_offer_without_a_slot_is_not_negotiated() {
    let mut rig = Rig::new(4 * PENDING_OFFERS_MAX);
    for _ in 0..PENDING_OFFERS_MAX {
        rig.session(json!({})).await.expect("an answer");
    }
    let refused = rig.offer(new("v=0\r\n".into()), json!({})).await;
    assert_eq!(refused.err(), Some(SessionRefusal::Full));
    pass(CONNECT_WITHIN + Duration::from_secs(1)).await;
    rig.empty().await;
}

/// A bot that goes on after its caller has left is aborted after its grace period. Its session is
/// unreachable meanwhile.
#[tokio::test(start_paused = true)]
async fn a_bot_that_ignores_its_end_is_aborted() {
    let mut rig = Rig::new(1);
    let answer = rig.session(json!({ "do": "ignore" })).await.expect("an answer");
    pass(CONNECT_WITHIN + Duration::from_millis(900)).await;
    assert!(!rig.knows(&answer.pc_id).await);
    pass(BOT_GRACE - Duration::from_secs(1)).await;
    assert_eq!(
        (rig.stubborn.load(Ordering::Relaxed), rig.engine.sessions().count()),
        (1, 1)
    );
    pass(Duration::from_secs(1)).await;
    assert_eq!(
        (rig.stubborn.load(Ordering::Relaxed), rig.engine.sessions().count()),
        (0, 0)
    );
    rig.empty().await;
}

/// At shutdown every session is told, a cooperative bot ends at once, others are aborted within the
/// shutdown time, and offers are rejected.
#[tokio::test(start_paused = true)]
async fn shutdown_ends_every_session() {
    let mut rig = Rig::new(8);
    for body in [json!({}), json!({ "do": "ignore" }), json!({})] {
        rig.session(body).await.expect("an answer");
    }
    pass(Duration::from_secs(1)).await;
    let stopped = tasks::now();
    rig.stop.set();
    for _ in 0..2 {
        assert_eq!(rig.reported().await, "left: runner stopped");
    }
    rig.empty().await;
    assert!(tasks::now() - stopped < SHUTDOWN_GRACE, "{:?}", tasks::now() - stopped);
    assert_eq!(rig.session(json!({})).await.err(), Some(SessionRefusal::Stopping));
}

/// The bot of an ended session gets its whole grace period, unless the runner stops meanwhile.
#[tokio::test(start_paused = true)]
async fn shutdown_shortens_a_grace_period() {
    let mut rig = Rig::new(1);
    rig.session(json!({ "do": "ignore" })).await.expect("an answer");
    pass(CONNECT_WITHIN + Duration::from_secs(2)).await;
    let stopped = tasks::now();
    rig.stop.set();
    rig.empty().await;
    let took = tasks::now() - stopped;
    assert!(took <= BOT_GRACE_AT_SHUTDOWN + Duration::from_millis(10), "{took:?}");
}

/// The bot gets the data of the offer, or else that of `/start`.
#[tokio::test(start_paused = true)]
async fn data_of_the_offer_overrides_the_body() {
    let mut rig = Rig::new(2);
    let sdp = TestClient::at("127.0.0.1:9", tasks::now()).offer();
    let offer = OfferBody {
        request_data: Some(json!({ "do": "return" })),
        ..new(sdp)
    };
    rig.offer(offer, json!({ "do": "ignore" })).await.expect("an answer");
    pass(Duration::from_secs(1)).await;
    assert_eq!(rig.stubborn.load(Ordering::Relaxed), 0);
    rig.empty().await;
}

/// Nothing holds the driver once its sessions are gone.
#[tokio::test(start_paused = true)]
async fn nothing_holds_the_driver_after_its_sessions() {
    let mut rig = Rig::new(64);
    for _ in 0..4 {
        for number in 0..PENDING_OFFERS_MAX {
            let what = ["panic", "fail", "return", "listen"][number % 4];
            rig.session(json!({ "do": what })).await.expect("an answer");
        }
        pass(CONNECT_WITHIN + Duration::from_secs(2)).await;
    }
    rig.empty().await;
    let engine = Arc::downgrade(&rig.engine.shared);
    drop(rig);
    assert!(engine.upgrade().is_none());
}

/// A draining runner rejects new clients; a connected one may still restart its connection.
#[tokio::test(start_paused = true)]
async fn a_draining_runner_keeps_connected_clients() {
    let mut rig = Rig::new(4);
    let mut client = TestClient::at("127.0.0.1:9000", tasks::now());
    let answer = rig.offer(new(client.offer()), json!({})).await.expect("an answer");
    client.accept(&answer.sdp);
    rig.engine.sessions().close();
    assert_eq!(rig.session(json!({})).await.err(), Some(SessionRefusal::Stopping));
    let again = client.change(|api| drop(api.ice_restart(false)));
    let renegotiated = rig.offer(known(again, &answer.pc_id, false), json!({})).await;
    client.accept(&renegotiated.expect("an answer").sdp);
    let other = TestClient::at("127.0.0.1:9001", tasks::now()).offer();
    let restarted = rig.offer(known(other, &answer.pc_id, true), json!({})).await;
    assert!(restarted.is_ok(), "{restarted:?}");
    assert_eq!(rig.engine.sessions().count(), 1);
    // Without a caller it ends by its own timeout, not because of the drain.
    assert_eq!(rig.reported().await, "left: never connected");
    rig.empty().await;
}
