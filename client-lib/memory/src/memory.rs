//! The trait: what can be done with memory that a file descriptor stands for.
//!
//! Release is `Drop`, on all three levels. A [`Mapping`] keeps the memory alive on its own: the
//! allocation it came from, and every descriptor of it, may be gone before it.

use std::os::fd::OwnedFd;

use crate::error::{MemoryError, Result};

/// What a mapping may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reads only: the page tables (host or device) refuse writes.
    ReadOnly,
    /// Reads and writes.
    ReadWrite,
}

/// A place that memory can be made in, or brought to from a descriptor.
pub trait Memory: Send + Sync {
    /// What this place makes.
    type Allocation: Allocation;

    /// Sizes are rounded up to a multiple of this many bytes when memory is made.
    fn granularity(&self) -> u64;

    /// Makes `len` bytes. Zero bytes, and more than the place can ever hold, are errors.
    fn create(&self, len: u64) -> Result<Self::Allocation>;

    /// Takes an allocation of `len` bytes that another process (or this one) exported. The descriptor is
    /// closed before this returns or lives inside the allocation; either way the caller is rid of it.
    fn import(&self, fd: OwnedFd, len: u64) -> Result<Self::Allocation>;
}

/// Memory that can be sent and mapped.
pub trait Allocation: Send + Sync {
    /// How this memory is seen once mapped.
    type Mapping: Mapping;

    /// Bytes asked for (not rounded up).
    fn len(&self) -> u64;

    /// Never true: allocations of zero bytes are refused when made.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A new close-on-exec descriptor that stands for this memory.
    fn export(&self) -> Result<OwnedFd>;

    /// Maps all of it. The cost does not grow with what is read later: nothing is populated ahead.
    fn map(&self, access: Access) -> Result<<Self as Allocation>::Mapping>;
}

/// Memory at an address: a host address or a device address, as the backend has it.
pub trait Mapping: Send + Sync {
    /// Bytes that may be copied in and out.
    fn len(&self) -> u64;

    /// Never true: allocations of zero bytes are refused when made.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// First byte's address, in this process or on the device.
    fn address(&self) -> u64;

    /// Host bytes into the memory at `offset` (bytes). [`MemoryError::ReadOnly`] on a read-only mapping.
    fn copy_in(&mut self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Bytes of the memory from `offset` on, into host memory; returns when they are there.
    fn copy_out(&self, offset: u64, bytes: &mut [u8]) -> Result<()>;
}

/// `offset + len` lies within `size`, all in bytes, without overflow.
pub(crate) fn check_range(offset: u64, len: u64, size: u64) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(MemoryError::OutOfBounds { offset, len, size }),
    }
}

/// A length that this process can address.
pub(crate) fn to_usize(len: u64) -> Result<usize> {
    match usize::try_from(len) {
        Ok(value) if isize::try_from(value).is_ok() => Ok(value),
        _ => Err(MemoryError::TooLarge { asked: len, limit: isize::MAX as u64 }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_range_is_inside_exactly_when_its_wide_sum_is(offset: u64, len: u64, size: u64) {
            let inside = u128::from(offset) + u128::from(len) <= u128::from(size);
            prop_assert_eq!(check_range(offset, len, size).is_ok(), inside);
        }
    }

    #[test]
    fn lengths_beyond_the_address_space_are_refused() {
        assert!(to_usize(u64::MAX).is_err());
        assert_eq!(to_usize(4096), Ok(4096));
    }
}
