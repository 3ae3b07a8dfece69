//! ClientHellos as networks and other stacks send them: fragmented, reordered, duplicated, several
//! records per datagram, and large.
//!
//! The records of a first flight are unencrypted and not part of the transcript, so a test may
//! refragment a hello and the handshake still completes. Sources: RFC 6347 sections 4.1 and 4.2.3,
//! RFC 7983.

use std::time::Duration;

use super::super::*;
use super::pair::{Pair, Rng, secs};
use crate::limits::CONNECT_WITHIN;

/// Record: type, version, epoch, sequence number, length.
const RECORD_HEADER_BYTES: usize = 13;
/// Message: type, length, number, fragment offset and length.
const MESSAGE_HEADER_BYTES: usize = 12;
/// Room for renumbered records of one flight.
const NUMBERS_PER_RECORD: u64 = 1_000;
/// A handshake without loss takes three round trips of 10 ms beside ICE; a retransmission adds at
/// least 150 ms.
const WITHOUT_RETRANSMISSION: Duration = Duration::from_millis(120);

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;

fn is_handshake_in_clear(datagram: &[u8]) -> bool {
    datagram.first() == Some(&HANDSHAKE) && datagram.get(3..5) == Some(&[0, 0])
}

fn is_hello(datagram: &[u8]) -> bool {
    is_handshake_in_clear(datagram) && datagram.get(RECORD_HEADER_BYTES) == Some(&CLIENT_HELLO)
}

fn u24(value: usize) -> [u8; 3] {
    let [_, a, b, c] = u32::try_from(value).expect("a short message").to_be_bytes();
    [a, b, c]
}

fn record(number: u64, contents: &[u8]) -> Vec<u8> {
    let length = u16::try_from(contents.len()).expect("a short record").to_be_bytes();
    let [_, _, number @ ..] = number.to_be_bytes();
    [&[HANDSHAKE, 0xfe, 0xfd, 0, 0][..], &number, &length, contents].concat()
}

/// Encodes a fragment of a message of `of` bytes.
fn piece(kind: u8, of: usize, message: u16, at: usize, bytes: &[u8]) -> Vec<u8> {
    let header = [
        &[kind][..],
        &u24(of),
        &message.to_be_bytes(),
        &u24(at),
        &u24(bytes.len()),
    ];
    [&header.concat()[..], bytes].concat()
}

fn number(record: &[u8]) -> u64 {
    let mut number = [0; 8];
    number[2..].copy_from_slice(&record[5..11]);
    u64::from_be_bytes(number)
}

/// Returns the body of an unfragmented hello.
fn body(hello: &[u8]) -> &[u8] {
    &hello[RECORD_HEADER_BYTES + MESSAGE_HEADER_BYTES..]
}

/// Splits a hello at these offsets into records.
fn cut(hello: &[u8], ends: &[usize]) -> Vec<Vec<u8>> {
    let body = body(hello);
    let message = u16::from_be_bytes([hello[RECORD_HEADER_BYTES + 4], hello[RECORD_HEADER_BYTES + 5]]);
    let mut records = Vec::new();
    let mut from = 0;
    for end in ends.iter().copied().chain([body.len()]) {
        let contents = piece(CLIENT_HELLO, body.len(), message, from, &body[from..end]);
        records.push(record(
            number(hello) * NUMBERS_PER_RECORD + records.len() as u64,
            &contents,
        ));
        from = end;
    }
    records
}

fn cut_evenly(hello: &[u8], pieces: usize) -> Vec<Vec<u8>> {
    let length = body(hello).len();
    let ends: Vec<usize> = (1..pieces).map(|nth| length * nth / pieces).collect();
    cut(hello, &ends)
}

/// A call whose client's hellos are replaced by `change`; other records keep their order.
fn with_hello(mut change: impl FnMut(&[u8]) -> Vec<Vec<u8>> + 'static) -> Pair {
    let mut pair = Pair::new();
    pair.rewrite = Some(Box::new(move |mut datagram| {
        if is_hello(&datagram) {
            return change(&datagram);
        }
        if is_handshake_in_clear(&datagram) {
            let renumbered = number(&datagram) * NUMBERS_PER_RECORD;
            datagram[5..11].copy_from_slice(&renumbered.to_be_bytes()[2..]);
        }
        vec![datagram]
    }));
    pair
}

/// Connects, and returns the time.
fn connected(mut pair: Pair, what: &str) -> Duration {
    let up = pair.run_until(secs(10), |pair| {
        pair.client.connected && pair.saw(&SessionEvent::Joined)
    });
    assert!(up, "{what}: {:?}", pair.bot.events);
    pair.times(&SessionEvent::Joined)[0]
}

fn shuffle<T>(list: &mut [T], rng: &mut Rng) {
    for end in (1..list.len()).rev() {
        list.swap(end, rng.below(end + 1));
    }
}

#[test]
fn a_fragmented_hello_connects_at_once() {
    for pieces in [2, 3, 7, 20] {
        let joined = connected(with_hello(move |hello| cut_evenly(hello, pieces)), "pieces in order");
        assert!(joined < WITHOUT_RETRANSMISSION, "{pieces} pieces: {joined:?}");
        let reversed = move |hello: &[u8]| cut_evenly(hello, pieces).into_iter().rev().collect();
        let joined = connected(with_hello(reversed), "pieces in reverse");
        assert!(
            joined < WITHOUT_RETRANSMISSION,
            "{pieces} pieces in reverse: {joined:?}"
        );
    }
}

/// A fragment of one byte at either end.
#[test]
fn uneven_fragments_connect_at_once() {
    let first = with_hello(|hello| cut(hello, &[1]));
    let last = with_hello(|hello| cut(hello, &[body(hello).len() - 1]));
    for pair in [first, last] {
        assert!(connected(pair, "uneven pieces") < WITHOUT_RETRANSMISSION);
    }
}

#[test]
fn reordered_and_duplicate_fragments_connect_at_once() {
    for seed in 1..=50 {
        let mut rng = Rng(seed);
        let mixed = move |hello: &[u8]| {
            let mut pieces = cut_evenly(hello, 2 + rng.below(8));
            let copies: Vec<Vec<u8>> = (0..3).map(|_| pieces[rng.below(pieces.len())].clone()).collect();
            pieces.extend(copies);
            shuffle(&mut pieces, &mut rng);
            pieces
        };
        let joined = connected(with_hello(mixed), "mixed pieces");
        assert!(joined < WITHOUT_RETRANSMISSION, "seed {seed}: {joined:?}");
    }
}

/// All fragments in one datagram, and two per datagram.
#[test]
fn several_fragments_in_one_datagram_connect_at_once() {
    for together in [2, 4] {
        let joined = with_hello(move |hello| cut_evenly(hello, 4).chunks(together).map(<[_]>::concat).collect());
        assert!(connected(joined, "pieces together") < WITHOUT_RETRANSMISSION);
    }
}

/// The client repeats its flight, with the missing fragment.
#[test]
fn a_lost_fragment_costs_one_retransmission() {
    for lost in 0..3 {
        let mut first = true;
        let pair = with_hello(move |hello| {
            let mut pieces = cut_evenly(hello, 3);
            if std::mem::take(&mut first) {
                pieces.remove(lost);
            }
            pieces
        });
        let joined = connected(pair, "a lost piece");
        assert!(joined < secs(2), "piece {lost}: {joined:?}");
    }
}

/// A repeated hello with other fragment boundaries: the fragments overlap, and none counts twice.
#[test]
fn a_refragmented_hello_connects() {
    let mut tries = 0;
    let pair = with_hello(move |hello| {
        tries += 1;
        match tries {
            1 => cut_evenly(hello, 3).into_iter().take(2).collect(),
            _ => vec![record(
                number(hello) * NUMBERS_PER_RECORD,
                &hello[RECORD_HEADER_BYTES..],
            )],
        }
    });
    let joined = connected(pair, "cut anew");
    assert!(joined < secs(5), "{joined:?}");
}

/// A hello larger than a datagram, as browsers' key shares make it. An unknown extension enlarges
/// it, so the client cannot finish, but the server's flight shows that the hello was complete.
#[test]
fn a_hello_of_several_datagrams_is_answered() {
    for bytes in [1_300, 4_000, 15_000] {
        for reverse in [false, true] {
            let mut pair = with_hello(move |hello| {
                let large = grown(hello, bytes);
                let pieces = large.len().div_ceil(1_100);
                let mut pieces = cut_evenly(&large, pieces);
                if reverse {
                    pieces.reverse();
                }
                pieces
            });
            let answered = pair.run_until(secs(1), |pair| {
                pair.destinations.iter().any(|(_, _, first)| *first == HANDSHAKE)
            });
            assert!(answered, "{bytes} bytes, reverse: {reverse}");
        }
    }
}

/// Adds an extension of this size to an unfragmented hello.
fn grown(hello: &[u8], bytes: usize) -> Vec<u8> {
    let body = body(hello);
    // Version, random, session, cookie, suites, compression, then the length of the extensions.
    let mut at = 34;
    at += 1 + usize::from(body[at]);
    at += 1 + usize::from(body[at]);
    at += 2 + usize::from(u16::from_be_bytes([body[at], body[at + 1]]));
    at += 1 + usize::from(body[at]);
    let (head, extensions) = body.split_at(at);
    // A reserved value, RFC 8701.
    let length = u16::try_from(bytes).expect("a short extension").to_be_bytes();
    let extension = [&[0x1a, 0x1a], &length[..], &vec![0x5a; bytes]].concat();
    let total = u16::try_from(extensions.len() - 2 + extension.len()).expect("short extensions");
    let body = [head, &total.to_be_bytes(), &extensions[2..], &extension].concat();
    record(number(hello), &piece(CLIENT_HELLO, body.len(), 0, 0, &body))
}

/// False lengths, fragments beyond the end, future messages, thousands of one-byte fragments: the
/// session does not connect, ends in time, and its queue is bounded.
#[test]
fn malformed_fragments_are_rejected() {
    type Lie = fn(&[u8]) -> Vec<Vec<u8>>;
    let lies: [(&str, Lie); 8] = [
        ("a length of 16 MB", |hello| {
            vec![record(0, &piece(CLIENT_HELLO, 0xff_ffff, 0, 0, body(hello)))]
        }),
        ("pieces that go on for ever", |hello| {
            let at = |nth: usize| {
                record(
                    nth as u64,
                    &piece(CLIENT_HELLO, 0xff_ffff, 0, nth * 1_000, &[0x5a; 1_000]),
                )
            };
            (0..2_000).map(at).chain([hello.to_vec()]).collect()
        }),
        ("a piece beyond the end", |hello| {
            vec![record(0, &piece(CLIENT_HELLO, 100, 0, 90, body(hello)))]
        }),
        ("pieces that do not agree", |hello| {
            let body = body(hello);
            vec![
                record(0, &piece(CLIENT_HELLO, body.len(), 0, 0, &body[..50])),
                record(1, &piece(CLIENT_HELLO, body.len() + 1, 0, 50, &body[50..])),
            ]
        }),
        ("pieces that overlap", |hello| {
            let body = body(hello);
            vec![
                record(0, &piece(CLIENT_HELLO, body.len(), 0, 0, &body[..60])),
                record(1, &piece(CLIENT_HELLO, body.len(), 0, 50, &body[50..])),
            ]
        }),
        ("empty pieces", |_| {
            (0..2_000)
                .map(|nth| record(nth, &piece(CLIENT_HELLO, 100, 0, 0, &[])))
                .collect()
        }),
        ("pieces of one byte", |hello| {
            let ends: Vec<usize> = (1..body(hello).len()).collect();
            cut(hello, &ends)
        }),
        ("messages from the future", |hello| {
            (1..2_000)
                .map(|nth| {
                    record(
                        u64::from(nth),
                        &piece(CLIENT_HELLO, body(hello).len(), nth, 0, body(hello)),
                    )
                })
                .collect()
        }),
    ];
    for (what, lie) in lies {
        let mut pair = with_hello(lie);
        pair.run(CONNECT_WITHIN + secs(3));
        match pair.left() {
            None => assert!(pair.saw(&SessionEvent::Joined), "{what}: {:?}", pair.bot.events),
            Some((reason, at)) => {
                assert!(
                    matches!(reason, LeaveReason::NeverConnected | LeaveReason::Failed),
                    "{what}: {reason:?}"
                );
                assert!(at <= CONNECT_WITHIN, "{what}: {at:?}");
                assert!(pair.gone.is_some(), "{what}");
            }
        }
    }
}
