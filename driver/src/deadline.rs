//! System calls that may hang, given up after a deadline.
//!
//! Unmounting and stat of a mount whose server hangs can block for ever, and such a thread cannot be ended. It is left
//! behind; what waits for it goes on. Their number is bounded, so that a broken mount cannot eat the plugin.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Most threads that may hang at once.
const MAX_STUCK: usize = 64;

static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Late {
    #[error("no result within {0:?}; the system call still hangs")]
    Hangs(Duration),
    #[error("{MAX_STUCK} system calls hang already; restart the plugin after the hanging mounts are gone")]
    TooMany,
    #[error("no thread for it")]
    Thread(#[source] std::io::Error),
}

/// Runs `work` in a thread of its own and waits for at most `deadline`.
pub fn within<T: Send + 'static>(deadline: Duration, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Late> {
    let slot = Slot::take().ok_or(Late::TooMany)?;
    let (done, result) = mpsc::channel();
    thread::Builder::new()
        .name("may-hang".into())
        .spawn(move || {
            let _slot = slot;
            // Nobody waits any more once the deadline has passed.
            let _ = done.send(work());
        })
        .map_err(Late::Thread)?;
    result.recv_timeout(deadline).map_err(|_| Late::Hangs(deadline))
}

struct Slot;

impl Slot {
    fn take() -> Option<Self> {
        let taken = UNDER_WAY.fetch_add(1, Ordering::Relaxed);
        let slot = Self;
        // A slot over the limit is dropped here, which gives the count back.
        (taken < MAX_STUCK).then_some(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_hanging_call_is_left_behind() {
        assert_eq!(within(Duration::from_secs(5), || 7).unwrap(), 7);
        let start = Instant::now();
        let late = within(Duration::from_millis(20), || thread::sleep(Duration::from_secs(1)));
        assert!(matches!(late, Err(Late::Hangs(_))), "{late:?}");
        assert!(start.elapsed() < Duration::from_millis(900));
    }
}
