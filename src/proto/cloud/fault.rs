//! Every way in which the cloud service refuses: status, code and text, as JSON or as XML.
//!
//! In: what went wrong, said by the room that found it. Out: a [`Fault`], from which the answer is made. Texts are for people;
//! codes are for programs, and every one stands here. Source: `cloud-interface.md` §2, `cloud.md` §2.3 and §4.3.

use std::borrow::Cow;

/// One refusal: what the answer's status line, headers and body say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub status: u16,
    /// For programs.
    pub code: &'static str,
    /// For people. Holds no key, signature, policy or token.
    pub text: Cow<'static, str>,
    pub extra: Extra,
}

/// A header that goes with some refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    None,
    /// `Allow`: the methods that would do.
    Allow(&'static str),
    /// `Retry-After`, in seconds.
    RetryAfterS(u32),
    /// `WWW-Authenticate: Bearer`.
    Challenge,
    /// `Content-Range: bytes */N`.
    WholeBytes(u64),
}

impl Fault {
    /// A refusal without a header of its own.
    pub fn new(status: u16, code: &'static str, text: impl Into<Cow<'static, str>>) -> Fault {
        Fault {
            status,
            code,
            text: text.into(),
            extra: Extra::None,
        }
    }

    /// Adds a header.
    pub fn with(mut self, extra: Extra) -> Fault {
        self.extra = extra;
        self
    }

    /// 400 of the private API: a body, a query or a path that makes no sense.
    pub fn bad_request(text: impl Into<Cow<'static, str>>) -> Fault {
        Fault::new(400, "GENERIC_BAD_REQUEST", text)
    }

    /// 404, also of what belongs to another organization.
    pub fn not_found(text: impl Into<Cow<'static, str>>) -> Fault {
        Fault::new(404, "NOT_FOUND", text)
    }
}
