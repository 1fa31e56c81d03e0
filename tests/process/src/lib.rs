//! A node of real processes for tests: keeper and store in a directory of their own, killed and started at will.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a harness fails by panicking")]

pub mod child;
pub mod node;
pub mod raw;
pub mod view;

/// Bytes that are different at every offset and for every seed.
pub fn pattern(size: u64, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap() + 8);
    while (bytes.len() as u64) < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(usize::try_from(size).unwrap());
    bytes
}

pub use node::{TestNode, TestVolume, admin_call, binary};
