//! The caller's end of an SCTP association for the fuzz targets: it opens one channel, acknowledges
//! everything, and sends any data.
//!
//! In: SCTP packets. Out: SCTP packets, received texts, and whether the channel is open. Nothing is
//! lost, so nothing is retransmitted. Sources: RFC 9260, RFC 8831, RFC 8832.

use std::collections::VecDeque;

const PORT: [u8; 2] = 5000_u16.to_be_bytes();
const TAG: [u8; 4] = [0xca, 0x11, 0xe4, 0x01];
const FIRST_TSN: u32 = 1_000;
const WINDOW: [u8; 4] = (1_u32 << 20).to_be_bytes();
const COOKIE: [u8; 8] = *b"a cookie";
/// Bytes of one DATA chunk; with its headers it fits the least MTU.
const FRAGMENT_BYTES: usize = 1_000;
pub const CONTROL: u32 = 50;
pub const TEXT: u32 = 51;

#[derive(Default)]
pub struct Association {
    begun: bool,
    pub up: bool,
    theirs: [u8; 4],
    sent: u32,
    sequence: u16,
    /// The highest TSN without a gap before it.
    seen: Option<u32>,
    pieces: Vec<u8>,
    pub channel_open: bool,
    pub texts: Vec<String>,
    pub aborted: bool,
    out: VecDeque<Vec<u8>>,
}

impl Association {
    /// Sends INIT, once.
    pub fn begin(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            let value = [&TAG[..], &WINDOW, &[0xff; 4], &FIRST_TSN.to_be_bytes()].concat();
            self.out.push_back(packet([0; 4], &chunk(1, 0, &value)));
        }
    }

    pub fn poll(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }

    /// Returns a packet with these chunks.
    pub fn packet(&self, chunks: &[u8]) -> Vec<u8> {
        packet(self.theirs, chunks)
    }

    /// Returns a DATA chunk with the next TSN.
    pub fn data(&mut self, flags: u8, stream: u16, ppid: u32, content: &[u8]) -> Vec<u8> {
        let tsn = FIRST_TSN.wrapping_add(self.sent);
        self.sent += 1;
        let head = [
            &tsn.to_be_bytes()[..],
            &stream.to_be_bytes(),
            &self.sequence.to_be_bytes(),
        ]
        .concat();
        chunk(0, flags, &[&head, &ppid.to_be_bytes()[..], content].concat())
    }

    /// Sends a message on a stream, in fragments.
    pub fn send(&mut self, stream: u16, ppid: u32, content: &[u8]) {
        let last = content.len().saturating_sub(1) / FRAGMENT_BYTES;
        for at in 0..=last {
            let piece = &content[at * FRAGMENT_BYTES..content.len().min((at + 1) * FRAGMENT_BYTES)];
            let flags = u8::from(at == 0) << 1 | u8::from(at == last);
            let data = self.data(flags, stream, ppid, piece);
            let packet = self.packet(&data);
            self.out.push_back(packet);
        }
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// Opens a reliable, ordered channel.
    pub fn open(&mut self, stream: u16, label: &[u8]) {
        let length = (label.len() as u16).to_be_bytes();
        let message = [&[3, 0, 0, 0, 0, 0, 0, 0][..], &length, &[0, 0], label].concat();
        self.send(stream, CONTROL, &message);
    }

    pub fn handle_packet(&mut self, bytes: &[u8]) {
        assert!(
            bytes.len() >= 12 && checksum(bytes) == bytes[8..12],
            "a packet with a right checksum"
        );
        let mut acknowledge = false;
        let mut rest = &bytes[12..];
        while let Some((&[kind, flags, high, low], _)) = rest.split_first_chunk() {
            let length = usize::from(u16::from_be_bytes([high, low]));
            let value = rest.get(4..length).expect("a whole chunk");
            match kind {
                0 => {
                    acknowledge = true;
                    self.handle_data(flags, value);
                }
                1 => {
                    self.theirs.copy_from_slice(&value[..4]);
                    self.see_from(&value[12..16]);
                    let head = [&TAG[..], &WINDOW, &[0xff; 4], &FIRST_TSN.to_be_bytes()].concat();
                    let cookie = chunk(0, 7, &COOKIE);
                    self.out.push_back(self.packet(&chunk(2, 0, &[head, cookie].concat())));
                }
                2 => self.handle_init_ack(value),
                4 => self.out.push_back(self.packet(&chunk(5, 0, value))),
                6 => self.aborted = true,
                7 => self.out.push_back(self.packet(&chunk(8, 0, &[]))),
                10 => {
                    self.out.push_back(self.packet(&chunk(11, 0, &[])));
                    self.come_up();
                }
                11 => self.come_up(),
                _ => {}
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        if acknowledge && let Some(seen) = self.seen {
            let value = [&seen.to_be_bytes()[..], &WINDOW, &[0; 4]].concat();
            self.out.push_back(self.packet(&chunk(3, 0, &value)));
        }
    }

    fn come_up(&mut self) {
        if !std::mem::replace(&mut self.up, true) {
            self.open(0, b"chat");
        }
    }

    fn see_from(&mut self, tsn: &[u8]) {
        let tsn = u32::from_be_bytes(tsn.try_into().expect("four bytes"));
        self.seen = Some(tsn.wrapping_sub(1));
    }

    fn handle_init_ack(&mut self, value: &[u8]) {
        self.theirs.copy_from_slice(&value[..4]);
        if self.seen.is_none() {
            self.see_from(&value[12..16]);
        }
        let mut rest = &value[16..];
        while let Some((&[first, second, high, low], _)) = rest.split_first_chunk() {
            let length = usize::from(u16::from_be_bytes([high, low]));
            if [first, second] == [0, 7] {
                self.out.push_back(self.packet(&chunk(10, 0, &rest[4..length])));
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }

    fn handle_data(&mut self, flags: u8, value: &[u8]) {
        let tsn = u32::from_be_bytes(value[..4].try_into().expect("four bytes"));
        // A retransmission after a late acknowledgement.
        if self.seen.is_some_and(|seen| seen.wrapping_add(1) != tsn) {
            return;
        }
        self.seen = Some(tsn);
        if flags & 2 != 0 {
            self.pieces.clear();
        }
        self.pieces.extend(&value[12..]);
        if flags & 1 == 0 {
            return;
        }
        match u32::from_be_bytes(value[8..12].try_into().expect("four bytes")) {
            CONTROL if self.pieces == [2] => self.channel_open = true,
            TEXT => {
                let text = String::from_utf8(self.pieces.clone()).expect("texts are UTF-8");
                self.texts.push(text);
            }
            ppid => panic!("the session sends nothing of kind {ppid}"),
        }
    }
}

pub fn chunk(kind: u8, flags: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, flags];
    bytes.extend((4 + value.len() as u16).to_be_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn packet(tag: [u8; 4], chunks: &[u8]) -> Vec<u8> {
    let mut bytes = [&PORT[..], &PORT, &tag, &[0; 4], chunks].concat();
    let sum = checksum(&bytes);
    bytes[8..12].copy_from_slice(&sum);
    bytes
}

/// CRC32c over the packet with a zero checksum, in wire order.
fn checksum(bytes: &[u8]) -> [u8; 4] {
    let mut blank = bytes.to_vec();
    blank[8..12].fill(0);
    crc(&blank, 0x82f6_3b78).to_le_bytes()
}

/// A reflected CRC of 32 bits with all ones before and after.
pub fn crc(bytes: &[u8], polynomial: u32) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ polynomial } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| step(crc))
    })
}
