//! The parsers of this layer behind one function, for the fuzz targets.

use bytes::Bytes;

use super::capsule::{CapsuleReader, SessionClose, put_close};
use super::connect::{parse_request, parse_response};
use super::frame::{Http3Frame, Http3FrameReader};
use super::qpack::decode_fields;
use super::settings::Http3Settings;

/// Parses the bytes of a peer: one byte that selects the parser, one for the size of reads, and
/// what the parser reads. It panics if the size of reads changes the result.
pub fn check_parsers(bytes: &[u8]) {
    let [parser, step, input @ ..] = bytes else {
        return;
    };
    let step = usize::from(*step).max(1);
    match parser % 4 {
        0 => assert_eq!(frames(input, step), frames(input, usize::MAX)),
        1 => {
            let close = capsules(input, step);
            assert_eq!(close, capsules(input, usize::MAX));
            if let Ok(Some(close)) = close {
                let mut written = Vec::new();
                put_close(close.code, &close.reason, &mut written);
                let again = capsules(&written, step).expect("a valid capsule");
                assert_eq!(again.expect("a close").code, close.code);
            }
        }
        2 => {
            let _ = Http3Settings::parse(input);
        }
        _ => {
            let mut fields = 0;
            let _ = decode_fields(input, |name, value| fields += name.len() + value.len() + 1);
            // A field takes a byte at least, and the static table has values of 100 bytes.
            assert!(fields <= 200 * input.len());
            let _ = parse_response(input);
            if let Ok(request) = parse_request(input) {
                assert!(request.path.starts_with('/'));
            }
        }
    }
}

/// The frames of a stream. Adjacent parts of DATA are one.
fn frames(input: &[u8], step: usize) -> Vec<Http3Frame> {
    let mut reader = Http3FrameReader::default();
    let mut frames: Vec<Http3Frame> = Vec::new();
    for part in input.chunks(step) {
        let mut part = Bytes::copy_from_slice(part);
        while let Some(frame) = reader.read(&mut part) {
            if let (Some(Http3Frame::Data(before)), Http3Frame::Data(more)) = (frames.last_mut(), &frame)
                && !more.is_empty()
            {
                *before = [&before[..], &more[..]].concat().into();
            } else {
                frames.push(frame);
            }
        }
    }
    frames
}

/// The close among the capsules of a session.
fn capsules(input: &[u8], step: usize) -> Result<Option<SessionClose>, ()> {
    let mut reader = CapsuleReader::default();
    for part in input.chunks(step) {
        if let Some(close) = reader.read(part).map_err(|_| ())? {
            return Ok(Some(close));
        }
    }
    Ok(None)
}
