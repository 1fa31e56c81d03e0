//! What a watched child is doing: a counter and a line of text in a file outside of the directory under test.

use std::fmt::Display;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Names the file to a child.
pub const VARIABLE: &str = "GPUVOL_FILES_PROGRESS";
const BYTES: usize = 2048;

#[derive(Debug)]
pub struct Progress {
    file: Option<File>,
    count: u64,
}

impl Progress {
    /// The watcher's; without a watcher nothing is noted.
    pub fn of_environment() -> Self {
        let file =
            std::env::var_os(VARIABLE).map(|path| File::options().write(true).open(path).expect("progress file"));
        Self { file, count: 0 }
    }

    /// Called before each step that may take long.
    pub fn at(&mut self, what: impl Display) {
        let Some(file) = &self.file else { return };
        self.count += 1;
        let mut line = format!("{} {what}", self.count).into_bytes();
        line.resize(BYTES, 0);
        file.write_all_at(&line, 0).expect("progress file");
    }
}

/// The counter and the text, as far as they were written.
pub fn read(path: &Path) -> (u64, String) {
    let bytes = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_end_matches('\0');
    match text.split_once(' ') {
        Some((count, what)) => (count.parse().unwrap_or(0), what.to_owned()),
        None => (0, "not begun".to_owned()),
    }
}
