//! The common suite on a real GPU. Built with the feature `real-gpu` only: without a GPU these tests fail.

use gpuvol_memory::CudaMemory;

#[expect(clippy::unnecessary_wraps, reason = "the suite's other backends may be absent")]
fn open() -> Option<CudaMemory> {
    match CudaMemory::open_ordinal(0) {
        Ok(memory) => Some(memory),
        Err(error) => panic!("no real GPU: {error}"),
    }
}

gpuvol_memory::memory_conformance!(open());

mod cuda;

#[test]
fn device_copies() {
    if let Some(memory) = open() {
        cuda::device_copies(&memory);
    }
}

#[test]
fn large_host_copies() {
    if let Some(memory) = open() {
        cuda::large_host_copies(&memory);
    }
}

#[test]
fn own_memory_is_adopted() {
    if let Some(memory) = open() {
        cuda::own_memory_is_adopted(&memory);
    }
}

#[test]
fn claims_are_checked() {
    if let Some(memory) = open() {
        cuda::claims_are_checked(&memory);
    }
}
