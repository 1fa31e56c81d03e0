//! Files that the kernel reads by itself (FUSE passthrough): which of its ids stands for which node's memory.
//!
//! The kernel refuses to have one node open in passthrough and in any other mode at once, or over two ids. So opens and
//! releases of one node take turns, an id is noted with the store before it is first used, and it is closed when the
//! node's last handle is. Files that are open keep reading after that, and after the mounter.
//!
//! A mounter that did not make an id cannot count its handles: it closes the id when the store stops naming it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fuser::BackingId;

use super::turn::Turn;

/// `FUSE_DEV_IOC_BACKING_CLOSE` of `linux/fuse.h`.
const CLOSE: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<u32>(229, 2);
/// How far below a first id of our own to look for ids that a predecessor made and died before it noted.
const ORPHANS: u32 = 64;
/// How long after the beginning: what the predecessor told the store last may be taken in after we asked what it knows.
const SETTLED: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Backings {
    fuse: OwnedFd,
    /// Cleared when the kernel says that we may not.
    permitted: AtomicBool,
    nodes: Mutex<HashMap<u64, Arc<Mode>>>,
    ids: Mutex<Ids>,
    began: Instant,
}

/// Which ids of the kernel's are whose.
#[derive(Debug, Default)]
struct Ids {
    /// Noted by a predecessor, whose handles are not counted here.
    inherited: HashSet<u32>,
    /// Of those, the ones that the store did not name when it was last asked.
    missing: HashSet<u32>,
    /// Made by this process.
    own: HashSet<u32>,
    /// The first of them. The kernel counts ids up, so what a predecessor made is below.
    first: Option<u32>,
    /// What a predecessor made and never noted was closed.
    swept: bool,
}

/// How a node is open in one mount.
#[derive(Debug, Default)]
pub struct Mode {
    pub turn: Turn,
    count: Mutex<Count>,
}

/// Handles that this process opened.
#[derive(Debug, Default)]
struct Count {
    plain: usize,
    passthrough: usize,
    backing: u32,
}

impl Backings {
    /// `fuse`: the mount's connection. `noted`: ids in use.
    pub fn new(fuse: OwnedFd, permitted: bool, noted: &[u32]) -> Self {
        Self {
            fuse,
            permitted: AtomicBool::new(permitted),
            nodes: Mutex::default(),
            ids: Mutex::new(Ids { inherited: noted.iter().copied().collect(), ..Ids::default() }),
            began: Instant::now(),
        }
    }

    pub fn permitted(&self) -> bool {
        self.permitted.load(Ordering::Relaxed)
    }

    /// A node's mode, whose turn is to be taken around every open and release.
    pub fn mode(&self, node: u64) -> Arc<Mode> {
        Arc::clone(lock(&self.nodes).entry(node).or_default())
    }

    /// Called after a turn; forgets nodes that are not open.
    pub fn tidy(&self, node: u64, mode: Arc<Mode>) {
        let mut nodes = lock(&self.nodes);
        let unused = {
            let count = lock(&mode.count);
            count.plain == 0 && count.passthrough == 0
        };
        drop(mode);
        // Under the lock nobody else can come by a mode that only the table has.
        if unused && nodes.get(&node).is_some_and(|mode| Arc::strong_count(mode) == 1) {
            nodes.remove(&node);
        }
    }

    /// In the node's turn: the id over which to open it in passthrough, and whether it is new. None: open it otherwise.
    pub fn ready(&self, mode: &Mode, memory: &File, noted: u32) -> Option<(u32, bool)> {
        if lock(&mode.count).plain > 0 {
            return None;
        }
        if noted != 0 {
            let mut ids = lock(&self.ids);
            if !ids.own.contains(&noted) {
                ids.inherited.insert(noted);
            }
            return Some((noted, false));
        }
        match BackingId::create_raw(&self.fuse, memory) {
            Ok(id) => {
                let mut ids = lock(&self.ids);
                ids.first.get_or_insert(id);
                ids.own.insert(id);
                Some((id, true))
            }
            Err(error) => {
                // In a user namespace the kernel permits it to nobody; anything else is about this file.
                if error.raw_os_error() == Some(libc::EPERM) {
                    self.permitted.store(false, Ordering::Relaxed);
                }
                tracing::info!(%error, "reads go through the mounter");
                None
            }
        }
    }

    /// In the node's turn: one more handle, over `backing` or (0) not in passthrough.
    pub fn opened(mode: &Mode, backing: u32) {
        let mut count = lock(&mode.count);
        if backing == 0 {
            count.plain += 1;
        } else {
            count.passthrough += 1;
            count.backing = backing;
        }
    }

    /// In the node's turn: a handle that [`Backings::opened`] counted is gone.
    pub fn released(&self, mode: &Mode, backing: u32) {
        let mut count = lock(&mode.count);
        if backing == 0 {
            count.plain = count.plain.saturating_sub(1);
            return;
        }
        count.passthrough = count.passthrough.saturating_sub(1);
        if count.passthrough == 0 && lock(&self.ids).own.contains(&backing) {
            self.close(backing);
        }
    }

    /// Closes ids of a predecessor: what the store does not name any more, and what it never named. `noted`: what it
    /// names. One answer may be older than an id that it does not name; two are not.
    pub fn keep_only(&self, noted: &[u32]) {
        let mut ids = lock(&self.ids);
        let missing: HashSet<u32> = ids.inherited.iter().copied().filter(|id| !noted.contains(id)).collect();
        let mut gone: Vec<u32> = missing.intersection(&ids.missing).copied().collect();
        if !ids.swept
            && self.began.elapsed() >= SETTLED
            && let Some(first) = ids.first
        {
            ids.swept = true;
            let known = |id: &u32| noted.contains(id) || ids.inherited.contains(id) || ids.own.contains(id);
            gone.extend((first.saturating_sub(ORPHANS).max(1)..first).filter(|id| !known(id)));
        }
        ids.inherited.retain(|id| !gone.contains(id));
        ids.missing = missing;
        for id in gone {
            self.try_close(id);
        }
    }

    /// An id of ours that nothing is open over.
    pub fn close(&self, backing: u32) {
        lock(&self.ids).own.remove(&backing);
        self.try_close(backing);
    }

    fn try_close(&self, backing: u32) {
        if let Err(error) = self.ioctl_close(backing) {
            tracing::trace!(%error, backing, "a backing id is closed already");
        }
    }

    fn ioctl_close(&self, backing: u32) -> io::Result<()> {
        // SAFETY: the opcode is the one that takes a pointer to a 32-bit id, of which the kernel keeps nothing.
        let close = unsafe { rustix::ioctl::Setter::<CLOSE, u32>::new(backing) };
        // SAFETY: as above; the connection is ours and open, and on another file the call fails.
        unsafe { rustix::ioctl::ioctl(self.fuse.as_fd(), close)? };
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
