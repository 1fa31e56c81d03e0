//! At which name a node was found last.
//!
//! The kernel looks a name up and then opens the node that it found. Where the name has another version by then, it is
//! told so and looks again, once: what it finds then must be what can be opened. So a mounter remembers where the node was
//! found, and sees to it that the version there now is ready.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Nodes that are remembered; an open follows its lookup at once.
const MOST: usize = 16 * 1024;

#[derive(Debug, Default)]
pub struct Found {
    places: Mutex<HashMap<u64, (u64, Vec<u8>)>>,
}

impl Found {
    pub fn note(&self, node: u64, parent: u64, name: &[u8]) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= MOST {
            places.clear();
        }
        places.insert(node, (parent, name.to_vec()));
    }

    /// Directory and name.
    pub fn place(&self, node: u64) -> Option<(u64, Vec<u8>)> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).get(&node).cloned()
    }
}
