//! Host replicas of objects in GPU memory: made by the copier when somebody needs the bytes on the host, kept while there
//! is room, and pinned while somebody reads them.
//!
//! The store alone holds a replica's memory: after its death the next store makes replicas anew, and what the kernel or a
//! client still reads goes when they let go of it.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gpuvol_memory::HostMemory;
use gpuvol_protocol::message::{Allocation, Segment};
use gpuvol_protocol::types::Bytes;
use gpuvol_protocol::{Code, Fault};

use crate::catalogue::lease::LeaseId;
use crate::catalogue::quota::HOST_GRANULE;
use crate::copier::{Copier, Job};
use crate::node::internal;
use crate::replica::{Making, Plan, Replicas, Version};

/// How long a reader waits for a copy that another one began.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is to be read on the host.
#[derive(Debug, Clone)]
pub struct Original {
    pub version: Version,
    /// `tables/a in volume v`, for errors.
    pub name: String,
    pub allocations: Vec<Allocation>,
    pub segments: Vec<Segment>,
    pub fds: Vec<Arc<OwnedFd>>,
}

#[derive(Debug)]
pub struct Hosting {
    replicas: Mutex<Replicas>,
    /// A replica was made, or could not be made.
    changed: Condvar,
    copier: Copier,
    memory: Mutex<HashMap<u64, Arc<OwnedFd>>>,
    next_memory: AtomicU64,
    /// Which memory a lease's hold reads.
    readers: Mutex<HashMap<(LeaseId, u64), Replica>>,
}

/// A replica that is read: it stays until this is dropped.
#[derive(Debug)]
pub struct Replica {
    hosting: Arc<Hosting>,
    memory: u64,
    pub len: u64,
    pub fd: Arc<OwnedFd>,
    /// It was copied just now, for this reader.
    pub fresh: bool,
}

impl Replica {
    /// The replica as an object's memory. Its id is not of the catalogue's, and not of any other replica.
    pub fn allocation(&self) -> Allocation {
        Allocation { id: self.memory, kind: 0, len: self.len, device: Vec::new() }
    }

    pub fn segment(&self) -> Segment {
        Segment { len: self.len, ..Segment::default() }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let dropped = self.hosting.lock().release(self.memory);
        self.hosting.forget_memory(dropped);
    }
}

/// The duty to say how a copy ended, whatever happens.
struct Duty<'h> {
    hosting: &'h Hosting,
    making: Option<Making>,
}

impl Drop for Duty<'_> {
    fn drop(&mut self) {
        if let Some(making) = self.making.take() {
            self.hosting.lock().failed(making, Fault::new(Code::Internal, "the copy was given up"));
        }
        self.hosting.changed.notify_all();
    }
}

impl Hosting {
    /// At most `budget` bytes in at most `most` replicas.
    pub fn new(budget: u64, most: usize, copier: Copier) -> Arc<Self> {
        Arc::new(Self {
            replicas: Mutex::new(Replicas::new(budget, most)),
            changed: Condvar::new(),
            copier,
            memory: Mutex::default(),
            // Far from the ids that the catalogue gives to allocations.
            next_memory: AtomicU64::new(1 << 62),
            readers: Mutex::default(),
        })
    }

    /// Bytes of all replicas, the part of them that nobody reads, and the budget.
    pub fn usage(&self) -> (u64, u64, u64) {
        let replicas = self.lock();
        (replicas.used(), replicas.idle_bytes(), replicas.budget())
    }

    /// The object's bytes on the host: a replica that is there, or a new one. Copies, or waits for who copies: not to be
    /// asked for under the catalogue's lock.
    pub fn replica(self: &Arc<Self>, original: &Original) -> Result<Replica, Fault> {
        let len: u64 = original.segments.iter().map(|segment| segment.len).sum();
        let size = len.next_multiple_of(HOST_GRANULE);
        let until = Instant::now() + PATIENCE;
        let mut replicas = self.lock();
        loop {
            match replicas.want(original.version, size) {
                Plan::Ready(memory) => {
                    drop(replicas);
                    return self.reader(memory, len, false);
                }
                Plan::Wait(attempt) => {
                    let left = until.saturating_duration_since(Instant::now());
                    replicas = self.changed.wait_timeout(replicas, left).unwrap_or_else(PoisonError::into_inner).0;
                    if let Some(fault) = replicas.failure(attempt) {
                        return Err(fault.clone());
                    }
                    if left.is_zero() {
                        let message =
                            format!("{}: its copy to host memory did not end within {PATIENCE:?}", original.name);
                        return Err(Fault::new(Code::DeadlineExceeded, message));
                    }
                }
                Plan::Make { making, evict } => {
                    drop(replicas);
                    self.forget_memory(evict);
                    return self.make(original, making, len);
                }
                Plan::NoRoom { need, free } => return Err(no_room(original, need, free, replicas.budget())),
                Plan::TooMany { limit } => {
                    let message = format!(
                        "{}: {limit} objects are read from host memory already, the most that may be at once",
                        original.name
                    );
                    return Err(Fault::new(Code::LimitExceeded, message));
                }
            }
        }
    }

    fn make(self: &Arc<Self>, original: &Original, making: Making, len: u64) -> Result<Replica, Fault> {
        let mut duty = Duty { hosting: self, making: Some(making) };
        let copied = self.copy(original, len);
        let making = duty.making.take();
        match (copied, making) {
            (Ok(fd), Some(making)) => {
                let memory = self.next_memory.fetch_add(1, Ordering::Relaxed);
                self.memory().insert(memory, fd);
                self.lock().made(making, memory);
                self.reader(memory, len, true)
            }
            (Err(fault), Some(making)) => {
                self.lock().failed(making, fault.clone());
                Err(fault)
            }
            (_, None) => Err(internal("a copy without the duty to make it")),
        }
    }

    fn copy(&self, original: &Original, len: u64) -> Result<Arc<OwnedFd>, Fault> {
        let memory = HostMemory.create_bare(len).map_err(|error| {
            let message = format!("{}: no host memory for a copy of it: {error}", original.name);
            Fault { need: len, ..Fault::new(Code::OutOfMemory, message) }
        })?;
        let target = Arc::new(memory.into_fd());
        let copied = self.copier.copy(&Job {
            object: original.name.clone(),
            allocations: original.allocations.clone(),
            fds: original.fds.clone(),
            segments: original.segments.clone(),
            target: target.clone(),
        })?;
        gpuvol_memory::memfd::seal(target.as_fd()).map_err(internal)?;
        tracing::info!(object = original.name, bytes = copied.bytes, time = ?copied.time, "copied to the host");
        Ok(target)
    }

    fn reader(self: &Arc<Self>, memory: u64, len: u64, fresh: bool) -> Result<Replica, Fault> {
        let fd = self.memory().get(&memory).cloned();
        // Made first: it lets go of the pin on every way out.
        let missing = || internal("a replica without memory");
        match fd {
            Some(fd) => Ok(Replica { hosting: self.clone(), memory, len, fd, fresh }),
            None => {
                let dropped = self.lock().release(memory);
                self.forget_memory(dropped);
                Err(missing())
            }
        }
    }

    /// A lease's hold reads this replica from now on.
    pub fn keep(&self, lease: LeaseId, hold: u64, replica: Replica) {
        let before = self.readers().insert((lease, hold), replica);
        drop(before);
    }

    /// A lease's hold has ended.
    pub fn end_hold(&self, lease: LeaseId, hold: u64) {
        let ended = self.readers().remove(&(lease, hold));
        drop(ended);
    }

    /// A lease has ended.
    pub fn end_lease(&self, lease: LeaseId) {
        let mut readers = self.readers();
        let holds: Vec<(LeaseId, u64)> = readers.keys().filter(|(of, _)| *of == lease).copied().collect();
        let ended: Vec<Replica> = holds.iter().filter_map(|key| readers.remove(key)).collect();
        drop(readers);
        drop(ended);
    }

    /// A version is gone.
    pub fn forget(&self, version: Version) {
        let dropped = self.lock().forget(version);
        self.forget_memory(dropped);
    }

    fn forget_memory(&self, memory: impl IntoIterator<Item = u64>) {
        let mut all = self.memory();
        let dropped: Vec<_> = memory.into_iter().filter_map(|memory| all.remove(&memory)).collect();
        drop(all);
        drop(dropped);
    }

    fn lock(&self) -> MutexGuard<'_, Replicas> {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self) -> MutexGuard<'_, HashMap<u64, Arc<OwnedFd>>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn readers(&self) -> MutexGuard<'_, HashMap<(LeaseId, u64), Replica>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_room(original: &Original, need: u64, free: u64, budget: u64) -> Fault {
    let message = format!(
        "{} is in GPU memory, and its copy for readers on the host needs {}; {} of the node's budget for such copies ({}) can be had: close files of other GPU objects, or give the store a larger --replica-budget",
        original.name,
        Bytes(need),
        Bytes(free),
        Bytes(budget)
    );
    Fault { need, free, limit: budget, ..Fault::new(Code::OutOfMemory, message) }
}
