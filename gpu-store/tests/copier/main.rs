//! The copier as a real process, on the fake CUDA driver.
#![allow(clippy::unwrap_used)]

mod contents;
mod deaths;
mod faults;
mod world;
