//! SETTINGS of HTTP/3 (RFC 9114, section 7.2.4) for WebTransport.
//!
//! The setting that enables WebTransport changed its identifier with the drafts. Chromium and the
//! MoQ libraries know those of draft 02 and of draft 07; both are sent and accepted.

use super::frame::{SETTINGS, VarintReader, put_frame, put_varint};
use super::qpack::FIELD_SECTION_MAX;

const MAX_FIELD_SECTION_SIZE: u64 = 0x06;
/// RFC 9220.
const ENABLE_CONNECT_PROTOCOL: u64 = 0x08;
/// RFC 9297. WebTransport requires it, though MoQ sends no datagrams.
const H3_DATAGRAM: u64 = 0x33;
/// draft-ietf-masque-h3-datagram-04, which older browsers ask for.
const H3_DATAGRAM_DRAFT_04: u64 = 0xff_d277;
const ENABLE_WEBTRANSPORT_DRAFT_02: u64 = 0x2b60_3742;
const WEBTRANSPORT_MAX_SESSIONS_DRAFT_02: u64 = 0x2b60_3743;
const WEBTRANSPORT_MAX_SESSIONS_DRAFT_07: u64 = 0xc671_706a;

/// What the SETTINGS of the remote end say about WebTransport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Http3Settings {
    has_webtransport: bool,
}

/// A SETTINGS frame that ends within a setting, or has a reserved or repeated one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidSettings;

impl Http3Settings {
    /// Parses the payload of a SETTINGS frame.
    pub fn parse(payload: &[u8]) -> Result<Self, InvalidSettings> {
        let (mut settings, mut reader) = (Self::default(), VarintReader::default());
        let mut identifier = None;
        for byte in payload {
            let Some(value) = reader.push(*byte) else {
                continue;
            };
            match identifier.take() {
                None => identifier = Some(value),
                Some(identifier) => settings.set(identifier, value)?,
            }
        }
        match reader == VarintReader::default() && identifier.is_none() {
            true => Ok(settings),
            false => Err(InvalidSettings),
        }
    }

    fn set(&mut self, identifier: u64, value: u64) -> Result<(), InvalidSettings> {
        match identifier {
            // Settings of HTTP/2 (RFC 9114, section 7.2.4.1).
            0x00 | 0x02..=0x05 => return Err(InvalidSettings),
            ENABLE_CONNECT_PROTOCOL | H3_DATAGRAM if value > 1 => return Err(InvalidSettings),
            ENABLE_WEBTRANSPORT_DRAFT_02 | WEBTRANSPORT_MAX_SESSIONS_DRAFT_02 | WEBTRANSPORT_MAX_SESSIONS_DRAFT_07 => {
                self.has_webtransport |= value > 0
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether a server with these settings accepts sessions. The settings of WebTransport imply
    /// extended CONNECT.
    pub fn accepts_sessions(self) -> bool {
        self.has_webtransport
    }
}

/// The SETTINGS frame of this end: one session per connection, and no dynamic table.
pub fn put_settings(output: &mut Vec<u8>) {
    let mut payload = Vec::with_capacity(48);
    for (identifier, value) in [
        (MAX_FIELD_SECTION_SIZE, FIELD_SECTION_MAX as u64),
        (ENABLE_CONNECT_PROTOCOL, 1),
        (H3_DATAGRAM, 1),
        (H3_DATAGRAM_DRAFT_04, 1),
        (ENABLE_WEBTRANSPORT_DRAFT_02, 1),
        (WEBTRANSPORT_MAX_SESSIONS_DRAFT_02, 1),
        (WEBTRANSPORT_MAX_SESSIONS_DRAFT_07, 1),
    ] {
        put_varint(identifier, &mut payload);
        put_varint(value, &mut payload);
    }
    put_frame(SETTINGS, &payload, output);
}
