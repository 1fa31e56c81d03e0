//! What a client claims about memory and segments, against what they are.

use std::os::fd::{AsFd, OwnedFd};

use gpuvol_memory::memfd::verify_sealed;
use gpuvol_protocol::message::{
    Allocation, AllocationKind, Attribute, INLINE_SEGMENTS_LIMIT, MAX_ALLOCATIONS, MAX_ATTRIBUTE_BYTES, MAX_ATTRIBUTES,
    MAX_SEGMENTS, Segment, Tier,
};
use gpuvol_protocol::types::{Bytes, size};
use gpuvol_protocol::{Code, DeviceUuid, Fault, ObjectPath, TypeError};
use rustix::fs::FileType;

use crate::catalogue::object::{Reservation, charge_of};
use crate::catalogue::quota::{DEVICE_GRANULE, HOST_GRANULE};
use crate::node::{Node, internal};

/// Most attribute bytes of one object together.
const MAX_ATTRIBUTES_BYTES: usize = 64 * 1024;

/// An enum's value that this store does not know.
pub fn unknown(path: &ObjectPath, what: &'static str, value: i32) -> Fault {
    invalid(format!("{path}: {}", TypeError::Enum { what, value }))
}

pub fn invalid(message: impl Into<String>) -> Fault {
    Fault::new(Code::InvalidArgument, message)
}

/// Is all of it in what was reserved?
pub fn check_charge(
    path: &ObjectPath,
    reservation: &Reservation,
    allocations: &[Allocation],
    segments: &[Segment],
) -> Result<(), Fault> {
    let takes = charge_of(allocations, segments);
    if takes <= reservation.charge {
        return Ok(());
    }
    Err(invalid(format!("{path}: the object takes {}, {} were reserved", Bytes(takes), Bytes(reservation.charge))))
}

pub fn check_attributes(path: &ObjectPath, attributes: &[Attribute]) -> Result<(), Fault> {
    let total: usize = attributes.iter().map(|a| a.name.len() + a.value.len()).sum();
    let one = attributes.iter().map(|a| a.name.len() + a.value.len()).max().unwrap_or(0);
    if attributes.len() > MAX_ATTRIBUTES || one > MAX_ATTRIBUTE_BYTES || total > MAX_ATTRIBUTES_BYTES {
        let message = format!(
            "{path}: {} attributes of {total} bytes, the largest of {one}; allowed are {MAX_ATTRIBUTES} of {MAX_ATTRIBUTES_BYTES} bytes, each up to {MAX_ATTRIBUTE_BYTES}",
            attributes.len()
        );
        return Err(invalid(message));
    }
    Ok(())
}

/// One message hands all of an object's descriptors out.
pub fn check_count(path: &ObjectPath, allocations: usize) -> Result<(), Fault> {
    if allocations <= MAX_ALLOCATIONS {
        return Ok(());
    }
    Err(invalid(format!("{path}: {allocations} pieces of memory; an object has {MAX_ALLOCATIONS} at most")))
}

/// Are the descriptors that came along the memory that they are said to be?
pub fn check_descriptors(
    node: &Node,
    path: &ObjectPath,
    reservation: &Reservation,
    claimed: &[Allocation],
    fds: &[OwnedFd],
) -> Result<(), Fault> {
    check_count(path, reservation.memory().count() + claimed.len())?;
    if claimed.len() != fds.len() {
        let message =
            format!("{path}: {} allocations with {} descriptors; one each is wanted", claimed.len(), fds.len());
        return Err(invalid(message));
    }
    for (allocation, fd) in claimed.iter().zip(fds) {
        let kind =
            AllocationKind::try_from(allocation.kind).map_err(|_| unknown(path, "allocation kind", allocation.kind))?;
        match kind {
            AllocationKind::Memfd => check_memfd(path, allocation, fd)?,
            AllocationKind::CudaVmm => check_device_memory(node, path, reservation, allocation, fd)?,
        }
    }
    Ok(())
}

fn check_memfd(path: &ObjectPath, allocation: &Allocation, fd: &OwnedFd) -> Result<(), Fault> {
    let page = HOST_GRANULE;
    if allocation.len == 0 || !allocation.len.is_multiple_of(page) || !allocation.device.is_empty() {
        let message =
            format!("{path}: a memfd of {} bytes; a multiple of {page} and no device are wanted", allocation.len);
        return Err(invalid(message));
    }
    verify_sealed(fd.as_fd(), allocation.len)
        .map_err(|error| Fault::new(Code::BadMemory, format!("{path}: the descriptor is no sealed memory: {error}")))
}

fn check_device_memory(
    node: &Node,
    path: &ObjectPath,
    reservation: &Reservation,
    allocation: &Allocation,
    fd: &OwnedFd,
) -> Result<(), Fault> {
    if reservation.tier != Tier::Gpu || allocation.device != reservation.device {
        let name = |uuid: &[u8]| DeviceUuid::try_from(uuid).map_or_else(|_| "host memory".into(), |u| u.to_string());
        let message = format!(
            "{path}: memory of {} for a reservation on {}",
            name(&allocation.device),
            name(&reservation.device)
        );
        return Err(Fault::new(Code::DeviceMismatch, message));
    }
    if allocation.len == 0 || !allocation.len.is_multiple_of(DEVICE_GRANULE) {
        let message =
            format!("{path}: device memory of {} bytes; a multiple of {DEVICE_GRANULE} is wanted", allocation.len);
        return Err(invalid(message));
    }
    // The store has no CUDA context to ask what the descriptor is, but it can tell what it surely is not.
    let stat = rustix::fs::fstat(fd).map_err(internal)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let is_memfd = kind == FileType::RegularFile && rustix::fs::fcntl_get_seals(fd).is_ok();
    let plausible = match kind {
        FileType::RegularFile => is_memfd && node.config.memfd_devices,
        FileType::Directory | FileType::Symlink | FileType::Fifo | FileType::Socket | FileType::BlockDevice => false,
        FileType::CharacterDevice | FileType::Unknown => true,
    };
    if plausible {
        return Ok(());
    }
    Err(Fault::new(Code::BadMemory, format!("{path}: the descriptor is {kind:?}, not exported device memory")))
}

pub fn check_segments(path: &ObjectPath, allocations: &[Allocation], segments: &[Segment]) -> Result<(), Fault> {
    if segments.is_empty() || segments.len() > MAX_SEGMENTS {
        return Err(invalid(format!("{path}: {} segments; 1 to {MAX_SEGMENTS} are allowed", segments.len())));
    }
    let mut total: u64 = 0;
    let mut inline: u64 = 0;
    for (at, segment) in segments.iter().enumerate() {
        let refuse = |why: String| Err(invalid(format!("{path}: segment {at} {why}")));
        let len = size(segment.len)?;
        if segment.inline.is_empty() {
            let index = usize::try_from(segment.allocation).unwrap_or(usize::MAX);
            let Some(allocation) = allocations.get(index) else {
                return refuse(format!("names allocation {index} of {}", allocations.len()));
            };
            let end = segment.offset.checked_add(len);
            if end.is_none_or(|end| end > allocation.len) {
                return refuse(format!(
                    "covers {len} bytes at {}, its allocation has {}",
                    segment.offset, allocation.len
                ));
            }
        } else {
            if segment.inline.len() as u64 != len {
                return refuse(format!("says {len} bytes and has {}", segment.inline.len()));
            }
            inline += len;
        }
        total = size(total.saturating_add(len))?;
    }
    if inline > INLINE_SEGMENTS_LIMIT {
        let message = format!("{path}: {inline} bytes of inline segments; {INLINE_SEGMENTS_LIMIT} are allowed");
        return Err(invalid(message));
    }
    Ok(())
}

/// Ends writing to the store's own memfd, for everybody and for good. A client that punched holes meanwhile gets zeros
/// there: made now, by the store, so that no reader is charged for them.
pub fn seal_memfd(path: &ObjectPath, fd: &OwnedFd, allocation: &Allocation) -> Result<(), Fault> {
    gpuvol_memory::memfd::seal(fd.as_fd())
        .map_err(|e| Fault::new(Code::BadMemory, format!("{path}: its memory cannot be sealed: {e}")))?;
    let blocks = rustix::fs::fstat(fd).map_err(internal)?.st_blocks;
    // The size is sealed, so no block lies beyond the end.
    if u64::try_from(blocks).unwrap_or(0).saturating_mul(512) < allocation.len {
        rustix::fs::fallocate(fd, rustix::fs::FallocateFlags::empty(), 0, allocation.len).map_err(internal)?;
    }
    Ok(())
}
