//! Page-locked buffers that device bytes pass through on their way into fresh host memory.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::context::Device;
use super::driver::Driver;
use super::vmm::CudaMemory;
use crate::error::{CudaFailure, Result};

/// Bytes that one buffer carries at a time. On the bus that is 40 us at 55 GB/s, long beside the 10 us of a call, and
/// two of them for each thread stay within a share of the last-level cache.
pub(super) const CHUNK: usize = 2 << 20;

/// Stages that are kept for the next fill: 64 MiB of page-locked memory.
const KEPT: usize = 16;

/// The stages of a device, kept from one fill to the next; see [`Staging::fill`](super::fill).
#[derive(Debug)]
pub struct Staging {
    pub(super) device: Arc<Device>,
    idle: Mutex<Vec<Stage>>,
}

/// A buffer of [`CHUNK`] bytes and the stream that fills it.
#[derive(Debug)]
pub(super) struct Half {
    pub(super) buffer: NonNull<u8>,
    pub(super) stream: u64,
}

/// What one thread needs: while one half is on the bus, the other is emptied.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) halves: [Half; 2],
}

// SAFETY: buffers and streams belong to this value alone, and CUDA objects may be used from any thread; the
// `Staging` that they go back to frees them before it lets go of their context.
unsafe impl Send for Stage {}

impl Staging {
    /// Makes nothing yet: the first fill does.
    #[must_use]
    pub fn new(memory: &CudaMemory) -> Self {
        Self { device: Arc::clone(&memory.device), idle: Mutex::default() }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Stage>> {
        // Nothing panics while it is held, and the list is good at every moment.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `wanted` stages, or as many as can be made, but at least one; the device's context is current.
    pub(super) fn take(&self, driver: &Driver, wanted: usize) -> Result<Vec<Stage>> {
        let mut taken = Vec::new();
        while taken.len() < wanted {
            // Its lock ends with this line: making one takes milliseconds.
            let kept = self.idle().pop();
            match kept.map_or_else(|| new_stage(driver), Ok) {
                Ok(stage) => taken.push(stage),
                Err(_) if !taken.is_empty() => break,
                Err(failure) => return Err(self.device.fail(Some(2 * CHUNK as u64))(failure)),
            }
        }
        Ok(taken)
    }

    /// Takes stages back whose streams have nothing left to do; the device's context is current.
    pub(super) fn put_back(&self, driver: &Driver, mut stages: Vec<Stage>) {
        let mut idle = self.idle();
        let room = KEPT.saturating_sub(idle.len()).min(stages.len());
        idle.extend(stages.drain(..room));
        drop(idle);
        stages.iter().for_each(|stage| free_stage(driver, stage));
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Best effort: in a process that is ending, the driver may be gone already.
        if let Ok(entered) = self.device.enter() {
            let stages = std::mem::take(&mut *self.idle());
            stages.iter().for_each(|stage| free_stage(entered.driver, stage));
        }
    }
}

fn new_stage(driver: &Driver) -> std::result::Result<Stage, CudaFailure> {
    let first = new_half(driver)?;
    match new_half(driver) {
        Ok(second) => Ok(Stage { halves: [first, second] }),
        Err(failure) => {
            free_half(driver, &first);
            Err(failure)
        }
    }
}

fn new_half(driver: &Driver) -> std::result::Result<Half, CudaFailure> {
    let buffer = driver.alloc_host(CHUNK)?;
    match driver.stream_create() {
        Ok(stream) => Ok(Half { buffer, stream }),
        Err(failure) => {
            let _ = driver.free_host(buffer);
            Err(failure)
        }
    }
}

fn free_stage(driver: &Driver, stage: &Stage) {
    stage.halves.iter().for_each(|half| free_half(driver, half));
}

fn free_half(driver: &Driver, half: &Half) {
    let _ = driver.stream_destroy(half.stream);
    let _ = driver.free_host(half.buffer);
}
