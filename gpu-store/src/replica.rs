//! Which objects have a replica in host memory, and which of them make room for another.
//!
//! Bookkeeping only: nothing here allocates, copies, waits or locks. The node keeps one [`Replicas`] behind a mutex of
//! its own, with a condition variable beside it, and never holds it together with the catalogue's lock. A reader that
//! needs an object's bytes on the host does this:
//!
//! ```text
//! catalogue:  look the object up and take a hold on it; copy its allocations, descriptors and segments; unlock
//! replicas:   loop over want(key, size):
//!               Ready(memory)       unlock; hand the memory out; release(memory) when the reader is done with it
//!               Wait(attempt)       wait on the condition variable, until the reader's own deadline;
//!                                   then failure(attempt) is this reader's error too, else ask want again
//!               Make{making, evict} unlock; drop the evicted memory (keeper and all); make a memfd of the size;
//!                                   Copier::copy into it; seal it; lock: made(making, memory), where that failed:
//!                                   failed(making, fault); notify all
//!               NoRoom, TooMany     an error that names the numbers
//! ```
//!
//! A maker comes back with `made` or `failed` whatever happens, also when it unwinds: until then its bytes count and the
//! object's other readers wait.
//!
//! Whoever takes an object out of the catalogue (its last hold gone, its volume deleted) calls [`Replicas::forget`]
//! afterwards and drops the memory that it answers; so does every [`Replicas::release`]. `made` pins the replica once for its maker, `Ready` once for the reader; a mount that has
//! given the memory to the kernel (passthrough) is a reader until its last file is released.
//! A store that is started again knows no replicas: they are made anew, and what the kernel still reads goes when it is
//! closed.
//!
//! Invariants: the replicas made and being made never exceed the budget nor the number allowed; a pinned replica is
//! never evicted; of one key at most one replica is there or being made.

use std::collections::{BTreeMap, VecDeque};

use gpuvol_protocol::Fault;

/// Failures that are remembered for readers who waited for the same copy.
const FAILURES: usize = 64;

/// The version that a replica is of. The node never gives a version's number out twice.
pub type Version = u64;

/// The right, and the duty, to make one replica: ends in [`Replicas::made`] or [`Replicas::failed`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "others wait until the replica is made or has failed"]
pub struct Making(u64);

/// What a reader does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Plan {
    /// The replica is there, and pinned for this reader. The memory's id.
    Ready(u64),
    /// Somebody makes it: the attempt's number, for [`Replicas::failure`].
    Wait(u64),
    /// This reader makes it, once the memory of these replicas is dropped. They are no replicas any more.
    Make { making: Making, evict: Vec<u64> },
    /// The budget does not hold it, whatever is evicted. Bytes; `free` is what could be had now.
    NoRoom { need: u64, free: u64 },
    /// This many replicas are pinned or being made, and no more may be.
    TooMany { limit: usize },
}

/// All replicas of a node.
#[derive(Debug)]
pub struct Replicas {
    /// Bytes.
    budget: u64,
    most: usize,
    by_key: BTreeMap<Version, Place>,
    /// By memory id. Includes replicas of objects that are gone, as long as somebody reads them.
    made: BTreeMap<u64, Made>,
    /// By attempt.
    making: BTreeMap<u64, Attempt>,
    /// Unpinned replicas, by their last use: the order of eviction.
    idle: BTreeMap<u64, u64>,
    /// Bytes of all replicas made and being made.
    used: u64,
    /// Bytes of the unpinned ones.
    idle_bytes: u64,
    /// Counts attempts and uses.
    clock: u64,
    failures: VecDeque<(u64, Fault)>,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Made(u64),
    Making(u64),
}

#[derive(Debug)]
struct Made {
    /// `None` once the object is gone.
    key: Option<Version>,
    size: u64,
    users: u64,
    last_use: u64,
}

#[derive(Debug)]
struct Attempt {
    /// `None` once the object is gone.
    key: Option<Version>,
    size: u64,
}

impl Replicas {
    /// At most `budget` bytes in at most `most` replicas, each of which costs a descriptor.
    pub fn new(budget: u64, most: usize) -> Self {
        Self {
            budget,
            most,
            by_key: BTreeMap::new(),
            made: BTreeMap::new(),
            making: BTreeMap::new(),
            idle: BTreeMap::new(),
            used: 0,
            idle_bytes: 0,
            clock: 0,
            failures: VecDeque::new(),
        }
    }

    /// Bytes of all replicas, those included that are being made.
    pub fn used(&self) -> u64 {
        self.used
    }

    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes of replicas that nobody reads: the part of [`Self::used`] that makes room when asked.
    pub fn idle_bytes(&self) -> u64 {
        self.idle_bytes
    }

    /// Replicas made and being made.
    pub fn count(&self) -> usize {
        self.made.len() + self.making.len()
    }

    /// Asks for an object's replica of `size` bytes of memory (whole pages).
    pub fn want(&mut self, key: Version, size: u64) -> Plan {
        match self.by_key.get(&key) {
            Some(&Place::Made(memory)) => {
                self.pin(memory);
                Plan::Ready(memory)
            }
            Some(&Place::Making(attempt)) => Plan::Wait(attempt),
            None => self.plan(key, size),
        }
    }

    fn plan(&mut self, key: Version, size: u64) -> Plan {
        let free = self.budget - self.used + self.idle_bytes;
        if size > free {
            return Plan::NoRoom { need: size, free };
        }
        if self.count() - self.idle.len() >= self.most {
            return Plan::TooMany { limit: self.most };
        }
        let mut evict = Vec::new();
        while size > self.budget - self.used || self.count() >= self.most {
            // The checks above have counted the idle ones in: there is one.
            let Some((_, memory)) = self.idle.pop_first() else { break };
            self.remove(memory);
            evict.push(memory);
        }
        let attempt = self.tick();
        self.making.insert(attempt, Attempt { key: Some(key), size });
        self.by_key.insert(key, Place::Making(attempt));
        self.used += size;
        Plan::Make { making: Making(attempt), evict }
    }

    /// The replica is there, in this memory, and pinned for its maker.
    #[expect(clippy::needless_pass_by_value, reason = "the right to make it ends here")]
    pub fn made(&mut self, making: Making, memory: u64) {
        let Some(Attempt { key, size }) = self.making.remove(&making.0) else { return };
        if let Some(key) = key {
            self.by_key.insert(key, Place::Made(memory));
        }
        let last_use = self.tick();
        self.made.insert(memory, Made { key, size, users: 1, last_use });
    }

    /// The replica could not be made, and its memory is dropped. Those who wait learn why.
    #[expect(clippy::needless_pass_by_value, reason = "the right to make it ends here")]
    pub fn failed(&mut self, making: Making, fault: Fault) {
        let Some(Attempt { key, size }) = self.making.remove(&making.0) else { return };
        if let Some(key) = &key {
            self.by_key.remove(key);
        }
        self.used -= size;
        if self.failures.len() == FAILURES {
            self.failures.pop_front();
        }
        self.failures.push_back((making.0, fault));
    }

    /// Why an attempt failed that a reader waited for. A reader who comes too late to hear asks again.
    pub fn failure(&self, attempt: u64) -> Option<&Fault> {
        self.failures.iter().find(|(failed, _)| *failed == attempt).map(|(_, fault)| fault)
    }

    /// A reader is done. Answers the memory if it is to be dropped: its object is gone, and this was the last reader.
    #[must_use = "memory to drop"]
    pub fn release(&mut self, memory: u64) -> Option<u64> {
        let now = self.tick();
        let made = self.made.get_mut(&memory)?;
        made.users = made.users.checked_sub(1)?;
        if made.users > 0 {
            return None;
        }
        if made.key.is_none() {
            self.remove_pinned(memory);
            return Some(memory);
        }
        made.last_use = now;
        self.idle_bytes += made.size;
        self.idle.insert(now, memory);
        None
    }

    /// The object is gone. Answers the memory to drop; where it is still read or made, its last reader's `release` will.
    #[must_use = "memory to drop"]
    pub fn forget(&mut self, key: Version) -> Option<u64> {
        match self.by_key.remove(&key)? {
            Place::Making(attempt) => {
                if let Some(attempt) = self.making.get_mut(&attempt) {
                    attempt.key = None;
                }
                None
            }
            Place::Made(memory) => {
                let made = self.made.get_mut(&memory)?;
                made.key = None;
                if made.users > 0 {
                    return None;
                }
                self.idle.remove(&made.last_use);
                self.remove(memory);
                Some(memory)
            }
        }
    }

    fn pin(&mut self, memory: u64) {
        let now = self.tick();
        let Some(made) = self.made.get_mut(&memory) else { return };
        if made.users == 0 {
            self.idle.remove(&made.last_use);
            self.idle_bytes -= made.size;
        }
        made.users += 1;
        made.last_use = now;
    }

    /// Ends an unpinned replica that is out of `idle` already.
    fn remove(&mut self, memory: u64) {
        if let Some(made) = self.made.get(&memory) {
            self.idle_bytes -= made.size;
            self.remove_pinned(memory);
        }
    }

    fn remove_pinned(&mut self, memory: u64) {
        let Some(made) = self.made.remove(&memory) else { return };
        self.used -= made.size;
        if let Some(key) = &made.key {
            self.by_key.remove(key);
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

#[cfg(test)]
#[path = "replica_tests.rs"]
mod tests;
