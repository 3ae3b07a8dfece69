//! Connectivity checks in addition to those of str0m, at times that the session chooses.
//!
//! str0m checks each candidate pair every 3 s and drops it after about 20 s without an answer. A
//! session must test its peer at other times too, and after any outage. This module repeats str0m's
//! last check with a new transaction id on the last validated path, and verifies the answers. Its
//! checks never nominate. In: str0m's checks, the validated path, the peer's password. Out:
//! packets, and whether an answer is signed. Sources: RFC 8445 section 7.2, RFC 7675, RFC 8489.

use str0m::crypto::Sha1HmacProvider;
use str0m::ice::{StunMessage, StunMessageBuilder, TransId};

use super::packet::{PacketPath, Transmit};
use crate::webrtc::stun::{USERNAME, attribute};

const PRIORITY: u16 = 0x0024;
const ICE_CONTROLLED: u16 = 0x8029;
const ICE_CONTROLLING: u16 = 0x802a;

/// Builds checks and verifies their answers.
pub struct Consent {
    hmac: &'static dyn Sha1HmacProvider,
    /// The peer's password, which signs checks and answers.
    password: String,
    /// str0m's last check, the template for further ones.
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

    /// Reads the password from a description that str0m accepted. All sections of a bundle share
    /// the first credentials.
    pub fn handle_description(&mut self, sdp: &str) {
        let password = sdp.lines().find_map(|line| line.strip_prefix("a=ice-pwd:"));
        self.password = password.unwrap_or_default().to_owned();
    }

    /// Forgets everything learnt before an ICE restart.
    pub fn handle_restart(&mut self) {
        self.last_check.clear();
        self.path = None;
    }

    /// Records a check of str0m.
    pub fn handle_check(&mut self, contents: &[u8]) {
        self.last_check.clear();
        self.last_check.extend_from_slice(contents);
    }

    /// Records the path on which the peer answered.
    pub fn handle_validated(&mut self, path: PacketPath) {
        self.path = Some(path);
    }

    /// Returns the path on which the peer last answered.
    pub fn path(&self) -> Option<PacketPath> {
        self.path
    }

    /// Builds a check; `None` until the peer has answered one of str0m's.
    pub fn build_check(&self) -> Option<Transmit> {
        let path = self.path?;
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
        Some(Transmit::from_parts(path, contents))
    }

    /// Returns whether the peer signed an answer.
    pub fn is_signed(&self, contents: &[u8]) -> bool {
        let hmac = |key: &[u8], payloads: &[&[u8]]| self.hmac.sha1_hmac(key, payloads);
        StunMessage::parse(contents).is_ok_and(|answer| {
            answer.is_successful_binding_response() && answer.verify(self.password.as_bytes(), hmac)
        })
    }
}
