//! Names of organizations and regions.

use std::fmt;
use std::sync::Arc;

/// Name of an organization or region. It is part of paths and of the credential scope, so its
/// alphabet is small.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slug(Arc<str>);

/// Name of an organization.
pub type Org = Slug;

impl Slug {
    /// Parses 1 to 63 ASCII letters, digits, dots, hyphens and underscores, of which the first is a
    /// letter or digit.
    pub fn parse(text: &str) -> Option<Slug> {
        let first = text.bytes().next()?;
        let rest = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        (text.len() <= 63 && first.is_ascii_alphanumeric() && text.bytes().all(rest)).then(|| Slug(text.into()))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// Encodes text as part of a URI: all but unreserved characters become `%XX`.
pub fn uri_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}
