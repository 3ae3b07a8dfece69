//! Tests of transcripts in LiveKit rooms.

use std::time::Duration;

use super::*;
use crate::bot_message::SpokenText;

fn bot() -> TranscriptSpeaker {
    TranscriptSpeaker {
        identity: String::new(),
        track_sid: "TR_own".into(),
    }
}

fn ann() -> TranscriptSpeaker {
    TranscriptSpeaker {
        identity: "ann".into(),
        track_sid: "TR_ann".into(),
    }
}

fn started() -> Transcripts {
    let mut transcripts = Transcripts::default();
    transcripts.start("PA_own");
    transcripts
}

/// Sender, attributes at the end, text, and whether it is complete.
type SeenStream = (String, BTreeMap<String, String>, String, bool);

/// Returns the streams in their order.
fn streams(transcripts: &mut Transcripts) -> Vec<SeenStream> {
    let mut streams: Vec<(String, SeenStream)> = Vec::new();
    while let Some(TranscriptPacket { identity, value }) = transcripts.poll_packet() {
        match value {
            DataValue::StreamHeader(header) => {
                assert_eq!(
                    (header.topic.as_str(), header.mime_type.as_str()),
                    (TRANSCRIPTION_TOPIC, "text/plain")
                );
                assert!(header.content.is_some() && header.timestamp == 9);
                let seen = (identity, header.attributes, String::new(), false);
                streams.push((header.stream_id, seen));
            }
            DataValue::StreamChunk(chunk) => {
                let stream = streams
                    .iter_mut()
                    .find(|stream| stream.0 == chunk.stream_id)
                    .expect("a header");
                assert_eq!((&stream.1.0, stream.1.3), (&identity, false));
                stream.1.2 += std::str::from_utf8(&chunk.content).expect("cut at characters");
            }
            DataValue::StreamTrailer(trailer) => {
                let stream = streams
                    .iter_mut()
                    .find(|stream| stream.0 == trailer.stream_id)
                    .expect("a header");
                stream.1.1.extend(trailer.attributes);
                stream.1.3 = true;
            }
            other => panic!("{other:?}"),
        }
    }
    streams.into_iter().map(|(_, seen)| seen).collect()
}

fn output(segment: u64, text: &str, spoken: usize) -> BotText {
    let status = match spoken {
        0 => "new",
        _ if spoken == text.len() => "completed",
        _ => "in-progress",
    };
    BotText {
        text: text.into(),
        segment_id: Some(segment),
        will_be_spoken: Some(true),
        spoken_status: Some(status.into()),
        spoken_progress: Some(SpokenText {
            accumulated_text: text[..spoken].into(),
        }),
    }
}

/// A turn is one stream: words are appended as they are spoken, and sentences are separated.
#[test]
fn the_bots_turn_is_one_stream() {
    let start = Instant::now();
    let mut transcripts = started();
    transcripts.handle_speech(true, start);
    for (segment, text, spoken) in [
        (1, "Hello there.", 0),
        (1, "Hello there.", 5),
        (1, "Hello there.", 12),
        (2, "How are you?", 0),
        (2, "How are you?", 12),
    ] {
        transcripts.handle_output(&output(segment, text, spoken), &bot(), 9, start);
    }
    assert_eq!(transcripts.poll_timeout(), None, "it speaks");
    let stop = start + Duration::from_secs(2);
    transcripts.handle_speech(false, stop);
    let just = stop + ROOM_TRANSCRIPT_PAUSE - Duration::from_millis(1);
    transcripts.handle_timeout(&bot(), 9, just);
    let open = streams(&mut transcripts);
    let [(identity, attributes, text, false)] = &open[..] else {
        panic!("{open:?}")
    };
    assert_eq!((identity.as_str(), text.as_str()), ("", "Hello there. How are you?"));
    assert_eq!(
        (attributes[TRACK_ID].as_str(), attributes[FINAL].as_str()),
        ("TR_own", "false")
    );
    assert_eq!(transcripts.poll_timeout(), Some(stop + ROOM_TRANSCRIPT_PAUSE));
    transcripts.handle_timeout(&bot(), 9, stop + ROOM_TRANSCRIPT_PAUSE);
    let Some(TranscriptPacket {
        value: DataValue::StreamTrailer(trailer),
        ..
    }) = transcripts.poll_packet()
    else {
        panic!("a trailer")
    };
    assert_eq!(
        (trailer.attributes[FINAL].as_str(), trailer.reason.as_str()),
        ("true", "")
    );
    assert_eq!(transcripts.poll_timeout(), None);

    // The next turn is another stream and another segment.
    transcripts.handle_output(&output(3, "Bye.", 4), &bot(), 9, stop);
    transcripts.handle_turn_end(&bot(), 9, stop);
    let next = streams(&mut transcripts);
    assert_eq!((next.len(), next[0].2.as_str(), next[0].3), (1, "Bye.", true));
    assert_ne!(next[0].1[SEGMENT_ID], attributes[SEGMENT_ID]);
}

/// Text that is shown and not spoken appears at once.
#[test]
fn shown_text_appears_at_once() {
    let now = Instant::now();
    let mut transcripts = started();
    let plain = BotText {
        text: "hello".into(),
        ..BotText::default()
    };
    let shown = BotText {
        will_be_spoken: Some(false),
        spoken_status: Some("new".into()),
        segment_id: Some(1),
        ..plain.clone()
    };
    transcripts.handle_output(&plain, &bot(), 9, now);
    transcripts.handle_output(&shown, &bot(), 9, now);
    transcripts.handle_timeout(&bot(), 9, now + ROOM_TRANSCRIPT_PAUSE);
    let shown = streams(&mut transcripts);
    assert_eq!((shown.len(), shown[0].2.as_str(), shown[0].3), (1, "hello hello", true));
}

/// `bot-transcription` has the text of `bot-output` once more, and earlier.
#[test]
fn sentences_of_the_model_are_shown_only_without_bot_output() {
    let now = Instant::now();
    let mut transcripts = started();
    transcripts.handle_sentence("One.", now);
    transcripts.handle_sentence("Two.", now);
    assert!(streams(&mut transcripts).is_empty());
    transcripts.handle_timeout(&bot(), 9, now + ROOM_TRANSCRIPT_PAUSE);
    let shown = streams(&mut transcripts);
    assert_eq!((shown.len(), shown[0].2.as_str(), shown[0].3), (1, "One. Two.", true));

    transcripts.handle_sentence("Three.", now);
    transcripts.handle_output(&output(1, "Three.", 6), &bot(), 9, now);
    transcripts.handle_sentence("Four.", now);
    transcripts.handle_turn_end(&bot(), 9, now);
    let shown = streams(&mut transcripts);
    assert_eq!((shown.len(), shown[0].2.as_str()), (1, "Three."));

    let mut transcripts = started();
    for _ in 0..10 {
        transcripts.handle_sentence(&"x".repeat(ROOM_TRANSCRIPT_BYTES_MAX / 4), now);
    }
    assert!(transcripts.sentences.len() <= ROOM_TRANSCRIPT_BYTES_MAX);
}

/// Each update of a caller is a whole text under the caller's name, in one segment until the
/// final one, which also ends the bot's turn.
#[test]
fn a_caller_is_transcribed_under_its_identity() {
    let now = Instant::now();
    let mut transcripts = started();
    transcripts.handle_output(&output(1, "Yes?", 4), &bot(), 9, now);
    streams(&mut transcripts);
    for (text, is_final) in [("I", false), ("I am", false), ("I am Ann.", true), ("", true)] {
        transcripts.handle_user(&ann(), text, is_final, 9);
    }
    let Some(DataValue::StreamTrailer(_)) = transcripts.packets.iter().map(|packet| packet.value.clone()).nth(6) else {
        panic!("the bot's turn ends: {:?}", transcripts.packets)
    };
    transcripts.packets.remove(6);
    let said = streams(&mut transcripts);
    let texts: Vec<_> = said
        .iter()
        .map(|(who, attributes, text, done)| (who.as_str(), text.as_str(), attributes[FINAL].as_str(), *done))
        .collect();
    assert_eq!(
        texts,
        [
            ("ann", "I", "false", true),
            ("ann", "I am", "false", true),
            ("ann", "I am Ann.", "true", true)
        ]
    );
    assert!(
        said.iter()
            .all(|(_, attributes, ..)| attributes[TRACK_ID] == "TR_ann"
                && attributes[SEGMENT_ID] == said[0].1[SEGMENT_ID])
    );
    transcripts.handle_user(&ann(), "Next", true, 9);
    let bob = TranscriptSpeaker {
        identity: "bob".into(),
        ..TranscriptSpeaker::default()
    };
    transcripts.handle_user(&bob, "Me too", false, 9);
    transcripts.handle_user(&ann(), "And I", false, 9);
    let more = streams(&mut transcripts);
    let mut segments: Vec<_> = said[..1]
        .iter()
        .chain(&more)
        .map(|(_, attributes, ..)| &attributes[SEGMENT_ID])
        .collect();
    segments.dedup();
    assert_eq!(segments.len(), 4);
    assert!(!more[1].1.contains_key(TRACK_ID));
}

#[test]
fn long_texts_are_cut_at_characters() {
    let text = "\u{e9}".repeat(ROOM_STREAM_CHUNK_BYTES_MAX);
    let pieces: Vec<&str> = chunks(&text).collect();
    assert_eq!(pieces.concat(), text);
    assert!(pieces.len() == 2 && pieces.iter().all(|piece| piece.len() <= ROOM_STREAM_CHUNK_BYTES_MAX));
}
