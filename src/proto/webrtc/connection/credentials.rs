//! ICE user name fragments and passwords of this end.
//!
//! In: a secret per connection. Out: one pair for the connection and for each ICE restart. A peer
//! that learns the password can redirect the audio, so the secret comes from the operating system's
//! random numbers. str0m's own generator is seeded with the time and is not used. Source: RFC 8445
//! section 5.3 (24 bits of fragment and 128 bits of password, unguessable).

use sha2::{Digest as _, Sha256};
use str0m::IceCreds;

const UFRAG_CHARS: usize = 16;
const PASSWORD_CHARS: usize = 22;
/// Letters and digits only, which every SDP parser accepts.
const CHARS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Random bits of the operating system, the seed of a connection's credentials.
#[derive(Clone, Copy)]
pub struct IceSecret(pub [u8; 32]);

/// Generates credentials.
pub struct IceCredentialGenerator {
    secret: IceSecret,
    generated: u32,
}

impl IceCredentialGenerator {
    pub fn new(secret: IceSecret) -> Self {
        IceCredentialGenerator { secret, generated: 0 }
    }

    pub fn next(&mut self) -> IceCreds {
        self.generated += 1;
        IceCreds {
            ufrag: self.text(b"ufrag", UFRAG_CHARS),
            pass: self.text(b"password", PASSWORD_CHARS),
        }
    }

    fn text(&self, purpose: &[u8], chars: usize) -> String {
        let digest = Sha256::new()
            .chain_update(self.secret.0)
            .chain_update(self.generated.to_be_bytes())
            .chain_update(purpose)
            .finalize();
        let chars = digest.iter().take(chars);
        chars
            .map(|byte| char::from(CHARS[usize::from(*byte) % CHARS.len()]))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs differ, have the lengths of RFC 8839 section 5.4, and reveal nothing about the next
    /// one.
    #[test]
    fn credentials_do_not_repeat() {
        let mut one = IceCredentialGenerator::new(IceSecret([1; 32]));
        let mut two = IceCredentialGenerator::new(IceSecret([2; 32]));
        let made = [one.next(), one.next(), two.next(), two.next()];
        for (at, creds) in made.iter().enumerate() {
            assert_eq!((creds.ufrag.len(), creds.pass.len()), (UFRAG_CHARS, PASSWORD_CHARS));
            assert!(
                creds
                    .ufrag
                    .bytes()
                    .chain(creds.pass.bytes())
                    .all(|byte| byte.is_ascii_alphanumeric())
            );
            assert!(!creds.pass.contains(&creds.ufrag));
            let mut others = made[..at].iter();
            assert!(others.all(|other| other.ufrag != creds.ufrag && other.pass != creds.pass));
        }
    }
}
