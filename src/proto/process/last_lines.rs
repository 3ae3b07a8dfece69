//! The last lines of a program's stderr that say why it failed.
//!
//! In: its lines. Out: the last one, behind those that name an error, where it does not: some
//! runtimes end with other words, as Node.js with its version and Rust with a note. The rule asks
//! for no language: frames of a stack are indented, and messages of an error are not.

use std::collections::VecDeque;

use crate::text::beginning;

/// Lines that are searched for an error.
const LINES_MAX: usize = 32;
/// Bytes of one that are kept.
const LINE_BYTES_MAX: usize = 1024;
/// Words of the line that names an error, in any case.
const ERROR_WORDS: [&str; 5] = ["error", "exception", "fail", "fatal", "panic"];
/// What is between two lines.
const SEPARATOR: &str = "\n";

/// The last lines of one stream.
#[derive(Debug, Default)]
pub struct LastLines {
    /// Those that are not indented, the latest last.
    lines: VecDeque<String>,
    /// The last one.
    last: String,
}

impl LastLines {
    /// Takes a line.
    pub fn push(&mut self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        let line = beginning(line, LINE_BYTES_MAX);
        line.clone_into(&mut self.last);
        if line.starts_with(char::is_whitespace) {
            return;
        }
        let mut own = match self.lines.len() {
            LINES_MAX => self.lines.pop_front().unwrap_or_default(),
            _ => String::new(),
        };
        line.clone_into(&mut own);
        self.lines.push_back(own);
    }

    /// Returns the last line, behind the last one that names an error and the one after that, with
    /// line feeds between them. Empty if there was none.
    pub fn into_text(self) -> String {
        let names_error = |line: &String| {
            let line = line.to_ascii_lowercase();
            ERROR_WORDS.iter().any(|word| line.contains(word))
        };
        let at = self.lines.iter().rposition(names_error).unwrap_or(self.lines.len());
        let mut chosen: Vec<&str> = self.lines.iter().skip(at).take(2).map(String::as_str).collect();
        if chosen.last() != Some(&&*self.last) {
            chosen.push(&self.last);
        }
        chosen.join(SEPARATOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> String {
        let mut lines = LastLines::default();
        text.lines().for_each(|line| lines.push(line));
        lines.into_text()
    }

    /// What interpreters and runtimes write for an error that ends the program.
    #[test]
    fn the_error_is_found_whatever_follows_it() {
        let node = "/tmp/bot.js:3\nthrow new Error('no model');\n^\n\nError: no model\n    at main (/tmp/bot.js:3:7)\n\nNode.js v20.20.2\n";
        assert_eq!(of(node), "Error: no model\nNode.js v20.20.2");
        let missing = "node:internal/modules/cjs/loader:1210\n  throw err;\n  ^\n\nError: Cannot find module 'ws'\nRequire stack:\n\
                       - /tmp/bot.js\n    at load (a:1:2) {\n  code: 'MODULE_NOT_FOUND'\n}\n\nNode.js v20.20.2\n";
        assert_eq!(
            of(missing),
            "Error: Cannot find module 'ws'\nRequire stack:\nNode.js v20.20.2"
        );
        let python = "Traceback (most recent call last):\n  File \"bot.py\", line 1, in <module>\n    import pipecatt\n\
                      ModuleNotFoundError: No module named 'pipecatt'\n";
        assert_eq!(of(python), "ModuleNotFoundError: No module named 'pipecatt'");
        let rust = "thread 'main' panicked at src/main.rs:2:5:\nno model\nnote: run with `RUST_BACKTRACE=1`\n";
        assert_eq!(of(rust), rust.trim_end());
        let go = "panic: no model\n\ngoroutine 1 [running]:\nmain.main()\n\t/tmp/x.go:4 +0x25\nexit status 2\n";
        assert_eq!(of(go), "panic: no model\ngoroutine 1 [running]:\nexit status 2");
        let java = "Exception in thread \"main\" java.lang.RuntimeException: no model\n\tat Bot.main(Bot.java:3)\n";
        assert_eq!(
            of(java),
            "Exception in thread \"main\" java.lang.RuntimeException: no model\n\tat Bot.main(Bot.java:3)"
        );
        let cpp = "terminate called after throwing an instance of 'std::runtime_error'\n  what():  no model\n";
        assert_eq!(of(cpp), cpp.trim_end());
    }

    #[test]
    fn without_an_error_the_last_line_is_shown() {
        assert_eq!(of("starting\nsh: 1: bot: not found\n"), "sh: 1: bot: not found");
        assert_eq!(of("one\n  two\n \n"), "  two");
        assert_eq!(of(""), "");
    }

    /// An error far above the end is not searched for, and lines are kept up to their bound.
    #[test]
    fn what_is_kept_is_bounded() {
        let text = format!("Error: early\n{}", "more\n".repeat(LINES_MAX));
        assert_eq!(of(&text), "more");
        assert_eq!(of(&"x".repeat(5000)).len(), LINE_BYTES_MAX);
    }
}
