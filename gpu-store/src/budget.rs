//! What the node may promise: capacities of volumes against host memory and against each GPU.

use gpuvol_protocol::admin::{Capacity, Device, TierStatus, VolumeSpec};
use gpuvol_protocol::message::Tier;
use gpuvol_protocol::types::Bytes;
use gpuvol_protocol::{Code, DeviceUuid, Fault};

use crate::catalogue::state::Catalogue;
use crate::inventory::Inventory;

/// What a CUDA context of a stage pod takes beside its data, and some room for the pod's own work, in bytes. A context
/// costs about 500 MiB on an H200.
const CONTEXT_RESERVE: u64 = 1024 * 1024 * 1024;

#[derive(Debug, Clone, Copy)]
pub struct Budgets {
    /// Bytes of host memory.
    pub host: u64,
    /// Bytes of each GPU; `None` for all that it has but the reserve of one context.
    pub gpu: Option<u64>,
}

/// One budget and what is left of it, in bytes.
#[derive(Debug, Clone, Copy)]
struct Room {
    budget: u64,
    promised: u64,
    used: u64,
    /// What could be promised now.
    left: u64,
}

/// The budgets against what the catalogue has promised.
#[derive(Debug)]
pub struct Books<'a> {
    pub budgets: Budgets,
    pub inventory: &'a Inventory,
    /// The GPUs as they were just now. Asked for before the catalogue is locked: a sick GPU may take long to answer.
    pub devices: Vec<Device>,
}

impl Books<'_> {
    fn host(&self, catalogue: &Catalogue) -> Room {
        let promised = catalogue.volumes.values().filter(|v| v.tier() == Tier::Host).map(|v| v.quota.capacity).sum();
        let used = catalogue.volumes.values().map(|v| v.quota.used_on(Tier::Host)).sum();
        let extra = catalogue.host_bytes_of_gpu_volumes();
        let left = self.budgets.host.saturating_sub(promised).saturating_sub(extra);
        Room { budget: self.budgets.host, promised, used, left }
    }

    /// A volume that is not bound to a GPU yet counts against every one that it may be bound to.
    fn gpu(&self, catalogue: &Catalogue, device: &Device) -> Room {
        let on_it = || {
            let gpu = catalogue.volumes.values().filter(|v| v.tier() == Tier::Gpu);
            gpu.filter(|v| v.device.is_empty() || v.device == device.uuid)
        };
        let promised: u64 = on_it().map(|v| v.quota.capacity).sum();
        let used = on_it().map(|v| v.quota.used_on(Tier::Gpu)).sum();
        let budget = self.budgets.gpu.unwrap_or(device.total.saturating_sub(CONTEXT_RESERVE)).min(device.total);
        let unused = promised.saturating_sub(used);
        let free = device.free.saturating_sub(unused).saturating_sub(CONTEXT_RESERVE);
        Room { budget, promised, used, left: budget.saturating_sub(promised).min(free) }
    }

    /// What could be provisioned now. On several GPUs that is the most of a single one: a volume lives on one.
    pub fn capacity(&self, catalogue: &Catalogue, tier: Tier, device: &[u8]) -> Capacity {
        let left = match tier {
            Tier::Host => self.host(catalogue).left,
            Tier::Gpu => {
                let wanted = self.devices.iter().filter(|d| device.is_empty() || d.uuid == device);
                wanted.map(|d| self.gpu(catalogue, d).left).max().unwrap_or(0)
            }
        };
        Capacity { available: left, maximum: left }
    }

    /// Is there room for this volume, beside `already` bytes that it has been promised before?
    pub fn check_volume(&self, catalogue: &Catalogue, spec: &VolumeSpec, already: u64) -> Result<(), Fault> {
        let tier = spec.tier_or_host();
        let need = spec.capacity.saturating_sub(already);
        if tier == Tier::Gpu {
            self.check_device(&spec.device)?;
        }
        let free = self.capacity(catalogue, tier, &spec.device).maximum;
        if need <= free {
            return Ok(());
        }
        let place = match tier {
            Tier::Host => "host memory".to_owned(),
            Tier::Gpu => match DeviceUuid::try_from(spec.device.as_slice()) {
                Ok(uuid) => format!("GPU memory of {uuid}"),
                Err(_) => "the memory of any GPU".to_owned(),
            },
        };
        let message = format!(
            "no room on this node for volume {} ({}): needs {}, {} of {place} can still be promised; delete volumes or use another node",
            spec.id,
            spec.name,
            Bytes(need),
            Bytes(free)
        );
        Err(Fault { need, free, limit: free, ..Fault::new(Code::OutOfMemory, message) })
    }

    /// Does the node have this GPU (any GPU, where `device` is empty)?
    pub fn check_device(&self, device: &[u8]) -> Result<(), Fault> {
        let present = self.inventory.present();
        if present.is_empty() {
            let why = self.inventory.missing().unwrap_or("NVML lists none");
            let message = format!("this node has no GPU for a volume of tier gpu ({why}); use tier host here");
            return Err(Fault::new(Code::OutOfMemory, message));
        }
        if device.is_empty() || present.iter().any(|uuid| uuid.0 == device) {
            return Ok(());
        }
        let asked = DeviceUuid::try_from(device).map_or_else(|e| e.to_string(), |uuid| uuid.to_string());
        let here: Vec<String> = present.iter().map(DeviceUuid::to_string).collect();
        let message = format!("this node has no GPU {asked}; it has {}", here.join(", "));
        Err(Fault::new(Code::DeviceUnknown, message))
    }

    /// Host memory for an object of a GPU-tier volume is in nobody's capacity: it must fit beside the promises.
    pub fn check_host_object(&self, catalogue: &Catalogue, volume: &str, need: u64) -> Result<(), Fault> {
        if catalogue.volume(volume)?.tier() == Tier::Host {
            return Ok(());
        }
        let free = self.host(catalogue).left;
        if need <= free {
            return Ok(());
        }
        let message = format!(
            "no host memory on this node for an object of GPU volume {volume}: needs {}, {} of the host budget of {} are free; put it in GPU memory",
            Bytes(need),
            Bytes(free),
            Bytes(self.budgets.host)
        );
        Err(Fault { need, free, limit: self.budgets.host, ..Fault::new(Code::OutOfMemory, message) })
    }

    pub fn tiers(&self, catalogue: &Catalogue) -> Vec<TierStatus> {
        let status = |tier: Tier, device: Vec<u8>, room: Room| TierStatus {
            tier: tier.into(),
            device,
            budget: room.budget,
            promised: room.promised,
            used: room.used,
        };
        let mut tiers = vec![status(Tier::Host, Vec::new(), self.host(catalogue))];
        for device in &self.devices {
            let room = self.gpu(catalogue, device);
            tiers.push(status(Tier::Gpu, device.uuid.clone(), room));
        }
        tiers
    }
}
