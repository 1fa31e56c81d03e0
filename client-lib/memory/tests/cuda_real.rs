//! The common suite on a real GPU, when `GPUVOL_TEST_REAL_GPU=1`; otherwise each test says that it did not run.

use gpuvol_memory::CudaMemory;

fn open() -> Option<CudaMemory> {
    if std::env::var_os("GPUVOL_TEST_REAL_GPU").is_none_or(|value| value != "1") {
        println!("cuda_real: not run: GPUVOL_TEST_REAL_GPU is not 1");
        return None;
    }
    match CudaMemory::open_ordinal(0) {
        Ok(memory) => Some(memory),
        Err(error) => panic!("GPUVOL_TEST_REAL_GPU is 1, but: {error}"),
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
