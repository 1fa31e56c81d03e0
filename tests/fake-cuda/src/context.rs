//! Driver start, devices, and their primary contexts.

use crate::abi::Out;
use crate::codes::{Code, INVALID_CONTEXT, INVALID_VALUE, NO_DEVICE, SUCCESS};
use crate::world::{World, call, call_anyway, initialise, stack};

/// Context pointers are this plus the device's number: never null, never to be dereferenced.
const CONTEXT_BASE: usize = 0xC0_0000;

fn context_of(device: usize) -> usize {
    CONTEXT_BASE + device
}

fn device_of(world: &World, context: usize) -> Result<Option<usize>, Code> {
    match context.checked_sub(CONTEXT_BASE) {
        _ if context == 0 => Ok(None),
        Some(device) if device < world.devices.len() => Ok(Some(device)),
        _ => Err(INVALID_CONTEXT),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: u32) -> Code {
    if flags != 0 {
        return INVALID_VALUE;
    }
    if let Err(code) = initialise() {
        return code;
    }
    call_anyway("", |world| if world.devices.is_empty() { Err(NO_DEVICE) } else { Ok(()) })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDriverGetVersion(version: Out<i32>) -> Code {
    version.set(12_080).err().unwrap_or(SUCCESS)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetCount(count: Out<i32>) -> Code {
    call("device", |world| count.set(i32::try_from(world.devices.len()).unwrap_or(i32::MAX)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGet(device: Out<i32>, ordinal: i32) -> Code {
    call("device", |world| world.device(ordinal).and_then(|_| device.set(ordinal)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: i32) -> Code {
    call("device", |world| {
        let device = world.device(device)?;
        uuid.set(world.config.devices[device])
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetName(name: Out<u8>, capacity: i32, device: i32) -> Code {
    call("device", |world| {
        world.device(device)?;
        name.set_text("gpuvol fake GPU", usize::try_from(capacity).unwrap_or(0))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceTotalMem_v2(bytes: Out<u64>, device: i32) -> Code {
    call("device", |world| world.device(device).and_then(|_| bytes.set(world.config.memory)))
}

/// Every capability is there (1); nothing that gpuvol asks for is a count.
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetAttribute(value: Out<i32>, _attribute: u32, device: i32) -> Code {
    call("device", |world| world.device(device).and_then(|_| value.set(1)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRetain(context: Out<usize>, device: i32) -> Code {
    call_anyway("retain", |world| {
        let device = world.device(device)?;
        context.set(context_of(device))?;
        world.devices[device].retained += 1;
        Ok(())
    })
}

/// The last release ends the context, and with it a lost state.
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(device: i32) -> Code {
    call_anyway("", |world| {
        let device = world.device(device)?;
        let state = &mut world.devices[device];
        state.retained = state.retained.checked_sub(1).ok_or(INVALID_CONTEXT)?;
        if state.retained == 0 {
            state.lost = None;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxPushCurrent_v2(context: usize) -> Code {
    call_anyway("", |world| {
        let device = device_of(world, context)?.ok_or(INVALID_CONTEXT)?;
        if world.devices[device].retained == 0 {
            return Err(INVALID_CONTEXT);
        }
        stack(|stack| stack.push(Some(device)));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxPopCurrent_v2(context: Out<usize>) -> Code {
    call_anyway("", |_| {
        let device = stack(Vec::pop).ok_or(INVALID_CONTEXT)?;
        // The caller may not want to know (null).
        let _ = context.set(device.map_or(0, context_of));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetCurrent(context: Out<usize>) -> Code {
    call_anyway("", |_| context.set(stack(|stack| stack.last().copied().flatten()).map_or(0, context_of)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: usize) -> Code {
    call_anyway("", |world| {
        let device = device_of(world, context)?;
        stack(|stack| {
            stack.pop();
            if device.is_some() {
                stack.push(device);
            }
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetDevice(device: Out<i32>) -> Code {
    call("device", |world| device.set(i32::try_from(world.current()?).unwrap_or(i32::MAX)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> Code {
    call("sync", |world| world.current().map(drop))
}
