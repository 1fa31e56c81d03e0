//! Standard output: text with colours where somebody looks, or one JSON document.

use std::io::Write as _;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::failure::{Failure, Result};

pub const DIRECTORY: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Blue))).bold();
pub const GPU: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Green)));
pub const GOOD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Green))).bold();
pub const WARNING: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Yellow))).bold();
pub const BAD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Red))).bold();
pub const HEADING: Style = Style::new().bold();
pub const FAINT: Style = Style::new().dimmed();
pub const PLAIN: Style = Style::new();

/// Writes text at once; escape sequences are taken out where nobody can see them.
pub fn print(text: &str) -> Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::Output)
}

/// Writes one JSON document.
pub fn print_json(document: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(document).map_err(|e| Failure::Other(format!("cannot write JSON: {e}")))?;
    // Not through `print`: names may carry escape sequences of their own, which JSON has made harmless.
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(Failure::Output)
}

/// Standard output without a buffer, for content.
pub fn raw_stdout() -> Result<std::fs::File> {
    use std::os::fd::AsFd as _;
    let fd = std::io::stdout().as_fd().try_clone_to_owned().map_err(Failure::Output)?;
    Ok(fd.into())
}
