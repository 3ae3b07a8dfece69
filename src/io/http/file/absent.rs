//! The twin of `http::file` in a build without `page`: what is asked of the page is refused before it comes here.

use hyper::header::HeaderMap;

use super::floor::Reply;

pub(super) fn to_page() -> Reply {
    Reply::default()
}

pub(super) fn file(_name: &str, _headers: &HeaderMap) -> Option<Reply> {
    None
}
