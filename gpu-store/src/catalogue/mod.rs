//! What the store knows: volumes, names, objects, quotas, leases and publishes, and the log that they are rebuilt from.
//!
//! [`state::Catalogue`] changes only by committing a [`record::Fact`]: append it to the log, then apply it. A store that
//! is started again applies the same facts and has the same state. Nothing here waits for another process.

pub mod draft;
pub mod graves;
pub mod lease;
pub mod log;
pub mod meta;
pub mod object;
pub mod quota;
pub mod record;
pub mod slab;
pub mod state;
pub mod tree;
pub mod volume;

#[cfg(test)]
mod replay_tests;
