//! Names are any bytes: how they are written so that a terminal and a JSON parser survive them.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A name for a line of text: nothing in it moves a cursor, ends a line or hides.
pub fn shown(name: &[u8]) -> String {
    escaped(name, true)
}

/// As [`shown`].
pub fn shown_path(path: &Path) -> String {
    shown(path.as_os_str().as_bytes())
}

/// A name for a JSON string, which carries control characters by itself.
pub fn json(name: &[u8]) -> String {
    escaped(name, false)
}

/// A message of somebody else's, made safe for a line of text; its backslashes stay as they are.
pub fn shown_message(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    message.chars().for_each(|c| push(&mut text, c, c == '\\'));
    text
}

fn escaped(name: &[u8], for_terminal: bool) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        chunk.valid().chars().for_each(|c| push(&mut text, c, !for_terminal && c != '\\'));
        chunk.invalid().iter().for_each(|byte| push_byte(&mut text, *byte));
    }
    text
}

fn push(text: &mut String, c: char, as_it_is: bool) {
    match c {
        c if as_it_is => text.push(c),
        '\\' => text.push_str("\\\\"),
        '\n' => text.push_str("\\n"),
        '\r' => text.push_str("\\r"),
        '\t' => text.push_str("\\t"),
        c if is_invisible(c) => c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| push_byte(text, byte)),
        c => text.push(c),
    }
}

fn push_byte(text: &mut String, byte: u8) {
    // Writing to a String cannot fail.
    let _ = write!(text, "\\x{byte:02x}");
}

/// Control characters, line separators, and the format characters that reorder or hide text.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `printf %b` does, for what is written here.
    fn back(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut rest = text.as_bytes();
        while let Some((first, tail)) = rest.split_first() {
            let (byte, used) = match (first, tail.first()) {
                (b'\\', Some(b'x')) => (u8::from_str_radix(std::str::from_utf8(&tail[1..3]).unwrap(), 16).unwrap(), 3),
                (b'\\', Some(b'n')) => (b'\n', 1),
                (b'\\', Some(b'r')) => (b'\r', 1),
                (b'\\', Some(b't')) => (b'\t', 1),
                (b'\\', Some(b'\\')) => (b'\\', 1),
                (b'\\', other) => panic!("{other:?} after a backslash in {text}"),
                (byte, _) => (*byte, 0),
            };
            bytes.push(byte);
            rest = &tail[used..];
        }
        bytes
    }

    #[test]
    fn both_ways_of_writing_lead_back_to_the_name() {
        let every_byte: Vec<u8> = (0..=255).collect();
        let names: [&[u8]; 7] = [
            b"plain name",
            b"a\nb\tc\r",
            b"back\\slash \\x41",
            b"\xff\xfe",
            "é \u{202e}x\u{200b}".as_bytes(),
            b"",
            &every_byte,
        ];
        for name in names {
            assert_eq!(back(&shown(name)), name);
            assert_eq!(back(&json(name)), name);
            assert!(!shown(name).chars().any(is_invisible), "{:?}", shown(name));
        }
    }

    #[test]
    fn ordinary_names_stay_as_they_are() {
        assert_eq!(shown("dir/Größe 1.arrow".as_bytes()), "dir/Größe 1.arrow");
        assert_eq!(json(b"a\nb"), "a\nb");
        assert_eq!(shown(b"\x1b[31mred"), "\\x1b[31mred");
        assert_eq!(shown_message("C:\\x\n"), "C:\\x\\n");
    }
}
