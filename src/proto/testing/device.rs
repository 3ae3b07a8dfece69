//! A str0m client that behaves like a microcontroller: its offer word for word, and its role in the
//! handshakes.

use std::time::Instant;

use super::client::{self, TestClient};

/// Writes the offer of a str0m client as the firmware would: profile without feedback, DTLS server,
/// its own names, no header extensions, the mark of its library.
pub fn as_device(offer: String) -> String {
    let lines = offer
        .lines()
        .filter(|line| !line.starts_with("a=extmap") && !line.starts_with("a=rtcp-fb"));
    let text: String = lines.flat_map(|line| [line, "\r\n"]).collect();
    text.replace("UDP/TLS/RTP/SAVPF", "UDP/TLS/RTP/SAVP")
        .replace("a=setup:actpass", "a=setup:passive")
        .replace("a=msid-semantic:WMS *", "a=msid-semantic: iot")
}

/// A client that behaves like one; its offers are to be written [`as_device`].
pub fn device(address: &str, start: Instant) -> TestClient {
    let config = client::config().clear_extension_map();
    let mut client = TestClient::with(config, address, start).labels(&["rtvi-ai"]);
    // It waits for the handshake of DTLS, and opens the association all the same.
    client.rtc.direct_api().start_sctp(true);
    client
}
