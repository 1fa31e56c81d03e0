//! Where a node's volume lives: what was asked for, against what the store sees.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use gpuvol_protocol::DeviceUuid;
use gpuvol_protocol::admin::{Device, Node};

use super::{Error, Result};
use crate::parameters::{DEVICE, TIER};

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// A GPU where there is one that is well, else host memory.
    Auto,
    Host,
    /// Any GPU.
    Gpu,
    This(DeviceUuid),
}

/// What there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chosen {
    Host,
    /// The GPU's UUID; the volume is bound to it.
    Gpu(DeviceUuid, String),
}

impl FromStr for Wish {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "auto" => Ok(Wish::Auto),
            "host" => Ok(Wish::Host),
            "gpu" => Ok(Wish::Gpu),
            uuid => uuid.parse().map(Wish::This).map_err(|_| {
                "want auto, host, gpu, or a UUID such as GPU-00010203-0405-0607-0809-0a0b0c0d0e0f".to_owned()
            }),
        }
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wish::Auto => f.write_str("auto"),
            Wish::Host => f.write_str("host"),
            Wish::Gpu => f.write_str("gpu"),
            Wish::This(uuid) => uuid.fmt(f),
        }
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Chosen::Host => f.write_str("host memory"),
            Chosen::Gpu(uuid, name) => write!(f, "GPU memory ({name}, {uuid})"),
        }
    }
}

impl Wish {
    pub fn choose(self, node: &Node) -> Result<Chosen> {
        let gpu = |device: &Device| {
            let uuid = device.uuid.as_slice().try_into().ok()?;
            Some(Chosen::Gpu(uuid, device.name.clone()))
        };
        let well = || node.devices.iter().filter(|d| d.condition.is_empty()).find_map(gpu);
        match self {
            Wish::Host => Ok(Chosen::Host),
            Wish::Auto => Ok(well().unwrap_or(Chosen::Host)),
            Wish::Gpu => well().ok_or_else(|| Error::NoGpu { why: why_none(node) }),
            Wish::This(uuid) => {
                let found = node.devices.iter().find(|d| d.uuid == uuid.0);
                found.and_then(gpu).ok_or_else(|| Error::OtherGpu { wanted: uuid.to_string(), have: seen(node) })
            }
        }
    }
}

fn why_none(node: &Node) -> String {
    match node.devices.iter().find(|d| !d.condition.is_empty()) {
        Some(ill) => ill.condition.clone(),
        None if node.no_inventory.is_empty() => "the driver lists none".into(),
        None => node.no_inventory.clone(),
    }
}

fn seen(node: &Node) -> String {
    let uuids: Vec<String> = node
        .devices
        .iter()
        .filter_map(|d| DeviceUuid::try_from(d.uuid.as_slice()).ok())
        .map(|uuid| uuid.to_string())
        .collect();
    if uuids.is_empty() { format!("none ({})", why_none(node)) } else { uuids.join(", ") }
}

impl Chosen {
    /// As StorageClass parameters.
    pub fn parameters(&self) -> HashMap<String, String> {
        match self {
            Chosen::Host => HashMap::from([(TIER.to_owned(), "host".to_owned())]),
            Chosen::Gpu(uuid, _) => {
                HashMap::from([(TIER.to_owned(), "gpu".to_owned()), (DEVICE.to_owned(), uuid.to_string())])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(devices: &[(u8, &str)]) -> Node {
        let device = |(id, condition): &(u8, &str)| Device {
            uuid: vec![*id; 16],
            name: "H".into(),
            condition: (*condition).into(),
            ..Device::default()
        };
        let no_inventory = if devices.is_empty() { "NVML is missing".into() } else { String::new() };
        Node { devices: devices.iter().map(device).collect(), no_inventory, ..Node::default() }
    }

    #[test]
    fn a_healthy_gpu_is_taken_where_there_is_one() {
        let chosen = |wish: &str, devices: &[(u8, &str)]| wish.parse::<Wish>().unwrap().choose(&node(devices));
        assert_eq!(chosen("auto", &[]).unwrap(), Chosen::Host);
        assert_eq!(chosen("auto", &[(1, "lost")]).unwrap(), Chosen::Host);
        assert_eq!(chosen("host", &[(1, "")]).unwrap(), Chosen::Host);
        assert_eq!(chosen("gpu", &[(1, "lost"), (2, "")]).unwrap(), Chosen::Gpu(DeviceUuid([2; 16]), "H".into()));
        assert!(chosen("gpu", &[]).unwrap_err().to_string().contains("NVML is missing"));
        let uuid = DeviceUuid([3; 16]).to_string();
        assert!(chosen(&uuid, &[(1, "")]).unwrap_err().to_string().contains(&DeviceUuid([1; 16]).to_string()));
        assert!("cpu".parse::<Wish>().is_err());
    }
}
