//! One file against memory: random reads, writes, truncations, mappings, holes and copies, each checked byte for byte, in
//! the way of fsx. Where the model test looks for wrong answers, this looks for wrong bytes between the page cache, the
//! mappings and whatever stands behind them.

pub mod file;
pub mod plan;
