//! Decides whether a person asked for a GET that creates a room.
//!
//! In: the headers of a request that describe its origin. Out: yes or no. Typed addresses and
//! clicked links count as asked for. Images, scripts, frames, redirects and prefetches do not,
//! because a foreign page could spend the owner's money with them. Neither do crawlers and link
//! previews, which are recognised by name. Programs that are not browsers pass.
//!
//! Browsers send `Sec-Fetch-*` only to encrypted and loopback addresses. Elsewhere `Accept`
//! identifies images and scripts, but a navigation by script or inside a frame looks like a click.
//! In a network without HTTPS a foreign page can therefore create rooms; a key or HTTPS prevents
//! that.
//!
//! Source: Fetch Metadata Request Headers (W3C), HTML's `Sec-Purpose`, the Fetch standard on
//! `Accept`.

use crate::http::host::AllowedHosts;
use crate::http::origin;

/// Parts of the names of crawlers and link previews. The names of other programs, such as curl,
/// contain none of them.
const CRAWLERS: [&[u8]; 6] = [b"bot", b"crawl", b"spider", b"preview", b"externalhit", b"whatsapp"];

/// The headers of a GET request that describe its origin.
#[derive(Clone, Copy, Debug, Default)]
pub struct FetchMetadata<'r> {
    /// The first `Origin`.
    pub origin: Option<&'r [u8]>,
    /// `Host`.
    pub host: Option<&'r [u8]>,
    /// `Sec-Fetch-Site`, `-Mode`, `-Dest` and `-User`.
    pub site: Option<&'r [u8]>,
    pub mode: Option<&'r [u8]>,
    pub dest: Option<&'r [u8]>,
    pub user: Option<&'r [u8]>,
    /// `Sec-Purpose`, or one of its former names.
    pub purpose: Option<&'r [u8]>,
    pub accept: Option<&'r [u8]>,
    pub agent: Option<&'r [u8]>,
}

impl FetchMetadata<'_> {
    /// Returns whether the browser prefetches this request.
    pub fn is_prefetch(&self) -> bool {
        let words = self.purpose.unwrap_or_default();
        [&b"prefetch"[..], b"prerender", b"preview"]
            .into_iter()
            .any(|word| words.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word)))
    }

    /// Returns whether a crawler or the link preview of a messenger sends this request.
    pub fn is_crawler(&self) -> bool {
        let agent = self.agent.unwrap_or_default();
        CRAWLERS
            .iter()
            .any(|word| agent.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word)))
    }

    /// Returns whether a person typed the address, or a page of this server links to it.
    pub fn is_user_initiated(&self) -> bool {
        self.is_navigation() && is(self.site, &[b"none", b"same-origin"])
    }

    /// Returns whether a page of another site made this request without a click.
    pub fn is_cross_site(&self, hosts: &AllowedHosts) -> bool {
        if let Some(origin) = self.origin {
            return origin::is_cross_site(origin, self.host, hosts);
        }
        match self.site {
            Some(_) if is(self.site, &[b"none", b"same-origin", b"same-site"]) => false,
            Some(_) => !(self.is_navigation() && is(self.user, &[b"?1"])),
            None => self.is_browser() && !self.accepts_html(),
        }
    }

    fn is_navigation(&self) -> bool {
        is(self.mode, &[b"navigate"]) && is(self.dest, &[b"document"])
    }

    fn is_browser(&self) -> bool {
        self.agent.is_some_and(|agent| agent.starts_with(b"Mozilla/"))
    }

    fn accepts_html(&self) -> bool {
        let accept = self.accept.unwrap_or_default();
        accept.windows(9).any(|part| part.eq_ignore_ascii_case(b"text/html"))
    }
}

fn is(value: Option<&[u8]>, words: &[&[u8]]) -> bool {
    value.is_some_and(|value| words.iter().any(|word| value.eq_ignore_ascii_case(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHROME: &[u8] = b"Mozilla/5.0 (X11; Linux aarch64) AppleWebKit/537.36 Chrome/142.0.0.0 Safari/537.36";
    const PAGE: &[u8] = b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

    fn hosts() -> AllowedHosts {
        AllowedHosts::new(&crate::config::Config {
            proxy: Some("bots.example.net".into()),
            ..Default::default()
        })
    }

    fn browser<'r>(site: &'r str, mode: &'r str, dest: &'r str) -> FetchMetadata<'r> {
        FetchMetadata {
            site: Some(site.as_bytes()),
            mode: Some(mode.as_bytes()),
            dest: Some(dest.as_bytes()),
            host: Some(b"bots.example.net"),
            agent: Some(CHROME),
            accept: Some(PAGE),
            ..FetchMetadata::default()
        }
    }

    /// a typed address, a bookmark, a click on any page, and a program.
    #[test]
    fn accepts_requests_of_people_and_programs() {
        let click = FetchMetadata {
            user: Some(b"?1"),
            ..browser("cross-site", "navigate", "document")
        };
        let lan = FetchMetadata {
            agent: Some(CHROME),
            accept: Some(PAGE),
            host: Some(b"192.168.1.5:7860"),
            ..FetchMetadata::default()
        };
        let own_script = FetchMetadata {
            origin: Some(b"http://localhost:5173"),
            ..browser("same-site", "cors", "empty")
        };
        for meant in [
            browser("none", "navigate", "document"),
            browser("same-origin", "navigate", "document"),
            click,
            lan,
            own_script,
            FetchMetadata::default(),
        ] {
            assert!(!meant.is_cross_site(&hosts()) && !meant.is_prefetch(), "{meant:?}");
        }
        assert!(browser("none", "navigate", "document").is_user_initiated());
        assert!(
            !click.is_user_initiated()
                && !lan.is_user_initiated()
                && !browser("none", "navigate", "iframe").is_user_initiated()
        );
    }

    /// Requests that a page of another site causes without a click.
    #[test]
    fn rejects_requests_of_foreign_pages_without_a_click() {
        for (mode, dest) in [
            ("no-cors", "image"),
            ("no-cors", "script"),
            ("cors", "empty"),
            ("navigate", "iframe"),
            ("navigate", "document"),
        ] {
            assert!(
                browser("cross-site", mode, dest).is_cross_site(&hosts()),
                "{mode} {dest}"
            );
        }
        let clicked_frame = FetchMetadata {
            user: Some(b"?1"),
            ..browser("cross-site", "navigate", "iframe")
        };
        assert!(clicked_frame.is_cross_site(&hosts()));
        assert!(browser("new-word", "navigate", "document").is_cross_site(&hosts()));
        // Without the metadata, `Accept` still shows that images and scripts do not request pages.
        for accept in [Some(&b"image/avif,image/webp,*/*;q=0.8"[..]), Some(b"*/*"), None] {
            let lan = FetchMetadata {
                agent: Some(CHROME),
                accept,
                ..FetchMetadata::default()
            };
            assert!(lan.is_cross_site(&hosts()), "{accept:?}");
        }
        for origin in ["https://evil.example", "null", ""] {
            let fetched = FetchMetadata {
                origin: Some(origin.as_bytes()),
                agent: Some(CHROME),
                accept: Some(PAGE),
                ..FetchMetadata::default()
            };
            assert!(fetched.is_cross_site(&hosts()), "{origin}");
        }
    }

    #[test]
    fn recognises_prefetches_of_all_browsers() {
        for purpose in [
            "prefetch",
            "Prefetch;prerender",
            "prefetch;anonymous-client-ip",
            "preview",
        ] {
            let guess = FetchMetadata {
                purpose: Some(purpose.as_bytes()),
                ..browser("none", "navigate", "document")
            };
            assert!(guess.is_prefetch(), "{purpose}");
        }
    }
}
