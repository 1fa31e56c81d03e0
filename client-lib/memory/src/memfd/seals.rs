//! Seals: what the kernel promises about a memfd, and how a stranger's memfd is examined.

use std::os::fd::BorrowedFd;

use rustix::fs::{SealFlags, SeekFrom, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, seek};
use rustix::io::Errno;

use crate::error::{MemoryError, Result};

/// `HUGETLBFS_MAGIC` of linux/magic.h.
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;

/// All that a memfd of sealed content must carry.
const SEALED: SealFlags = SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// Freezes content and size of a memfd for good, for everybody.
///
/// One call adds all seals, so there is no moment at which only some are set. Sealed memory may be sealed
/// again. [`MemoryError::StillMapped`] while any writable mapping lives, in any process; a *read-only*
/// shared mapping made before sealing counts as one too (it could be made writable), so map after sealing.
pub fn seal(fd: BorrowedFd<'_>) -> Result<()> {
    add_seals(fd, SEALED)
}

/// Fixes the size and forbids new writable mappings, `write` and hole punching, while mappings that live
/// already may go on writing: for memory that one process keeps filling and others only read.
pub fn seal_future_write(fd: BorrowedFd<'_>) -> Result<()> {
    add_seals(fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE)
}

fn add_seals(fd: BorrowedFd<'_>, wanted: SealFlags) -> Result<()> {
    let present = get_seals(fd)?;
    if present.contains(wanted) {
        return Ok(());
    }
    match fcntl_add_seals(fd, wanted) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(MemoryError::StillMapped),
        Err(Errno::PERM) => Err(MemoryError::MissingSeals { missing: names(wanted - present) }),
        Err(errno) => Err(MemoryError::System { call: "fcntl(F_ADD_SEALS)", len: 0, errno }),
    }
}

/// Examines a memfd that somebody else made: nobody may change its content or size any more, and every byte
/// claimed has memory behind it, so that reading it neither faults nor charges the reader.
///
/// `len` is the size claimed, in bytes; the file may be larger by less than one page. Each violation is an
/// error of its own. Memory that was only `fallocate`d and never written counts as a hole.
pub fn verify_sealed(fd: BorrowedFd<'_>, len: u64) -> Result<()> {
    let stat = check_fixed(fd, len, SEALED)?;
    if stat.size - len >= rustix::param::page_size() as u64 {
        return Err(MemoryError::SizeMismatch { claimed: len, actual: stat.size });
    }
    if stat.allocated < len {
        return Err(MemoryError::Sparse { claimed: len, allocated: stat.allocated });
    }
    // Blocks beyond the end (FALLOC_FL_KEEP_SIZE) could make up for a hole in the count above.
    let hole = first_hole(fd).map_err(|errno| MemoryError::System { call: "lseek(SEEK_HOLE)", len, errno })?;
    if hole < len {
        return Err(MemoryError::Hole { claimed: len, offset: hole });
    }
    Ok(())
}

/// Bytes of a file and of the memory behind it.
pub(super) struct Extent {
    size: u64,
    allocated: u64,
}

/// The descriptor is a memfd of ordinary pages with at least the seals `required` and at least `len` bytes.
pub(super) fn check_fixed(fd: BorrowedFd<'_>, len: u64, required: SealFlags) -> Result<Extent> {
    if len == 0 {
        return Err(MemoryError::ZeroLength);
    }
    let system = |call: &'static str| move |errno: Errno| MemoryError::System { call, len, errno };
    let present = get_seals(fd)?;
    let file_system = fstatfs(fd).map_err(system("fstatfs"))?;
    if file_system.f_type == HUGETLBFS_MAGIC {
        return Err(MemoryError::HugePages);
    }
    // A file on tmpfs answers F_SEAL_SEAL alone, and so does a memfd that was made unsealable.
    if present == SealFlags::SEAL {
        return Err(MemoryError::NotMemfd);
    }
    let missing = required - present;
    if !missing.is_empty() {
        return Err(MemoryError::MissingSeals { missing: names(missing) });
    }
    let stat = fstat(fd).map_err(system("fstat"))?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if size < len {
        return Err(MemoryError::SizeMismatch { claimed: len, actual: size });
    }
    // st_blocks counts 512 bytes on every file system (stat(2)).
    let allocated = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
    Ok(Extent { size, allocated })
}

fn get_seals(fd: BorrowedFd<'_>) -> Result<SealFlags> {
    match fcntl_get_seals(fd) {
        Ok(seals) => Ok(seals),
        Err(Errno::INVAL) => Err(MemoryError::NotMemfd),
        Err(errno) => Err(MemoryError::System { call: "fcntl(F_GET_SEALS)", len: 0, errno }),
    }
}

/// Where the first hole begins; the file's size if there is none. The descriptor's file position, which its
/// sender shares, is put back.
fn first_hole(fd: BorrowedFd<'_>) -> rustix::io::Result<u64> {
    let position = seek(fd, SeekFrom::Current(0))?;
    let hole = seek(fd, SeekFrom::Hole(0));
    seek(fd, SeekFrom::Start(position))?;
    hole
}

fn names(seals: SealFlags) -> String {
    let known = [
        (SealFlags::SEAL, "SEAL"),
        (SealFlags::SHRINK, "SHRINK"),
        (SealFlags::GROW, "GROW"),
        (SealFlags::WRITE, "WRITE"),
        (SealFlags::FUTURE_WRITE, "FUTURE_WRITE"),
    ];
    let set: Vec<&str> = known.iter().filter(|(flag, _)| seals.contains(*flag)).map(|(_, name)| *name).collect();
    set.join("|")
}
