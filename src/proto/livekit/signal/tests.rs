//! The signalling client against messages of a server, as bytes. Source: `docs/spec/livekit.md` 3
//! to 5.

use super::wire::{
    ParticipantInfo, ParticipantPermission, ParticipantUpdate, RoomIceServer, RoomInfo, RoomUpdate, SignalResponse,
    SpeakerInfo, SpeakersChanged, TrackInfo, TrackUnpublishedResponse,
};
use super::*;
use crate::limits::{
    ROOM_ATTRIBUTES_BYTES_MAX, ROOM_MESSAGE_BYTES_MAX, ROOM_MESSAGE_PARTS_MAX, ROOM_PARTICIPANTS_MAX, ROOM_TRACKS_MAX,
};
use crate::participant::Participant;

/// The time of the first ping, in Unix milliseconds.
const UNIX_MS: u64 = 1_795_252_753_000;

struct Client {
    signal: SignalClient,
    start: Instant,
    now: Instant,
}

fn bytes(message: ServerMessage) -> Bytes {
    SignalResponse { message: Some(message) }.encode_to_vec().into()
}

fn track(sid: &str, kind: TrackType) -> TrackInfo {
    TrackInfo {
        sid: sid.into(),
        kind: kind as i32,
        ..TrackInfo::default()
    }
}

/// A participant with one microphone, `TR_` and the identity.
fn participant_info(sid: &str, identity: &str) -> ParticipantInfo {
    ParticipantInfo {
        sid: sid.into(),
        identity: identity.into(),
        state: 2,
        tracks: vec![track(&format!("TR_{identity}"), TrackType::Audio)],
        name: format!("{identity}!"),
        version: 1,
        ..ParticipantInfo::default()
    }
}

fn departed(sid: &str, identity: &str) -> ParticipantInfo {
    ParticipantInfo {
        state: 3,
        version: 9,
        ..participant_info(sid, identity)
    }
}

fn update(participants: impl Into<Vec<ParticipantInfo>>) -> ServerMessage {
    let participants = participants.into();
    ServerMessage::Update(ParticipantUpdate { participants })
}

fn join(others: impl Into<Vec<ParticipantInfo>>) -> JoinResponse {
    JoinResponse {
        room: Some(RoomInfo {
            name: "room-1".into(),
            ..RoomInfo::default()
        }),
        participant: Some(ParticipantInfo {
            sid: "PA_own".into(),
            identity: "Agent-1".into(),
            ..ParticipantInfo::default()
        }),
        other_participants: others.into(),
        server_version: "1.13.5".into(),
        subscriber_primary: true,
        ping_timeout: 15,
        ping_interval: 5,
        fast_publish: true,
        ..JoinResponse::default()
    }
}

fn participant(identity: &str, is_agent: bool) -> Participant {
    Participant {
        identity: identity.into(),
        name: format!("{identity}!"),
        is_agent,
        ..Participant::default()
    }
}

fn joined(identity: &str) -> SignalOutput {
    SignalOutput::Change(RosterChange::Joined(participant(identity, false)))
}

fn left(identity: &str) -> SignalOutput {
    SignalOutput::Change(RosterChange::Left(participant(identity, false)))
}

fn speaking(identity: &str, speaking: bool) -> SignalOutput {
    SignalOutput::Change(RosterChange::Speaking {
        identity: identity.into(),
        speaking,
    })
}

fn sent(message: SignalRequestKind) -> SignalOutput {
    SignalOutput::Send(SignalRequest { message: Some(message) }.encode_to_vec())
}

fn subscribed(sids: &[&str]) -> SignalOutput {
    sent(SignalRequestKind::Subscription(UpdateSubscription {
        track_sids: sids.iter().map(|sid| (*sid).to_owned()).collect(),
        subscribe: true,
    }))
}

fn candidate(target: SignalTarget, candidate: &str) -> SignalOutput {
    SignalOutput::Candidate {
        target,
        candidate: candidate.into(),
    }
}

fn trickled(target: SignalTarget, init: &str) -> ServerMessage {
    ServerMessage::Trickle(TrickleRequest {
        candidate_init: init.into(),
        target: target as i32,
        last: false,
    })
}

fn offer(id: u32) -> ServerMessage {
    ServerMessage::Offer(SessionDescription {
        kind: "offer".into(),
        sdp: format!("v={id}"),
        id,
        mid_to_track_id: [("0".to_owned(), "TR_ann".to_owned())].into(),
    })
}

fn answer(id: u32) -> ServerMessage {
    ServerMessage::Answer(SessionDescription {
        kind: "answer".into(),
        sdp: format!("v={id}"),
        id,
        ..SessionDescription::default()
    })
}

impl Client {
    fn new() -> Client {
        let start = Instant::now();
        Client {
            signal: SignalClient::new(start),
            start,
            now: start,
        }
    }

    /// A client that has joined, without the outputs of the join.
    fn joined_with(others: impl Into<Vec<ParticipantInfo>>) -> Client {
        let mut client = Client::new();
        let outputs = client.receive(ServerMessage::Join(Box::new(join(others))));
        assert!(matches!(outputs[0], SignalOutput::Joined(_)));
        client
    }

    fn outputs(&mut self) -> Vec<SignalOutput> {
        std::iter::from_fn(|| self.signal.poll_output()).collect()
    }

    fn receive(&mut self, message: ServerMessage) -> Vec<SignalOutput> {
        self.signal.handle_message(bytes(message), self.now).expect("a message");
        self.outputs()
    }

    fn receive_invalid(&mut self, bytes: impl Into<Bytes>) -> String {
        let refused = self.signal.handle_message(bytes.into(), self.now).expect_err("refused");
        assert_eq!(self.outputs(), []);
        refused.to_string()
    }

    /// Advances the clock to this many milliseconds after the start.
    fn at(&mut self, ms: u64) -> Vec<SignalOutput> {
        self.now = self.start + Duration::from_millis(ms);
        self.signal.handle_timeout(self.now, UNIX_MS + ms);
        self.outputs()
    }

    fn due_ms(&self) -> Option<u128> {
        self.signal
            .poll_timeout()
            .map(|due| due.duration_since(self.start).as_millis())
    }
}

fn ping(ms: u64, rtt: i64) -> SignalOutput {
    sent(SignalRequestKind::Ping(Ping {
        timestamp: (UNIX_MS + ms) as i64,
        rtt,
    }))
}

fn pong(ms: u64) -> ServerMessage {
    ServerMessage::Pong(Pong {
        last_ping_timestamp: (UNIX_MS + ms) as i64,
        timestamp: 1,
    })
}

// ---- join

/// Notes 4, rule 1: the join names us and the others. The audio of the callers is subscribed to in
/// one request.
#[test]
fn a_join_lists_participants() {
    let mut client = Client::new();
    let bot = ParticipantInfo {
        kind: 4,
        ..participant_info("PA_b", "bot")
    };
    let outputs = client.receive(ServerMessage::Join(Box::new(join([
        participant_info("PA_a", "ann"),
        bot,
        participant_info("PA_c", "cid"),
    ]))));
    assert_eq!(
        outputs,
        [
            SignalOutput::Joined(JoinInfo {
                room_name: "room-1".into(),
                sid: "PA_own".into(),
                subscriber_primary: true,
                fast_publish: true,
                server_version: "1.13.5".into(),
            }),
            joined("ann"),
            SignalOutput::Change(RosterChange::Joined(participant("bot", true))),
            joined("cid"),
            subscribed(&["TR_ann", "TR_cid"]),
        ]
    );
    assert_eq!(client.signal.callers(), 2);
    // A second join changes nothing.
    assert_eq!(client.receive(ServerMessage::Join(Box::new(join([])))), []);
    assert_eq!(client.signal.callers(), 2);
}

#[test]
fn rejects_a_join_without_our_identity() {
    let long = "x".repeat(257);
    for (sid, identity) in [
        ("", ""),
        ("PA_own", ""),
        ("", "Agent-1"),
        (&long, "Agent-1"),
        ("PA_own", &long),
    ] {
        let mut client = Client::new();
        let own = ParticipantInfo {
            sid: sid.into(),
            identity: identity.into(),
            ..ParticipantInfo::default()
        };
        let unidentified = JoinResponse {
            participant: Some(own),
            ..join([])
        };
        let words = client.receive_invalid(bytes(ServerMessage::Join(Box::new(unidentified))));
        assert_eq!(words, "a join without our identity");
        // A complete one is still accepted.
        assert!(!client.receive(ServerMessage::Join(Box::new(join([])))).is_empty());
    }
}

/// A token is not sent to a server that another one names.
#[test]
fn does_not_follow_an_alternative_url() {
    let elsewhere = JoinResponse {
        alternative_url: "wss://elsewhere.example".into(),
        ..JoinResponse::default()
    };
    let words = Client::new().receive_invalid(bytes(ServerMessage::Join(Box::new(elsewhere))));
    assert!(
        words.contains("MEDIAROOM_URL") && !words.contains("elsewhere.example"),
        "{words}"
    );
}

#[test]
fn only_leave_and_token_count_before_the_join() {
    let mut client = Client::new();
    assert_eq!(client.receive(update([participant_info("PA_a", "ann")])), []);
    assert_eq!(client.receive(offer(1)), []);
    assert_eq!(client.signal.callers(), 0);
    assert_eq!(client.signal.track_owner("TR_ann"), None);
    assert_eq!(
        client.receive(ServerMessage::RefreshToken("a.b".into())),
        [SignalOutput::Token(Secret::new("a.b"))]
    );
    let leave = ServerMessage::Leave(LeaveRequest {
        reason: 7,
        ..LeaveRequest::default()
    });
    assert_eq!(
        client.receive(leave),
        [SignalOutput::Leave {
            reason: 7,
            action: LeaveAction::Disconnect
        }]
    );
}

// ---- liveness

/// Notes 4, rule 7: a ping in each interval, with the last measured round trip.
#[test]
fn sends_pings_with_the_last_round_trip() {
    let mut client = Client::joined_with([]);
    assert_eq!(client.due_ms(), Some(5_000));
    assert_eq!(client.at(4_999), []);
    assert_eq!(client.at(5_000), [ping(5_000, 0)]);
    client.now += Duration::from_millis(120);
    assert_eq!(client.receive(pong(5_000)), []);
    assert_eq!(client.due_ms(), Some(10_000));
    assert_eq!(client.at(10_000), [ping(10_000, 120)]);
    // An answer to an earlier ping, a foreign one, and a repeated one measure nothing.
    for ms in [5_000, 77] {
        client.receive(pong(ms));
    }
    assert_eq!(client.at(15_000), [ping(15_000, 120)]);
    client.now += Duration::from_millis(30);
    client.receive(pong(15_000));
    client.now += Duration::from_millis(1_000);
    client.receive(pong(15_000));
    assert_eq!(client.at(20_000), [ping(20_000, 30)]);
}

/// Notes 4, rule 7: any message of the server counts, and its silence ends the connection once.
#[test]
fn a_silent_server_times_out() {
    let mut client = Client::joined_with([]);
    client.at(9_000);
    client.receive(ServerMessage::RoomUpdate(RoomUpdate::default()));
    client.at(19_000);
    client.at(23_999);
    assert_eq!(client.due_ms(), Some(24_000));
    assert_eq!(client.at(24_000), [SignalOutput::PingTimeout]);
    assert_eq!(client.due_ms(), None);
    assert_eq!(client.at(60_000), []);
    assert_eq!(client.receive(update([participant_info("PA_a", "ann")])), []);
    client.signal.offer("v=0".into());
    assert_eq!(client.outputs(), []);
}

#[test]
fn a_server_without_a_join_times_out_without_pings() {
    let mut client = Client::new();
    assert_eq!(client.due_ms(), Some(15_000));
    assert_eq!(client.at(14_999), []);
    assert_eq!(client.at(15_000), [SignalOutput::PingTimeout]);
}

/// No number of a server stops the pings, floods them, or makes the timeout shorter than the
/// interval.
#[test]
fn clamps_ping_times() {
    for (interval, timeout, ping_s, silent_s) in [
        (0, 0, 5, 15),
        (-1, i32::MIN, 5, 15),
        (10, 45, 10, 45),
        (1, 1, 1, 4),
        (30, 5, 30, 33),
        (i32::MAX, i32::MAX, 30, 60),
    ] {
        let mut client = Client::new();
        let numbers = JoinResponse {
            ping_interval: interval,
            ping_timeout: timeout,
            ..join([])
        };
        client.receive(ServerMessage::Join(Box::new(numbers)));
        assert_eq!(client.due_ms(), Some(u128::from(ping_s) * 1_000), "{interval}");
        assert_eq!(client.at(ping_s * 1_000).len(), 1);
        assert!(
            !client.at(silent_s * 1_000 - 1).contains(&SignalOutput::PingTimeout),
            "{timeout}"
        );
        assert!(
            client.at(silent_s * 1_000).contains(&SignalOutput::PingTimeout),
            "{timeout}"
        );
    }
}

/// Invalid bytes are no sign of life.
#[test]
fn invalid_bytes_do_not_reset_the_ping_timeout() {
    let mut client = Client::joined_with([]);
    client.at(14_000);
    assert!(client.receive_invalid(&b"\xff"[..]).contains("not a LiveKit message"));
    assert_eq!(client.at(15_000), [SignalOutput::PingTimeout]);
}

// ---- offers and answers

/// Notes 4, rule 3: own offers count from 1. An answer to an older offer, or a second answer, is
/// dropped.
#[test]
fn accepts_only_the_answer_to_the_last_offer() {
    let mut client = Client::joined_with([]);
    let described = |kind: &str, id: u32| SessionDescription {
        kind: kind.into(),
        sdp: format!("o={id}"),
        id,
        ..SessionDescription::default()
    };
    assert_eq!(client.receive(answer(0)), []);
    client.signal.offer("o=1".into());
    client.signal.offer("o=2".into());
    assert_eq!(
        client.outputs(),
        [
            sent(SignalRequestKind::Offer(described("offer", 1))),
            sent(SignalRequestKind::Offer(described("offer", 2)))
        ]
    );
    let handed_on = |id: u32| [SignalOutput::Answer { sdp: format!("v={id}") }];
    assert_eq!(client.receive(answer(1)), []);
    assert_eq!(client.receive(answer(3)), []);
    assert_eq!(client.receive(answer(2)), handed_on(2));
    assert_eq!(client.receive(answer(2)), []);
    // An old server sends no id.
    client.signal.offer("o=3".into());
    client.outputs();
    assert_eq!(client.receive(answer(0)), handed_on(0));
}

/// Notes 4, rule 2: every offer of the server is answered by its id.
#[test]
fn answers_every_offer_by_its_id() {
    let mut client = Client::joined_with([]);
    for id in [7, 8, 8, 0] {
        assert_eq!(
            client.receive(offer(id)),
            [SignalOutput::Offer {
                sdp: format!("v={id}"),
                id,
                mid_to_track: [("0".to_owned(), "TR_ann".to_owned())].into(),
            }]
        );
        client.signal.answer("v=0".into(), id);
        let described = SessionDescription {
            kind: "answer".into(),
            sdp: "v=0".into(),
            id,
            ..SessionDescription::default()
        };
        assert_eq!(client.outputs(), [sent(SignalRequestKind::Answer(described))]);
    }
}

// ---- candidates

const HOST: &str = "candidate:1 1 udp 2130706431 192.0.2.1 50000 typ host";
const TCP: &str = "candidate:2 1 tcp 1518280447 192.0.2.1 7881 typ host tcptype passive";

/// Notes 4, rule 6: JSON with any further members; both connections, UDP and TCP.
#[test]
fn passes_candidates_of_both_connections() {
    let mut client = Client::joined_with([]);
    client.signal.offer("v=0".into());
    client.outputs();
    client.receive(offer(1));
    for target in [SignalTarget::Publisher, SignalTarget::Subscriber] {
        for (text, found) in [
            (
                format!(r#"{{"candidate":"{HOST}","sdpMid":"0","sdpMLineIndex":0}}"#),
                HOST,
            ),
            (
                format!(r#"{{"candidate":"{TCP}","sdpMid":null,"sdpMLineIndex":null}}"#),
                TCP,
            ),
            (
                format!(r#"{{"candidate":" a={HOST}\r\n","usernameFragment":"x"}}"#),
                HOST,
            ),
        ] {
            assert_eq!(client.receive(trickled(target, &text)), [candidate(target, found)]);
        }
    }
}

#[test]
fn ignores_malformed_candidates() {
    let mut client = Client::joined_with([]);
    client.signal.offer("v=0".into());
    client.outputs();
    let long = format!(r#"{{"candidate":"candidate:{}"}}"#, "x".repeat(512));
    for init in [
        "",
        "null",
        "{}",
        "[]",
        r#"{"candidate":""}"#,
        r#"{"candidate":null}"#,
        r#"{"candidate":1}"#,
        HOST,
        &format!(r#"{{"candidate":"{HOST}\r\na=evil"}}"#),
        &long,
        &"[".repeat(100_000),
    ] {
        assert_eq!(client.receive(trickled(SignalTarget::Publisher, init)), [], "{init}");
    }
    let unknown = TrickleRequest {
        candidate_init: format!(r#"{{"candidate":"{HOST}"}}"#),
        target: 7,
        last: true,
    };
    assert_eq!(client.receive(ServerMessage::Trickle(unknown)), []);
}

/// Notes 4, rule 6: any number of candidates may precede their connection.
#[test]
fn holds_candidates_until_their_connection_exists() {
    let mut client = Client::joined_with([]);
    let numbered = |i: usize| format!("candidate:{i} 1 udp 1 192.0.2.1 50000 typ host");
    let text = |i: usize| format!(r#"{{"candidate":"{}"}}"#, numbered(i));
    assert_eq!(client.receive(trickled(SignalTarget::Publisher, &text(0))), []);
    for i in 1..ROOM_CANDIDATES_HELD_MAX + 10 {
        assert_eq!(client.receive(trickled(SignalTarget::Subscriber, &text(i))), []);
    }
    let outputs = client.receive(offer(1));
    assert!(matches!(outputs[0], SignalOutput::Offer { .. }));
    let kept: Vec<SignalOutput> = (1..ROOM_CANDIDATES_HELD_MAX)
        .map(|i| candidate(SignalTarget::Subscriber, &numbered(i)))
        .collect();
    assert_eq!(outputs[1..], kept);
    client.signal.offer("v=0".into());
    assert_eq!(
        client.outputs()[1..],
        [candidate(SignalTarget::Publisher, &numbered(0))]
    );
    // Once the connection exists, none is held and none is repeated.
    assert_eq!(
        client.receive(trickled(SignalTarget::Subscriber, &text(99))),
        [candidate(SignalTarget::Subscriber, &numbered(99))]
    );
    assert!(matches!(client.receive(offer(2))[..], [SignalOutput::Offer { .. }]));
}

// ---- our track

fn announced() -> AddTrackRequest {
    AddTrackRequest {
        cid: "cid-1".into(),
        name: "bot-audio".into(),
        kind: 0,
        source: 2,
        disable_red: true,
        ..AddTrackRequest::default()
    }
}

fn published(cid: &str, sid: &str) -> ServerMessage {
    ServerMessage::TrackPublished(TrackPublishedResponse {
        cid: cid.into(),
        track: Some(track(sid, TrackType::Audio)),
    })
}

/// Notes 5.1: a microphone without redundancy, named as in `a=msid`.
#[test]
fn reports_the_published_track_once() {
    let mut client = Client::joined_with([]);
    client.signal.add_track("cid-1", "bot-audio");
    assert_eq!(client.outputs(), [sent(SignalRequestKind::AddTrack(announced()))]);
    assert_eq!(client.receive(published("cid-2", "TR_other")), []);
    assert_eq!(client.receive(published("cid-1", "")), []);
    let reported = [SignalOutput::Published { sid: "TR_own".into() }];
    assert_eq!(client.receive(published("cid-1", "TR_own")), reported);
    assert_eq!(client.receive(published("cid-1", "TR_own")), []);
    let nothing = TrackPublishedResponse {
        cid: String::new(),
        track: None,
    };
    assert_eq!(client.receive(ServerMessage::TrackPublished(nothing)), []);
}

/// Notes 4, rule 10: newer servers repeat the request, and may report it as queued.
#[test]
fn reports_a_refused_track_with_its_reason() {
    let response = |reason: i32, message: &str, cid: Option<&str>| {
        ServerMessage::Request(RequestResponse {
            request_id: 0,
            reason,
            message: message.into(),
            add_track: cid.map(|cid| AddTrackRequest {
                cid: cid.into(),
                ..AddTrackRequest::default()
            }),
        })
    };
    for (reason, message, words) in [
        (1, "", "the server does not find the track"),
        (2, "", "the access token does not allow publishing audio"),
        (
            2,
            "no source",
            "the access token does not allow publishing audio: no source",
        ),
        (3, "", "a limit of the server is reached"),
        (5, "", "the server refuses"),
        (-1, "odd", "the server refuses: odd"),
    ] {
        for cid in [None, Some("cid-1")] {
            let mut client = Client::joined_with([]);
            assert_eq!(client.receive(response(reason, message, cid)), []);
            client.signal.add_track("cid-1", "bot-audio");
            client.outputs();
            assert_eq!(client.receive(response(0, "", cid)), []);
            assert_eq!(client.receive(response(4, "", cid)), []);
            assert_eq!(client.receive(response(reason, message, Some("cid-2"))), []);
            assert_eq!(
                client.receive(response(reason, message, cid)),
                [SignalOutput::PublishRefused(words.into())]
            );
            assert_eq!(client.receive(response(reason, message, cid)), []);
        }
    }
    let mut client = Client::joined_with([]);
    client.signal.add_track("cid-1", "bot-audio");
    client.outputs();
    let outputs = client.receive(response(2, &"ä".repeat(100_000), None));
    assert!(matches!(&outputs[..], [SignalOutput::PublishRefused(words)] if words.chars().count() < 300));
}

#[test]
fn reports_an_unpublished_track() {
    let mut client = Client::joined_with([]);
    client.signal.add_track("cid-1", "bot-audio");
    client.outputs();
    client.receive(published("cid-1", "TR_own"));
    let unpublished = |sid: &str| ServerMessage::TrackUnpublished(TrackUnpublishedResponse { track_sid: sid.into() });
    assert_eq!(client.receive(unpublished("TR_other")), []);
    let outputs = client.receive(unpublished("TR_own"));
    assert!(matches!(outputs[..], [SignalOutput::PublishRefused(_)]));
    assert_eq!(client.receive(unpublished("TR_own")), []);
}

// ---- participants

#[test]
fn reports_joining_and_leaving_participants() {
    let mut client = Client::joined_with([]);
    assert_eq!(
        client.receive(update([
            participant_info("PA_a", "ann"),
            participant_info("PA_b", "bob")
        ])),
        [joined("ann"), joined("bob"), subscribed(&["TR_ann", "TR_bob"])]
    );
    assert_eq!(
        client.signal.track_owner("TR_ann").map(|identity| &**identity),
        Some("ann")
    );
    assert_eq!(client.signal.track_owner("TR_x"), None);
    // The same update again.
    assert_eq!(client.receive(update([participant_info("PA_a", "ann")])), []);
    assert_eq!(client.receive(update([departed("PA_a", "ann")])), [left("ann")]);
    assert_eq!(client.signal.track_owner("TR_ann"), None);
    assert_eq!(client.signal.callers(), 1);
    assert_eq!(
        client.receive(update([departed("PA_a", "ann"), departed("PA_z", "zoe")])),
        []
    );
}

#[test]
fn does_not_subscribe_to_departed_participants() {
    let mut client = Client::joined_with([]);
    let hasty = update([participant_info("PA_a", "ann"), departed("PA_a", "ann")]);
    assert_eq!(client.receive(hasty), [joined("ann"), left("ann")]);
}

/// Old servers send only the sid of a departed participant, and its version does not matter.
#[test]
fn identifies_departed_participants_by_sid() {
    let unidentified = ParticipantInfo {
        identity: String::new(),
        version: 0,
        ..departed("PA_a", "")
    };
    let mut client = Client::joined_with([participant_info("PA_a", "ann")]);
    assert_eq!(client.receive(update([unidentified])), [left("ann")]);
}

#[test]
fn ignores_stale_updates() {
    let mut client = Client::joined_with([]);
    let version = |version: u32, tracks: &[&str]| ParticipantInfo {
        version,
        tracks: tracks.iter().map(|sid| track(sid, TrackType::Audio)).collect(),
        ..participant_info("PA_a", "ann")
    };
    client.receive(update([version(5, &["TR_1"])]));
    assert_eq!(client.receive(update([version(4, &["TR_1", "TR_2"])])), []);
    assert_eq!(
        client.receive(update([version(5, &["TR_1", "TR_3"])])),
        [subscribed(&["TR_3"])]
    );
    assert_eq!(client.receive(update([version(6, &[])])), []);
    assert_eq!(client.signal.track_owner("TR_1"), None);
    // A late update does not bring back a departed participant.
    client.receive(update([departed("PA_a", "ann")]));
    assert_eq!(client.receive(update([version(7, &["TR_1"])])), []);
    assert_eq!(client.signal.callers(), 0);
}

/// A reloaded page joins with the same identity and another sid, before or after its earlier join
/// has ended.
#[test]
fn replaces_a_participant_that_rejoins() {
    let again = ParticipantInfo {
        tracks: vec![track("TR_new", TrackType::Audio)],
        version: 0,
        ..participant_info("PA_a2", "ann")
    };
    let mut client = Client::joined_with([participant_info("PA_a", "ann")]);
    assert_eq!(
        client.receive(update([again.clone()])),
        [left("ann"), joined("ann"), subscribed(&["TR_new"])]
    );
    assert_eq!(client.receive(update([departed("PA_a", "ann")])), []);
    assert_eq!(client.receive(update([participant_info("PA_a", "ann")])), []);
    assert_eq!(client.signal.callers(), 1);
    assert_eq!(client.signal.track_owner("TR_ann"), None);

    let mut client = Client::joined_with([participant_info("PA_a", "ann")]);
    assert_eq!(
        client.receive(update([departed("PA_a", "ann"), again])),
        [left("ann"), joined("ann"), subscribed(&["TR_new"])]
    );
    assert_eq!(client.receive(update([departed("PA_a2", "ann")])), [left("ann")]);
}

#[test]
fn never_lists_the_local_participant() {
    let mut client = Client::joined_with([
        participant_info("PA_own", "Agent-1"),
        participant_info("PA_x", "Agent-1"),
    ]);
    assert_eq!(client.signal.callers(), 0);
    for own in [
        participant_info("PA_own", "Agent-1"),
        participant_info("PA_own", "ann"),
        participant_info("PA_y", "Agent-1"),
        departed("PA_own", "Agent-1"),
    ] {
        assert_eq!(client.receive(update([own])), []);
    }
}

/// Two bots would answer each other for ever. A token with the grant alone does not make a
/// participant of kind agent.
#[test]
fn agents_and_recorders_are_not_callers() {
    let permission = |agent: bool, recorder: bool| {
        Some(ParticipantPermission {
            recorder,
            agent,
            ..Default::default()
        })
    };
    for (kind, permission, is_agent) in [
        (0, None, false),
        (0, permission(false, false), false),
        (1, None, false),
        (2, None, true),
        (3, None, false),
        (4, None, true),
        (7, None, false),
        (0, permission(true, false), true),
        (0, permission(false, true), true),
    ] {
        let mut client = Client::joined_with([]);
        let info = ParticipantInfo {
            kind,
            permission,
            ..participant_info("PA_a", "ann")
        };
        let outputs = client.receive(update([info]));
        let ann = Participant {
            is_telephone: kind == 3,
            ..participant("ann", is_agent)
        };
        assert_eq!(outputs[0], SignalOutput::Change(RosterChange::Joined(ann)));
        assert_eq!(outputs.len(), if is_agent { 1 } else { 2 });
        assert_eq!(client.signal.callers(), usize::from(!is_agent), "{kind}");
        assert_eq!(client.signal.track_owner("TR_ann").is_none(), is_agent);
    }
}

/// The server sends data and audio only to active participants, so others do not count.
#[test]
fn counts_active_callers_only() {
    let mut client = Client::joined_with([]);
    let ann = |state, kind| ParticipantInfo {
        state,
        kind,
        ..participant_info("PA_a", "ann")
    };
    let changed = |is_agent| SignalOutput::Change(RosterChange::Changed(participant("ann", is_agent)));
    assert_eq!(
        client.receive(update([ann(0, 0)])),
        [joined("ann"), subscribed(&["TR_ann"])]
    );
    assert_eq!(client.signal.callers(), 0);
    assert_eq!(client.receive(update([ann(1, 0)])), []);
    assert_eq!(client.signal.callers(), 0);
    assert_eq!(client.receive(update([ann(2, 0)])), [changed(false)]);
    assert_eq!(client.signal.callers(), 1);
    assert_eq!(client.receive(update([ann(2, 0)])), [], "it is no news");
    assert_eq!(client.receive(update([ann(2, 4)])), [changed(true)]);
    assert_eq!(client.signal.callers(), 0);
}

/// The bot learns a telephone's number; logs do not. Excess attributes are cut.
#[test]
fn bounds_and_hides_attributes() {
    let mut client = Client::joined_with([]);
    let said = [
        ("a.number", "+15550100"),
        ("b", &"x".repeat(ROOM_ATTRIBUTES_BYTES_MAX)),
        ("c", "y"),
    ];
    let info = ParticipantInfo {
        attributes: said.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ..participant_info("PA_a", "ann")
    };
    let outputs = client.receive(update([info]));
    let SignalOutput::Change(RosterChange::Joined(who)) = &outputs[0] else {
        panic!("{outputs:?}")
    };
    assert_eq!(who.attributes, [("a.number".to_owned(), "+15550100".to_owned())].into());
    assert!(!format!("{who:?}").contains("5550100"));
}

/// Notes 5.2: audio tracks only, as they appear, muted or not; never video or data.
#[test]
fn subscribes_to_new_audio_tracks() {
    let mut client = Client::joined_with([]);
    let with = |version: u32, tracks: Vec<TrackInfo>| ParticipantInfo {
        version,
        tracks,
        state: 0,
        ..participant_info("PA_a", "ann")
    };
    let muted = TrackInfo {
        muted: true,
        ..track("TR_1", TrackType::Audio)
    };
    let video = track("TR_2", TrackType::Video);
    let data = track("TR_3", TrackType::Data);
    let unnamed = track("", TrackType::Audio);
    let second = track("TR_4", TrackType::Audio);
    assert_eq!(client.receive(update([with(1, vec![])])), [joined("ann")]);
    assert_eq!(
        client.receive(update([with(2, vec![muted.clone(), video.clone(), data, unnamed])])),
        [subscribed(&["TR_1"])]
    );
    assert_eq!(
        client.receive(update([with(3, vec![muted, second.clone(), video])])),
        [subscribed(&["TR_4"])]
    );
    assert_eq!(client.receive(update([with(4, vec![second.clone()])])), []);
    assert_eq!(client.signal.track_owner("TR_1"), None);
    assert!(client.signal.track_owner("TR_2").is_none() && client.signal.track_owner("TR_4").is_some());
    // A track of the same name keeps its first owner.
    let thief = ParticipantInfo {
        tracks: vec![second],
        ..participant_info("PA_b", "bob")
    };
    assert_eq!(client.receive(update([thief])), [joined("bob")]);
    assert_eq!(
        client.signal.track_owner("TR_4").map(|identity| &**identity),
        Some("ann")
    );
    client.receive(update([departed("PA_b", "bob")]));
    assert!(client.signal.track_owner("TR_4").is_some());
}

#[test]
fn ignores_participants_without_a_valid_id() {
    let long = "x".repeat(257);
    let mut client = Client::joined_with([]);
    for (sid, identity) in [("", "ann"), ("PA_a", ""), (&*long, "ann"), ("PA_a", &*long)] {
        assert_eq!(client.receive(update([participant_info(sid, identity)])), []);
    }
    let longest = "x".repeat(256);
    let named = ParticipantInfo {
        name: "ä".repeat(200),
        ..participant_info("PA_a", &longest)
    };
    let outputs = client.receive(update([named]));
    let SignalOutput::Change(RosterChange::Joined(reported)) = &outputs[0] else {
        panic!("{outputs:?}")
    };
    assert_eq!((reported.identity.len(), reported.name.len()), (256, 256));
    // A sid keeps its identity.
    assert_eq!(client.receive(update([participant_info("PA_a", "bob")])), []);
    assert_eq!(client.signal.callers(), 1);
}

// ---- speakers

#[test]
fn reports_speaker_changes() {
    let mut client = Client::joined_with([participant_info("PA_a", "ann"), participant_info("PA_b", "bob")]);
    let speakers = |list: &[(&str, bool)]| {
        ServerMessage::SpeakersChanged(SpeakersChanged {
            speakers: list
                .iter()
                .map(|(sid, active)| SpeakerInfo {
                    sid: (*sid).into(),
                    level: f32::NAN,
                    active: *active,
                })
                .collect(),
        })
    };
    assert_eq!(
        client.receive(speakers(&[("PA_a", false), ("PA_b", true)])),
        [speaking("bob", true)]
    );
    assert_eq!(
        client.receive(speakers(&[
            ("PA_b", true),
            ("PA_own", true),
            ("PA_z", true),
            ("", true)
        ])),
        []
    );
    assert_eq!(
        client.receive(speakers(&[("PA_a", true), ("PA_b", false), ("PA_a", true)])),
        [speaking("ann", true), speaking("bob", false)]
    );
    // A participant that leaves stops speaking.
    assert_eq!(
        client.receive(update([departed("PA_a", "ann"), departed("PA_b", "bob")])),
        [speaking("ann", false), left("ann"), left("bob")]
    );
}

// ---- tokens, leaves, the rest

#[test]
fn passes_valid_refreshed_tokens() {
    let mut client = Client::joined_with([]);
    assert_eq!(
        client.receive(ServerMessage::RefreshToken("eyJ.a-b_c".into())),
        [SignalOutput::Token(Secret::new("eyJ.a-b_c"))]
    );
    for token in ["", "a b", "a\r\nX-Evil: 1", "ä", &"x".repeat(ROOM_TOKEN_BYTES_MAX + 1)] {
        assert_eq!(client.receive(ServerMessage::RefreshToken(token.into())), []);
    }
    let shown = format!("{:?}", SignalOutput::Token(Secret::new("eyJ")));
    assert!(!shown.contains("eyJ"), "{shown}");
}

/// Notes 3.2: the action says what the server asks for; before version 13, `can_reconnect` alone
/// does.
#[test]
fn a_leave_carries_its_action() {
    for (can_reconnect, action, expected) in [
        (false, 0, LeaveAction::Disconnect),
        (true, 0, LeaveAction::Reconnect),
        (false, 1, LeaveAction::Reconnect),
        (false, 2, LeaveAction::Reconnect),
        (true, 2, LeaveAction::Reconnect),
        (false, 3, LeaveAction::Disconnect),
        (false, -1, LeaveAction::Disconnect),
    ] {
        let mut client = Client::joined_with([participant_info("PA_a", "ann")]);
        let leave = ServerMessage::Leave(LeaveRequest {
            can_reconnect,
            reason: 99,
            action,
        });
        assert_eq!(
            client.receive(leave.clone()),
            [SignalOutput::Leave {
                reason: 99,
                action: expected
            }],
            "{action}"
        );
        // Nothing follows.
        assert_eq!(client.receive(leave), []);
        assert_eq!(client.receive(update([participant_info("PA_b", "bob")])), []);
        assert_eq!((client.at(60_000), client.due_ms()), (vec![], None));
        assert_eq!(client.signal.callers(), 0);
    }
}

#[test]
fn sends_nothing_after_leave() {
    let mut client = Client::joined_with([]);
    client.signal.leave();
    let goodbye = LeaveRequest {
        can_reconnect: false,
        reason: 1,
        action: 0,
    };
    assert_eq!(client.outputs(), [sent(SignalRequestKind::Leave(goodbye))]);
    client.signal.leave();
    client.signal.add_track("cid", "bot-audio");
    client.signal.answer("v=0".into(), 1);
    client.signal.offer("v=0".into());
    assert_eq!(client.outputs(), []);
    assert_eq!(client.receive(offer(1)), []);
    // Invalid bytes are ignored by then.
    assert_eq!(
        client.signal.handle_message(Bytes::from_static(b"\xff"), client.now),
        Ok(())
    );
}

/// Messages of other versions: a room move (24), an old pong (18), an unknown number, an empty
/// message, and one with an unknown field.
#[test]
fn ignores_unknown_messages() {
    let mut client = Client::joined_with([participant_info("PA_a", "ann")]);
    for text in [
        &b""[..],
        b"\xc2\x01\x02\x12\x00",
        b"\x90\x01\x05",
        b"\xfa\x7f\x01\x00",
        b"\x2a\x05\x9a\x06\x02hi",
    ] {
        assert_eq!(
            client.signal.handle_message(Bytes::copy_from_slice(text), client.now),
            Ok(())
        );
        assert_eq!(client.outputs(), []);
    }
    assert_eq!(client.signal.callers(), 1);
}

// ---- hostile servers

#[test]
fn rejects_invalid_bytes_and_continues() {
    let mut client = Client::joined_with([]);
    let whole = bytes(update([participant_info("PA_a", "ann")]));
    for text in [
        &b"\x2a"[..],
        b"\x2a\x05\x0a",
        b"\x2a\x02\x0a\x7f",
        b"\x2b\x2c",
        b"\x28\x01",
        b"\x00\x00",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x82\x01\x02\xff\xfe",
        &whole[..whole.len() - 1],
    ] {
        let words = client.receive_invalid(Bytes::copy_from_slice(text));
        assert_eq!(words, "bytes that are not a LiveKit message", "{text:?}");
    }
    assert_eq!(client.receive(update([participant_info("PA_a", "ann")])).len(), 2);
}

#[test]
fn rejects_a_message_above_the_cap() {
    let long = |bytes: usize| {
        ServerMessage::Offer(SessionDescription {
            sdp: "x".repeat(bytes),
            ..SessionDescription::default()
        })
    };
    // Two tags, and two lengths just below the cap.
    let around = bytes(long(ROOM_MESSAGE_BYTES_MAX - 16)).len() - (ROOM_MESSAGE_BYTES_MAX - 16);
    let mut client = Client::joined_with([]);
    let longest = bytes(long(ROOM_MESSAGE_BYTES_MAX - around));
    let past = bytes(long(ROOM_MESSAGE_BYTES_MAX - around + 1));
    assert_eq!(past.len(), longest.len() + 1);
    assert_eq!(client.signal.handle_message(longest, client.now), Ok(()));
    assert_eq!(client.outputs().len(), 1);
    let words = client.receive_invalid(past);
    assert!(words.contains("2097153 bytes"), "{words}");
}

/// Two bytes must not cost hundreds: empty participants, tracks, speakers, servers and map entries,
/// in every position.
#[test]
fn rejects_too_many_parts_before_decoding() {
    let many = ROOM_MESSAGE_PARTS_MAX;
    let infos = |count: usize| vec![ParticipantInfo::default(); count];
    let tracked = |count: usize| ParticipantInfo {
        tracks: vec![TrackInfo::default(); count],
        ..ParticipantInfo::default()
    };
    let servers = |count: usize| vec![RoomIceServer::default(); count];
    let joined = |participant: ParticipantInfo, others: Vec<ParticipantInfo>, ice_servers: Vec<RoomIceServer>| {
        let join = JoinResponse {
            participant: Some(participant),
            other_participants: others,
            ice_servers,
            ..JoinResponse::default()
        };
        bytes(ServerMessage::Join(Box::new(join)))
    };
    let entries = (0..many).map(|i| (i.to_string(), String::new())).collect();
    let urls = RoomIceServer {
        urls: vec![String::new(); many],
        ..RoomIceServer::default()
    };
    for hostile in [
        bytes(update(infos(many))),
        bytes(update([tracked(many)])),
        joined(tracked(many), vec![], vec![]),
        joined(ParticipantInfo::default(), infos(many), vec![]),
        joined(ParticipantInfo::default(), vec![tracked(many)], vec![]),
        joined(ParticipantInfo::default(), vec![], servers(many)),
        joined(ParticipantInfo::default(), vec![], vec![urls]),
        bytes(ServerMessage::Reconnect(wire::ReconnectResponse {
            ice_servers: servers(many),
        })),
        bytes(ServerMessage::SpeakersChanged(SpeakersChanged {
            speakers: vec![SpeakerInfo::default(); many],
        })),
        bytes(ServerMessage::Offer(SessionDescription {
            mid_to_track_id: entries,
            ..SessionDescription::default()
        })),
    ] {
        let mut client = Client::new();
        let words = client.receive_invalid(hostile);
        assert!(words.contains("more than 16384"), "{words}");
    }
    // At the cap, with the update itself as one part.
    let mut client = Client::joined_with([]);
    assert_eq!(client.receive(update(infos(many - 1))), []);
    // A repeated update in one message merges with the first.
    let half = bytes(update(infos(many / 2)));
    assert!(
        client
            .receive_invalid([half.clone(), half].concat())
            .contains("more than")
    );
}

#[test]
fn caps_participants_and_tracks() {
    let mut client = Client::joined_with([]);
    let numbered = |i: usize| participant_info(&format!("PA_{i}"), &format!("p{i}"));
    let crowd: Vec<ParticipantInfo> = (0..ROOM_PARTICIPANTS_MAX + 10).map(numbered).collect();
    client.receive(update(crowd));
    assert_eq!(client.signal.callers(), ROOM_PARTICIPANTS_MAX);
    // A freed entry is reused.
    client.receive(update([departed("PA_0", "p0")]));
    let late = numbered(ROOM_PARTICIPANTS_MAX + 1);
    assert_eq!(client.receive(update([late])).len(), 2);
    assert_eq!(client.signal.callers(), ROOM_PARTICIPANTS_MAX);

    let mut client = Client::joined_with([]);
    let tracks: Vec<TrackInfo> = (0..ROOM_TRACKS_MAX + 10)
        .map(|i| track(&format!("TR_{i}"), TrackType::Audio))
        .collect();
    let loud = ParticipantInfo {
        tracks,
        ..participant_info("PA_a", "ann")
    };
    client.receive(update([loud]));
    let last = ROOM_TRACKS_MAX - 1;
    assert!(client.signal.track_owner(&format!("TR_{last}")).is_some());
    assert!(client.signal.track_owner(&format!("TR_{}", last + 1)).is_none());
}

/// A server whose participants come and go for ever leaves no state behind.
#[test]
fn forgets_departed_participants() {
    let mut client = Client::joined_with([]);
    for i in 0..10_000 {
        let (sid, identity) = (format!("PA_{i}"), format!("p{i}"));
        client.receive(update([participant_info(&sid, &identity)]));
        client.receive(update([departed(&sid, &identity)]));
    }
    let SignalPhase::Joined(roster) = &client.signal.phase else {
        panic!("in the room")
    };
    assert_eq!(roster.known(), [0, 0, 0, crate::limits::ROOM_DEPARTED_MAX]);
}
