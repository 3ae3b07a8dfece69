//! The setup step by step: what each end receives, and when. `tests/losses.rs` has whole calls.

use super::packet::DataChunk;
use super::*;

const STR0M_TAG: u32 = 77;
const FULL_STACK_TAG: u32 = 0xabcd_ef01;
const WINDOW: u32 = 0x0010_0000;
const PPID_TEXT: u32 = 51;

/// An INIT with a parameter about extensions.
fn init(tag: u32, tsn: u32) -> Vec<u8> {
    let fixed = [tag.to_be_bytes(), WINDOW.to_be_bytes(), [0xff; 4], tsn.to_be_bytes()].concat();
    encode_packet(0, INIT, 0, &[&fixed[..], &[0x80, 8, 0, 5, 192, 0, 0, 0]].concat())
}

fn text(tsn: u32, flags: u8, content: &str) -> Vec<u8> {
    let value = [
        &tsn.to_be_bytes()[..],
        &[0; 4],
        &PPID_TEXT.to_be_bytes(),
        content.as_bytes(),
    ]
    .concat();
    encode_packet(STR0M_TAG, DATA, flags, &value)
}

fn request(tsn: u32) -> Vec<u8> {
    encode_message(STR0M_TAG, tsn, PPID_CONTROL, CHANNEL_REQUEST)
}

fn kinds(packets: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    packets
        .into_iter()
        .filter_map(|packet| first_chunk_type(&packet))
        .collect()
}

fn to_device(setup: &mut AssociationSetup) -> Vec<u8> {
    kinds(std::iter::from_fn(|| setup.poll_device()))
}

fn to_str0m(setup: &mut AssociationSetup) -> Vec<u8> {
    kinds(std::iter::from_fn(|| setup.poll_str0m()))
}

/// Returns the TSNs and texts that str0m receives.
fn texts(setup: &mut AssociationSetup) -> Vec<(u32, String)> {
    let packets = std::iter::from_fn(|| setup.poll_str0m());
    let read = packets.map(|packet| {
        let data = DataChunk::parse(&packet).expect("data");
        (data.tsn, String::from_utf8_lossy(data.content).into_owned())
    });
    read.collect()
}

/// Returns what is sent to the device until then, with times.
fn wait(setup: &mut AssociationSetup, start: Instant, end: Duration) -> Vec<(Duration, u8)> {
    let mut sent = Vec::new();
    let mut now = start;
    setup.handle_timeout(now);
    while let Some(due) = setup.poll_timeout(now).filter(|due| *due <= start + end) {
        now = due;
        setup.handle_timeout(now);
        sent.extend(to_device(setup).into_iter().map(|kind| (now - start, kind)));
    }
    sent
}

/// Returns a setup with DTLS up and str0m's INIT received.
fn waiting() -> AssociationSetup {
    let mut setup = AssociationSetup::default();
    setup.handle_connected();
    assert_eq!(setup.handle_str0m(&init(STR0M_TAG, 500)), SctpAction::Consume);
    setup
}

/// Returns an established setup with a device of this tag.
fn up(tag: u32) -> AssociationSetup {
    let mut setup = waiting();
    setup.handle_device(&init(tag, 1234));
    setup.handle_device(&encode_packet(STR0M_TAG, COOKIE_ECHO, 0, b"edge-run"));
    assert_eq!(to_device(&mut setup), [INIT_ACK, COOKIE_ACK]);
    assert_eq!(to_str0m(&mut setup), [INIT_ACK, COOKIE_ACK]);
    setup
}

/// The device starts: its INIT is answered with str0m's values, and str0m receives the device's
/// after the COOKIE ECHO. str0m's own INIT and COOKIE ECHO are dropped.
#[test]
fn the_device_starts() {
    for str0m_first in [true, false] {
        let mut setup = AssociationSetup::default();
        setup.handle_connected();
        if str0m_first {
            setup.handle_str0m(&init(STR0M_TAG, 500));
        }
        assert_eq!(setup.handle_device(&init(ONE_SHOT_TAG, 1234)), SctpAction::Consume);
        if !str0m_first {
            assert_eq!(setup.poll_device(), None, "the answer is not known yet");
            setup.handle_str0m(&init(STR0M_TAG, 500));
        }
        let answer = setup.poll_device().expect("an INIT ACK");
        assert_eq!(answer[4..8], ONE_SHOT_TAG.to_be_bytes());
        let said = first_chunk(&answer).expect("whole").value;
        let read = InitChunk::parse(said).expect("an INIT ACK");
        assert_eq!((read.tag, read.tsn, read.window), (STR0M_TAG, 500, WINDOW));
        // The cookie, then str0m's extension parameters.
        assert_eq!(said[16..], *b"\0\x07\0\x0cedge-run\x80\x08\0\x05\xc0\0\0\0");
        setup.handle_device(&encode_packet(STR0M_TAG, COOKIE_ECHO, 0, b"edge-run"));
        assert_eq!(to_device(&mut setup), [COOKIE_ACK]);
        let reported = setup.poll_str0m().expect("an INIT ACK");
        let read = InitChunk::parse(first_chunk(&reported).expect("whole").value).expect("an INIT ACK");
        assert_eq!(
            (reported[4..8].to_vec(), read.tag, read.tsn),
            (STR0M_TAG.to_be_bytes().to_vec(), ONE_SHOT_TAG, 1234)
        );
        assert_eq!(to_str0m(&mut setup), [COOKIE_ACK]);
        let echo = encode_packet(ONE_SHOT_TAG, COOKIE_ECHO, 0, b"edge-run");
        assert_eq!(setup.handle_str0m(&echo), SctpAction::Consume);
    }
}

/// An unanswered step is repeated four times per interval, up to the longest.
#[test]
fn a_step_is_repeated_until_it_is_answered() {
    let start = Instant::now();
    let mut setup = waiting();
    setup.handle_device(&init(ONE_SHOT_TAG, 1234));
    to_device(&mut setup);
    let sent = wait(&mut setup, start, Duration::from_secs(60));
    assert!(sent.iter().all(|(_, kind)| *kind == INIT_ACK));
    let times: Vec<Duration> = sent.iter().map(|(at, _)| *at).collect();
    assert_eq!(times[..4], [1, 2, 3, 4].map(|nth| DEVICE_SETUP_REPEAT * nth));
    assert_eq!(times[4] - times[3], 2 * DEVICE_SETUP_REPEAT);
    assert_eq!(times[times.len() - 1] - times[times.len() - 2], DEVICE_SETUP_REPEAT_MAX);
}

/// Without the device's INIT, str0m's is sent unchanged. DATA from a device whose COOKIE ACK is
/// overwritten counts as one.
#[test]
fn the_runner_starts_if_the_device_does_not() {
    let start = Instant::now();
    let cut_off = [&encode_packet(STR0M_TAG, COOKIE_ACK, 0, &[])[..12], &[DATA, 7, 0, 35]].concat();
    let acknowledgement = encode_packet(STR0M_TAG, COOKIE_ACK, 0, &[]);
    for (tag, proof, reported) in [
        (ONE_SHOT_TAG, &request(1234), &[COOKIE_ACK, DATA][..]),
        (ONE_SHOT_TAG, &cut_off, &[COOKIE_ACK]),
        (FULL_STACK_TAG, &text(1234, 3, "x"), &[COOKIE_ACK, DATA]),
        (FULL_STACK_TAG, &acknowledgement, &[]),
    ] {
        let mut setup = waiting();
        setup.handle_timeout(start);
        assert_eq!(setup.poll_device(), None);
        setup.handle_timeout(start + DEVICE_SETUP_REPEAT);
        assert_eq!(setup.poll_device().as_deref(), Some(&init(STR0M_TAG, 500)[..]));
        let theirs = init(tag, 1234);
        let theirs = InitChunk::parse(first_chunk(&theirs).expect("whole").value).expect("an INIT");
        let answer = encode_packet(STR0M_TAG, INIT_ACK, 0, &theirs.encode_init_ack());
        assert_eq!(setup.handle_device(&answer), SctpAction::Forward);
        let echo = encode_packet(tag, COOKIE_ECHO, 0, b"c");
        assert_eq!(setup.handle_str0m(&echo), SctpAction::Forward);
        setup.handle_timeout(start + DEVICE_SETUP_REPEAT);
        setup.handle_timeout(start + 2 * DEVICE_SETUP_REPEAT);
        assert_eq!(setup.poll_device(), Some(echo), "it is repeated");
        let passes = setup.handle_device(proof) == SctpAction::Forward;
        assert_eq!(passes, *proof == acknowledgement);
        assert_eq!(to_str0m(&mut setup), reported);
        assert!(setup.stage >= SetupStage::AwaitingChannel);
    }
}

/// Both ends start: the device's late INIT is answered, and one association results.
#[test]
fn both_ends_may_start() {
    let start = Instant::now();
    let mut setup = waiting();
    setup.handle_timeout(start);
    setup.handle_timeout(start + DEVICE_SETUP_REPEAT);
    setup.handle_device(&init(FULL_STACK_TAG, 9));
    assert_eq!(to_device(&mut setup), [INIT, INIT_ACK]);
    let answer = encode_packet(STR0M_TAG, INIT_ACK, 0, &[0; 16]);
    assert_eq!(
        setup.handle_device(&answer),
        SctpAction::Consume,
        "its own INIT is answered already"
    );
    setup.handle_device(&encode_packet(STR0M_TAG, COOKIE_ECHO, 0, b"edge-run"));
    assert_eq!(to_str0m(&mut setup), [INIT_ACK, COOKIE_ACK]);
    assert_eq!(setup.stage, SetupStage::Open);
}

/// A silent device may have missed the COOKIE ACK, or its request was lost: the former is repeated,
/// and the request is synthesized once.
#[test]
fn a_lost_channel_request_is_synthesized() {
    let start = Instant::now();
    let mut setup = up(ONE_SHOT_TAG);
    let sent = wait(&mut setup, start, DEVICE_OPEN_AFTER - Duration::from_millis(1));
    assert_eq!(kinds_of(&sent), [COOKIE_ACK; 2]);
    assert_eq!(to_str0m(&mut setup), [0; 0]);
    let sent = wait(&mut setup, start + DEVICE_OPEN_AFTER, Duration::from_secs(600));
    assert_eq!(sent.len() as u32, DEVICE_COOKIE_ACKS_MAX - 2);
    assert_eq!(
        texts(&mut setup),
        [(1234, String::from_utf8_lossy(CHANNEL_REQUEST).into_owned())]
    );
    assert_eq!(setup.poll_timeout(start), None);
    // It was only late.
    setup.handle_device(&request(1234));
    assert_eq!(to_str0m(&mut setup), [0; 0]);
    setup.handle_device(&text(1235, 7, "a"));
    assert_eq!(texts(&mut setup), [(1235, "a".to_owned())]);
}

fn kinds_of(sent: &[(Duration, u8)]) -> Vec<u8> {
    sent.iter().map(|(_, kind)| *kind).collect()
}

/// A lost chunk leaves no gap in the TSNs. Incomplete messages are dropped, and a lost channel
/// request is synthesized before the first text.
#[test]
fn one_shot_data_is_renumbered_without_gaps() {
    let mut setup = up(ONE_SHOT_TAG);
    for (tsn, flags, content) in [
        (1235, 7, "a"),
        (1240, 7, "b"),
        (1241, 6, "begin"),
        (1242, 4, "middle"),
        (1243, 5, "end"),
        (1244, 6, "begin"),
        (1246, 5, "end of a hole"),
        (1247, 7, "c"),
    ] {
        assert_eq!(setup.handle_device(&text(tsn, flags, content)), SctpAction::Consume);
    }
    let texts = texts(&mut setup);
    let expected = ["a", "b", "begin", "middle", "end", "begin", "c"];
    assert!(texts.iter().skip(1).map(|(_, text)| text).eq(expected), "{texts:?}");
    assert!(texts.iter().map(|(tsn, _)| *tsn).eq(1234..1242), "{texts:?}");
}

/// The device ignores the channel acknowledgement. If its SACK is lost, messages do not wait for
/// str0m's retransmission.
#[test]
fn the_channel_acknowledgement_is_acknowledged() {
    let start = Instant::now();
    for acknowledged in [true, false] {
        let mut setup = up(ONE_SHOT_TAG);
        setup.handle_device(&request(1234));
        assert_eq!(to_str0m(&mut setup), [DATA]);
        let answer = encode_message(ONE_SHOT_TAG, 500, PPID_CONTROL, &[CHANNEL_ACK]);
        assert_eq!(setup.handle_str0m(&answer), SctpAction::Forward);
        if acknowledged {
            assert_eq!(
                setup.handle_device(&encode_sack(STR0M_TAG, 500, 2)),
                SctpAction::Forward
            );
            assert_eq!(setup.poll_timeout(start), None);
            continue;
        }
        wait(&mut setup, start, DEVICE_SETUP_REPEAT - Duration::from_millis(1));
        assert_eq!(setup.poll_str0m(), None);
        wait(&mut setup, start + DEVICE_SETUP_REPEAT, DEVICE_SETUP_REPEAT);
        let made = setup.poll_str0m().expect("an acknowledgement");
        assert_eq!(first_chunk(&made).expect("whole").value[..4], 500_u32.to_be_bytes());
        assert_eq!(setup.handle_str0m(&text(501, 3, "a message")), SctpAction::Forward);
        assert_eq!(
            setup.poll_timeout(start),
            None,
            "a message is for the device to acknowledge"
        );
    }
}

/// A stack that retransmits is not changed once it is established.
#[test]
fn a_retransmitting_stack_passes_unchanged() {
    let mut setup = up(FULL_STACK_TAG);
    assert_eq!(setup.poll_timeout(Instant::now()), None);
    for bytes in [
        text(1236, 3, "after a gap"),
        encode_packet(STR0M_TAG, 4, 0, b"heartbeat"),
    ] {
        assert_eq!(setup.handle_device(&bytes), SctpAction::Forward);
    }
    assert_eq!(
        setup.handle_str0m(&encode_message(FULL_STACK_TAG, 500, PPID_CONTROL, &[CHANNEL_ACK])),
        SctpAction::Forward
    );
    assert_eq!(setup.poll_str0m(), None);
    // A repeated COOKIE ECHO is answered again, an INIT is not.
    setup.handle_device(&encode_packet(STR0M_TAG, COOKIE_ECHO, 0, b"edge-run"));
    setup.handle_device(&init(FULL_STACK_TAG + 1, 1));
    assert_eq!(
        (to_device(&mut setup), to_str0m(&mut setup)),
        (vec![COOKIE_ACK], vec![])
    );
}

/// Arbitrary bytes at every stage: no panic, and no growing queues.
#[test]
fn arbitrary_packets_of_the_device_are_survived() {
    let start = Instant::now();
    let mut state = 7_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    for round in 0..300 {
        let mut setup = match round % 3 {
            0 => waiting(),
            1 => up(ONE_SHOT_TAG),
            _ => AssociationSetup::default(),
        };
        for turn in 0..40 {
            let mut bytes: Vec<u8> = (0..random() % 64).map(|_| random() as u8).collect();
            if let Some(kind) = bytes.get_mut(12) {
                *kind %= 12;
            }
            if random() % 2 == 0 && bytes.len() >= 16 {
                let length = bytes.len() as u16 - 12;
                bytes[14..16].copy_from_slice(&length.to_be_bytes());
            }
            setup.handle_device(&bytes);
            setup.handle_timeout(start + DEVICE_SETUP_REPEAT * turn);
            assert!(setup.to_str0m.len() <= 3 && setup.to_device.len() <= 3);
            to_str0m(&mut setup);
            to_device(&mut setup);
        }
    }
}
