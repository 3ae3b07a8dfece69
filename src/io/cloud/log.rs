//! The log of a build: written line by line, read page by page.

/// Lines of a page, and where the next one begins.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    pub lines: Vec<String>,
    pub next: Option<String>,
}

/// The log of one build, for writing.
#[derive(Debug)]
pub struct Log(std::fs::File);

impl Log {
    /// Opens it at its end.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &std::path::Path) -> std::io::Result<Log> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map(Log)
    }

    /// Writes a line of the service.
    pub fn service(&mut self, line: &str) {
        use std::io::Write as _;
        let _ = writeln!(self.0, "[service] {line}");
    }

    /// Reads a page.
    ///
    /// # Errors
    /// The system's.
    pub fn page(path: &std::path::Path, _token: Option<&str>, limit: usize) -> std::io::Result<Page> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        Ok(Page {
            lines: text.lines().take(limit).map(str::to_owned).collect(),
            next: None,
        })
    }
}
