//! Which devices this process can see.

use cudarc::driver::sys as cu;

use super::driver::{Driver, NO_DEVICE, driver};
use crate::error::{DeviceUuid, MemoryError, Result};

/// A device that this process can see. Finding out makes no CUDA context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number in this process, from 0; other processes may number differently.
    pub ordinal: u32,
    /// Its UUID, the same for every process.
    pub uuid: [u8; 16],
    /// Its marketing name.
    pub name: String,
    /// Its memory, in bytes.
    pub total: u64,
}

/// The devices that this process can see; none when the driver is there but shows no device.
pub fn visible_devices() -> Result<Vec<DeviceInfo>> {
    let driver = driver()?;
    match driver.ready() {
        Err(MemoryError::NoDevice) => return Ok(Vec::new()),
        other => other?,
    }
    (0..count(driver)?)
        .map(|ordinal| {
            let device = driver.device_get(ordinal)?;
            let uuid = driver.device_uuid(device)?;
            Ok(DeviceInfo {
                ordinal: u32::try_from(ordinal).unwrap_or(0),
                uuid: uuid.0,
                name: driver.device_name(device).map_err(|failure| failure.on(uuid, None))?,
                total: driver.device_total(device).map_err(|failure| failure.on(uuid, None))?,
            })
        })
        .collect()
}

fn count(driver: &Driver) -> Result<i32> {
    match driver.device_count() {
        Err(failure) if failure.code == NO_DEVICE => Ok(0),
        other => Ok(other?),
    }
}

/// The device that a device address belongs to.
pub fn device_of_pointer(address: u64) -> Result<[u8; 16]> {
    let driver = driver()?;
    driver.ready()?;
    let ordinal = driver
        .pointer_attribute(cu::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address)
        .map_err(|failure| unknown_address(failure, address))?;
    let ordinal = i32::try_from(ordinal).map_err(|_| MemoryError::NotDeviceMemory { address })?;
    Ok(driver.device_uuid(driver.device_get(ordinal)?)?.0)
}

/// The driver answers `CUDA_ERROR_INVALID_VALUE` for addresses that it does not know.
pub(super) fn unknown_address(failure: crate::CudaFailure, address: u64) -> MemoryError {
    match failure.code {
        1 => MemoryError::NotDeviceMemory { address },
        _ => MemoryError::Cuda(failure),
    }
}

/// The device number of a UUID; the error names what is visible instead.
pub(super) fn find(uuid: DeviceUuid) -> Result<cu::CUdevice> {
    let visible = visible_devices()?;
    match visible.iter().find(|device| device.uuid == uuid.0) {
        Some(device) => nth(device.ordinal),
        None => {
            let names: Vec<String> = visible.iter().map(|device| DeviceUuid(device.uuid).to_string()).collect();
            let visible = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Err(MemoryError::DeviceNotVisible { asked: uuid, visible })
        }
    }
}

/// The device of an ordinal.
pub(super) fn nth(ordinal: u32) -> Result<cu::CUdevice> {
    let driver = driver()?;
    driver.ready()?;
    let count = count(driver)?;
    match i32::try_from(ordinal) {
        Ok(ordinal) if ordinal < count => Ok(driver.device_get(ordinal)?),
        _ if count == 0 => Err(MemoryError::NoDevice),
        _ => Err(MemoryError::NoSuchOrdinal { ordinal, count: u32::try_from(count).unwrap_or(0) }),
    }
}
