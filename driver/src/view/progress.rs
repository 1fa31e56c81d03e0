//! How long a mount's oldest unanswered request has been worked on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::ClockId;

/// More than a session has threads; a request beyond it is not watched.
const SLOTS: usize = 64;

/// Milliseconds of a clock that all processes of the node share and nobody sets.
pub fn monotonic_ms() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    let ms = now.tv_sec.saturating_mul(1000).saturating_add(now.tv_nsec / 1_000_000);
    u64::try_from(ms).unwrap_or(0)
}

/// When each request under way began, in milliseconds; 0 for a free slot.
#[derive(Debug)]
pub struct Progress {
    begun: [AtomicU64; SLOTS],
}

impl Default for Progress {
    fn default() -> Self {
        Self { begun: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

/// A request under way; dropped when it is about to be answered.
#[derive(Debug)]
pub struct UnderWay<'a>(Option<&'a AtomicU64>);

impl Progress {
    pub fn begin(&self) -> UnderWay<'_> {
        let now = monotonic_ms().max(1);
        let free = |slot: &&AtomicU64| slot.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        UnderWay(self.begun.iter().find(free))
    }

    /// The age of the oldest request, where there is one.
    pub fn oldest(&self) -> Option<Duration> {
        let begun = self.begun.iter().map(|slot| slot.load(Ordering::Relaxed)).filter(|begun| *begun != 0).min()?;
        Some(Duration::from_millis(monotonic_ms().saturating_sub(begun)))
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            slot.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_counts_and_an_answered_one_does_not() {
        let progress = Progress::default();
        assert_eq!(progress.oldest(), None);
        let first = progress.begin();
        std::thread::sleep(Duration::from_millis(30));
        let second = progress.begin();
        assert!(progress.oldest().unwrap() >= Duration::from_millis(25));
        drop(first);
        assert!(progress.oldest().unwrap() < Duration::from_millis(25));
        drop(second);
        assert_eq!(progress.oldest(), None);
    }
}
