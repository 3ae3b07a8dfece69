//! One-time tokens for WebSockets and Media over QUIC, issued by `/start` and the telephony webhook
//! and verified at the upgrade, or at the CONNECT request.
//!
//! In: the kind of socket, an id, `now`. Out: a token, and once, within 300 s, the id again. A
//! token is `base64url({"aud","exp","jti","seq","iss"}) "." hex(HMAC-SHA256)`. `jti` is the id;
//! `aud` is the kind of socket, so a token for `/ws` is rejected on `/ws-client`; `seq` is a serial
//! number, with one bit each for use; `iss` is the issuer, and absent for anonymous ones. `exp`
//! counts seconds since the [`SocketTokens`] were created, because a board's wall clock jumps when
//! it finds its time server.
//!
//! Replicas with a cluster key accept each other's tokens. There `exp` counts seconds since 1970,
//! `run` is the process that issued it, and the seal of a session id follows as a third part. Each
//! process records the use of its own tokens as above, and that of others by `run` and `seq`.
//!
//! A token is redeemed only when the connection has everything else it needs: see
//! [`VerifiedToken`]. A repeated webhook gets the same token, so replaying a captured one opens
//! nothing, unless the runner has transferred its call since: see `calls`. Tokens that this key did
//! not sign are rejected before they are parsed. Source: `docs/spec/telephony.md` 11;
//! `docs/spec/decisions.md` D-24; RFC 7519 for the names of the members.

mod call_key;
mod calls;
mod serials;

use std::fmt;
use std::time::Instant;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

pub use self::call_key::CallKey;
use self::calls::CallTokens;
use self::serials::{SerialState, Serials};
use crate::features::Feature;
use crate::http::cluster::spent::{SpentKey, SpentRecord};
use crate::http::cluster::{ClusterKey, ProcessId};
use crate::limits::{CLUSTER_CLOCK_SKEW, SEALED_ID_BYTES_MAX, TOKEN_LIFE};
use crate::moq::relay_url;
use crate::time::RequestTime;

/// Bytes of a token; those of sessions have about 190.
const TOKEN_BYTES_MAX: usize = 256;
/// Bytes of a token of replicas, without the body in it: such tokens also name the process that
/// issued them.
const CLUSTER_TOKEN_BYTES_MAX: usize = 320;

/// The endpoints of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketKind {
    /// `/ws`, for telephony providers.
    #[serde(rename = "ws")]
    Call,
    /// `/ws-client`, for plain clients.
    #[serde(rename = "ws-client")]
    Client,
    /// `/moq` on the UDP port of Media over QUIC; the id is that of a session.
    #[serde(rename = "moq")]
    Moq,
}

impl SocketKind {
    /// Returns the cargo feature that serves it.
    pub fn feature(self) -> Feature {
        match self {
            SocketKind::Call => Feature::Telephony,
            SocketKind::Client => Feature::WebSocket,
            SocketKind::Moq => Feature::Moq,
        }
    }

    /// Returns its path, without a token.
    pub fn path(self) -> &'static str {
        match self {
            SocketKind::Call => "/ws",
            SocketKind::Client => "/ws-client",
            SocketKind::Moq => relay_url::PATH,
        }
    }
}

/// The authority on which a token was issued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Issuer {
    /// An anonymous request.
    #[default]
    #[serde(rename = "anybody")]
    Anyone,
    /// A request with the API key.
    #[serde(rename = "key")]
    ApiKey,
    /// A verified webhook of a provider; the id is the [`CallKey`] of its call.
    #[serde(rename = "webhook")]
    Webhook,
}

/// The content of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenClaims {
    /// The id for which it was issued.
    pub id: String,
    pub issuer: Issuer,
}

/// A rejected token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// Neither this process nor another replica with its key issued it.
    Unrecognized,
    /// It was issued for the other endpoint, which is given here.
    WrongEndpoint(SocketKind),
    Expired,
    /// It is a replica's, and has expired by the clock of this one.
    ExpiredByClock,
    /// It is of a later time: another replica issued it, whose clock is far ahead of this one, or
    /// this one did, and its clock was set back since.
    ClockSkew,
    Used,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let life_s = TOKEN_LIFE.as_secs();
        match self {
            TokenError::Unrecognized => f.write_str(
                "unknown token: this runner did not issue it, it was restarted since, or the cluster key is another",
            ),
            TokenError::WrongEndpoint(socket) => write!(f, "the token was made for {}", socket.path()),
            TokenError::Expired => write!(f, "the token has expired; it is good for {life_s} s at most"),
            TokenError::ExpiredByClock => write!(
                f,
                "the token has expired by the clock of this replica; it is good for {life_s} s at most"
            ),
            TokenError::ClockSkew => {
                f.write_str("the token is of a later time: the clocks of the replicas differ, or one was set back")
            }
            TokenError::Used => f.write_str("the token was used before; each opens one connection"),
        }
    }
}

impl std::error::Error for TokenError {}

/// The signed part of a token.
#[derive(Serialize, Deserialize)]
struct TokenPayload {
    aud: SocketKind,
    exp: u64,
    jti: String,
    seq: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    iss: Issuer,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<String>,
}

fn is_default(issuer: &Issuer) -> bool {
    *issuer == Issuer::default()
}

/// Issues tokens, and records their use.
pub struct SocketTokens {
    keyed: Hmac<Sha256>,
    scope: TokenScope,
    uses: TokenUses,
    calls: CallTokens,
}

/// Where tokens are good, which decides the clock of their expiry.
enum TokenScope {
    /// In this process; times count from its start.
    Process { created: Instant },
    /// At every replica with the key; times count from 1970.
    Cluster(ProcessId),
}

/// The use of tokens.
#[derive(Debug, Default)]
struct TokenUses {
    /// Those that this process issued.
    own: Serials,
    /// Those of other replicas.
    others: SpentRecord,
}

/// A token for the record of its use.
#[derive(Clone, Copy, Debug)]
enum TokenNumber {
    Own(u64),
    Other { key: SpentKey, expires: u64 },
}

impl TokenUses {
    fn state(&self, number: TokenNumber) -> SerialState {
        match number {
            TokenNumber::Own(serial) => self.own.state(serial),
            TokenNumber::Other { key, expires } if self.others.contains(&key, expires) => SerialState::Used,
            TokenNumber::Other { .. } => SerialState::Fresh,
        }
    }

    fn redeem(&mut self, number: TokenNumber, second: u64) {
        match number {
            TokenNumber::Own(serial) => self.own.redeem(serial),
            TokenNumber::Other { key, expires } => self.others.insert(key, expires, second),
        }
    }
}

impl fmt::Debug for SocketTokens {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

/// A valid token that is not yet redeemed. Dropping it leaves the token valid, so that a connection
/// that fails for another reason can be retried. No other token can be verified during its life, so
/// one of two parallel uses fails.
#[derive(Debug)]
pub struct VerifiedToken<'t> {
    uses: &'t mut TokenUses,
    number: TokenNumber,
    second: u64,
    claims: TokenClaims,
}

impl VerifiedToken<'_> {
    pub fn claims(&self) -> &TokenClaims {
        &self.claims
    }

    /// Redeems the token; the last step, when the connection needs nothing else.
    pub fn redeem(self) -> TokenClaims {
        self.uses.redeem(self.number, self.second);
        self.claims
    }
}

impl SocketTokens {
    /// Creates the issuer with a random key; `now` is the origin of expiry times.
    pub fn new(key: [u8; 32], now: Instant) -> Self {
        SocketTokens::with(key, TokenScope::Process { created: now })
    }

    /// Creates the issuer of a replica. `process` is random.
    pub fn of_replica(key: &ClusterKey, process: ProcessId) -> Self {
        let key = key.derive("edge-runner socket tokens 1");
        SocketTokens::with(key, TokenScope::Cluster(process))
    }

    fn with(key: [u8; 32], scope: TokenScope) -> Self {
        SocketTokens {
            keyed: Hmac::new_from_slice(&key).expect("HMAC takes a key of any length"),
            scope,
            uses: TokenUses::default(),
            calls: CallTokens::default(),
        }
    }

    /// Issues a token. `id` is that of a session, or random.
    pub fn mint(&mut self, family: SocketKind, id: &str, issuer: Issuer, at: RequestTime) -> String {
        let second = self.second(at);
        self.uses.own.expire(second);
        let exp = second + TOKEN_LIFE.as_secs();
        let seq = self.uses.own.issue(exp);
        let (jti, seal) = match (&self.scope, id.split_once('.')) {
            (TokenScope::Cluster(_), Some((uuid, seal))) => (uuid, Some(seal)),
            _ => (id, None),
        };
        let token = self.sign(&TokenPayload {
            aud: family,
            exp,
            jti: jti.to_owned(),
            seq,
            iss: issuer,
            run: self.run(),
        });
        // The seal proves itself, so the signature need not cover it.
        match seal {
            Some(seal) => format!("{token}.{seal}"),
            None => token,
        }
    }

    /// Issues the token of a call from a verified webhook; `webhook` identifies the signed request.
    pub fn mint_for_call(&mut self, call: CallKey, webhook: [u8; 16], at: RequestTime) -> String {
        let second = self.second(at);
        self.uses.own.expire(second);
        let issued = self.calls.issue(call, webhook, &mut self.uses.own, second);
        self.sign(&TokenPayload {
            aud: SocketKind::Call,
            exp: issued.expires,
            jti: issued.call.to_string(),
            seq: issued.serial,
            iss: Issuer::Webhook,
            run: self.run(),
        })
    }

    /// Lets a call return that the runner transferred: the next webhook of it gets a new token,
    /// also a repeated one.
    pub fn expect_return(&mut self, call: CallKey, at: RequestTime) {
        let second = self.second(at);
        self.calls.expect_return(call, second);
    }

    /// Takes the end of a call, which does not return.
    pub fn forget_return(&mut self, call: CallKey) {
        self.calls.forget_return(call);
    }

    fn sign(&self, payload: &TokenPayload) -> String {
        let json = serde_json::to_vec(payload).expect("strings and numbers are JSON");
        let verify_signature = BASE64URL_NOPAD.encode(&json);
        let tag = self.mac(&verify_signature).finalize().into_bytes();
        format!("{verify_signature}.{}", HEXLOWER.encode(&tag))
    }

    /// Verifies a token without redeeming it.
    ///
    /// # Errors
    /// Returns a [`TokenError`].
    pub fn verify(
        &mut self,
        token: &str,
        family: SocketKind,
        at: RequestTime,
    ) -> Result<VerifiedToken<'_>, TokenError> {
        let (payload, seal) = self.signed(token).ok_or(TokenError::Unrecognized)?;
        if payload.aud != family {
            return Err(TokenError::WrongEndpoint(payload.aud));
        }
        let second = self.second(at);
        if second >= payload.exp {
            return Err(match self.scope {
                TokenScope::Process { .. } => TokenError::Expired,
                TokenScope::Cluster(_) => TokenError::ExpiredByClock,
            });
        }
        let number = self.number(&payload, second)?;
        match self.uses.state(number) {
            SerialState::Fresh => Ok(VerifiedToken {
                uses: &mut self.uses,
                number,
                second,
                claims: TokenClaims {
                    id: seal.map_or_else(|| payload.jti.clone(), |seal| format!("{}.{seal}", payload.jti)),
                    issuer: payload.iss,
                },
            }),
            SerialState::Used => Err(TokenError::Used),
            SerialState::Expired => Err(TokenError::Expired),
            SerialState::Unknown => Err(TokenError::Unrecognized),
        }
    }

    /// Returns the token's place in the record of uses.
    fn number(&self, payload: &TokenPayload, second: u64) -> Result<TokenNumber, TokenError> {
        let TokenScope::Cluster(process) = self.scope else {
            return Ok(TokenNumber::Own(payload.seq));
        };
        let run = payload.run.as_deref().and_then(ProcessId::parse);
        let run = run.ok_or(TokenError::Unrecognized)?;
        if payload.exp > second + (TOKEN_LIFE + CLUSTER_CLOCK_SKEW).as_secs() {
            return Err(TokenError::ClockSkew);
        }
        if run == process {
            return Ok(TokenNumber::Own(payload.seq));
        }
        let mut key = [0; 16];
        key[..8].copy_from_slice(&run.as_bytes());
        key[8..].copy_from_slice(&payload.seq.to_be_bytes());
        Ok(TokenNumber::Other {
            key,
            expires: payload.exp,
        })
    }

    /// Parses a token that this key signed; other tokens do not reach the parser. Also returns its
    /// third part, the seal of a session id, which is not verified here.
    fn signed<'t>(&self, token: &'t str) -> Option<(TokenPayload, Option<&'t str>)> {
        let (token, seal) = self.split(token)?;
        let (signed, tag) = token.split_once('.')?;
        let tag = HEXLOWER.decode(tag.as_bytes()).ok()?;
        // The comparison takes constant time, so that the tag cannot be found byte by byte.
        self.mac(signed).verify_slice(&tag).ok()?;
        let json = BASE64URL_NOPAD.decode(signed.as_bytes()).ok()?;
        Some((serde_json::from_slice(&json).ok()?, seal))
    }

    /// Splits off the seal of a session id.
    fn split<'t>(&self, token: &'t str) -> Option<(&'t str, Option<&'t str>)> {
        let TokenScope::Cluster(_) = self.scope else {
            return (token.len() <= TOKEN_BYTES_MAX).then_some((token, None));
        };
        if token.len() > CLUSTER_TOKEN_BYTES_MAX + SEALED_ID_BYTES_MAX {
            return None;
        }
        let mut dots = token.match_indices('.').map(|(at, _)| at);
        let (token, seal) = match dots.nth(1) {
            Some(at) => (&token[..at], Some(&token[at + 1..])),
            None => (token, None),
        };
        (token.len() <= CLUSTER_TOKEN_BYTES_MAX).then_some((token, seal))
    }

    fn mac(&self, signed: &str) -> Hmac<Sha256> {
        self.keyed.clone().chain_update(signed)
    }

    fn second(&self, at: RequestTime) -> u64 {
        match self.scope {
            TokenScope::Process { created } => at.now.saturating_duration_since(created).as_secs(),
            TokenScope::Cluster(_) => at.unix_s,
        }
    }

    fn run(&self) -> Option<String> {
        match self.scope {
            TokenScope::Process { .. } => None,
            TokenScope::Cluster(process) => Some(process.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
