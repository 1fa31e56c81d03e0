//! Which GPUs the node has, how much of each is free, and whether it is well: by NVML, without a CUDA context.
//!
//! The library is loaded at run time, and only if it is there: a node without a GPU has an empty inventory and a
//! reason. `GPUVOL_LIBNVML` names another file to load.

use std::ffi::OsStr;

use gpuvol_protocol::DeviceUuid;
use gpuvol_protocol::admin::Device;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

#[derive(Debug)]
pub struct Inventory {
    nvml: Result<Nvml, String>,
    /// The GPUs there were at the start: they do not change while the store runs, and asking takes half a millisecond.
    present: Vec<DeviceUuid>,
}

impl Inventory {
    pub fn load() -> Self {
        let library = std::env::var_os("GPUVOL_LIBNVML");
        let name = library.as_deref().unwrap_or(OsStr::new("libnvidia-ml.so.1"));
        let nvml = Nvml::builder().lib_path(name).init();
        let nvml = nvml.map_err(|e| format!("no GPU inventory: NVML ({}) says: {e}", name.display()));
        let mut inventory = Self { nvml, present: Vec::new() };
        let found = inventory.devices();
        inventory.present = found.iter().filter_map(|d| DeviceUuid::try_from(d.uuid.as_slice()).ok()).collect();
        inventory
    }

    /// The GPUs of this node.
    pub fn present(&self) -> &[DeviceUuid] {
        &self.present
    }

    /// Every GPU, with what is free on it now. Empty where there is no inventory.
    pub fn devices(&self) -> Vec<Device> {
        let Ok(nvml) = &self.nvml else { return Vec::new() };
        let count = nvml.device_count().unwrap_or(0);
        (0..count).filter_map(|index| device(nvml, index).ok()).collect()
    }

    /// Why there is no inventory.
    pub fn missing(&self) -> Option<&str> {
        self.nvml.as_ref().err().map(String::as_str)
    }
}

fn device(nvml: &Nvml, index: u32) -> Result<Device, NvmlError> {
    let device = nvml.device_by_index(index)?;
    let text = device.uuid()?;
    let uuid: DeviceUuid = text.parse().map_err(|_| NvmlError::InvalidArg)?;
    // A GPU that is lost still has a UUID; what it cannot say any more is its condition.
    let (total, free, condition) = match device.memory_info() {
        Ok(memory) => (memory.total, memory.free, String::new()),
        Err(error) => (0, 0, format!("{uuid} does not answer: {error}")),
    };
    let name = device.name().unwrap_or_default();
    Ok(Device { uuid: uuid.0.to_vec(), name, total, free, condition })
}
