//! Messages survive writing and reading, and bad ones are rejected.

use super::super::varint::write_varint;
use super::*;

/// The body of a message, behind its length.
fn body(message: &[u8]) -> &[u8] {
    let (length, prefix) = read_varint(message).expect("a length");
    assert_eq!(length as usize, message.len() - prefix);
    &message[prefix..]
}

fn subscribe() -> SubscribeMessage {
    SubscribeMessage {
        id: 300,
        broadcast: "pipecat-0123456789abcdef0123456789abcdef/response".to_owned(),
        track: "transcript.json.z".to_owned(),
        terms: SubscribeTerms {
            priority: 7,
            is_ordered: true,
            max_latency_ms: 500,
            groups: GroupBounds {
                start: Some(0),
                end: Some(9),
            },
        },
    }
}

/// Checks that `read` accepts a body whole, and neither cut nor with another byte.
fn reads_only_whole<T: std::fmt::Debug>(body: &[u8], read: impl Fn(&[u8]) -> Result<T, MoqMessageError>) {
    read(body).expect("a whole message");
    for cut in 0..body.len() {
        assert_eq!(
            read(&body[..cut]).expect_err("cut"),
            MoqMessageError::Truncated,
            "{cut}"
        );
    }
    let longer = [body, &[0]].concat();
    assert_eq!(read(&longer).expect_err("longer"), MoqMessageError::TrailingBytes);
}

#[test]
fn announcements_survive() {
    let interest = AnnounceInterest {
        prefix: "a/b".to_owned(),
        exclude_hop: 1 << 52,
    };
    let mut bytes = Vec::new();
    interest.write(&mut bytes);
    assert_eq!(AnnounceInterest::read(body(&bytes)), Ok(interest));
    reads_only_whole(body(&bytes), AnnounceInterest::read);
    for (is_active, hops) in [(true, vec![1, 1 << 61]), (false, vec![])] {
        let announce = AnnounceMessage {
            is_active,
            suffix: "response".to_owned(),
            hops,
        };
        let mut bytes = Vec::new();
        announce.write(&mut bytes);
        assert_eq!(AnnounceMessage::read(body(&bytes)), Ok(announce));
        reads_only_whole(body(&bytes), AnnounceMessage::read);
    }
}

/// The bytes that `@moq/net` 0.1.9 sends: `{active, suffix, hops}` with one hop.
#[test]
fn an_announcement_of_a_browser_is_read() {
    let bytes = b"\x09\x01\x05n/req\x01\x2a";
    let announce = AnnounceMessage {
        is_active: true,
        suffix: "n/req".to_owned(),
        hops: vec![42],
    };
    assert_eq!(AnnounceMessage::read(body(bytes)), Ok(announce.clone()));
    let mut written = Vec::new();
    announce.write(&mut written);
    assert_eq!(written, bytes);
}

#[test]
fn subscriptions_survive_and_long_messages_have_a_long_length() {
    let message = subscribe();
    let mut bytes = Vec::new();
    message.write(&mut bytes);
    assert_eq!(bytes[0], 0x40, "a length of two bytes");
    assert_eq!(SubscribeMessage::read(body(&bytes)), Ok(message.clone()));
    reads_only_whole(body(&bytes), SubscribeMessage::read);
    let mut bytes = Vec::new();
    message.terms.write_ok(&mut bytes);
    assert_eq!(bytes[0], REPLY_OK as u8);
    assert_eq!(SubscribeTerms::read(body(&bytes[1..])), Ok(message.terms));
    reads_only_whole(body(&bytes[1..]), SubscribeTerms::read);
}

/// A bound is its sequence and 1, so that 0 is none.
#[test]
fn absent_bounds_are_zero() {
    let terms = SubscribeTerms::default();
    let mut bytes = Vec::new();
    terms.write_update(&mut bytes);
    assert_eq!(bytes, [5, 0, 0, 0, 0, 0]);
    assert_eq!(
        SubscribeTerms::read(&[0, 0, 0, 1, 0]).expect("terms").groups.start,
        Some(0)
    );
}

#[test]
fn group_headers_survive() {
    let header = GroupHeader {
        subscription: 70,
        sequence: 20_000,
    };
    let mut bytes = Vec::new();
    header.write(&mut bytes);
    assert_eq!(bytes[0], STREAM_GROUP as u8);
    assert_eq!(GroupHeader::read(body(&bytes[1..])), Ok(header));
    reads_only_whole(body(&bytes[1..]), GroupHeader::read);
}

#[test]
fn limits_are_kept() {
    let read = |prefix: &[u8]| {
        let mut body = Vec::new();
        write_varint(prefix.len() as u64, &mut body);
        body.extend_from_slice(prefix);
        body.push(0);
        AnnounceInterest::read(&body).map(|interest| interest.prefix)
    };
    assert_eq!(read(&[b'a'; PATH_BYTES_MAX]).map(|path| path.len()), Ok(PATH_BYTES_MAX));
    assert_eq!(read(&[b'a'; PATH_BYTES_MAX + 1]), Err(MoqMessageError::TooLong));
    let segments = |count: usize| vec!["a"; count].join("/");
    assert!(read(segments(PATH_SEGMENTS_MAX).as_bytes()).is_ok());
    assert_eq!(
        read(segments(PATH_SEGMENTS_MAX + 1).as_bytes()),
        Err(MoqMessageError::TooMany)
    );
    assert_eq!(read(b"\xff"), Err(MoqMessageError::NotUtf8));
    assert_eq!(AnnounceMessage::read(&[2, 0, 0]), Err(MoqMessageError::InvalidValue));
    let hops = |count: usize| {
        let mut body = vec![1, 0];
        write_varint(count as u64, &mut body);
        body.extend(vec![1; count]);
        AnnounceMessage::read(&body).map(|message| message.hops.len())
    };
    assert_eq!(hops(HOPS_MAX), Ok(HOPS_MAX));
    assert_eq!(hops(HOPS_MAX + 1), Err(MoqMessageError::TooMany));
}

/// Lengths of strings and counts of hops near the largest integer reserve nothing.
#[test]
fn oversize_integers_are_rejected() {
    let huge = [0xff; 8];
    AnnounceInterest::read(&huge).expect_err("a prefix without bytes");
    for start in [&[1][..], &[1, 0]] {
        AnnounceMessage::read(&[start, &huge].concat()).expect_err("a suffix or hops without bytes");
        SubscribeMessage::read(&[start, &huge].concat()).expect_err("a path or track without bytes");
    }
    let terms = SubscribeTerms::read(&[&[0, 0][..], &huge, &huge, &huge].concat());
    assert_eq!(terms.expect("62 bits").groups.end, Some((1 << 62) - 2));
}

#[test]
fn paths_are_normal_and_divided_at_segments() {
    for (path, normal) in [("/a//b/", "a/b"), ("", ""), ("///", ""), ("a", "a")] {
        assert_eq!(normal_path(path), normal);
    }
    assert_eq!(path_below("a/b", ""), Some("a/b"));
    assert_eq!(path_below("a/b", "a"), Some("b"));
    assert_eq!(path_below("a/b", "a/b"), Some(""));
    assert_eq!(path_below("ab", "a"), None);
    assert_eq!(path_below("a", "a/b"), None);
}
