//! Memory for the bytes of a reply: a few buffers for all mounts, because fresh pages cost as much as the copy.

use std::sync::{Mutex, PoisonError};

/// Buffers that are kept; a mebibyte each at most.
const KEPT: usize = 8;
const LARGEST: usize = 1024 * 1024;

#[derive(Debug, Default)]
pub struct Buffers {
    idle: Mutex<Vec<Vec<u8>>>,
}

/// A buffer of at least the wanted length, given back when dropped. What is in it is another reply's.
#[derive(Debug)]
pub struct Buffer<'a> {
    bytes: Vec<u8>,
    home: &'a Buffers,
}

impl Buffers {
    pub fn take(&self, len: usize) -> Buffer<'_> {
        let mut bytes = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        if bytes.len() < len {
            bytes.resize(len, 0);
        }
        Buffer { bytes, home: self }
    }
}

impl std::ops::Deref for Buffer<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::ops::DerefMut for Buffer<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        let mut idle = self.home.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT && self.bytes.len() <= LARGEST {
            idle.push(std::mem::take(&mut self.bytes));
        }
    }
}
