//! Memory that a file descriptor stands for.
//!
//! An allocation is created by one process, travels as a file descriptor, and is mapped by another; it
//! lives as long as anybody holds the descriptor or a mapping. [`memory`] says this as a small trait;
//! [`memfd`] does it with host memory and [`cuda`] with device memory.
//!
//! This crate opens no sockets and knows no volumes: how descriptors travel is somebody else's business.

pub mod cuda;
mod error;
pub mod memfd;
pub mod memory;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use cuda::vmm::{CudaAllocation, CudaMapping, CudaMemory};
pub use error::{CudaFailure, DeviceUuid, MemoryError, Result};
pub use memfd::{HostAllocation, HostMapping, HostMemory, MappingWriter, SealedMapping};
pub use memory::{Access, Allocation, Mapping, Memory};
