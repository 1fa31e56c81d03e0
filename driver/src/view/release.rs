//! Closing handles, which must reach the store: the last writer's freezes the draft, and others wait for that.
//!
//! Nobody waits for the answer to a release, so one that the store does not take within the deadline is kept, and told
//! when the store is back.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpuvol_protocol::Code;
use gpuvol_protocol::view::{Release, ViewAnswer, ViewOp};

use super::errno::{Failure, Result};
use super::passthrough::Backings;
use super::progress::{Progress, monotonic_ms};
use super::session::Shared;

/// Releases that are kept for a store that is not there; more than open files are rare.
const LATE: usize = 4096;

/// A mount's parts that others look at while it is served.
#[derive(Debug)]
pub struct Held {
    publish: String,
    shared: Arc<Shared>,
    pub backings: Backings,
    pub progress: Progress,
    late: Mutex<VecDeque<Closing>>,
    /// When a failure was logged last, in milliseconds.
    told: AtomicU64,
}

/// A handle that is to be closed.
#[derive(Debug, Clone)]
pub struct Closing {
    pub unique: u64,
    pub node: u64,
    pub release: Release,
    /// As in [`super::files::OpenFile::backing`].
    pub backing: Option<u32>,
}

impl Held {
    pub fn new(publish: String, shared: Arc<Shared>, backings: Backings) -> Self {
        Self {
            publish,
            shared,
            backings,
            progress: Progress::default(),
            late: Mutex::default(),
            told: AtomicU64::new(0),
        }
    }

    /// Whether a failure is worth a line: programs try again and again, and one a second says as much.
    pub fn is_news(&self) -> bool {
        const EVERY_MS: u64 = 1000;
        let (now, told) = (monotonic_ms(), self.told.load(Ordering::Relaxed));
        now.saturating_sub(told) >= EVERY_MS
            && self.told.compare_exchange(told, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Closes a handle, now or later.
    pub fn close(&self, closing: Closing) -> Result<()> {
        let result = self.try_close(&closing);
        if let Err(Failure::Unanswered { .. } | Failure::Late(_)) = &result {
            self.close_later(closing);
        }
        result
    }

    /// Closes a handle when the store has answered anything.
    pub fn close_later(&self, closing: Closing) {
        let mut late = self.late();
        if late.len() == LATE {
            tracing::error!(publish = self.publish, "too many releases wait for the store; one is lost");
            late.pop_front();
        }
        late.push_back(closing);
    }

    /// Tells the store, which has just answered, what it missed.
    pub fn close_late(&self) {
        let waiting = self.late().len();
        for _ in 0..waiting {
            let Some(closing) = self.late().pop_front() else { return };
            if self.close(closing).is_err() {
                return;
            }
        }
    }

    fn try_close(&self, closing: &Closing) -> Result<()> {
        let mode = self.backings.mode(closing.node);
        let turn = mode.turn.take(self.shared.store.deadline())?;
        let told = self.tell(closing);
        if told.is_ok()
            && let Some(backing) = closing.backing
        {
            self.backings.released(&mode, backing);
        }
        drop(turn);
        self.backings.tidy(closing.node, mode);
        told
    }

    fn tell(&self, closing: &Closing) -> Result<()> {
        let release = ViewOp::Release(closing.release.clone());
        match self.shared.store.ask(&self.publish, closing.unique, release) {
            Ok((ViewAnswer::Done(_), _)) => Ok(()),
            Ok(_) => Err(Failure::Confused("a result where none was asked for")),
            // Closed already, by the same request before it was sent again.
            Err(Failure::Refused(fault)) if fault.code() == Code::NotFound => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    fn late(&self) -> MutexGuard<'_, VecDeque<Closing>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
