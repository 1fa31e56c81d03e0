//! The NVML functions that give inventory and free memory, as nvml-wrapper 0.13 calls them. Free memory comes
//! from the file that `GPUVOL_FAKE_NVML_FREE` names, so that a test can play an outsider who takes memory.

use std::sync::OnceLock;

use crate::abi::Out;
use crate::config::{Config, format_uuid};

/// `nvmlReturn_t`.
type Return = u32;

const SUCCESS: Return = 0;
const UNINITIALIZED: Return = 1;
const INVALID_ARGUMENT: Return = 2;
const UNKNOWN: Return = 999;

static CONFIG: OnceLock<Option<Config>> = OnceLock::new();

/// `nvmlMemory_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2_t`; `version` is the caller's.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct MemoryV2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

fn with_config(use_it: impl FnOnce(&Config) -> Result<(), Return>) -> Return {
    match CONFIG.get() {
        None => UNINITIALIZED,
        Some(None) => UNKNOWN,
        Some(Some(config)) => use_it(config).err().unwrap_or(SUCCESS),
    }
}

/// Device handles are the device's number plus one: never null.
fn with_device(handle: usize, use_it: impl FnOnce(&Config, [u8; 16]) -> Result<(), Return>) -> Return {
    with_config(|config| {
        let number = handle.checked_sub(1).ok_or(INVALID_ARGUMENT)?;
        let uuid = config.devices.get(number).ok_or(INVALID_ARGUMENT)?;
        use_it(config, *uuid)
    })
}

fn invalid<E>(_: E) -> Return {
    INVALID_ARGUMENT
}

fn free_bytes(total: u64) -> Result<u64, Return> {
    let Some(path) = std::env::var_os("GPUVOL_FAKE_NVML_FREE") else {
        return Ok(total);
    };
    let text = std::fs::read_to_string(path).map_err(|_| UNKNOWN)?;
    text.trim().parse().map(|free: u64| free.min(total)).map_err(|_| UNKNOWN)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> Return {
    match CONFIG.get_or_init(Config::from_environment) {
        Some(_) => SUCCESS,
        None => UNKNOWN,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: u32) -> Return {
    nvmlInit_v2()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> Return {
    with_config(|_| Ok(()))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(code: Return) -> *const u8 {
    let text: &[u8] = match code {
        SUCCESS => b"Success\0",
        UNINITIALIZED => b"Uninitialized\0",
        INVALID_ARGUMENT => b"Invalid Argument\0",
        _ => b"Unknown Error\0",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetDriverVersion(text: Out<u8>, capacity: u32) -> Return {
    with_config(|_| text.set_text("580.00.00", capacity as usize).map_err(invalid))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetNVMLVersion(text: Out<u8>, capacity: u32) -> Return {
    with_config(|_| text.set_text("12.580.00.00", capacity as usize).map_err(invalid))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: Out<i32>) -> Return {
    with_config(|_| version.set(12_080).map_err(invalid))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetCount_v2(count: Out<u32>) -> Return {
    with_config(|config| count.set(u32::try_from(config.devices.len()).unwrap_or(0)).map_err(invalid))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: Out<usize>) -> Return {
    let handle = index as usize + 1;
    with_device(handle, |_, _| device.set(handle).map_err(invalid))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetUUID(device: usize, text: Out<u8>, capacity: u32) -> Return {
    with_device(device, |_, uuid| text.set_text(&format_uuid(uuid), capacity as usize).map_err(invalid))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetName(device: usize, text: Out<u8>, capacity: u32) -> Return {
    with_device(device, |_, _| text.set_text("gpuvol fake GPU", capacity as usize).map_err(invalid))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMemoryInfo(device: usize, place: Out<Memory>) -> Return {
    with_device(device, |config, _| {
        let (total, free) = (config.memory, free_bytes(config.memory)?);
        place.set(Memory { total, free, used: total - free }).map_err(invalid)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: usize, place: Out<MemoryV2>) -> Return {
    with_device(device, |config, _| {
        let (total, free) = (config.memory, free_bytes(config.memory)?);
        let version = u32::try_from(size_of::<MemoryV2>() | 2 << 24).unwrap_or(0);
        place.set(MemoryV2 { version, total, reserved: 0, free, used: total - free }).map_err(invalid)
    })
}
