//! The line that shows how far an upload is.
