//! A str0m client that behaves like a microcontroller: its literal offer, and its role in the
//! handshakes.

use std::time::Instant;

use super::client::{self, TestClient};

/// Rewrites the offer of a str0m client as the firmware writes it: profile without feedback, DTLS
/// server, its own names, no header extensions, the mark of its library.
pub fn as_device(offer: String) -> String {
    let lines = offer
        .lines()
        .filter(|line| !line.starts_with("a=extmap") && !line.starts_with("a=rtcp-fb"));
    let text: String = lines.flat_map(|line| [line, "\r\n"]).collect();
    text.replace("UDP/TLS/RTP/SAVPF", "UDP/TLS/RTP/SAVP")
        .replace("a=setup:actpass", "a=setup:passive")
        .replace("a=msid-semantic:WMS *", "a=msid-semantic: iot")
}

/// Creates such a client; the test passes its offers to [`as_device`].
pub fn device(address: &str, start: Instant) -> TestClient {
    let config = client::config().clear_extension_map();
    let mut client = TestClient::with(config, address, start).labels(&["rtvi-ai"]);
    // It waits for the DTLS handshake, and still opens the association.
    client.rtc.direct_api().start_sctp(true);
    client
}
