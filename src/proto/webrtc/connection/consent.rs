//! Connectivity checks of this end beside those of str0m: at any moment, and for as long as asked.
//!
//! str0m checks a pair of addresses every 3 s, and forgets it after some 20 s without an answer;
//! when it checks is not for others to say. A session has to know whether its peer is there at
//! moments of its own choice, and after any outage. So this makes further checks for the way on
//! which the peer last answered, each like str0m's last one with a transaction of its own, and reads
//! their answers. A check never nominates. In: str0m's checks, the way, the peer's password. Out:
//! packets, and whether an answer is signed. Sources: RFC 8445 section 7.2, RFC 7675, RFC 8489.

use str0m::crypto::Sha1HmacProvider;
use str0m::ice::{StunMessage, StunMessageBuilder, TransId};

use super::packet::{PacketPath, Transmit};
use crate::webrtc::stun::{USERNAME, attribute};

const PRIORITY: u16 = 0x0024;
const ICE_CONTROLLED: u16 = 0x8029;
const ICE_CONTROLLING: u16 = 0x802a;

/// Makes checks and reads their answers.
pub struct Consent {
    hmac: &'static dyn Sha1HmacProvider,
    /// The peer's, which signs both checks that are for it and its answers.
    password: String,
    /// str0m's last check: its names, role and priority are good for others.
    last_check: Vec<u8>,
    path: Option<PacketPath>,
}

impl Consent {
    pub fn new(hmac: &'static dyn Sha1HmacProvider) -> Self {
        Consent {
            hmac,
            password: String::new(),
            last_check: Vec::new(),
            path: None,
        }
    }

    /// Takes the description that str0m has taken: the credentials that it names first are those
    /// of the connection, as there is one for all sections.
    pub fn handle_description(&mut self, sdp: &str) {
        let password = sdp.lines().find_map(|line| line.strip_prefix("a=ice-pwd:"));
        self.password = password.unwrap_or_default().to_owned();
    }

    /// ICE has restarted: what was learnt before is not true of it.
    pub fn handle_restart(&mut self) {
        self.last_check.clear();
        self.path = None;
    }

    /// Takes note of a check of str0m's.
    pub fn handle_check(&mut self, contents: &[u8]) {
        self.last_check.clear();
        self.last_check.extend_from_slice(contents);
    }

    /// The peer has answered on this way.
    pub fn handle_validated(&mut self, way: PacketPath) {
        self.path = Some(way);
    }

    /// Returns where the peer last answered.
    pub fn path(&self) -> Option<PacketPath> {
        self.path
    }

    /// Makes a check; there is none before the peer has answered one of str0m's.
    pub fn build_check(&self) -> Option<Transmit> {
        let way = self.path?;
        let username = std::str::from_utf8(attribute(&self.last_check, USERNAME)?).ok()?;
        let priority = attribute(&self.last_check, PRIORITY)?.try_into().ok()?;
        let role = |kind: u16| Some(u64::from_be_bytes(attribute(&self.last_check, kind)?.try_into().ok()?));
        let request = StunMessageBuilder::new().binding().request().username(username);
        let request = request.prio(u32::from_be_bytes(priority));
        let request = match role(ICE_CONTROLLED) {
            Some(tie_breaker) => request.ice_controlled(tie_breaker),
            None => request.ice_controlling(role(ICE_CONTROLLING)?),
        };
        let mut contents = vec![0; self.last_check.len()];
        let hmac = |key: &[u8], payloads: &[&[u8]]| self.hmac.sha1_hmac(key, payloads);
        let message = request.build(TransId::new());
        let bytes = message
            .to_bytes(Some(self.password.as_bytes()), &mut contents, hmac)
            .ok()?;
        contents.truncate(bytes);
        Some(Transmit::from_parts(way, contents))
    }

    /// Tells whether the peer has signed an answer.
    pub fn is_signed(&self, contents: &[u8]) -> bool {
        let hmac = |key: &[u8], payloads: &[&[u8]]| self.hmac.sha1_hmac(key, payloads);
        StunMessage::parse(contents).is_ok_and(|answer| {
            answer.is_successful_binding_response() && answer.verify(self.password.as_bytes(), hmac)
        })
    }
}
