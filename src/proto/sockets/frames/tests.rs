//! Frames of Pipecat's protobuf, byte for byte, and bytes that are none.

use super::*;

fn read(bytes: impl Into<Bytes>) -> Result<ProtobufFrame, ProtobufError> {
    decode(bytes.into())
}

fn wire(kind: WireKind) -> Vec<u8> {
    WireFrame { frame: Some(kind) }.encode_to_vec()
}

/// A microphone frame of the stock client, byte for byte: name, PCM, rate, channels, no id.
const FROM_CLIENT: &[u8] = b"\x12\x12\x12\x05audio\x1a\x04\x01\x02\xff\xff\x20\x80\x7d\x28\x01";

#[test]
fn decodes_microphone_audio_without_a_copy() {
    let bytes = Bytes::from_static(FROM_CLIENT);
    let within = bytes.as_ptr_range();
    let Ok(ProtobufFrame::Audio { pcm, rate_hz, channels }) = decode(bytes) else {
        panic!("it is audio");
    };
    assert_eq!((&pcm[..], rate_hz, channels), (&[1, 2, 0xff, 0xff][..], 16_000, 1));
    assert!(within.contains(&pcm.as_ptr()), "the PCM is a slice of the message");
    let mut decoded = vec![7];
    assert_eq!(samples(&pcm, channels, &mut decoded), Ok(()));
    assert_eq!(decoded, [7, 0x0201, -1], "samples are appended");
}

/// Frames encoded by hand equal those of the derived encoder, in one allocation of their exact
/// length.
#[test]
fn hand_encoded_frames_match_the_schema() {
    for count in [1, 3, 61, 62, 160, 480, 960, 8_000, 48_000] {
        let pcm: Vec<i16> = (0..count).map(|at| (at as i16).wrapping_mul(257)).collect();
        for rate_hz in [1, 127, 128, 8_000, 16_000, 24_000, 48_000, u32::MAX] {
            let expected = wire(WireKind::Audio(WireAudio {
                audio: pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect(),
                sample_rate: rate_hz,
                num_channels: 1,
                ..WireAudio::default()
            }));
            let frame = audio(&pcm, rate_hz);
            assert_eq!(frame, expected, "{count} samples, {rate_hz} Hz");
            assert_eq!(frame.capacity(), frame.len());
        }
    }
    for text in ["{}", "\u{e9}", &"x".repeat(125), &"x".repeat(126), &"x".repeat(200_000)] {
        let frame = message(text);
        let expected = wire(WireKind::Message(WireMessage { data: text.into() }));
        assert_eq!(frame, expected, "{} bytes", text.len());
        assert_eq!(frame.capacity(), frame.len());
    }
    assert_eq!(
        interruption(),
        wire(WireKind::Interruption(WireInterruption::default()))
    );
}

#[test]
fn distinguishes_every_frame_kind() {
    assert_eq!(
        read(message("{\"a\":1}")),
        Ok(ProtobufFrame::Message("{\"a\":1}".into()))
    );
    assert_eq!(read(message("")), Ok(ProtobufFrame::Message(String::new())));
    assert_eq!(read(interruption()), Ok(ProtobufFrame::Interruption));
    let silence = ProtobufFrame::Audio {
        pcm: Bytes::new(),
        rate_hz: 24_000,
        channels: 1,
    };
    assert_eq!(read(audio(&[], 24_000)), Ok(silence));
    let text = WireText {
        text: "hello".into(),
        ..WireText::default()
    };
    assert_eq!(
        read(wire(WireKind::Text(text))),
        Ok(ProtobufFrame::Text("hello".into()))
    );
    let said = WireTranscription {
        id: 7,
        text: "hello".into(),
        user_id: "ann".into(),
        timestamp: "12:00".into(),
        ..WireTranscription::default()
    };
    let expected = ProtobufFrame::Transcription {
        text: "hello".into(),
        user_id: "ann".into(),
        timestamp: "12:00".into(),
    };
    assert_eq!(read(wire(WireKind::Transcription(said))), Ok(expected));
}

/// An empty message has no content, like one of a later schema; unknown fields are skipped.
#[test]
fn skips_unknown_fields() {
    assert_eq!(read(&b""[..]), Ok(ProtobufFrame::Unset));
    assert_eq!(read(&b"\x4a\x02hi"[..]), Ok(ProtobufFrame::Unset), "field 9");
    let mut later = vec![0x12, 0x0b];
    later.extend(b"\x52\x03new\x20\x80\x7d\x28\x01\x30\x07");
    later[1] = (later.len() - 2) as u8;
    let expected = ProtobufFrame::Audio {
        pcm: Bytes::new(),
        rate_hz: 16_000,
        channels: 1,
    };
    assert_eq!(read(later), Ok(expected), "field 10, and a time stamp");
}

#[test]
fn rejects_bytes_that_are_not_a_frame() {
    let cut: [&[u8]; 8] = [
        b"\x12",
        b"\x12\x05\x1a",
        &FROM_CLIENT[..FROM_CLIENT.len() - 1],
        b"\x22\x03\x0a\x01\xff",                         // a message that is no UTF-8
        b"\x12\x02\x18\x01",                             // PCM with the type of a number
        b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", // a length above every memory
        b"{\"label\":\"rtvi-ai\"}",
        b"\x00\x00",
    ];
    for bytes in cut {
        assert_eq!(read(bytes), Err(ProtobufError::NoFrame), "{bytes:02x?}");
    }
    // The depth of nested groups is limited.
    assert_eq!(read(vec![0x0b; 100_000]), Err(ProtobufError::NoFrame));
}

#[test]
fn averages_stereo_and_rejects_partial_samples() {
    let mut decoded = Vec::new();
    let stereo: Vec<u8> = [i16::MIN, i16::MIN, i16::MAX, i16::MAX, 100, 300]
        .iter()
        .flat_map(|sample| sample.to_le_bytes())
        .collect();
    assert_eq!(samples(&stereo, 2, &mut decoded), Ok(()));
    assert_eq!(decoded, [i16::MIN, i16::MAX, 200]);
    // Unset channels mean mono.
    assert_eq!(samples(&stereo[..2], 0, &mut decoded), Ok(()));
    assert_eq!(decoded.pop(), Some(i16::MIN));

    assert_eq!(samples(&[1, 2, 3], 1, &mut decoded), Err(partial_sample(&[1, 2, 3], 1)));
    assert_eq!(
        samples(&stereo[..6], 2, &mut decoded),
        Err(partial_sample(&stereo[..6], 2))
    );
    assert_eq!(samples(&stereo, 3, &mut decoded), Err(ProtobufError::Channels(3)));
    assert_eq!(decoded.len(), 3, "what is refused appends nothing");
    assert_eq!(
        partial_sample(&[1], 1).to_string(),
        "1 bytes: 16-bit mono audio needs a multiple of 2 bytes"
    );
}

/// Pipecat's client transport adds one by default; its 44 bytes would be a click in every
/// frame.
#[test]
fn skips_a_wav_header() {
    let head = b"RIFF\x28\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\xc0\x5d\0\0\x80\xbb\0\0\x02\0\x10\0data\x04\0\0\0";
    let wav = [head.as_slice(), &[1, 2, 3, 4]].concat();
    assert_eq!(without_wav_header(&wav), [1, 2, 3, 4]);
    assert_eq!(without_wav_header(&wav[..44]), [0; 0]);
    assert_eq!(without_wav_header(&wav[..43]), &wav[..43]);
    assert_eq!(without_wav_header(&wav[4..]), &wav[4..]);
    assert_eq!(without_wav_header(&[0; 100]), [0; 100]);
}
