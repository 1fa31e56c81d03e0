//! Shared mappings of files: the one thing here that safe functions cannot do.

use std::ffi::c_void;
use std::os::fd::AsFd;

use rustix::io::Result;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

use crate::size::index;

#[derive(Debug)]
pub struct Mapping {
    base: *mut c_void,
    length: usize,
    writable: bool,
}

impl Mapping {
    /// `offset` is a multiple of the page size; `length` may reach past the file's end.
    pub fn new(file: impl AsFd, offset: u64, length: usize, writable: bool) -> Result<Self> {
        let access = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: the kernel picks the address, so no memory of ours is replaced; Drop unmaps it.
        let base = unsafe { mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, file, offset)? };
        Ok(Self { base, length, writable })
    }

    pub fn length(&self) -> usize {
        self.length
    }

    pub fn writable(&self) -> bool {
        self.writable
    }

    /// The caller keeps to what the file has: beyond it lies SIGBUS, which ends this (watched) process.
    pub fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.read_into(offset, &mut bytes);
        bytes
    }

    pub fn read_into(&self, offset: u64, bytes: &mut [u8]) {
        let start = self.within(offset, bytes.len());
        // SAFETY: `within` checked the range against this mapping, which lives as long as `self`; others may write to
        // the file meanwhile, so the bytes are copied out and never referred to.
        unsafe { std::ptr::copy_nonoverlapping(self.base.cast::<u8>().add(start), bytes.as_mut_ptr(), bytes.len()) };
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        assert!(self.writable, "a mapping for reading");
        let start = self.within(offset, bytes.len());
        // SAFETY: as in `read_into`; the mapping is writable.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.cast::<u8>().add(start), bytes.len()) };
    }

    /// Waits until what was written is in the file.
    pub fn sync(&self) -> Result<()> {
        // SAFETY: the range is this mapping.
        unsafe { msync(self.base, self.length, MsyncFlags::SYNC) }
    }

    fn within(&self, offset: u64, length: usize) -> usize {
        let start = index(offset);
        assert!(start.checked_add(length).is_some_and(|end| end <= self.length), "outside of the mapping");
        start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping and nothing refers into it: `read` and `write` copy.
        let _ = unsafe { munmap(self.base, self.length) };
    }
}
