//! One at a time, with a deadline: for what must not overlap on one file and asks the store on the way.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::errno::{Failure, Result};

#[derive(Debug, Default)]
pub struct Turn {
    taken: Mutex<bool>,
    free: Condvar,
}

/// Held until dropped.
#[derive(Debug)]
pub struct Taken<'a>(&'a Turn);

impl Turn {
    /// Waits for the turn, for at most `patience`.
    pub fn take(&self, patience: Duration) -> Result<Taken<'_>> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut taken, late) =
            self.free.wait_timeout_while(taken, patience, |taken| *taken).unwrap_or_else(PoisonError::into_inner);
        if late.timed_out() {
            return Err(Failure::Late(patience));
        }
        *taken = true;
        Ok(Taken(self))
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.free.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_given_back_and_waited_for_in_bounds() {
        let turn = Turn::default();
        let first = turn.take(Duration::ZERO).unwrap();
        assert!(matches!(turn.take(Duration::from_millis(10)), Err(Failure::Late(_))));
        std::thread::scope(|scope| {
            let second = scope.spawn(|| turn.take(Duration::from_secs(5)).map(drop));
            std::thread::sleep(Duration::from_millis(20));
            drop(first);
            second.join().unwrap().unwrap();
        });
    }
}
