//! One operation at a time for a volume, and for a target path.
//!
//! The specification on `ABORTED`: "Indicates that there is already an operation pending for the specified volume. […]
//! The Plugin, SHOULD handle this as gracefully as possible, and MAY return this error code to reject secondary calls."
//!
//! A guard moves into the blocking work that it covers, so a caller that goes away does not end it early: the next
//! operation starts when the work is over, not when nobody waits for it any more.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is being worked on.
#[derive(Debug, Clone, Default)]
pub struct Operations(Arc<Mutex<HashSet<String>>>);

/// An operation in progress; the next one may start when this is dropped.
#[derive(Debug)]
pub struct Operation {
    operations: Operations,
    key: String,
}

/// Another operation on the same volume or target has not finished.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is already an operation pending for {0}; it finishes or meets its own deadline, then repeat this call")]
pub struct Pending(pub String);

impl Operations {
    /// Begins an operation on a volume.
    pub fn on_volume(&self, id: &str) -> Result<Operation, Pending> {
        self.begin(format!("volume {id}"))
    }

    /// Begins an operation on a target path.
    pub fn on_target(&self, path: &str) -> Result<Operation, Pending> {
        self.begin(format!("target path {path}"))
    }

    fn begin(&self, key: String) -> Result<Operation, Pending> {
        if self.keys().insert(key.clone()) {
            Ok(Operation { operations: self.clone(), key })
        } else {
            Err(Pending(key))
        }
    }

    fn keys(&self) -> MutexGuard<'_, HashSet<String>> {
        // Nothing panics while the lock is held, and a set of keys has no half-done state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.operations.keys().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_operation_waits_for_the_first_to_be_dropped() {
        let operations = Operations::default();
        let first = operations.on_volume("a").unwrap();
        assert!(operations.on_volume("a").unwrap_err().to_string().contains("volume a"));
        assert!(operations.on_volume("b").is_ok());
        assert!(operations.on_target("a").is_ok());
        drop(first);
        assert!(operations.on_volume("a").is_ok());
    }

    #[test]
    fn a_panic_releases_the_volume() {
        let operations = Operations::default();
        let held = operations.on_volume("a").unwrap();
        let worker = std::thread::spawn(move || {
            let _held = held;
            panic!("on purpose");
        });
        assert!(worker.join().is_err());
        assert!(operations.on_volume("a").is_ok());
    }
}
