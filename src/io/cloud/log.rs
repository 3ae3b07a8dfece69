//! The log of a build: written line by line, read page by page.

/// Lines of a page, and where the next one begins.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    pub lines: Vec<String>,
    pub next: Option<String>,
}
