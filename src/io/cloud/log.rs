//! The log of a build: written line by line, read page by page.
