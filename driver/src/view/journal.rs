//! What a mounter's successor must know of a mount, in a memfd that outlives both.
//!
//! An append is written where the file ends, so doing it twice is not doing it once. Before its bytes are written, a slot
//! takes the request's id and the place; the same request, sent again to a successor, goes to the same place. A slot is
//! kept after the append is done, because its answer may not have arrived, and is used again when all others are
//! younger: an append that is still unanswered is never that old.
//!
//! One bit says that the hidden socket was made: before that its name must not be found, or binding it would fail.
//!
//! A slot is written with one call, which ends whole even where the process is killed in it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpuvol_protocol::view::JOURNAL_BYTES;

/// Bytes of the header and of each slot.
const SLOT: usize = 64;
const SLOTS: usize = 63;
const _: () = assert!(((SLOTS + 1) * SLOT) as u64 == JOURNAL_BYTES);
/// Of the header's first word.
const SOCKET_MADE: u64 = 1;

#[derive(Debug)]
pub struct Journal {
    memory: File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    socket_made: bool,
    slots: [Slot; SLOTS],
    /// Slots of requests that this process is working on.
    busy: [bool; SLOTS],
    /// The youngest slot's age mark.
    youngest: u64,
}

/// An append that was begun.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slot {
    /// Counts up over all mounters; 0 for a slot that was never used.
    age: u64,
    pub unique: u64,
    pub node: u64,
    pub offset: u64,
    pub len: u64,
    /// All bytes are in the file.
    pub done: bool,
}

/// An append under way in this process.
#[derive(Debug)]
pub struct Noted {
    index: usize,
    slot: Slot,
}

impl Journal {
    /// Reads what a predecessor left.
    pub fn open(memory: File) -> io::Result<Self> {
        let mut bytes = [0; (SLOTS + 1) * SLOT];
        memory.read_exact_at(&mut bytes, 0)?;
        let mut slots = [Slot::default(); SLOTS];
        for (slot, bytes) in slots.iter_mut().zip(bytes[SLOT..].chunks_exact(SLOT)) {
            *slot = Slot::decode(bytes);
        }
        let youngest = slots.iter().map(|slot| slot.age).max().unwrap_or(0);
        let socket_made = word(&bytes, 0) & SOCKET_MADE != 0;
        Ok(Self { memory, state: Mutex::new(State { socket_made, slots, busy: [false; SLOTS], youngest }) })
    }

    pub fn socket_made(&self) -> bool {
        self.lock().socket_made
    }

    pub fn make_socket(&self) -> io::Result<()> {
        let mut state = self.lock();
        self.memory.write_all_at(&SOCKET_MADE.to_ne_bytes(), 0)?;
        state.socket_made = true;
        Ok(())
    }

    /// Appends that a predecessor began and did not finish.
    pub fn unfinished(&self) -> Vec<Slot> {
        self.lock().slots.iter().filter(|slot| slot.age != 0 && !slot.done).copied().collect()
    }

    /// Where a request was to go that is sent again.
    pub fn find(&self, unique: u64, node: u64) -> Option<Slot> {
        self.lock().slots.iter().find(|slot| slot.age != 0 && slot.unique == unique && slot.node == node).copied()
    }

    /// Notes an append before its first byte is written. The same one, noted again, keeps its slot.
    pub fn begin(&self, unique: u64, node: u64, offset: u64, len: u64) -> io::Result<Noted> {
        let mut state = self.lock();
        let State { slots, busy, youngest, .. } = &mut *state;
        let own = slots.iter().position(|slot| slot.age != 0 && slot.unique == unique && slot.node == node);
        let oldest = || (0..SLOTS).filter(|index| !busy[*index]).min_by_key(|index| slots[*index].age);
        let index = own.or_else(oldest).ok_or_else(|| io::Error::other("more appends at once than slots"))?;
        *youngest += 1;
        let slot = Slot { age: *youngest, unique, node, offset, len, done: false };
        self.write(index, &slot)?;
        slots[index] = slot;
        busy[index] = true;
        Ok(Noted { index, slot })
    }

    /// All bytes of an append are in the file. It has its place for as long as its answer may be asked for again.
    pub fn finish(&self, noted: &Noted) -> io::Result<()> {
        self.settle(noted.index, Slot { done: true, ..noted.slot })
    }

    /// The append failed: where it was to go means nothing any more.
    pub fn forget(&self, noted: &Noted) -> io::Result<()> {
        self.settle(noted.index, Slot::default())
    }

    fn settle(&self, index: usize, slot: Slot) -> io::Result<()> {
        let mut state = self.lock();
        state.busy[index] = false;
        state.slots[index] = slot;
        self.write(index, &slot)
    }

    fn write(&self, index: usize, slot: &Slot) -> io::Result<()> {
        self.memory.write_all_at(&slot.encode(), ((index + 1) * SLOT) as u64)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    fn encode(&self) -> [u8; SLOT] {
        let mut bytes = [0; SLOT];
        let words = [self.age, self.unique, self.node, self.offset, self.len, u64::from(self.done)];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Self {
        Self {
            age: word(bytes, 0),
            unique: word(bytes, 1),
            node: word(bytes, 2),
            offset: word(bytes, 3),
            len: word(bytes, 4),
            done: word(bytes, 5) != 0,
        }
    }
}

fn word(bytes: &[u8], index: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[index * 8..index * 8 + 8]);
    u64::from_ne_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(JOURNAL_BYTES).unwrap();
        file
    }

    #[test]
    fn a_successor_finds_what_was_begun() {
        let memory = memory();
        let first = Journal::open(memory.try_clone().unwrap()).unwrap();
        let done = first.begin(10, 3, 100, 50).unwrap();
        first.finish(&done).unwrap();
        let failed = first.begin(12, 3, 150, 1).unwrap();
        first.forget(&failed).unwrap();
        first.begin(14, 3, 150, 7).unwrap();
        assert!(!first.socket_made());
        first.make_socket().unwrap();

        let second = Journal::open(memory).unwrap();
        assert!(second.socket_made());
        let found = second.find(10, 3).unwrap();
        assert_eq!((found.offset, found.end(), found.done), (100, 150, true));
        assert_eq!(second.find(12, 3), None);
        let unfinished = second.unfinished();
        assert_eq!(unfinished.iter().map(|slot| slot.unique).collect::<Vec<_>>(), [14]);
        let again = second.begin(14, 3, 150, 7).unwrap();
        second.finish(&again).unwrap();
        assert!(second.find(14, 3).unwrap().done && second.unfinished().is_empty());
    }

    #[test]
    fn the_oldest_slot_is_used_again_and_a_busy_one_never() {
        let journal = Journal::open(memory()).unwrap();
        let busy = journal.begin(1, 9, 0, 1).unwrap();
        for unique in 2..200 {
            let noted = journal.begin(unique, 9, unique, 1).unwrap();
            journal.finish(&noted).unwrap();
        }
        assert!(journal.find(1, 9).is_some());
        assert!(journal.find(199, 9).is_some() && journal.find(199 - 60, 9).is_some());
        assert_eq!(journal.find(100, 9), None);
        journal.finish(&busy).unwrap();
    }
}
