//! Participants, their tracks, and who speaks.

use super::*;

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
            is_telephone: matches!(kind, 3 | 7),
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
