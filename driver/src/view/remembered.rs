//! What the store told of names and nodes, for as long as it stays true.
//!
//! The store changes the volume's clock, in the journal's memfd, with every change of its names and attributes. An answer
//! is remembered with what the clock showed before it was asked for, and forgotten when the clock shows anything else. So
//! it is never older than what the store would answer now, whoever changed the volume. Drafts are not remembered: their
//! size and times change without the store.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fuser::FileAttr;
use gpuvol_protocol::view::{CLOCK_OFFSET, Node};

use super::attributes::Described;

/// Most nodes that one mount remembers: a directory that is listed long, and what is beside it.
const MOST: usize = 65_536;

#[derive(Debug)]
pub struct Remembered {
    clock: File,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// What the clock showed before any of this was asked for.
    as_of: Clock,
    nodes: HashMap<u64, FileAttr>,
    /// By directory, then by name.
    names: HashMap<u64, HashMap<Vec<u8>, u64>>,
}

/// What a volume's clock shows; nothing is remembered with a clock that cannot be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Clock(Option<u64>);

impl Remembered {
    /// `journal`: the mount's, in whose memfd the clock is.
    pub fn new(journal: File) -> Self {
        Self { clock: journal, known: Mutex::default() }
    }

    /// To be read before the store is asked.
    pub fn clock(&self) -> Clock {
        let mut shown = [0; 8];
        Clock(self.clock.read_exact_at(&mut shown, CLOCK_OFFSET).ok().map(|()| u64::from_le_bytes(shown)))
    }

    pub fn node(&self, node: u64) -> Option<FileAttr> {
        self.now()?.nodes.get(&node).copied()
    }

    pub fn name(&self, parent: u64, name: &[u8]) -> Option<FileAttr> {
        let known = self.now()?;
        let node = known.names.get(&parent)?.get(name)?;
        known.nodes.get(node).copied()
    }

    /// Remembers a node that the store told of when the clock had shown `as_of`, with the name it was found at.
    pub fn keep(&self, as_of: Clock, node: &Node, at: Option<(u64, &[u8])>) {
        if node.draft || as_of.0.is_none() {
            return;
        }
        let mut known = self.lock();
        if known.as_of != as_of || known.nodes.len() >= MOST {
            *known = Known { as_of, ..Known::default() };
        }
        known.nodes.insert(node.id, node.attributes());
        if let Some((parent, name)) = at {
            known.names.entry(parent).or_default().insert(name.to_vec(), node.id);
        }
    }

    /// What is known, if it is still true.
    fn now(&self) -> Option<MutexGuard<'_, Known>> {
        let clock = self.clock();
        let known = self.lock();
        (clock.0.is_some() && known.as_of == clock).then_some(known)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(file: &File, shows: u64) {
        file.write_all_at(&shows.to_le_bytes(), CLOCK_OFFSET).unwrap();
    }

    #[test]
    fn what_was_told_is_forgotten_when_the_clock_moves() {
        let file = tempfile::tempfile().unwrap();
        tick(&file, 7);
        let remembered = Remembered::new(file.try_clone().unwrap());
        let node = Node { id: 5, size: 9, ..Node::default() };
        let before = remembered.clock();
        remembered.keep(before, &node, Some((1, b"a")));
        assert_eq!(remembered.name(1, b"a").unwrap().size, 9);
        assert!(
            remembered.node(5).is_some() && remembered.name(1, b"b").is_none() && remembered.name(2, b"a").is_none()
        );
        tick(&file, 8);
        assert!(remembered.node(5).is_none());
        // An answer that was asked for before the clock moved may be old.
        remembered.keep(before, &node, Some((1, b"a")));
        assert!(remembered.name(1, b"a").is_none());
        remembered.keep(remembered.clock(), &Node { draft: true, ..node }, None);
        assert!(remembered.node(5).is_none());
    }

    #[test]
    fn without_a_clock_nothing_is_remembered() {
        let remembered = Remembered::new(tempfile::tempfile().unwrap());
        remembered.keep(remembered.clock(), &Node { id: 5, ..Node::default() }, None);
        assert!(remembered.node(5).is_none());
    }
}
