//! Streams and events. Work is done when it is enqueued, so both are always ready.

use crate::abi::Out;
use crate::codes::{Code, INVALID_HANDLE};
use crate::world::{World, call};

fn stream(world: &World, stream: u64) -> Result<(), Code> {
    world.current()?;
    // 0, 1 and 2 are the default streams.
    if stream <= 2 || world.streams.contains(&stream) { Ok(()) } else { Err(INVALID_HANDLE) }
}

fn event(world: &World, event: u64) -> Result<(), Code> {
    if world.events.contains(&event) { Ok(()) } else { Err(INVALID_HANDLE) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamCreate(place: Out<u64>, _flags: u32) -> Code {
    call("stream", |world| {
        world.current()?;
        let id = world.new_id();
        world.streams.insert(id);
        place.set(id)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(id: u64) -> Code {
    call("stream", |world| if world.streams.remove(&id) { Ok(()) } else { Err(INVALID_HANDLE) })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(id: u64) -> Code {
    call("sync", |world| stream(world, id))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamQuery(id: u64) -> Code {
    call("sync", |world| stream(world, id))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(id: u64, waited: u64, _flags: u32) -> Code {
    call("stream", |world| stream(world, id).and_then(|()| event(world, waited)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventCreate(place: Out<u64>, _flags: u32) -> Code {
    call("stream", |world| {
        world.current()?;
        let id = world.new_id();
        world.events.insert(id);
        place.set(id)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(id: u64, on: u64) -> Code {
    call("stream", |world| event(world, id).and_then(|()| stream(world, on)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(id: u64) -> Code {
    call("sync", |world| event(world, id))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventQuery(id: u64) -> Code {
    call("sync", |world| event(world, id))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(id: u64) -> Code {
    call("stream", |world| if world.events.remove(&id) { Ok(()) } else { Err(INVALID_HANDLE) })
}
