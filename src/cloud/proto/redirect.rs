//! Where a redirected upload goes.
//!
//! In: the URL of a request, and the `Location` of its response. Out: the next URL. Rejects
//! relative paths, which no store sends, and a redirect from `https` to `http`, over which the
//! fields of the grant would be readable. Source: RFC 9110 sections 10.2.2, 15.4.8, 15.4.9.

/// Returns the URL of a redirect.
///
/// # Errors
/// What is wrong with it, as the end of a sentence about the request.
pub fn target(from: &str, location: &str) -> Result<String, &'static str> {
    let (scheme, rest) = from.split_once("://").ok_or("its URL has no scheme")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let location = location.trim().split('#').next().unwrap_or_default();
    let url = match location.split_once("://") {
        Some((other, rest)) if other.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
            format!("{}://{rest}", other.to_ascii_lowercase())
        }
        _ if location.starts_with("//") => format!("{scheme}:{location}"),
        _ if location.starts_with('/') => format!("{scheme}://{authority}{location}"),
        _ => return Err("the service redirects it, but names no URL for that"),
    };
    match scheme.eq_ignore_ascii_case("https") && !url.starts_with("https://") {
        true => Err("the service redirects it to a URL that is not https, unlike that of the request"),
        false => Ok(url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_names_a_url_or_a_path_of_the_same_server() {
        let from = "https://store.example.net:8443/bucket?x=/y";
        for (location, expected) in [
            ("https://other.example.net/b", Ok("https://other.example.net/b")),
            (" HTTPS://other.example.net/b#part", Ok("https://other.example.net/b")),
            ("//other.example.net/b", Ok("https://other.example.net/b")),
            ("/b?c=http://d", Ok("https://store.example.net:8443/b?c=http://d")),
            ("http://store.example.net/b", Err("not https")),
            ("ftp://store.example.net/b", Err("not https")),
            ("b", Err("no URL")),
            ("", Err("no URL")),
        ] {
            match (target(from, location), expected) {
                (Ok(url), Ok(expected)) => assert_eq!(url, expected, "{location}"),
                (Err(why), Err(words)) => assert!(why.contains(words), "{location}: {why}"),
                (other, _) => panic!("{location}: {other:?}"),
            }
        }
        let upgraded = target("http://127.0.0.1:9000/bucket", "https://store.example.net/b");
        assert_eq!(upgraded, Ok("https://store.example.net/b".to_owned()));
    }
}
