//! Copies into and out of mapped device memory.

use std::ptr::NonNull;

use cudarc::driver::sys as cu;

use super::device::unknown_address;
use super::lanes::{self, Direction, HostSpan};
use super::pinned::HostSide;
use super::vmm::CudaMapping;
use crate::error::{MemoryError, Result};
use crate::memfd::SealedMapping;
use crate::memory::{Access, Mapping, check_range, to_usize};

/// One copy of a batch: from a device address into a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceCopy {
    /// Device address of the first byte to read.
    pub source: u64,
    /// Where it goes, in bytes from the mapping's start.
    pub offset: u64,
    /// Bytes to copy; zero is allowed and does nothing.
    pub len: u64,
}

impl CudaMapping {
    /// Enqueues a copy from device memory on `stream` (a `CUstream` of this device's primary context, or
    /// `None` for the legacy default stream) and returns: the source must stay as it is until
    /// [`Self::synchronize`]. A source that CUDA does not know, or host memory, is refused.
    pub fn copy_from_device(&mut self, offset: u64, source: u64, len: u64, stream: Option<u64>) -> Result<()> {
        self.check_copy(&DeviceCopy { source, offset, len })?;
        self.enqueue(&[DeviceCopy { source, offset, len }], stream)
    }

    /// Enqueues all copies on `stream`, then waits once. Nothing is enqueued if any of them is impossible;
    /// after an error nothing is still running.
    pub fn copy_device_batch(&mut self, copies: &[DeviceCopy], stream: Option<u64>) -> Result<()> {
        copies.iter().try_for_each(|copy| self.check_copy(copy))?;
        let enqueued = self.enqueue(copies, stream);
        let finished = self.synchronize(stream);
        enqueued.and(finished)
    }

    /// Waits for everything enqueued on `stream`; `None` is the legacy default stream.
    pub fn synchronize(&mut self, stream: Option<u64>) -> Result<()> {
        let stream = stream.unwrap_or(0);
        let device = self.device();
        let entered = device.enter()?;
        entered.driver.stream_synchronize(stream).map_err(device.fail(None))?;
        drop(entered);
        self.in_flight.remove(&stream);
        Ok(())
    }

    /// Device memory from `offset` on, into host memory that others may share; returns when it is there.
    pub fn copy_out_to(&self, offset: u64, host: &mut impl HostSide, host_offset: u64, len: u64) -> Result<()> {
        let span = HostSpan::new(host.writable(host_offset, len)?, to_usize(len)?);
        // SAFETY: the span lies in `host`, whose mapping the exclusive borrow keeps until this returns.
        unsafe { self.transfer(offset, span, Direction::DeviceToHost) }
    }

    /// Host memory that others may share, into device memory at `offset`; returns when it is there.
    pub fn copy_in_from(&mut self, offset: u64, host: &impl HostSide, host_offset: u64, len: u64) -> Result<()> {
        let span = HostSpan::new(host.readable(host_offset, len)?, to_usize(len)?);
        // SAFETY: the span lies in `host`, whose mapping the borrow keeps until this returns.
        unsafe { self.transfer(offset, span, Direction::HostToDevice) }
    }

    /// All of a sealed mapping, into device memory at `offset`.
    pub fn copy_in_sealed(&mut self, offset: u64, host: &SealedMapping) -> Result<()> {
        self.copy_in(offset, host.as_ref())
    }

    fn check_copy(&self, copy: &DeviceCopy) -> Result<()> {
        self.check_writable()?;
        check_range(copy.offset, copy.len, self.len)?;
        if copy.len == 0 {
            return Ok(());
        }
        let address = copy.source;
        // A host address would make the device read memory whose owner Rust cannot know of.
        let kind = self
            .device()
            .driver()
            .pointer_attribute(cu::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
            .map_err(|failure| unknown_address(failure, address))?;
        if kind == u64::from(cu::CUmemorytype::CU_MEMORYTYPE_HOST as u32) {
            return Err(MemoryError::NotDeviceMemory { address });
        }
        Ok(())
    }

    fn check_writable(&self) -> Result<()> {
        match self.access {
            Access::ReadOnly => Err(MemoryError::ReadOnly),
            Access::ReadWrite => Ok(()),
        }
    }

    fn enqueue(&mut self, copies: &[DeviceCopy], stream: Option<u64>) -> Result<()> {
        let stream = stream.unwrap_or(0);
        // Before the first copy, so that a failure half-way still makes `drop` wait.
        self.in_flight.insert(stream);
        let base = self.base();
        let device = self.device();
        let entered = device.enter()?;
        for copy in copies.iter().filter(|copy| copy.len > 0) {
            entered
                .driver
                .copy_dtod_async(base + copy.offset, copy.source, to_usize(copy.len)?, stream)
                .map_err(device.fail(Some(copy.len)))?;
        }
        Ok(())
    }

    /// # Safety
    /// The span is readable (or, towards the host, writable and used by nobody else in this process) until
    /// this returns.
    unsafe fn transfer(&self, offset: u64, host: HostSpan, direction: Direction) -> Result<()> {
        if direction == Direction::HostToDevice {
            self.check_writable()?;
        }
        check_range(offset, host.len() as u64, self.len)?;
        if host.len() == 0 {
            return Ok(());
        }
        // SAFETY: passed on from the caller; the device range is mapped while `self` is borrowed.
        unsafe { lanes::transfer(self.device(), self.base() + offset, host, direction) }
    }
}

impl Mapping for CudaMapping {
    fn len(&self) -> u64 {
        self.len
    }

    fn address(&self) -> u64 {
        self.base()
    }

    fn copy_in(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let span = HostSpan::new(NonNull::from(bytes).cast(), bytes.len());
        // SAFETY: the span is `bytes`, borrowed until this returns, and is only read.
        unsafe { self.transfer(offset, span, Direction::HostToDevice) }
    }

    fn copy_out(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let len = bytes.len();
        let span = HostSpan::new(NonNull::from(bytes).cast(), len);
        // SAFETY: the span is `bytes`, borrowed exclusively until this returns.
        unsafe { self.transfer(offset, span, Direction::DeviceToHost) }
    }
}
