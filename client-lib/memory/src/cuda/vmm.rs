//! Device memory made with `cuMemCreate`: exportable as a file descriptor, mapped where it is used.
//!
//! What is released when, innermost first: a mapping unmaps and frees its address range; an allocation
//! releases its handle; both then let go of the primary context. The memory itself lives on while any
//! process holds a mapping, a handle or a descriptor of it.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use cudarc::driver::sys as cu;
use rustix::io::{FdFlags, fcntl_setfd};

use super::context::Device;
use super::device;
use crate::error::{DeviceUuid, MemoryError, Result};
use crate::memory::{Access, Allocation, Memory, to_usize};

/// One device, opened. Clones share it.
#[derive(Debug, Clone)]
pub struct CudaMemory {
    pub(super) device: Arc<Device>,
    granularity: u64,
}

/// Free and total bytes of a device, as its driver says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Bytes that nobody has taken.
    pub free: u64,
    /// Bytes there are.
    pub total: u64,
}

impl CudaMemory {
    /// Opens a device by UUID. [`MemoryError::DeviceNotVisible`] names both it and what is visible.
    pub fn open(uuid: [u8; 16]) -> Result<Self> {
        Self::new(device::find(DeviceUuid(uuid))?)
    }

    /// Opens a device by its number in this process.
    pub fn open_ordinal(ordinal: u32) -> Result<Self> {
        Self::new(device::nth(ordinal)?)
    }

    fn new(raw: cu::CUdevice) -> Result<Self> {
        let device = Device::open(raw)?;
        let granularity = device.driver().granularity(&properties(&device)).map_err(device.fail(None))?.max(1);
        Ok(Self { device, granularity })
    }

    /// The opened device.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.device.uuid().0
    }

    /// Free and total bytes of the device, in this process's eyes.
    pub fn memory_info(&self) -> Result<DeviceMemory> {
        let entered = self.device.enter()?;
        let (free, total) = entered.driver.mem_info().map_err(self.device.fail(None))?;
        Ok(DeviceMemory { free, total })
    }

    /// Waits for everything enqueued on a stream; `None` is the legacy default stream.
    pub fn synchronize(&self, stream: Option<u64>) -> Result<()> {
        let entered = self.device.enter()?;
        entered.driver.stream_synchronize(stream.unwrap_or(0)).map_err(self.device.fail(None))
    }

    /// Rounds up to the granularity; an error where that is beyond what can be addressed.
    fn rounded(&self, len: u64) -> Result<u64> {
        if len == 0 {
            return Err(MemoryError::ZeroLength);
        }
        let limit = isize::MAX as u64;
        match len.checked_next_multiple_of(self.granularity) {
            Some(size) if size <= limit => Ok(size),
            _ => Err(MemoryError::TooLarge { asked: len, limit }),
        }
    }

    /// Takes ownership of a handle.
    pub(super) fn own(&self, raw: cu::CUmemGenericAllocationHandle) -> Handle {
        Handle { device: Arc::clone(&self.device), raw }
    }
}

impl Memory for CudaMemory {
    type Allocation = CudaAllocation;

    fn granularity(&self) -> u64 {
        self.granularity
    }

    fn create(&self, len: u64) -> Result<CudaAllocation> {
        let size = self.rounded(len)?;
        let entered = self.device.enter()?;
        let raw = entered
            .driver
            .mem_create(to_usize(size)?, &properties(&self.device))
            .map_err(self.device.fail(Some(size)))?;
        Ok(CudaAllocation { handle: self.own(raw), len, size, granularity: self.granularity })
    }

    /// `len` is what the exporter asked for. A claim beyond the memory there is fails in `map`, by the
    /// driver's word; [`CudaAllocation::check_exact_size`] also finds one that is too small.
    fn import(&self, fd: OwnedFd, len: u64) -> Result<CudaAllocation> {
        let size = self.rounded(len)?;
        let entered = self.device.enter()?;
        let raw = entered.driver.mem_import(fd.as_fd()).map_err(self.device.fail(Some(size)))?;
        let handle = self.own(raw);
        // Not every driver tells where imported memory is; what it does tell must be true.
        if let Ok(place) = entered.driver.mem_properties(raw)
            && place.location_type == cu::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as u32
            && place.location_id != self.device.ordinal()
        {
            let actual = match entered.driver.device_uuid(place.location_id) {
                Ok(uuid) => uuid.to_string(),
                Err(_) => place.location_id.to_string(),
            };
            return Err(MemoryError::WrongDevice { expected: self.device.uuid(), actual });
        }
        Ok(CudaAllocation { handle, len, size, granularity: self.granularity })
    }
}

fn properties(device: &Device) -> cu::CUmemAllocationProp {
    cu::CUmemAllocationProp {
        type_: cu::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: cu::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        location: location(device),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: cu::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

fn location(device: &Device) -> cu::CUmemLocation {
    cu::CUmemLocation { type_: cu::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device.ordinal() }
}

/// One reference to physical device memory.
#[derive(Debug)]
pub(super) struct Handle {
    device: Arc<Device>,
    raw: cu::CUmemGenericAllocationHandle,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let entered = self.device.enter();
        let _ = self.device.driver().mem_release(self.raw);
        drop(entered);
    }
}

/// Physical device memory.
#[derive(Debug)]
pub struct CudaAllocation {
    handle: Handle,
    len: u64,
    size: u64,
    granularity: u64,
}

impl CudaAllocation {
    /// `size` bytes of memory behind a retained handle.
    pub(super) fn adopted(handle: Handle, size: u64, granularity: u64) -> Self {
        Self { handle, len: size, size, granularity }
    }

    /// Bytes of device memory that this takes: the length rounded up to the granularity.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The device that it is on.
    #[must_use]
    pub fn device_uuid(&self) -> [u8; 16] {
        self.handle.device.uuid().0
    }

    /// Makes sure that the memory is as large as claimed and no larger, by mapping: the claimed size must
    /// work, one granule more must not. About 0.5 ms for the largest sizes; nothing is read.
    pub fn check_exact_size(&self) -> Result<()> {
        let device = &self.handle.device;
        drop(Range::mapped(device, self.size, self.handle.raw)?);
        match Range::mapped(device, self.size.saturating_add(self.granularity), self.handle.raw) {
            Ok(_) => Err(MemoryError::LargerThanClaimed { device: device.uuid(), claimed: self.size }),
            Err(MemoryError::Cuda(failure)) if failure.call == "cuMemMap" && !failure.is_sticky() => Ok(()),
            Err(other) => Err(other),
        }
    }
}

impl Allocation for CudaAllocation {
    type Mapping = CudaMapping;

    fn len(&self) -> u64 {
        self.len
    }

    fn export(&self) -> Result<OwnedFd> {
        let entered = self.handle.device.enter()?;
        let fd = entered.driver.mem_export(self.handle.raw).map_err(self.handle.device.fail(Some(self.size)))?;
        // The driver does not promise close-on-exec; a descriptor that leaks into a child keeps the memory.
        fcntl_setfd(&fd, FdFlags::CLOEXEC).map_err(|errno| MemoryError::System {
            call: "fcntl(F_SETFD)",
            len: self.size,
            errno,
        })?;
        Ok(fd)
    }

    fn map(&self, access: Access) -> Result<CudaMapping> {
        let device = &self.handle.device;
        let range = Range::mapped(device, self.size, self.handle.raw)?;
        // Real drivers take the whole allocation only, here as in `cuMemMap`.
        range.set_access(access)?;
        Ok(CudaMapping { range, len: self.len, access, in_flight: BTreeSet::new() })
    }
}

/// A reserved device address range with memory mapped into it.
#[derive(Debug)]
pub(super) struct Range {
    device: Arc<Device>,
    address: u64,
    size: usize,
    mapped: bool,
}

impl Range {
    /// Whatever fails, what was done before it is undone by `drop`.
    fn mapped(device: &Arc<Device>, size: u64, handle: cu::CUmemGenericAllocationHandle) -> Result<Self> {
        let bytes = to_usize(size)?;
        let entered = device.enter()?;
        let address = entered.driver.address_reserve(bytes).map_err(device.fail(Some(size)))?;
        let mut range = Self { device: Arc::clone(device), address, size: bytes, mapped: false };
        entered.driver.mem_map(address, bytes, handle).map_err(device.fail(Some(size)))?;
        range.mapped = true;
        Ok(range)
    }

    fn set_access(&self, access: Access) -> Result<()> {
        let flags = match access {
            Access::ReadOnly => cu::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ,
            Access::ReadWrite => cu::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let description = cu::CUmemAccessDesc { location: location(&self.device), flags };
        let entered = self.device.enter()?;
        entered
            .driver
            .set_access(self.address, self.size, &description)
            .map_err(self.device.fail(Some(self.size as u64)))
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        let entered = self.device.enter();
        let driver = self.device.driver();
        // A range that could not be unmapped must not be handed out again.
        if !self.mapped || driver.mem_unmap(self.address, self.size).is_ok() {
            let _ = driver.address_free(self.address, self.size);
        }
        drop(entered);
    }
}

/// Device memory at a device address. Owns its address range and the context; needs no allocation, handle or
/// descriptor to stay alive. Copies are in `copy`.
#[derive(Debug)]
pub struct CudaMapping {
    pub(super) range: Range,
    pub(super) len: u64,
    pub(super) access: Access,
    /// Streams with copies into this mapping that nobody has waited for.
    pub(super) in_flight: BTreeSet<u64>,
}

impl CudaMapping {
    pub(super) fn device(&self) -> &Arc<Device> {
        &self.range.device
    }

    pub(super) fn base(&self) -> u64 {
        self.range.address
    }

    /// Bytes of address range in use: the length rounded up to the granularity.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.range.size as u64
    }

    /// What this mapping may be used for.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// The device that it is on.
    #[must_use]
    pub fn device_uuid(&self) -> [u8; 16] {
        self.range.device.uuid().0
    }
}

impl Drop for CudaMapping {
    fn drop(&mut self) {
        // A copy still running into addresses that are about to be unmapped would fault the whole context. The
        // streams may be gone by now, so wait for the context instead of for them.
        if !self.in_flight.is_empty()
            && let Ok(entered) = self.range.device.enter()
        {
            let _ = entered.driver.context_synchronize();
        }
    }
}
