//! The names and passwords of this end's connectivity checks.
//!
//! In: a secret of the connection. Out: one pair after the other, for the connection and each
//! restart of its ICE. A peer that knows the password of a session can move its sound to an address
//! of his own, so it comes from the system's random numbers; what str0m makes by itself comes from
//! a generator that begins with the time, and is not used. Source: RFC 8445 section 5.3 (at least
//! 24 bits of a name and 128 of a password, which cannot be guessed).

use sha2::{Digest as _, Sha256};
use str0m::IceCreds;

const UFRAG_CHARS: usize = 16;
const PASSWORD_CHARS: usize = 22;
/// Letters and digits: no reader of SDP stumbles over them.
const CHARS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Random bits of the system, from which a connection's credentials come.
#[derive(Clone, Copy)]
pub struct IceSecret(pub [u8; 32]);

/// Makes credentials.
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

    /// Each pair is another one, has the lengths of RFC 8839 section 5.4, and says nothing of the
    /// next.
    #[test]
    fn each_pair_is_another() {
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
