//! Page-locked host memory. Nothing is locked here; the ranges are remembered, so that a range registered twice
//! or never is answered as a real driver does.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::abi::{Host, Out};
use crate::codes::{Code, HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE, OUT_OF_MEMORY};
use crate::world::call;

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostRegister_v2(start: Host, len: u64, _flags: u32) -> Code {
    call("register", |world| {
        world.current()?;
        let address = start.address();
        let end = address.checked_add(len).filter(|_| address != 0 && len != 0).ok_or(INVALID_VALUE)?;
        if world.host_at(address).is_some() || world.host.range(address..end).next().is_some() {
            return Err(HOST_MEMORY_ALREADY_REGISTERED);
        }
        world.host.insert(address, (len, false));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostUnregister(start: Host) -> Code {
    call("register", |world| match world.host.get(&start.address()) {
        Some((_, false)) => {
            world.host.remove(&start.address());
            Ok(())
        }
        _ => Err(HOST_MEMORY_NOT_REGISTERED),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAllocHost_v2(place: Out<usize>, len: usize) -> Code {
    call("register", |world| {
        world.current()?;
        if len == 0 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: a null hint: the kernel chooses a range that nothing uses; it is the caller's until freed.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) }
                .map_err(|_| OUT_OF_MEMORY)?;
        world.host.insert(start.addr() as u64, (len as u64, true));
        place.set(start.expose_provenance())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeHost(start: Host) -> Code {
    call("register", |world| {
        let address = start.address();
        let Some((len, true)) = world.host.get(&address).copied() else {
            return Err(INVALID_VALUE);
        };
        world.host.remove(&address);
        let (Ok(address), Ok(len)) = (usize::try_from(address), usize::try_from(len)) else {
            return Err(INVALID_VALUE);
        };
        // SAFETY: the range was mapped by `cuMemAllocHost_v2`, and the caller gives it back (cuda.h).
        unsafe { munmap(std::ptr::with_exposed_provenance_mut(address), len) }.map_err(|_| INVALID_VALUE)
    })
}
