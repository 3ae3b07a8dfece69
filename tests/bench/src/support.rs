//! Parts of the test support: the LiveKit server and its participant, callers over QUIC, audio,
//! STUN, and the strict microcontroller.

// The tests use more of it.
#![allow(dead_code)]

#[path = "../../support/device/mod.rs"]
pub mod device;
#[path = "../../support/http.rs"]
pub mod http;
#[path = "../../support/livekit/mod.rs"]
pub mod livekit;
#[path = "../../support/moq/mod.rs"]
pub mod moq;
#[path = "../../support/participant.rs"]
pub mod participant;
#[path = "../../support/sound.rs"]
pub mod sound;
#[path = "../../support/device/stun.rs"]
pub mod stun;

/// The checksum of STUN, bit by bit.
fn crc(bytes: &[u8], polynomial: u32) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ polynomial } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| step(crc))
    })
}

/// The part of the tests' runner that participants use.
pub mod runner {
    use std::time::Duration;

    /// Time limit of waits.
    pub const PATIENCE: Duration = Duration::from_secs(60);
}
