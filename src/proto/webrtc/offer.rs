//! The bodies of `/api/offer`: offers (POST), trickled candidates (PATCH), and answers.
//!
//! In: the bytes of a body. Out: an [`OfferBody`] or [`CandidatesBody`] whose strings are within
//! their caps, and the JSON of an [`AnswerBody`]. An offer needs only `sdp`; microcontrollers send
//! just that and `type`. An empty candidate marks the end of candidates. Malformed bodies are
//! rejected (422) with every problem named. The SDP is checked later. Source:
//! `docs/spec/signalling.md` 1.

use serde_json::{Value, json};

use crate::http::cluster::Replica;
use crate::limits;
use crate::refusal::SessionRefusal;
use crate::server::body::{self, FieldProblem, LocStep, ObjectReader, ValidationError};

/// Bytes of a media section's name.
const MID_BYTES_MAX: usize = 64;

/// The body of an offer, which opens, renegotiates or restarts a connection.
#[derive(Clone, Debug, PartialEq)]
pub struct OfferBody {
    pub sdp: String,
    /// The connection that the client assumes to have.
    pub pc_id: Option<String>,
    /// The client has discarded that connection.
    pub restart_pc: bool,
    /// Data for the bot, which overrides the `body` of `/start`. `null` and `{}` carry none.
    pub request_data: Option<Value>,
}

/// What an offer means for its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferPurpose {
    /// Opens a new connection.
    Begin,
    /// Continues the connection.
    Renegotiate,
    /// Replaces the client's end of the connection.
    Restart,
}

impl OfferBody {
    /// Returns whether the offer restarts a connection that another replica made.
    pub fn restarts_elsewhere(&self, replica: Option<&Replica>) -> bool {
        let maker = replica.zip(self.pc_id.as_deref());
        self.restart_pc && maker.is_some_and(|(replica, pc_id)| replica.other_maker(pc_id).is_some())
    }
}

/// The connection that an offer names, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedConnection<'n> {
    /// It is here.
    Live,
    /// It has ended, or there never was one.
    Unknown,
    /// The process of another replica with this name made it.
    OfReplica(&'n str),
}

impl OfferBody {
    /// Returns the purpose of the offer, by the state of the named connection. The balancer sends
    /// it here although another replica made the connection if that replica is gone; its restart
    /// then begins a new session.
    ///
    /// # Errors
    /// [`SessionRefusal::UnknownConnection`] for the restart of a connection that has ended,
    /// [`SessionRefusal::OtherReplica`] for the renegotiation of one that is not here.
    pub fn purpose(&self, named: NamedConnection<'_>) -> Result<OfferPurpose, SessionRefusal> {
        match (named, self.restart_pc) {
            (NamedConnection::Live, true) => Ok(OfferPurpose::Restart),
            (NamedConnection::Live, false) => Ok(OfferPurpose::Renegotiate),
            (NamedConnection::Unknown, true) if self.pc_id.is_some() => Err(SessionRefusal::UnknownConnection),
            (NamedConnection::OfReplica(name), false) => Err(SessionRefusal::OtherReplica(name.to_owned())),
            (NamedConnection::Unknown | NamedConnection::OfReplica(_), _) => Ok(OfferPurpose::Begin),
        }
    }
}

impl OfferBody {
    /// Parses the body of a POST.
    ///
    /// # Errors
    /// [`ValidationError`] lists every problem of the body.
    pub fn parse(bytes: &[u8]) -> Result<OfferBody, ValidationError> {
        let mut fields = ObjectReader::new(body::parse_object(bytes)?, Vec::new());
        let sdp = fields.required_string("sdp", limits::OFFER_SDP_BYTES_MAX);
        if fields
            .string("type", limits::OFFER_SDP_BYTES_MAX)
            .is_some_and(|kind| kind != "offer")
        {
            fields.reject::<()>("type", "Input should be 'offer'", "literal_error");
        }
        let pc_id = fields
            .string("pc_id", limits::PC_ID_BYTES_MAX)
            .filter(|id| !id.is_empty());
        let restart_pc = fields.flag("restart_pc").unwrap_or(false);
        let snake = request_data(&mut fields, "request_data");
        let camel = request_data(&mut fields, "requestData");
        fields.finish()?;
        Ok(OfferBody {
            sdp,
            pc_id,
            restart_pc,
            request_data: snake.or(camel),
        })
    }
}

/// Takes data for the bot. Empty data counts as none, so that it does not override that of
/// `/start`.
fn request_data(fields: &mut ObjectReader, name: &'static str) -> Option<Value> {
    fields
        .take(name)
        .map(|(_, value)| value)
        .filter(|value| value.as_object().is_none_or(|map| !map.is_empty()))
}

/// The answer to an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerBody {
    pub sdp: String,
    /// The id under which the client sends candidates and later offers.
    pub pc_id: String,
}

impl AnswerBody {
    /// Returns the compact JSON of the reply; microcontrollers read at most 4096 bytes.
    pub fn to_json(&self) -> Vec<u8> {
        json!({"sdp": self.sdp, "type": "answer", "pc_id": self.pc_id})
            .to_string()
            .into_bytes()
    }
}

/// Candidates that a client found after its offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidatesBody {
    pub pc_id: String,
    pub candidates: Vec<RemoteCandidate>,
}

/// One candidate as the browser wrote it. An empty text marks the end of candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteCandidate {
    pub candidate: String,
    pub sdp_mid: Option<String>,
    pub sdp_mline_index: Option<u16>,
}

impl CandidatesBody {
    /// Parses the body of a PATCH.
    ///
    /// # Errors
    /// [`ValidationError`] lists the problems of the body and of its candidates.
    pub fn parse(bytes: &[u8]) -> Result<CandidatesBody, ValidationError> {
        let mut fields = ObjectReader::new(body::parse_object(bytes)?, Vec::new());
        let pc_id = fields.required_string("pc_id", limits::PC_ID_BYTES_MAX);
        let list = fields.required_list("candidates", limits::CANDIDATES_MAX);
        let mut candidates = Vec::with_capacity(list.len());
        for (index, value) in list.into_iter().enumerate() {
            match parse_candidate(value, index) {
                Ok(candidate) => candidates.push(candidate),
                Err(invalid) => fields.merge(invalid),
            }
        }
        fields.finish()?;
        Ok(CandidatesBody { pc_id, candidates })
    }
}

fn parse_candidate(value: Value, index: usize) -> Result<RemoteCandidate, ValidationError> {
    let at = vec![LocStep::Name("candidates"), LocStep::Index(index)];
    let Value::Object(map) = value else {
        let msg = "Input should be a valid dictionary".into();
        return Err(ValidationError(vec![FieldProblem {
            loc: at,
            msg,
            kind: "dict_type",
        }]));
    };
    let mut fields = ObjectReader::new(map, at);
    let candidate = fields.required_string("candidate", limits::CANDIDATE_BYTES_MAX);
    let sdp_mid = fields.string("sdp_mid", MID_BYTES_MAX);
    let sdp_mline_index = fields.small_integer("sdp_mline_index");
    fields.finish()?;
    Ok(RemoteCandidate {
        candidate,
        sdp_mid,
        sdp_mline_index,
    })
}

#[cfg(test)]
mod tests;
