//! A device in use: its primary context, retained for as long as anything made in it lives.

use std::sync::Arc;

use cudarc::driver::sys as cu;

use super::driver::{Driver, driver};
use super::lanes::Lanes;
use crate::error::{CudaFailure, DeviceUuid, MemoryError, Result};

/// One retained primary context. Allocations, mappings and registrations share it by `Arc`.
#[derive(Debug)]
pub(super) struct Device {
    driver: &'static Driver,
    raw: cu::CUdevice,
    context: ContextPointer,
    uuid: DeviceUuid,
    pub(super) lanes: Lanes,
}

#[derive(Debug, Clone, Copy)]
struct ContextPointer(cu::CUcontext);

// SAFETY: a context is the driver's own object, which the retain held by `Device` keeps alive; the driver API may
// be called for it from any thread (CUDA C++ Programming Guide, driver API, "Context").
unsafe impl Send for ContextPointer {}
// SAFETY: as above; the driver does its own locking.
unsafe impl Sync for ContextPointer {}

impl Device {
    /// Retains the primary context of a device number. The first retain in a process makes the context:
    /// 100 ms or more, and about 500 MiB of device memory (measured).
    pub(super) fn open(raw: cu::CUdevice) -> Result<Arc<Self>> {
        let driver = driver()?;
        let uuid = driver.device_uuid(raw)?;
        for (attribute, name) in [
            (
                cu::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED,
                "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
            ),
            (
                cu::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED",
            ),
        ] {
            if driver.device_attribute(attribute, raw).map_err(|failure| failure.on(uuid, None))? == 0 {
                return Err(MemoryError::NotShareable { device: uuid, attribute: name });
            }
        }
        let context = driver.primary_retain(raw).map_err(|failure| failure.on(uuid, None))?;
        Ok(Arc::new(Self { driver, raw, context: ContextPointer(context), uuid, lanes: Lanes::default() }))
    }

    pub(super) fn driver(&self) -> &'static Driver {
        self.driver
    }

    pub(super) fn uuid(&self) -> DeviceUuid {
        self.uuid
    }

    pub(super) fn ordinal(&self) -> i32 {
        self.raw
    }

    /// Makes this context current for the calls made while the guard lives; the caller's own is back after.
    pub(super) fn enter(&self) -> Result<Entered<'_>> {
        self.driver.push(self.context.0).map_err(self.fail(None))?;
        Ok(Entered { driver: self.driver, _device: self })
    }

    /// Turns a failed call into an error that names this device.
    pub(super) fn fail(&self, len: Option<u64>) -> impl Fn(CudaFailure) -> MemoryError + use<> {
        let uuid = self.uuid;
        move |failure| failure.on(uuid, len)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Best effort: in a process that is ending, the driver may be gone already.
        if let Ok(entered) = self.enter() {
            self.lanes.free(entered.driver);
        }
        let _ = self.driver.primary_release(self.raw);
    }
}

/// See [`Device::enter`].
#[derive(Debug)]
pub(super) struct Entered<'a> {
    pub(super) driver: &'static Driver,
    _device: &'a Device,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let _ = self.driver.pop();
    }
}
