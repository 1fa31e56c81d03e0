//! The driver's state: one for the process, behind one lock, and a stack of contexts for each thread.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::codes::{
    CONTEXT_IS_DESTROYED, Code, INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, NOT_INITIALIZED, OPERATING_SYSTEM,
    OUT_OF_MEMORY, SUCCESS, is_sticky,
};
use crate::config::{Config, format_uuid};

/// Sizes and addresses of `cuMemCreate` memory are multiples of this, as measured on a real device.
pub const GRANULARITY: u64 = 2 << 20;
/// Every memfd of this driver is named so, followed by the device's UUID and the size in bytes: that is how an
/// import recognises one, and learns where it is.
pub const MEMFD_PREFIX: &str = "gpuvol-fake-vmm";

pub struct World {
    pub config: Config,
    pub devices: Vec<Device>,
    pub handles: HashMap<u64, Handle>,
    pub next_id: u64,
    /// Reserved address ranges: start to size.
    pub reservations: BTreeMap<u64, u64>,
    /// Mapped address ranges by start.
    pub ranges: BTreeMap<u64, Range>,
    /// Page-locked host ranges: start to (length, allocated by us).
    pub host: BTreeMap<u64, (u64, bool)>,
    pub streams: HashSet<u64>,
    pub events: HashSet<u64>,
}

pub struct Device {
    /// How often the primary context is retained.
    pub retained: u64,
    /// What every call in the primary context answers since a fault.
    pub lost: Option<Code>,
    /// Bytes in use by allocations made in this process.
    pub used: Arc<AtomicU64>,
}

pub struct Handle {
    pub physical: Arc<Physical>,
    pub references: u64,
}

/// Memory itself.
pub struct Physical {
    pub id: u64,
    pub fd: OwnedFd,
    pub size: u64,
    pub device: usize,
    /// `requestedHandleTypes` of its creation.
    pub handle_types: u32,
    /// What to give back on drop: memory imported from elsewhere is counted there.
    counted: Option<Arc<AtomicU64>>,
}

impl Drop for Physical {
    fn drop(&mut self) {
        if let Some(used) = &self.counted {
            used.fetch_sub(self.size, Ordering::Relaxed);
        }
    }
}

#[derive(Clone)]
pub struct Range {
    pub size: u64,
    pub physical: Arc<Physical>,
    /// `CUmemAccess_flags`: 0 none, 1 read, 3 read and write.
    pub access: u32,
    /// From `cuMemAlloc`, so without a handle.
    pub plain: bool,
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);

thread_local! {
    /// Device numbers whose primary contexts are pushed; `None` for a null context that was set.
    static STACK: RefCell<Vec<Option<usize>>> = const { RefCell::new(Vec::new()) };
}

fn world() -> MutexGuard<'static, Option<World>> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn stack<T>(use_it: impl FnOnce(&mut Vec<Option<usize>>) -> T) -> T {
    STACK.with_borrow_mut(use_it)
}

/// Makes the state from the environment, once.
pub fn initialise() -> Result<(), Code> {
    let mut guard = world();
    if guard.is_none() {
        let config = Config::from_environment().ok_or(INVALID_VALUE)?;
        *guard = Some(World::new(config));
    }
    match guard.as_mut() {
        Some(world) => world.config.faults.check("init"),
        None => Err(NOT_INITIALIZED),
    }
}

/// Runs a driver function of a fault group: after `cuInit`, unless a fault is due or the context is lost.
pub fn call(group: &str, body: impl FnOnce(&mut World) -> Result<(), Code>) -> Code {
    let mut guard = world();
    let Some(world) = guard.as_mut() else {
        return NOT_INITIALIZED;
    };
    let current = stack(|stack| stack.last().copied().flatten());
    if let Some(lost) = current.and_then(|device| world.devices[device].lost) {
        return lost;
    }
    let answer = world.config.faults.check(group).and_then(|()| body(world));
    match answer {
        Ok(()) => SUCCESS,
        Err(code) => {
            if is_sticky(code)
                && let Some(device) = current
            {
                world.devices[device].lost = Some(code);
            }
            code
        }
    }
}

/// As [`call`], for the functions that manage contexts and go on working in a lost one.
pub fn call_anyway(group: &str, body: impl FnOnce(&mut World) -> Result<(), Code>) -> Code {
    let mut guard = world();
    let Some(world) = guard.as_mut() else {
        return NOT_INITIALIZED;
    };
    world.config.faults.check(group).and_then(|()| body(world)).err().unwrap_or(SUCCESS)
}

impl World {
    fn new(config: Config) -> Self {
        let device = || Device { retained: 0, lost: None, used: Arc::default() };
        Self {
            devices: config.devices.iter().map(|_| device()).collect(),
            config,
            handles: HashMap::new(),
            next_id: 0x1000,
            reservations: BTreeMap::new(),
            ranges: BTreeMap::new(),
            host: BTreeMap::new(),
            streams: HashSet::new(),
            events: HashSet::new(),
        }
    }

    pub fn new_id(&mut self) -> u64 {
        self.next_id += 0x10;
        self.next_id
    }

    /// The device of the calling thread's current context.
    pub fn current(&self) -> Result<usize, Code> {
        let device = stack(|stack| stack.last().copied().flatten()).ok_or(INVALID_CONTEXT)?;
        if self.devices[device].retained == 0 { Err(CONTEXT_IS_DESTROYED) } else { Ok(device) }
    }

    pub fn device(&self, number: i32) -> Result<usize, Code> {
        usize::try_from(number).ok().filter(|number| *number < self.devices.len()).ok_or(INVALID_DEVICE)
    }

    pub fn free_bytes(&self, device: usize) -> u64 {
        self.config.memory.saturating_sub(self.devices[device].used.load(Ordering::Relaxed))
    }

    /// New memory on a device; nothing is touched, so it costs the host nothing until it is written.
    pub fn make(&mut self, device: usize, size: u64, handle_types: u32) -> Result<Arc<Physical>, Code> {
        if size > self.free_bytes(device) {
            return Err(OUT_OF_MEMORY);
        }
        let name = format!("{MEMFD_PREFIX}:{}:{size}", format_uuid(self.config.devices[device]));
        let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(|_| OPERATING_SYSTEM)?;
        ftruncate(&fd, size).map_err(|_| OUT_OF_MEMORY)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).map_err(|_| OPERATING_SYSTEM)?;
        let used = Arc::clone(&self.devices[device].used);
        used.fetch_add(size, Ordering::Relaxed);
        Ok(Arc::new(Physical { id: self.new_id(), fd, size, device, handle_types, counted: Some(used) }))
    }

    /// Memory that another process made.
    pub fn adopt(&mut self, fd: OwnedFd, size: u64, device: usize, handle_types: u32) -> Arc<Physical> {
        Arc::new(Physical { id: self.new_id(), fd, size, device, handle_types, counted: None })
    }

    /// A handle for memory, or one more reference to the one there is.
    pub fn handle(&mut self, physical: &Arc<Physical>) -> u64 {
        let handle =
            self.handles.entry(physical.id).or_insert_with(|| Handle { physical: Arc::clone(physical), references: 0 });
        handle.references += 1;
        physical.id
    }

    /// The mapped range that holds an address.
    pub fn range_at(&self, address: u64) -> Result<(u64, &Range), Code> {
        match self.ranges.range(..=address).next_back() {
            Some((start, range)) if address - start < range.size => Ok((*start, range)),
            _ => Err(INVALID_VALUE),
        }
    }

    /// The page-locked host range that holds an address.
    pub fn host_at(&self, address: u64) -> Option<u64> {
        let (start, (len, _)) = self.host.range(..=address).next_back()?;
        (address - start < *len).then_some(*start)
    }
}
