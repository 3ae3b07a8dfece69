//! Which web pages may use the runner: the list of origins, and the CORS headers that tell a browser so.
//!
//! In: the values of `Origin` headers as bytes, and the configured list of whole origins; an empty list allows everything.
//! Out: a [`Standing`], and the headers of answers and preflights. Origins are compared whole and without regard to case.
//! Refuses, with a list: a missing, a foreign and a doubled `Origin`.
//! Source: the Fetch standard (CORS protocol), Private Network Access (draft), checklist.

/// A header that an answer gets.
pub type Header<'h> = (&'static str, &'h [u8]);

const METHODS: &[u8] = b"DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT";
const PREFLIGHT_AGE_S: &[u8] = b"600";

/// What a request's `Origin` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing<'o> {
    /// No origin and no list: served, without CORS headers.
    Unnamed,
    /// An allowed origin: served, and the page may read the answer.
    Allowed(&'o [u8]),
    /// A missing or foreign origin while there is a list.
    Refused,
}

/// The origins that may use the runner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins(Vec<String>);

impl Origins {
    /// Makes the list of whole origins; empty allows every one.
    pub fn new(allowed: &[String]) -> Self {
        Origins(
            allowed
                .iter()
                .map(|origin| origin.trim_end_matches('/').to_owned())
                .collect(),
        )
    }

    /// Judges the `Origin` headers of one request.
    pub fn judge<'o>(&self, mut origins: impl Iterator<Item = &'o [u8]>) -> Standing<'o> {
        let (first, second) = (origins.next(), origins.next());
        match (first, second) {
            (Some(origin), None) if self.contains(origin) => Standing::Allowed(origin),
            _ if self.0.is_empty() => Standing::Unnamed,
            _ => Standing::Refused,
        }
    }

    fn contains(&self, origin: &[u8]) -> bool {
        let listed = |allowed: &String| allowed.as_bytes().eq_ignore_ascii_case(origin);
        // No browser sends an origin beyond ASCII, so such a one is not repeated in an answer.
        origin.is_ascii() && (self.0.is_empty() || self.0.iter().any(listed))
    }
}

/// What a preflight asks beyond its method, which is always allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preflight<'r> {
    /// `Access-Control-Request-Headers`.
    pub headers: Option<&'r [u8]>,
    /// `Access-Control-Request-Private-Network: true`: a public page wants to reach this host on a private network.
    pub private_network: bool,
}

/// Returns the headers of any answer, errors included, to a page of an allowed origin.
pub fn headers(origin: &[u8]) -> [Header<'_>; 3] {
    [
        ("access-control-allow-origin", origin),
        ("access-control-allow-credentials", b"true"),
        ("vary", b"Origin"),
    ]
}

/// Returns the headers that a preflight's answer has besides [`headers`].
pub fn preflight_headers<'r>(asked: Preflight<'r>) -> impl Iterator<Item = Header<'r>> {
    let fixed: [Header<'r>; 2] = [
        ("access-control-allow-methods", METHODS),
        ("access-control-max-age", PREFLIGHT_AGE_S),
    ];
    let headers = asked.headers.map(|headers| ("access-control-allow-headers", headers));
    let private: Option<Header<'r>> = asked
        .private_network
        .then_some(("access-control-allow-private-network", b"true"));
    fixed.into_iter().chain(headers).chain(private)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed() -> Origins {
        Origins::new(&["https://App.example".to_owned(), "http://localhost:3000/".to_owned()])
    }

    fn judge<'o>(origins: &Origins, sent: &[&'o str]) -> Standing<'o> {
        origins.judge(sent.iter().map(|origin| origin.as_bytes()))
    }

    /// no list, every origin; a request without one gets no CORS headers.
    #[test]
    fn without_a_list_every_origin_is_allowed() {
        let all = Origins::default();
        assert_eq!(judge(&all, &[]), Standing::Unnamed);
        assert_eq!(
            judge(&all, &["https://any.example"]),
            Standing::Allowed(b"https://any.example")
        );
        assert_eq!(judge(&all, &["null"]), Standing::Allowed(b"null"));
        assert_eq!(judge(&all, &["https://a", "https://b"]), Standing::Unnamed);
        assert_eq!(judge(&all, &["https://\u{e9}.example"]), Standing::Unnamed);
    }

    /// with a list, a missing, a foreign and a doubled origin are refused.
    #[test]
    fn with_a_list_only_its_origins_are_allowed() {
        let list = listed();
        assert_eq!(
            judge(&list, &["https://app.EXAMPLE"]),
            Standing::Allowed(b"https://app.EXAMPLE")
        );
        assert_eq!(
            judge(&list, &["http://localhost:3000"]),
            Standing::Allowed(b"http://localhost:3000")
        );
        for refused in [
            &[][..],
            &[""],
            &["null"],
            &["https://evil.example"],
            &["https://app.example.evil.example"],
            &["https://app.example:8443"],
            &["http://app.example"],
            &["app.example"],
            &["https://app.example/"],
            &["https://app.example", "https://app.example"],
        ] {
            assert_eq!(judge(&list, refused), Standing::Refused, "{refused:?}");
        }
    }

    #[test]
    fn a_preflight_is_answered_with_what_it_asked_for() {
        let plain: Vec<Header<'_>> = preflight_headers(Preflight::default()).collect();
        assert_eq!(
            plain,
            [
                ("access-control-allow-methods", METHODS),
                ("access-control-max-age", b"600")
            ]
        );
        let asked = Preflight {
            headers: Some(b"content-type,x-a"),
            private_network: true,
        };
        let full: Vec<Header<'_>> = preflight_headers(asked).collect();
        assert!(full.contains(&("access-control-allow-headers", b"content-type,x-a")));
        assert!(full.contains(&("access-control-allow-private-network", b"true")));
        for method in ["GET", "POST", "PATCH", "PUT", "DELETE", "OPTIONS", "HEAD"] {
            assert!(
                String::from_utf8_lossy(METHODS)
                    .split(", ")
                    .any(|allowed| allowed == method)
            );
        }
    }
}
