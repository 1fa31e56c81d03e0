//! The common suite on a real GPU. Built with the feature `real-gpu` only: without a GPU these tests fail.

use std::time::Instant;

use gpuvol_memory::cuda::{Piece, Staging};
use gpuvol_memory::{Access, Allocation, CudaMemory, HostMemory, Memory};

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

#[test]
fn fills() {
    if let Some(memory) = open() {
        cuda::fills(&memory);
    }
}

/// What a host replica costs: 8 GiB from the GPU into a memfd that has no page yet, and again now that it has them.
#[test]
fn fill_rate() {
    const LEN: u64 = 8 << 30;
    let Some(memory) = open() else { return };
    let mapping = memory.create(LEN).unwrap().map(Access::ReadWrite).unwrap();
    let staging = Staging::new(&memory);
    for round in 0..2 {
        let target = HostMemory.create_bare(LEN).unwrap();
        let mut host = target.map(Access::ReadWrite).unwrap();
        for pages in ["fresh", "there"] {
            let start = Instant::now();
            staging.fill(&mut host, &[Piece::Device { mapping: &mapping, offset: 0, len: LEN }]).unwrap();
            let took = start.elapsed().as_secs_f64();
            println!("fill_rate round {round}, pages {pages}: {took:.3} s, {:.1} GB/s", 8.59 / took);
        }
    }
}
