//! A QR code for terminals.
//!
//! In: a text. Out: lines of half blocks, each with two rows of modules, black on white for every
//! colour scheme of the terminal, with a border of four modules. Source: ISO/IEC 18004, implemented
//! by the crate `qrcodegen`.

use qrcodegen::{QrCode, QrCodeEcc};

/// Width of the required border, in modules.
const BORDER: i32 = 4;
/// Escape sequence for black characters on white.
const COLOURS: &str = "\x1b[38;5;16;48;5;231m";
const RESET: &str = "\x1b[0m";

/// Returns the lines of a code, each with a line break; `None` if the text is too long for a code.
pub fn code(text: &str) -> Option<String> {
    let code = QrCode::encode_text(text, QrCodeEcc::Low).ok()?;
    let modules = -BORDER..code.size() + BORDER;
    let mut lines = String::from("\n");
    for y in modules.clone().step_by(2) {
        lines.push_str(COLOURS);
        // `get_module` returns false (white) outside the code.
        lines.extend(
            modules
                .clone()
                .map(|x| match (code.get_module(x, y), code.get_module(x, y + 1)) {
                    (true, true) => '█',
                    (true, false) => '▀',
                    (false, true) => '▄',
                    (false, false) => ' ',
                }),
        );
        lines.push_str(RESET);
        lines.push('\n');
    }
    Some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_square_with_a_white_border() {
        let text = code("https://192.168.1.20:7860/").expect("a short text");
        let lines: Vec<&str> = text.trim().lines().collect();
        let bare = |line: &str| line.replace(COLOURS, "").replace(RESET, "");
        let width = bare(lines[0]).chars().count();
        assert_eq!(lines.len(), width.div_ceil(2));
        for line in &lines {
            let line = bare(line);
            assert_eq!(line.chars().count(), width);
            assert!(line.starts_with("    ") && line.ends_with("    "), "{line:?}");
        }
        // The finder pattern in the upper left corner: seven black modules, one white.
        assert!(bare(lines[2]).starts_with("    █▀▀▀▀▀█ "), "{}", bare(lines[2]));
        assert_eq!(code(&"x".repeat(10_000)), None);
    }
}
