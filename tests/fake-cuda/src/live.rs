//! For leak tests: how much of everything there is. Not part of CUDA.

use crate::abi::Out;
use crate::codes::Code;
use crate::world::call_anyway;

/// Writes six counts: allocation handles, address reservations, mapped ranges, retains of primary contexts,
/// page-locked host ranges, streams.
#[unsafe(no_mangle)]
pub extern "C" fn gpuvol_fake_cuda_live(counts: Out<[u64; 6]>) -> Code {
    call_anyway("", |world| {
        counts.set([
            world.handles.len() as u64,
            world.reservations.len() as u64,
            world.ranges.len() as u64,
            world.devices.iter().map(|device| device.retained).sum(),
            world.host.len() as u64,
            world.streams.len() as u64,
        ])
    })
}
