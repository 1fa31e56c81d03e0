//! Tables and tensors as bytes: written by the plan, read by us, by arrow-rs, by pyarrow and by numpy.

// clippy.toml's allow-unwrap-in-tests covers #[test] functions, not what they share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "layout/bytes.rs"]
mod bytes;
#[path = "layout/cases.rs"]
mod cases;
#[path = "layout/corruption.rs"]
mod corruption;
#[path = "layout/device.rs"]
mod device;
#[path = "layout/foreign.rs"]
mod foreign;
#[path = "layout/generate.rs"]
mod generate;
#[path = "layout/property.rs"]
mod property;
#[path = "layout/pyarrow.rs"]
mod pyarrow;
#[path = "layout/round_trip.rs"]
mod round_trip;
#[path = "layout/tensors.rs"]
mod tensors;
