//! Taking over device memory that somebody else in this process allocated, without a copy.
//!
//! Possible when it was made with `cuMemCreate` as exportable by descriptor (PyTorch's expandable segments,
//! gpuvol's own) and consists of few allocations: retaining and exporting many small ones takes longer than
//! copying them (measured). Whether the owner will leave the bytes alone is for the caller to know.

use std::fmt;

use cudarc::driver::sys as cu;

use super::vmm::{CudaAllocation, CudaMemory};
use crate::error::{CudaFailure, DeviceUuid, MemoryError, Result};
use crate::memory::Memory;

/// Allocations that one adoption may consist of: beyond this, one device-to-device copy is cheaper.
pub const ADOPT_LIMIT: usize = 4;

/// Answer to [`CudaMemory::adopt`].
#[derive(Debug)]
pub enum Adoption {
    /// The memory can be exported as it is.
    Adopted(Adopted),
    /// It cannot, because of this; copy it instead.
    NotAdoptable(NotAdoptable),
}

/// Allocations whose parts, laid end to end, are the bytes asked about.
#[derive(Debug)]
pub struct Adopted {
    /// In address order; their lengths add up to the length asked about.
    pub pieces: Vec<AdoptedPiece>,
}

/// Part of one allocation.
#[derive(Debug)]
pub struct AdoptedPiece {
    /// All of the memory that this piece is part of: exporting it exposes all of it.
    pub allocation: CudaAllocation,
    /// Where the piece begins, in bytes from the allocation's start.
    pub offset: u64,
    /// Bytes of the piece.
    pub len: u64,
}

/// Why memory can only be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAdoptable {
    /// CUDA knows no device memory at this address.
    NotDeviceMemory {
        /// The address.
        address: u64,
    },
    /// It is on another device than the one opened.
    OtherDevice {
        /// The device that it is on.
        device: DeviceUuid,
    },
    /// Ordinary memory (`cudaMalloc` or a pool): it has no handle that could be exported.
    NoHandle {
        /// Where the memory without a handle begins.
        address: u64,
    },
    /// It has a handle that was not made for export by descriptor.
    NotExportable {
        /// Where it begins.
        address: u64,
    },
    /// More allocations than are worth exporting.
    TooManyPieces {
        /// The limit, [`ADOPT_LIMIT`].
        limit: usize,
    },
}

impl fmt::Display for NotAdoptable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDeviceMemory { address } => {
                write!(f, "CUDA knows no device memory at {address:#x}")
            }
            Self::OtherDevice { device } => write!(f, "the memory is on {device}"),
            Self::NoHandle { address } => write!(
                f,
                "the memory at {address:#x} is ordinary CUDA memory (cudaMalloc or a pool), which no descriptor can stand for"
            ),
            Self::NotExportable { address } => {
                write!(f, "the memory at {address:#x} was not made for export by file descriptor")
            }
            Self::TooManyPieces { limit } => {
                write!(f, "the memory consists of more than {limit} allocations")
            }
        }
    }
}

impl CudaMemory {
    /// Finds the allocations behind `len` bytes of device memory at `address` and takes a reference to each.
    /// Errors are CUDA's; memory that merely cannot be adopted is an answer.
    pub fn adopt(&self, address: u64, len: u64) -> Result<Adoption> {
        if len == 0 {
            return Err(MemoryError::ZeroLength);
        }
        let Some(end) = address.checked_add(len) else {
            return Err(MemoryError::TooLarge { asked: len, limit: u64::MAX - address });
        };
        let _entered = self.device.enter()?;
        let mut pieces = Vec::new();
        let mut cursor = address;
        while cursor < end {
            if pieces.len() == ADOPT_LIMIT {
                return Ok(Adoption::NotAdoptable(NotAdoptable::TooManyPieces { limit: ADOPT_LIMIT }));
            }
            match self.adopt_at(cursor, end)? {
                Ok(piece) => {
                    cursor += piece.len;
                    pieces.push(piece);
                }
                Err(reason) => return Ok(Adoption::NotAdoptable(reason)),
            }
        }
        Ok(Adoption::Adopted(Adopted { pieces }))
    }

    /// The piece that begins at `cursor`; the device's context is current.
    fn adopt_at(&self, cursor: u64, end: u64) -> Result<std::result::Result<AdoptedPiece, NotAdoptable>> {
        use cu::CUpointer_attribute as Attribute;

        let driver = self.device.driver();
        let fail = self.device.fail(Some(end - cursor));
        match driver.pointer_attribute(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, cursor) {
            Ok(ordinal) if i32::try_from(ordinal) == Ok(self.device.ordinal()) => {}
            Ok(ordinal) => {
                let Ok(ordinal) = i32::try_from(ordinal) else {
                    return Ok(Err(NotAdoptable::NotDeviceMemory { address: cursor }));
                };
                let device = driver.device_uuid(ordinal).map_err(&fail)?;
                return Ok(Err(NotAdoptable::OtherDevice { device }));
            }
            Err(failure) if failure.is_sticky() => return Err(fail(failure)),
            Err(_) => return Ok(Err(NotAdoptable::NotDeviceMemory { address: cursor })),
        }
        let by_descriptor = u64::from(cu::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0);
        let allowed =
            driver.pointer_attribute(Attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, cursor).map_err(&fail)?;
        let (base, size) = self.mapping_of(cursor).map_err(&fail)?;
        let handle = match driver.mem_retain(cursor) {
            Ok(raw) => self.own(raw),
            Err(failure) if failure.is_sticky() => return Err(fail(failure)),
            // Pool memory may allow export by descriptor, but only of the whole pool.
            Err(_) => return Ok(Err(NotAdoptable::NoHandle { address: cursor })),
        };
        if allowed & by_descriptor == 0 {
            return Ok(Err(NotAdoptable::NotExportable { address: cursor }));
        }
        let (Some(offset), Some(limit)) = (cursor.checked_sub(base), base.checked_add(size)) else {
            return Ok(Err(NotAdoptable::NotDeviceMemory { address: cursor }));
        };
        if limit <= cursor {
            return Ok(Err(NotAdoptable::NotDeviceMemory { address: cursor }));
        }
        let len = limit.min(end) - cursor;
        let allocation = CudaAllocation::adopted(handle, size, self.granularity());
        Ok(Ok(AdoptedPiece { allocation, offset, len }))
    }

    /// (base, size) of the mapping that holds an address. A reservation may hold many mappings, and only the
    /// mapping attributes say which; drivers before CUDA 12 do not have them.
    fn mapping_of(&self, address: u64) -> std::result::Result<(u64, u64), CudaFailure> {
        use cu::CUpointer_attribute as Attribute;

        let driver = self.device.driver();
        let base = driver.pointer_attribute(Attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, address);
        let size = driver.pointer_attribute(Attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE, address);
        match (base, size) {
            (Ok(base), Ok(size)) if base != 0 && size != 0 => Ok((base, size)),
            _ => driver.address_range(address),
        }
    }
}
