//! Host memory at an address.
//!
//! Two types, because Rust's `&[u8]` promises that nobody changes the bytes: [`HostMapping`] maps memory that
//! other processes may still write and therefore only copies in and out; [`SealedMapping`] can exist only
//! after the kernel has said that the content is sealed, and is plain bytes.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use bytes::Bytes;
use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::seals;
use crate::error::{MemoryError, Result};
use crate::memory::{Access, Mapping, check_range, to_usize};

/// The address range itself, unmapped on drop. The kernel keeps the pages alive as long as it is mapped, so
/// it owns no descriptor: descriptors are scarce, mappings are not.
#[derive(Debug)]
struct Region {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a region is an address range owned by this value alone; the kernel keeps its pages mapped until drop,
// from whichever thread. What may be done with the bytes is decided by the types below.
unsafe impl Send for Region {}
// SAFETY: as above; a shared region gives out nothing but its address and length.
unsafe impl Sync for Region {}

impl Region {
    fn new(fd: BorrowedFd<'_>, len: usize, access: Access) -> Result<Self> {
        let protection = match access {
            Access::ReadOnly => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        let map = |flags: MapFlags| {
            // SAFETY: a null hint lets the kernel choose a range that nothing else uses; the new range is owned
            // by the Region made below, and nobody else learns of it.
            unsafe { mmap(std::ptr::null_mut(), len, protection, flags, fd, 0) }
        };
        let mapped = match map(MapFlags::SHARED) {
            // Before Linux 6.7 a write-sealed memfd cannot be mapped shared, not even for reading. Private pages
            // that are never written are the same pages.
            Err(Errno::PERM) if access == Access::ReadOnly => map(MapFlags::PRIVATE),
            other => other,
        };
        match mapped.map(|address| NonNull::new(address.cast::<u8>())) {
            Ok(Some(start)) => Ok(Self { start, len }),
            Ok(None) => Err(MemoryError::System { call: "mmap", len: len as u64, errno: Errno::FAULT }),
            Err(Errno::PERM) => Err(MemoryError::SealedAgainstWriting),
            Err(errno) => Err(MemoryError::System { call: "mmap", len: len as u64, errno }),
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new` and is owned by this value, which ends here; references to its
        // bytes borrow the mapping that holds it. Failure would leave it mapped, which harms nobody.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Host memory that others may be writing: copies only, no slices.
#[derive(Debug)]
pub struct HostMapping {
    region: Region,
    access: Access,
}

impl HostMapping {
    /// The caller has checked that the file's size is sealed and holds `len` bytes: no access can fault.
    pub(super) fn new(fd: BorrowedFd<'_>, len: usize, access: Access) -> Result<Self> {
        Ok(Self { region: Region::new(fd, len, access)?, access })
    }

    /// What this mapping may be used for.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Writes from the start on, as a stream; an attempt to write past the end is an error.
    pub fn writer(&mut self) -> MappingWriter<'_> {
        MappingWriter { mapping: self, position: 0 }
    }

    /// First byte of `len` bytes at `offset`, for a copy by another engine (a GPU) while `self` is borrowed.
    pub(crate) fn span(&self, offset: u64, len: u64) -> Result<NonNull<u8>> {
        check_range(offset, len, self.region.len as u64)?;
        let offset = to_usize(offset)?;
        // SAFETY: `offset` was just checked to lie within the region, which this mapping keeps mapped.
        Ok(unsafe { self.region.start.add(offset) })
    }

    /// As [`Self::span`], for writing.
    pub(crate) fn span_mut(&mut self, offset: u64, len: u64) -> Result<NonNull<u8>> {
        if self.access == Access::ReadOnly {
            return Err(MemoryError::ReadOnly);
        }
        self.span(offset, len)
    }
}

impl Mapping for HostMapping {
    fn len(&self) -> u64 {
        self.region.len as u64
    }

    fn address(&self) -> u64 {
        self.region.start.as_ptr().addr() as u64
    }

    fn copy_in(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let to = self.span_mut(offset, bytes.len() as u64)?;
        // SAFETY: the region holds `bytes.len()` writable bytes at `to` and stays mapped while `self` is
        // borrowed; its size is sealed, so no page of it can vanish. Nothing in this process has a reference
        // into it, and another process that writes the same bytes at the same time changes values only.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn copy_out(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let from = self.span(offset, bytes.len() as u64)?;
        // SAFETY: as in `copy_in`, with the region as the source.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }
}

/// Fills a mapping from its start; see [`HostMapping::writer`].
#[derive(Debug)]
pub struct MappingWriter<'a> {
    mapping: &'a mut HostMapping,
    position: u64,
}

impl MappingWriter<'_> {
    /// Bytes written, or skipped by [`Self::seek_to`].
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Goes on at `position` bytes from the start; the end itself is allowed.
    pub fn seek_to(&mut self, position: u64) -> Result<()> {
        check_range(position, 0, self.mapping.len())?;
        self.position = position;
        Ok(())
    }
}

impl io::Write for MappingWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.mapping.copy_in(self.position, bytes).map_err(io::Error::other)?;
        self.position += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Host memory that nobody can change any more: plain bytes.
#[derive(Debug)]
pub struct SealedMapping {
    region: Region,
}

impl SealedMapping {
    /// Maps `len` bytes for reading, after asking the kernel that neither content nor size can change:
    /// the seals WRITE and SHRINK, ordinary pages, at least `len` bytes. The descriptor is not kept.
    pub fn new(fd: BorrowedFd<'_>, len: u64) -> Result<Self> {
        seals::check_fixed(fd, len, SealFlags::WRITE | SealFlags::SHRINK)?;
        Ok(Self { region: Region::new(fd, to_usize(len)?, Access::ReadOnly)? })
    }

    /// The same bytes, shared: clones and slices keep this mapping alive, the last one unmaps it.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for SealedMapping {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the region is mapped for `len` bytes until `self` ends, which the borrow prevents. The seals
        // were checked before mapping and can never be taken off: WRITE (set only once no writable mapping was
        // left anywhere) keeps every process from changing the bytes, SHRINK from taking the pages away.
        unsafe { std::slice::from_raw_parts(self.region.start.as_ptr(), self.region.len) }
    }
}

impl std::ops::Deref for SealedMapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_ref()
    }
}
