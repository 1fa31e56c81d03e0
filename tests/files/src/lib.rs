//! What any directory that claims to hold ordinary files is judged by. Nothing here knows gpuvol: the directory under
//! test is a path, and the reference is a directory of a file system that is trusted (tmpfs).
//!
//! * [`model`]: random sequences of operations on both, compared after each;
//! * [`exerciser`]: one file against memory;
//! * [`load`]: many processes on several mounts of one volume, with content that proves itself;
//! * [`bench`]: ratios between both in one run.
//!
//! A process that waits for a dead mount cannot be killed. So whatever touches the directory under test is a child
//! ([`watch`]) that says what it does ([`progress`]), and its parent, which touches nothing there, has the deadlines.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

pub mod bench;
pub mod content;
pub mod exerciser;
pub mod kill;
pub mod load;
pub mod mapping;
pub mod model;
pub mod progress;
pub mod rng;
pub mod size;
pub mod watch;
