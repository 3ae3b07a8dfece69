//! Requests to a LiveKit server about the participants of a room: their list, and hang-up and
//! transfer of a telephone call.
//!
//! In: the credentials of the configuration, the participant's identity, a target, the Unix time;
//! later status and body of the answer. Out: the request, and the meaning of its answer. Source:
//! `docs/spec/livekit.md` 7.2; <https://docs.livekit.io/reference/other/roomservice-api/>.

use std::fmt;

use serde_json::{Value, json};

use super::{http_base, token};
use crate::call_control::{CallControlError, HangUpOutcome, TransferTarget};
use crate::hang_up::HangUpApi;
use crate::secret::Secret;
use crate::server::rest::{RestBody, RestMethod, RestRequest, bearer, redact_reason};
use crate::transport::Transport;

/// The API of the server of one room.
#[derive(Clone, PartialEq, Eq)]
pub struct RoomService {
    /// `http` or `https`.
    base: String,
    key: String,
    secret: Secret,
    room: String,
}

impl fmt::Debug for RoomService {
    /// Omits the credentials and the room.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoomService").finish_non_exhaustive()
    }
}

impl RoomService {
    /// Creates the API for a room at the server's URL: `ws`, `wss`, `http` or `https`.
    pub fn new(url: &str, key: &str, secret: &Secret, room: &str) -> Self {
        RoomService {
            base: http_base(url),
            key: key.to_owned(),
            secret: secret.clone(),
            room: room.to_owned(),
        }
    }

    /// Returns the request for the participants.
    pub fn participants(&self, now_s: u64) -> RestRequest {
        let body = json!({"room": self.room});
        self.request("RoomService/ListParticipants", &body, false, now_s)
    }

    /// Returns the request that removes a participant, which hangs a telephone up.
    pub fn remove(&self, identity: &str, now_s: u64) -> RestRequest {
        let body = json!({"room": self.room, "identity": identity});
        self.request("RoomService/RemoveParticipant", &body, false, now_s)
    }

    /// Returns the request that transfers the call of a telephone.
    ///
    /// # Errors
    /// [`CallControlError::NotOffered`] for a URL of markup.
    pub fn transfer(
        &self,
        identity: &str,
        target: &TransferTarget,
        now_s: u64,
    ) -> Result<RestRequest, CallControlError> {
        let transfer_to = match target {
            TransferTarget::Number(number) => format!("tel:{number}"),
            TransferTarget::Sip(address) => address.clone(),
            TransferTarget::Markup(_) => {
                return Err(CallControlError::NotOffered {
                    provider: "LiveKit",
                    instead: "it transfers to a number or a sip: address",
                });
            }
        };
        let body = json!({
            "participant_identity": identity,
            "room_name": self.room,
            "transfer_to": transfer_to,
        });
        Ok(self.request("SIP/TransferSIPParticipant", &body, true, now_s))
    }

    fn request(&self, method: &str, body: &Value, sip: bool, now_s: u64) -> RestRequest {
        let token = token::mint_for_request(&self.key, &self.secret, &self.room, sip, now_s);
        RestRequest {
            method: RestMethod::Post,
            url: format!("{}/twirp/livekit.{method}", self.base),
            authorization: Some(bearer(&token)),
            body: Some(RestBody::json(body)),
        }
    }
}

/// The API that hangs up a telephone in a room.
#[derive(Debug)]
pub struct RoomHangUp;

impl HangUpApi for RoomHangUp {
    fn name(&self) -> &'static str {
        Transport::Mediaroom.common_name()
    }

    fn outcome(&self, status: u16, body: &[u8]) -> HangUpOutcome {
        outcome(status, body)
    }
}

/// Returns the meaning of the status and body of an answer. An error of Twirp is
/// `{"code": "not_found", "msg": "..."}`.
fn outcome(status: u16, body: &[u8]) -> HangUpOutcome {
    let problem: Value = serde_json::from_slice(body).unwrap_or_default();
    let code = problem["code"].as_str().unwrap_or_default();
    let is_word = code.len() <= 32 && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let mut words = match status {
        401 | 403 => format!("status {status}, the server does not take the API key"),
        _ => format!("status {status}"),
    };
    if is_word && !code.is_empty() {
        words += &format!(", {code}");
    }
    // The text of a refused token repeats it.
    if let Some(said) = problem["msg"]
        .as_str()
        .filter(|said| !matches!(status, 401 | 403) && !said.contains("eyJ"))
    {
        words += &format!(": {}", redact_reason(said));
    }
    match (status, code) {
        (200..=299, _) => HangUpOutcome::Done,
        // A path that the server does not have is 404 too, but `bad_route`.
        (404, "not_found") => HangUpOutcome::AlreadyOver,
        (408 | 429 | 500..=599, _) => HangUpOutcome::Retry(words),
        _ => HangUpOutcome::Refused(words),
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::BASE64URL_NOPAD;

    use super::*;

    fn service() -> RoomService {
        RoomService::new("wss://media.example.net/", "devkey", &Secret::new("secret"), "room-1")
    }

    /// Returns URL, body and grants of a request.
    fn parts(request: RestRequest) -> (String, Value, Value) {
        assert_eq!(request.method, RestMethod::Post);
        let token = request.authorization.expect("a token");
        let claims = token
            .expose()
            .strip_prefix("Bearer ")
            .expect("bearer")
            .split('.')
            .nth(1)
            .expect("claims")
            .to_owned();
        let claims: Value =
            serde_json::from_slice(&BASE64URL_NOPAD.decode(claims.as_bytes()).expect("base64")).expect("JSON");
        let body = request.body.expect("a body");
        assert_eq!(body.content_type, "application/json");
        (request.url, serde_json::from_slice(&body.bytes).expect("JSON"), claims)
    }

    #[test]
    fn hangs_up_by_removing_the_participant() {
        let (url, body, claims) = parts(service().remove("sip_+15550001111", 1_000));
        assert_eq!(
            url,
            "https://media.example.net/twirp/livekit.RoomService/RemoveParticipant"
        );
        assert_eq!(body, json!({"room": "room-1", "identity": "sip_+15550001111"}));
        assert_eq!(
            (&claims["video"], &claims["sip"], &claims["iss"]),
            (
                &json!({"roomAdmin": true, "room": "room-1"}),
                &Value::Null,
                &json!("devkey")
            )
        );
    }

    #[test]
    fn transfers_to_numbers_and_sip_addresses() {
        for (target, to) in [
            ("+15550003333", "tel:+15550003333"),
            ("sips:desk@pbx.example.net", "sips:desk@pbx.example.net"),
        ] {
            let target = TransferTarget::parse(target).expect("a target");
            let request = service().transfer("sip_1", &target, 1_000).expect("it is possible");
            let (url, body, claims) = parts(request);
            assert_eq!(
                url,
                "https://media.example.net/twirp/livekit.SIP/TransferSIPParticipant"
            );
            assert_eq!(
                body,
                json!({"participant_identity": "sip_1", "room_name": "room-1", "transfer_to": to})
            );
            assert_eq!(claims["sip"], json!({"call": true}));
        }
        let markup = TransferTarget::parse("https://b.example/x").expect("a target");
        let refused = service().transfer("sip_1", &markup, 1_000).expect_err("no markup");
        assert_eq!(
            refused.to_string(),
            "LiveKit has no API for this; it transfers to a number or a sip: address"
        );
    }

    /// Answers as the server writes them. Numbers and tokens are not repeated.
    #[test]
    fn explains_answers() {
        let said = |status, body: &str| outcome(status, body.as_bytes());
        assert_eq!(said(200, "{}"), HangUpOutcome::Done);
        assert_eq!(
            said(404, r#"{"code":"not_found","msg":"participant does not exist"}"#),
            HangUpOutcome::AlreadyOver
        );
        assert_eq!(
            said(404, r#"{"code":"bad_route","msg":"no handler for path"}"#),
            HangUpOutcome::Refused("status 404, bad_route: no handler for path".into())
        );
        assert_eq!(
            said(401, r#"{"code":"unauthenticated","msg":"invalid token: eyJhbGci"}"#),
            HangUpOutcome::Refused("status 401, the server does not take the API key, unauthenticated".into())
        );
        assert_eq!(
            said(
                412,
                r#"{"code":"failed_precondition","msg":"can't transfer to +15550003333"}"#
            ),
            HangUpOutcome::Refused("status 412, failed_precondition: can't transfer to +###########".into())
        );
        assert_eq!(said(503, "no"), HangUpOutcome::Retry("status 503".into()));
        assert_eq!(
            said(400, r#"{"code":"X y"}"#),
            HangUpOutcome::Refused("status 400".into())
        );
    }

    #[test]
    fn the_debug_form_omits_credentials() {
        assert_eq!(format!("{:?}", service()), "RoomService { .. }");
    }
}
