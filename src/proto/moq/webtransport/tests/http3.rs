//! The rules of HTTP/3 streams: a link against an end that writes bare bytes, in virtual time.

use std::time::Duration;

use super::RESERVED;
use crate::moq::link::simulation::{SimulatedEnd, SimulatedLinks, SimulatedNetwork};
use crate::moq::link::{Dir, LinkClosed, LinkEvent, MOQ_PROTOCOL, MoqStreams, StreamId, StreamRead};
use crate::moq::webtransport::code::{
    H3_REQUEST_INCOMPLETE, H3_REQUEST_REJECTED, H3_STREAM_CREATION_ERROR, WT_BUFFERED_STREAM_REJECTED,
};
use crate::moq::webtransport::connect::{ConnectResponse, parse_response, request_section};
use crate::moq::webtransport::frame::{DATA, HEADERS, Http3Frame, Http3FrameReader, SETTINGS, put_frame, put_varint};
use crate::moq::webtransport::qpack::FieldWriter;
use crate::moq::webtransport::settings::put_settings;

const STEP: Duration = Duration::from_millis(50);

/// An end with bare streams, and the link against it.
struct Bare {
    network: SimulatedNetwork,
    is_client: bool,
}

impl Bare {
    fn client() -> Self {
        Self::new(SimulatedLinks::BareClient, true)
    }

    fn server() -> Self {
        Self::new(SimulatedLinks::BareServer, false)
    }

    fn new(links: SimulatedLinks, is_client: bool) -> Self {
        let mut network = SimulatedNetwork::new(links);
        network.run(Duration::from_millis(100));
        Self { network, is_client }
    }

    fn bare(&mut self) -> &mut SimulatedEnd {
        match self.is_client {
            true => &mut self.network.client,
            false => &mut self.network.server,
        }
    }

    fn link(&mut self) -> &mut SimulatedEnd {
        match self.is_client {
            true => &mut self.network.server,
            false => &mut self.network.client,
        }
    }

    /// Opens a stream with these first bytes.
    fn open(&mut self, dir: Dir, bytes: &[u8]) -> StreamId {
        let id = self.bare().link().open(dir).unwrap();
        self.write(id, bytes);
        id
    }

    fn write(&mut self, id: StreamId, bytes: &[u8]) {
        assert_eq!(self.bare().link().write(id, bytes), bytes.len());
        self.network.run(STEP);
    }

    fn finish(&mut self, id: StreamId) {
        self.bare().link().finish(id);
        self.network.run(STEP);
    }

    /// Opens the control stream.
    fn settings(&mut self) -> StreamId {
        let mut control = vec![0];
        put_settings(&mut control);
        self.open(Dir::Uni, &control)
    }

    /// Opens a session, whose request the link accepts.
    fn session(&mut self) -> StreamId {
        self.settings();
        let id = self.open(Dir::Bi, &headers(&request_section("localhost", "/moq")));
        let now = self.network.now;
        self.link().link().accept(now);
        self.network.run(STEP);
        assert!(self.link().has(&LinkEvent::Connected));
        self.link().events.clear();
        id
    }

    /// The answer on a stream of a request.
    fn answer(&mut self, id: StreamId) -> Option<ConnectResponse> {
        let mut reader = Http3FrameReader::default();
        while let StreamRead::Bytes(mut bytes) = self.bare().link().read(id) {
            if let Some(Http3Frame::Headers(section)) = reader.read(&mut bytes) {
                return parse_response(&section).unwrap();
            }
        }
        None
    }

    fn status(&mut self, id: StreamId) -> u16 {
        self.answer(id).unwrap().status
    }

    /// How the link closed, as it says and as the bare end sees it.
    fn failure(&mut self) -> (String, u64) {
        self.network.run(Duration::from_secs(5));
        let is_closed = |event: &LinkEvent| matches!(event, LinkEvent::Closed(_));
        let said = self.link().take(is_closed);
        let seen = self.bare().take(is_closed);
        match (said, seen) {
            (
                Some(LinkEvent::Closed(LinkClosed::Failed(said))),
                Some(LinkEvent::Closed(LinkClosed::ByPeer { code, .. })),
            ) => (said, code),
            other => panic!("{other:?}"),
        }
    }

    fn is_quiet(&mut self) -> bool {
        self.network.run(STEP);
        self.link().events.is_empty()
    }
}

fn headers(section: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_frame(HEADERS, section, &mut bytes);
    bytes
}

fn varints(values: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        put_varint(*value, &mut bytes);
    }
    bytes
}

fn moq_response() -> FieldWriter {
    FieldWriter::new().indexed(25).literal("wt-protocol", "\"moq-lite-04\"")
}

#[test]
fn everything_may_arrive_byte_by_byte() {
    let mut bare = Bare::client();
    let mut control = vec![0];
    put_settings(&mut control);
    put_frame(RESERVED, b"grease", &mut control);
    let mut request = Vec::new();
    put_frame(RESERVED, &[1; 70], &mut request);
    request.extend(headers(&request_section("localhost", "/moq")));
    let data = [varints(&[0x54, 0]), b"data".to_vec()].concat();
    let mut streams = Vec::new();
    for (dir, bytes) in [(Dir::Uni, control), (Dir::Bi, request), (Dir::Uni, data)] {
        let id = bare.open(dir, &[]);
        streams.push(id);
        for byte in bytes {
            bare.write(id, &[byte]);
        }
    }
    assert!(matches!(bare.link().events.pop_front(), Some(LinkEvent::Requested(_))));
    let now = bare.network.now;
    bare.link().link().accept(now);
    assert!(bare.is_quiet() || bare.link().has(&LinkEvent::Opened(streams[2])));
    match bare.link().link().read(streams[2]) {
        StreamRead::Bytes(bytes) => assert_eq!(&bytes[..], b"d"),
        other => panic!("{other:?}"),
    }
    let answer = bare.answer(streams[1]).unwrap();
    assert_eq!(answer.protocol.as_deref(), Some(MOQ_PROTOCOL));
}

#[test]
fn what_http3_reserves_is_ignored() {
    let mut bare = Bare::client();
    // A stream of a reserved type, QPACK streams, and then the session.
    let reserved = bare.open(Dir::Uni, &varints(&[RESERVED, 1, 2, 3]));
    bare.open(Dir::Uni, &[2, 0x20]);
    bare.open(Dir::Uni, &[3]);
    let control = bare.settings();
    bare.write(control, &varints(&[0x0d, 1, 0, 0x07, 1, 4, RESERVED, 2, 0, 0]));
    let id = bare.open(Dir::Bi, &varints(&[RESERVED, 3, 1, 1, 1]));
    bare.write(id, &headers(&request_section("localhost", "/moq")));
    assert!(matches!(bare.link().events.pop_front(), Some(LinkEvent::Requested(_))));
    assert!(bare.is_quiet());
    assert!(bare.bare().has(&LinkEvent::Stopped {
        id: reserved,
        code: H3_STREAM_CREATION_ERROR as u32
    }));
}

#[test]
fn streams_wait_for_their_session() {
    let mut bare = Bare::client();
    bare.settings();
    // Streams of the first request, of which nothing has arrived.
    let uni = bare.open(Dir::Uni, &[varints(&[0x54, 0]), b"early".to_vec()].concat());
    let request = bare.open(Dir::Bi, &[]);
    let bi = bare.open(Dir::Bi, &[varints(&[0x41, 0]), b"early".to_vec()].concat());
    let other = bare.open(Dir::Uni, &varints(&[0x54, 4]));
    bare.write(request, &headers(&request_section("localhost", "/moq")));
    assert!(matches!(bare.link().events.pop_front(), Some(LinkEvent::Requested(_))));
    assert!(bare.is_quiet());
    let now = bare.network.now;
    bare.link().link().accept(now);
    bare.network.run(STEP);
    let mut events: Vec<_> = bare.link().events.drain(..).collect();
    events.sort_by_key(|event| format!("{event:?}"));
    assert_eq!(
        events,
        [LinkEvent::Connected, LinkEvent::Opened(bi), LinkEvent::Opened(uni)]
    );
    for id in [uni, bi] {
        assert_eq!(bare.link().link().read(id), StreamRead::Bytes("early".into()));
    }
    assert!(bare.bare().has(&LinkEvent::Stopped {
        id: other,
        code: WT_BUFFERED_STREAM_REJECTED as u32
    }));
}

#[test]
fn a_stream_of_another_session_is_refused() {
    let mut bare = Bare::client();
    bare.session();
    let bi = bare.open(Dir::Bi, &varints(&[0x41, 8]));
    let uni = bare.open(Dir::Uni, &varints(&[0x54, 400]));
    assert!(bare.is_quiet());
    let code = WT_BUFFERED_STREAM_REJECTED as u32;
    for id in [bi, uni] {
        assert!(bare.bare().has(&LinkEvent::Stopped { id, code }));
    }
    assert_eq!(bare.bare().link().read(bi), StreamRead::Reset(code));
}

#[test]
fn other_requests_are_answered() {
    let get = FieldWriter::new()
        .indexed(17)
        .indexed(23)
        .named(0, "localhost")
        .indexed(1);
    let tunnel = FieldWriter::new().indexed(15).named(0, "localhost");
    let large = FieldWriter::new().indexed(17).literal("cookie", &"x".repeat(16_350));
    let mut too_long = Vec::new();
    put_frame(HEADERS, &vec![0; 16 * 1024 + 1], &mut too_long);
    let mut bare = Bare::client();
    bare.settings();
    for (request, status) in [
        (headers(&get.finish()), 404),
        (headers(&tunnel.finish()), 400),
        (headers(&FieldWriter::new().finish()), 400),
        (headers(&large.finish()), 431),
        (too_long, 431),
    ] {
        let id = bare.open(Dir::Bi, &request);
        assert_eq!(bare.status(id), status);
        assert_eq!(bare.bare().link().read(id), StreamRead::Finished);
    }
    // The session is still possible, but only once.
    let request = headers(&request_section("localhost", "/moq"));
    let session = bare.open(Dir::Bi, &request);
    let second = bare.open(Dir::Bi, &request);
    assert_eq!(bare.status(second), 429);
    let now = bare.network.now;
    bare.link().link().accept(now);
    bare.network.run(STEP);
    assert_eq!(bare.status(session), 200);
    let third = bare.open(Dir::Bi, &request);
    assert_eq!(bare.status(third), 429);
}

#[test]
fn a_client_without_the_protocol_is_rejected() {
    for offer in ["\"moq-lite-03\"", ""] {
        let mut bare = Bare::client();
        bare.settings();
        let section = FieldWriter::new()
            .indexed(15)
            .indexed(23)
            .named(0, "localhost")
            .named(1, "/moq")
            .literal(":protocol", "webtransport")
            .literal("wt-available-protocols", offer)
            .finish();
        let id = bare.open(Dir::Bi, &headers(&section));
        let now = bare.network.now;
        bare.link().link().accept(now);
        // The connection closes when the answer has arrived.
        let latency = bare.network.latency;
        bare.network.run(latency);
        assert_eq!(bare.status(id), 400);
        assert!(bare.link().has(&LinkEvent::Closed(LinkClosed::Locally)));
        bare.network.run(Duration::from_secs(5));
        assert!(bare.link().link().is_drained());
    }
}

#[test]
fn incomplete_requests_are_limited() {
    let mut bare = Bare::client();
    bare.settings();
    for _ in 0..4 {
        bare.open(Dir::Bi, &varints(&[HEADERS, 16_000]));
    }
    let fifth = bare.open(Dir::Bi, &varints(&[HEADERS, 16_000]));
    let code = H3_REQUEST_REJECTED as u32;
    assert!(bare.bare().has(&LinkEvent::Stopped { id: fifth, code }));
    // One that ends makes room.
    let first = StreamId::new(fifth.initiator(), Dir::Bi, 0);
    bare.finish(first);
    let code = H3_REQUEST_INCOMPLETE as u32;
    assert_eq!(bare.bare().link().read(first), StreamRead::Reset(code));
    let sixth = bare.open(Dir::Bi, &headers(&request_section("localhost", "/moq")));
    assert!(matches!(bare.link().events.pop_front(), Some(LinkEvent::Requested(_))));
    assert_eq!(bare.bare().link().read(sixth), StreamRead::Blocked);
}

#[test]
fn requests_for_other_things_are_limited() {
    let mut bare = Bare::client();
    bare.settings();
    let get = headers(&FieldWriter::new().indexed(17).finish());
    for _ in 0..16 {
        let id = bare.open(Dir::Bi, &get);
        assert_eq!(bare.status(id), 404);
    }
    bare.open(Dir::Bi, &get);
    assert_eq!(bare.failure(), ("too many requests".into(), 0x107));
}

#[test]
fn violations_close_the_connection() {
    let settings = {
        let mut bytes = Vec::new();
        put_settings(&mut bytes);
        bytes
    };
    let control = |more: &[u64]| [vec![0], settings.clone(), varints(more)].concat();
    let mut long_settings = vec![0];
    put_frame(SETTINGS, &vec![0; 4097], &mut long_settings);
    for (dir, bytes, code) in [
        // The control stream: no SETTINGS at first, invalid, twice, too long, other frames.
        (Dir::Uni, varints(&[0, 0x07, 1, 0]), 0x10a),
        (Dir::Uni, varints(&[0, DATA, 0]), 0x10a),
        (Dir::Uni, varints(&[0, SETTINGS, 1, 8]), 0x109),
        (Dir::Uni, [control(&[]), settings.clone()].concat(), 0x105),
        (Dir::Uni, long_settings, 0x107),
        (Dir::Uni, control(&[DATA, 0]), 0x105),
        (Dir::Uni, control(&[HEADERS, 0]), 0x105),
        (Dir::Uni, control(&[0x06, 0]), 0x105),
        (Dir::Uni, control(&[0x41, 0]), 0x106),
        // Streams: a push of a client, a session that is no request.
        (Dir::Uni, varints(&[1]), 0x103),
        (Dir::Uni, varints(&[0x54, 2]), 0x108),
        (Dir::Bi, varints(&[0x41, 1]), 0x108),
        // Requests.
        (Dir::Bi, varints(&[DATA, 1]), 0x105),
        (Dir::Bi, varints(&[SETTINGS, 0]), 0x105),
        (Dir::Bi, varints(&[0x08, 0]), 0x105),
        (Dir::Bi, varints(&[RESERVED, 0, 0x41, 0]), 0x106),
        (Dir::Bi, headers(&[0, 0, 0x80]), 0x200),
    ] {
        let mut bare = Bare::client();
        bare.open(dir, &bytes);
        assert_eq!(bare.failure().1, code, "{bytes:x?}");
    }
}

#[test]
fn critical_streams_are_opened_once_and_stay() {
    for kind in [0, 2, 3] {
        let mut bare = Bare::client();
        bare.settings();
        if kind != 0 {
            bare.open(Dir::Uni, &[kind]);
        }
        bare.open(Dir::Uni, &[kind]);
        assert_eq!(bare.failure().1, 0x103);

        let mut bare = Bare::client();
        let id = match kind {
            0 => bare.settings(),
            kind => bare.open(Dir::Uni, &[kind]),
        };
        bare.finish(id);
        assert_eq!(bare.failure().1, 0x104);
    }
    let mut bare = Bare::client();
    bare.settings();
    let control = bare.bare().take(|event| matches!(event, LinkEvent::Opened(_)));
    let Some(LinkEvent::Opened(control)) = control else {
        panic!("no control stream");
    };
    bare.bare().link().stop(control, 0);
    assert_eq!(bare.failure().1, 0x104);
}

#[test]
fn the_end_of_the_request_closes_the_session() {
    let mut bare = Bare::client();
    let id = bare.session();
    bare.finish(id);
    let closed = LinkClosed::ByPeer {
        code: 0,
        reason: String::new(),
    };
    assert!(bare.link().has(&LinkEvent::Closed(closed)));
    bare.network.run(Duration::from_secs(3));
    assert!(bare.link().link().is_drained());
}

#[test]
fn rubbish_on_the_stream_of_a_session_is_skipped_or_closes_it() {
    let mut bare = Bare::client();
    let id = bare.session();
    // A reserved frame, unknown capsules, trailers.
    let mut bytes = varints(&[RESERVED, 2, 1, 1]);
    put_frame(DATA, &varints(&[0x29 + 0x17, 3, 1, 1, 1]), &mut bytes);
    put_frame(HEADERS, &[0, 0], &mut bytes);
    bare.write(id, &bytes);
    assert!(bare.is_quiet());

    let mut bytes = Vec::new();
    put_frame(DATA, &varints(&[0x2843, 2000]), &mut bytes);
    bare.write(id, &bytes);
    assert_eq!(bare.failure(), ("invalid capsule".into(), 0x10e));
}

#[test]
fn a_client_waits_for_settings_and_follows_the_response() {
    let mut bare = Bare::server();
    // Only the control stream of the client has arrived.
    assert_eq!(bare.bare().events.len(), 2, "{:?}", bare.bare().events);
    bare.settings();
    let request = StreamId::new(quinn_proto::Side::Client, Dir::Bi, 0);
    assert!(bare.bare().has(&LinkEvent::Opened(request)));
    // Streams of the session may overtake the response.
    let early = bare.open(Dir::Uni, &[varints(&[0x54, 0]), b"early".to_vec()].concat());
    // An informational response, a reserved frame, and the final response.
    bare.write(request, &headers(&FieldWriter::new().indexed(24).finish()));
    bare.write(request, &varints(&[RESERVED, 1, 1]));
    assert!(bare.is_quiet());
    bare.write(request, &headers(&moq_response().finish()));
    assert!(bare.link().has(&LinkEvent::Connected));
    assert!(bare.link().has(&LinkEvent::Opened(early)));
}

#[test]
fn a_client_says_why_no_session_came_to_be() {
    let status = |status: &str| FieldWriter::new().named(24, status);
    for (response, closed) in [
        (headers(&status("404").finish()), LinkClosed::Rejected(404)),
        (headers(&status("301").finish()), LinkClosed::Rejected(301)),
        (
            headers(&status("200").finish()),
            LinkClosed::Failed("the server does not speak moq-lite-04".into()),
        ),
        (
            headers(&status("200").literal("wt-protocol", "\"moqt-16\"").finish()),
            LinkClosed::Failed("the server chose the protocol \"moqt-16\"".into()),
        ),
        (
            headers(&status("20").finish()),
            LinkClosed::Failed("response without a status".into()),
        ),
        (
            headers(&[0, 0, 0x80]),
            LinkClosed::Failed("invalid field section".into()),
        ),
        (varints(&[DATA, 0]), LinkClosed::Failed("no HEADERS at first".into())),
        (
            varints(&[HEADERS, 20_000]),
            LinkClosed::Failed("response too long".into()),
        ),
    ] {
        let mut bare = Bare::server();
        bare.settings();
        let request = StreamId::new(quinn_proto::Side::Client, Dir::Bi, 0);
        bare.write(request, &response);
        assert_eq!(bare.link().events, [LinkEvent::Closed(closed)]);
        bare.network.run(Duration::from_secs(5));
        assert!(bare.link().link().is_drained());
    }
    let mut bare = Bare::server();
    bare.settings();
    bare.finish(StreamId::new(quinn_proto::Side::Client, Dir::Bi, 0));
    let reason = "the server ended the CONNECT request without a response";
    let closed = LinkClosed::Failed(reason.into());
    assert_eq!(bare.link().events, [LinkEvent::Closed(closed)]);
}

#[test]
fn a_server_without_webtransport_is_reported() {
    let mut bare = Bare::server();
    let mut control = vec![0];
    put_frame(SETTINGS, &varints(&[0x08, 1]), &mut control);
    bare.open(Dir::Uni, &control);
    let reason = "the server does not offer WebTransport";
    assert_eq!(bare.failure(), (reason.into(), 0x109));
}

#[test]
fn a_server_opens_no_requests_and_no_pushes() {
    for (dir, kind, code) in [(Dir::Bi, HEADERS, 0x103), (Dir::Uni, 1, 0x108)] {
        let mut bare = Bare::server();
        bare.open(dir, &varints(&[kind, 0]));
        assert_eq!(bare.failure().1, code);
    }
}
