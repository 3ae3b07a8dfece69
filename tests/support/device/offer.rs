//! The offer of a microcontroller, byte for byte as the firmware writes it, and its HTTP request.
//!
//! In: the properties of a device (credentials, fingerprint, address) and a [`Shape`], a variant
//! from the field. Out: SDP, and a JSON body with two keys, indented with tabs. Source:
//! `docs/spec/devices.md` 2, 3.

use std::net::SocketAddr;

/// The differences from the current firmware's offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub profile: &'static str,
    /// The value of `a=msid-semantic`; `None` omits the line.
    pub semantic: Option<&'static str>,
    pub codec: Codec,
    /// The spelling of Opus.
    pub opus: &'static str,
    pub direction: &'static str,
    pub setup: &'static str,
    /// The offered SSRC; the device always sends with 6.
    pub ssrc: Option<u32>,
    pub candidate: Candidate,
    /// Mids are `audio` and `datachannel` instead of `0` and `1`.
    pub mids_are_words: bool,
    pub data_channel: bool,
    /// Credentials, fingerprint and role are in each section instead of the session.
    pub credentials_in_sections: bool,
    pub line_end: &'static str,
    pub ends_with_line_end: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    Opus,
    Pcmu,
    Pcma,
    /// A codec that neither this library nor the runner has.
    G722,
}

impl Codec {
    pub fn payload_type(self) -> u8 {
        match self {
            Codec::Opus => 111,
            Codec::Pcmu => 0,
            Codec::Pcma => 8,
            Codec::G722 => 9,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Codec::Opus => "opus/48000/2",
            Codec::Pcmu => "PCMU/8000",
            Codec::Pcma => "PCMA/8000",
            Codec::G722 => "G722/8000",
        }
    }

    /// The SSRC of every device with this codec.
    pub fn ssrc(self) -> u32 {
        match self {
            Codec::Opus => 6,
            Codec::Pcmu | Codec::G722 => 5,
            Codec::Pcma => 4,
        }
    }

    /// The RTP ticks of 20 ms.
    pub fn ticks(self) -> u32 {
        if self == Codec::Opus { 960 } else { 160 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidate {
    Real,
    /// Its address is `0.0.0.0`.
    Unspecified,
    PortZero,
    Absent,
}

impl Shape {
    /// The offer of Espressif's esp_peer 1.5.4, which follows the answer's DTLS role.
    pub const ESP_PEER: Self = Self {
        semantic: Some("esp-webrtc"),
        setup: "actpass",
        mids_are_words: false,
        ..Self::FIRMWARE
    };

    pub fn is_esp_peer(&self) -> bool {
        self.semantic == Some("esp-webrtc")
    }

    /// The offer of the voice firmware.
    pub const FIRMWARE: Self = Self {
        profile: "UDP/TLS/RTP/SAVP",
        semantic: Some("iot"),
        codec: Codec::Opus,
        opus: "opus/48000/2",
        direction: "sendrecv",
        setup: "passive",
        ssrc: Some(6),
        candidate: Candidate::Real,
        mids_are_words: true,
        data_channel: true,
        credentials_in_sections: false,
        line_end: "\r\n",
        ends_with_line_end: true,
    };
}

/// The properties of the offering device.
pub struct Sender<'a> {
    pub ufrag: &'a str,
    pub pwd: &'a str,
    /// The certificate's SHA-256 in upper-case hexadecimal with colons.
    pub fingerprint: &'a str,
    pub addr: SocketAddr,
}

/// Writes the session description.
pub fn sdp(shape: &Shape, sender: &Sender) -> String {
    let (audio, channel) = if shape.mids_are_words {
        ("audio", "datachannel")
    } else {
        ("0", "1")
    };
    let Sender {
        ufrag,
        pwd,
        fingerprint,
        addr,
    } = sender;
    let credentials = [
        format!("a=ice-ufrag:{ufrag}"),
        format!("a=ice-pwd:{pwd}"),
        format!("a=fingerprint:sha-256 {fingerprint}"),
        format!("a=setup:{}", shape.setup),
    ];
    let group = if shape.data_channel {
        format!("{audio} {channel}")
    } else {
        audio.to_owned()
    };
    let (payload_type, codec, ssrc) = match shape.codec {
        Codec::Opus => (shape.codec.payload_type(), shape.opus, shape.ssrc),
        codec => (codec.payload_type(), codec.name(), Some(codec.ssrc())),
    };
    let cname = match shape.codec {
        Codec::Opus => "webrtc-opus",
        Codec::Pcmu => "webrtc-pcmu",
        Codec::Pcma => "webrtc-pcma",
        Codec::G722 => "webrtc-g722",
    };

    let origin = if shape.is_esp_peer() {
        "o=- 7801614086411001801 2 IN IP4 127.0.0.1"
    } else {
        "o=- 1495799811084970 1495799811084970 IN IP4 0.0.0.0"
    };
    let mut lines: Vec<String> = ["v=0", origin, "s=-", "t=0 0"].map(str::to_owned).into();
    lines.extend(shape.semantic.map(|semantic| format!("a=msid-semantic: {semantic}")));
    lines.push(format!("a=group:BUNDLE {group}"));
    if !shape.credentials_in_sections {
        lines.extend_from_slice(&credentials);
    }
    lines.push(format!("m=audio 9 {} {payload_type}", shape.profile));
    lines.push("c=IN IP4 0.0.0.0".into());
    if shape.credentials_in_sections {
        lines.extend_from_slice(&credentials);
    }
    lines.push(format!("a=rtpmap:{payload_type} {codec}"));
    lines.extend(ssrc.map(|ssrc| format!("a=ssrc:{ssrc} cname:{cname}")));
    lines.push(format!("a={}", shape.direction));
    lines.push(format!("a=mid:{audio}"));
    lines.push("a=rtcp-mux".into());
    if shape.data_channel {
        lines.push("m=application 50712 UDP/DTLS/SCTP webrtc-datachannel".into());
        lines.push("c=IN IP4 0.0.0.0".into());
        if shape.credentials_in_sections {
            lines.extend_from_slice(&credentials);
        }
        lines.push(format!("a=mid:{channel}"));
        lines.push("a=sctp-port:5000".into());
        lines.push("a=max-message-size:262144".into());
    }
    let (ip, port) = match shape.candidate {
        Candidate::Unspecified => ("0.0.0.0".to_owned(), addr.port()),
        Candidate::PortZero => (addr.ip().to_string(), 0),
        Candidate::Real | Candidate::Absent => (addr.ip().to_string(), addr.port()),
    };
    if shape.candidate != Candidate::Absent {
        lines.push(format!("a=candidate:0 1 UDP 2125395455 {ip} {port} typ host"));
    }
    let mut text = lines.join(shape.line_end);
    if shape.ends_with_line_end {
        text.push_str(shape.line_end);
    }
    text
}

/// Writes the request body as the firmware's JSON printer does.
pub fn body(sdp: &str) -> String {
    format!(
        "{{\n\t\"sdp\":\t{},\n\t\"type\":\t\"offer\"\n}}",
        serde_json::Value::from(sdp)
    )
}
