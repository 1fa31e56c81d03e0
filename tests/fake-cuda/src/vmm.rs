//! `cuMemCreate` and everything around it, and plain `cuMemAlloc`.

use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::abi::{AccessDesc, AllocationProp, In, Location, Out};
use crate::codes::{
    Code, INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, OPERATING_SYSTEM, OUT_OF_MEMORY,
};
use crate::config::format_uuid;
use crate::world::{GRANULARITY, MEMFD_PREFIX, Range, World, call};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const BY_DESCRIPTOR: u32 = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const DEVICE: u32 = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const PINNED: u32 = 1;

fn aligned(value: u64) -> Result<u64, Code> {
    if value == 0 || !value.is_multiple_of(GRANULARITY) { Err(INVALID_VALUE) } else { Ok(value) }
}

fn device_of(world: &World, prop: &AllocationProp) -> Result<usize, Code> {
    if prop.kind != PINNED || prop.location.kind != DEVICE {
        return Err(INVALID_VALUE);
    }
    world.device(prop.location.id)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetAllocationGranularity(granularity: Out<u64>, prop: In<AllocationProp>, _option: u32) -> Code {
    call("device", |world| {
        device_of(world, &prop.get()?)?;
        granularity.set(GRANULARITY)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemCreate(handle: Out<u64>, size: u64, prop: In<AllocationProp>, flags: u64) -> Code {
    call("create", |world| {
        let prop = prop.get()?;
        let device = device_of(world, &prop)?;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        let physical = world.make(device, aligned(size)?, prop.handle_types)?;
        let id = world.handle(&physical);
        handle.set(id)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemRelease(handle: u64) -> Code {
    call("release", |world| {
        let held = world.handles.get_mut(&handle).ok_or(INVALID_VALUE)?;
        held.references -= 1;
        if held.references == 0 {
            world.handles.remove(&handle);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemExportToShareableHandle(place: Out<i32>, handle: u64, kind: u32, _flags: u64) -> Code {
    call("export", |world| {
        let held = world.handles.get(&handle).ok_or(INVALID_VALUE)?;
        if kind != BY_DESCRIPTOR || held.physical.handle_types & kind == 0 {
            return Err(INVALID_VALUE);
        }
        let fd = fcntl_dupfd_cloexec(&held.physical.fd, 0).map_err(|_| OPERATING_SYSTEM)?;
        let number = fd.as_raw_fd();
        place.set(number)?;
        let _ = fd.into_raw_fd();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemImportFromShareableHandle(handle: Out<u64>, os_handle: usize, kind: u32) -> Code {
    call("import", |world| {
        let number = i32::try_from(os_handle).map_err(|_| INVALID_VALUE)?;
        if kind != BY_DESCRIPTOR || number < 0 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: by cuda.h the argument is an open descriptor of the caller's, who keeps it during the call.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let (device, size) = recognise(world, fd)?;
        let own = fcntl_dupfd_cloexec(fd, 0).map_err(|_| OPERATING_SYSTEM)?;
        let physical = world.adopt(own, size, device, kind);
        let id = world.handle(&physical);
        handle.set(id)
    })
}

/// Which device and how many bytes a descriptor stands for, by its memfd's name.
fn recognise(world: &World, fd: BorrowedFd<'_>) -> Result<(usize, u64), Code> {
    let link =
        rustix::fs::readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new()).map_err(|_| INVALID_VALUE)?;
    let name = link.to_str().map_err(|_| INVALID_VALUE)?;
    let name = name.strip_prefix("/memfd:").ok_or(INVALID_VALUE)?;
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let mut parts = name.split(':');
    if parts.next() != Some(MEMFD_PREFIX) {
        return Err(INVALID_VALUE);
    }
    let uuid = parts.next().ok_or(INVALID_VALUE)?;
    let size = parts.next().and_then(|size| size.parse().ok()).ok_or(INVALID_VALUE)?;
    let device = world.config.devices.iter().position(|device| format_uuid(*device) == uuid);
    // What a real driver answers when the process cannot see the owning device (measured).
    device.map(|device| (device, size)).ok_or(INVALID_DEVICE)
}

/// Reserves addresses without access, so that the CPU cannot use a device address by mistake.
fn reserve(size: u64) -> Result<u64, Code> {
    let wanted = size.checked_add(GRANULARITY).ok_or(OUT_OF_MEMORY)?;
    let wanted = usize::try_from(wanted).map_err(|_| OUT_OF_MEMORY)?;
    // SAFETY: a null hint: the kernel chooses a range that nothing uses.
    let start = unsafe {
        mmap_anonymous(std::ptr::null_mut(), wanted, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)
    }
    .map_err(|_| OUT_OF_MEMORY)?;
    let first = start.addr() as u64;
    let aligned = first.next_multiple_of(GRANULARITY);
    // The ends that alignment left over.
    unreserve(first, aligned - first);
    unreserve(aligned + size, first + GRANULARITY - aligned);
    Ok(aligned)
}

fn unreserve(address: u64, size: u64) {
    let (Ok(address), Ok(size)) = (usize::try_from(address), usize::try_from(size)) else {
        return;
    };
    if size > 0 {
        // SAFETY: the range is part of one that `reserve` took and its owner has given back; it has no access,
        // so nothing can refer into it.
        let _ = unsafe { munmap(std::ptr::with_exposed_provenance_mut(address), size) };
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAddressReserve(place: Out<u64>, size: u64, _alignment: u64, _address: u64, flags: u64) -> Code {
    call("reserve", |world| {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        let address = reserve(aligned(size)?)?;
        world.reservations.insert(address, size);
        place.set(address)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAddressFree(address: u64, size: u64) -> Code {
    call("release", |world| {
        let whole = world.reservations.get(&address) == Some(&size);
        let in_use = world.ranges.range(address..address.saturating_add(size)).next().is_some();
        if !whole || in_use {
            return Err(INVALID_VALUE);
        }
        world.reservations.remove(&address);
        unreserve(address, size);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemMap(address: u64, size: u64, offset: u64, handle: u64, flags: u64) -> Code {
    call("map", |world| {
        let end = address.checked_add(aligned(size)?).ok_or(INVALID_VALUE)?;
        let reserved = world.reservations.range(..=address).next_back();
        let inside = reserved.is_some_and(|(start, reserved)| end <= start + reserved);
        let taken = world.range_at(address).is_ok() || world.ranges.range(address..end).next().is_some();
        if !address.is_multiple_of(GRANULARITY) || !inside || taken || flags != 0 {
            return Err(INVALID_VALUE);
        }
        let physical = &world.handles.get(&handle).ok_or(INVALID_HANDLE)?.physical;
        // Measured: mapping more than there is, is "not supported"; so is any offset (cuda.h).
        if offset != 0 || size > physical.size {
            return Err(NOT_SUPPORTED);
        }
        let range = Range { size, physical: physical.clone(), access: 0, plain: false };
        world.ranges.insert(address, range);
        Ok(())
    })
}

/// Ranges that together are exactly `size` bytes from `address` on.
fn exactly(world: &World, address: u64, size: u64) -> Result<Vec<u64>, Code> {
    let end = address.checked_add(size).ok_or(INVALID_VALUE)?;
    let mut starts = Vec::new();
    let mut cursor = address;
    while cursor < end {
        let range = world.ranges.get(&cursor).filter(|range| !range.plain).ok_or(INVALID_VALUE)?;
        starts.push(cursor);
        cursor += range.size;
    }
    if cursor == end && !starts.is_empty() { Ok(starts) } else { Err(INVALID_VALUE) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemUnmap(address: u64, size: u64) -> Code {
    call("unmap", |world| {
        for start in exactly(world, address, size)? {
            world.ranges.remove(&start);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemSetAccess(address: u64, size: u64, desc: In<AccessDesc>, count: usize) -> Code {
    call("access", |world| {
        if count != 1 {
            return Err(INVALID_VALUE);
        }
        let desc = desc.get()?;
        if desc.location.kind != DEVICE || !matches!(desc.flags, 0 | 1 | 3) {
            return Err(INVALID_VALUE);
        }
        world.device(desc.location.id)?;
        for start in exactly(world, address, size)? {
            if let Some(range) = world.ranges.get_mut(&start) {
                range.access = desc.flags;
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetAccess(flags: Out<u64>, location: In<Location>, address: u64) -> Code {
    call("access", |world| {
        world.device(location.get()?.id)?;
        flags.set(u64::from(world.range_at(address)?.1.access))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemRetainAllocationHandle(handle: Out<u64>, address: u64) -> Code {
    call("handle", |world| {
        let (_, range) = world.range_at(address)?;
        if range.plain {
            return Err(INVALID_VALUE);
        }
        let physical = range.physical.clone();
        let id = world.handle(&physical);
        handle.set(id)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetAllocationPropertiesFromHandle(prop: Out<AllocationProp>, handle: u64) -> Code {
    call("handle", |world| {
        let physical = &world.handles.get(&handle).ok_or(INVALID_VALUE)?.physical;
        let id = i32::try_from(physical.device).unwrap_or(i32::MAX);
        prop.set(AllocationProp {
            kind: PINNED,
            handle_types: physical.handle_types,
            location: Location { kind: DEVICE, id },
            win32: 0,
            flags: [0; 8],
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAlloc_v2(place: Out<u64>, size: u64) -> Code {
    call("alloc", |world| {
        let device = world.current()?;
        if size == 0 {
            return Err(INVALID_VALUE);
        }
        let whole = size.checked_next_multiple_of(GRANULARITY).ok_or(OUT_OF_MEMORY)?;
        let physical = world.make(device, whole, 0)?;
        let address = reserve(whole)?;
        world.reservations.insert(address, whole);
        world.ranges.insert(address, Range { size, physical, access: 3, plain: true });
        place.set(address)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: u64) -> Code {
    call("release", |world| {
        if !world.ranges.get(&address).is_some_and(|range| range.plain) {
            return Err(INVALID_VALUE);
        }
        world.ranges.remove(&address);
        if let Some(size) = world.reservations.remove(&address) {
            unreserve(address, size);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetInfo_v2(free: Out<u64>, total: Out<u64>) -> Code {
    call("info", |world| {
        let device = world.current()?;
        free.set(world.free_bytes(device))?;
        total.set(world.config.memory)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetAddressRange_v2(base: Out<u64>, size: Out<u64>, address: u64) -> Code {
    call("pointer", |world| {
        let (start, range) = world.range_at(address)?;
        // Either may be null: the caller wants only the other.
        let _ = base.set(start);
        let _ = size.set(range.size);
        Ok(())
    })
}
