//! Host memory: a memfd of fixed size whose pages exist before anybody touches them.
//!
//! The maker calls `fallocate`, because pages are charged to whoever touches them first: a client in a small
//! cgroup that fills or reads memory made elsewhere is then charged nothing. The size is sealed from the
//! start, so that no mapping can ever fault beyond the end (SIGBUS); writing stays possible until
//! [`HostAllocation::seal`].

mod mapping;
mod seals;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{Errno, fcntl_dupfd_cloexec, pread, pwrite};

pub use mapping::{HostMapping, MappingWriter, SealedMapping};
pub use seals::{seal, seal_future_write, verify_sealed};

use crate::error::{MemoryError, Result};
use crate::memory::{Access, Allocation, Memory, check_range, to_usize};

/// `fallocate` is undone when a signal interrupts it; steps of this size (bytes) make progress anyway.
const FALLOCATE_STEP: u64 = 64 << 20;

/// Host memory, made with `memfd_create`.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostMemory;

/// A memfd of fixed size.
#[derive(Debug)]
pub struct HostAllocation {
    fd: OwnedFd,
    len: u64,
}

impl Memory for HostMemory {
    type Allocation = HostAllocation;

    fn granularity(&self) -> u64 {
        rustix::param::page_size() as u64
    }

    fn create(&self, len: u64) -> Result<HostAllocation> {
        let fd = sized_memfd(len)?;
        let mut offset = 0;
        while offset < len {
            let step = FALLOCATE_STEP.min(len - offset);
            match fallocate(&fd, FallocateFlags::empty(), offset, step) {
                Ok(()) => offset += step,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(MemoryError::System { call: "fallocate", len, errno }),
            }
        }
        fix_size(fd, len)
    }

    /// Takes a memfd whose size is sealed and holds `len` bytes or more; anything else could fault its
    /// readers later. Whether it may still be *written* is [`verify_sealed`]'s question.
    fn import(&self, fd: OwnedFd, len: u64) -> Result<HostAllocation> {
        seals::check_fixed(fd.as_fd(), len, SealFlags::SHRINK)?;
        Ok(HostAllocation { fd, len })
    }
}

impl HostMemory {
    /// As [`Memory::create`], but with no pages yet: for memory that is filled at once, by whoever shall be charged
    /// for it. Threads that fill it side by side make its pages faster than `fallocate` does alone.
    pub fn create_bare(&self, len: u64) -> Result<HostAllocation> {
        fix_size(sized_memfd(len)?, len)
    }
}

impl HostAllocation {
    /// Ends writing, for good; see [`seal`].
    pub fn seal(&self) -> Result<()> {
        seal(self.fd.as_fd())
    }

    /// Ends writing by everybody but the mappings that live now; see [`seal_future_write`].
    pub fn seal_future_write(&self) -> Result<()> {
        seal_future_write(self.fd.as_fd())
    }

    /// Maps sealed memory for reading as plain bytes; see [`SealedMapping::new`].
    pub fn map_sealed(&self) -> Result<SealedMapping> {
        SealedMapping::new(self.fd.as_fd(), self.len)
    }

    /// Writes without mapping: on fresh memory faster than through a mapping, which takes a fault a page.
    /// `offset` in bytes.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        check_range(offset, bytes.len() as u64, self.len)?;
        let mut done = 0;
        while done < bytes.len() {
            match pwrite(&self.fd, &bytes[done..], offset + done as u64) {
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(Errno::PERM) => return Err(MemoryError::SealedAgainstWriting),
                Err(errno) => {
                    return Err(MemoryError::System { call: "pwrite", len: bytes.len() as u64, errno });
                }
            }
        }
        Ok(())
    }

    /// Reads without mapping: for a process that must not map what others hold. `offset` in bytes.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let len = bytes.len() as u64;
        check_range(offset, len, self.len)?;
        let mut done = 0;
        while done < bytes.len() {
            match pread(&self.fd, &mut bytes[done..], offset + done as u64) {
                // The size is sealed and holds the range: an end of file here means the kernel lied.
                Ok(0) => return Err(MemoryError::System { call: "pread", len, errno: Errno::IO }),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(MemoryError::System { call: "pread", len, errno }),
            }
        }
        Ok(())
    }

    /// Gives the descriptor up.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

impl AsFd for HostAllocation {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Allocation for HostAllocation {
    type Mapping = HostMapping;

    fn len(&self) -> u64 {
        self.len
    }

    fn export(&self) -> Result<OwnedFd> {
        fcntl_dupfd_cloexec(&self.fd, 3).map_err(|errno| MemoryError::System {
            call: "fcntl(F_DUPFD_CLOEXEC)",
            len: self.len,
            errno,
        })
    }

    fn map(&self, access: Access) -> Result<HostMapping> {
        HostMapping::new(self.fd.as_fd(), to_usize(self.len)?, access)
    }
}

/// A memfd without size or seals, for content that comes bit by bit: written with `pwrite`, sealed when it is whole.
pub fn growable() -> Result<OwnedFd> {
    new_memfd().map_err(|errno| MemoryError::System { call: "memfd_create", len: 0, errno })
}

/// A memfd of `len` bytes that has no page yet.
fn sized_memfd(len: u64) -> Result<OwnedFd> {
    if len == 0 {
        return Err(MemoryError::ZeroLength);
    }
    // `fallocate` on a memfd has no limit but the machine: it would take every page and then invite the
    // OOM killer, so what cannot fit is refused first.
    let limit = machine_memory();
    if len > limit {
        return Err(MemoryError::TooLarge { asked: len, limit });
    }
    let system = |call: &'static str| move |errno: Errno| MemoryError::System { call, len, errno };
    let fd = new_memfd().map_err(system("memfd_create"))?;
    ftruncate(&fd, len).map_err(system("ftruncate"))?;
    Ok(fd)
}

fn fix_size(fd: OwnedFd, len: u64) -> Result<HostAllocation> {
    match fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW) {
        Ok(()) => Ok(HostAllocation { fd, len }),
        Err(errno) => Err(MemoryError::System { call: "fcntl(F_ADD_SEALS)", len, errno }),
    }
}

/// A memfd that can never be executed where the kernel knows how (6.3); older ones answer EINVAL.
fn new_memfd() -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create("gpuvol", flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create("gpuvol", flags),
        made => made,
    }
}

/// Bytes of RAM and swap in this machine.
fn machine_memory() -> u64 {
    let info = rustix::system::sysinfo();
    let unit = u64::from(info.mem_unit).max(1);
    info.totalram.saturating_add(info.totalswap).saturating_mul(unit)
}
