//! stub
use std::time::Instant;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Call,
    Client,
}
pub struct Tokens;
pub struct Claims {
    pub id: String,
}
#[derive(Debug)]
pub struct Refusal;
impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("x")
    }
}
impl Tokens {
    pub fn new(_: [u8; 32], _: Instant) -> Self {
        Tokens
    }
    pub fn mint(&mut self, _: Family, _: &str, _: Instant) -> String {
        String::new()
    }
    pub fn take(&mut self, _: &str, _: Family, _: Instant) -> Result<Claims, Refusal> {
        Err(Refusal)
    }
}
