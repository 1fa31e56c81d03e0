//! Versions that were replaced or removed a moment ago.
//!
//! A program finds a name and then opens what it found. On a local disk that cannot fail because the name got another file
//! in between; here the version would be gone. So what a file's name lost is kept for a moment, for those who have just
//! found it, within bounds and beyond the books: its bytes are freed for everybody else at once. It is in no record.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::object::Object;
use super::record::Meta;

/// How long an open may follow its lookup.
const KEPT: Duration = Duration::from_secs(2);
/// Most versions, and most bytes of them, that are kept. What is larger is not replaced many times a second.
const MOST: usize = 512;
const MOST_BYTES: u64 = 32 << 20;
/// Most removed directories that are remembered.
const MOST_DIRECTORIES: usize = 4096;

/// What is left of a version.
#[derive(Debug, Clone)]
pub struct Grave {
    pub object: Object,
    /// A small object's bytes.
    pub content: Vec<u8>,
    /// Any other's memory.
    pub fds: Vec<Arc<OwnedFd>>,
}

#[derive(Debug, Default)]
pub struct Graves {
    by_version: HashMap<u64, Grave>,
    order: VecDeque<(Instant, u64, u64)>,
    bytes: u64,
    /// Directories that were removed: who has one open may still look at it.
    directories: HashMap<u64, Meta>,
}

impl Graves {
    pub fn bury(&mut self, grave: Grave) {
        let (version, bytes) = (grave.object.version, grave.object.charge());
        if bytes > MOST_BYTES {
            return;
        }
        self.clear(|graves| graves.by_version.len() >= MOST || graves.bytes + bytes > MOST_BYTES);
        self.bytes += bytes;
        self.order.push_back((Instant::now(), version, bytes));
        self.by_version.insert(version, grave);
    }

    pub fn bury_directory(&mut self, id: u64, meta: Meta) {
        if self.directories.len() >= MOST_DIRECTORIES {
            self.directories.clear();
        }
        self.directories.insert(id, meta);
    }

    pub fn directory(&self, id: u64) -> Option<&Meta> {
        self.directories.get(&id)
    }

    pub fn find(&self, version: u64) -> Option<&Grave> {
        self.by_version.get(&version)
    }

    /// Lets go of what was kept long enough.
    pub fn expire(&mut self) {
        self.clear(|graves| graves.order.front().is_some_and(|(when, ..)| when.elapsed() > KEPT));
    }

    fn clear(&mut self, too_much: impl Fn(&Self) -> bool) {
        while too_much(self) {
            let Some((_, version, bytes)) = self.order.pop_front() else { return };
            self.by_version.remove(&version);
            self.bytes -= bytes;
        }
    }
}
