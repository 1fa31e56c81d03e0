//! One error for every backend: which call, how many bytes, which device, and the system's own name for it.

use std::fmt;

use rustix::io::Errno;

/// Result of this crate.
pub type Result<T, E = MemoryError> = std::result::Result<T, E>;

/// A GPU's UUID; displays as CUDA tools and NVML write it (`GPU-8-4-4-4-12`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceUuid(pub [u8; 16]);

impl fmt::Display for DeviceUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU")?;
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 0 | 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for DeviceUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<[u8; 16]> for DeviceUuid {
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

/// A CUDA driver call that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaFailure {
    /// The driver function, such as `cuMemCreate`.
    pub call: &'static str,
    /// The driver's number, such as 2.
    pub code: u32,
    /// The driver's name for it, such as `CUDA_ERROR_OUT_OF_MEMORY`.
    pub name: String,
    /// The device it was asked of, when one was chosen already.
    pub device: Option<DeviceUuid>,
    /// Bytes the call was about, when it was about bytes.
    pub len: Option<u64>,
}

impl CudaFailure {
    /// The device's memory, or the host's, did not suffice.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.code == 2
    }

    /// The context is broken for good: only a fresh process can use this device again.
    ///
    /// The numbers are the driver API's: illegal address and its kin (700, 714-719), hardware faults
    /// (214, 220) and lost connections (46 device unavailable is left out: it may come back).
    #[must_use]
    pub fn is_sticky(&self) -> bool {
        matches!(self.code, 214 | 220 | 700 | 702 | 714..=719)
    }
}

impl fmt::Display for CudaFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed", self.call)?;
        if let Some(len) = self.len {
            write!(f, " for {len} bytes")?;
        }
        if let Some(device) = self.device {
            write!(f, " on {device}")?;
        }
        write!(f, ": {} ({})", self.name, self.code)
    }
}

/// What can go wrong with memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// Zero bytes asked for or claimed.
    #[error("an allocation of zero bytes is not possible")]
    ZeroLength,
    /// More than this process or machine can ever hold.
    #[error("{asked} bytes asked for, at most {limit} are possible")]
    TooLarge {
        /// Bytes asked for.
        asked: u64,
        /// Bytes that could be had.
        limit: u64,
    },
    /// A copy that does not lie within the memory.
    #[error("{len} bytes at offset {offset} are not inside the {size} bytes mapped")]
    OutOfBounds {
        /// First byte, in bytes from the start.
        offset: u64,
        /// Bytes to copy.
        len: u64,
        /// Bytes there are.
        size: u64,
    },
    /// A write through a read-only mapping.
    #[error("this mapping is read-only")]
    ReadOnly,
    /// A system call failed.
    #[error("{call} failed for {len} bytes: {errno}")]
    System {
        /// The system call.
        call: &'static str,
        /// Bytes it was about.
        len: u64,
        /// The reason.
        errno: Errno,
    },

    /// The descriptor has no seals at all, or can never get any.
    #[error("the descriptor is not a sealable memfd (an ordinary file, or a memfd made without MFD_ALLOW_SEALING)")]
    NotMemfd,
    /// Huge pages may have holes that no seal fills: reading one can kill the reader.
    #[error(
        "the descriptor is memory of huge pages (hugetlbfs), which is not taken: a hole in it could kill its reader"
    )]
    HugePages,
    /// Not sealed as it must be.
    #[error("the memfd lacks the seals {missing}")]
    MissingSeals {
        /// Names of the seals that are not set, joined by `|`.
        missing: String,
    },
    /// The file's size is not what was claimed (up to one page may follow).
    #[error("the memfd has {actual} bytes where {claimed} were claimed")]
    SizeMismatch {
        /// Bytes claimed.
        claimed: u64,
        /// Bytes the file has.
        actual: u64,
    },
    /// Fewer pages than bytes claimed: the reader would be charged for the rest.
    #[error("the memfd has only {allocated} bytes of memory behind the {claimed} claimed: fill it before sealing")]
    Sparse {
        /// Bytes claimed.
        claimed: u64,
        /// Bytes with memory behind them.
        allocated: u64,
    },
    /// A stretch that was never written.
    #[error("the memfd was never written at offset {offset} (of {claimed} bytes): fill it before sealing")]
    Hole {
        /// Bytes claimed.
        claimed: u64,
        /// First byte of the hole.
        offset: u64,
    },
    /// Somebody still maps the memory for writing.
    #[error("the memfd cannot be sealed: a writable mapping of it still lives")]
    StillMapped,
    /// Sealed memory can never be written again.
    #[error("the memfd is sealed against writing")]
    SealedAgainstWriting,

    /// No CUDA driver on this machine, as far as this process can see.
    #[error("no CUDA driver library could be loaded; tried {tried}")]
    CudaLibrary {
        /// Paths tried, each with the loader's reason.
        tried: String,
    },
    /// A driver older than what is needed.
    #[error("the CUDA driver library {library} has no symbol {symbol}: a driver of CUDA 11.4 or later is needed")]
    CudaSymbol {
        /// The library that was loaded.
        library: String,
        /// The function that it lacks.
        symbol: &'static str,
    },
    /// Another library was already in use when one was chosen.
    #[error("the CUDA driver library is already loaded: {library} cannot be chosen any more")]
    CudaAlreadyLoaded {
        /// The library asked for.
        library: String,
    },
    /// The driver works but shows this process no GPU.
    #[error("the CUDA driver shows this process no device")]
    NoDevice,
    /// The device exists elsewhere, not for this process.
    #[error("{asked} is not visible to this process; visible: {visible}")]
    DeviceNotVisible {
        /// The device asked for.
        asked: DeviceUuid,
        /// UUIDs of those that are visible, or "none".
        visible: String,
    },
    /// No device of this number.
    #[error("there is no CUDA device {ordinal}; {count} are visible")]
    NoSuchOrdinal {
        /// The number asked for.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
    /// The device cannot share memory by descriptor.
    #[error("{device} cannot share memory by file descriptor (CUDA attribute {attribute} is 0)")]
    NotShareable {
        /// The device.
        device: DeviceUuid,
        /// The attribute that says so.
        attribute: &'static str,
    },
    /// Imported memory lives on another device than the one it was imported for.
    #[error("the imported memory is on CUDA device {actual}, not on {expected}")]
    WrongDevice {
        /// The device it was imported for.
        expected: DeviceUuid,
        /// Where it is.
        actual: String,
    },
    /// Imported memory is larger than its owner claims.
    #[error("the allocation on {device} is larger than the {claimed} bytes claimed")]
    LargerThanClaimed {
        /// Where it is.
        device: DeviceUuid,
        /// Bytes claimed, rounded up to the granularity.
        claimed: u64,
    },
    /// A device address that CUDA does not know, or that is host memory.
    #[error("address {address:#x} is not device memory that CUDA knows")]
    NotDeviceMemory {
        /// The address.
        address: u64,
    },
    /// A CUDA call failed.
    #[error("{0}")]
    Cuda(CudaFailure),
}

impl MemoryError {
    /// The memory asked for was not there; asking again later may succeed.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Cuda(failure) => failure.is_out_of_memory(),
            Self::System { errno, .. } => matches!(*errno, Errno::NOMEM | Errno::NOSPC),
            _ => false,
        }
    }

    /// The CUDA context of this process is broken for good.
    #[must_use]
    pub fn is_sticky(&self) -> bool {
        matches!(self, Self::Cuda(failure) if failure.is_sticky())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_reads_as_cuda_tools_write_it() {
        let uuid = DeviceUuid([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
        assert_eq!(uuid.to_string(), "GPU-00010203-0405-0607-0809-0a0b0c0d0eff");
    }

    #[test]
    fn a_cuda_failure_names_call_size_device_name_and_number() {
        let failure = CudaFailure {
            call: "cuMemCreate",
            code: 2,
            name: "CUDA_ERROR_OUT_OF_MEMORY".to_owned(),
            device: Some(DeviceUuid([0; 16])),
            len: Some(4096),
        };
        assert_eq!(
            MemoryError::Cuda(failure).to_string(),
            "cuMemCreate failed for 4096 bytes on GPU-00000000-0000-0000-0000-000000000000: CUDA_ERROR_OUT_OF_MEMORY (2)"
        );
    }
}
