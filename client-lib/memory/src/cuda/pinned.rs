//! Page-locking host memory for copies at the rate of the bus.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::context::Device;
use super::vmm::CudaMemory;
use crate::error::{MemoryError, Result};
use crate::memfd::HostMapping;
use crate::memory::{Access, Mapping, to_usize};

/// `CU_MEMHOSTREGISTER_PORTABLE`: page-locked for every context of the process.
const PORTABLE: u32 = 1;
/// `CU_MEMHOSTREGISTER_READ_ONLY`: the pages may be mapped without write permission.
const READ_ONLY: u32 = 8;

/// Host memory that stays page-locked as long as this lives. Locking costs about 50 ms a GiB (measured): worth
/// it for memory that is copied more than once, or while other work goes on.
#[derive(Debug)]
pub struct PinnedHost {
    device: Arc<Device>,
    start: NonNull<u8>,
}

// SAFETY: the value is a registration in the driver's tables, by address; whoever made it promised to keep the
// memory mapped, from whichever thread it is dropped.
unsafe impl Send for PinnedHost {}
// SAFETY: as above; shared, it offers nothing.
unsafe impl Sync for PinnedHost {}

impl CudaMemory {
    /// Page-locks `len` bytes at `start`.
    ///
    /// # Safety
    /// The bytes stay mapped, readable and writable, until the guard is dropped, and nobody else registers any
    /// page of them with CUDA meanwhile.
    pub unsafe fn pin_host(&self, start: NonNull<u8>, len: u64) -> Result<PinnedHost> {
        // SAFETY: passed on from the caller.
        unsafe { self.register(start, len, PORTABLE) }
    }

    /// Page-locks a host mapping; copies to and from it with `copy_in_from` and `copy_out_to` go straight.
    pub fn pin_mapping(&self, mapping: HostMapping) -> Result<PinnedMapping> {
        let flags = match mapping.access() {
            Access::ReadOnly => PORTABLE | READ_ONLY,
            Access::ReadWrite => PORTABLE,
        };
        let start = mapping.span(0, mapping.len())?;
        // SAFETY: the mapping stays until the registration has ended: both are fields of one value, dropped in
        // that order. No two mappings share an address, so no page is registered twice.
        let pin = unsafe { self.register(start, mapping.len(), flags) }?;
        Ok(PinnedMapping { _pin: pin, mapping })
    }

    /// # Safety
    /// As for [`Self::pin_host`], with write permission needed only without `READ_ONLY`.
    unsafe fn register(&self, start: NonNull<u8>, len: u64, flags: u32) -> Result<PinnedHost> {
        if len == 0 {
            return Err(MemoryError::ZeroLength);
        }
        let entered = self.device.enter()?;
        // SAFETY: passed on from the caller.
        unsafe { entered.driver.host_register(start, to_usize(len)?, flags) }.map_err(self.device.fail(Some(len)))?;
        Ok(PinnedHost { device: Arc::clone(&self.device), start })
    }
}

impl Drop for PinnedHost {
    fn drop(&mut self) {
        let entered = self.device.enter();
        let _ = self.device.driver().host_unregister(self.start);
        drop(entered);
    }
}

/// A host mapping that is page-locked as long as this lives.
#[derive(Debug)]
pub struct PinnedMapping {
    // Before the mapping: fields are dropped in order, and unlocking comes before unmapping.
    _pin: PinnedHost,
    mapping: HostMapping,
}

impl PinnedMapping {
    /// Ends the page-locking and gives the mapping back.
    #[must_use]
    pub fn unpin(self) -> HostMapping {
        // The pin ends here, at once; the mapping lives on.
        let Self { _pin: pin, mapping } = self;
        drop(pin);
        mapping
    }
}

// The mapping is lent for reading only as a whole: behind `&mut` it could be swapped for another, and the pages
// unmapped while they are registered.
impl Deref for PinnedMapping {
    type Target = HostMapping;

    fn deref(&self) -> &HostMapping {
        &self.mapping
    }
}

/// Mapped host memory that device memory can be copied to and from: [`HostMapping`] and [`PinnedMapping`].
pub trait HostSide: sealed::Span {}

impl HostSide for HostMapping {}
impl HostSide for PinnedMapping {}

pub(super) mod sealed {
    use std::ptr::NonNull;

    use crate::error::Result;

    /// Only this crate gives out addresses that `copy` may use.
    pub trait Span {
        fn readable(&self, offset: u64, len: u64) -> Result<NonNull<u8>>;
        fn writable(&mut self, offset: u64, len: u64) -> Result<NonNull<u8>>;
    }
}

impl sealed::Span for HostMapping {
    fn readable(&self, offset: u64, len: u64) -> Result<NonNull<u8>> {
        self.span(offset, len)
    }

    fn writable(&mut self, offset: u64, len: u64) -> Result<NonNull<u8>> {
        self.span_mut(offset, len)
    }
}

impl sealed::Span for PinnedMapping {
    fn readable(&self, offset: u64, len: u64) -> Result<NonNull<u8>> {
        self.mapping.span(offset, len)
    }

    fn writable(&mut self, offset: u64, len: u64) -> Result<NonNull<u8>> {
        self.mapping.span_mut(offset, len)
    }
}
