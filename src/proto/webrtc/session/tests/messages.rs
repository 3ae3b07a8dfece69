//! Texts in both directions: their channel, which reach the bot, and what waits.

use super::super::*;
use super::pair::{Pair, ms, secs};
use crate::limits::{MESSAGE_BYTES_MAX, MESSAGES_OUT_MAX};
use crate::testing::client::TestClient;

/// Messages use the channel `chat`, even if another was opened before. The other one is still
/// received.
#[test]
fn the_channel_called_chat_is_preferred() {
    let mut pair = Pair::with(TestClient::new("192.0.2.9:5000").labels(&["stats"]), |offer| offer);
    pair.connect();
    let stats = pair.client.channel("stats");
    pair.client.open("chat".to_owned());
    assert!(pair.run_until(secs(2), |pair| pair.client.channels.len() == 2));
    pair.run(ms(50));
    let chat = pair.client.channel("chat");
    pair.client.write(stats, false, b"on stats");
    pair.client.write(chat, false, b"on chat");
    pair.send("to the client");
    pair.run(ms(100));
    assert_eq!(pair.texts(), ["on stats", "on chat"]);
    assert_eq!(pair.client.texts(), ["to the client"]);
    assert_eq!(pair.client.read_on, [chat]);
    // Only the message channel stands for the client.
    pair.client.rtc.direct_api().close_data_channel(stats);
    pair.run(ms(500));
    assert_eq!(pair.left(), None);
    pair.client.rtc.direct_api().close_data_channel(chat);
    pair.run(ms(500));
    assert_eq!(pair.left().map(|(reason, _)| reason), Some(LeaveReason::Left));
}

/// A client that closes one of its channels goes on with the others, and leaves with the last.
#[test]
fn a_closed_channel_is_followed_by_another() {
    for (first, second, closed) in [
        ("chat", "stats", "stats"),
        ("chat", "stats", "chat"),
        ("stats", "chat", "stats"),
        ("events", "files", "events"),
        ("events", "files", "files"),
        ("rtvi-ai", "chat", "chat"),
    ] {
        let mut pair = Pair::with(TestClient::new("192.0.2.9:5000").labels(&[first]), |offer| offer);
        pair.connect();
        pair.client.open(second.to_owned());
        assert!(pair.run_until(secs(2), |pair| pair.client.channels.len() == 2));
        pair.run(ms(50));
        let gone = pair.client.channel(closed);
        let left = pair.client.channel(if closed == first { second } else { first });
        pair.client.rtc.direct_api().close_data_channel(gone);
        pair.run(ms(500));
        pair.client.write(left, false, b"still here");
        pair.send("to the client");
        pair.run(ms(500));
        assert_eq!(pair.texts(), ["still here"], "{first}, {second}, {closed} closed");
        assert_eq!(
            pair.client.texts(),
            ["to the client"],
            "{first}, {second}, {closed} closed"
        );
        assert_eq!(pair.client.read_on, [left], "{first}, {second}, {closed} closed");
        assert_eq!(pair.left(), None);
        pair.client.rtc.direct_api().close_data_channel(left);
        pair.run(ms(500));
        assert_eq!(pair.left().map(|(reason, _)| reason), Some(LeaveReason::Left));
    }
}

/// RTVI messages are sent unasked on RTVI's channels only, and `session.created` comes first on
/// that of its clients. The bot's own texts pass.
#[test]
fn rtvi_is_not_sent_unasked_on_other_channels() {
    const RTVI: &str = r#"{"label":"rtvi-ai","type":"bot-started-speaking"}"#;
    for (label, unasked) in [
        ("chat", vec![RTVI, "own"]),
        ("rtvi-ai", vec![RTVI, "own"]),
        ("telemetry", vec!["own"]),
        ("oai-events", vec!["session.created", "own"]),
    ] {
        let mut pair = Pair::with(TestClient::new("192.0.2.9:5000").labels(&[label]), |offer| offer);
        pair.send(RTVI);
        pair.send("own");
        pair.connect();
        pair.run(ms(100));
        let texts = pair.client.texts();
        assert_eq!(texts.len(), unasked.len(), "{label}: {texts:?}");
        let all = texts.iter().zip(unasked);
        assert!(
            all.clone().all(|(text, part)| text.contains(part)),
            "{label}: {texts:?}"
        );
        let before = texts.len();
        pair.client
            .send(r#"{"label":"rtvi-ai","type":"client-ready","id":"1","data":{}}"#);
        pair.run(ms(100));
        pair.send(RTVI);
        pair.run(ms(100));
        assert_eq!(pair.client.texts()[before..], [RTVI], "{label}");
    }
}

/// A client with one channel of another label is served on that.
#[test]
fn any_label_will_do() {
    for label in ["rtvi-ai", "", "чат"] {
        let mut pair = Pair::with(TestClient::new("192.0.2.9:5000").labels(&[label]), |offer| offer);
        pair.connect();
        pair.send("hello");
        pair.client.send("hello yourself");
        pair.run(ms(100));
        assert_eq!(pair.client.texts(), ["hello"], "{label}");
        assert_eq!(pair.texts(), ["hello yourself"], "{label}");
    }
}

/// The bot receives all texts but keep-alives and signalling, unchanged.
#[test]
fn the_bot_gets_no_keep_alives_and_signalling() {
    let mut pair = Pair::connected();
    for housekeeping in [
        "ping: 1795253681729",
        "ping",
        r#"{"type":"signalling","message":{"type":"trackStatus","receiver_index":0,"enabled":true}}"#,
        r#"{"message":null,"type":"\u0073ignalling","x":"signalling"}"#,
    ] {
        pair.client.send(housekeeping);
    }
    let texts = [
        r#"{"label":"rtvi-ai","type":"client-ready","data":{},"id":"d2d923ea"}"#,
        r#"{"label":"rtvi-ai","type":"client-message","data":{"t":"signalling"}}"#,
        r#"{"type":["signalling"]}"#,
        "signalling",
        " ping",
        "\u{0}\u{1F600}",
    ];
    for text in texts {
        pair.client.send(text);
    }
    pair.run(ms(200));
    assert_eq!(pair.texts(), texts);
}

/// Binary messages and invalid UTF-8 are ignored; later messages are not.
#[test]
fn binary_and_invalid_messages_are_ignored() {
    let mut pair = Pair::connected();
    let id = pair.client.open_channel().expect("a channel");
    pair.client.write(id, true, b"binary");
    pair.client.write(id, false, &[b'a', 0xff, b'b']);
    pair.client.write(id, false, &[0xed, 0xa0, 0x80]);
    pair.client.write(id, false, b"text");
    pair.run(ms(200));
    assert_eq!(pair.texts(), ["text"]);
    assert_eq!(pair.left(), None);
}

/// Clients whose library sends all text as bytes are understood, as far as it is JSON.
#[test]
fn a_binary_json_object_is_a_message() {
    let mut pair = Pair::connected();
    let id = pair.client.open_channel().expect("a channel");
    for binary in [&b" {\"a\":1}\n"[..], b"{", b"}", b"[1]", b"{\xff}", b""] {
        pair.client.write(id, true, binary);
    }
    pair.run(ms(200));
    assert_eq!(pair.texts(), [" {\"a\":1}\n"]);
}

/// The bot receives empty texts. They are not sent to the client, where they would block all later
/// ones.
#[test]
fn an_empty_text_blocks_nothing() {
    let mut pair = Pair::connected();
    // Until no acknowledgement precedes the message in its packet.
    pair.run(secs(1));
    pair.client.wires.lock().expect("whole").empty = true;
    pair.client.send("0");
    pair.client.send("not empty");
    pair.send("");
    pair.send("not empty either");
    pair.run(ms(200));
    assert_eq!(pair.texts(), ["", "not empty"]);
    assert_eq!(pair.client.texts(), ["not empty either"]);
}

/// The bot's messages wait for the channel in order; beyond the cap the newest are kept.
#[test]
fn messages_wait_for_the_channel() {
    let mut pair = Pair::new();
    for number in 0..MESSAGES_OUT_MAX + 2 {
        pair.send(&number.to_string());
    }
    pair.connect();
    pair.send("last");
    pair.run(ms(200));
    let expected = (2..MESSAGES_OUT_MAX + 2)
        .map(|number| number.to_string())
        .chain(["last".to_owned()]);
    assert_eq!(pair.client.texts(), expected.collect::<Vec<_>>());
}

/// A message of the maximum length passes both ways. A longer one is dropped, and the next is sent.
#[test]
fn messages_are_capped() {
    let mut pair = Pair::connected();
    let longest = "x".repeat(MESSAGE_BYTES_MAX);
    pair.send(&longest);
    pair.send(&"x".repeat(MESSAGE_BYTES_MAX + 1));
    pair.send("after");
    pair.run(secs(3));
    assert_eq!(pair.client.texts(), [longest.as_str(), "after"]);
    let id = pair.client.open_channel().expect("a channel");
    for part in [longest.as_str(), "after"] {
        let written = pair.client.rtc.channel(id).expect("open").write(false, part.as_bytes());
        if !written.expect("allowed") {
            pair.run(secs(3));
            pair.client.write(id, false, part.as_bytes());
        }
        pair.run(secs(3));
    }
    assert_eq!(pair.texts(), [longest.as_str(), "after"]);
}

/// A client that acknowledges nothing costs no more than the queues, and no CPU time (the harness
/// counts turns with expired deadlines). Queued messages arrive when it returns.
#[test]
fn a_client_without_acknowledgements_costs_little() {
    let mut pair = Pair::connected();
    pair.up.cut = true;
    let long = "y".repeat(MESSAGE_BYTES_MAX / 2);
    for number in 0..40 {
        pair.send(&format!("{number:02}{long}"));
        pair.run(ms(50));
    }
    let dropped = pair.session.outbox.dropped();
    // Two in the channel's buffer, eight of 128 KiB in the queue, less their numbering.
    assert!((40 - 4 - 8..40).contains(&dropped), "{dropped} of 40 dropped");
    pair.run(secs(2));
    pair.up.cut = false;
    pair.run(secs(40));
    let texts = pair.client.texts();
    assert!(
        texts.last().is_some_and(|text| text.starts_with("39")),
        "{}",
        texts.len()
    );
    assert!((8..40).contains(&texts.len()), "{} of 40 arrived", texts.len());
    let numbers: Vec<&str> = texts.iter().map(|text| &text[..2]).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    assert!(pair.session.outbox.is_empty());
}

/// A goodbye waits for a slow client for a limited time, without using the CPU.
#[test]
fn a_blocked_goodbye_times_out() {
    let mut pair = Pair::connected();
    pair.up.cut = true;
    let long = "z".repeat(MESSAGE_BYTES_MAX);
    for _ in 0..4 {
        pair.send(&long);
    }
    let ended = pair.time();
    pair.bot_ends();
    pair.run(secs(2));
    assert_eq!(pair.left().map(|(reason, _)| reason), Some(LeaveReason::BotEnded));
    assert!(pair.gone.expect("gone") - ended < secs(1));
}

/// Only the first channels stay open; the rest cost no memory.
#[test]
fn channels_are_bounded() {
    let mut pair = Pair::connected();
    for number in 0..200 {
        pair.client.open(format!("{number} {}", "l".repeat(1_000)));
        pair.run(ms(20));
    }
    pair.run(secs(2));
    let open = pair.client.channels.iter().filter(|channel| !channel.closed).count();
    assert!(open <= crate::limits::CHANNELS_MAX, "{open} channels are open");
    assert_eq!(pair.left(), None);
    let id = pair.client.channel("chat");
    pair.client.write(id, false, b"still here");
    pair.send("and so am I");
    pair.run(ms(200));
    assert_eq!(pair.texts(), ["still here"]);
    assert_eq!(pair.client.texts(), ["and so am I"]);
}
