//! Memory of open objects: imported, mapped read-only, and kept while anything refers to it.
//!
//! A mapping is shared by everything in this process that has the same allocation open, and goes when the last of it
//! does. So does the lease's hold: the store frees a removed object's memory only then.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use gpuvol_memory::cuda::visible_devices;
use gpuvol_memory::{Access, Allocation as _, CudaMapping, CudaMemory, Memory as _, SealedMapping};
use gpuvol_protocol::DeviceUuid;
use gpuvol_protocol::message::{Allocation, AllocationKind};

use crate::error::{Error, Result};
use crate::session::Session;

/// One allocation, mapped.
#[derive(Debug, Clone)]
pub enum Mapped {
    Host(Arc<SealedMapping>),
    Device(Arc<CudaMapping>),
}

/// Mappings by allocation, while something uses them.
#[derive(Debug, Default)]
pub struct Mappings {
    cached: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    epoch: u64,
    host: HashMap<u64, Weak<SealedMapping>>,
    device: HashMap<u64, Weak<CudaMapping>>,
}

impl Mappings {
    /// Maps an allocation, or finds it mapped already.
    pub fn map(&self, path: &str, epoch: u64, allocation: &Allocation, fd: OwnedFd) -> Result<Mapped> {
        let mut cache = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.epoch != epoch {
            // Another store may give the same ids to other memory.
            *cache = Cache { epoch, ..Cache::default() };
        }
        match allocation.kind() {
            AllocationKind::Memfd => {
                if let Some(mapped) = cache.host.get(&allocation.id).and_then(Weak::upgrade) {
                    return Ok(Mapped::Host(mapped));
                }
                let mapped = SealedMapping::new(fd.as_fd(), allocation.len).map_err(Error::memory(path))?;
                let mapped = Arc::new(mapped);
                cache.host.retain(|_, known| known.strong_count() > 0);
                cache.host.insert(allocation.id, Arc::downgrade(&mapped));
                Ok(Mapped::Host(mapped))
            }
            AllocationKind::CudaVmm => {
                if let Some(mapped) = cache.device.get(&allocation.id).and_then(Weak::upgrade) {
                    return Ok(Mapped::Device(mapped));
                }
                let memory = device_memory(path, &allocation.device)?;
                let mapped = memory
                    .import(fd, allocation.len)
                    .and_then(|imported| imported.map(Access::ReadOnly))
                    .map_err(Error::memory(path))?;
                let mapped = Arc::new(mapped);
                cache.device.retain(|_, known| known.strong_count() > 0);
                cache.device.insert(allocation.id, Arc::downgrade(&mapped));
                Ok(Mapped::Device(mapped))
            }
        }
    }
}

/// Opens a GPU once per process. The error of one that is not visible names it and those that are.
pub fn device_memory(path: &str, uuid: &[u8]) -> Result<CudaMemory> {
    static OPEN: OnceLock<Mutex<HashMap<[u8; 16], CudaMemory>>> = OnceLock::new();
    let uuid = DeviceUuid::try_from(uuid).map_err(|source| Error::Path { path: path.to_owned(), source })?;
    let mut open = OPEN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(memory) = open.get(&uuid.0) {
        return Ok(memory.clone());
    }
    let visible = match visible_devices() {
        Ok(visible) => visible,
        Err(error) => {
            let visible = format!("no GPU ({error})");
            return Err(Error::DeviceNotVisible { path: path.to_owned(), object: uuid.to_string(), visible });
        }
    };
    if !visible.iter().any(|d| d.uuid == uuid.0) {
        let names: Vec<String> = visible.iter().map(|d| DeviceUuid(d.uuid).to_string()).collect();
        let visible = if names.is_empty() { "no GPU".to_owned() } else { names.join(", ") };
        return Err(Error::DeviceNotVisible { path: path.to_owned(), object: uuid.to_string(), visible });
    }
    let memory = CudaMemory::open(uuid.0).map_err(Error::memory(path))?;
    open.insert(uuid.0, memory.clone());
    Ok(memory)
}

/// Pins a version in the store until dropped.
#[derive(Debug)]
pub struct Hold {
    session: Arc<Session>,
    id: u64,
    epoch: u64,
}

impl Hold {
    /// `id` 0 stands for nothing to let go of.
    pub fn new(session: Arc<Session>, id: u64) -> Self {
        let epoch = session.epoch();
        Self { session, id, epoch }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Holds of an earlier lease ended with it, and its request ids are used again.
        if self.id != 0 && self.epoch == self.session.epoch() {
            self.session.release(self.id);
        }
    }
}

/// Part of a host mapping as bytes that keep both the mapping and the hold.
pub fn shared_bytes(mapping: Arc<SealedMapping>, hold: Arc<Hold>) -> Bytes {
    #[derive(Debug)]
    struct Owner(Arc<SealedMapping>, #[expect(dead_code, reason = "kept until the bytes go")] Arc<Hold>);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            (*self.0).as_ref()
        }
    }
    Bytes::from_owner(Owner(mapping, hold))
}
