//! A bar for transfers that take a while, on standard error where that is a terminal.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// From this size on the bar is there at once.
const LARGE: u64 = 256 << 20;
/// Smaller transfers get it when they have taken this long.
const LONG: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    large: bool,
    shown: bool,
}

impl Progress {
    /// `total` in bytes, where it is known.
    pub fn new(label: String, total: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden()).with_message(label);
        let template = match total {
            Some(_) => "{msg} {bytes}/{total_bytes} [{bar:20}] {binary_bytes_per_sec} {eta}",
            None => "{msg} {bytes} {binary_bytes_per_sec}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        // Where there is no terminal it counts as shown, so nothing shows it.
        let shown = !std::io::stderr().is_terminal();
        Self { bar, started: Instant::now(), large: total.is_some_and(|n| n > LARGE), shown }
    }

    /// One that nobody sees: its output would be in the way.
    pub fn hidden() -> Self {
        Self { bar: ProgressBar::hidden(), started: Instant::now(), large: false, shown: true }
    }

    pub fn advance(&mut self, bytes: usize) {
        self.bar.inc(bytes as u64);
        if !self.shown && (self.large || self.started.elapsed() >= LONG) {
            self.shown = true;
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
