//! Record logs: what a peer sends, one that it sends again, and one that is too large.

use std::io::Write as _;

use flate2::{Compress, Compression, FlushCompress};

use super::*;

/// The log of another program: general compression, one flush after each record.
struct OtherWriter(Compress);

impl OtherWriter {
    fn new() -> Self {
        OtherWriter(Compress::new(Compression::default(), false))
    }

    fn frame(&mut self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len() + 100);
        self.0.compress_vec(text, &mut out, FlushCompress::Sync).unwrap();
        let end = out.len() - FLUSH_TAIL.len();
        assert_eq!(out[end..], FLUSH_TAIL);
        out.truncate(end);
        out
    }
}

fn message(text: &str) -> Result<Option<MoqRecord>, MoqRecordError> {
    Ok(Some(MoqRecord::Message(text.to_owned())))
}

const READY: &str = r#"{"label":"rtvi-ai","type":"client-ready","id":"1","data":{"version":"2.1.0"}}"#;

#[test]
fn a_log_has_numbers_and_an_epoch() {
    let mut writer = RecordWriter::new(0xabc);
    let mut inflater = Decompress::new(false);
    let mut plain = |frame: Vec<u8>| {
        let mut out = Vec::with_capacity(400);
        let frame = [&frame[..], &FLUSH_TAIL].concat();
        inflater
            .decompress_vec(&frame, &mut out, FlushDecompress::Sync)
            .unwrap();
        String::from_utf8(out).unwrap()
    };
    assert_eq!(
        plain(writer.append(" {\"a\":{}} ").unwrap()),
        r#"{"a":{},"seq":0,"epoch":"0000000000000abc"}"#
    );
    assert_eq!(
        plain(writer.append("{ }").unwrap()),
        r#"{"seq":1,"epoch":"0000000000000abc"}"#
    );
    for other in ["", "[1]", "7", "\"x\"", "{", "{\"a\":1} x", "{\"a\"}", "null"] {
        assert_eq!(writer.append(other), None, "{other}");
    }
    let mut reader = RecordReader::default();
    assert_eq!(
        reader.read(&RecordWriter::new(1).append(SESSION_ENDING).unwrap()),
        Ok(Some(MoqRecord::Control(SESSION_ENDING_TYPE.to_owned())))
    );
}

#[test]
fn records_survive() {
    let mut writer = RecordWriter::new(7);
    let mut reader = RecordReader::default();
    for n in 0..2_000 {
        let text = format!(r#"{{"label":"rtvi-ai","n":{n},"text":"grüße {}"}}"#, "x".repeat(n % 97));
        let frame = writer.append(&text).unwrap();
        assert_eq!(reader.read(&frame), message(&text));
    }
}

#[test]
fn reads_the_log_of_another_compressor() {
    let (mut writer, mut reader) = (OtherWriter::new(), RecordReader::default());
    assert_eq!(reader.read(&writer.frame(READY.as_bytes())), message(READY));
    for other in ["[1,2]", "null", "text", "", "{\"a\":"] {
        let frame = writer.frame(format!("{other} ").as_bytes());
        assert_eq!(reader.read(&frame), Err(MoqRecordError::NotAnObject), "{other}");
    }
    assert_eq!(
        reader.read(&writer.frame(b"\xff\xfe{}")),
        Err(MoqRecordError::NotAnObject)
    );
    // Without `seq`, a record arrives unchanged, equal ones as well.
    for _ in 0..2 {
        let odd = r#"{"b":1,  "a":2,"epoch":"x"}"#;
        assert_eq!(reader.read(&writer.frame(odd.as_bytes())), message(odd));
    }
}

/// A new subscription brings the whole log again.
#[test]
fn numbered_records_are_read_once() {
    let mut writer = RecordWriter::new(1);
    let frames: Vec<_> = (0..4)
        .map(|n| writer.append(&format!("{{\"n\":{n}}}")).unwrap())
        .collect();
    let mut reader = RecordReader::default();
    assert_eq!(reader.read(&frames[0]), message("{\"n\":0}"));
    assert_eq!(reader.read(&frames[1]), message("{\"n\":1}"));
    reader.restart();
    let replayed: Vec<_> = frames
        .iter()
        .map(|frame| reader.read(frame).unwrap().is_some())
        .collect();
    assert_eq!(replayed, [false, false, true, true]);
    // Another instance has another epoch.
    reader.restart();
    let mut writer = RecordWriter::new(2);
    assert_eq!(reader.read(&writer.append("{\"n\":0}").unwrap()), message("{\"n\":0}"));
}

#[test]
fn equal_records_without_numbers_are_read_once_in_a_replay() {
    let texts = [READY, "{\"n\":1}", "{\"n\":1}"];
    let log = |more: &[&str]| {
        let mut writer = OtherWriter::new();
        let texts = texts.iter().chain(more);
        texts.map(|text| writer.frame(text.as_bytes())).collect::<Vec<_>>()
    };
    let mut reader = RecordReader::default();
    let read = |reader: &mut RecordReader, frames: &[Vec<u8>]| -> Vec<bool> {
        frames
            .iter()
            .map(|frame| reader.read(frame).unwrap().is_some())
            .collect()
    };
    assert_eq!(read(&mut reader, &log(&[])), [true; 3]);
    reader.restart();
    assert_eq!(read(&mut reader, &log(&["{\"n\":1}"])), [false, false, false, true]);
    reader.restart();
    assert_eq!(
        read(&mut reader, &log(&["{\"n\":1}", "{}"])),
        [false, false, false, false, true]
    );
    // A new instance of the peer begins with another record.
    reader.restart();
    let mut writer = OtherWriter::new();
    let other: Vec<_> = ["{\"id\":2}", "{\"n\":1}"]
        .map(|text| writer.frame(text.as_bytes()))
        .into();
    assert_eq!(read(&mut reader, &other), [true, true]);
    reader.restart();
    assert_eq!(read(&mut reader, &log(&[])), [true; 3]);
}

#[test]
fn oversized_records_are_skipped() {
    let (mut writer, mut reader) = (OtherWriter::new(), RecordReader::default());
    let fill = |bytes: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8));
    let longest = fill(MESSAGE_BYTES_MAX);
    assert_eq!(reader.read(&writer.frame(longest.as_bytes())), message(&longest));
    let frame = writer.frame(fill(MESSAGE_BYTES_MAX + 1).as_bytes());
    assert_eq!(reader.read(&frame), Err(MoqRecordError::TooLong));
    assert_eq!(reader.read(&writer.frame(b"{}")), message("{}"), "the next one is read");
}

#[test]
fn an_inflate_bomb_ends_the_log() {
    let (mut writer, mut reader) = (OtherWriter::new(), RecordReader::default());
    let mut bomb = Vec::new();
    let zeros = vec![b' '; 1 << 20];
    for _ in 0..64 {
        bomb.extend(writer.frame(&zeros));
        bomb.extend(FLUSH_TAIL);
    }
    assert!(bomb.len() < 100_000);
    assert_eq!(reader.read(&bomb), Err(MoqRecordError::Bomb));
    assert!(reader.text.capacity() <= 2 * MESSAGE_BYTES_MAX);
    assert_eq!(reader.read(&writer.frame(b"{}")), Err(MoqRecordError::Corrupt));
}

#[test]
fn noise_is_not_a_log() {
    let mut state = 3_u32;
    for _ in 0..2_000 {
        let mut reader = RecordReader::default();
        let noise: Vec<u8> = (0..40)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        for frame in noise.chunks(10) {
            let _ = reader.read(frame);
        }
    }
    // The end of a stream is not followed by more of it.
    let mut ended = flate2::write::DeflateEncoder::new(Vec::new(), Compression::default());
    ended.write_all(b"{}").unwrap();
    let mut reader = RecordReader::default();
    let ended = reader.read(&ended.finish().unwrap());
    assert!(ended.is_err() || ended == message("{}"));
}
