//! What the driver knows about an address.

use crate::abi::{In, Out};
use crate::codes::{Code, INVALID_VALUE};
use crate::world::{World, call};

/// A `CUpointer_attribute` of cuda.h's numbering.
mod attribute {
    pub const MEMORY_TYPE: u32 = 2;
    pub const DEVICE_POINTER: u32 = 3;
    pub const HOST_POINTER: u32 = 4;
    pub const IS_MANAGED: u32 = 8;
    pub const DEVICE_ORDINAL: u32 = 9;
    pub const IS_LEGACY_CUDA_IPC_CAPABLE: u32 = 10;
    pub const RANGE_START_ADDR: u32 = 11;
    pub const RANGE_SIZE: u32 = 12;
    pub const MAPPED: u32 = 13;
    pub const ALLOWED_HANDLE_TYPES: u32 = 14;
    pub const ACCESS_FLAGS: u32 = 16;
    pub const MEMPOOL_HANDLE: u32 = 17;
    pub const MAPPING_SIZE: u32 = 18;
    pub const MAPPING_BASE_ADDR: u32 = 19;
}

/// A value with the width that the caller has room for.
enum Value {
    Wide(u64),
    Narrow(u32),
}

impl Value {
    fn store(&self, place: Out<u8>) -> Result<(), Code> {
        match self {
            Self::Wide(value) => place.cast().set(*value),
            Self::Narrow(value) => place.cast().set(*value),
        }
    }
}

fn look_up(world: &World, attribute: u32, address: u64) -> Result<Value, Code> {
    use attribute::*;

    if world.host_at(address).is_some() {
        return match attribute {
            // CU_MEMORYTYPE_HOST
            MEMORY_TYPE => Ok(Value::Narrow(1)),
            HOST_POINTER | DEVICE_POINTER => Ok(Value::Wide(address)),
            DEVICE_ORDINAL | IS_MANAGED => Ok(Value::Narrow(0)),
            _ => Err(INVALID_VALUE),
        };
    }
    let (start, range) = world.range_at(address)?;
    let device = u32::try_from(range.physical.device).unwrap_or(u32::MAX);
    Ok(match attribute {
        // CU_MEMORYTYPE_DEVICE
        MEMORY_TYPE => Value::Narrow(2),
        DEVICE_POINTER => Value::Wide(address),
        DEVICE_ORDINAL => Value::Narrow(device),
        // Booleans are one int wide in practice; a wider caller has zeroed the rest.
        IS_MANAGED => Value::Narrow(0),
        IS_LEGACY_CUDA_IPC_CAPABLE => Value::Narrow(u32::from(range.plain)),
        RANGE_START_ADDR | MAPPING_BASE_ADDR => Value::Wide(start),
        RANGE_SIZE | MAPPING_SIZE => Value::Wide(range.size),
        MAPPED => Value::Narrow(1),
        ALLOWED_HANDLE_TYPES => Value::Wide(u64::from(range.physical.handle_types)),
        ACCESS_FLAGS => Value::Narrow(range.access),
        MEMPOOL_HANDLE => Value::Wide(0),
        _ => return Err(INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuPointerGetAttribute(place: Out<u8>, attribute: u32, address: u64) -> Code {
    call("pointer", |world| look_up(world, attribute, address)?.store(place))
}

/// Unlike the single form, this succeeds for any address; what is unknown is 0.
#[unsafe(no_mangle)]
pub extern "C" fn cuPointerGetAttributes(count: u32, attributes: In<u32>, places: In<Out<u8>>, address: u64) -> Code {
    call("pointer", |world| {
        for index in 0..usize::try_from(count).unwrap_or(0) {
            let attribute = attributes.nth(index)?;
            look_up(world, attribute, address).unwrap_or(Value::Narrow(0)).store(places.nth(index)?)?;
        }
        Ok(())
    })
}
