//! Host memory: the common suite, and what only memfds have.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use gpuvol_memory::memfd::{seal, verify_sealed};
use gpuvol_memory::{Access, Allocation, HostMemory, Mapping, Memory, MemoryError, SealedMapping};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, ftruncate};

gpuvol_memory::memory_conformance!(Some(HostMemory));

const LEN: u64 = 10_000;
const ALL: SealFlags = SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// A memfd as a client would make it: `len` bytes written, then `seals`.
fn client_memfd(len: usize, seals: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("client", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    std::fs::File::from(fd.try_clone().unwrap()).write_all(&vec![5; len]).unwrap();
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

#[test]
fn fresh_memory_has_all_its_pages_and_a_fixed_size() {
    let allocation = HostMemory.create(LEN).unwrap();
    let stat = rustix::fs::fstat(&allocation).unwrap();
    assert_eq!(stat.st_size, 10_000);
    assert!(stat.st_blocks * 512 >= 10_000);
    let seals = fcntl_get_seals(&allocation).unwrap();
    assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW) && !seals.contains(SealFlags::WRITE));
    assert!(ftruncate(&allocation, 1).is_err());
    let flags = rustix::io::fcntl_getfd(allocation.export().unwrap()).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
}

#[test]
fn sealing_waits_for_writers_and_is_final() {
    let allocation = HostMemory.create(LEN).unwrap();
    let mut mapping = allocation.map(Access::ReadWrite).unwrap();
    mapping.copy_in(0, &[9; 10_000]).unwrap();
    assert_eq!(allocation.seal(), Err(MemoryError::StillMapped));
    drop(mapping);
    allocation.seal().unwrap();
    allocation.seal().unwrap();
    assert_eq!(fcntl_get_seals(&allocation).unwrap() & ALL, ALL);
    assert_eq!(allocation.map(Access::ReadWrite).unwrap_err(), MemoryError::SealedAgainstWriting);
    assert_eq!(allocation.write_at(0, &[1]), Err(MemoryError::SealedAgainstWriting));
    verify_sealed(allocation.as_fd(), LEN).unwrap();
    let read_only = allocation.map(Access::ReadOnly).unwrap();
    let mut byte = [0];
    read_only.copy_out(9_999, &mut byte).unwrap();
    assert_eq!(byte, [9]);
}

#[test]
fn sealed_memory_is_bytes_that_keep_it_alive() {
    let allocation = HostMemory.create(LEN).unwrap();
    assert!(matches!(allocation.map_sealed(), Err(MemoryError::MissingSeals { .. })));
    allocation.write_at(4_000, b"hello").unwrap();
    allocation.seal().unwrap();
    let sealed = allocation.map_sealed().unwrap();
    assert_eq!(sealed.len(), 10_000);
    drop(allocation);
    let tail = sealed.into_bytes().slice(4_000..);
    assert_eq!(&tail[..5], b"hello");
}

#[test]
fn a_future_write_sealed_slab_is_written_by_its_owner_only() {
    let slab = HostMemory.create(LEN).unwrap();
    let mut owner = slab.map(Access::ReadWrite).unwrap();
    slab.seal_future_write().unwrap();
    slab.seal_future_write().unwrap();
    owner.copy_in(0, b"one").unwrap();
    let reader = HostMemory.import(slab.export().unwrap(), LEN).unwrap();
    assert!(reader.map(Access::ReadWrite).is_err());
    assert!(reader.write_at(0, b"no").is_err());
    let mapping = reader.map(Access::ReadOnly).unwrap();
    owner.copy_in(0, b"two").unwrap();
    let mut seen = [0; 3];
    mapping.copy_out(0, &mut seen).unwrap();
    assert_eq!(&seen, b"two");
    // Its owner may still change it, so it is never plain bytes.
    assert!(reader.map_sealed().is_err());
}

#[test]
fn a_writer_fills_a_mapping_and_stops_at_its_end() {
    let allocation = HostMemory.create(8).unwrap();
    let mut mapping = allocation.map(Access::ReadWrite).unwrap();
    let mut writer = mapping.writer();
    writer.write_all(b"abc").unwrap();
    writer.seek_to(6).unwrap();
    writer.write_all(b"gh").unwrap();
    assert_eq!(writer.position(), 8);
    assert!(writer.write_all(b"i").is_err());
    assert!(writer.seek_to(9).is_err());
    let mut all = [0; 8];
    allocation.read_at(0, &mut all).unwrap();
    assert_eq!(&all, b"abc\0\0\0gh");
}

#[test]
fn a_client_memfd_sealed_as_it_should_is_taken() {
    let fd = client_memfd(10_000, ALL);
    verify_sealed(fd.as_fd(), LEN).unwrap();
    assert_eq!(SealedMapping::new(fd.as_fd(), LEN).unwrap().as_ref(), vec![5; 10_000]);
}

#[test]
fn every_missing_seal_is_named() {
    for (missing, name) in [(SealFlags::SHRINK, "SHRINK"), (SealFlags::GROW, "GROW"), (SealFlags::WRITE, "WRITE")] {
        let fd = client_memfd(10_000, ALL - missing);
        let expected = Err(MemoryError::MissingSeals { missing: name.to_owned() });
        assert_eq!(verify_sealed(fd.as_fd(), LEN), expected);
        // Closed to further seals, it can never become right.
        assert_eq!(seal(fd.as_fd()), expected);
    }
    let fd = client_memfd(10_000, ALL - SealFlags::SEAL);
    assert_eq!(verify_sealed(fd.as_fd(), LEN), Err(MemoryError::MissingSeals { missing: "SEAL".to_owned() }));
}

#[test]
fn sizes_must_be_as_claimed() {
    let fd = client_memfd(10_000, ALL);
    for claimed in [10_001, 10_000 - 4096, 1, u64::MAX] {
        assert_eq!(verify_sealed(fd.as_fd(), claimed), Err(MemoryError::SizeMismatch { claimed, actual: 10_000 }));
    }
    verify_sealed(fd.as_fd(), 10_000 - 4095).unwrap();
    assert_eq!(verify_sealed(fd.as_fd(), 0), Err(MemoryError::ZeroLength));
    assert!(SealedMapping::new(fd.as_fd(), 10_001).is_err());
}

#[test]
fn holes_are_found_even_behind_blocks_past_the_end() {
    let sparse = client_memfd(4096, SealFlags::empty());
    ftruncate(&sparse, 4096 * 4).unwrap();
    let hidden = client_memfd(4096, SealFlags::empty());
    ftruncate(&hidden, 4096 * 4).unwrap();
    fallocate(&hidden, FallocateFlags::KEEP_SIZE, 4096 * 4, 4096 * 8).unwrap();
    for fd in [&sparse, &hidden] {
        fcntl_add_seals(fd, ALL).unwrap();
    }
    assert_eq!(
        verify_sealed(sparse.as_fd(), 4096 * 4),
        Err(MemoryError::Sparse { claimed: 4096 * 4, allocated: 4096 })
    );
    assert_eq!(verify_sealed(hidden.as_fd(), 4096 * 4), Err(MemoryError::Hole { claimed: 4096 * 4, offset: 4096 }));
}

#[test]
fn examining_leaves_the_senders_file_position_alone() {
    let fd = client_memfd(10_000, ALL);
    rustix::fs::seek(&fd, rustix::fs::SeekFrom::Start(123)).unwrap();
    verify_sealed(fd.as_fd(), LEN).unwrap();
    assert_eq!(rustix::fs::seek(&fd, rustix::fs::SeekFrom::Current(0)), Ok(123));
}

#[test]
fn what_is_not_a_sealable_memfd_is_refused() {
    let on_disk = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (pipe, _writer) = rustix::pipe::pipe().unwrap();
    let unsealable = rustix::fs::memfd_create("client", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&unsealable, LEN).unwrap();
    for fd in [on_disk.as_fd(), pipe.as_fd(), unsealable.as_fd()] {
        assert_eq!(verify_sealed(fd, LEN), Err(MemoryError::NotMemfd));
    }
    // tmpfs files answer F_GET_SEALS, with SEAL.
    if let Ok(on_tmpfs) = tempfile::tempfile_in("/dev/shm") {
        on_tmpfs.set_len(LEN).unwrap();
        assert_eq!(verify_sealed(on_tmpfs.as_fd(), LEN), Err(MemoryError::NotMemfd));
    }
}

#[test]
fn huge_page_memory_is_refused() {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    match rustix::fs::memfd_create("client", flags) {
        Ok(fd) => {
            ftruncate(&fd, 2 << 20).unwrap();
            fcntl_add_seals(&fd, ALL).unwrap();
            assert_eq!(verify_sealed(fd.as_fd(), 2 << 20), Err(MemoryError::HugePages));
            assert_eq!(HostMemory.import(fd, 2 << 20).unwrap_err(), MemoryError::HugePages);
        }
        Err(errno) => println!("huge_page_memory_is_refused: not run: no huge-page memfd here ({errno})"),
    }
}

#[test]
fn memory_whose_size_may_shrink_is_not_imported() {
    let fd = client_memfd(10_000, SealFlags::empty());
    assert!(matches!(HostMemory.import(fd, LEN), Err(MemoryError::MissingSeals { .. })));
}
