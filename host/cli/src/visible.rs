//! Escapes control characters of untrusted text.
//!
//! Escape sequences can rewrite earlier lines, set the clipboard or change the title. Control characters and
//! those that change the direction of writing are shown as symbols instead. A file or a pipe gets the text
//! as it is.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Stdout, Write};

/// Returns a text with a symbol for each control character except line breaks and tabs.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_active) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            // Unicode has a picture of each: ␛ for escape.
            '\0'..='\x1f' if is_active(character) => {
                shown.extend(char::from_u32(0x2400 + u32::from(character)));
            }
            '\x7f' => shown.push('␡'),
            other if is_active(other) => shown.extend(other.escape_unicode()),
            other => shown.push(other),
        }
    }
    Cow::Owned(shown)
}

/// Returns true if a terminal may obey a character instead of showing it.
fn is_active(character: char) -> bool {
    let changes_direction = matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (character.is_control() && character != '\n' && character != '\t') || changes_direction
}

/// Writer of text that may have control characters.
pub struct VisibleWriter<W> {
    out: W,
    /// False if the text is not for a terminal.
    escapes: bool,
}

/// Returns stdout, where control characters are shown if it is a terminal.
pub fn stdout() -> VisibleWriter<Stdout> {
    let out = io::stdout();
    VisibleWriter { escapes: out.is_terminal(), out }
}

impl<W: Write> Write for VisibleWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.escapes {
            // Callers write whole strings.
            self.out.write_all(visible(&String::from_utf8_lossy(bytes)).as_bytes())?;
        } else {
            self.out.write_all(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets the clipboard (OSC 52), clears the line (CSI), and again with one character of C1.
    const HOSTILE: &str = "a\x1b]52;c;aGk=\x07b\x1b[2K\r\u{9b}2Kc\u{202e}d\x7f\n\te";

    #[test]
    fn control_characters_become_symbols() {
        assert_eq!(visible(HOSTILE), "a␛]52;c;aGk=␇b␛[2K␍\\u{9b}2Kc\\u{202e}d␡\n\te");
        assert_eq!(visible("日本語 🦀 ä\n"), "日本語 🦀 ä\n");
    }

    #[test]
    fn only_terminals_need_symbols() {
        let written = |escapes: bool| {
            let mut writer = VisibleWriter { out: Vec::new(), escapes };
            write!(writer, "[{}]", HOSTILE).unwrap();
            String::from_utf8(writer.out).unwrap()
        };
        assert_eq!(written(true), format!("[{}]", visible(HOSTILE)));
        assert_eq!(written(false), format!("[{HOSTILE}]"));
    }
}
