//! ESTALE is no answer that a program expects from open. With `--retry-stale` it is counted and tried again, to look
//! behind it for lost and mixed bytes.

use std::io::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const TRIES: u32 = 20;
const ESTALE: i32 = 116;

static RETRY: AtomicBool = AtomicBool::new(false);
static SEEN: AtomicU64 = AtomicU64::new(0);

pub fn retry() {
    RETRY.store(true, Ordering::Relaxed);
}

pub fn seen() -> u64 {
    SEEN.load(Ordering::Relaxed)
}

pub fn through<T>(mut open: impl FnMut() -> Result<T>) -> Result<T> {
    let tries = if RETRY.load(Ordering::Relaxed) { TRIES } else { 1 };
    let mut result = open();
    for _ in 1..tries {
        if !result.as_ref().is_err_and(|error: &Error| error.raw_os_error() == Some(ESTALE)) {
            break;
        }
        SEEN.fetch_add(1, Ordering::Relaxed);
        result = open();
    }
    result
}
