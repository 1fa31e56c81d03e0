//! Every command against the real keeper and store.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]
#![allow(clippy::cast_possible_truncation, reason = "small test data")]

mod content;
mod endings;
mod names;
mod node;
mod reports;
