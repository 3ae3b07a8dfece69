//! Tests of the bodies of `/api/offer`.

use std::fmt;

use super::*;

fn offer(value: Value) -> Result<OfferBody, ValidationError> {
    OfferBody::parse(value.to_string().as_bytes())
}

fn patch(value: Value) -> Result<CandidatesBody, ValidationError> {
    CandidatesBody::parse(value.to_string().as_bytes())
}

/// Returns the location and type of a body's only problem.
fn only<T: fmt::Debug>(result: Result<T, ValidationError>) -> (Value, &'static str) {
    let invalid = result.expect_err("refused");
    assert_eq!(invalid.0.len(), 1, "{invalid}");
    (invalid.detail()[0]["loc"].clone(), invalid.0[0].kind)
}

/// R-069: the bodies of the web client and of a microcontroller, which has two keys and tabs.
#[test]
fn offers_of_browsers_and_microcontrollers_are_read() {
    assert_eq!(
        offer(json!({"sdp": "v=0", "type": "offer", "pc_id": null, "restart_pc": false})),
        Ok(OfferBody {
            sdp: "v=0".into(),
            pc_id: None,
            restart_pc: false,
            request_data: None
        })
    );
    assert_eq!(
        OfferBody::parse(b"{\n\t\"sdp\":\t\"v=0\\r\\n\",\n\t\"type\":\t\"offer\"\n}").map(|offer| offer.sdp),
        Ok("v=0\r\n".into())
    );
    assert_eq!(
        offer(json!({"sdp": "v=0", "pc_id": "P", "restart_pc": true, "unknown": {}})),
        Ok(OfferBody {
            sdp: "v=0".into(),
            pc_id: Some("P".into()),
            restart_pc: true,
            request_data: None
        })
    );
    assert_eq!(
        offer(json!({"sdp": "v=0", "pc_id": ""})).map(|offer| offer.pc_id),
        Ok(None)
    );
}

/// `request_data` has precedence over `requestData`, and empty data counts as none.
#[test]
fn request_data_has_two_names() {
    for (fields, data) in [
        (
            json!({"request_data": {"a": 1}, "requestData": {"b": 1}}),
            Some(json!({"a": 1})),
        ),
        (
            json!({"request_data": null, "requestData": {"b": 1}}),
            Some(json!({"b": 1})),
        ),
        (
            json!({"request_data": {}, "requestData": {"b": 1}}),
            Some(json!({"b": 1})),
        ),
        (json!({"requestData": [1]}), Some(json!([1]))),
        (json!({"requestData": {}}), None),
        (json!({}), None),
    ] {
        let mut body = fields;
        body["sdp"] = json!("v=0");
        assert_eq!(offer(body).map(|offer| offer.request_data), Ok(data));
    }
}

/// R-096, R-099: problems are reported by field.
#[test]
fn invalid_offers_are_reported_by_field() {
    assert_eq!(only(offer(json!({}))), (json!(["body", "sdp"]), "missing"));
    assert_eq!(only(offer(json!({"sdp": null}))), (json!(["body", "sdp"]), "missing"));
    assert_eq!(only(offer(json!({"sdp": 1}))), (json!(["body", "sdp"]), "string_type"));
    assert_eq!(
        only(offer(json!({"sdp": "", "type": "answer"}))),
        (json!(["body", "type"]), "literal_error")
    );
    assert_eq!(
        only(offer(json!({"sdp": "", "type": 1}))),
        (json!(["body", "type"]), "string_type")
    );
    assert_eq!(
        only(offer(json!({"sdp": "", "pc_id": 7}))),
        (json!(["body", "pc_id"]), "string_type")
    );
    assert_eq!(
        only(offer(json!({"sdp": "", "restart_pc": "no"}))),
        (json!(["body", "restart_pc"]), "bool_type")
    );
    assert_eq!(only(offer(json!([]))), (json!(["body"]), "dict_type"));
    assert_eq!(only(OfferBody::parse(b"")), (json!(["body", 0]), "json_invalid"));
}

#[test]
fn offers_are_capped() {
    let sdp = |bytes: usize| offer(json!({"sdp": "x".repeat(bytes)}));
    assert!(sdp(limits::OFFER_SDP_BYTES_MAX).is_ok());
    assert_eq!(only(sdp(limits::OFFER_SDP_BYTES_MAX + 1)).1, "string_too_long");
    let pc_id = |bytes: usize| offer(json!({"sdp": "", "pc_id": "x".repeat(bytes)}));
    assert!(pc_id(limits::PC_ID_BYTES_MAX).is_ok());
    assert_eq!(only(pc_id(limits::PC_ID_BYTES_MAX + 1)).1, "string_too_long");
}

/// R-069: candidates of browsers, including the empty end mark.
#[test]
fn candidates_are_read() {
    let line = "candidate:3999297000 1 udp 2122194687 192.0.2.2 36127 typ host generation 0 ufrag NuVJ network-id 1";
    let read = patch(json!({"pc_id": "P", "candidates": [
        {"candidate": line, "sdp_mid": "0", "sdp_mline_index": 0},
        {"candidate": "", "sdp_mid": null},
    ]}));
    let first = RemoteCandidate {
        candidate: line.into(),
        sdp_mid: Some("0".into()),
        sdp_mline_index: Some(0),
    };
    let end = RemoteCandidate {
        candidate: String::new(),
        sdp_mid: None,
        sdp_mline_index: None,
    };
    assert_eq!(
        read,
        Ok(CandidatesBody {
            pc_id: "P".into(),
            candidates: vec![first, end]
        })
    );
    assert_eq!(
        patch(json!({"pc_id": "P", "candidates": []})).map(|read| read.candidates),
        Ok(vec![])
    );
}

#[test]
fn invalid_candidates_are_reported_by_index() {
    let one = |candidate: Value| {
        only(patch(
            json!({"pc_id": "P", "candidates": [{"candidate": ""}, candidate]}),
        ))
    };
    let at = |name: &str| json!(["body", "candidates", 1, name]);
    assert_eq!(one(json!({})), (at("candidate"), "missing"));
    assert_eq!(one(json!({"candidate": 1})), (at("candidate"), "string_type"));
    assert_eq!(
        one(json!({"candidate": "", "sdp_mid": 0})),
        (at("sdp_mid"), "string_type")
    );
    assert_eq!(
        one(json!({"candidate": "", "sdp_mline_index": "0"})),
        (at("sdp_mline_index"), "int_type")
    );
    assert_eq!(
        one(json!({"candidate": "", "sdp_mline_index": 0.5})),
        (at("sdp_mline_index"), "int_type")
    );
    assert_eq!(
        one(json!({"candidate": "", "sdp_mline_index": -1})),
        (at("sdp_mline_index"), "int_range")
    );
    assert_eq!(
        one(json!({"candidate": "", "sdp_mline_index": 65_536})),
        (at("sdp_mline_index"), "int_range")
    );
    assert_eq!(one(json!("candidate")), (json!(["body", "candidates", 1]), "dict_type"));
    assert_eq!(
        only(patch(json!({"candidates": []}))),
        (json!(["body", "pc_id"]), "missing")
    );
    assert_eq!(
        only(patch(json!({"pc_id": "P"}))),
        (json!(["body", "candidates"]), "missing")
    );
    assert_eq!(
        only(patch(json!({"pc_id": "P", "candidates": {}}))),
        (json!(["body", "candidates"]), "list_type")
    );
}

#[test]
fn candidates_are_capped() {
    let many = |n: usize| patch(json!({"pc_id": "P", "candidates": vec![json!({"candidate": ""}); n]}));
    assert!(many(limits::CANDIDATES_MAX).is_ok());
    assert_eq!(only(many(limits::CANDIDATES_MAX + 1)).1, "too_long");
    let long = |n: usize| patch(json!({"pc_id": "P", "candidates": [{"candidate": "x".repeat(n)}]}));
    assert!(long(limits::CANDIDATE_BYTES_MAX).is_ok());
    assert_eq!(only(long(limits::CANDIDATE_BYTES_MAX + 1)).1, "string_too_long");
    let mid = |n: usize| patch(json!({"pc_id": "P", "candidates": [{"candidate": "", "sdp_mid": "x".repeat(n)}]}));
    assert!(mid(MID_BYTES_MAX).is_ok());
    assert_eq!(only(mid(MID_BYTES_MAX + 1)).1, "string_too_long");
}

/// A line end takes four bytes, and the rest is compact.
#[test]
fn the_answer_is_short_json() {
    let answer = AnswerBody {
        sdp: "v=0\r\na=x/y\r\n".into(),
        pc_id: "P".into(),
    };
    assert_eq!(
        answer.to_json(),
        br#"{"pc_id":"P","sdp":"v=0\r\na=x/y\r\n","type":"answer"}"#
    );
}

/// Known connections are renegotiated or restarted. The restart of an ended one is rejected.
#[test]
fn an_offer_has_a_purpose() {
    let offer = |pc_id: Option<&str>, restart_pc: bool| OfferBody {
        sdp: String::new(),
        pc_id: pc_id.map(str::to_owned),
        restart_pc,
        request_data: None,
    };
    let unknown = Err(SessionRefusal::UnknownConnection);
    assert_eq!(
        offer(Some("a"), true).purpose(NamedConnection::Live),
        Ok(OfferPurpose::Restart)
    );
    assert_eq!(
        offer(Some("a"), false).purpose(NamedConnection::Live),
        Ok(OfferPurpose::Renegotiate)
    );
    assert_eq!(offer(Some("a"), true).purpose(NamedConnection::Unknown), unknown);
    assert_eq!(
        offer(Some("a"), false).purpose(NamedConnection::Unknown),
        Ok(OfferPurpose::Begin)
    );
    assert_eq!(
        offer(None, true).purpose(NamedConnection::Unknown),
        Ok(OfferPurpose::Begin)
    );
    assert_eq!(
        offer(None, false).purpose(NamedConnection::Unknown),
        Ok(OfferPurpose::Begin)
    );
    // D-25: a replica that is gone leaves its restarts to the others, and nothing else.
    let elsewhere = NamedConnection::OfReplica("b");
    assert_eq!(offer(Some("b.1.2"), true).purpose(elsewhere), Ok(OfferPurpose::Begin));
    assert_eq!(
        offer(Some("b.1.2"), false).purpose(elsewhere),
        Err(SessionRefusal::OtherReplica("b".into()))
    );
}
