//! The built-in page, embedded: one [`Asset`] per file, compressed by the build script, with its
//! content type; and the description of the HTTP routes, [`openapi`].
//!
//! In: the name of a file below `/client/`, and the two request headers that select its encoding.
//! Out: the gzip member, or the decompressed file for the rare client that does not accept gzip.
//! Names are compared whole, so no path leads out of the page.

use miniz_oxide::inflate::decompress_to_vec_with_limit;

/// Returns what the page may do, as the value of `Content-Security-Policy`. Scripts, styles and
/// requests of this origin alone (`'self'` covers its WebSockets); nothing inline, no markup made
/// from strings, no frame around it. `mediastream:` is for browsers that ask the policy about a
/// stream in an `<audio>`, and `blob:` has the recording of a call. `server` is a source expression
/// for the one other server that the page connects to, such as `https://*:4080`.
pub fn content_security_policy(server: Option<&str>) -> String {
    let [space, server] = server.map_or(["", ""], |server| [" ", server]);
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; manifest-src 'self'; \
         connect-src 'self'{space}{server}; media-src mediastream: blob:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
}

/// Header of a gzip member without optional fields, and its trailer (CRC-32 and length), in bytes:
/// RFC 1952.
const GZIP_HEADER_BYTES: usize = 10;
const GZIP_TRAILER_BYTES: usize = 8;

include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// One file of the page.
#[derive(Debug)]
pub struct Asset {
    pub name: &'static str,
    pub content_type: &'static str,
    /// A weak entity tag with its quotes, the same for both encodings.
    pub etag: &'static str,
    /// The length before compression.
    pub identity_bytes: usize,
    /// The file as one gzip member.
    pub gzip: &'static [u8],
}

impl Asset {
    /// Returns the file before compression.
    pub fn identity(&self) -> Vec<u8> {
        let deflate = &self.gzip[GZIP_HEADER_BYTES..self.gzip.len() - GZIP_TRAILER_BYTES];
        decompress_to_vec_with_limit(deflate, self.identity_bytes).expect("the build compressed it")
    }

    /// Returns whether the client has this version of the file; `if_none_match` is the value of
    /// that header.
    pub fn is_in(&self, if_none_match: &str) -> bool {
        let opaque = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
        let own = opaque(self.etag);
        if_none_match
            .split(',')
            .map(str::trim)
            .any(|tag| tag == "*" || opaque(tag) == own)
    }
}

/// Returns a file by its name below `/client/`; the empty name is the page itself.
pub fn asset(name: &str) -> Option<&'static Asset> {
    let name = if name.is_empty() { "index.html" } else { name };
    embedded(name).filter(|asset| !asset.name.starts_with(SETUP))
}

/// Returns the description of the HTTP routes for programs (OpenAPI 3.1, as JSON); `None` in a
/// build without the feature `calls`.
pub fn openapi() -> Option<&'static Asset> {
    OPENAPI.as_ref()
}

/// How the names of files begin that only the setup page of a board has.
const SETUP: &str = "setup";

/// Files of the built-in page that the setup page has too.
const SHARED: [&str; 8] = [
    "style.css",
    "icon.svg",
    "icon-192.png",
    "dom.js",
    "rich.js",
    "form.css",
    "form-bot.js",
    "form-checks.js",
];

/// Returns a file of the setup page by its name; the empty name is the page itself.
pub fn setup_asset(name: &str) -> Option<&'static Asset> {
    let name = if name.is_empty() { "setup.html" } else { name };
    embedded(name).filter(|asset| asset.name.starts_with(SETUP) || SHARED.contains(&asset.name))
}

fn embedded(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

/// Returns whether a client accepts gzip; `accept_encoding` is the value of that header (RFC 9110,
/// section 12.5.3).
pub fn accepts_gzip(accept_encoding: &str) -> bool {
    let weight = |coding: &str| {
        accept_encoding.split(',').find_map(|item| {
            let mut parts = item.split(';').map(str::trim);
            let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(coding));
            let q = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
            named.then(|| q.map_or(Some(1.0), |q| q.parse::<f32>().ok()).unwrap_or(0.0))
        })
    };
    weight("gzip").or_else(|| weight("*")).is_some_and(|q| q > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str) -> String {
        String::from_utf8(embedded(name).expect("the page has it").identity()).expect("the page is text")
    }

    /// R-008, R-041: what the folder holds is what is served, byte for byte, with a type that
    /// browsers execute.
    #[test]
    fn every_file_is_embedded_unchanged() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/page");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("it can be listed").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8");
            if name.ends_with(".rs") {
                assert!(embedded(name).is_none(), "{name} is not part of the page");
                continue;
            }
            let asset = embedded(name).expect("every file is listed");
            assert_eq!(asset.identity(), std::fs::read(&path).expect("readable"), "{name}");
            assert_eq!(asset.identity().len(), asset.identity_bytes, "{name}");
            let expected = match name.rsplit_once('.').expect("an ending").1 {
                "js" => "text/javascript; charset=utf-8",
                "svg" => "image/svg+xml",
                "png" => "image/png",
                "webmanifest" => "application/manifest+json",
                ending => &format!("text/{ending}; charset=utf-8"),
            };
            assert_eq!(asset.content_type, expected, "{name}");
            seen += 1;
        }
        assert_eq!(seen, ASSETS.len());
    }

    /// The description of the routes is worth its bytes while they are few.
    #[test]
    fn the_description_of_the_routes_is_small() {
        let asset = openapi().expect("this build has it");
        assert!(asset.gzip.len() < 10_000, "{} bytes", asset.gzip.len());
        assert_eq!(asset.identity().len(), asset.identity_bytes);
    }

    /// All files after compression, in bytes: boards serve the page over slow links. A browser
    /// loads a third of it when it is chosen: MoQ, simulated calls, QR codes, the list of sessions,
    /// the settings; and a tenth is the setup page, which shares its forms with the settings. The
    /// choice of the sound card and its devices has 250 bytes.
    const PAGE_BYTES_MAX: usize = 99_400;

    #[test]
    fn the_page_stays_small() {
        let total: usize = ASSETS.iter().map(|asset| asset.gzip.len()).sum();
        assert!(
            total < PAGE_BYTES_MAX,
            "the page has {total} bytes, not below {PAGE_BYTES_MAX}"
        );
    }

    /// RFC 1952: the trailer is what a browser checks after inflating.
    #[test]
    fn members_end_with_checksum_and_length() {
        for asset in ASSETS {
            let (_, trailer) = asset.gzip.split_at(asset.gzip.len() - GZIP_TRAILER_BYTES);
            let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
            let identity = asset.identity();
            // The other way to compute it: a remainder over the reflected polynomial, with a table
            // per byte.
            let table: Vec<u32> = (0..256_u32)
                .map(|n| (0..8).fold(n, |c, _| if c & 1 == 1 { 0xedb8_8320 ^ (c >> 1) } else { c >> 1 }))
                .collect();
            let crc = identity
                .iter()
                .fold(u32::MAX, |crc, byte| table[usize::from(crc as u8 ^ byte)] ^ (crc >> 8));
            assert_eq!(number(&trailer[..4]), !crc, "{}", asset.name);
            assert_eq!(number(&trailer[4..]) as usize, identity.len(), "{}", asset.name);
            assert_eq!(asset.gzip[..4], [0x1f, 0x8b, 8, 0], "{}", asset.name);
        }
    }

    /// R-041: the empty name is the page; nothing else is guessed, and no path leads out.
    #[test]
    fn finds_only_files_of_the_page() {
        assert_eq!(asset("").map(|asset| asset.name), Some("index.html"));
        for name in [
            "/",
            "index",
            "INDEX.HTML",
            "../mod.rs",
            "mod.rs",
            "build.rs",
            "setup.html",
            "app.js/",
            "app.js\0",
            "a b",
        ] {
            assert!(asset(name).is_none(), "{name:?}");
        }
    }

    /// The policy forbids inline code and other hosts, so a page that has any would be broken.
    #[test]
    fn the_page_follows_its_policy() {
        for name in ["index.html", "setup.html"] {
            let page = text(name);
            for forbidden in [
                "<style",
                " style=",
                " onclick=",
                " onload=",
                "javascript:",
                "src=\"http",
                "src=\"data:",
            ] {
                assert!(!page.contains(forbidden), "{name} has {forbidden}");
            }
            // What a user follows may lead elsewhere; what the browser loads may not.
            assert_eq!(
                page.matches("href=\"http").count(),
                page.matches("<a href=\"http").count(),
                "{name}"
            );
            assert_eq!(
                page.matches("<script").count(),
                page.matches("<script type=\"module\" src=").count()
            );
        }
        for asset in ASSETS.iter().filter(|asset| asset.name.ends_with(".js")) {
            let script = text(asset.name);
            for forbidden in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "eval(",
                "new Function",
                "setAttribute('style",
            ] {
                assert!(!script.contains(forbidden), "{} has {forbidden}", asset.name);
            }
        }
        assert!(!text("style.css").contains("url("));
    }

    #[test]
    fn the_policy_names_one_more_server() {
        let [own, other] = [None, Some("https://*:4080")].map(content_security_policy);
        assert!(own.contains("; connect-src 'self'; "), "{own}");
        assert_eq!(
            other,
            own.replace("connect-src 'self'", "connect-src 'self' https://*:4080")
        );
    }

    /// Every name that a file of the page asks for is a file of the page: a missing module leaves
    /// the page dead.
    #[test]
    fn references_between_files_resolve() {
        let mut found = 0;
        for from in ASSETS {
            let Ok(text) = String::from_utf8(from.identity()) else {
                continue;
            };
            let quoted = |start: &str, end: char| -> Vec<String> {
                let rest = text.split(start).skip(1);
                rest.map(|rest| rest.split(end).next().unwrap_or_default().to_owned())
                    .collect()
            };
            let names = match from.name.rsplit_once('.').expect("an ending").1 {
                "js" => [" from './", "import('./", "addModule(new URL('"]
                    .map(|start| quoted(start, '\''))
                    .concat(),
                "html" => [
                    quoted("src=\"", '"'),
                    quoted("<link rel=\"icon\" href=\"", '"'),
                    quoted("<link rel=\"stylesheet\" href=\"", '"'),
                    quoted("<link rel=\"apple-touch-icon\" href=\"", '"'),
                    quoted("<link rel=\"manifest\" href=\"", '"'),
                ]
                .concat(),
                "webmanifest" => quoted("\"src\": \"", '"'),
                _ => Vec::new(),
            };
            for name in names {
                let found_by = match from.name.starts_with(SETUP) {
                    true => setup_asset(&name),
                    false => asset(&name),
                };
                assert!(found_by.is_some(), "{} asks for {name}", from.name);
                found += 1;
            }
        }
        assert!(
            found >= ASSETS.len() - 1,
            "each file but the first is asked for by another: {found}"
        );
    }

    /// A problem without words would be shown as none: browsers look for a name only when it is
    /// used.
    #[test]
    fn every_problem_has_a_text() {
        let words = text("words.js");
        let mut found = 0;
        for from in ASSETS.iter().filter(|asset| asset.name.ends_with(".js")) {
            for rest in text(from.name).split("words.").skip(1) {
                let name = rest
                    .split(|next: char| !next.is_ascii_alphanumeric())
                    .next()
                    .unwrap_or_default();
                assert!(
                    name == "js"
                        || words.contains(&format!("export const {name} ="))
                        || words.contains(&format!("export function {name}(")),
                    "{} says {name}",
                    from.name
                );
                found += 1;
            }
        }
        assert!(found > 10, "{found}");
    }

    #[test]
    fn accepts_gzip_reads_the_header() {
        for takes in [
            "gzip",
            "GZIP",
            "gzip, deflate, br, zstd",
            "br;q=1.0, gzip;q=0.2",
            "*",
            "gzip; q=0.001",
            "identity;q=0, *;q=0.5",
        ] {
            assert!(accepts_gzip(takes), "{takes}");
        }
        for refuses in [
            "",
            "identity",
            "br",
            "gzip;q=0",
            "gzip; q=0.000, *",
            "*;q=0",
            "xgzip",
            "gzip;q=much",
        ] {
            assert!(!accepts_gzip(refuses), "{refuses}");
        }
    }

    #[test]
    fn matches_weak_and_strong_tags_in_lists() {
        let page = asset("").expect("the page is there");
        let strong = page.etag.trim_start_matches("W/");
        for known in [page.etag, strong, "*", &format!("\"other\", {strong}")] {
            assert!(page.is_in(known), "{known}");
        }
        for unknown in ["", "\"other\"", strong.trim_matches('"')] {
            assert!(!page.is_in(unknown), "{unknown}");
        }
        let style = asset("style.css").expect("the style is there");
        assert_ne!(style.etag, page.etag);
    }
}
