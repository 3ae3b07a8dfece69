//! Tests of what a kind of session adds to the arguments of a program.

use super::media::pair;
use super::*;

fn fields(kind: &Kind) -> Value {
    let fields = kind.for_program().fields.into_iter();
    let fields = fields.filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(fields.collect())
}

fn socket(path: &'static str, transport: Transport, call_data: Option<Value>, eval: Option<Value>) -> Value {
    let socket = WebSocketConnection::new(path);
    let socket = WebSocketArguments::new(socket, transport, call_data, pair(1).1);
    fields(&Kind::WebSocket(socket.of_eval(eval)))
}

/// what a kind does not have is absent.
#[test]
fn a_program_gets_the_members_of_its_kind() {
    let connection = || WebRtcConnection::new("p1".into(), false, true);
    let webrtc = |via| Kind::WebRtc(WebRtcArguments::new(connection(), pair(1).1).with_call_data(via));
    assert_eq!(fields(&webrtc(None)), json!({"webrtc_connection": {"pc_id": "p1"}}));
    let via = json!({"via": "whip"});
    assert_eq!(fields(&webrtc(Some(via.clone())))["call_data"], via);

    let provider = Transport::from_name("telephony_a").expect("a provider");
    let call_data = json!({"call_id": "c", "from": null});
    assert_eq!(
        socket("/ws", provider, Some(call_data.clone()), None),
        json!({"websocket": {"path": "/ws"}, "transport_type": "telephony_a", "call_data": call_data})
    );
    assert_eq!(
        socket("/ws-client", Transport::WebSocket, None, None),
        json!({"websocket": {"path": "/ws-client"}, "transport_type": "websocket"})
    );
    let flags = json!({"skip_tts": true});
    assert_eq!(
        socket("/ws", Transport::WebSocket, None, Some(flags.clone())),
        json!({"websocket": {"path": "/ws"}, "transport_type": "eval", "call_data": {"body": flags}})
    );
    let room = VideoroomArguments {
        room_url: "https://example.net/room".into(),
        token: None,
        sip_uri: Some("sip:room@example.net".into()),
    };
    assert_eq!(
        fields(&Kind::Videoroom(room)),
        json!({"room_url": "https://example.net/room", "sip_uri": "sip:room@example.net"})
    );
}
