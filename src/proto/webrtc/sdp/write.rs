//! Writes answers.
//!
//! In: the transport of this end and what it accepts of each section. Out: the answer, before it is
//! adapted to a client. The order of the lines is that of browsers. Sections that are not accepted
//! have port 0 and format 0; [`super::rewrite_declined_sections`] and
//! [`super::name_rejected_formats`] name an offered one. Sources: RFC 8829 section 5.3, RFC 8839,
//! RFC 8841, RFC 9143.

use std::fmt::Write as _;

use super::description::SectionKind;
use crate::audio::codec::Codec;
use crate::limits::MESSAGE_BYTES_MAX;

/// What all sections share.
pub struct AnswerTransport {
    /// A random number below 2^62, RFC 8829 section 5.2.1.
    pub session_id: u64,
    /// `candidate:...` values.
    pub candidates: Vec<String>,
    pub ufrag: String,
    pub password: String,
    /// The digest of the certificate by SHA-256.
    pub digest: Vec<u8>,
    pub setup: &'static str,
}

/// Audio that is accepted.
pub struct AcceptedAudio {
    pub codec: Codec,
    pub payload_type: u8,
    /// Transport-wide feedback was offered.
    pub has_transport_feedback: bool,
    /// The payload type and the last event of key presses.
    pub telephone_event: Option<(u8, u8)>,
    pub stream: String,
    pub track: String,
    /// The source of the audio of this end, if it has one, and its canonical name.
    pub source: Option<(u32, String)>,
}

/// One section of an answer.
pub struct AnsweredSection<'a> {
    pub kind: SectionKind,
    /// The profile of the offer, RFC 8829 section 5.3.1.
    pub profile: &'a str,
    pub mid: &'a str,
    /// The ids and names of the header extensions.
    pub extensions: Vec<(u8, &'static str)>,
    pub direction: &'static str,
    /// `None` in sections without audio, and in those that are not accepted.
    pub audio: Option<AcceptedAudio>,
}

impl AnsweredSection<'_> {
    fn is_accepted(&self) -> bool {
        self.kind == SectionKind::Application || self.audio.is_some()
    }
}

/// Writes an answer. All its lines end in CRLF.
pub fn write_answer(transport: &AnswerTransport, sections: &[AnsweredSection<'_>]) -> String {
    let mut text = AnswerText(String::with_capacity(1024));
    text.line(format_args!("v=0"));
    text.line(format_args!("o=- {} 2 IN IP4 0.0.0.0", transport.session_id));
    text.line(format_args!("s=-"));
    text.line(format_args!("t=0 0"));
    let accepted = sections.iter().filter(|section| section.is_accepted());
    let mids = accepted.fold(String::new(), |mids, section| mids + " " + section.mid);
    text.line(format_args!("a=group:BUNDLE{mids}"));
    text.line(format_args!("a=extmap-allow-mixed"));
    let mut streams: Vec<&str> = Vec::new();
    for audio in sections.iter().filter_map(|section| section.audio.as_ref()) {
        if !streams.contains(&audio.stream.as_str()) {
            streams.push(&audio.stream);
        }
    }
    text.line(format_args!("a=msid-semantic: WMS {}", streams.join(" ")));
    for (index, section) in sections.iter().enumerate() {
        // All sections of a bundle share the candidates of the first one.
        let candidates = transport.candidates.iter().filter(|_| index == 0);
        text.section(transport, section, candidates);
    }
    text.0
}

struct AnswerText(String);

impl AnswerText {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = write!(self.0, "{line}\r\n");
    }

    fn section<'c>(
        &mut self,
        transport: &AnswerTransport,
        section: &AnsweredSection<'_>,
        candidates: impl Iterator<Item = &'c String>,
    ) {
        match (section.kind, &section.audio) {
            (SectionKind::Application, _) => {
                self.line(format_args!("m=application 9 UDP/DTLS/SCTP webrtc-datachannel"));
            }
            (_, Some(audio)) => {
                let keys = audio.telephone_event.map(|(number, _)| format!(" {number}"));
                let (number, keys) = (audio.payload_type, keys.unwrap_or_default());
                self.line(format_args!("m=audio 9 {} {number}{keys}", section.profile));
            }
            (SectionKind::Audio, None) => self.line(format_args!("m=audio 0 {} 0", section.profile)),
            (SectionKind::Video, None) => self.line(format_args!("m=video 0 {} 0", section.profile)),
        }
        self.line(format_args!("c=IN IP4 0.0.0.0"));
        for candidate in candidates {
            self.line(format_args!("a={candidate}"));
        }
        self.line(format_args!("a=ice-ufrag:{}", transport.ufrag));
        self.line(format_args!("a=ice-pwd:{}", transport.password));
        self.line(format_args!("a=ice-options:trickle"));
        let bytes = transport.digest.iter().map(|byte| format!("{byte:02X}"));
        let digest = bytes.collect::<Vec<_>>().join(":");
        self.line(format_args!("a=fingerprint:sha-256 {digest}"));
        self.line(format_args!("a=setup:{}", transport.setup));
        self.line(format_args!("a=mid:{}", section.mid));
        if section.kind == SectionKind::Application {
            self.line(format_args!("a=sctp-port:5000"));
            return self.line(format_args!("a=max-message-size:{MESSAGE_BYTES_MAX}"));
        }
        for (id, uri) in &section.extensions {
            self.line(format_args!("a=extmap:{id} {uri}"));
        }
        self.line(format_args!("a={}", section.direction));
        if let Some(audio) = &section.audio {
            self.line(format_args!("a=msid:{} {}", audio.stream, audio.track));
        }
        self.line(format_args!("a=rtcp-mux"));
        if let Some(audio) = &section.audio {
            self.audio(audio);
        }
    }

    fn audio(&mut self, audio: &AcceptedAudio) {
        let (number, stream, track) = (audio.payload_type, &audio.stream, &audio.track);
        let encoding = audio.codec.encoding();
        self.line(format_args!("a=rtpmap:{number} {encoding}"));
        if audio.has_transport_feedback {
            self.line(format_args!("a=rtcp-fb:{number} transport-cc"));
        }
        if audio.codec == Codec::Opus {
            self.line(format_args!("a=fmtp:{number} minptime=10;useinbandfec=1"));
        }
        if let Some((number, events)) = audio.telephone_event {
            self.line(format_args!("a=rtpmap:{number} telephone-event/8000"));
            self.line(format_args!("a=fmtp:{number} 0-{events}"));
        }
        if let Some((source, name)) = &audio.source {
            self.line(format_args!("a=ssrc:{source} cname:{name}"));
            self.line(format_args!("a=ssrc:{source} msid:{stream} {track}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::g711::Law;
    use crate::webrtc::sdp::{AUDIO_LEVEL_URI, MID_URI};

    fn transport() -> AnswerTransport {
        AnswerTransport {
            session_id: 7,
            candidates: vec![
                "candidate:1 1 udp 2 192.0.2.1 3 typ host ufrag u".to_owned(),
                "candidate:4 1 udp 5 192.0.2.2 6 typ host ufrag u".to_owned(),
            ],
            ufrag: "u".to_owned(),
            password: "p".to_owned(),
            digest: vec![0x0a, 0xbc],
            setup: "passive",
        }
    }

    fn audio(codec: Codec, payload_type: u8) -> AcceptedAudio {
        AcceptedAudio {
            codec,
            payload_type,
            has_transport_feedback: false,
            telephone_event: None,
            stream: "s".to_owned(),
            track: "t".to_owned(),
            source: None,
        }
    }

    fn section(kind: SectionKind, mid: &str, audio: Option<AcceptedAudio>) -> AnsweredSection<'_> {
        AnsweredSection {
            kind,
            profile: "UDP/TLS/RTP/SAVPF",
            mid,
            extensions: Vec::new(),
            direction: "sendrecv",
            audio,
        }
    }

    const HEAD: &str = "v=0\r\no=- 7 2 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n";
    const SHARED: &str = "a=ice-ufrag:u\r\na=ice-pwd:p\r\na=ice-options:trickle\r\na=fingerprint:sha-256 0A:BC\r\n\
        a=setup:passive\r\n";
    const CANDIDATES: &str = "a=candidate:1 1 udp 2 192.0.2.1 3 typ host ufrag u\r\n\
        a=candidate:4 1 udp 5 192.0.2.2 6 typ host ufrag u\r\n";

    /// Everything that an answer can have, line by line.
    #[test]
    fn answers_have_the_lines_of_browsers_in_their_order() {
        let spoken = AcceptedAudio {
            has_transport_feedback: true,
            telephone_event: Some((126, 15)),
            source: Some((5, "c".to_owned())),
            ..audio(Codec::Opus, 111)
        };
        let mut first = section(SectionKind::Audio, "0", Some(spoken));
        first.extensions = vec![(1, AUDIO_LEVEL_URI), (4, MID_URI)];
        let mut video = section(SectionKind::Video, "1", None);
        video.direction = "recvonly";
        video.extensions = vec![(4, MID_URI)];
        let sections = [first, video, section(SectionKind::Application, "2", None)];
        let expected = format!(
            "{HEAD}a=group:BUNDLE 0 2\r\na=extmap-allow-mixed\r\na=msid-semantic: WMS s\r\n\
             m=audio 9 UDP/TLS/RTP/SAVPF 111 126\r\nc=IN IP4 0.0.0.0\r\n{CANDIDATES}{SHARED}a=mid:0\r\n\
             a=extmap:1 {AUDIO_LEVEL_URI}\r\na=extmap:4 {MID_URI}\r\na=sendrecv\r\na=msid:s t\r\na=rtcp-mux\r\n\
             a=rtpmap:111 opus/48000/2\r\na=rtcp-fb:111 transport-cc\r\na=fmtp:111 minptime=10;useinbandfec=1\r\n\
             a=rtpmap:126 telephone-event/8000\r\na=fmtp:126 0-15\r\na=ssrc:5 cname:c\r\na=ssrc:5 msid:s t\r\n\
             m=video 0 UDP/TLS/RTP/SAVPF 0\r\nc=IN IP4 0.0.0.0\r\n{SHARED}a=mid:1\r\na=extmap:4 {MID_URI}\r\n\
             a=recvonly\r\na=rtcp-mux\r\n\
             m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\n{SHARED}a=mid:2\r\n\
             a=sctp-port:5000\r\na=max-message-size:262144\r\n"
        );
        assert_eq!(write_answer(&transport(), &sections), expected);
    }

    #[test]
    fn sections_that_are_not_accepted_are_outside_of_the_bundle() {
        let sections = [section(SectionKind::Audio, "a", None)];
        let expected = format!(
            "{HEAD}a=group:BUNDLE\r\na=extmap-allow-mixed\r\na=msid-semantic: WMS \r\n\
             m=audio 0 UDP/TLS/RTP/SAVPF 0\r\nc=IN IP4 0.0.0.0\r\n{CANDIDATES}{SHARED}a=mid:a\r\na=sendrecv\r\n\
             a=rtcp-mux\r\n"
        );
        assert_eq!(write_answer(&transport(), &sections), expected);
    }

    #[test]
    fn g711_has_no_parameters_and_streams_are_listed_once() {
        let other = AcceptedAudio {
            stream: "x".to_owned(),
            ..audio(Codec::G711(Law::A), 8)
        };
        let sections = [
            section(SectionKind::Audio, "0", Some(audio(Codec::G711(Law::Mu), 0))),
            section(SectionKind::Audio, "1", Some(audio(Codec::G711(Law::Mu), 0))),
            section(SectionKind::Audio, "2", Some(other)),
        ];
        let answer = write_answer(&transport(), &sections);
        assert!(answer.contains("\r\na=group:BUNDLE 0 1 2\r\n") && answer.contains("\r\na=msid-semantic: WMS s x\r\n"));
        assert!(answer.contains("RTP/SAVPF 0\r\n") && answer.contains("\r\na=rtpmap:0 PCMU/8000\r\n"));
        assert!(answer.contains("RTP/SAVPF 8\r\n") && answer.contains("\r\na=rtpmap:8 PCMA/8000\r\n"));
        assert!(!answer.contains("fmtp") && !answer.contains("ssrc") && !answer.contains("rtcp-fb"));
    }
}
