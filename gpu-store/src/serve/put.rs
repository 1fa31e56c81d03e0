//! Requests that make objects: create, seal, abort, put-inline.
//!
//! The order that makes a crash at any point harmless: take quota, make the memory, give its descriptor to the keeper,
//! then commit the fact. Whatever the keeper holds without a fact is dropped at the next start.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use gpuvol_memory::memfd::verify_sealed;
use gpuvol_memory::{HostMemory, Memory};
use gpuvol_protocol::message::{
    Abort, Allocation, AllocationKind, Answer, Attach, Attribute, Create, Created, Done, INLINE_LIMIT,
    INLINE_SEGMENTS_LIMIT, Kind, MAX_ALLOCATIONS, MAX_ATTRIBUTE_BYTES, MAX_ATTRIBUTES, MAX_SEGMENTS, PutInline, Seal,
    Sealed, Segment, Tier,
};
use gpuvol_protocol::types::{Bytes, size};
use gpuvol_protocol::{Code, DeviceUuid, Fault, ObjectPath, TypeError};
use rustix::fs::{FileType, MemfdFlags};

use super::names::{answered, make_parents, named, place, room_for_entry};
use super::session::{Answered, Asker, Outcome};
use crate::catalogue::object::{Reservation, charge_of};
use crate::catalogue::quota::{DEVICE_GRANULE, Share, charge};
use crate::catalogue::record::{self, DeviceBound, Fact, ReservationDropped, Reserved, SlabCreated};
use crate::catalogue::slab::{SLAB_SIZE, slot_size};
use crate::catalogue::state::{Catalogue, memory_key};
use crate::catalogue::tree::{Child, PathError};
use crate::node::{MAX_MEMORY, Node, internal, now_ms};

/// Most attribute bytes of one object together.
const MAX_ATTRIBUTES_BYTES: usize = 64 * 1024;
/// Most reservations of one lease at once.
const MAX_RESERVATIONS: usize = 1024;

/// An enum's value that this store does not know.
fn unknown(path: &ObjectPath, what: &'static str, value: i32) -> Fault {
    invalid(format!("{path}: {}", TypeError::Enum { what, value }))
}

fn invalid(message: impl Into<String>) -> Fault {
    Fault::new(Code::InvalidArgument, message)
}

/// Quota taken for memory that is being made; given back unless [`Pending::settle`] is called under the lock that
/// commits.
struct Pending<'n> {
    node: &'n Node,
    volume: &'n str,
    tier: Tier,
    bytes: u64,
}

impl Pending<'_> {
    fn settle(mut self, catalogue: &mut Catalogue) {
        if let Ok(volume) = catalogue.volume_mut(self.volume) {
            volume.quota.give_back(Share::Pending, self.tier, self.bytes);
        }
        self.bytes = 0;
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        if let Ok(volume) = self.node.catalogue().volume_mut(self.volume) {
            volume.quota.give_back(Share::Pending, self.tier, self.bytes);
        }
    }
}

pub fn create(node: &Arc<Node>, asker: &Asker, request: u64, create: &Create) -> Outcome {
    let path = ObjectPath::new(create.path.as_slice())?;
    asker.may_write(&path)?;
    named(&path)?;
    let tier = Tier::try_from(create.tier).map_err(|_| unknown(&path, "tier", create.tier))?;
    if size(create.size)? == 0 {
        return Err(invalid(format!("{path}: an object of 0 bytes takes no memory; put it inline")));
    }
    let bytes = charge(tier, create.size);
    let device = match tier {
        Tier::Host => Vec::new(),
        Tier::Gpu => {
            DeviceUuid::try_from(create.device.as_slice()).map_err(|e| invalid(format!("{path}: {e}")))?.0.to_vec()
        }
    };
    if tier == Tier::Gpu {
        node.books().check_device(&device)?;
    }

    let (pending, reservation, memory) = {
        let mut catalogue = node.catalogue();
        if let Some(outcome) = created_before(&catalogue, asker, request)? {
            return Ok(outcome);
        }
        check_place(&catalogue, &asker.volume, &path, false)?;
        if tier == Tier::Gpu {
            bind_device(node, &mut catalogue, &asker.volume, &path, &device)?;
        } else {
            node.books().check_host_object(&catalogue, &asker.volume, bytes)?;
        }
        if catalogue.memory_count() >= MAX_MEMORY {
            let message = format!("{path}: the node holds {MAX_MEMORY} large objects, the most it can; remove some");
            return Err(Fault::new(Code::LimitExceeded, message));
        }
        let volume = catalogue.volume_mut(&asker.volume)?;
        volume.quota.check(&asker.volume, &path.to_string(), bytes)?;
        volume.quota.take(Share::Pending, tier, bytes);
        (Pending { node, volume: &asker.volume, tier, bytes }, catalogue.new_id(), catalogue.new_id())
    };

    let fd = match tier {
        Tier::Gpu => None,
        Tier::Host => Some(host_memory(node, asker, &path, memory, bytes)?),
    };
    let allocation = fd.as_ref().map(|_| Allocation {
        id: memory,
        kind: AllocationKind::Memfd.into(),
        len: bytes,
        device: Vec::new(),
    });
    let reserved = Reserved {
        volume: asker.volume.clone(),
        origin: asker.origin(request),
        reservation,
        path: path.as_bytes().to_vec(),
        charge: bytes,
        tier: tier.into(),
        device,
        allocation,
    };
    let mut catalogue = node.catalogue();
    pending.settle(&mut catalogue);
    if let Some(fd) = &fd {
        catalogue.adopt_fd(memory, fd.clone());
    }
    // The client may have gone, or the volume with it, while its memory was made.
    let committed = catalogue.lease(asker.lease).map(|_| ()).and_then(|()| catalogue.commit(Fact::Reserved(reserved)));
    match committed {
        Ok(garbage) => node.reap(garbage),
        Err(fault) => {
            node.reap(catalogue.disown_fd(memory));
            return Err(fault);
        }
    }
    drop(catalogue);
    Ok((Answer::Created(Created { reservation, reserved: bytes }), fd.into_iter().collect()))
}

/// The reservation that an earlier sending of this request made.
fn created_before(catalogue: &Catalogue, asker: &Asker, request: u64) -> Result<Option<Answered>, Fault> {
    let lease = catalogue.lease(asker.lease)?;
    let Some(id) = lease.reservations.get(&request).copied() else {
        if lease.reservations.len() >= MAX_RESERVATIONS {
            let message =
                format!("this client has {MAX_RESERVATIONS} objects that it did not seal; seal or abort them");
            return Err(Fault::new(Code::LimitExceeded, message));
        }
        return Ok(None);
    };
    let Some(reservation) = catalogue.volume(&asker.volume)?.reservations.get(&id) else { return Ok(None) };
    let fd = reservation.allocation.as_ref().and_then(|a| catalogue.fd(a.id));
    let created = Created { reservation: id, reserved: reservation.charge };
    Ok(Some((Answer::Created(created), fd.into_iter().collect())))
}

/// May an object appear at this path?
fn check_place(catalogue: &Catalogue, volume: &str, path: &ObjectPath, exclusive: bool) -> Result<(), Fault> {
    let volume_state = catalogue.volume(volume)?;
    match volume_state.tree.lookup(path) {
        Ok(Child::Directory(_)) => {
            let message = format!("{path} in volume {volume} is a directory; an object cannot replace it");
            Err(Fault::new(Code::IsADirectory, message))
        }
        Ok(Child::Object(_)) if exclusive => {
            Err(Fault::new(Code::AlreadyExists, format!("{path} exists in volume {volume}")))
        }
        Ok(Child::Object(_)) => Ok(()),
        Err(PathError::NotFound) => room_for_entry(volume_state, &path.to_string()),
        Err(error) => Err(super::names::not_there(volume, path, error)),
    }
}

/// A volume lives on one GPU: the one its class names, or the one of its first device put.
fn bind_device(
    node: &Node,
    catalogue: &mut Catalogue,
    id: &str,
    path: &ObjectPath,
    device: &[u8],
) -> Result<(), Fault> {
    let volume = catalogue.volume(id)?;
    if volume.tier() == Tier::Host {
        let message = format!(
            "{path}: volume {id} is of tier host and takes no GPU memory; copy the data to the host, or use a class with gpuvol.dev/tier: gpu"
        );
        return Err(Fault::new(Code::Unsupported, message));
    }
    if volume.device.is_empty() {
        let bound = DeviceBound { volume: id.to_owned(), device: device.to_vec() };
        node.reap(catalogue.commit(Fact::DeviceBound(bound))?);
        return Ok(());
    }
    if volume.device == device {
        return Ok(());
    }
    let name = |uuid: &[u8]| DeviceUuid::try_from(uuid).map_or_else(|e| e.to_string(), |u| u.to_string());
    let message = format!(
        "{path}: the data is on {}, volume {id} lives on {}; run the stage on that GPU, or use another volume",
        name(device),
        name(&volume.device)
    );
    Err(Fault::new(Code::DeviceMismatch, message))
}

/// A memfd with all its pages, which the keeper holds.
fn host_memory(node: &Node, asker: &Asker, path: &ObjectPath, id: u64, len: u64) -> Result<Arc<OwnedFd>, Fault> {
    let memory = HostMemory.create(len).map_err(|error| {
        let message = format!(
            "no host memory for {path} in volume {}: {} could not be made: {error}; the node is short of memory",
            asker.volume,
            Bytes(len)
        );
        Fault { need: len, ..Fault::new(Code::OutOfMemory, message) }
    })?;
    let fd = Arc::new(memory.into_fd());
    node.keeper.hold(&[(memory_key(id), fd.clone())])?;
    Ok(fd)
}

pub fn attach(node: &Arc<Node>, asker: &Asker, request: u64, attach: Attach, fds: Vec<OwnedFd>) -> Outcome {
    let reservation = {
        let catalogue = node.catalogue();
        if answered(&catalogue, asker, request).is_some() {
            return Ok((Answer::Done(Done {}), vec![]));
        }
        owned_reservation(&catalogue, asker, attach.reservation)?
    };
    let path = ObjectPath::new(reservation.path.as_slice())?;
    check_descriptors(node, &path, &reservation, &attach.allocations, &fds)?;
    let mut allocations: Vec<Allocation> = reservation.memory().cloned().collect();
    allocations.extend(attach.allocations.iter().cloned());
    check_charge(&path, &reservation, &allocations, &[])?;
    let (new, allocations) = hold_memory(node, attach.allocations, fds)?;
    let mut catalogue = node.catalogue();
    adopt(&mut catalogue, &new);
    let attached = record::Attached {
        volume: asker.volume.clone(),
        origin: asker.origin(request),
        reservation: attach.reservation,
        allocations,
    };
    let committed = owned_reservation(&catalogue, asker, attach.reservation)
        .and_then(|_| catalogue.commit(Fact::Attached(attached)));
    match committed {
        Ok(garbage) => {
            node.reap(garbage);
            Ok((Answer::Done(Done {}), vec![]))
        }
        Err(fault) => {
            disown(node, &mut catalogue, &new);
            Err(fault)
        }
    }
}

/// Descriptors by the ids of what they stand for.
type NewMemory = Vec<(u64, Arc<OwnedFd>)>;

/// Gives ids to memory that a client made, and the memory to the keeper.
fn hold_memory(
    node: &Node,
    mut allocations: Vec<Allocation>,
    fds: Vec<OwnedFd>,
) -> Result<(NewMemory, Vec<Allocation>), Fault> {
    let new: NewMemory = {
        let mut catalogue = node.catalogue();
        fds.into_iter().map(|fd| (catalogue.new_id(), Arc::new(fd))).collect()
    };
    for (allocation, (id, _)) in allocations.iter_mut().zip(&new) {
        allocation.id = *id;
    }
    if !new.is_empty() {
        let held: Vec<_> = new.iter().map(|(id, fd)| (memory_key(*id), fd.clone())).collect();
        node.keeper.hold(&held)?;
    }
    Ok((new, allocations))
}

fn adopt(catalogue: &mut Catalogue, new: &NewMemory) {
    for (id, fd) in new {
        catalogue.adopt_fd(*id, fd.clone());
    }
}

fn disown(node: &Node, catalogue: &mut Catalogue, new: &NewMemory) {
    for (id, _) in new {
        node.reap(catalogue.disown_fd(*id));
    }
}

/// Is all of it in what was reserved?
fn check_charge(
    path: &ObjectPath,
    reservation: &Reservation,
    allocations: &[Allocation],
    segments: &[Segment],
) -> Result<(), Fault> {
    let takes = charge_of(allocations, segments);
    if takes <= reservation.charge {
        return Ok(());
    }
    Err(invalid(format!("{path}: the object takes {}, {} were reserved", Bytes(takes), Bytes(reservation.charge))))
}

pub fn seal(node: &Arc<Node>, asker: &Asker, request: u64, seal: Seal, fds: Vec<OwnedFd>) -> Outcome {
    let (reservation, own) = {
        let catalogue = node.catalogue();
        if let Some(version) = answered(&catalogue, asker, request) {
            return Ok((Answer::Sealed(Sealed { version }), vec![]));
        }
        let reservation = owned_reservation(&catalogue, asker, seal.reservation)?;
        let own = reservation.allocation.as_ref().and_then(|a| catalogue.fd(a.id));
        (reservation, own)
    };
    let path = ObjectPath::new(reservation.path.as_slice())?;
    asker.may_write(&path)?;
    let kind = Kind::try_from(seal.kind).map_err(|_| unknown(&path, "kind", seal.kind))?;
    check_attributes(&path, &seal.attributes)?;
    check_descriptors(node, &path, &reservation, &seal.allocations, &fds)?;
    let mut allocations: Vec<Allocation> = reservation.memory().cloned().collect();
    allocations.extend(seal.allocations.iter().cloned());
    check_segments(&path, &allocations, &seal.segments)?;
    check_charge(&path, &reservation, &allocations, &seal.segments)?;
    if let (Some(fd), Some(allocation)) = (&own, &reservation.allocation) {
        seal_memfd(&path, fd, allocation)?;
    }
    let (new, with_ids) = hold_memory(node, seal.allocations, fds)?;
    allocations.truncate(allocations.len() - new.len());
    allocations.extend(with_ids);
    let mut catalogue = node.catalogue();
    adopt(&mut catalogue, &new);
    let sealed = record::Sealed {
        origin: asker.origin(request),
        reservation: seal.reservation,
        kind: kind.into(),
        allocations,
        segments: seal.segments,
        attributes: seal.attributes,
        ..record::Sealed::default()
    };
    let published = owned_reservation(&catalogue, asker, seal.reservation)
        .and_then(|_| publish(node, &mut catalogue, asker, &path, seal.exclusive, sealed));
    match published {
        Ok(version) => {
            drop(catalogue);
            node.announce();
            mark_written(node, &asker.volume);
            Ok((Answer::Sealed(Sealed { version }), vec![]))
        }
        Err(fault) => {
            disown(node, &mut catalogue, &new);
            Err(fault)
        }
    }
}

/// Commits an object at its path.
fn publish(
    node: &Node,
    catalogue: &mut Catalogue,
    asker: &Asker,
    path: &ObjectPath,
    exclusive: bool,
    mut sealed: record::Sealed,
) -> Result<u64, Fault> {
    check_place(catalogue, &asker.volume, path, exclusive)?;
    let (parent, _) = named(path)?;
    make_parents(node, catalogue, &asker.volume, &parent)?;
    let (parent, name, _) = place(catalogue, &asker.volume, path)?;
    let version = catalogue.new_id();
    sealed.volume.clone_from(&asker.volume);
    sealed.version = version;
    sealed.parent = parent;
    sealed.name = name;
    sealed.time_ms = now_ms();
    sealed.producer.clone_from(&asker.producer);
    node.reap(catalogue.commit(Fact::Sealed(sealed))?);
    Ok(version)
}

fn owned_reservation(catalogue: &Catalogue, asker: &Asker, id: u64) -> Result<Reservation, Fault> {
    let found = catalogue.volume(&asker.volume)?.reservations.get(&id);
    let own = found.filter(|r| r.origin.lease == asker.lease.0);
    own.cloned().ok_or_else(|| Fault::new(Code::NotFound, format!("this client has no reservation {id}")))
}

fn check_attributes(path: &ObjectPath, attributes: &[Attribute]) -> Result<(), Fault> {
    let total: usize = attributes.iter().map(|a| a.name.len() + a.value.len()).sum();
    let one = attributes.iter().map(|a| a.name.len() + a.value.len()).max().unwrap_or(0);
    if attributes.len() > MAX_ATTRIBUTES || one > MAX_ATTRIBUTE_BYTES || total > MAX_ATTRIBUTES_BYTES {
        let message = format!(
            "{path}: {} attributes of {total} bytes, the largest of {one}; allowed are {MAX_ATTRIBUTES} of {MAX_ATTRIBUTES_BYTES} bytes, each up to {MAX_ATTRIBUTE_BYTES}",
            attributes.len()
        );
        return Err(invalid(message));
    }
    Ok(())
}

/// Are the descriptors that came along the memory that they are said to be?
fn check_descriptors(
    node: &Node,
    path: &ObjectPath,
    reservation: &Reservation,
    claimed: &[Allocation],
    fds: &[OwnedFd],
) -> Result<(), Fault> {
    if claimed.len() != fds.len() || claimed.len() >= MAX_ALLOCATIONS {
        let message = format!(
            "{path}: {} allocations with {} descriptors; one each, fewer than {MAX_ALLOCATIONS}",
            claimed.len(),
            fds.len()
        );
        return Err(invalid(message));
    }
    for (allocation, fd) in claimed.iter().zip(fds) {
        let kind =
            AllocationKind::try_from(allocation.kind).map_err(|_| unknown(path, "allocation kind", allocation.kind))?;
        match kind {
            AllocationKind::Memfd => check_memfd(path, allocation, fd)?,
            AllocationKind::CudaVmm => check_device_memory(node, path, reservation, allocation, fd)?,
        }
    }
    Ok(())
}

fn check_memfd(path: &ObjectPath, allocation: &Allocation, fd: &OwnedFd) -> Result<(), Fault> {
    let page = crate::catalogue::quota::HOST_GRANULE;
    if allocation.len == 0 || !allocation.len.is_multiple_of(page) || !allocation.device.is_empty() {
        let message =
            format!("{path}: a memfd of {} bytes; a multiple of {page} and no device are wanted", allocation.len);
        return Err(invalid(message));
    }
    verify_sealed(fd.as_fd(), allocation.len)
        .map_err(|error| Fault::new(Code::BadMemory, format!("{path}: the descriptor is no sealed memory: {error}")))
}

fn check_device_memory(
    node: &Node,
    path: &ObjectPath,
    reservation: &Reservation,
    allocation: &Allocation,
    fd: &OwnedFd,
) -> Result<(), Fault> {
    if reservation.tier != Tier::Gpu || allocation.device != reservation.device {
        let name = |uuid: &[u8]| DeviceUuid::try_from(uuid).map_or_else(|_| "host memory".into(), |u| u.to_string());
        let message = format!(
            "{path}: memory of {} for a reservation on {}",
            name(&allocation.device),
            name(&reservation.device)
        );
        return Err(Fault::new(Code::DeviceMismatch, message));
    }
    if allocation.len == 0 || !allocation.len.is_multiple_of(DEVICE_GRANULE) {
        let message =
            format!("{path}: device memory of {} bytes; a multiple of {DEVICE_GRANULE} is wanted", allocation.len);
        return Err(invalid(message));
    }
    // The store has no CUDA context to ask what the descriptor is, but it can tell what it surely is not.
    let stat = rustix::fs::fstat(fd).map_err(internal)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let is_memfd = kind == FileType::RegularFile && rustix::fs::fcntl_get_seals(fd).is_ok();
    let plausible = match kind {
        FileType::RegularFile => is_memfd && node.config.memfd_devices,
        FileType::Directory | FileType::Symlink | FileType::Fifo | FileType::Socket | FileType::BlockDevice => false,
        FileType::CharacterDevice | FileType::Unknown => true,
    };
    if plausible {
        return Ok(());
    }
    Err(Fault::new(Code::BadMemory, format!("{path}: the descriptor is {kind:?}, not exported device memory")))
}

fn check_segments(path: &ObjectPath, allocations: &[Allocation], segments: &[Segment]) -> Result<(), Fault> {
    if segments.is_empty() || segments.len() > MAX_SEGMENTS {
        return Err(invalid(format!("{path}: {} segments; 1 to {MAX_SEGMENTS} are allowed", segments.len())));
    }
    let mut total: u64 = 0;
    let mut inline: u64 = 0;
    for (at, segment) in segments.iter().enumerate() {
        let refuse = |why: String| Err(invalid(format!("{path}: segment {at} {why}")));
        let len = size(segment.len)?;
        if segment.inline.is_empty() {
            let index = usize::try_from(segment.allocation).unwrap_or(usize::MAX);
            let Some(allocation) = allocations.get(index) else {
                return refuse(format!("names allocation {index} of {}", allocations.len()));
            };
            let end = segment.offset.checked_add(len);
            if end.is_none_or(|end| end > allocation.len) {
                return refuse(format!(
                    "covers {len} bytes at {}, its allocation has {}",
                    segment.offset, allocation.len
                ));
            }
        } else {
            if segment.inline.len() as u64 != len {
                return refuse(format!("says {len} bytes and has {}", segment.inline.len()));
            }
            inline += len;
        }
        total = size(total.saturating_add(len))?;
    }
    if inline > INLINE_SEGMENTS_LIMIT {
        let message = format!("{path}: {inline} bytes of inline segments; {INLINE_SEGMENTS_LIMIT} are allowed");
        return Err(invalid(message));
    }
    Ok(())
}

/// Ends writing to the store's own memfd, for everybody and for good. A client that punched holes meanwhile gets zeros
/// there: made now, by the store, so that no reader is charged for them.
fn seal_memfd(path: &ObjectPath, fd: &OwnedFd, allocation: &Allocation) -> Result<(), Fault> {
    gpuvol_memory::memfd::seal(fd.as_fd())
        .map_err(|e| Fault::new(Code::BadMemory, format!("{path}: its memory cannot be sealed: {e}")))?;
    let blocks = rustix::fs::fstat(fd).map_err(internal)?.st_blocks;
    // The size is sealed, so no block lies beyond the end.
    if u64::try_from(blocks).unwrap_or(0).saturating_mul(512) < allocation.len {
        rustix::fs::fallocate(fd, rustix::fs::FallocateFlags::empty(), 0, allocation.len).map_err(internal)?;
    }
    Ok(())
}

pub fn abort(node: &Arc<Node>, asker: &Asker, abort: &Abort) -> Outcome {
    let mut catalogue = node.catalogue();
    if owned_reservation(&catalogue, asker, abort.reservation).is_ok() {
        let dropped = ReservationDropped { volume: asker.volume.clone(), reservation: abort.reservation };
        node.reap(catalogue.commit(Fact::ReservationDropped(dropped))?);
    }
    // One that is gone already is what was asked for.
    Ok((Answer::Done(Done {}), vec![]))
}

pub fn put_inline(node: &Arc<Node>, asker: &Asker, request: u64, inline: PutInline) -> Outcome {
    let path = ObjectPath::new(inline.path.as_slice())?;
    asker.may_write(&path)?;
    let len = inline.content.len() as u64;
    if len > INLINE_LIMIT {
        return Err(invalid(format!("{path}: {len} bytes inline; {INLINE_LIMIT} are allowed")));
    }
    check_attributes(&path, &inline.attributes)?;
    Kind::try_from(inline.kind).map_err(|_| unknown(&path, "kind", inline.kind))?;
    loop {
        let mut catalogue = node.catalogue();
        catalogue.lease(asker.lease)?;
        if let Some(version) = answered(&catalogue, asker, request) {
            return Ok((Answer::Sealed(Sealed { version }), vec![]));
        }
        check_place(&catalogue, &asker.volume, &path, inline.exclusive)?;
        node.books().check_host_object(&catalogue, &asker.volume, slot_size(len))?;
        let volume = catalogue.volume(&asker.volume)?;
        volume.quota.check(&asker.volume, &path.to_string(), slot_size(len))?;
        let Some(slot) = volume.slabs.find(len) else {
            drop(catalogue);
            new_slab(node, &asker.volume)?;
            continue;
        };
        let slab = catalogue.fd(slot.slab).ok_or_else(|| internal("a slab without memory"))?;
        write_slot(&slab, slot.offset, &inline.content)?;
        let sealed = record::Sealed {
            origin: asker.origin(request),
            kind: inline.kind,
            attributes: inline.attributes,
            slot: Some(slot),
            ..record::Sealed::default()
        };
        let version = publish(node, &mut catalogue, asker, &path, inline.exclusive, sealed)?;
        drop(catalogue);
        node.announce();
        mark_written(node, &asker.volume);
        return Ok((Answer::Sealed(Sealed { version }), vec![]));
    }
}

/// Copies an object's bytes into its slot. Memory to memory: short enough for the catalogue's lock.
fn write_slot(slab: &OwnedFd, offset: u64, content: &[u8]) -> Result<(), Fault> {
    let mut done = 0;
    while done < content.len() {
        done += rustix::io::pwrite(slab, &content[done..], offset + done as u64).map_err(internal)?;
    }
    Ok(())
}

fn new_slab(node: &Arc<Node>, volume: &str) -> Result<(), Fault> {
    let fd = rustix::fs::memfd_create("gpuvol-slab", MemfdFlags::CLOEXEC).map_err(internal)?;
    // Its pages come as objects do, so a slab takes no more memory than they need.
    rustix::fs::ftruncate(&fd, SLAB_SIZE).map_err(internal)?;
    let fd = Arc::new(fd);
    let slab = {
        let mut catalogue = node.catalogue();
        if catalogue.memory_count() >= MAX_MEMORY {
            let message = format!("volume {volume}: the node holds {MAX_MEMORY} pieces of memory, the most it can");
            return Err(Fault::new(Code::LimitExceeded, message));
        }
        catalogue.new_id()
    };
    node.keeper.hold(&[(memory_key(slab), fd.clone())])?;
    let mut catalogue = node.catalogue();
    catalogue.adopt_fd(slab, fd);
    match catalogue.commit(Fact::SlabCreated(SlabCreated { volume: volume.to_owned(), slab })) {
        Ok(garbage) => {
            node.reap(garbage);
            Ok(())
        }
        Err(fault) => {
            node.reap(catalogue.disown_fd(slab));
            Err(fault)
        }
    }
}

/// Notes in the volume's file, once, that it is no longer what a reboot may bring back empty.
fn mark_written(node: &Node, volume: &str) {
    let first = node.catalogue().volume_mut(volume).is_ok_and(|v| !std::mem::replace(&mut v.written, true));
    if first {
        let updated = node.provisions.update(volume, |file| {
            file.written = true;
            file.lost_ms = 0;
        });
        if let Err(error) = updated {
            tracing::error!(volume, %error, "it is not noted that the volume has content");
        }
    }
}
